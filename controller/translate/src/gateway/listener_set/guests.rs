//! Hosts that listeners of guests leave to routes of others that name them. A guest is a set of another namespace than its Gateway's.
//!
//! Order:   who has a host is decided by the routes that name it, and not by the age of sets, which may name a host any time.
//! Shape:   a listener whose own host is another's is refused. One for a wildcard stands, and leaves single hosts below it: nobody
//!          closes all of it by naming one of them.
//! Cost:    listeners of one namespace with one host are one here, however many there are.

use super::Read;
use crate::Options;
use crate::age::Age;
use crate::gateway::attach::{self, Attachment};
use crate::gateway::room::Room;
use crate::gateway::state::{Gateways, ListenerState};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How often a route was compared with what others say about a host.
    pub(super) static CLAIMS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The listeners of guests of one namespace with one host.
type Group<'w> = (&'w Name, HostPattern);

/// Most hosts that a message names.
const TOLD: usize = 10;

/// The hosts that listeners leave to others, by the namespace and the host of the listeners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Left(BTreeMap<(Name, HostPattern), Arc<BTreeSet<HostPattern>>>);

impl Left {
    fn of(
        &self,
        gateway: &Key,
        listener: &ListenerState<'_>,
    ) -> Option<&Arc<BTreeSet<HostPattern>>> {
        let is_guest = is_guest(gateway, listener);
        let (namespace, host) = group_of(listener);
        is_guest.then(|| self.0.get(&(namespace.clone(), host))).flatten()
    }

    /// Has a listener of a Gateway leave what it may not have.
    pub fn apply(&self, gateway: &Key, listener: &mut ListenerState<'_>) {
        let Some(hosts) = self.of(gateway, listener) else { return };
        if !hosts.contains(&listener.host) {
            listener.leaves = hosts.clone();
            return;
        }
        let message = format!(
            "a route of another namespace names host {}, which the listener would take from it: write another hostname, or name \
             the host in an older route of the set's namespace",
            listener.host
        );
        let reason = "HostnameConflict";
        listener.conflict = Some(Condition { name: "Conflicted", holds: true, reason, message });
    }

    /// What there is to say to sets whose listeners stand and leave hosts.
    pub fn notes(&self, read: &Read<'_>) -> Vec<(ObjectRef, Note)> {
        let all = read.iter().filter_map(|(gateway, listener)| {
            let hosts = self.of(gateway, listener)?;
            (!hosts.contains(&listener.host)).then(|| {
                let names: Vec<_> = hosts.iter().take(TOLD).map(HostPattern::as_str).collect();
                let more = if hosts.len() > TOLD { " and others" } else { "" };
                let message = format!(
                    "listener {} leaves {}{more} to routes of other namespaces that name these hosts: name a host in an older \
                     route of the set's namespace, and the listener has it",
                    listener.spec.name,
                    names.join(", ")
                );
                (listener.home.object(), Note::warning(message))
            })
        });
        all.collect()
    }
}

fn is_guest(gateway: &Key, listener: &ListenerState<'_>) -> bool {
    listener.home.kind == Kind::ListenerSet && listener.home.key.namespace != gateway.namespace
}

fn group_of<'w>(listener: &ListenerState<'w>) -> Group<'w> {
    (&listener.home.key.namespace, listener.host.clone())
}

/// The listeners of guests, by their hosts. One for all hosts is the least specific, which takes none from others.
#[derive(Default)]
struct Guests<'w> {
    groups: BTreeSet<Group<'w>>,
    exact: BTreeMap<HostPattern, BTreeSet<&'w Name>>,
    /// The wildcards, by what follows the star.
    below: BTreeMap<Box<str>, (HostPattern, BTreeSet<&'w Name>)>,
}

