//! Sessions: which TLSRoute, TCPRoute or UDPRoute has those of a port, and of a server name.
//!
//! Order:   the most specific server name that a route has written, then the older route; of TCP and UDP the older Gateway's.
//!          Routes are never merged: one has all sessions of a place, and its references share them by weight.
//! Tenancy: a server name has an owner, as a host has: routes of other namespaces do not get it, since whoever has the sessions
//!          of a name speaks for all of it. Nor does a route that has a wildcard get them: [`kept`].
//! Closed:  what belongs to a listener and to no route, where no Ingress is served.
//! TLS:     endpoints of sessions that are decrypted are spoken to as their BackendTLSPolicies say.

mod holders;
mod kept;

pub use holders::SessionHolders;
pub use kept::is_due;

use super::conflict::RefusedHosts;
use super::memo::{KnownDecrypted, KnownRoute, ParentsOfHost};
use super::merge::{self, Place};
use super::rank::{self, Age, Rank};
use super::served::{self, Decrypted};
use super::spots::Spot;
use crate::Options;
use crate::gateway::listeners::host::specificity;
use crate::gateway::listeners::isolation::Listeners;
use crate::gateway::listeners::protocol::Protocol;
use crate::gateway::listeners::state::{GatewayState, Gateways, ListenerState, is_of_https};
use crate::gateway::routes::room::Room;
use crate::gateway::{Beside, Built, HostOwner};
use crate::host::owner::HostOwnership;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    HostPattern, ListenerHost, SessionPlace, SessionRoute, SessionTarget, SessionWay,
};
use oxigress_objects::gateway::Route;
use oxigress_objects::secret::Pair;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The routes that ask for sessions, while they are added.
#[derive(Default)]
pub struct Sessions(BTreeMap<SessionPlace, Asked>);

/// The policies that targets name.
type PolicySets = BTreeMap<PolicyId, Arc<Policies>>;

/// The routes that ask for the sessions of a place.
struct Asked {
    /// The place as requests have it.
    at: ListenerHost,
    way: SessionWay,
    routes: Vec<Candidate>,
}

/// The kind of the object of a listener, its creation and its name.
type HomeOrder = (Kind, i64, Key);

struct Candidate {
    /// How specific the host name is that it has written.
    rank: Rank,
    /// The object of its listener, where names do not decide: what comes first is served.
    home: Option<HomeOrder>,
    age: Age,
    targets: Arc<[SessionTarget]>,
}

impl Candidate {
    /// What comes first has the sessions.
    fn order(&self) -> (Reverse<Rank>, &Option<HomeOrder>, &Age) {
        (Reverse(self.rank), &self.home, &self.age)
    }

    fn object(&self) -> ObjectRef {
        rank::object(&self.age)
    }
}

