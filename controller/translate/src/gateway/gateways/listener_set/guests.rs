//! Hosts that listeners of guests leave to routes of others that name them. A guest is a set of another namespace than its Gateway's.
//!
//! Order:   who has a host is decided by the routes that name it, and not by the age of sets, which may name a host any time.
//! Shape:   a listener whose own host is another's is refused. One for a wildcard stands, and leaves single hosts below it: nobody
//!          closes all of it by naming one of them.
//! Cost:    that of the hosts that routes name, and of their places at listeners of guests: see [`Left`].

use super::Read;
use crate::Options;
use crate::claim::age::Age;
use crate::gateway::listeners::host::levels;
use crate::gateway::listeners::left::{Group, Leaves, Left};
use crate::gateway::listeners::state::{Gateways, ListenerState};
use crate::gateway::routes::attach::{self, Attachment};
use crate::gateway::routes::room::Room;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::Route;
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How often a route was noted for a host, itself and for listeners of guests by which it has the host.
    pub(super) static CLAIMS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Most hosts that a message names.
const TOLD: usize = 10;

/// Has a listener of a Gateway leave what it may not have.
pub fn apply(left: &Arc<Left>, gateway: &Key, listener: &mut ListenerState<'_>) {
    if left.is_empty() || !is_guest(gateway, listener) {
        return;
    }
    let group = group_of(listener);
    if !left.leave(&group, &listener.host) {
        listener.leaves = Some(Leaves::of(left, group));
        return;
    }
    let message = format!(
        "a route of another namespace names host {}, which the listener would take from it: write another hostname, or name \
         the host in an older route of the set's namespace",
        listener.host
    );
    let reason = "HostnameConflict";
    listener.conflict = Some(Condition { message, ..Condition::yes("Conflicted", reason) });
}

/// What there is to say to sets whose listeners stand and leave hosts.
pub fn notes(left: &Left, read: &Read<'_>) -> Vec<(ObjectRef, Note)> {
    let mut guests = Guests::of(read);
    let mut told: BTreeMap<Group, Vec<&HostPattern>> = BTreeMap::new();
    for (host, named) in left.hosts() {
        for parent in levels(host) {
            let Some((wildcard, namespaces)) = guests.below.get_mut(parent) else { continue };
            // Whoever has been found all that is said is looked for no more.
            namespaces.retain(|namespace| {
                if !named.is_left_by(namespace, wildcard) {
                    return true;
                }
                let hosts = told.entry((Name::clone(namespace), wildcard.clone())).or_default();
                hosts.push(host);
                hosts.len() <= TOLD
            });
            if namespaces.is_empty() {
                guests.below.remove(parent);
            }
        }
    }
    let all = read.iter().filter(|(gateway, listener)| is_guest(gateway, listener));
    let all = all.filter_map(|(_, listener)| {
        let group = group_of(listener);
        let hosts = told.get(&group).filter(|_| !left.leave(&group, &listener.host))?;
        let names: Vec<_> = hosts.iter().take(TOLD).map(|host| host.as_str()).collect();
        let more = if hosts.len() > TOLD { " and others" } else { "" };
        let message = format!(
            "listener {} leaves {}{more} to routes of other namespaces that name these hosts: name a host in an older \
             route of the set's namespace, and the listener has it",
            listener.spec.name,
            names.join(", ")
        );
        Some((listener.home.object(), Note::warning(message)))
    });
    all.collect()
}

fn is_guest(gateway: &Key, listener: &ListenerState<'_>) -> bool {
    listener.home.kind == Kind::ListenerSet
        && listener.home.key.namespace != gateway.namespace
        // The least specific one takes none from others.
        && listener.host != HostPattern::default_host()
}

fn group_of(listener: &ListenerState<'_>) -> Group {
    (listener.home.key.namespace.clone(), listener.host.clone())
}

