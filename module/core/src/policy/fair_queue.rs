//! A queue that serves tenants in turn: the length of one tenant's line does not delay another tenant.
//!
//! Shape:   a [`FairQueue`] has a line for each tenant, and in it a line for each of the tenant's resources. [`FairQueue::pop`]
//!          removes the first item of the next tenant's next line. A line exists while it has items.
//! Bounds:  [`MAX_OF_RESOURCE`] and [`MAX_OF_TENANT`]; a full line refuses new items of its own, and no others.
//! Fair:    an item of a tenant without other items is served after at most one turn of each other tenant.

use std::collections::VecDeque;

/// The most items that wait for one resource of a tenant.
pub const MAX_OF_RESOURCE: usize = 250;
/// The most items that wait for all resources of a tenant.
pub const MAX_OF_TENANT: usize = 1_000;

/// Lines by tenant and resource.
#[derive(Clone, Debug)]
pub struct FairQueue<T>(Ring<Ring<VecDeque<T>>>);

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        FairQueue(Ring::default())
    }
}

impl<T: PartialEq> FairQueue<T> {
    /// Adds an item to the end of a line; false if the line is full.
    pub fn push(&mut self, tenant: &[u8], resource: &[u8], item: T) -> bool {
        self.0.change(tenant, |lines| {
            let has_room = lines.len() < MAX_OF_TENANT;
            lines.change(resource, |line| {
                let is_admitted = has_room && line.len() < MAX_OF_RESOURCE;
                if is_admitted {
                    line.push_back(item);
                }
                is_admitted
            })
        })
    }

    /// Removes the first item of the line whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Removes an item from a line.
    pub fn remove(&mut self, tenant: &[u8], resource: &[u8], item: &T) {
        self.0.change(tenant, |lines| {
            lines.change(resource, |line| line.retain(|other| other != item));
        });
    }

    /// The number of items in all lines.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all lines are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Something that gives one item at a time.
trait Line {
    type Item;
    fn pop(&mut self) -> Option<Self::Item>;
    fn len(&self) -> usize;
}

impl<T> Line for VecDeque<T> {
    type Item = T;

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }

    fn len(&self) -> usize {
        VecDeque::len(self)
    }
}

/// Lines by name, the one whose turn it is first; none of them is empty.
#[derive(Clone, Debug)]
struct Ring<L>(VecDeque<(Box<[u8]>, L)>);

impl<L> Default for Ring<L> {
    fn default() -> Self {
        Ring(VecDeque::new())
    }
}

impl<L: Line + Default> Ring<L> {
    /// Changes the line of that name, which may be a new one: that is the last to have its turn.
    fn change<R>(&mut self, name: &[u8], change: impl FnOnce(&mut L) -> R) -> R {
        let place = self.0.iter().position(|(other, _)| **other == *name);
        let found = place.and_then(|place| self.0.get_mut(place));
        if let Some((_, line)) = found {
            let result = change(line);
            if line.len() == 0 {
                self.0.retain(|(_, line)| line.len() > 0);
            }
            return result;
        }
        let mut line = L::default();
        let result = change(&mut line);
        if line.len() > 0 {
            self.0.push_back((name.into(), line));
        }
        result
    }
}

impl<L: Line> Line for Ring<L> {
    type Item = L::Item;

    fn pop(&mut self) -> Option<L::Item> {
        let (name, mut line) = self.0.pop_front()?;
        let item = line.pop();
        if line.len() > 0 {
            self.0.push_back((name, line));
        }
        item
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, line)| line.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tenants_take_turns_and_so_do_their_resources() {
        let mut queue = FairQueue::default();
        for n in 0..3 {
            assert!(queue.push(b"a", b"x", format!("ax{n}")));
        }
        assert!(queue.push(b"a", b"y", "ay".into()));
        assert!(queue.push(b"b", b"x", "b".into()));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["ax0", "b", "ay", "ax1", "ax2"]);
        assert!(queue.is_empty() && queue.0.0.is_empty());
    }

    #[test]
    fn a_full_line_refuses_only_its_own() {
        let mut queue = FairQueue::default();
        let accepted = (0..300).filter(|n| queue.push(b"a", b"x", *n)).count();
        assert_eq!(accepted, MAX_OF_RESOURCE);
        assert!(queue.push(b"a", b"y", 0) && queue.push(b"b", b"x", 0));
        let accepted = (0..2_000_u32).filter(|n| queue.push(b"c", &n.to_le_bytes(), *n as i32));
        assert_eq!(accepted.count(), MAX_OF_TENANT);
        assert!(queue.push(b"b", b"x", 1));
    }

    #[test]
    fn who_leaves_leaves_the_line() {
        let mut queue = FairQueue::default();
        for n in 0..3 {
            queue.push(b"a", b"x", n);
        }
        queue.remove(b"a", b"x", &1);
        queue.remove(b"a", b"y", &1);
        queue.remove(b"b", b"x", &0);
        assert_eq!(queue.len(), 2);
        queue.remove(b"a", b"x", &0);
        queue.remove(b"a", b"x", &2);
        assert!(queue.pop().is_none() && queue.0.0.is_empty());
    }

    proptest! {
        /// Whatever waits elsewhere: at most one turn of each other tenant comes first.
        #[test]
        fn nobody_waits_longer_than_a_turn(
            waiting in prop::collection::vec((0_u8..6, 0_u8..4), 0..400),
            served in 0_usize..400,
        ) {
            let mut queue = FairQueue::default();
            for (tenant, resource) in &waiting {
                queue.push(&[*tenant], &[*resource], false);
            }
            for _ in 0..served {
                queue.pop();
            }
            let tenants = queue.0.0.len();
            queue.push(b"new", b"x", true);
            let before = std::iter::from_fn(|| queue.pop()).take_while(|is_new| !is_new).count();
            prop_assert_eq!(before, tenants);
        }
    }
}
