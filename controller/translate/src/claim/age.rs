//! Which of two Ingresses decides where both say something.

pub mod stock;

use oxigress_objects::Key;

/// Which of two Ingresses decides: the older one, then the first by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// The field metadata.creationTimestamp of the object.
    pub created: i64,
    /// The Ingress that says so.
    pub key: Key,
}

impl Age {
    /// The same, borrowed; it has the same order.
    pub fn borrowed(&self) -> (i64, &Key) {
        (self.created, &self.key)
    }

    /// Whether an object of this age would take what one of another namespace has: it comes first.
    pub fn takes_from(&self, other: &Age) -> bool {
        other.key.namespace != self.key.namespace && self < other
    }
}
