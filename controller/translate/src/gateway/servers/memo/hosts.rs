//! Hosts, as they were last put together.

use super::{Share, SharedSpot};
use crate::gateway::routes::room::{Meeting, Room};
use crate::gateway::servers::rank::{Age, ByAge, Rank, Ranked};
use crate::gateway::servers::served::Served;
use crate::gateway::{Beside, HostOwner, PlaceOwner};
use oxigress_core::model::policy::{PolicyId, TlsPolicy};
use oxigress_core::model::{BackendId, ListenerHost, Rule};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What comes of putting a host together, beside its rules.
#[derive(Default)]
pub struct Outcome {
    /// What there is to say about objects.
    pub notes: Vec<(ObjectRef, Note)>,
    /// The policies that rules of its routes name, each with one that says so.
    pub named: BTreeMap<PolicyId, ObjectRef>,
    /// Where its rules lead.
    pub used_backends: BTreeSet<BackendId>,
    /// Whose it is.
    pub owner: Option<PlaceOwner>,
}

/// The routes that are not served on a host, each with the reason.
pub type Refused = BTreeMap<ObjectRef, String>;

/// A host, as it was last put together.
#[derive(Default)]
pub struct KnownHost {
    /// Its routes, also those that are not served there.
    routes: Ranked,
    parents: BTreeSet<(Name, Name)>,
    listener: Option<(HttpsListener, Name)>,
    owner: Option<HostOwner>,
    /// What the namespaces of its routes took of their limits, where routes of several names meet.
    meeting: Meeting,
    refused: Refused,
    /// Its routes have changed, or what else it depends on.
    is_stale: bool,
}

impl KnownHost {
    /// Its routes that are not served there, each with the reason.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }
}

/// All hosts.
#[derive(Default)]
pub struct Hosts(BTreeMap<ListenerHost, KnownHost>);

impl Hosts {
    /// A host, if nothing has changed that its rules depend on. Takes the same of the room again.
    pub fn take(
        &mut self,
        now: &HostInput<'_>,
        beside: &Beside<'_>,
        room: &mut Room,
    ) -> Option<KnownHost> {
        let known = self.0.remove(now.at)?;
        let is_known = !known.is_stale
            && is_same(&known.routes, &now.routes)
            && !beside.touched.contains(&now.at.host)
            && known.parents == now.parents
            && known.listener == now.listener
            && known.owner == (beside.owner)(&now.at.host)
            && room.meets_again(&known.meeting);
        is_known.then_some(known)
    }

    /// Remembers a host.
    pub fn put(&mut self, at: ListenerHost, known: KnownHost) {
        self.0.insert(at, known);
    }

    /// Whether a host is known.
    pub fn has(&self, at: &ListenerHost) -> bool {
        self.0.contains_key(at)
    }

    /// Has a host put together again.
    pub fn make_stale(&mut self, at: &ListenerHost) {
        self.0.entry(at.clone()).or_default().is_stale = true;
    }

    /// Adds routes to a host, which has to be put together then.
    pub fn add(&mut self, at: &ListenerHost, routes: Ranked) {
        let known = self.0.entry(at.clone()).or_default();
        for (rank, routes) in routes {
            known.routes.entry(rank).or_default().extend(routes);
        }
    }

    /// Takes a route from a host, which has to be put together then.
    pub fn remove_route(&mut self, spot: &SharedSpot, age: &Age) {
        let Some(known) = self.0.get_mut(&spot.at) else { return };
        let Some(routes) = known.routes.get_mut(&spot.rank) else { return };
        routes.remove(age);
        if routes.is_empty() {
            known.routes.remove(&spot.rank);
        }
    }

    /// The namespaces of the routes that met on a host.
    pub fn namespaces_met(&self, at: &ListenerHost) -> impl Iterator<Item = &Name> {
        self.0.get(at).into_iter().flat_map(|known| known.meeting.namespaces())
    }

    /// Gives back what namespaces took where routes met on a host.
    pub fn give_back(&mut self, at: &ListenerHost, room: &mut Room) {
        if let Some(known) = self.0.get_mut(at) {
            room.forget_meeting(&std::mem::take(&mut known.meeting));
        }
    }

    /// Takes a host's routes, to put it together again; answers also those that were not served there.
    pub fn take_routes(&mut self, at: &ListenerHost) -> (Ranked, BTreeSet<ObjectRef>) {
        let known = self.0.remove(at).unwrap_or_default();
        (known.routes, known.refused.into_keys().collect())
    }

    /// The hosts among those of a route where it is not served, each with the reason.
    pub fn refused(&self, id: &ObjectRef, share: &Share) -> BTreeMap<ListenerHost, String> {
        let all = share.spots.iter().filter_map(|spot| {
            let why = self.0.get(&spot.at)?.refused.get(id)?;
            Some((spot.at.clone(), why.clone()))
        });
        all.collect()
    }

    /// Has all put together again.
    pub fn make_all_stale(&mut self) {
        self.0.values_mut().for_each(|known| known.is_stale = true);
    }

    /// The hosts that are left: all others were taken.
    pub fn into_left(self) -> impl Iterator<Item = ListenerHost> {
        self.0.into_keys()
    }
}

/// What the rules of a host depend on, beside its Ingresses.
pub struct HostInput<'i> {
    /// The host.
    pub at: &'i ListenerHost,
    /// Its routes.
    pub routes: Ranked,
    /// The namespaces of its routes on any port, each with that of a Gateway that they have attached to.
    pub parents: BTreeSet<(Name, Name)>,
    /// The listener of HTTPS that has it, and its namespace.
    pub listener: Option<(HttpsListener, Name)>,
}

/// A listener of HTTPS.
#[derive(Clone, PartialEq)]
pub struct HttpsListener {
    /// Its host and port.
    pub at: ListenerHost,
    /// What its clients have to show.
    pub clients: Option<TlsPolicy>,
}

impl HostInput<'_> {
    /// The host that was put together of it.
    pub fn known(self, beside: &Beside<'_>, meeting: Meeting, refused: Refused) -> KnownHost {
        let HostInput { at, routes, parents, listener } = self;
        let owner = (beside.owner)(&at.host);
        KnownHost { routes, parents, listener, owner, meeting, refused, is_stale: false }
    }
}

/// Whether routes and their rules are the same, without a look into them.
fn is_same(old: &Ranked, new: &Ranked) -> bool {
    fn flat(all: &Ranked) -> impl Iterator<Item = (&Reverse<Rank>, &Age, *const Served)> {
        let of_rank = |(rank, routes)| {
            let routes: &ByAge = routes;
            routes.iter().map(move |(age, rules)| (rank, age, Arc::as_ptr(rules)))
        };
        all.iter().flat_map(of_rank)
    }
    flat(old).eq(flat(new))
}

impl Outcome {
    /// Notes what the rules of an object of this kind name.
    pub fn note_rules(&mut self, kind: Kind, rules: &[Rule]) {
        for rule in rules {
            self.used_backends.extend(rule.backend.clone());
            let key = || Key::new(&rule.origin.namespace, &rule.origin.ingress);
            let named = rule.policies.clone().filter(|_| kind.is_route());
            self.named.extend(named.map(|id| (id, ObjectRef::new(kind, key()))));
        }
    }
}
