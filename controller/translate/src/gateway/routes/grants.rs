//! Which routes a change of ReferenceGrants concerns.

use oxigress_objects::gateway::{self, Objects, ReferenceGrant};
use oxigress_objects::{Key, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Services of one namespace.
#[derive(Default)]
struct Services {
    all: bool,
    names: BTreeSet<String>,
}

/// The Services that routes may refer to since grants changed, or no more.
#[derive(Default)]
pub struct ChangedGrants {
    /// By the namespace of the Services and that of the routes.
    services: BTreeMap<(Name, String), Services>,
}

impl ChangedGrants {
    /// What differs between what is there and what was.
    pub fn between(old: &Objects<ReferenceGrant>, new: &Objects<ReferenceGrant>) -> Self {
        let mut changed = ChangedGrants::default();
        for (these, others) in [(old, new), (new, old)] {
            for (key, grant) in these {
                let is_same = others.get(key).is_some_and(|other| Arc::ptr_eq(other, grant));
                if !is_same {
                    changed.add(&key.namespace, grant);
                }
            }
        }
        changed
    }

    fn add(&mut self, namespace: &Name, grant: &ReferenceGrant) {
        for from in namespaces(grant) {
            let of = (namespace.clone(), from.to_owned());
            let services = self.services.entry(of).or_default();
            for name in names(grant) {
                match name {
                    Some(name) => drop(services.names.insert(name.to_owned())),
                    None => services.all = true,
                }
            }
        }
    }

    /// Whether routes of a namespace may be answered something else about one of these Services.
    pub fn concern(&self, namespace: &str, asked: &BTreeSet<Key>) -> bool {
        !self.services.is_empty()
            && asked.iter().any(|service| {
                let services = self.services.get(&(service.namespace.clone(), namespace.into()));
                services.is_some_and(|all| all.all || all.names.contains(&*service.name))
            })
    }
}

/// The namespaces whose routes a grant is for.
pub fn namespaces(grant: &ReferenceGrant) -> impl Iterator<Item = &str> {
    let all = grant.spec.from.iter();
    let all = all.filter(|from| from.group == gateway::GROUP && is_route(&from.kind));
    all.map(|from| from.namespace.as_str())
}

/// Whether a grant is for Gateways or ListenerSets.
pub fn is_of_gateways(grant: &ReferenceGrant) -> bool {
    let kinds = [Kind::Gateway, Kind::ListenerSet].map(|kind| kind.to_string());
    grant.spec.from.iter().any(|from| from.group == gateway::GROUP && kinds.contains(&from.kind))
}

fn is_route(name: &str) -> bool {
    Kind::ROUTES.iter().any(|kind| kind.to_string() == name)
}

/// The Services that it is for; `None`: all of its namespace.
pub fn names(grant: &ReferenceGrant) -> impl Iterator<Item = Option<&str>> {
    let all = grant.spec.to.iter().filter(|to| to.group.is_empty() && to.kind == "Service");
    all.map(|to| to.name.as_deref().filter(|name| !name.is_empty()))
}
