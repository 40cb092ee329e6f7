//! What taking a change over costs the controller.
//!
//! Cost:    of an Ingress its paths, the rules of all Ingresses on its hosts and their aliases, which are merged again, the
//!          reading of its regular expressions, the compiling of those that the translator has not compiled, and the
//!          reading of the objects that it names or named. Of a Secret, ConfigMap or Service the same for each Ingress that
//!          is read again because it names the object; of a Secret also its certificates and lists, and the hosts that it
//!          is chosen for.
//!          Of a route its rules, their filters, the expressions that are new in it, and the rules of all routes on its hosts, which
//!          are merged again; of a Gateway or a ListenerSet its listeners, the rules on the hosts of those that change, and the routes
//!          that are read for them. Of a Service or a ReferenceGrant also the routes that are read again because of it; of a Secret the
//!          listeners that may show it; of a BackendTLSPolicy and of the ConfigMap that it names the routes to its Services. Of what
//!          may show another certificate for a wildcard, the hosts of Ingresses below that.
//! Units:   nanoseconds; the constants are measured by `what_is_charged_is_what_it_takes`, rounded up.
//!          Of a Service, and of what leads to one newly, the endpoints that are read, sent and written again: [`endpoints`].
//! Exempt:  what is the operator's: classes, Namespaces, the objects that flags and the main ConfigMap name.

pub mod bytes;
pub mod endpoints;
mod gateways;
mod removals;

use crate::Translator;
use crate::gateway::{self, count_certificates, is_of_gateways};
use crate::ingress::class;
use crate::patterns::{Meaning, budget};
use bytes::bytes_of;
use oxigress_core::model::{HostPattern, MAX_RULES, ValueMatch, ValuePattern};
use oxigress_core::patterns::{price_of, price_of_reading};
use oxigress_objects::gateway::{HttpRouteSpec, Listener, ListenerSet, Policy};
use oxigress_objects::ingress::{Ingress, Path};
use oxigress_objects::secret::Secret;
use oxigress_objects::{Key, Kind, Name, Object, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a change costs that waits where anything is owed.
pub(super) const ANY: u64 = 1;
/// What an endpoint costs that is read and sent again, and written by nginx.
const ENDPOINT: u64 = 5_000;
/// What a point of a ring costs.
const RING_POINT: u64 = 300;
/// What reading the name of a host costs, of an object that waits.
pub(super) const NAME: u64 = 2_000;
/// What reading a certificate costs.
const CERTIFICATE: u64 = 125_000;
/// What reading a byte of revocation lists costs.
const BYTE_OF_LISTS: u64 = 20;
/// What reading an Ingress again costs beside its paths.
pub const INGRESS: u64 = 60_000;
/// What reading a path again costs.
pub const PATH: u64 = 5_000;
/// What merging a rule costs that the Ingress did not have itself.
pub const RULE: u64 = 5_000;
/// What a byte of an object costs each time that an Ingress takes it over.
const BYTE: u64 = 5;
/// What reading a rule of a route costs, once for each match and backend.
const ROUTE_RULE: u64 = 12_000;
/// What a byte of a route's filters, or of a server-snippet, costs: it is copied, checked, and digested with policies.
const BYTE_OF_FILTERS: u64 = 10;
/// What comparing a host name of a route with a listener costs.
const PLACE: u64 = 200;
/// What it costs that a route names an object as its parent whose routes are looked at.
const NAMED: u64 = 500;
/// What a route costs where everything is built again, and nothing of it has changed.
pub const REBUILT: u64 = 40_000;
/// What looking at a listener costs, for the review of a route.
const LISTENER: u64 = 4_000;
/// What attaching a route costs beside its places, for the review of a ListenerSet.
const ATTACHING: u64 = 5_000;
/// What finding the owner of a place costs, for the review of a route.
const PLACE_OF_REVIEW: u64 = 4_000;
/// What reading a match of a route costs, for its review.
const MATCH_OF_REVIEW: u64 = 10_000;
/// What looking for a path at one place costs, for the review of a route.
const PATH_OF_REVIEW: u64 = 1_000;
/// What a new port of a ListenerSet costs: nginx reloads for it, which everybody's connections feel.
const RELOAD: u64 = 500_000_000;
/// What choosing a certificate for a host again costs.
const HOST: u64 = 20_000;

/// What changes cost by what the translator knows.
#[derive(Clone, Copy)]
pub struct Prices<'a> {
    /// The translator, which has seen the world as it was after the last update.
    pub translator: &'a Translator,
    /// The objects as they are until now.
    pub world: &'a World,
}