/// The hosts of listeners of guests.
#[derive(Default)]
struct Guests<'w> {
    exact: BTreeSet<HostPattern>,
    /// The wildcards with the namespaces that have them, by what follows the star.
    below: BTreeMap<Box<str>, (HostPattern, BTreeSet<&'w Name>)>,
}

impl<'w> Guests<'w> {
    fn of(read: &Read<'w>) -> Self {
        let mut guests = Guests::default();
        let all = read.iter().filter(|(gateway, listener)| is_guest(gateway, listener));
        all.for_each(|(_, listener)| guests.add(listener));
        guests
    }

    fn add(&mut self, listener: &ListenerState<'w>) {
        let host = &listener.host;
        match host.as_str().strip_prefix('*') {
            Some(below) => {
                let all = self.below.entry(below.into());
                let (_, all) = all.or_insert_with(|| (host.clone(), BTreeSet::new()));
                all.insert(&listener.home.key.namespace);
            }
            None => drop(self.exact.insert(host.clone())),
        }
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty()
    }

    /// Whether requests for a host would come to one of them.
    fn have(&self, host: &HostPattern) -> bool {
        self.exact.contains(host) || levels(host).any(|parent| self.below.contains_key(parent))
    }
}

/// Whether requests for a host that one of these routes names would come to a listener of a guest: what guests leave depends on it.
pub fn have<'r>(gateways: &Gateways<'_>, routes: impl Iterator<Item = &'r Route>) -> bool {
    let mut guests = Guests::default();
    for (gateway, state) in gateways {
        let all = state.listeners.iter().filter(|listener| is_guest(gateway, listener));
        all.for_each(|listener| guests.add(listener));
    }
    let mut names = routes.flat_map(|route| &route.spec.hostnames);
    !guests.is_empty()
        && names.any(|name| HostPattern::parse(name).is_ok_and(|host| guests.have(&host)))
}

/// What the listeners of guests leave to routes of others. A route is attached as if no listener of a set was in the way of another
/// one.
pub fn left<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    read: &Read<'w>,
) -> Left {
    let guests = Guests::of(read);
    if guests.is_empty() {
        return Left::default();
    }
    for (gateway, listener) in read {
        if let Some(state) = gateways.get_mut(gateway) {
            state.listeners.push(listener.clone());
        }
    }
    let room = &mut Room::default();
    let mut claims = Vec::new();
    for (id, route) in &world.gateway_api.routes {
        let hosts = route.spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
        if !hosts.into_iter().any(|host| guests.have(&host)) {
            continue;
        }
        let attached = attach::attach(world, options, id, route, gateways, room);
        let who = (Age { created: route.meta.created, key: id.key.clone() }, id.kind);
        for (host, by) in named(&attached, gateways, &guests) {
            #[cfg(test)]
            CLAIMS.set(CLAIMS.get() + 1 + by.len());
            claims.push((host.clone(), who.clone(), by));
        }
    }
    for state in gateways.values_mut() {
        state.listeners.retain(|listener| listener.home.kind == Kind::Gateway);
        state.listeners.iter_mut().for_each(|listener| listener.attached = 0);
    }
    Left::of(claims)
}

/// The hosts of guests that a route names where it is attached, each with the listeners of guests by which it has the host.
fn named<'a>(
    attached: &'a [Attachment],
    gateways: &Gateways<'_>,
    guests: &Guests<'_>,
) -> BTreeMap<&'a HostPattern, BTreeSet<Group>> {
    let mut all: BTreeMap<&HostPattern, BTreeSet<Group>> = BTreeMap::new();
    for attachment in attached {
        let Some(state) = gateways.get(&attachment.gateway) else { continue };
        for (place, hosts) in &attachment.listeners {
            let listener = state.listeners.get(*place);
            let by = listener.filter(|one| is_guest(&attachment.gateway, one)).map(group_of);
            for (host, _) in hosts.iter().filter(|(host, own)| host == own) {
                if by.is_some() || all.contains_key(host) || guests.have(host) {
                    all.entry(host).or_default().extend(by.clone());
                }
            }
        }
    }
    all
}
