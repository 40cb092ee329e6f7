//! Notes, by the part of the translation that made them.
//!
//! A part that is computed again replaces what it said before; a verdict is what all parts say about one
//! object.

use oxigress_core::model::{BackendId, HostPattern, ListenerHost};
use oxigress_objects::service::Protocol;
use oxigress_objects::verdict::{Note, Verdict, VerdictChanges, Verdicts};
use oxigress_objects::{Key, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// What is computed at once. The order is the order of messages in a verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The main ConfigMap by itself.
    Settings,
    /// The ConfigMap of TCP or UDP services.
    Streams(Protocol),
    /// Notes that follow from one Ingress alone.
    Ingress(Key),
    /// The rules of one host.
    Host(HostPattern),
    /// The certificate of one host.
    Tls(HostPattern),
    /// Notes that follow from one Secret alone.
    Secret(Key),
    /// The endpoints of one backend.
    Backend(BackendId),
    /// Notes about objects of the Gateway API, beside those that follow.
    Gateways,
    /// The rules of one host of listeners.
    Listener(ListenerHost),
    /// What the status of one object says.
    Status(ObjectRef),
    /// What nginx refused or has no room for.
    Withheld,
    /// Whether an object of the Gateway API is beyond a limit of its namespace.
    Beyond(ObjectRef),
    /// Whether the change of one object waits for its namespace's share of time.
    Waiting(ObjectRef),
}

/// The notes of all parts and the verdicts that they come to.
#[derive(Debug, Default)]
pub struct Notes {
    by_object: BTreeMap<ObjectRef, BTreeMap<Part, Vec<Note>>>,
    objects_of: BTreeMap<Part, BTreeSet<ObjectRef>>,
    touched: BTreeSet<ObjectRef>,
    verdicts: Verdicts,
}

impl Notes {
    /// Replaces the notes that `part` made before.
    pub fn set(&mut self, part: Part, notes: impl IntoIterator<Item = (ObjectRef, Note)>) {
        for object in self.objects_of.remove(&part).unwrap_or_default() {
            if let Some(parts) = self.by_object.get_mut(&object) {
                parts.remove(&part);
                if parts.is_empty() {
                    self.by_object.remove(&object);
                }
            }
            self.touched.insert(object);
        }
        for (object, note) in notes {
            self.objects_of.entry(part.clone()).or_default().insert(object.clone());
            let parts = self.by_object.entry(object.clone()).or_default();
            parts.entry(part.clone()).or_default().push(note);
            self.touched.insert(object);
        }
    }

    /// The verdicts that differ from those last taken.
    pub fn take_changes(&mut self) -> VerdictChanges {
        let mut changes = VerdictChanges::new();
        for object in std::mem::take(&mut self.touched) {
            let parts = self.by_object.get(&object);
            let verdict = Verdict::of(parts.into_iter().flat_map(BTreeMap::values).flatten());
            if self.verdicts.get(&object) == verdict.as_ref() {
                continue;
            }
            match &verdict {
                Some(verdict) => drop(self.verdicts.insert(object.clone(), verdict.clone())),
                None => drop(self.verdicts.remove(&object)),
            }
            changes.insert(object, verdict);
        }
        changes
    }

    /// Each note with its object.
    pub fn all(&self) -> impl Iterator<Item = (&ObjectRef, &Note)> {
        self.by_object
            .iter()
            .flat_map(|(object, parts)| parts.values().flatten().map(move |note| (object, note)))
    }

    /// The verdicts about all objects.
    pub fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }
}
