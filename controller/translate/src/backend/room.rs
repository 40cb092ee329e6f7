//! How many endpoints the backends of a namespace have together.
//!
//! Shape:   a size for each backend ([`super::size`]), and which backends are over the limit: the last ones by their ids, so
//!          that every replica decides alike.
//! Reason:  an Ingress may lead to each port of a Service, and each port has all of its endpoints. Without a limit one change
//!          of an EndpointSlice could keep the controller for minutes, and a few objects could take all of its memory.

use oxigress_core::model::BackendId;
use oxigress_objects::Name;
use std::collections::{BTreeMap, BTreeSet};

/// The most endpoints of a namespace's backends, each counted for each backend that has it: what is read within three
/// seconds.
pub const OF_NAMESPACE: usize = 600_000;

/// What the backends of each namespace have.
#[derive(Debug, Default)]
pub struct Room(BTreeMap<Name, Namespace>);

#[derive(Debug, Default)]
struct Namespace {
    sizes: BTreeMap<BackendId, usize>,
    total: usize,
    over: BTreeSet<BackendId>,
}

impl Room {
    /// Takes note of sizes, 0 for a backend that is no more; answers the backends that are over the limit since, or no more.
    pub fn update(
        &mut self,
        sizes: impl IntoIterator<Item = (Name, BackendId, usize)>,
    ) -> BTreeSet<BackendId> {
        let mut touched = BTreeSet::new();
        for (name, id, size) in sizes {
            self.0.entry(name.clone()).or_default().set(id, size);
            touched.insert(name);
        }
        let mut turned = BTreeSet::new();
        for name in touched {
            let Some(namespace) = self.0.get_mut(&name) else { continue };
            let over = namespace.over_limit();
            turned.extend(over.symmetric_difference(&namespace.over).cloned());
            namespace.over = over;
            if namespace.sizes.is_empty() {
                self.0.remove(&name);
            }
        }
        turned
    }

    /// Whether a backend of a namespace is not read.
    pub fn is_over(&self, namespace: &Name, id: &BackendId) -> bool {
        self.0.get(namespace).is_some_and(|namespace| namespace.over.contains(id))
    }
}

impl Namespace {
    fn set(&mut self, id: BackendId, size: usize) {
        let old = match size {
            0 => self.sizes.remove(&id),
            _ => self.sizes.insert(id, size),
        };
        self.total = self.total - old.unwrap_or_default() + size;
    }

    fn over_limit(&self) -> BTreeSet<BackendId> {
        if self.total <= OF_NAMESPACE {
            return BTreeSet::new();
        }
        let mut sum = 0;
        let last = self.sizes.iter().filter(|(_, size)| {
            sum += **size;
            sum > OF_NAMESPACE
        });
        last.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_backends_of_a_namespace_are_over_the_limit_until_there_is_room() {
        let id = |n: usize| BackendId::parse(format!("a/s/{n}")).unwrap();
        let of = |n: usize, size| (Name::from("a"), id(n), size);
        let mut room = Room::default();
        assert!(room.update((1..=6).map(|n| of(n, 100_000))).is_empty());
        assert_eq!(room.update([of(7, 1)]), [id(7)].into());
        assert!(room.is_over(&"a".into(), &id(7)) && !room.is_over(&"a".into(), &id(6)));
        assert!(!room.is_over(&"b".into(), &id(7)), "another namespace's");
        assert_eq!(room.update([of(2, 100_001)]), [id(6)].into());
        assert_eq!(room.update([of(1, 0)]), [id(6), id(7)].into());
        assert_eq!(room.update((1..=7).map(|n| of(n, 0))), [].into());
        assert!(room.0.is_empty());
    }
}
