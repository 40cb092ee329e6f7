//! ListenerSets: listeners that others than the owner of a Gateway bring to it.
//!
//! Order:   those of a Gateway come first, then those of its ListenerSets by age and name. Of two that cannot both be had the one that
//!          comes first stands, also between Gateways.
//! Tenancy: a set that its Gateway does not allow adds nothing. What it brings is its own namespace's: Secrets, routes, grants, limits.
//!          One of another namespace than its Gateway's takes no host from an older route of others that names it, and makes nobody the
//!          owner of a host.
//! Source:  ListenerSet of Gateway API v1.7.

use super::address::{Place, Refusal};
use super::attach::{self, admits};
use super::host::covers;
use super::listener::{self, Counts, listener_status};
use super::ports::Older;
use super::room::Room;
use super::state::{GatewayState, Gateways, Home, ListenerState, SetState};
use super::status::{self, accepted, programmed};
use super::target::is_watched;
use super::Built;
use crate::host::owner::HostOwnership;
use crate::{Options, age};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{GatewayObjects, ListenerSet, Route};
use oxigress_objects::gateway_status::{Condition, Content};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All of them, the oldest first.
pub fn by_age(objects: &GatewayObjects) -> Vec<(Home<'_>, &ListenerSet)> {
    let all = objects.sets.iter().map(|(key, set)| (Home::of_set(key, set), &**set));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(home, _)| *home);
    all
}

/// Listeners of sets, as they were read, with the Gateway of each set.
type Read<'w> = Vec<(Key, ListenerState<'w>)>;

/// A listener of a set: the set, and the name of the listener.
type Named<'w> = (&'w Key, &'w str);

/// Adds the ListenerSets to the Gateways that they name.
pub fn add<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    (counts, older): (&mut Counts<'w>, Older<'w>),
    built: &mut Built,
) {
    let mut read = Read::new();
    let mut selected: BTreeMap<Key, BTreeMap<_, _>> = BTreeMap::new();
    for (home, set) in by_age(&world.gateway_api) {
        let Some(gateway) = set.spec.gateway(&home.key.namespace) else { continue };
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        if !is_watched(world, options, &home.key.namespace) {
            continue;
        }
        let namespaces = &state.gateway.spec.allowed_listeners.namespaces;
        let from = namespaces.from.as_deref().unwrap_or("None");
        let asked = selected.entry(gateway.clone()).or_default();
        let by = (from, namespaces, &gateway.namespace);
        let is_allowed = admits(world, by, &home.key.namespace, asked);
        state.sets.push(SetState { key: home.key, set, is_allowed });
        for spec in &set.spec.listeners {
            let mut listener = listener::read(world, options, home, spec, counts, built);
            if matches!(state.place, Place::Nowhere(_)) {
                listener.port = None;
            }
            if is_allowed {
                read.push((gateway.clone(), listener));
            }
        }
    }
    if read.is_empty() {
        return;
    }
    put(options, gateways, older.clone(), read.clone(), &BTreeMap::new());
    let taken = taken_hosts(world, options, gateways);
    if !taken.is_empty() {
        for state in gateways.values_mut() {
            state.listeners.retain(|listener| listener.home.kind == Kind::Gateway);
        }
        put(options, gateways, older, read, &taken);
    }
}

/// Puts listeners to their Gateways, each unless one that comes first is in its way.
fn put<'w>(
    options: &Options,
    gateways: &mut Gateways<'w>,
    mut older: Older<'w>,
    read: Read<'w>,
    taken: &BTreeMap<Named<'w>, Condition>,
) {
    for (gateway, mut listener) in read {
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        listener.conflict = taken.get(&name_of(&listener)).cloned();
        if listener.conflict.is_none() {
            listener.conflict = conflict(options, state, &listener);
        }
        older.find_conflict(options, &state.addresses(), &mut listener);
        state.listeners.push(listener);
    }
}

fn name_of<'w>(listener: &ListenerState<'w>) -> Named<'w> {
    (listener.home.key, &listener.spec.name)
}

/// What else of its Gateway is in the way of a listener.
fn conflict(
    options: &Options,
    state: &GatewayState<'_>,
    listener: &ListenerState<'_>,
) -> Option<Condition> {
    let protocol = listener.protocol?;
    let number = listener.number(options)?;
    let others = state.accepted().filter(|other| other.number(options) == Some(number));
    let transport = |of: &ListenerState<'_>| {
        Some(of.protocol?.transport(options, of.port.or(listener.port).unwrap_or(number.1)))
    };
    let others: Vec<_> = others.collect();
    let own = transport(listener);
    let reason = match () {
        () if others.iter().any(|other| transport(other) != own) => "ProtocolConflict",
        () if others.iter().any(|other| other.host == listener.host) => "HostnameConflict",
        () => return None,
    };
    let what = match (reason, protocol.has_hosts()) {
        ("ProtocolConflict", _) => "for another protocol".to_owned(),
        (_, true) => format!("and host {}", listener.host),
        (_, false) => "too".to_owned(),
    };
    let message = format!(
        "a listener of the Gateway or of an older ListenerSet has port {} {what}: use another one",
        listener.spec.port
    );
    Some(Condition { name: "Conflicted", holds: true, reason, message })
}

