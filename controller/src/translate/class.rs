//! Which Ingresses are ours.
//!
//! Source:  compat/controller.md §1. Its [BUG]s around IngressClass do not exist here: a class that comes,
//!          changes or goes decides about its Ingresses at once.

use super::Options;
use crate::verdict::Note;
use crate::world::{Key, World, ingress::Ingress};

/// The annotation that came before spec.ingressClassName.
const ANNOTATION: &str = "kubernetes.io/ingress.class";

/// What becomes of an Ingress by its class.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is served.
    Ours,
    /// Another controller's: nothing to say.
    Foreign,
    /// Nobody's as it stands: a word helps.
    Nobodys(Note),
}

/// Decides by namespace and class.
pub fn choose(world: &World, options: &Options, key: &Key, ingress: &Ingress) -> Choice {
    if options.watch_namespace.as_ref().is_some_and(|watched| *watched != key.namespace) {
        return Choice::Foreign;
    }
    if let Some(name) = &ingress.class {
        return match world.ingress_classes.get(&Key::new("", name)) {
            Some(class) if class.controller == options.controller_class => Choice::Ours,
            Some(_) if options.ingress_class_by_name && *name == options.ingress_class => {
                Choice::Ours
            }
            Some(_) => Choice::Foreign,
            None => Choice::Nobodys(Note::rejected(format!(
                "spec.ingressClassName: there is no IngressClass {name}: not served until there is one \
                 with controller {}",
                options.controller_class
            ))),
        };
    }
    match ingress.annotations.get(ANNOTATION) {
        Some(class) if *class == options.ingress_class => Choice::Ours,
        Some(_) => Choice::Foreign,
        None if options.watch_ingress_without_class => Choice::Ours,
        None => Choice::Nobodys(Note::warning(
            "names no class: not served until spec.ingressClassName is set, or the controller runs \
             with --watch-ingress-without-class",
        )),
    }
}
