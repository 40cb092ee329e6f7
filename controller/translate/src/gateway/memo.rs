//! What was compiled and merged before: a change computes again only the routes and the hosts that it touches.
//!
//! Cost:    a route that did not change costs some microseconds, whatever its number of rules is.
//! Limits:  what a namespace has taken of its limits until a route or a host is reached may decide what comes of that. So both are
//!          known with what they took, which is charged again, and are computed again where that might come to something else.

mod leads;
mod named;
mod totals;

pub use leads::Leads;
pub use named::NamedHosts;
pub use totals::{ParentsOfHost, Share, SharedSpot, Totals};

use super::attach::Attachment;
use super::conflict::Refused;
use super::grants::{self, ChangedGrants};
use super::left::Left;
use super::opened::Opened;
use super::policies::{self, Ask, Named};
use super::rank::{Age, ByAge, Rank, Ranked};
use super::room::{Meeting, Room, Taken};
use super::route::{Asked, CompiledRoute, Patterns};
use super::served::{self, Decrypted, Served};
use super::state::ListenerState;
use super::tls_policy::{Authorities, TlsPolicies};
use super::work::{self, Step};
use super::{Beside, Built, HostOwner, PlaceOwner, RouteBackend};
use crate::relation::Relation;
use oxigress_core::model::policy::{PolicyId, TlsPolicy};
use oxigress_core::model::{BackendId, ListenerHost, Rule};
use oxigress_objects::gateway::{Objects, ReferenceGrant, Route};
use oxigress_objects::secret::Pair;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was built before, as far as it can be taken over.
#[derive(Default)]
pub struct Memo {
    routes: BTreeMap<ObjectRef, KnownRoute>,
    /// What routes ask for, also those that are not read.
    asks: BTreeMap<ObjectRef, (Arc<Route>, Arc<Ask>)>,
    /// By which routes may refer to other namespaces.
    grants: Objects<ReferenceGrant>,
    changed_grants: ChangedGrants,
    hosts: BTreeMap<ListenerHost, KnownHost>,
    readers: Readers,
    /// The expressions of routes, which are not tried again.
    pub patterns: Patterns,
    /// The authorities that policies of backends name.
    pub authorities: Authorities,
    /// The authorities that Gateways name for their clients.
    pub client_authorities: Authorities,
    /// The Policies that routes name.
    pub policies: policies::Known,
    /// The ports that nginx.conf has.
    pub opened: Opened,
    /// What listeners of guests leave, if that was told already of the world that is built.
    pub left: Option<Arc<Left>>,
    /// What all routes have in common; `None`: all is built again.
    pub totals: Option<Totals>,
    /// Which routes name which hosts.
    pub named: NamedHosts,
    /// Where rules lead.
    pub leads: Leads,
}

/// Which routes are read again when an object changes.
#[derive(Default)]
struct Readers {
    /// Routes and the Services that were looked at.
    services: Relation<ObjectRef, Key>,
    /// Routes and the Services that grants were asked about.
    asked: Relation<ObjectRef, Key>,
    /// Routes and the Policies that they name.
    policies: Relation<ObjectRef, Key>,
    /// Routes and their regular expressions.
    patterns: Relation<ObjectRef, String>,
    /// Routes and the backends that they name.
    backends: Relation<ObjectRef, BackendId>,
}

/// The targets of sessions that are decrypted, by what is shown to endpoints.
pub type KnownDecrypted = Vec<(Option<Arc<Pair>>, Arc<Decrypted>)>;

/// A route that was compiled.
pub struct KnownRoute {
    route: Arc<Route>,
    /// What it says.
    pub compiled: CompiledRoute,
    /// It was read now.
    is_new: bool,
    /// It was read with other settings.
    is_stale: bool,
    /// How many rules it has where it is served.
    count: usize,
    /// Whether its rules depend on the port of a listener.
    has_redirects: bool,
    /// Whether they depend on what a listener shows to endpoints.
    has_tls: bool,
    /// How often it takes over what a listener shows to endpoints.
    shows: usize,
    /// Its rules as they are served, by what a listener says about them.
    served: Vec<KnownServed>,
    /// The targets of its sessions where they are decrypted.
    pub decrypted: KnownDecrypted,
    /// The bytes of its filters at a listener.
    filter_bytes: usize,
    /// Its namespace had no room for it somewhere.
    pub lacks_room: bool,
    /// Its rules are not kept: it is served nowhere.
    is_bare: bool,
    /// What it adds to what routes have in common.
    pub share: Share,
}

