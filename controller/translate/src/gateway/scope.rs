//! Which namespaces' objects are served.

use crate::Options;
use kube::core::SelectorExt;
use oxigress_objects::{Key, World};

/// Whether the operator lets objects of a namespace be served.
pub fn is_watched(world: &World, options: &Options, namespace: &str) -> bool {
    if options.watch_namespace.as_ref().is_some_and(|watched| watched != namespace) {
        return false;
    }
    options.watch_namespace_selector.as_ref().is_none_or(|selector| {
        let known = world.namespaces.get(&Key::new("", namespace));
        known.is_some_and(|known| selector.matches(&known.labels))
    })
}
