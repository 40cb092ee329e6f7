//! What changes of Gateways and routes cost: the rules that are read, and those of all routes on the hosts that are merged again.

use super::{
    ATTACHING, BYTE_OF_FILTERS, CERTIFICATE, HOST, INGRESS, LISTENER, MATCH_OF_REVIEW, NAMED,
    PATH_OF_REVIEW, PLACE, PLACE_OF_REVIEW, Prices, RELOAD, ROUTE_RULE, RULE, bytes_of_policy,
};
use crate::gateway::work::{self, Step};
use crate::gateway::{self, Admitted, OwnListeners, RouteHosts, count_certificates, intersection};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{
    BackendTlsPolicy, GatewaySpec, HttpRouteSpec, Listener, ListenerSet, ListenerSetSpec, ParentRef,
};
use oxigress_objects::ingress::Ingress;
use oxigress_objects::{ConfigMap, Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most hosts of one route that are looked at: with more of them its namespace has no room for it.
const MAX_HOSTS: usize = 20_000;

/// What comparing a host with a wildcard costs.
const COVERING: u64 = 20;
/// Rules that are merged, and hosts that are looked at, for a review of which nothing is charged: its namespace may have spent its reviews on expressions.
const FREE_RULES: usize = 500;

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
            + self.of_policies_of(&id.key, new)
            + self.of_leads(id, new)
    }

    /// What it costs that the rules of a route take over what their Policies say.
    fn of_policies_of(&self, route: &Key, new: &HttpRouteSpec) -> u64 {
        let names = new.rules.iter().filter_map(|rule| rule.policy());
        let of_one = |name: &str| {
            let key = Key::new(&route.namespace, name);
            let written = self.world.gateway_api.policies.get(&key);
            let written = written.map_or(0, |policy| bytes_of_policy(policy));
            INGRESS + BYTE_OF_FILTERS * self.translator.bytes_of_policy(&key).max(written)
        };
        names.map(of_one).fold(0, u64::saturating_add)
    }

    /// What a Gateway costs: of its listeners those that change, with the rules on their hosts, and the routes that are read for them.
    pub(super) fn of_gateway(&self, key: &Key, new: &GatewaySpec) -> u64 {
        let old = self.world.gateway_api.gateways.get(key).map(|old| &old.spec);
        let object = ObjectRef::new(Kind::Gateway, key.clone());
        let is_known = self.has_status(Kind::Gateway, key.clone())
            && old.is_some_and(|old| {
                old.addresses == new.addresses && old.allowed_listeners == new.allowed_listeners
            });
        let own = (old.map(|old| old.listeners.as_slice()), new.listeners.as_slice());
        let own = self.price_of_listeners(&object, is_known, own);
        // Another Gateway is another address, and other sets are allowed: what they bring is read and merged again.
        let is_of =
            |set: &ListenerSet, home: &Key| set.spec.gateway(&home.namespace).as_ref() == Some(key);
        let all = self.world.gateway_api.sets.iter();
        let sets = all.filter(|(home, set)| !is_known && is_of(set, home));
        let of_set = |(home, set): (&Key, &Arc<ListenerSet>)| {
            let object = ObjectRef::new(Kind::ListenerSet, home.clone());
            self.price_of_listeners(&object, false, (None, &set.spec.listeners))
        };
        sets.map(of_set).fold(own, u64::saturating_add)
    }

    /// What a ListenerSet costs, as a Gateway does.
    pub(super) fn of_set(&self, key: &Key, new: &ListenerSetSpec) -> u64 {
        let old = self.world.gateway_api.sets.get(key).map(|old| &old.spec);
        let is_known = self.has_status(Kind::ListenerSet, key.clone())
            && old.is_some_and(|old| old.parent_ref == new.parent_ref);
        let object = ObjectRef::new(Kind::ListenerSet, key.clone());
        let listeners = (old.map(|old| old.listeners.as_slice()), new.listeners.as_slice());
        let own = self.price_of_listeners(&object, is_known, listeners);
        let has_it = |of: &&Listener| {
            let mut old = old.into_iter().flat_map(|old| &old.listeners);
            old.any(|old| (old.port, &old.protocol) == (of.port, &of.protocol))
        };
        let mut ports = new.listeners.iter().filter(|listener| !has_it(listener));
        let opens = ports.any(|listener| self.translator.opens_port(listener));
        own.saturating_add(if opens { RELOAD } else { 0 })
    }

    /// What the listeners of an object cost.
    pub(super) fn price_of_listeners(
        &self,
        object: &ObjectRef,
        is_known: bool,
        (old, new): (Option<&[Listener]>, &[Listener]),
    ) -> u64 {
        let old = old.unwrap_or_default();
        let changed = |all: &[Listener], others: &[Listener]| {
            let all = all.iter().filter(|one| !is_known || !others.contains(one));
            all.map(host_of).collect::<Vec<_>>()
        };
        let mut hosts = changed(old, new);
        hosts.extend(changed(new, old));
        let hosts: BTreeSet<HostPattern> = hosts.into_iter().collect();
        let (merged, read) = match hosts.is_empty() {
            true => (0, 0),
            false => {
                (self.translator.rules_under(&hosts) as u64, self.of_attached([object].into_iter()))
            }
        };
        let listeners = new.len() as u64 + self.below_listeners(old.iter().chain(new));
        (INGRESS + HOST * listeners + RULE * merged).saturating_add(read)
    }

    /// What merging the hosts of an Ingress costs that is reviewed, once, and looking at those below its wildcards; of few nothing.
    pub(crate) fn of_merging(&self, key: &Key, new: &Ingress) -> u64 {
        let hosts = self.translator.hosts_named_by(key, new);
        let rules = hosts.iter().map(|host| self.translator.rules_on(host)).sum::<usize>();
        let below = self.translator.hosts_below(hosts.iter());
        match rules + below {
            0..=FREE_RULES => 0,
            _ => RULE * rules as u64 + PLACE_OF_REVIEW * below as u64,
        }
    }

    /// What reviewing a route costs that is about to be stored: each listener is looked at, and each of its places.
    pub(crate) fn of_review(&self, id: &ObjectRef, new: &HttpRouteSpec) -> u64 {
        let places = self.count_places(&id.key, new);
        INGRESS
            + self.of_listeners()
            + PLACE_OF_REVIEW * places as u64
            + price_of_matches(new)
            + self.of_covering(id, places.max(new.hostnames.len()))
    }

    /// What looking at all listeners costs, for a review.
    pub(crate) fn of_listeners(&self) -> u64 {
        self.of_reading_listeners(self.listeners_read())
    }

    /// What reading so many more costs.
    pub(crate) fn of_reading_listeners(&self, count: usize) -> u64 {
        LISTENER * count as u64
    }

    /// What attaching a route to them costs, for the review of another object.
    pub(crate) fn of_attaching(&self, id: &ObjectRef, route: &HttpRouteSpec) -> u64 {
        let (parents, places) = (route.parent_refs.len(), self.count_places(&id.key, route));
        ATTACHING + NAMED * parents as u64 + PLACE_OF_REVIEW * places as u64
    }

    /// What it costs beside that to look for what its rules ask for, at the places where it would have them.
    pub(crate) fn of_paths(&self, hosts: &RouteHosts) -> u64 {
        PATH_OF_REVIEW.saturating_mul(hosts.served.len().saturating_mul(hosts.asked.len()) as u64)
    }

    /// What it costs that the hosts that routes name are compared with those of a route of sessions.
    fn of_covering(&self, id: &ObjectRef, places: usize) -> u64 {
        let named = self.translator.gateway_claims.len().saturating_mul(places);
        if id.kind == Kind::TLSRoute { COVERING * named as u64 } else { 0 }
    }

    /// What reviewing a ListenerSet costs, whoever names it: all listeners are looked at, as they are and as they would be, and all
    /// routes are attached, since they tell what listeners of guests leave to others.
    pub(crate) fn of_set_review(&self, new: &ListenerSetSpec) -> u64 {
        let listeners = self.listeners_read().saturating_mul(2) + new.listeners.len();
        let routes = self.world.gateway_api.routes.len() as u64;
        let places = self.translator.gateways.places as u64;
        let below = self.below_listeners(new.listeners.iter());
        INGRESS
            + self.of_reading_listeners(listeners)
            + ATTACHING * routes
            + PLACE * places
            + PLACE_OF_REVIEW * below
    }

    /// What it costs beside that for each route that the set admits: it is attached to what there is and to what would be, and to
    /// the new listeners alone. The set is in the world already. A route of another namespace counts with its places at the new
    /// listeners: what else it names is not the set's.
    pub(crate) fn of_review_by_set(&self, set: &OwnListeners<'_>, of: &Admitted<'_>) -> u64 {
        let places = set.places_of_guest(of);
        let places = places.unwrap_or_else(|| self.count_places(&of.id.key, &of.route.spec));
        let places = places.min(MAX_HOSTS);
        ATTACHING
            + PLACE_OF_REVIEW * 2 * places as u64
            + price_of_matches(&of.route.spec)
            + self.of_covering(of.id, places)
    }

    /// How many listeners a review looks at.
    fn listeners_read(&self) -> usize {
        let all = self.world.gateway_api.gateways.values();
        let listeners: usize = all.map(|gateway| gateway.spec.listeners.len()).sum();
        // Of sets no more is read: a namespace that brings many must not make the reviews of all others dear.
        let mut of_sets: BTreeMap<&str, usize> = BTreeMap::new();
        for (home, set) in &self.world.gateway_api.sets {
            let gateway = set.spec.gateway(&home.namespace);
            if gateway.is_some_and(|gateway| self.has_status(Kind::Gateway, gateway)) {
                *of_sets.entry(&home.namespace).or_default() += set.spec.listeners.len();
            }
        }
        let in_sets: usize =
            of_sets.values().map(|count| *count.min(&gateway::MAX_LISTENERS)).sum();
        listeners + in_sets
    }

    /// What it costs that the routes of Gateways or ListenerSets are read of which the rules are not known, and merged where they
    /// are served. Other routes of the world are not looked at.
    pub(super) fn of_attached<'o>(&self, objects: impl Iterator<Item = &'o ObjectRef>) -> u64 {
        let of_one = |id: &ObjectRef| {
            work::count(Step::Priced);
            let route = self.world.gateway_api.routes.get(id);
            let route = route.filter(|_| !self.translator.has_rules_of(id));
            route.map_or(0, |route| {
                let rules = RULE * route.spec.count_rules() as u64;
                INGRESS + price_of_rules(&route.spec) + rules + self.of_leads(id, &route.spec)
            })
        };
        let (mut named, mut routes) = (0, BTreeSet::new());
        for route in objects.flat_map(|object| self.translator.routes_at(object)) {
            named += NAMED;
            routes.insert(route);
        }
        routes.into_iter().map(of_one).fold(named, u64::saturating_add)
    }

    /// What a BackendTLSPolicy costs: its authorities, and the routes to its Services.
    pub(super) fn of_policy(&self, key: &Key, new: &BackendTlsPolicy) -> u64 {
        let old = self.world.gateway_api.tls_policies.get(key).map(AsRef::as_ref);
        let policies = old.into_iter().chain([new]);
        let named = gateway::authorities_of(key, new);
        let count = named.map_or(0, |id| gateway::count_authorities(self.world, &id));
        let own = INGRESS.saturating_add(CERTIFICATE.saturating_mul(count));
        let services = policies.flat_map(|policy| gateway::services(key, policy));
        let services: BTreeSet<Key> = services.collect();
        let endpoints = services.iter().map(|service| self.of_endpoints(service));
        endpoints.fold(own, u64::saturating_add).saturating_add(self.of_services(services))
    }

    /// What it costs that Policies of routes are read again, with so many bytes that are new, and the routes that name them.
    pub(super) fn of_policies<'k>(
        &self,
        policies: impl IntoIterator<Item = &'k Key>,
        bytes: u64,
    ) -> u64 {
        let (mut routes, mut sum) = (BTreeSet::new(), 0_u64);
        for key in policies {
            let rules = |id: &ObjectRef| {
                let route = self.world.gateway_api.routes.get(id);
                let rules = route.into_iter().flat_map(|route| &route.spec.rules);
                rules.filter(|rule| rule.policy() == Some(key.name.as_str())).count() as u64
            };
            let readers: Vec<_> = self.translator.routes_with(key).collect();
            let count = readers.iter().map(|id| rules(id)).sum::<u64>();
            let each = bytes.saturating_add(self.translator.bytes_of_policy(key));
            sum = sum.saturating_add(INGRESS + BYTE_OF_FILTERS.saturating_mul(each * (count + 1)));
            routes.extend(readers);
        }
        sum.saturating_add(self.of_routes(routes.into_iter()))
    }

    /// What an object of so many bytes costs that Policies of routes name.
    pub(super) fn of_named(&self, id: &ObjectRef, bytes: u64) -> u64 {
        self.of_policies(self.translator.policies_naming(id), bytes)
    }

    /// What a ConfigMap costs that policies name for authorities.
    pub(super) fn of_authorities(&self, key: &Key, new: &ConfigMap) -> u64 {
        let mut policies = gateway::policies_with(&self.world.gateway_api, key).peekable();
        if policies.peek().is_none() && !self.is_of_clients(key) {
            return 0;
        }
        let services = policies.flat_map(|(name, policy)| gateway::services(name, policy));
        (INGRESS + price_of_authorities(new)).saturating_add(self.of_services(services))
    }

    /// Whether a Gateway names a ConfigMap for the authorities of its clients.
    pub(super) fn is_of_clients(&self, map: &Key) -> bool {
        let objects = &self.world.gateway_api;
        let mut all = objects.gateways.iter();
        let is = |named: ObjectRef| named.kind == Kind::ConfigMap && named.key == *map;
        all.any(|(key, gateway)| gateway::authorities_of_clients(objects, key, gateway).any(is))
    }

    /// What it costs that the routes to Services are read again.
    fn of_services(&self, services: impl IntoIterator<Item = Key>) -> u64 {
        let services: BTreeSet<Key> = services.into_iter().collect();
        let routes = services.iter().flat_map(|service| self.translator.routes_of(service));
        let routes: BTreeSet<&ObjectRef> = routes.collect();
        self.of_routes(routes.into_iter())
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

    /// How many places a route asks for, told without its hosts.
    fn count_places(&self, key: &Key, spec: &HttpRouteSpec) -> usize {
        let parents = spec.parent_refs.iter();
        let listeners = parents.map(|parent| self.listeners_named(key, parent).count());
        let hosts = spec.hostnames.len().max(1);
        listeners.sum::<usize>().saturating_mul(hosts).min(MAX_HOSTS)
    }

    /// The listeners that a route names by a parent.
    fn listeners_named(&self, key: &Key, parent: &ParentRef) -> impl Iterator<Item = &Listener> {
        let object = parent.object(&key.namespace);
        let all = object.map(|object| self.listeners_of(&object)).unwrap_or_default().iter();
        all.filter(|listener| {
            parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
                && parent.port.is_none_or(|port| port == listener.port)
        })
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
            for listener in self.listeners_named(key, parent) {
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

    /// The listeners that a Gateway or a ListenerSet has until now.
    fn listeners_of(&self, object: &ObjectRef) -> &[Listener] {
        let all = &self.world.gateway_api;
        match object.kind {
            Kind::ListenerSet => all.sets.get(&object.key).map(|set| set.spec.listeners.as_slice()),
            _ => all.gateways.get(&object.key).map(|gateway| gateway.spec.listeners.as_slice()),
        }
        .unwrap_or_default()
    }
}

fn host_of(listener: &Listener) -> HostPattern {
    let name = listener.hostname.as_deref().filter(|name| !name.is_empty());
    let host = name.and_then(|name| HostPattern::parse(name).ok());
    host.unwrap_or_else(HostPattern::default_host)
}

fn price_of_authorities(map: &ConfigMap) -> u64 {
    let text = map.data.get("ca.crt").map(String::as_str).unwrap_or_default();
    CERTIFICATE.saturating_mul(count_certificates(text))
}

/// What reading the matches of a route costs, for a review.
fn price_of_matches(spec: &HttpRouteSpec) -> u64 {
    let matches = spec.rules.iter().map(|rule| rule.matches.len().max(1));
    MATCH_OF_REVIEW.saturating_mul(matches.sum::<usize>() as u64)
}

/// What reading the rules of a route costs, and making what is served of them.
fn price_of_rules(spec: &HttpRouteSpec) -> u64 {
    let rules = ROUTE_RULE.saturating_mul(spec.count_rules() as u64);
    rules.saturating_add(BYTE_OF_FILTERS.saturating_mul(spec.count_filter_bytes() as u64))
}