/// The listeners of sets that would take a host from an older route of others, with what there is to say. Sets of a Gateway's own
/// namespace do as their Gateway, and so does a listener to which that route is attached.
fn taken_hosts<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
) -> BTreeMap<Named<'w>, Condition> {
    let mut taken = BTreeMap::new();
    if options.host_ownership == HostOwnership::Shared {
        return taken;
    }
    let mut guests = Vec::new();
    for (gateway, state) in gateways.iter() {
        let is_guest = |listener: &&ListenerState<'w>| {
            let home = listener.home;
            home.kind == Kind::ListenerSet && home.key.namespace != gateway.namespace
        };
        // A listener for all hosts is the least specific one, which takes none from others.
        let hosts = state.accepted().filter(is_guest).filter(|guest| {
            guest.host != HostPattern::default_host() && guest.number(options).is_some()
        });
        guests.extend(hosts.map(|guest| (name_of(guest), guest.home, guest.host.clone())));
    }
    if guests.is_empty() {
        return taken;
    }
    let claims = claims(world, options, gateways, |name| {
        guests.iter().any(|(_, _, host)| meets(host, name))
    });
    for (name, home, host) in guests {
        let is_lost = |claim: &&Claim<'_>| {
            let age = age::Age { created: claim.route.meta.created, key: claim.id.key.clone() };
            meets(&host, &claim.host)
                && claim.id.key.namespace != home.key.namespace
                && age < home.age()
                && !claim.by.contains(&name)
        };
        if let Some(claim) = claims.iter().find(is_lost) {
            let message = format!(
                "an older {} of another namespace names host {}, which the listener would take from it: write another hostname",
                claim.id.kind, claim.host
            );
            let reason = "HostnameConflict";
            taken.insert(name, Condition { name: "Conflicted", holds: true, reason, message });
        }
    }
    taken
}

/// Whether requests of a route that names a host come to a listener for another one: a more specific name has its own, and of two
/// wildcards the older object.
fn meets(listener: &HostPattern, route: &HostPattern) -> bool {
    covers(listener, route)
        || (listener.is_wildcard() && route.is_wildcard() && covers(route, listener))
}

/// A host that a route names by attaching to listeners.
struct Claim<'w> {
    id: &'w ObjectRef,
    route: &'w Arc<Route>,
    host: HostPattern,
    /// The listeners of sets to which the route is attached.
    by: BTreeSet<Named<'w>>,
}

/// The hosts that routes name, as far as they are asked for. Attaches these routes and leaves no trace of it.
fn claims<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    is_asked: impl Fn(&HostPattern) -> bool,
) -> Vec<Claim<'w>> {
    let mut all = Vec::new();
    let room = &mut Room::default();
    for (id, route) in &world.gateway_api.routes {
        let hosts = route.spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
        let hosts: BTreeSet<_> = hosts.filter(|host| is_asked(host)).collect();
        if hosts.is_empty() {
            continue;
        }
        let attached = attach::attach(world, options, id, route, gateways, room);
        let mut met = BTreeSet::new();
        let mut by = BTreeSet::new();
        for attachment in &attached {
            let Some(state) = gateways.get(&attachment.gateway) else { continue };
            for (place, names) in &attachment.listeners {
                met.extend(names.iter().filter(|(host, own)| host == own).map(|(host, _)| host));
                let listener = state.listeners.get(*place);
                by.extend(listener.map(name_of));
            }
        }
        let met = hosts.into_iter().filter(|host| met.contains(host));
        all.extend(met.map(|host| Claim { id, route, host, by: by.clone() }));
    }
    let listeners = gateways.values_mut().flat_map(|state| &mut state.listeners);
    listeners.for_each(|listener| listener.attached.clear());
    all
}

/// Says what became of the ListenerSets of a Gateway; answers how many are attached.
pub fn finish(state: &GatewayState<'_>, built: &mut Built) -> usize {
    let mut count = 0;
    for SetState { key, set, is_allowed } in &state.sets {
        let all: Vec<_> = state.listeners_of(Kind::ListenerSet, key).collect();
        let standing = all.iter().filter(|listener| listener.is_serving()).count();
        let no = |reason, message: &str| {
            let of = |name| Condition::no(name, reason, message);
            vec![of("Accepted"), of("Programmed")]
        };
        let conditions = match &state.place {
            _ if !is_allowed => no("NotAllowed", "allowedListeners of the Gateway leave it out"),
            Place::Nowhere(Refusal::Unsupported(_)) => {
                no("ParentNotAccepted", "the Gateway is not accepted")
            }
            Place::Nowhere(Refusal::Unusable(_)) => vec![
                accepted(),
                Condition::no("Programmed", "ParentNotProgrammed", "the Gateway is served nowhere"),
            ],
            Place::Shared | Place::Own(_) if standing == 0 => {
                no("ListenersNotValid", "no listener is valid")
            }
            Place::Shared | Place::Own(_) if standing < all.len() => {
                let message = "not every listener is valid".into();
                vec![Condition { message, reason: "ListenersNotValid", ..accepted() }, programmed()]
            }
            Place::Shared | Place::Own(_) => vec![accepted(), programmed()],
        };
        count += usize::from(conditions.iter().any(|one| one.name == "Accepted" && one.holds));
        let listeners = all.into_iter().map(listener_status).collect();
        let content = Content::ListenerSet { conditions, listeners };
        status::put(Kind::ListenerSet, key, set.meta.generation, content, built);
    }
    count
}