/// What a change costs, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Price {
    /// What its namespace pays.
    pub own: u64,
    /// What others pay who have rules on its hosts, and it, where they cannot.
    pub of_guests: BTreeMap<Name, u64>,
}

impl Price {
    /// Makes the price of what concerns nobody else.
    pub fn own(own: u64) -> Self {
        Price { own, of_guests: BTreeMap::new() }
    }

    /// What all pay together.
    pub fn total(&self) -> u64 {
        self.of_guests.values().copied().fold(self.own, u64::saturating_add)
    }
}

impl<'a> Prices<'a> {
    /// Whether taking an object over costs nothing that is counted.
    pub fn is_free(&self, id: &ObjectRef, object: &Object) -> bool {
        self.world.object(id).as_ref() == Some(object) || self.is_without_price(id, object)
    }

    /// Whether nothing is read for an object of its own namespace, whatever it says.
    fn is_without_price(&self, id: &ObjectRef, object: &Object) -> bool {
        let key = &id.key;
        let is_unused = match object {
            Object::Ingress(new) => !self.is_ours(key, new),
            Object::Route(new) => !self.has_gateway(key, &new.spec),
            Object::Gateway(new) => {
                let class = Key::new("", &new.spec.gateway_class_name);
                !self.has_status(Kind::GatewayClass, class)
            }
            Object::BackendTlsPolicy(_) | Object::ReferenceGrant(_) => {
                self.translator.statuses().is_empty()
            }
            Object::ListenerSet(new) => !self.has_parent(key, new),
            Object::Policy(_) => !self.translator.asks_for(key),
            Object::ConfigMap(_)
            | Object::EndpointSlice(_)
            | Object::Secret(_)
            | Object::Service(_) => false,
            Object::ClusterTrustBundle(_)
            | Object::GatewayClass(_)
            | Object::IngressClass(_)
            | Object::Namespace(_) => true,
        };
        is_unused || self.translator.is_operators(id) || !self.is_read(id, object)
    }

    /// Whether something is read again for an object that has changed.
    fn is_read(&self, id: &ObjectRef, object: &Object) -> bool {
        let (key, known) = (&id.key, self.translator);
        // Of most kinds nothing is named, and every event comes here.
        let is_named =
            || known.readers_of(id).next().is_some() || known.policies_naming(id).next().is_some();
        match object {
            Object::Ingress(_)
            | Object::Route(_)
            | Object::BackendTlsPolicy(_)
            | Object::Gateway(_)
            | Object::ListenerSet(_)
            | Object::Policy(_)
            | Object::EndpointSlice(_)
            | Object::ReferenceGrant(_) => true,
            Object::Secret(new) => {
                is_named()
                    || known.hosts_with(key) > 0
                    || known.listeners_with(key) > 0
                    || self.price_of_lists(key, new) > 0
            }
            Object::Service(_) => {
                is_named()
                    || known.routes_of(key).next().is_some()
                    || !self.is_without_backends(key)
            }
            Object::ConfigMap(_) => {
                is_named()
                    || gateway::policies_with(&self.world.gateway_api, key).next().is_some()
                    || self.is_of_clients(key)
            }
            Object::ClusterTrustBundle(_)
            | Object::GatewayClass(_)
            | Object::IngressClass(_)
            | Object::Namespace(_) => false,
        }
    }

    /// What telling the price costs, which is what reading costs, and merging what is on the same hosts.
    pub fn of_reading(&self, id: &ObjectRef, object: &Object) -> Price {
        let own = self.of_object(id, object);
        match object {
            Object::Ingress(new) => {
                let hosts = self.hosts_changed_by(&id.key, new);
                self.with_turned(&id.key, Some(new), hosts, own)
            }
            _ => self.with_rules_on(&self.hosts_of_readers(id), None, own, &id.key.namespace),
        }
    }

    /// What a changed Ingress costs, for which hosts are merged again, and what others cost that are read with it: there is room
    /// for them no longer, or again.
    fn with_turned(
        &self,
        key: &Key,
        new: Option<&Ingress>,
        mut hosts: BTreeSet<HostPattern>,
        mut own: u64,
    ) -> Price {
        for other in self.translator.turned_by(self.world, key, new) {
            let Some(ingress) = self.world.ingresses.get(other) else { continue };
            own = own.saturating_add(price_of_paths(ingress));
            hosts.extend(self.translator.hosts_named_by(other, ingress));
        }
        self.with_rules_on(&hosts, Some(key), own, &key.namespace)
    }

