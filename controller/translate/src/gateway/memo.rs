//! What was compiled and merged before: a change computes again only the routes and the hosts that it touches.
//!
//! Cost:    a route that did not change costs some microseconds, whatever its number of rules is.
//! Exempt:  routes with regular expressions, which are charged to their namespaces each time; hosts where routes of several
//!          host names meet.

use super::grants::{self, ChangedGrants};
use super::rank::{ByAge, Ranked};
use super::route::CompiledRoute;
use super::served::{self, Served};
use super::state::ListenerState;
use super::work::{self, Step};
use super::{Beside, HostOwner};
use crate::relation::Relation;
use oxigress_core::model::policy::PolicyId;
use oxigress_core::model::{BackendId, ListenerHost, Rule};
use oxigress_objects::gateway::{Objects, ReferenceGrant, Route};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was built before, as far as it can be taken over.
#[derive(Default)]
pub struct Memo {
    routes: BTreeMap<ObjectRef, KnownRoute>,
    /// By which routes may refer to other namespaces.
    grants: Objects<ReferenceGrant>,
    changed_grants: ChangedGrants,
    hosts: BTreeMap<ListenerHost, KnownHost>,
    readers: Readers,
}

/// Which routes are read again when an object changes.
#[derive(Default)]
struct Readers {
    /// Routes and the Services that were looked at.
    services: Relation<ObjectRef, Key>,
    /// Routes and the Services that grants were asked about.
    asked: Relation<ObjectRef, Key>,
}

impl Readers {
    fn set(&mut self, route: &ObjectRef, services: BTreeSet<Key>, asked: BTreeSet<Key>) {
        self.services.set(route, services);
        self.asked.set(route, asked);
    }
}

/// A route that was compiled.
pub struct KnownRoute {
    route: Arc<Route>,
    /// What it says.
    pub compiled: CompiledRoute,
    /// It was read now.
    is_new: bool,
    /// How many rules it has where it is served.
    count: usize,
    /// Whether its rules depend on the listener.
    has_redirects: bool,
    /// Its rules as they are served, by what a listener says about its redirects.
    served: Vec<KnownServed>,
}

struct KnownServed {
    by: RedirectBase,
    rules: Arc<Served>,
    is_used: bool,
}

/// What redirects take over from a listener: whether it speaks TLS, and its port. `None`: the route has no redirects.
type RedirectBase = Option<(bool, i64)>;

/// What a host came to, beside its rules.
#[derive(Default)]
pub struct Outcome {
    /// What there is to say about objects.
    pub notes: Vec<(ObjectRef, Note)>,
    /// The policies that rules of its routes name, each with one that says so.
    pub named: BTreeMap<PolicyId, ObjectRef>,
    /// Where its rules lead.
    pub led: BTreeSet<BackendId>,
}

/// A host whose rules are those of routes of one host name.
pub struct KnownHost {
    routes: ByAge,
    parents: BTreeSet<(Name, Name)>,
    owner: Option<HostOwner>,
    /// What it came to.
    pub outcome: Outcome,
}

impl Memo {
    /// Takes what is known and begins anew.
    pub fn replace(&mut self, world: &World) -> Self {
        let grants = &world.gateway_api.grants;
        let mut old = std::mem::replace(self, Memo { grants: grants.clone(), ..Memo::default() });
        old.changed_grants = ChangedGrants::between(&old.grants, grants);
        self.readers = std::mem::take(&mut old.readers);
        old
    }

    /// Forgets who reads what of the routes that are still among the `old` ones, all others having been taken.
    pub fn forget(&mut self, old: &Memo) {
        old.routes.keys().for_each(|id| self.forget_route(id));
    }

    /// Forgets who reads what of a route that is not read.
    pub fn forget_route(&mut self, id: &ObjectRef) {
        self.readers.set(id, BTreeSet::new(), BTreeSet::new());
    }