struct KnownServed {
    by: Base,
    rules: Arc<Served>,
    is_used: bool,
}

/// What rules take over from a listener.
#[derive(Clone, Default, PartialEq)]
struct Base {
    /// What redirects do: whether it speaks TLS, and its port.
    redirects: Option<(bool, i64)>,
    /// What is shown to endpoints over TLS.
    identity: Option<Arc<Pair>>,
}

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

impl Memo {
    /// Takes what is known and begins anew.
    pub fn replace(&mut self, world: &World) -> Self {
        work::count(Step::Built);
        let grants = &world.gateway_api.grants;
        let mut old = std::mem::replace(self, Memo { grants: grants.clone(), ..Memo::default() });
        old.changed_grants = ChangedGrants::between(&old.grants, grants);
        self.readers = std::mem::take(&mut old.readers);
        self.patterns = std::mem::take(&mut old.patterns);
        self.authorities = std::mem::take(&mut old.authorities);
        self.client_authorities = std::mem::take(&mut old.client_authorities);
        self.opened = std::mem::take(&mut old.opened);
        self.named = std::mem::take(&mut old.named);
        self.leads = std::mem::take(&mut old.leads);
        old
    }

    /// Forgets everything, since no Gateway is ours; `old`: what was built before.
    pub fn forget_all(&mut self, old: &mut Memo, built: &mut Built) {
        old.forget_hosts(self, built);
        self.leads.forget(None);
        let leads = std::mem::take(&mut self.leads);
        let held = std::mem::take(&mut self.opened.held);
        *self = Memo { leads, ..Memo::default() };
        self.opened.held = held;
    }

    /// Forgets what comes of routes and hosts, since settings have changed.
    pub fn forget_built(&mut self) {
        self.hosts.values_mut().for_each(|known| known.is_stale = true);
        self.totals = None;
        self.policies = policies::Known::default();
        self.routes.values_mut().for_each(|known| known.is_stale = true);
    }

    /// The routes that name a backend, wherever they are served.
    pub fn routes_to(&self, backend: &BackendId) -> impl Iterator<Item = &ObjectRef> {
        self.readers.backends.by(backend)
    }

    fn set_readers(&mut self, route: &ObjectRef, compiled: &CompiledRoute) {
        self.readers.backends.set(route, compiled.backends.keys().cloned().collect());
        self.readers.services.set(route, compiled.services.keys().cloned().collect());
        self.readers.asked.set(route, compiled.asked.clone());
        self.readers.policies.set(route, compiled.policies.keys().cloned().collect());
        for pattern in self.readers.patterns.set(route, compiled.expressions.clone()) {
            if !self.readers.patterns.has(&pattern) {
                self.patterns.remove(&*pattern);
            }
        }
    }

    /// Forgets who reads what of the routes that are still among the `old` ones, all others having been taken.
    pub fn forget(&mut self, old: &Memo) {
        old.routes.keys().for_each(|id| self.forget_route(id));
    }

    /// Forgets who reads what of a route that is not read.
    pub fn forget_route(&mut self, id: &ObjectRef) {
        self.set_readers(id, &CompiledRoute::default());
    }

    /// What a route asks for; `old`: what was built before.
    pub fn ask_of(&mut self, old: &mut Memo, id: &ObjectRef, route: &Arc<Route>) -> Arc<Ask> {
        let known = old.asks.remove(id).filter(|(of, _)| Arc::ptr_eq(of, route));
        let now = known.unwrap_or_else(|| (route.clone(), Arc::new(Ask::of(route))));
        let ask = now.1.clone();
        self.asks.insert(id.clone(), now);
        ask
    }

    /// The routes that are read again when a Service changes.
    pub fn readers_of(&self, service: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.readers.services.by(service)
    }

    /// The routes that are read again when a Policy changes.
    pub fn readers_of_policy(&self, policy: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.readers.policies.by(policy)
    }