    /// What something costs for which hosts are merged again, but what one Ingress has there.
    fn with_rules_on(
        &self,
        hosts: &BTreeSet<HostPattern>,
        but: Option<&Key>,
        own: u64,
        payer: &Name,
    ) -> Price {
        let beside = self.translator.rules_beside(hosts, payer, but);
        let price = |rules: usize| RULE.saturating_mul(rules as u64);
        Price {
            own: own.saturating_add(price(beside.own)),
            of_guests: beside.guests.into_iter().map(|(of, rules)| (of, price(rules))).collect(),
        }
    }

    fn of_object(&self, id: &ObjectRef, object: &Object) -> u64 {
        match object {
            Object::Ingress(new) => self.of_reading_ingress(&id.key, new),
            Object::Secret(new) => {
                let hosts = self.translator.hosts_with(&id.key) as u64;
                let bytes = new.fields.bytes() as u64;
                let listeners = self.translator.listeners_with(&id.key) as u64;
                let is_new =
                    self.world.secrets.get(&id.key).is_none_or(|it| it.last_good.is_none());
                let gateways = self.translator.gateways_with(&id.key).filter(|_| is_new);
                let routes = self.of_attached(gateways);
                let rest = (hosts + listeners) * HOST + self.of_readers(id, bytes);
                let rest = rest.saturating_add(self.of_named(id, bytes)).saturating_add(routes);
                self.price_of_lists(&id.key, new).saturating_add(rest)
            }
            Object::ConfigMap(new) => {
                let bytes = new.bytes() as u64;
                let own = self.of_readers(id, bytes).saturating_add(self.of_named(id, bytes));
                own.saturating_add(self.of_authorities(&id.key, new))
            }
            Object::Service(_) => {
                let routes = self.translator.routes_of(&id.key);
                let own = self.of_readers(id, 0).saturating_add(self.of_named(id, 0));
                own.saturating_add(self.of_routes(routes))
                    .saturating_add(self.of_endpoints(&id.key))
            }
            Object::Route(new) => {
                let new_texts = self.new_expressions(id, &new.spec);
                let reading = new_texts.map(|text| price_of_reading(&text));
                reading.fold(self.of_route(id, &new.spec), u64::saturating_add)
            }
            Object::Gateway(new) => self.of_gateway(&id.key, &new.spec),
            Object::ListenerSet(new) => self.of_set(&id.key, &new.spec),
            Object::BackendTlsPolicy(new) => self.of_policy(&id.key, new),
            Object::Policy(new) => self.of_policies([&id.key], bytes_of_policy(new)),
            Object::ReferenceGrant(new) => {
                let old = self.world.gateway_api.grants.get(&id.key);
                let grants = old.into_iter().chain([new]);
                let routes = grants.flat_map(|g| self.translator.routes_by(&id.key.namespace, g));
                let routes: BTreeSet<&ObjectRef> = routes.collect();
                // Everything is built again where Gateways may refer to something else.
                let has_gateways = old.into_iter().chain([new]).any(|grant| is_of_gateways(grant));
                let count = self.world.gateway_api.routes.len() as u64;
                let all = if has_gateways { count } else { 0 };
                (INGRESS + REBUILT * all).saturating_add(self.of_routes(routes.into_iter()))
            }
            // What is read for it is taken from the share of endpoints, when it was read.
            Object::EndpointSlice(_) => ANY,
            Object::ClusterTrustBundle(_)
            | Object::GatewayClass(_)
            | Object::IngressClass(_)
            | Object::Namespace(_) => 0,
        }
    }

    fn of_reading_ingress(&self, key: &Key, new: &Ingress) -> u64 {
        let rules = self.translator.rules_of_aliases(new) as u64;
        let hosts = (new.rules.len() + new.tls.len()) as u64;
        price_of_paths(new)
            + rules * RULE
            + (hosts + self.below_ingress(key, new)) * HOST
            + self.bytes_named(key, new) * BYTE
            + (self.bytes_inherited(key, new) + self.bytes_copied(new)) * BYTE_OF_FILTERS
            + budget::price_by(new, self.prefix(), |_, text| Ok(price_of_reading(text)))
            + self.of_targets(key, new)
    }