impl Sessions {
    /// Adds a route where it is attached.
    pub fn add<'s, 'w: 's>(
        &mut self,
        options: &Options,
        (id, route): (&ObjectRef, &Route),
        spots: impl Iterator<Item = Spot<'s, 'w>>,
        known: &mut KnownRoute,
        (room, policies): (&mut Room, &mut PolicySets),
    ) {
        let before = std::mem::take(&mut known.decrypted);
        let (as_they_come, mut decrypting) =
            (targets(known), Decrypting { known: before, now: Vec::new() });
        for Spot { listener, at, name } in spots {
            let place = listener.session_place(options, at.address, &at.host);
            let Some(place) = place else { continue };
            let targets = match way(listener) {
                SessionWay::Decrypt => {
                    decrypting.at(id, known, listener, (&mut *room, &mut *policies))
                }
                _ => Some(&as_they_come),
            };
            let Some(targets) = targets else { continue };
            if room.has_rules(&id.key, id.kind, known.count().max(1)) {
                let candidate = Candidate {
                    rank: specificity(name),
                    home: home_of(listener),
                    age: (route.meta.created, id.key.clone(), id.kind),
                    targets: targets.clone(),
                };
                let asked = Asked { at, way: way(listener), routes: Vec::new() };
                self.0.entry(place).or_insert(asked).routes.push(candidate);
            }
        }
        known.decrypted = decrypting.finish();
    }

    /// Decides who has which sessions, and closes what nobody has.
    pub fn finish(
        self,
        options: &Options,
        beside: &Beside<'_>,
        (gateways, listeners): (&Gateways<'_>, &Listeners),
        refused: &mut RefusedHosts,
        built: &mut Built,
    ) {
        let (mut wide, mut holders) = (kept::WidePlaces::default(), BTreeMap::new());
        for (place, asked) in self.0 {
            let of_host = |host: &HostPattern| (host.clone(), host_owner(options, beside, host));
            built.session_hosts.extend(place.host.as_ref().map(of_host));
            let owner = owner_of(options, beside, &place, &asked);
            let is_owners = |candidate: &Candidate| {
                owner.as_ref().is_none_or(|owner| *owner == candidate.age.1.namespace)
            };
            let (own, others): (Vec<_>, Vec<_>) = asked.routes.into_iter().partition(is_owners);
            for candidate in &others {
                let why = format!(
                    "host {} belongs to namespace {}, and nobody else has its sessions: use a host of your own",
                    asked.at.host,
                    owner.as_deref().unwrap_or_default()
                );
                let hosts = refused.entry(candidate.object()).or_default();
                hosts.insert(asked.at.clone(), why);
            }
            let Some(winner) = own.iter().min_by_key(|candidate| candidate.order()) else {
                continue;
            };
            for candidate in &own {
                if candidate.rank == winner.rank && candidate.age != winner.age {
                    let message = format!(
                        "{} has the sessions of {place} already, and routes are not merged: use another port or host",
                        winner.object()
                    );
                    built.notes.push((candidate.object(), Note::warning(message)));
                }
            }
            let route = SessionRoute {
                way: asked.way,
                yields: yields(options, &asked.at),
                targets: winner.targets.to_vec(),
                namespace: winner.age.1.namespace.to_string(),
                route: winner.age.1.name.to_string(),
            };
            if !route.targets.is_empty() {
                wide.note(&asked.at, &place, &winner.age);
            }
            holders.insert(place.clone(), winner.age.clone());
            built.sessions.insert(place, route);
        }
        close(options, gateways, built);
        built.wide_sessions = wide.holders();
        built.passed.clone_from(beside.passed);
        wide.keep(options, beside, listeners, built);
        kept::keep_from_ingresses(options, beside, built);
        built.session_holders = SessionHolders::of(&built.sessions, holders);
    }
}

/// Whose a host is, where that counts.
fn host_owner(options: &Options, beside: &Beside<'_>, host: &HostPattern) -> Option<HostOwner> {
    let counts = options.host_ownership != HostOwnership::Shared;
    counts.then(|| (beside.owner)(host)).flatten()
}

/// The namespace that alone may have the sessions of a place.
fn owner_of(
    options: &Options,
    beside: &Beside<'_>,
    place: &SessionPlace,
    asked: &Asked,
) -> Option<oxigress_objects::Name> {
    let host = place.host.as_ref()?;
    if *host == HostPattern::default_host() && !yields(options, &asked.at) {
        return None;
    }
    let own = specificity(host);
    let ages = |named: bool| {
        let all = asked.routes.iter().filter(move |route| !named || route.rank == own);
        all.map(|route| &route.age).min()
    };
    let eldest = ages(true).or_else(|| ages(false));
    let parents = &ParentsOfHost::new();
    merge::owner_of_sessions(options, beside, &Place { at: &asked.at, parents, eldest })
}

/// Ingresses have hosts on the same port and address.
fn yields(options: &Options, at: &ListenerHost) -> bool {
    at.address.is_none() && is_of_https(options, at.port)
}

fn way(listener: &ListenerState<'_>) -> SessionWay {
    match listener.protocol {
        Some(Protocol::Terminate) => SessionWay::Decrypt,
        Some(Protocol::Http | Protocol::Https) => SessionWay::Http,
        _ => SessionWay::Forward,
    }
}

/// Of a listener without host names.
fn home_of(listener: &ListenerState<'_>) -> Option<HomeOrder> {
    let has_hosts = listener.protocol.is_some_and(Protocol::has_hosts);
    let home = listener.home;
    (!has_hosts).then(|| (home.kind, home.created, home.key.clone()))
}