    /// The routes that are read again when a Service changes.
    pub fn readers_of(&self, service: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.readers.services.by(service)
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

    /// What was compiled of a route, if neither it nor what it refers to has changed.
    pub fn take_route(
        &mut self,
        world: &World,
        id: &ObjectRef,
        route: &Arc<Route>,
    ) -> Option<KnownRoute> {
        let known = self.routes.remove(id)?;
        let services = &known.compiled.services;
        let is_known = Arc::ptr_eq(&known.route, route)
            && route.spec.expressions().next().is_none()
            && !self.changed_grants.concern(&id.key.namespace, &known.compiled.asked)
            && services.iter().all(|(key, then)| world.services.get(key) == then.as_ref());
        is_known.then_some(known)
    }

    /// Remembers a route.
    pub fn put_route(&mut self, id: &ObjectRef, mut known: KnownRoute) {
        if std::mem::take(&mut known.is_new) {
            let services = known.compiled.services.keys().cloned().collect();
            self.readers.set(id, services, known.compiled.asked.clone());
        }
        self.routes.insert(id.clone(), known);
    }

    /// What a route says that was read.
    pub fn compiled(&self, id: &ObjectRef) -> Option<&CompiledRoute> {
        self.routes.get(id).map(|known| &known.compiled)
    }

    /// What a host came to, if nothing has changed that its rules depend on.
    pub fn take_host(&mut self, now: &HostInput<'_>, beside: &Beside<'_>) -> Option<KnownHost> {
        let known = self.hosts.remove(now.at)?;
        let routes = now.of_one_name()?;
        let is_known = known.routes.len() == routes.len()
            && known
                .routes
                .iter()
                .zip(routes)
                .all(|(old, new)| old.0 == new.0 && Arc::ptr_eq(old.1, new.1))
            && !beside.touched.contains(&now.at.host)
            && known.parents == *now.parents
            && known.owner == (beside.owner)(&now.at.host);
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
}

impl HostInput<'_> {
    /// The routes, if all have written the same host name.
    fn of_one_name(&self) -> Option<&ByAge> {
        static NONE: ByAge = ByAge::new();
        if self.ranked.len() > 1 {
            return None;
        }
        Some(self.ranked.values().next().unwrap_or(&NONE))
    }

    /// The host with what it came to, if that can be taken over.
    pub fn known(&self, beside: &Beside<'_>, outcome: Outcome) -> Option<KnownHost> {
        let routes = self.of_one_name()?;
        let owner = (beside.owner)(&self.at.host);
        Some(KnownHost { routes: routes.clone(), parents: self.parents.clone(), owner, outcome })
    }
}

impl KnownRoute {
    /// A route that was compiled now.
    pub fn new(route: &Arc<Route>, compiled: CompiledRoute) -> Self {
        let count = compiled.count();
        let has_redirects = compiled.rules.iter().any(|rule| rule.redirect.is_some());
        let (route, served) = (route.clone(), Vec::new());
        KnownRoute { route, compiled, is_new: true, count, has_redirects, served }
    }

    /// How many rules it has wherever it is served.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its rules at a listener. Those that are the same at every listener are kept in this form alone.
    pub fn served_at(&mut self, key: &Key, listener: &ListenerState<'_>) -> Arc<Served> {
        let by = self.has_redirects.then_some((listener.is_https(), listener.spec.port));
        if let Some(known) = self.served.iter_mut().find(|known| known.by == by) {
            known.is_used = true;
            return known.rules.clone();
        }
        work::count(Step::Served);
        let rules = Arc::new(served::served(key, &self.compiled, listener));
        self.served.push(KnownServed { by, rules: rules.clone(), is_used: true });
        if !self.has_redirects {
            self.compiled.rules = Vec::new();
        }
        rules
    }

    /// Forgets the rules of listeners that are there no more.
    pub fn forget_unused(&mut self) {
        self.served.retain(|known| known.is_used || known.by.is_none());
        self.served.iter_mut().for_each(|known| known.is_used = false);
    }
}

impl Outcome {
    /// Notes what the rules of an object of this kind name.
    pub fn note_rules(&mut self, kind: Kind, rules: &[Rule]) {
        for rule in rules {
            self.led.extend(rule.backend.clone());
            let key = || Key::new(&rule.origin.namespace, &rule.origin.ingress);
            let named = rule.policies.clone().filter(|_| kind.is_route());
            self.named.extend(named.map(|id| (id, ObjectRef::new(kind, key()))));
        }
    }
}