    /// What taking it over costs beside that: patterns that are compiled.
    pub fn of_rest(&self, id: &ObjectRef, object: &Object) -> u64 {
        if let Object::Route(new) = object {
            let new = self.new_expressions(id, &new.spec);
            return new.filter_map(|text| price_of(&text).ok()).fold(0, u64::saturating_add);
        }
        let Object::Ingress(new) = object else {
            // Paths are compiled already, values are compiled whenever an Ingress is read.
            let values = self.readers_of(id).map(|(_, ingress)| {
                budget::price_by(ingress, self.prefix(), |meaning, text| match meaning {
                    Meaning::Path => Ok(0),
                    Meaning::Value => price_of(text),
                })
            });
            return values.fold(0, u64::saturating_add);
        };
        let known: HashSet<&str> = self.translator.expressions_of(&id.key).collect();
        let has_patterns = self.translator.may_have_patterns(new);
        budget::price_by(new, self.prefix(), |meaning, text| match meaning {
            Meaning::Path if !has_patterns || known.contains(text) => Ok(0),
            Meaning::Path | Meaning::Value => price_of(text),
        })
    }

    /// Whether one of a route's parents is a Gateway or a ListenerSet of ours.
    pub(crate) fn has_gateway(&self, route: &Key, spec: &HttpRouteSpec) -> bool {
        let mut parents =
            spec.parent_refs.iter().filter_map(|parent| parent.object(&route.namespace));
        parents.any(|parent| self.has_status(parent.kind, parent.key))
    }

    /// Whether a ListenerSet names or named a Gateway of ours.
    fn has_parent(&self, key: &Key, new: &ListenerSet) -> bool {
        let gateway = new.spec.gateway(&key.namespace);
        self.has_status(Kind::ListenerSet, key.clone())
            || gateway.is_some_and(|gateway| self.has_status(Kind::Gateway, gateway))
    }

    fn has_status(&self, kind: Kind, key: Key) -> bool {
        self.translator.statuses().contains_key(&ObjectRef::new(kind, key))
    }

