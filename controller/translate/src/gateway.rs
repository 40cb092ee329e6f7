//! The Gateway API to servers of listeners, and to what is said about each object.
//!
//! Shape:   [`build`] makes everything, [`edit`] what routes touch that changed alone. [`gateways`] says which [`listeners`] are
//!          ours and stand, [`routes`] what each route attaches to and what its rules mean. Of [`servers`], [`conflict`] says
//!          which of two kinds of routes has a host; [`serve`] puts the rules of one host on one port together, with those of
//!          Ingresses; [`servers::sessions`] decides who has what is no request. The records are those of Ingresses: rules,
//!          policies, backends.
//! Order:   of two rules with the same path and the same conditions the older object's is served, then the first by namespace
//!          and name; this also holds between a route and an Ingress. Both are told.
//! Tenancy: a route that no listener allows adds nothing, and neither does one whose host belongs to a more specific listener.
//! Errors:  none; what is wrong becomes a condition of the object, and everything else is served.
//! Source:  Gateway API v1.7. Rejected: rules of all ports in one server, since a host may differ from port to port.

mod claims;
mod edit;
mod gateways;
mod listeners;
mod review;
mod routes;
mod servers;
mod status;
pub mod work;

pub use claims::{Claims, claims, edited as edited_claims};
pub use edit::{Edited, edit, touched_session};
pub use gateways::frontend::authorities_of as authorities_of_clients;
pub use gateways::listener::MAX_LISTENERS;
pub use gateways::{authorities_of_ours, is_ours, references_of, with_listeners};
pub use listeners::host::{covers, intersection, is_wide, specificity};
pub use listeners::left::Left;
pub use listeners::opened::HeldPorts;
pub use listeners::protocol::Protocol;
pub use listeners::state::Home;
pub use review::{Admitted, NewListeners, OfSet, OwnListeners, RouteHosts, Standing};
pub use routes::attach::gateway_of;
pub use routes::grants::is_of_gateways;
pub use routes::policies::references as references_of_policy;
pub use routes::route::{Asked, asked};
pub use routes::target::{is_watched, protocol_of};
pub use routes::tls_policy::{
    authorities_of, count_authorities, count_certificates, naming as policies_with, services,
};
pub use servers::memo::Memo;
pub use servers::rank::{Rank, excludes};
pub use servers::serve::{Merged, Site};
pub use status::notes;

use crate::Options;
use crate::annotation::balancing::Balancing;
use crate::claim::age::Age;
use crate::claim::backend_ref::BackendRef;
use crate::host::owner::GatewayClaim;
use gateways::{frontend, identity};
use listeners::{isolation, state};
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    BackendId, Bundle, BundleId, CertificateId, HostPattern, ListenerHost, Server, SessionPlace,
    SessionRoute, StreamPort,
};
use oxigress_core::patterns::Allowance;
use oxigress_objects::gateway::Route;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_settings::Settings;
use oxigress_settings::conf_input::Listener;
use routes::attach::{Attached, Attachment};
use routes::policies::{Named, RoutePolicies};
use routes::route::{CompiledRoute, Patterns};
use routes::tls_policy::TlsPolicies;
use routes::{attach, route};
use servers::memo::KnownRoute;
use servers::rank;
use servers::sessions::SessionHolders;
use servers::{conflict, serve, spots};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What the Gateway API comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Built {
    /// The hosts of listeners that were put together; `None`: gone. All others are as before.
    pub hosts: BTreeMap<ListenerHost, Option<Merged>>,
    /// The policies that targets of sessions name.
    pub session_policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// The Services' ports that they lead to.
    pub backends: BTreeMap<BackendId, RouteBackend>,
    /// The certificates of listeners' hosts, each of the first object that shows one for the host.
    pub certificates: BTreeMap<HostPattern, Shown>,
    /// Who has the sessions of listeners.
    pub sessions: BTreeMap<SessionPlace, SessionRoute>,
    /// The server names that routes ask for, each with whose host it is.
    pub session_hosts: BTreeMap<HostPattern, Option<HostOwner>>,
    /// The routes that have the sessions of server names.
    pub session_holders: SessionHolders,
    /// Hosts below what a route or an Ingress has of several server names that are kept from it, or would be if they had no place
    /// of their own and there were room.
    pub kept_hosts: BTreeMap<HostPattern, KeptHost>,
    /// The wildcards of which TLS was passed through as Ingresses said.
    pub passed: BTreeMap<HostPattern, Age>,
    /// The routes that have such sessions, by what they are of.
    pub wide_sessions: BTreeMap<HostPattern, Vec<rank::Age>>,
    /// Ports of nginx that listeners ask for, beside those of Ingresses.
    pub ports: BTreeMap<StreamPort, Listener>,
    /// Those that nginx.conf has, also of listeners that are gone; others wait for a reload.
    pub opened: BTreeMap<StreamPort, Listener>,
    /// Addresses that Gateways have for themselves.
    pub addresses: BTreeSet<IpAddr>,
    /// The Secrets that listeners name for their certificates and may show, how many do, and whose they are.
    pub shown: BTreeMap<Key, (usize, BTreeSet<ObjectRef>)>,
    /// What the status of each object of ours is to say.
    pub statuses: BTreeMap<ObjectRef, Wanted>,
    /// What there is to say about objects, beside their status and what hosts came to.
    pub notes: Vec<(ObjectRef, Note)>,
    /// The same about routes that are not served on some of their hosts.
    pub losses: BTreeMap<ObjectRef, Vec<Note>>,
    /// The authorities that policies of backends and Gateways name.
    pub bundles: BTreeMap<BundleId, Bundle>,
    /// Those among them that Gateways name for their clients.
    pub client_bundles: BTreeSet<BundleId>,
    /// How many places all routes ask for, as far as there is room.
    pub places: usize,
    /// What listeners of guests leave to others.
    pub left: Arc<Left>,
}

