//! Builds again what a few routes touch, where nothing else has changed.
//!
//! Shape:   what the routes added is taken back, what they add now is put in, and the hosts that this concerns are put together
//!          again, by the functions that [`super::build`] has for all of them. Gateways and their listeners are read again.
//! Limits:  where it counts in which order routes are read, everything is built again: in a namespace that asks for more than it may
//!          have. So it is where a Policy is named by a first route or no more by any, where other Gateways serve a Service that a
//!          BackendTLSPolicy is about, since its status names them, and where hosts with sessions are touched, or such as are kept from these.

use super::listeners::isolation;
use super::listeners::state::{GatewayState, Gateways};
use super::routes::attach::Attachment;
use super::routes::policies::{Ask, Named};
use super::routes::tls_policy::TlsPolicies;
use super::servers::memo::{KnownRoute, Memo, Share, Totals};
use super::servers::serve::{Merged, Serving, Site};
use super::servers::{sessions, spots};
use super::work::{self, Step};
use super::{Built, KeptHost, RouteBackend, gateways, known_or_read, put_route_status, read_tls};
use crate::host::owner::HostOwnership;
use oxigress_core::model::{BackendId, HostPattern, ListenerHost};
use oxigress_core::patterns::Allowance;
use oxigress_objects::gateway::Route;
use oxigress_objects::gateway_status::Wanted;
use oxigress_objects::{Key, Kind, ObjectRef};
use oxigress_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What routes came to that were built again.
#[derive(Default)]
pub struct Edited {
    /// The hosts that were put together; `None`: gone.
    pub hosts: BTreeMap<ListenerHost, Option<Merged>>,
    /// The objects of which the status may be another one, with what it said before.
    pub statuses: BTreeMap<ObjectRef, Option<Wanted>>,
    /// The backends to which other routes may lead.
    pub backends: BTreeSet<BackendId>,
}

/// Builds again what `routes` touch, and the hosts that are `named` by others than before; `None`: everything is to be built again.
///
/// Neither anything else that is served of the Gateway API may have changed, nor what it depends on, nor who has sessions
/// ([`touched_session`]).
pub fn edit(
    site: Site<'_>,
    settings: &Settings,
    memo: &mut Memo,
    built: &mut Built,
    (routes, named): (&BTreeSet<ObjectRef>, &BTreeSet<HostPattern>),
) -> Option<Edited> {
    let totals = memo.totals.take()?;
    work::count(Step::Edited);
    let (world, options, left) = (site.world, site.options, totals.left.clone());
    let mut scratch = Built::default();
    let classes = gateways::classes(options, &world.gateway_api, &mut scratch);
    let mut gateways = gateways::gateways(world, options, &classes, Some(&left), &mut scratch);
    let listeners = read_tls(world, &mut gateways, memo, &mut scratch);
    let tls = TlsPolicies::of(world, options, &mut memo.authorities);
    let mut serving = Serving::of(totals);
    serving.add_listeners(&gateways, &mut scratch);
    let standing = std::mem::take(&mut serving.hosts).into_keys().collect();
    let (by, edited) = ((&gateways, &listeners), Edited::default());
    let mut editing = Editing {
        site,
        settings,
        tls,
        by,
        standing,
        memo,
        built,
        serving,
        edited,
        touched: BTreeSet::new(),
        moved: BTreeSet::new(),
        told: routes.clone(),
        policies: BTreeSet::new(),
        named: BTreeMap::new(),
    };
    if editing.run(routes, named).is_none() {
        editing.give_up(routes);
        return None;
    }
    let Editing { memo, serving, mut edited, moved, built, .. } = editing;
    for key in moved {
        let Some(state) = gateways.get_mut(&key) else { continue };
        edited.put_gateway(&key, state, &serving.totals, built);
    }
    built.places = serving.totals.room.places();
    memo.totals = Some(serving.totals);
    Some(edited)
}

