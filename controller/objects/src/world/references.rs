//! The references of objects to each other, as those see them who keep objects.

use crate::{ObjectRef, Seen};
use std::collections::BTreeSet;

/// Says which Secrets and ConfigMaps something is served from, so that the others need not be kept. The answer may not
/// depend on what Secrets say.
pub trait References: Send {
    /// Whether an object of this kind decides about others, so that [`References::apply`] has to see it.
    fn depends_on(&self, id: &ObjectRef) -> bool;

    /// Whether something is served from the object.
    fn has(&self, id: &ObjectRef) -> bool;

    /// Takes over an object that others depend on. Returns the objects that are referred to newly or no longer because
    /// of it, and those that it refers to itself or that others refer to newly because of it.
    fn apply(&mut self, seen: Seen) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>);

    /// Takes over whether IngressClasses can be seen. Returns the objects that are referred to newly or no longer.
    fn hide_classes(&mut self, hides: bool) -> BTreeSet<ObjectRef>;
}
