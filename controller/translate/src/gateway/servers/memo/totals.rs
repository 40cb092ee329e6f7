//! What routes have in common, kept between builds: by it some of them are built again without a look at the others.
//!
//! Shape:   sums and counts, from which what a route adds can be taken back. They are of the last build; without them everything is
//!          built again.

use crate::gateway::listeners::left::Left;
use crate::gateway::listeners::state::Gateways;
use crate::gateway::routes::attach::{self, Attachment};
use crate::gateway::routes::room::{Room, Taken};
use crate::gateway::routes::route;
use crate::gateway::servers::rank::Rank;
use oxigress_core::model::{HostPattern, ListenerHost};
use oxigress_core::patterns::Allowance;
use oxigress_objects::{Key, Name, ObjectRef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What one route adds to what routes have in common.
#[derive(Default)]
pub struct Share {
    /// Its parents that are ours.
    pub attached: Vec<Attachment>,
    /// The hosts where it is served.
    pub spots: Vec<SharedSpot>,
    /// What it has taken of the limits of its namespace, except what it took where it met others on a host.
    pub taken: Taken,
}

/// A host where a route is served.
pub struct SharedSpot {
    /// The host.
    pub at: ListenerHost,
    /// How specific the route's own name for it is.
    pub rank: Reverse<Rank>,
    /// The namespace of a listener by which it is served.
    pub by: Name,
}

/// The namespaces of routes that are served on a host, each with that of a Gateway by which they are, on any port.
pub type ParentsOfHost = BTreeMap<(Name, Name), usize>;

/// The same for all hosts. Each is counted as often as routes are served so.
#[derive(Default)]
pub struct Parents {
    all: BTreeMap<HostPattern, ParentsOfHost>,
    /// The hosts that have others than before.
    changed: BTreeSet<HostPattern>,
}

impl Parents {
    /// Those of a host.
    pub fn of(&self, host: &HostPattern) -> &ParentsOfHost {
        const NONE: &ParentsOfHost = &ParentsOfHost::new();
        self.all.get(host).unwrap_or(NONE)
    }

    /// Adds a route of a namespace.
    pub fn add(&mut self, namespace: &Name, spot: &SharedSpot) {
        let of_host = self.all.entry(spot.at.host.clone()).or_default();
        let count = of_host.entry((namespace.clone(), spot.by.clone())).or_default();
        *count += 1;
        if *count == 1 {
            self.changed.insert(spot.at.host.clone());
        }
    }

    /// Takes it away again.
    pub fn remove(&mut self, namespace: &Name, spot: &SharedSpot) {
        let Some(of_host) = self.all.get_mut(&spot.at.host) else { return };
        let key = (namespace.clone(), spot.by.clone());
        let Some(count) = of_host.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            of_host.remove(&key);
            self.changed.insert(spot.at.host.clone());
        }
        if of_host.is_empty() {
            self.all.remove(&spot.at.host);
        }
    }

    /// The hosts that have others since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<HostPattern> {
        std::mem::take(&mut self.changed)
    }
}

/// What all routes have in common.
#[derive(Default)]
pub struct Totals {
    /// What their namespaces have taken.
    pub room: Room,
    /// With whom they are served.
    pub parents: Parents,
    /// What namespaces have left for expressions.
    allowances: BTreeMap<Name, Allowance>,
    /// The namespaces that had too little for them: which routes find room depends on their order.
    short: BTreeSet<Name>,
    /// What listeners of guests leave.
    pub left: Arc<Left>,
    /// How many are attached to a listener, by its Gateway and its place there.
    attached: BTreeMap<(Key, usize), usize>,
    /// Routes that changed, as they are attached since. Their places are taken already.
    pub pending: BTreeMap<ObjectRef, (Vec<Attachment>, Taken)>,
}

impl Totals {
    /// What a namespace has left for expressions.
    pub fn allowance(&mut self, namespace: &Name) -> &mut Allowance {
        let new = || Allowance::of(route::OF_NAMESPACE);
        self.allowances.entry(namespace.clone()).or_insert_with(new)
    }

    /// Whether what a namespace has depends on the order of its routes.
    pub fn is_ordered(&self, namespace: &Name) -> bool {
        self.room.is_full(namespace) || self.short.contains(namespace)
    }

    /// Notes whether the namespace of a route had too little for its expressions.
    pub fn note_short(&mut self, id: &ObjectRef, compiled: &route::CompiledRoute) {
        if compiled.charge.is_short() {
            self.short.insert(id.key.namespace.clone());
        }
    }

    /// Counts the routes that are attached to listeners.
    pub fn count_attached(&mut self, gateways: &Gateways<'_>) {
        self.attached = BTreeMap::new();
        for (key, state) in gateways {
            let counts = state.listeners.iter().map(|listener| listener.attached).enumerate();
            let counts = counts.filter(|(_, count)| *count > 0);
            self.attached.extend(counts.map(|(place, count)| ((Key::clone(key), place), count)));
        }
    }

    /// Moves a route from some listeners to others; answers their Gateways.
    pub fn move_route(&mut self, old: &[Attachment], new: &[Attachment]) -> BTreeSet<Key> {
        let (old, new) = (attach::listeners_of(old), attach::listeners_of(new));
        for (gateway, place) in old.difference(&new) {
            let key = (Key::clone(gateway), *place);
            let Some(count) = self.attached.get_mut(&key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.attached.remove(&key);
            }
        }
        for (gateway, place) in new.difference(&old) {
            *self.attached.entry((Key::clone(gateway), *place)).or_default() += 1;
        }
        old.symmetric_difference(&new).map(|(gateway, _)| Key::clone(gateway)).collect()
    }

    /// How many routes are attached to a listener.
    pub fn attached_to(&self, gateway: &Key, place: usize) -> usize {
        self.attached.get(&(gateway.clone(), place)).copied().unwrap_or_default()
    }
}