impl<'w> Guests<'w> {
    fn of(read: &Read<'w>) -> Self {
        let mut guests = Guests::default();
        for (_, listener) in read.iter().filter(|(gateway, listener)| is_guest(gateway, listener)) {
            let (namespace, host) = group_of(listener);
            if host == HostPattern::default_host() {
                continue;
            }
            match host.as_str().strip_prefix('*') {
                Some(below) => {
                    let all = guests.below.entry(below.into());
                    all.or_insert_with(|| (host.clone(), BTreeSet::new())).1.insert(namespace);
                }
                None => drop(guests.exact.entry(host.clone()).or_default().insert(namespace)),
            }
            guests.groups.insert((namespace, host));
        }
        guests
    }

    /// Those to which requests for a host would come.
    fn over<'a>(&'a self, host: &'a HostPattern) -> impl Iterator<Item = Group<'w>> + 'a {
        let name = host.as_str().trim_start_matches('*');
        let parents = name.match_indices('.').filter_map(move |(dot, _)| name.get(dot..));
        let below = parents.filter_map(|parent| self.below.get(parent));
        let below = below.map(|(wildcard, all)| (wildcard, all));
        let exact = self.exact.get(host).map(|all| (host, all));
        let all = exact.into_iter().chain(below);
        all.flat_map(|(host, all)| all.iter().map(move |namespace| (*namespace, host.clone())))
    }
}

/// The oldest routes that name a host which listeners would have.
#[derive(Default)]
struct Claims {
    /// Of the listeners' own namespace, by one of them.
    own: Option<Age>,
    /// Of others, by other listeners.
    foreign: Option<Age>,
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
    let mut claims: BTreeMap<(Group<'w>, HostPattern), Claims> = BTreeMap::new();
    if guests.groups.is_empty() {
        return Left::default();
    }
    for (gateway, listener) in read {
        if let Some(state) = gateways.get_mut(gateway) {
            state.listeners.push(listener.clone());
        }
    }
    let room = &mut Room::default();
    for (id, route) in &world.gateway_api.routes {
        let hosts = route.spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
        if !hosts.into_iter().any(|host| guests.over(&host).next().is_some()) {
            continue;
        }
        let attached = attach::attach(world, options, id, route, gateways, room);
        let (hosts, by) = named(&attached, gateways);
        for host in &hosts {
            for group in guests.over(host) {
                #[cfg(test)]
                CLAIMS.set(CLAIMS.get() + 1);
                let is_own = id.key.namespace == *group.0;
                if is_own != by.contains(&group) {
                    continue;
                }
                let claims = claims.entry((group, host.clone())).or_default();
                let oldest = if is_own { &mut claims.own } else { &mut claims.foreign };
                let age = Age { created: route.meta.created, key: id.key.clone() };
                *oldest = oldest.take().into_iter().chain([age]).min();
            }
        }
    }
    for state in gateways.values_mut() {
        state.listeners.retain(|listener| listener.home.kind == Kind::Gateway);
        state.listeners.iter_mut().for_each(|listener| listener.attached.clear());
    }
    let mut left: BTreeMap<(Name, HostPattern), BTreeSet<HostPattern>> = BTreeMap::new();
    for (((namespace, of), host), Claims { own, foreign }) in claims {
        let is_lost = foreign.is_some_and(|age| own.is_none_or(|own| age <= own));
        if is_lost {
            left.entry((namespace.clone(), of)).or_default().insert(host);
        }
    }
    Left(left.into_iter().map(|(group, hosts)| (group, Arc::new(hosts))).collect())
}

/// The hosts that a route names where it is attached, and the listeners to which it is.
fn named<'w>(
    attached: &[Attachment<'_>],
    gateways: &Gateways<'w>,
) -> (BTreeSet<HostPattern>, BTreeSet<Group<'w>>) {
    let (mut hosts, mut by) = (BTreeSet::new(), BTreeSet::new());
    for attachment in attached {
        let Some(state) = gateways.get(&attachment.gateway) else { continue };
        for (place, names) in &attachment.listeners {
            let named = names.iter().filter(|(host, own)| host == own);
            hosts.extend(named.map(|(host, _)| host.clone()));
            let listener = state.listeners.get(*place);
            by.extend(listener.filter(|one| is_guest(&attachment.gateway, one)).map(group_of));
        }
    }
    (hosts, by)
}