/// The first of the hosts that are touched on which it depends who has sessions; `None`: there is none.
pub fn touched_session<'h>(
    site: Site<'h>,
    built: &Built,
    named: &'h BTreeSet<HostPattern>,
) -> Option<&'h HostPattern> {
    let beside = site.beside;
    if site.options.host_ownership == HostOwnership::Shared {
        return None;
    }
    let keeps = !built.wide_sessions.is_empty() || !beside.passed.is_empty();
    named.iter().chain(beside.touched).find(|host| {
        let owner = built.session_hosts.get(*host);
        let is_moved = owner.is_some_and(|owner| *owner != (beside.owner)(host));
        // What is kept below a wildcard depends on who has that.
        let is_passed_otherwise = built.passed.get(*host) != beside.passed.get(*host);
        let is_kept_otherwise = match built.kept_hosts.get(*host) {
            Some(kept) => *kept != KeptHost::of(beside, host),
            None => keeps && sessions::is_due(beside, built, host),
        };
        is_moved || is_passed_otherwise || is_kept_otherwise
    })
}

impl Edited {
    /// Notes the status of a Gateway that has other routes, and those of its ListenerSets.
    fn put_gateway(
        &mut self,
        key: &Key,
        state: &mut GatewayState<'_>,
        totals: &Totals,
        built: &mut Built,
    ) {
        for (place, listener) in state.listeners.iter_mut().enumerate() {
            listener.attached = totals.attached_to(key, place);
        }
        let sets = state.sets.iter().map(|set| set.home.object());
        self.note(sets.chain([ObjectRef::new(Kind::Gateway, key.clone())]), built);
        gateways::put_status(key, state, built);
    }

    /// Notes what the status of objects said before.
    fn note(&mut self, objects: impl Iterator<Item = ObjectRef>, built: &Built) {
        for object in objects {
            let before = built.statuses.get(&object).cloned();
            self.statuses.entry(object).or_insert(before);
        }
    }
}

/// Services, the Gateways that serve them, and when the route was created: of more Gateways than a status names the order counts.
type ServedServices = (BTreeSet<Key>, BTreeSet<Key>, i64);

struct Editing<'e, 'm, 'w> {
    site: Site<'w>,
    settings: &'e Settings,
    tls: TlsPolicies<'w>,
    by: (&'e Gateways<'w>, &'e isolation::Listeners),
    /// The hosts of listeners, which stand also where no route is served.
    standing: BTreeSet<ListenerHost>,
    memo: &'m mut Memo,
    built: &'m mut Built,
    serving: Serving,
    edited: Edited,
    /// The hosts that are put together again.
    touched: BTreeSet<ListenerHost>,
    /// The Gateways that have other routes.
    moved: BTreeSet<Key>,
    /// The routes of which the status is told again.
    told: BTreeSet<ObjectRef>,
    /// The Policies that routes have named until now.
    policies: BTreeSet<Key>,
    /// The backends that routes have named until now, or name now, with these.
    named: BTreeMap<BackendId, BTreeSet<ObjectRef>>,
}