    /// The routes that are read again when a grant of a namespace comes or goes.
    pub fn readers_by(&self, namespace: &Name, grant: &ReferenceGrant) -> BTreeSet<&ObjectRef> {
        let from: BTreeSet<&str> = grants::namespaces(grant).collect();
        let mut all = BTreeSet::new();
        for name in grants::names(grant) {
            let asked = self.readers.asked.rights_from(&Key::new(namespace, name.unwrap_or("")));
            let asked = asked.take_while(|key| {
                key.namespace == *namespace && name.is_none_or(|name| *name == *key.name)
            });
            let routes = asked.flat_map(|service| self.readers.asked.by(service));
            all.extend(routes.filter(|route| from.contains(&*route.key.namespace)));
        }
        all
    }

    /// What was compiled of a route, if neither it nor what it refers to has changed; `left`: what its namespace has for expressions.
    pub fn take_route(
        &mut self,
        world: &World,
        tls: &TlsPolicies<'_>,
        (id, route, named): (&ObjectRef, &Arc<Route>, &Named),
        left: u64,
    ) -> Option<KnownRoute> {
        let known = self.routes.remove(id)?;
        let services = &known.compiled.services;
        let is_known = Arc::ptr_eq(&known.route, route)
            && !known.is_stale
            && policies::is_same(&known.compiled.policies, named)
            && known.compiled.charge.is_same_with(left)
            && !self.changed_grants.concern(&id.key.namespace, &known.compiled.asked)
            && services.iter().all(|(key, then)| world.services.get(key) == then.as_ref())
            && known
                .compiled
                .tls
                .iter()
                .all(|((service, port), then)| tls.to_endpoints(service, port) == *then);
        is_known.then_some(known)
    }

    /// Remembers a route.
    pub fn put_route(&mut self, id: &ObjectRef, mut known: KnownRoute) {
        if std::mem::take(&mut known.is_new) {
            self.set_readers(id, &known.compiled);
        }
        self.routes.insert(id.clone(), known);
    }

    /// Forgets a route that is gone, or attached to none of our Gateways.
    pub fn remove_route(&mut self, id: &ObjectRef) {
        self.routes.remove(id);
        self.asks.remove(id);
        self.forget_route(id);
    }

    /// Remembers what a route asks for.
    pub fn put_ask(&mut self, id: &ObjectRef, route: &Arc<Route>, ask: Ask) {
        self.asks.insert(id.clone(), (route.clone(), Arc::new(ask)));
    }

    /// Remembers the parents of a route, if there was room for it.
    pub fn keep_attached(&mut self, id: &ObjectRef, attached: Vec<Attachment>) {
        if let Some(known) = self.routes.get_mut(id) {
            known.share.attached = attached;
        }
    }

    /// The parents of a route.
    pub fn attached(&self, id: &ObjectRef) -> Option<&[Attachment]> {
        Some(&self.routes.get(id)?.share.attached)
    }

    /// A route, as it was last read.
    pub fn known_mut(&mut self, id: &ObjectRef) -> Option<&mut KnownRoute> {
        self.routes.get_mut(id)
    }

    /// A route, as it was last read.
    pub fn known(&self, id: &ObjectRef) -> Option<&KnownRoute> {
        self.routes.get(id)
    }

    /// The hosts and paths that give out the affinity cookie of a backend.
    pub fn locations(
        &self,
        id: &BackendId,
        backend: &RouteBackend,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let routes = backend.routes.iter().filter(|_| backend.balancing.affinity.is_some());
        for known in routes.filter_map(|route| self.routes.get(route)) {
            let paths = known.paths_to(id);
            for spot in known.share.spots.iter().filter(|_| !paths.is_empty()) {
                let of_host = all.entry(spot.at.host.to_string()).or_default();
                of_host.extend(paths.iter().map(|path| (*path).to_owned()));
            }
        }
        all
    }

    /// The places that a route has taken, which are given back.
    pub fn take_places(&mut self, id: &ObjectRef) -> Taken {
        let Some(known) = self.routes.get_mut(id) else { return Taken::default() };
        let places = known.share.taken.places();
        known.share.taken = known.share.taken.since(places);
        places
    }

    /// Whether a route names a backend.
    pub fn names(&self, route: &ObjectRef, backend: &BackendId) -> bool {
        self.compiled(route).is_some_and(|compiled| compiled.backends.contains_key(backend))
    }

