//! What reading a route takes of the allowance of its namespace.

use oxigress_core::patterns::Allowance;

/// What compiling the expressions of one route has taken of what its namespace has for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// What the namespace had when the route was read, in nanoseconds.
    pub had: u64,
    /// What the route took.
    pub taken: u64,
    /// What had to be there for that.
    needed: u64,
    /// There was less than it asked for.
    is_short: bool,
}

impl Charge {
    /// Notes that so much is asked for; whether the namespace has it.
    pub fn asks(&mut self, amount: u64, namespace: &Allowance) -> bool {
        let has = amount <= namespace.left();
        self.needed = self.needed.max(self.taken.saturating_add(amount));
        self.is_short |= !has;
        has
    }

    /// Whether the namespace had less than the route asked for.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether reading the route again, with so much left for its namespace, comes to the same.
    pub fn is_same_with(&self, left: u64) -> bool {
        self.had == left || (!self.is_short && self.needed <= left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_route_took_comes_to_the_same_where_there_is_as_much_as_it_asked_for() {
        let mut charge = Charge { had: 100, ..Charge::default() };
        let mut left = Allowance::of(100);
        for amount in [10, 20] {
            assert!(charge.asks(amount, &left));
            left.split(amount);
            charge.taken += amount;
        }
        assert!(charge.is_same_with(100) && charge.is_same_with(30) && !charge.is_same_with(29));
        assert!(!charge.asks(71, &left), "70 are left");
        assert!(charge.is_same_with(100) && !charge.is_same_with(101) && !charge.is_same_with(30));
    }
}