/// A Service's port that routes lead to.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteBackend {
    /// The port.
    pub backend_ref: BackendRef,
    /// How its endpoints are chosen.
    pub balancing: Arc<Balancing>,
    /// The routes that lead to it.
    pub routes: BTreeSet<ObjectRef>,
    /// The hosts and paths that give out its affinity cookie.
    pub locations: BTreeMap<String, BTreeSet<String>>,
}

/// A certificate that a listener shows for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The certificate.
    pub id: CertificateId,
    /// The creation and the name of the Gateway or ListenerSet that has the listener.
    pub age: Age,
    /// Its kind.
    pub kind: Kind,
}

/// The servers of Ingresses, which are served beside routes, and who owns a host.
pub struct Beside<'a> {
    /// By host.
    pub servers: &'a BTreeMap<HostPattern, Server>,
    /// The hosts that may have other Ingresses, or others' rules, than when listeners were last built.
    pub touched: &'a BTreeSet<HostPattern>,
    /// The hosts that routes and listeners of Gateways name.
    pub named: &'a BTreeMap<HostPattern, GatewayClaim>,
    /// The wildcards of which TLS is passed through as Ingresses say, each with the age of these.
    pub passed: &'a BTreeMap<HostPattern, Age>,
    /// By which object a host is whose.
    pub owner: &'a dyn Fn(&HostPattern) -> Option<HostOwner>,
}

/// Why a host is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHost {
    /// The oldest route that names it.
    pub route: Option<(Age, Kind)>,
    /// It has paths of Ingresses.
    pub is_served: bool,
}

impl KeptHost {
    /// As it is now.
    pub fn of(beside: &Beside<'_>, host: &HostPattern) -> Self {
        let route = beside.named.get(host).and_then(|claim| claim.route.clone());
        KeptHost { route, is_served: beside.servers.contains_key(host) }
    }
}

/// The oldest object that names a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOwner {
    /// Its creation and its name.
    pub age: Age,
    /// Its kind.
    pub kind: Kind,
    /// It names the host as one that follows another.
    pub is_alias: bool,
    /// The oldest Ingress or route that names the host, if the object is a Gateway: a listener leaves its host to that.
    pub heir: Option<(Age, Kind)>,
}

/// Whose a host on a port is: what merging, reviews and the publisher go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOwner {
    /// The creation and the name of the object that makes its namespace the owner.
    pub age: Age,
    /// Its kind.
    pub kind: Kind,
    /// It names the host; else it is the oldest of those that cover it.
    pub is_by_name: bool,
}

/// Everything that is served of the Gateway API.
///
/// `memo` is what was built before, and becomes what is built now.
pub fn build<'w>(site: Site<'w>, settings: &'w Settings, memo: &mut Memo) -> Built {
    let Site { world, options, .. } = site;
    let mut built = Built::default();
    let mut old = memo.replace(world);
    let classes = gateways::classes(options, &world.gateway_api, &mut built);
    if classes.is_empty() {
        memo.forget_all(&mut old, &mut built);
        return built;
    }
    let mut gateways = gateways::gateways(world, options, &classes, old.left.as_ref(), &mut built);
    let listeners = read_tls(world, &mut gateways, memo, &mut built);
    let policies = RoutePolicies::of(world, options, settings, &mut old.policies);
    let tls = TlsPolicies::of(world, options, &mut memo.authorities);
    let serving = serve::Serving::default();
    let mut building = Building { site, settings, old, memo, serving, tls, policies, built };
    let room = &mut building.serving.totals.room;
    let routes = attach::all(world, options, &mut gateways, room);
    let by = (&gateways, &listeners);
    routes.iter().for_each(|attached| building.route(attached, by));
    let Building { mut old, memo, mut serving, tls, policies, mut built, .. } = building;
    memo.forget(&old);
    gateways.iter().for_each(|(key, state)| gateways::put_status(key, state, &mut built));
    tls.finish(options, &mut built);
    memo.policies = policies.finish(&mut built);
    let refused = serving.finish(site, by, (&mut old, memo), &mut built);
    for Attached { id, route, at, .. } in routes {
        let hosts = refused.get(id);
        put_route_status(options, (id, route), &at, hosts, by, memo, &mut built);
        memo.keep_attached(id, at);
    }
    let mut totals = serving.totals;
    totals.count_attached(&gateways);
    totals.parents.take_changed();
    totals.left = built.left.clone();
    built.places = totals.room.places();
    memo.totals = Some(totals);
    built
}