    /// The routes that look at one of these Services, which is another one than it was then.
    pub fn readers_of_changed(
        &self,
        world: &World,
        services: &BTreeSet<Key>,
    ) -> BTreeSet<ObjectRef> {
        let of_one = |service| {
            let is_other = move |route: &&ObjectRef| {
                let then = self.compiled(route).and_then(|compiled| compiled.services.get(service));
                then.is_some_and(|then| then.as_ref() != world.services.get(service))
            };
            self.readers.services.by(service).filter(is_other)
        };
        services.iter().flat_map(of_one).cloned().collect()
    }

    /// Whether the rules of a route are known.
    pub fn has_rules_of(&self, id: &ObjectRef) -> bool {
        self.routes.get(id).is_some_and(|known| !known.is_bare)
    }

    /// A route, as it was last read.
    pub fn route(&self, id: &ObjectRef) -> Option<&Route> {
        self.routes.get(id).map(|known| &*known.route)
    }

    /// What the rules of a route ask for that are served, wherever that is.
    pub fn served_of(&self, id: &ObjectRef) -> BTreeSet<Asked> {
        let served = self.routes.get(id).into_iter().flat_map(|known| &known.served);
        let all = served.flat_map(|served| &served.rules.candidates);
        all.map(|one| (one.path.clone(), one.selection.clone())).collect()
    }

    /// What a route says that was read.
    pub fn compiled(&self, id: &ObjectRef) -> Option<&CompiledRoute> {
        self.routes.get(id).map(|known| &known.compiled)
    }

