//! What was compiled and merged before: a change computes again only the routes and the hosts that it touches.
//!
//! Cost:    a route that did not change costs some microseconds, whatever its number of rules is.
//! Limits:  what a namespace has taken of its limits until a route or a host is reached may decide what comes of that. So both are
//!          known with what they took, which is charged again, and are computed again where that might come to something else.

use super::grants::{self, ChangedGrants};
use super::left::Left;
use super::opened::Opened;
use super::policies::{self, Ask, Named};
use super::rank::{Age, ByAge, Rank, Ranked};
use super::room::{Meeting, Room};
use super::route::{Asked, CompiledRoute, Patterns};
use super::served::{self, Decrypted, Served};
use super::state::ListenerState;
use super::tls_policy::{Authorities, TlsPolicies};
use super::work::{self, Step};
use super::{Beside, HostOwner, PlaceOwner};
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

/// What a host came to, beside its rules.
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

/// A host with its rules.
pub struct KnownHost {
    ranked: Ranked,
    parents: BTreeSet<(Name, Name)>,
    listener: Option<HttpsListener>,
    owner: Option<HostOwner>,
    /// What the namespaces of its routes took of their limits, where routes of several names meet.
    meeting: Meeting,
    /// What it came to.
    pub outcome: Outcome,
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
        old
    }

    /// Forgets everything, since no Gateway is ours.
    pub fn forget_all(&mut self) {
        let held = std::mem::take(&mut self.opened.held);
        *self = Memo::default();
        self.opened.held = held;
    }

    /// Forgets what comes of routes and hosts, since settings have changed.
    pub fn forget_built(&mut self) {
        self.hosts.clear();
        self.policies = policies::Known::default();
        self.routes.values_mut().for_each(|known| known.is_stale = true);
    }

    fn set_readers(&mut self, route: &ObjectRef, compiled: &CompiledRoute) {
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

    /// What a host came to, if nothing has changed that its rules depend on. Takes the same of the room again.
    pub fn take_host(
        &mut self,
        now: &HostInput<'_>,
        beside: &Beside<'_>,
        room: &mut Room,
    ) -> Option<KnownHost> {
        let known = self.hosts.remove(now.at)?;
        let is_known = is_same(&known.ranked, now.ranked)
            && !beside.touched.contains(&now.at.host)
            && known.parents == *now.parents
            && known.listener == now.listener
            && known.owner == (beside.owner)(&now.at.host)
            && room.meets_again(&known.meeting);
        is_known.then_some(known)
    }

    /// Remembers a host.
    pub fn put_host(&mut self, at: ListenerHost, known: KnownHost) {
        self.hosts.insert(at, known);
    }
}

/// What the rules of a host depend on, beside its Ingresses.
pub struct HostInput<'i> {
    /// The host.
    pub at: &'i ListenerHost,
    /// Its routes.
    pub ranked: &'i Ranked,
    /// The namespaces of its routes on any port, each with that of a Gateway that they have attached to.
    pub parents: &'i BTreeSet<(Name, Name)>,
    /// The listener of HTTPS that has it.
    pub listener: Option<HttpsListener>,
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
    /// The host with what it came to.
    pub fn known(&self, beside: &Beside<'_>, meeting: Meeting, outcome: Outcome) -> KnownHost {
        let owner = (beside.owner)(&self.at.host);
        let (ranked, parents) = (self.ranked.clone(), self.parents.clone());
        let listener = self.listener.clone();
        KnownHost { ranked, parents, listener, owner, meeting, outcome }
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
