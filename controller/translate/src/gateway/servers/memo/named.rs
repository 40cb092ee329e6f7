//! Which routes and listeners name which hosts: whose a host is follows from the oldest of them.

use crate::claim::age::Age;
use crate::host::owner::GatewayClaim;
use crate::relation::Relation;
use oxigress_core::model::HostPattern;
use oxigress_objects::{Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// A route.
type Who = (Age, Kind);

/// The hosts that routes and listeners of Gateways name.
#[derive(Default)]
pub struct NamedHosts {
    routes: Relation<Who, HostPattern>,
    /// The oldest Gateway that has a listener for a host.
    listeners: BTreeMap<HostPattern, Age>,
    /// When the routes that name hosts were created.
    created: BTreeMap<ObjectRef, i64>,
}

impl NamedHosts {
    /// Adds a listener of a Gateway. None names the host of all requests: most Gateways have a listener for it.
    pub fn add_listener(&mut self, host: &HostPattern, age: Age) {
        if *host == HostPattern::default_host() {
            return;
        }
        let oldest = self.listeners.entry(host.clone()).or_insert_with(|| age.clone());
        if age < *oldest {
            *oldest = age;
        }
    }

    /// Has a route name other hosts than before; answers those that it newly or no longer names.
    pub fn set_route(
        &mut self,
        id: &ObjectRef,
        created: i64,
        hosts: BTreeSet<HostPattern>,
    ) -> BTreeSet<HostPattern> {
        let who = |created| (Age { created, key: id.key.clone() }, id.kind);
        let mut touched = Vec::new();
        let before = self.created.remove(id).filter(|before| *before != created);
        if let Some(before) = before {
            touched = self.routes.set(&who(before), BTreeSet::new());
        }
        if !hosts.is_empty() {
            self.created.insert(id.clone(), created);
        }
        touched.extend(self.routes.set(&who(created), hosts));
        touched.iter().map(|host| HostPattern::clone(host)).collect()
    }

    /// What makes a host somebody's; `None`: nobody names it.
    pub fn claim(&self, host: &HostPattern) -> Option<GatewayClaim> {
        let route = self.routes.by(host).next();
        let route = route.map(|(age, kind)| GatewayClaim::of_route(age.clone(), *kind));
        let listener = self.listeners.get(host).cloned().map(GatewayClaim::of_listener);
        match (route, listener) {
            (Some(mut route), Some(listener)) => {
                route.join(listener);
                Some(route)
            }
            (route, listener) => route.or(listener),
        }
    }

    /// The same for all hosts.
    pub fn claims(&self) -> BTreeMap<HostPattern, GatewayClaim> {
        let hosts = self.routes.rights().chain(self.listeners.keys());
        hosts.filter_map(|host| Some((host.clone(), self.claim(host)?))).collect()
    }
}