    /// A host, if nothing has changed that its rules depend on. Takes the same of the room again.
    pub fn take_host(
        &mut self,
        now: &HostInput<'_>,
        beside: &Beside<'_>,
        room: &mut Room,
    ) -> Option<KnownHost> {
        let known = self.hosts.remove(now.at)?;
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
    pub fn put_host(&mut self, at: ListenerHost, known: KnownHost) {
        self.hosts.insert(at, known);
    }

    /// Whether a host is known.
    pub fn has_host(&self, at: &ListenerHost) -> bool {
        self.hosts.contains_key(at)
    }

    /// Has a host put together again.
    pub fn make_stale(&mut self, at: &ListenerHost) {
        self.hosts.entry(at.clone()).or_default().is_stale = true;
    }

    /// Adds routes to a host, which has to be put together then.
    pub fn add_to_host(&mut self, at: &ListenerHost, routes: Ranked) {
        let known = self.hosts.entry(at.clone()).or_default();
        for (rank, routes) in routes {
            known.routes.entry(rank).or_default().extend(routes);
        }
    }

    /// Takes a route from a host, which has to be put together then.
    pub fn take_from_host(&mut self, spot: &SharedSpot, age: &Age) {
        let Some(known) = self.hosts.get_mut(&spot.at) else { return };
        let Some(routes) = known.routes.get_mut(&spot.rank) else { return };
        routes.remove(age);
        if routes.is_empty() {
            known.routes.remove(&spot.rank);
        }
    }

    /// Gives back what namespaces took where routes met on a host.
    pub fn give_back_meeting(&mut self, at: &ListenerHost, room: &mut Room) {
        if let Some(known) = self.hosts.get_mut(at) {
            room.forget_meeting(&std::mem::take(&mut known.meeting));
        }
    }

    /// Takes a host's routes, to put it together again; answers also those that were not served there.
    pub fn take_routes_of(&mut self, at: &ListenerHost) -> (Ranked, BTreeSet<ObjectRef>) {
        let known = self.hosts.remove(at).unwrap_or_default();
        (known.routes, known.refused.into_keys().collect())
    }

    /// The hosts where a route is not served, each with the reason.
    pub fn refused_hosts(&self, id: &ObjectRef) -> BTreeMap<ListenerHost, String> {
        let spots = self.routes.get(id).into_iter().flat_map(|known| &known.share.spots);
        let all = spots.filter_map(|spot| {
            let why = self.hosts.get(&spot.at)?.refused.get(id)?;
            Some((spot.at.clone(), why.clone()))
        });
        all.collect()
    }

    /// Has what is left of these hosts removed: all others were taken. `now`: what is built.
    pub fn forget_hosts(&mut self, now: &mut Memo, built: &mut Built) {
        for at in std::mem::take(&mut self.hosts).into_keys() {
            now.leads.forget(Some(&at));
            built.hosts.insert(at, None);
        }
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

impl KnownRoute {
    /// A route that was compiled now.
    pub fn new(route: &Arc<Route>, compiled: CompiledRoute, filter_bytes: usize) -> Self {
        let count = compiled.count();
        let has_redirects = compiled.rules.iter().any(|rule| rule.answer.redirect.is_some());
        let mut seen = BTreeSet::new();
        let answers = compiled.rules.iter().map(|rule| &rule.answer);
        let answers = answers.filter(|answer| seen.insert(Arc::as_ptr(answer)));
        let targets = answers.flat_map(|answer| &answer.targets);
        let shows = targets.filter(|target| served::takes_identity(&target.policies)).count();
        KnownRoute {
            route: route.clone(),
            compiled,
            is_new: true,
            is_stale: false,
            count,
            has_redirects,
            has_tls: shows > 0,
            shows,
            served: Vec::new(),
            decrypted: Vec::new(),
            filter_bytes,
            lacks_room: false,
            is_bare: false,
            share: Share::default(),
        }
    }

    /// Whether its rules are there, or nobody asks for them. `is_served`: somewhere a listener serves it.
    pub fn has_rules_if(&self, is_served: impl FnOnce() -> bool) -> bool {
        !self.is_bare || !is_served()
    }

    /// The bytes of filters and of certificates that serving it at one more listener takes; those of the first are counted with its reading.
    pub fn bytes_at(&self, listener: &ListenerState<'_>) -> usize {
        let by = self.base(listener);
        let is_known = by == Base::default()
            || self.served.iter().any(|known| known.by == by && known.is_used);
        let shown = by.identity.map_or(0, |pair| pair.chain.len() + pair.key.len());
        if is_known { 0 } else { self.filter_bytes + self.shows.saturating_mul(shown) }
    }

    /// What a listener shows to its endpoints over TLS.
    pub fn shown_at(&self, listener: &ListenerState<'_>) -> Option<Arc<Pair>> {
        self.base(listener).identity
    }

    fn base(&self, listener: &ListenerState<'_>) -> Base {
        Base {
            redirects: self.has_redirects.then_some((listener.is_https(), listener.spec.port)),
            identity: listener.identity.clone().filter(|_| self.has_tls),
        }
    }

    /// Its creation, its name and its kind.
    pub fn age(&self, id: &ObjectRef) -> Age {
        (self.route.meta.created, id.key.clone(), id.kind)
    }

    /// The paths that give out the affinity cookie of a backend, at any listener.
    fn paths_to(&self, backend: &BackendId) -> BTreeSet<&str> {
        let sticky = self.served.first().into_iter().flat_map(|known| &known.rules.sticky);
        sticky.filter(|(id, _)| id == backend).map(|(_, path)| path.as_str()).collect()
    }

    /// How many rules it has wherever it is served.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its rules at a listener. Those that are the same at every listener are kept in this form alone.
    pub fn served_at(&mut self, key: &Key, listener: &ListenerState<'_>) -> Arc<Served> {
        let by = self.base(listener);
        if let Some(known) = self.served.iter_mut().find(|known| known.by == by) {
            known.is_used = true;
            return known.rules.clone();
        }
        work::count(Step::Served);
        let rules = Arc::new(served::served(key, &self.compiled, listener));
        self.served.push(KnownServed { by, rules: rules.clone(), is_used: true });
        if !self.has_redirects && !self.has_tls {
            self.compiled.rules = Vec::new();
        }
        rules
    }

    /// Forgets the rules of listeners that are there no more, and all if no listener serves the route.
    pub fn forget_unused(&mut self) {
        self.is_bare =
            !std::mem::take(&mut self.lacks_room) && self.served.iter().all(|known| !known.is_used);
        if self.is_bare {
            self.compiled.rules = Vec::new();
        }
        self.served.retain(|known| known.is_used || (known.by == Base::default() && !self.is_bare));
        self.served.iter_mut().for_each(|known| known.is_used = false);
    }
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
