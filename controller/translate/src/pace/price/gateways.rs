//! What changes of Gateways and routes cost: the rules that are read, and those of all routes on the hosts that are merged again.

use super::{
    BYTE_OF_FILTERS, HOST, INGRESS, LISTENER, PLACE, PLACE_OF_REVIEW, Prices, ROUTE_RULE, RULE,
};
use crate::gateway::intersection;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{GatewaySpec, HttpRouteSpec, Listener, Route};
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::BTreeSet;

/// Most hosts of one route that are looked at: with more of them its namespace has no room for it.
const MAX_HOSTS: usize = 20_000;

impl Prices<'_> {
    /// What a route costs beside its expressions.
    pub(super) fn of_route(&self, id: &ObjectRef, new: &HttpRouteSpec) -> u64 {
        let old = self.world.gateway_api.routes.get(id).map(|old| &old.spec);
        let mut hosts = BTreeSet::new();
        let specs = old.into_iter().chain([new]);
        let places: usize = specs.map(|spec| self.add_hosts(&id.key, spec, &mut hosts)).sum();
        let beside: usize = hosts.iter().map(|host| self.translator.rules_at(host)).sum();
        let own = new.count_rules().saturating_mul(hosts.len()).min(MAX_HOSTS);
        INGRESS
            + HOST * self.below_route(id, new)
            + PLACE * places as u64
            + RULE * (beside as u64).saturating_add(own as u64)
            + price_of_rules(new)
    }

    /// What a Gateway costs: of its listeners those that change, with the rules on their hosts, and the routes that are read for them.
    pub(super) fn of_gateway(&self, key: &Key, new: &GatewaySpec) -> u64 {
        let old = self.world.gateway_api.gateways.get(key).map(|old| &old.spec);
        let is_known = self.has_status(Kind::Gateway, key.clone())
            && old.is_some_and(|old| old.addresses == new.addresses);
        let none = Vec::new();
        let old_listeners = old.map_or(&none, |old| &old.listeners);
        let changed = |all: &Vec<Listener>, others: &Vec<Listener>| {
            let all = all.iter().filter(|one| !is_known || !others.contains(one));
            all.map(host_of).collect::<Vec<_>>()
        };
        let mut hosts = changed(old_listeners, &new.listeners);
        hosts.extend(changed(&new.listeners, old_listeners));
        let hosts: BTreeSet<HostPattern> = hosts.into_iter().collect();
        let (merged, read) = match hosts.is_empty() {
            true => (0, 0),
            false => (self.translator.rules_under(&hosts) as u64, self.of_attached(key)),
        };
        let listeners = new.listeners.len() as u64 + self.below_gateway(key, new);
        (INGRESS + HOST * listeners + RULE * merged).saturating_add(read)
    }

    /// What reviewing a route costs that is about to be stored: each listener is looked at, and each of its places, also those
    /// of its older self.
    pub(crate) fn of_review(&self, key: &Key, new: &HttpRouteSpec) -> u64 {
        let all = self.world.gateway_api.gateways.values();
        let listeners: usize = all.map(|gateway| gateway.spec.listeners.len()).sum();
        let places = self.add_hosts(key, new, &mut BTreeSet::new());
        INGRESS + LISTENER * listeners as u64 + PLACE_OF_REVIEW * places as u64
    }

    /// What it costs that the routes of a Gateway are read of which the rules are not known, and merged where they are served.
    pub(super) fn of_attached(&self, gateway: &Key) -> u64 {
        let names = |id: &ObjectRef, route: &Route| {
            route.spec.parent_refs.iter().any(|parent| {
                parent.name == *gateway.name
                    && parent.namespace.as_deref().unwrap_or(&id.key.namespace)
                        == &*gateway.namespace
            })
        };
        let all = self.world.gateway_api.routes.iter();
        let unread =
            all.filter(|(id, route)| names(id, route) && !self.translator.has_rules_of(id));
        let of_one = |(_, route): (_, &std::sync::Arc<Route>)| {
            INGRESS + price_of_rules(&route.spec) + RULE * route.spec.count_rules() as u64
        };
        unread.map(of_one).fold(0, u64::saturating_add)
    }

    /// What it costs that routes are read again, and their hosts merged again, each once.
    pub(super) fn of_routes<'k>(&self, routes: impl Iterator<Item = &'k ObjectRef>) -> u64 {
        let (mut hosts, mut sum) = (BTreeSet::new(), 0_u64);
        for id in routes {
            let Some(route) = self.world.gateway_api.routes.get(id) else { continue };
            let places = self.add_hosts(&id.key, &route.spec, &mut hosts) as u64;
            sum = sum.saturating_add(INGRESS + PLACE * places + price_of_rules(&route.spec));
        }
        let rules: usize = hosts.iter().map(|host| self.translator.rules_at(host)).sum();
        sum.saturating_add(RULE * rules as u64)
    }

    /// Adds the hosts that a route may have by its parents; answers how many places these are.
    fn add_hosts(
        &self,
        key: &Key,
        spec: &HttpRouteSpec,
        hosts: &mut BTreeSet<HostPattern>,
    ) -> usize {
        let names = spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
        let mut names: Vec<HostPattern> = names.collect();
        if spec.hostnames.is_empty() {
            names.push(HostPattern::default_host());
        }
        let mut places = 0;
        for parent in &spec.parent_refs {
            let namespace = parent.namespace.as_deref().unwrap_or(&key.namespace);
            let gateway = self.world.gateway_api.gateways.get(&Key::new(namespace, &parent.name));
            let listeners = gateway.into_iter().flat_map(|gateway| &gateway.spec.listeners);
            for listener in listeners.filter(|listener| {
                parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
                    && parent.port.is_none_or(|port| port == listener.port)
            }) {
                if places >= MAX_HOSTS {
                    return places;
                }
                let host = host_of(listener);
                hosts.extend(names.iter().filter_map(|name| intersection(&host, name)));
                places += names.len();
            }
        }
        places
    }
}

fn host_of(listener: &Listener) -> HostPattern {
    let name = listener.hostname.as_deref().filter(|name| !name.is_empty());
    let host = name.and_then(|name| HostPattern::parse(name).ok());
    host.unwrap_or_else(HostPattern::default_host)
}

/// What reading the rules of a route costs, and making what is served of them.
fn price_of_rules(spec: &HttpRouteSpec) -> u64 {
    let rules = ROUTE_RULE.saturating_mul(spec.count_rules() as u64);
    rules.saturating_add(BYTE_OF_FILTERS.saturating_mul(spec.count_filter_bytes() as u64))
}
