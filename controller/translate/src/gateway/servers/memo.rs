//! What was compiled and merged before: a change computes again only the routes and the hosts that it touches.
//!
//! Cost:    a route that did not change costs some microseconds, whatever its number of rules is.
//! Limits:  what a namespace has taken of its limits until a route or a host is reached may decide what comes of that. So both are
//!          known with what they took, which is charged again, and are computed again where that might come to something else.

mod hosts;
mod known_route;
mod leads;
mod named;
mod totals;

pub use hosts::{HostInput, Hosts, HttpsListener, KnownHost, Outcome, Refused};
pub use known_route::{KnownDecrypted, KnownRoute};
pub use leads::Leads;
pub use named::NamedHosts;
pub use totals::{ParentsOfHost, Share, SharedSpot, Totals};

use crate::gateway::listeners::left::Left;
use crate::gateway::listeners::opened::Opened;
use crate::gateway::routes::attach::Attachment;
use crate::gateway::routes::grants::{self, ChangedGrants};
use crate::gateway::routes::policies::{self, Ask, Named};
use crate::gateway::routes::room::Taken;
use crate::gateway::routes::route::{Asked, CompiledRoute, Patterns};
use crate::gateway::routes::tls_policy::{Authorities, TlsPolicies};
use crate::gateway::work::{self, Step};
use crate::gateway::{Built, RouteBackend};
use crate::relation::Relation;
use oxigress_core::model::BackendId;
use oxigress_objects::gateway::{Objects, ReferenceGrant, Route};
use oxigress_objects::{Key, Name, ObjectRef, World};
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
    /// Hosts of listeners.
    pub hosts: Hosts,
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
        self.forget_hosts(old, built);
        self.leads.forget(None);
        let leads = std::mem::take(&mut self.leads);
        let held = std::mem::take(&mut self.opened.held);
        *self = Memo { leads, ..Memo::default() };
        self.opened.held = held;
    }

    /// Forgets what comes of routes and hosts, since settings have changed.
    pub fn forget_built(&mut self) {
        self.hosts.make_all_stale();
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

    /// The routes that are read again since grants changed; `None`: Gateways may refer to something else, too.
    pub fn readers_of_grants<'k>(
        &self,
        world: &World,
        changed: impl Iterator<Item = &'k Key>,
    ) -> Option<BTreeSet<ObjectRef>> {
        let mut all = BTreeSet::new();
        for key in changed {
            let both = [self.grants.get(key), world.gateway_api.grants.get(key)];
            for grant in both.into_iter().flatten() {
                if grants::is_of_gateways(grant) {
                    return None;
                }
                all.extend(self.readers_by(&key.namespace, grant).into_iter().cloned());
            }
        }
        Some(all)
    }

    /// Remembers a grant as it is now: when it changes next, that tells which routes it was for.
    pub fn note_grant(&mut self, world: &World, key: &Key) {
        match world.gateway_api.grants.get(key) {
            Some(grant) => drop(self.grants.insert(key.clone(), grant.clone())),
            None => drop(self.grants.remove(key)),
        }
    }

    /// Has routes read again, whether they have changed or not.
    pub fn make_stale(&mut self, routes: &BTreeSet<ObjectRef>) {
        for id in routes {
            if let Some(known) = self.routes.get_mut(id) {
                known.is_stale = true;
            }
        }
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
        self.routes.get(id).map(KnownRoute::asked).unwrap_or_default()
    }

    /// What a route says that was read.
    pub fn compiled(&self, id: &ObjectRef) -> Option<&CompiledRoute> {
        self.routes.get(id).map(|known| &known.compiled)
    }

    /// Has the hosts removed that are still among the `old` ones, all others having been taken.
    pub fn forget_hosts(&mut self, old: &mut Memo, built: &mut Built) {
        for at in std::mem::take(&mut old.hosts).into_left() {
            self.leads.forget(Some(&at));
            built.hosts.insert(at, None);
        }
    }
}