impl Editing<'_, '_, '_> {
    fn run(&mut self, routes: &BTreeSet<ObjectRef>, named: &BTreeSet<HostPattern>) -> Option<()> {
        for id in routes {
            self.route(id)?;
        }
        if self.policies.iter().any(|key| self.memo.readers_of_policy(key).next().is_none()) {
            return None;
        }
        let changed = self.serving.totals.parents.take_changed();
        for host in named.iter().chain(&changed).chain(self.site.beside.touched) {
            let places = self.by.1.places(host);
            self.touched.extend(places.filter(|at| self.memo.hosts.has(at)));
        }
        self.merge()?;
        self.lead();
        self.put_statuses();
        Some(())
    }

    /// Takes back what a route added, and adds what it says now.
    fn route(&mut self, id: &ObjectRef) -> Option<()> {
        let namespace = &id.key.namespace;
        if !id.kind.is_of_requests() || self.serving.totals.is_ordered(namespace) {
            return None;
        }
        let (share, served_before) = self.take_back(id);
        let totals = &mut self.serving.totals;
        let (attached, places) = match totals.pending.remove(id) {
            Some((attached, places)) => {
                self.moved.extend(totals.move_route(&share.attached, &attached));
                (attached, places)
            }
            None => (share.attached, share.taken.places()),
        };
        let route = self.site.world.gateway_api.routes.get(id);
        let Some(route) = route.filter(|_| !attached.is_empty()) else {
            self.memo.remove_route(id);
            return served_before.is_none().then_some(());
        };
        let ask = Ask::of(route);
        let all = &self.site.world.gateway_api.policies;
        let named = self.memo.policies.named(namespace, &ask, all)?;
        let (before, bytes) = (totals.room.of(namespace), ask.bytes(&named));
        let has_room =
            totals.room.has_reading(id, route) && totals.room.has_filters(&id.key, id.kind, bytes);
        if !has_room {
            return None;
        }
        self.memo.put_ask(id, route, ask);
        let mut known = self.read((id, route, named), &attached, bytes);
        let served = served(&self.tls, &known, &attached);
        if served != served_before || known.compiled.charge.is_short() {
            return None;
        }
        note_backends(&mut self.named, id, &known);
        let route = (id, &**route);
        let spots = self.serving.add(self.site.options, route, &attached, &mut known, self.by);
        let room = &self.serving.totals.room;
        let taken = room.of(namespace).since(before).and(places);
        known.share = Share { attached, spots, taken };
        for (at, routes) in std::mem::take(&mut self.serving.hosts) {
            self.memo.hosts.add(&at, routes);
            self.touched.insert(at);
        }
        self.memo.put_route(id, known);
        (!self.serving.totals.is_ordered(namespace)).then_some(())
    }

    /// Takes back what a route added; answers it with the Services that it led to.
    fn take_back(&mut self, id: &ObjectRef) -> (Share, Option<ServedServices>) {
        let namespace = &id.key.namespace;
        let Some(known) = self.memo.known_mut(id) else { return Default::default() };
        let served = served(&self.tls, known, &known.share.attached);
        self.policies.extend(known.compiled.policies.keys().cloned());
        let (share, age) = (std::mem::take(&mut known.share), known.age(id));
        let totals = &mut self.serving.totals;
        let allowance = totals.allowance(namespace);
        *allowance = Allowance::of(allowance.left().saturating_add(known.compiled.charge.taken));
        totals.room.give_back(namespace, share.taken.since(share.taken.places()));
        note_backends(&mut self.named, id, known);
        for spot in &share.spots {
            totals.parents.remove(namespace, spot);
            self.memo.hosts.remove_route(spot, &age);
            self.touched.insert(spot.at.clone());
        }
        (share, served)
    }

    fn read(
        &mut self,
        (id, route, named): (&ObjectRef, &Arc<Route>, Named),
        attached: &[Attachment],
        bytes: usize,
    ) -> KnownRoute {
        let world = self.site.world;
        let is_served = || spots::is_anywhere(attached, self.by);
        let allowance = self.serving.totals.allowance(&id.key.namespace);
        let of = (id, route, &named);
        let known = self.memo.take_route(world, &self.tls, of, allowance.left());
        let known = known.filter(|known| known.has_rules_if(is_served));
        let with = (world, self.settings, &self.tls, true);
        let of = (id, route, named, bytes);
        known_or_read(known, with, of, (&mut self.memo.patterns, allowance))
    }

    /// Puts the hosts together that are touched; `None`: the order of routes counts, of those that met there or were refused, too.
    fn merge(&mut self) -> Option<()> {
        for at in &self.touched {
            let totals = &mut self.serving.totals;
            if self.memo.hosts.namespaces_met(at).any(|name| totals.is_ordered(name)) {
                return None;
            }
            self.memo.hosts.give_back(at, &mut totals.room);
        }
        for at in &self.touched {
            let (routes, refused) = self.memo.hosts.take_routes(at);
            self.told.extend(refused);
            if routes.is_empty() && !self.standing.contains(at) {
                self.memo.leads.forget(Some(at));
                self.edited.hosts.insert(at.clone(), None);
                continue;
            }
            // Of one name no route is compared with others.
            let all = routes.values().filter(|_| routes.len() > 1).flatten();
            let namespaces: BTreeSet<_> = all.map(|(age, _)| age.1.namespace.clone()).collect();
            let input = self.serving.input(at, routes, self.by.1);
            let (known, merged) = self.serving.merge(self.site, input, self.memo);
            if namespaces.iter().any(|name| self.serving.totals.is_ordered(name)) {
                return None;
            }
            self.told.extend(known.refused().keys().cloned());
            self.memo.hosts.put(at.clone(), known);
            self.edited.hosts.insert(at.clone(), Some(merged));
        }
        // Whose rules are known has its status from them, in whatever order routes are read.
        let routes = &self.site.world.gateway_api.routes;
        let mut unknown =
            self.told.iter().filter(|id| routes.contains_key(*id) && self.memo.known(id).is_none());
        let is_ordered = |id: &ObjectRef| self.serving.totals.is_ordered(&id.key.namespace);
        (!unknown.any(is_ordered)).then_some(())
    }

    /// Notes which routes lead to the backends that they have named, or name now. What was built before is changed: so nothing is
    /// given up any more.
    fn lead(&mut self) {
        let mut named = std::mem::take(&mut self.named);
        for id in &self.memo.leads.touched().backends {
            named.entry(id.clone()).or_default();
        }
        for (id, routes) in named {
            if self.set_backend(&id, &routes) {
                self.edited.backends.insert(id);
            }
        }
    }

    /// Notes which of these routes lead to a backend; answers whether it is another one than before.
    fn set_backend(&mut self, id: &BackendId, routes: &BTreeSet<ObjectRef>) -> bool {
        let all = &mut self.built.backends;
        if !self.memo.leads.has(id) {
            return all.remove(id).is_some();
        }
        if let Some(backend) = all.get_mut(id) {
            let mut is_other = false;
            for route in routes {
                work::count(Step::Led);
                is_other |= match self.memo.names(route, id) {
                    true => backend.routes.insert(route.clone()),
                    false => backend.routes.remove(route),
                };
            }
            let locations = self.memo.locations(id, backend);
            let before = std::mem::replace(&mut backend.locations, locations);
            return is_other || before != backend.locations;
        }
        let by: BTreeSet<_> = self.memo.routes_to(id).cloned().collect();
        let found = by.first().and_then(|route| self.memo.compiled(route)?.backends.get(id));
        // Rules of Ingresses lead to others.
        let Some((backend_ref, balancing)) = found.cloned() else { return false };
        let locations = BTreeMap::new();
        let mut backend = RouteBackend { backend_ref, balancing, routes: by, locations };
        backend.locations = self.memo.locations(id, &backend);
        all.insert(id.clone(), backend);
        true
    }

    fn put_statuses(&mut self) {
        self.edited.note(self.told.iter().cloned(), self.built);
        let routes = &self.site.world.gateway_api.routes;
        for id in &self.told {
            let Some((route, known)) = routes.get(id).zip(self.memo.known(id)) else {
                self.built.statuses.remove(id);
                self.built.losses.remove(id);
                continue;
            };
            let hosts = self.memo.hosts.refused(id, &known.share);
            let (options, of, attached) =
                (self.site.options, (id, &**route), &known.share.attached);
            put_route_status(options, of, attached, Some(&hosts), self.by, self.memo, self.built);
        }
    }

    /// Has all built again that was begun: its hosts count as changed, and nobody as a reader for routes that are not known.
    fn give_up(self, routes: &BTreeSet<ObjectRef>) {
        let Editing { memo, touched, .. } = self;
        touched.iter().for_each(|at| memo.hosts.make_stale(at));
        for id in routes {
            if memo.compiled(id).is_none() {
                memo.forget_route(id);
            }
        }
    }
}

/// Notes that a route names backends.
fn note_backends(
    named: &mut BTreeMap<BackendId, BTreeSet<ObjectRef>>,
    id: &ObjectRef,
    known: &KnownRoute,
) {
    for backend in known.compiled.backends.keys() {
        named.entry(backend.clone()).or_default().insert(id.clone());
    }
}

/// The Services that BackendTLSPolicies are about and that a route leads to, with the Gateways that serve it.
fn served(
    tls: &TlsPolicies<'_>,
    known: &KnownRoute,
    attached: &[Attachment],
) -> Option<ServedServices> {
    let services = known.compiled.tls.keys().map(|(service, _)| service);
    let services = services.filter(|service| tls.concern(service));
    let services: BTreeSet<Key> = services.cloned().collect();
    let gateways = attached.iter().map(|at| at.gateway.clone()).collect();
    (!services.is_empty()).then_some((services, gateways, known.created()))
}