/// A host of a listener on each address of its Gateway.
fn places(
    state: &GatewayState<'_>,
    listener: &ListenerState<'_>,
    host: &HostPattern,
) -> Vec<ListenerHost> {
    let Some(port) = listener.port else { return Vec::new() };
    let addresses = state.addresses().into_iter();
    addresses.map(|address| ListenerHost::deep(port, address, host.clone())).collect()
}

/// The shares of a route; without one that can be used sessions are closed.
fn targets(known: &KnownRoute) -> Arc<[SessionTarget]> {
    let all = known.compiled.rules.iter().flat_map(|rule| &rule.answer.targets);
    let all = all.map(|target| SessionTarget {
        weight: target.weight,
        backend: target.backend_ref.as_ref().map(|backend_ref| backend_ref.backend.clone()),
        policies: None,
    });
    all.filter(|target| target.weight > 0).collect()
}

/// The targets of a route where its sessions are decrypted, by what their Gateway shows to endpoints.
struct Decrypting {
    known: KnownDecrypted,
    now: Vec<DecryptedAt>,
}

/// What a Gateway shows to endpoints, and the targets there; `None`: there is no room for them.
type DecryptedAt = (Option<Arc<Pair>>, Option<Arc<Decrypted>>);

impl Decrypting {
    /// Those at a listener; `None`: there is no room for them.
    fn at(
        &mut self,
        id: &ObjectRef,
        known: &KnownRoute,
        listener: &ListenerState<'_>,
        (room, policies): (&mut Room, &mut PolicySets),
    ) -> Option<&Arc<[SessionTarget]>> {
        let shown = known.shown_at(listener);
        let place = self.now.iter().position(|(by, _)| *by == shown);
        let place = place.unwrap_or_else(|| {
            let has_room = room.has_filters(&id.key, id.kind, known.bytes_at(listener));
            let found = has_room.then(|| {
                let before = self.known.iter().find(|(by, _)| *by == shown);
                let new = || Arc::new(served::decrypted(&known.compiled, listener));
                before.map_or_else(new, |(_, found)| found.clone())
            });
            policies.extend(found.iter().flat_map(|found| found.policies.clone()));
            self.now.push((shown, found));
            self.now.len() - 1
        });
        self.now.get(place)?.1.as_ref().map(|found| &found.targets)
    }

    /// What is to be known of the next build.
    fn finish(self) -> KnownDecrypted {
        let known = self.now.into_iter().filter_map(|(by, found)| Some((by, found?)));
        known.collect()
    }
}

/// Closes the sessions of listeners that no route has, and leaves those of HTTPS listeners beside them to these. Where
/// Ingresses are served, what no listener names is theirs.
fn close(options: &Options, gateways: &Gateways<'_>, built: &mut Built) {
    let mut ports: BTreeMap<_, bool> = BTreeMap::new();
    let mut named = Vec::new();
    for state in gateways.values() {
        for listener in state.listeners.iter().filter(|listener| listener.stands()) {
            let is_sessions = listener.protocol.is_some_and(Protocol::is_tls_sessions);
            if !is_sessions && !listener.is_https() {
                continue;
            }
            for at in places(state, listener, &listener.host) {
                let place = listener.session_place(options, at.address, &listener.host);
                named.extend(place.map(|place| (place, at.clone(), way(listener))));
                *ports.entry((at.port, at.address)).or_default() |= is_sessions;
            }
        }
    }
    let has_sessions = |at: &ListenerHost| ports.get(&(at.port, at.address)) == Some(&true);
    let default = HostPattern::default_host();
    let rest = named.clone().into_iter().map(|(place, at, _)| {
        let host = place.host.as_ref().map(|_| default.clone());
        (SessionPlace { host, ..place }, at, SessionWay::Forward)
    });
    for (place, at, way) in named.into_iter().chain(rest).filter(|(_, at, _)| has_sessions(at)) {
        if way == SessionWay::Http || !yields(options, &at) {
            let way = if way == SessionWay::Http { way } else { SessionWay::Forward };
            let route =
                SessionRoute { way, yields: yields(options, &at), ..SessionRoute::default() };
            built.sessions.entry(place).or_insert(route);
        }
    }
}