    /// The expressions of a route that its older self does not have, as they are compiled.
    fn new_expressions<'r>(
        &self,
        route: &ObjectRef,
        spec: &'r HttpRouteSpec,
    ) -> impl Iterator<Item = String> + use<'r, 'a> {
        let old = self.world.gateway_api.routes.get(route);
        let known: HashSet<&str> = old.into_iter().flat_map(|old| old.spec.expressions()).collect();
        let new = spec.expressions().filter(move |text| !known.contains(text));
        new.filter_map(|text| {
            let value = ValuePattern::Regex(text.into());
            ValueMatch::new("x", value).ok()?.regex()
        })
    }

    /// What it costs that every Ingress that names an object of so many bytes is read again.
    fn of_readers(&self, id: &ObjectRef, bytes: u64) -> u64 {
        let of_one = |(key, ingress): (&Key, &Ingress)| {
            let reading =
                budget::price_by(ingress, self.prefix(), |_, text| Ok(price_of_reading(text)));
            let others = self.translator.objects_of(key).filter(|object| *object != id);
            let others: u64 = others.map(|object| bytes_of(self.world, object)).sum();
            price_of_paths(ingress) + (bytes + others) * BYTE + reading
        };
        self.readers_of(id).map(of_one).fold(0, u64::saturating_add)
    }

    /// The hosts of the Ingresses that name an object.
    fn hosts_of_readers(&self, id: &ObjectRef) -> BTreeSet<HostPattern> {
        let readers = self.readers_of(id);
        readers.flat_map(|(key, ingress)| self.translator.hosts_named_by(key, ingress)).collect()
    }

    /// The hosts that are merged again for an Ingress: where nothing but its paths is new, those whose paths are.
    fn hosts_changed_by(&self, key: &Key, new: &Ingress) -> BTreeSet<HostPattern> {
        let all = self.translator.hosts_named_by(key, new);
        // Whether a pattern is one, and has captures, may turn with another path.
        let old = self.same_but_for_paths(key, new);
        let Some(old) = old.filter(|_| !self.translator.may_have_patterns(new)) else { return all };
        // Where not all paths are read, that concerns all hosts.
        let count = |ingress: &Ingress| ingress.count_paths() + ingress.rules.len();
        if count(old).max(count(new)) > MAX_RULES {
            return all;
        }
        let (old, new) = (paths_by_host(old), paths_by_host(new));
        let is_changed = |host: &str| old.get(host) != new.get(host);
        let changed = old.keys().chain(new.keys()).filter(|host| is_changed(host));
        let parsed = |host: &&str| match *host {
            "" => Some(HostPattern::default_host()),
            host => HostPattern::parse(host).ok(),
        };
        self.translator.with_aliases(changed.filter_map(parsed).collect())
    }

    /// The older form of an Ingress that is served, if it says the same about everything but the paths of its hosts.
    fn same_but_for_paths(&self, key: &Key, new: &Ingress) -> Option<&'a Ingress> {
        self.world.ingresses.get(key).map(AsRef::as_ref).filter(|old| {
            self.translator.is_served(key)
                && (old.created, &old.class, &old.tls) == (new.created, &new.class, &new.tls)
                && (&old.annotations, &old.default_backend)
                    == (&new.annotations, &new.default_backend)
        })
    }

    /// How many hosts below the wildcards of an Ingress may choose their certificates again: none where its paths alone are
    /// others.
    fn below_ingress(&self, key: &Key, new: &Ingress) -> u64 {
        let hosts = |ingress: &Ingress| -> BTreeSet<String> {
            ingress.rules.iter().map(|rule| rule.host.clone()).collect()
        };
        let old = self.same_but_for_paths(key, new);
        match old.is_some_and(|old| hosts(old) == hosts(new)) {
            true => 0,
            false => {
                let hosts = self.translator.hosts_named_by(key, new);
                self.translator.hosts_below(hosts.iter()) as u64
            }
        }
    }

    fn below_route(&self, id: &ObjectRef, new: &HttpRouteSpec) -> u64 {
        let old = self.world.gateway_api.routes.get(id).map(|old| &old.spec);
        let is_same = old.is_some_and(|old| {
            old.parent_refs == new.parent_refs && old.hostnames == new.hostnames
        });
        let all = old.into_iter().chain([new]).flat_map(|spec| &spec.hostnames);
        if is_same { 0 } else { self.below_names(all) }
    }

    fn below_listeners<'l>(&self, all: impl Iterator<Item = &'l Listener>) -> u64 {
        self.below_names(all.filter_map(|listener| listener.hostname.as_ref()))
    }

    fn below_names<'n>(&self, names: impl Iterator<Item = &'n String>) -> u64 {
        let wildcards = names.filter(|name| name.starts_with("*."));
        let hosts = wildcards.filter_map(|name| HostPattern::parse(name).ok());
        let hosts: BTreeSet<HostPattern> = hosts.collect();
        self.translator.hosts_below(hosts.iter()) as u64
    }

    fn readers_of(&self, id: &ObjectRef) -> impl Iterator<Item = (&'a Key, &'a Ingress)> {
        let world = self.world;
        let all = self.translator.readers_of(id);
        all.filter_map(|key| Some((key, world.ingresses.get(key)?.as_ref())))
    }

    fn price_of_lists(&self, key: &Key, new: &Secret) -> u64 {
        let old = self.world.secrets.get(key).map(|history| &history.secret);
        price_of_lists(old, new)
    }

    fn is_ours(&self, key: &Key, ingress: &Ingress) -> bool {
        let choice = class::choose(self.world, &self.translator.options, key, ingress);
        matches!(choice, class::Choice::Ours)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.translator.options.annotations_prefix
    }
}

/// The paths of an Ingress by host, as written.
fn paths_by_host(ingress: &Ingress) -> BTreeMap<&str, Vec<&Path>> {
    let mut all: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for rule in &ingress.rules {
        all.entry(&rule.host).or_default().extend(&rule.paths);
    }
    all
}

/// What reading an Ingress costs by its paths.
fn price_of_paths(ingress: &Ingress) -> u64 {
    INGRESS + PATH * ingress.count_paths() as u64
}

pub(super) fn bytes_of_policy(policy: &Policy) -> u64 {
    let fields = policy.spec.fields.iter();
    fields.map(|(name, text)| name.len() + text.len()).sum::<usize>() as u64
}

/// What the certificates and revocation lists cost that a Secret has newly.
pub(super) fn price_of_lists(old: Option<&Secret>, new: &Secret) -> u64 {
    let changed = |name: &str| {
        let text = new.fields.text(name).unwrap_or_default();
        let is_known = old.is_some_and(|old| old.fields.text(name) == Some(text));
        if is_known { "" } else { text }
    };
    count_certificates(changed("ca.crt")) * CERTIFICATE
        + changed("ca.crl").len() as u64 * BYTE_OF_LISTS
}