/// Everything while it is built.
struct Building<'b, 'w> {
    site: Site<'w>,
    settings: &'w Settings,
    old: Memo,
    memo: &'b mut Memo,
    serving: serve::Serving,
    tls: TlsPolicies<'w>,
    policies: RoutePolicies<'w>,
    built: Built,
}

impl Building<'_, '_> {
    /// Adds a route where it is attached.
    fn route(
        &mut self,
        attached: &Attached<'_>,
        by: (&state::Gateways<'_>, &isolation::Listeners),
    ) {
        let Building { site, settings, old, memo, serving, tls, policies, built } = self;
        let Attached { id, route, at, taken } = attached;
        let ask = memo.ask_of(old, id, route);
        let before = serving.totals.room.of(&id.key.namespace);
        let (named, bytes, has_room) = policies.named((id, route), &ask, &mut serving.totals.room);
        let is_served = || spots::is_anywhere(at, by);
        let allowance = serving.totals.allowance(&id.key.namespace);
        let known = old.take_route(site.world, tls, (id, route, &named), allowance.left());
        let known = known.filter(|known| has_room && known.has_rules_if(is_served));
        let with = (site.world, *settings, &*tls, has_room);
        let of = (*id, *route, named, bytes);
        let mut known = known_or_read(known, with, of, (&mut memo.patterns, allowance));
        serving.totals.note_short(id, &known.compiled);
        built.note(id, &known.compiled);
        let parents = attach::with_tls_policies(id.kind, at, by.0);
        tls.note_served(known.compiled.tls.keys().map(|(service, _)| service), &parents);
        known.share.spots = serving.add(site.options, (id, route), at, &mut known, by);
        let room = &serving.totals.room;
        known.share.taken = room.of(&id.key.namespace).since(before).and(*taken);
        match has_room {
            true => memo.put_route(id, known),
            false => memo.forget_route(id),
        }
    }
}

/// A route as it is known, if that holds, or as it is read now. Either takes its part of what its namespace has for expressions.
fn known_or_read(
    known: Option<KnownRoute>,
    with: (&World, &Settings, &TlsPolicies<'_>, bool),
    (id, route, named, bytes): (&ObjectRef, &Arc<Route>, Named, usize),
    (patterns, allowance): (&mut Patterns, &mut Allowance),
) -> KnownRoute {
    if let Some(known) = known {
        allowance.split(known.compiled.charge.taken);
        return known;
    }
    KnownRoute::new(route, route::rules(with, (id, route, named), patterns, allowance), bytes)
}

/// Notes the status of a route, and what else it is told that is not served on some `hosts`.
fn put_route_status(
    options: &Options,
    (id, route): (&ObjectRef, &Route),
    attached: &[Attachment],
    hosts: Option<&BTreeMap<ListenerHost, String>>,
    by: (&state::Gateways<'_>, &isolation::Listeners),
    memo: &Memo,
    built: &mut Built,
) {
    let none = BTreeMap::new();
    let (refusals, losses) = conflict::report(id, attached, hosts.unwrap_or(&none), by);
    match losses.is_empty() {
        true => drop(built.losses.remove(id)),
        false => drop(built.losses.insert(id.clone(), losses)),
    }
    let over_limit = memo.compiled(id).is_none().then(CompiledRoute::over_limit);
    if let Some(compiled) = memo.compiled(id).or(over_limit.as_ref()) {
        attach::put_status(options, (id, route), attached, &refusals, compiled, built);
    }
}

/// Opens ports and reads what Gateways say about TLS toward clients and endpoints; answers the hosts of their listeners, also of
/// those that it closes.
fn read_tls(
    world: &World,
    gateways: &mut state::Gateways<'_>,
    memo: &mut Memo,
    built: &mut Built,
) -> isolation::Listeners {
    memo.opened.settle(gateways, built);
    let listeners = isolation::Listeners::of(gateways);
    frontend::apply(world, gateways, &mut memo.client_authorities, built);
    identity::apply(world, gateways, built);
    listeners
}

impl Built {
    /// Notes where a route leads and what it depends on.
    fn note(&mut self, id: &ObjectRef, route: &CompiledRoute) {
        for (backend, (backend_ref, balancing)) in &route.backends {
            let new = || RouteBackend {
                backend_ref: backend_ref.clone(),
                balancing: balancing.clone(),
                routes: BTreeSet::new(),
                locations: BTreeMap::new(),
            };
            self.backends.entry(backend.clone()).or_insert_with(new).routes.insert(id.clone());
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub use tests::an_authority;
