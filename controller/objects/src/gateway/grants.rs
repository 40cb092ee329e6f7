//! What ReferenceGrants allow, known by who refers to what: a namespace may have thousands of grants, and each reference of a
//! route asks.

use super::{GatewayObjects, ReferenceGrant};
use crate::{Key, Name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of who refers, and its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Referrer {
    group: String,
    kind: String,
    namespace: String,
}

/// What is referred to; `name`: `None` stands for all of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Referred {
    namespace: Name,
    group: String,
    kind: String,
    name: Option<String>,
}

/// What grants allow, and how many of them say so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allowed(BTreeMap<(Arc<Referrer>, Arc<Referred>), usize>);

impl Allowed {
    /// Adds what a grant of a namespace allows.
    fn add(&mut self, namespace: &Name, grant: &ReferenceGrant) {
        for pair in pairs(namespace, grant) {
            *self.0.entry(pair).or_default() += 1;
        }
    }

    fn remove(&mut self, namespace: &Name, grant: &ReferenceGrant) {
        for pair in pairs(namespace, grant) {
            let left = self.0.get(&pair).map_or(0, |count| count.saturating_sub(1));
            match left {
                0 => drop(self.0.remove(&pair)),
                left => drop(self.0.insert(pair, left)),
            }
        }
    }

    /// Whether a grant lets objects of a group, kind and namespace refer to one of a group and kind.
    pub fn has(&self, from: [&str; 3], [group, kind]: [&str; 2], to: &Key) -> bool {
        let [from_group, from_kind, namespace] = from.map(str::to_owned);
        let from = Arc::new(Referrer { group: from_group, kind: from_kind, namespace });
        let names = [None, Some(to.name.to_string())];
        names.into_iter().any(|name| {
            let namespace = to.namespace.clone();
            let to = Referred { namespace, group: group.to_owned(), kind: kind.to_owned(), name };
            self.0.contains_key(&(from.clone(), Arc::new(to)))
        })
    }
}

/// Everybody whom a grant names, with everything.
fn pairs<'g>(
    namespace: &'g Name,
    grant: &'g ReferenceGrant,
) -> impl Iterator<Item = (Arc<Referrer>, Arc<Referred>)> + 'g {
    let to = grant.spec.to.iter().map(|to| {
        let name = to.name.clone().filter(|name| !name.is_empty());
        let (group, kind) = (to.group.clone(), to.kind.clone());
        Arc::new(Referred { namespace: namespace.clone(), group, kind, name })
    });
    let to: Vec<Arc<Referred>> = to.collect();
    grant.spec.from.iter().flat_map(move |from| {
        let (group, kind) = (from.group.clone(), from.kind.clone());
        let from = Arc::new(Referrer { group, kind, namespace: from.namespace.clone() });
        let all: Vec<_> = to.iter().map(|to| (from.clone(), to.clone())).collect();
        all
    })
}

impl GatewayObjects {
    /// Takes a grant over, or its end.
    pub(crate) fn set_allowed(&mut self, key: &Key, new: Option<&ReferenceGrant>) {
        if let Some(old) = self.grants.get(key).cloned() {
            self.allowed.remove(&key.namespace, &old);
        }
        if let Some(new) = new {
            self.allowed.add(&key.namespace, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Changed, Kind, Object, ObjectRef, World};
    use serde_json::json;

    fn grant(namespaces: &[&str], names: &[&str]) -> Object {
        let from: Vec<_> = namespaces
            .iter()
            .map(|namespace| json!({"group": "g", "kind": "Route", "namespace": namespace}))
            .collect();
        let to: Vec<_> = names
            .iter()
            .map(|name| json!({"group": "", "kind": "Service", "name": name}))
            .collect();
        let spec = serde_json::from_value(json!({"from": from, "to": to})).unwrap();
        Object::ReferenceGrant(Arc::new(ReferenceGrant { spec, ..ReferenceGrant::default() }))
    }

    #[test]
    fn what_a_grant_allows_ends_with_the_last_that_says_so() {
        let mut world = World::default();
        let id = |name: &str| ObjectRef::new(Kind::ReferenceGrant, Key::new("b", name));
        let apply = |world: &mut World, name, grant| {
            world.apply((id(name), grant), &mut Changed::default())
        };
        let has = |world: &World, namespace: &str, name: &str| {
            let from = ["g", "Route", namespace];
            world.gateway_api.allowed.has(from, ["", "Service"], &Key::new("b", name))
        };
        apply(&mut world, "one", Some(grant(&["a", "c"], &["x", "y"])));
        apply(&mut world, "two", Some(grant(&["a"], &["x"])));
        assert!(has(&world, "a", "x") && has(&world, "c", "y"));
        assert!(!has(&world, "a", "z") && !has(&world, "d", "x"));
        assert!(!world.gateway_api.allowed.has(
            ["g", "Other", "a"],
            ["", "Service"],
            &Key::new("b", "x")
        ));
        assert!(!world.gateway_api.allowed.has(
            ["g", "Route", "a"],
            ["", "Secret"],
            &Key::new("b", "x")
        ));
        assert!(!world.gateway_api.allowed.has(
            ["g", "Route", "a"],
            ["", "Service"],
            &Key::new("e", "x")
        ));
        apply(&mut world, "one", Some(grant(&["c"], &[""])));
        assert!(has(&world, "c", "z") && has(&world, "a", "x") && !has(&world, "a", "y"));
        apply(&mut world, "two", None);
        assert!(!has(&world, "a", "x"));
        apply(&mut world, "one", None);
        assert_eq!(world.gateway_api.allowed, Allowed::default());
    }
}
