//! Which Ingresses are ours.
//!
//! Source:  ingress-nginx's controller. Its [BUG]s around IngressClass do not exist here: a class that comes,
//!          changes or goes decides about its Ingresses at once, and so do the labels of a Namespace; without the
//!          right to see IngressClasses, one named like --ingress-class is ours, and no other.

use crate::Options;
use kube::core::SelectorExt;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Changed, Key, World, ingress::Ingress};
use std::collections::BTreeSet;

/// The annotation that came before spec.ingressClassName.
const ANNOTATION: &str = "kubernetes.io/ingress.class";

/// What becomes of an Ingress by its class.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// The Ingress is this controller's.
    Ours,
    /// Another controller's: nothing to say.
    Foreign,
    /// Nobody's as it stands: a word helps.
    Nobodys(Note),
}

/// The Ingresses about which a change of classes and namespaces may decide otherwise.
pub fn decided_anew(world: &World, options: &Options, changed: &Changed) -> BTreeSet<Key> {
    let mut anew = BTreeSet::new();
    if options.watch_namespace_selector.is_some() {
        for namespace in &changed.namespaces {
            let all = world.ingresses.range(Key::new(&namespace.name, "")..).map(|(key, _)| key);
            anew.extend(all.take_while(|key| key.namespace == namespace.name).cloned());
        }
    }
    if !changed.ingress_classes.is_empty() {
        let is_changed = |class: &String| changed.ingress_classes.contains(&Key::new("", class));
        let by_class = |ingress: &Ingress| ingress.class.as_ref().is_some_and(is_changed);
        let all = world.ingresses.iter().filter(|(_, ingress)| by_class(ingress));
        anew.extend(all.map(|(key, _)| key.clone()));
    }
    anew
}

/// Decides by namespace and class.
pub fn choose(world: &World, options: &Options, key: &Key, ingress: &Ingress) -> Choice {
    if options.watch_namespace.as_ref().is_some_and(|watched| *watched != key.namespace) {
        return Choice::Foreign;
    }
    if let Some(selector) = &options.watch_namespace_selector {
        match world.namespaces.get(&Key::new("", &key.namespace)) {
            Some(namespace) if selector.matches(&namespace.labels) => {}
            Some(_) | None => return Choice::Foreign,
        }
    }
    if let Some(name) = &ingress.class {
        return match world.ingress_classes.get(&Key::new("", name)) {
            Some(class) if class.controller == options.controller_class => Choice::Ours,
            Some(_) if options.ingress_class_by_name && *name == options.ingress_class => {
                Choice::Ours
            }
            Some(_) => Choice::Foreign,
            None if world.hides_classes && *name == options.ingress_class => Choice::Ours,
            None if world.hides_classes => Choice::Foreign,
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
