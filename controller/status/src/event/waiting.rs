//! The objects whose Events wait for their turn.

use oxigress_objects::{Name, ObjectRef};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ops::Bound::Excluded;
use std::ops::Bound::Unbounded;

/// Objects that wait to speak: their namespaces take turns, and so do the objects of each.
#[derive(Default)]
pub struct Waiting {
    namespaces: BTreeMap<Name, Queue>,
    pub count: usize,
    /// The namespace that spoke last: the next one in order is the next to speak.
    last: Option<Name>,
}

#[derive(Default)]
struct Queue {
    objects: BTreeSet<ObjectRef>,
    last: Option<ObjectRef>,
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn insert(&mut self, object: ObjectRef) {
        let queue = self.namespaces.entry(object.key.namespace.clone()).or_default();
        self.count += usize::from(queue.objects.insert(object));
    }

    pub fn remove(&mut self, object: &ObjectRef) {
        let Some(queue) = self.namespaces.get_mut(&object.key.namespace) else { return };
        self.count -= usize::from(queue.objects.remove(object));
        if queue.objects.is_empty() {
            self.namespaces.remove(&object.key.namespace);
        }
    }

    /// All of them, the next one first: one namespace after the other.
    pub fn in_turn(&self) -> impl Iterator<Item = &ObjectRef> {
        let after = self
            .last
            .iter()
            .flat_map(|last| self.namespaces.range::<str, _>((Excluded(last.as_str()), Unbounded)));
        let namespaces = after.chain(&self.namespaces);
        namespaces.flat_map(|(_, queue)| {
            let after =
                queue.last.iter().flat_map(|last| queue.objects.range((Excluded(last), Unbounded)));
            after.chain(&queue.objects)
        })
    }

    pub fn has_spoken(&mut self, object: &ObjectRef) {
        if let Some(queue) = self.namespaces.get_mut(&object.key.namespace) {
            queue.last = Some(object.clone());
        }
        self.last = Some(object.key.namespace.clone());
    }
}
