//! Which hosts routes would have, for reviews of objects that are about to be stored.

use super::claims::named;
use super::gateways::listener;
use super::listeners::isolation::Listeners;
use super::listeners::left::Left;
use super::listeners::protocol::Protocol;
use super::listeners::state::{GatewayState, Gateways, Home, ListenerState};
use super::routes::attach;
use super::routes::room::Room;
use super::routes::route::{Asked, asked};
use super::servers::spots;
use super::{Built, Rank, gateways, intersection, specificity};
use crate::Options;
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace};
use oxigress_objects::gateway::{HttpRouteRule, Listener, ListenerSet, ParentRef, Route};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;

/// The hosts that a route would have.
#[derive(Default)]
pub struct RouteHosts {
    /// Those that it names.
    pub named: BTreeSet<HostPattern>,
    /// Those that it covers without naming them, and those of requests that name no host.
    pub covered: BTreeSet<ListenerHost>,
    /// The places of which it would have all sessions.
    pub sessions: BTreeSet<SessionPlace>,
    /// The places where it would have rules, each with how specific its name for the host is.
    pub served: BTreeMap<ListenerHost, Rank>,
    /// What its rules ask for.
    pub asked: BTreeSet<Asked>,
}

impl RouteHosts {
    /// Adds what a route would have by a listener that admits it, if nothing were in the listener's way.
    fn add(
        &mut self,
        options: &Options,
        (id, route): (&ObjectRef, &Route),
        listener: &ListenerState<'_>,
        addresses: &[Option<IpAddr>],
    ) {
        let (Some(port), default) = (listener.port, HostPattern::default_host()) else { return };
        for name in attach::hosts_of(route).unwrap_or_default() {
            let Some(host) = intersection(&listener.host, &name) else { continue };
            let is_covered = host == default || host != name;
            for address in addresses {
                match id.kind.is_of_requests() {
                    true => {
                        let at = ListenerHost::deep(port, *address, host.clone());
                        self.serve(&at, &name);
                        self.covered.extend(is_covered.then_some(at));
                    }
                    false => self.sessions.extend(listener.session_place(options, *address, &host)),
                }
            }
            if host == name && host != default {
                self.named.insert(host);
            }
        }
        self.asked = asked_by(id, route);
    }

    /// Adds a place where a route is served by a name: of several the most specific counts.
    fn serve(&mut self, at: &ListenerHost, name: &HostPattern) {
        let rank = self.served.entry(at.clone()).or_default();
        *rank = specificity(name).max(*rank);
    }
}

fn asked_by(id: &ObjectRef, route: &Route) -> BTreeSet<Asked> {
    match id.kind.is_of_requests() {
        true => asked(id.kind, &route.spec.rules),
        false => BTreeSet::new(),
    }
}

/// The listeners of a world.
pub struct Standing<'w> {
    world: &'w World,
    options: &'w Options,
    gateways: Gateways<'w>,
    listeners: Listeners,
    /// Those that stand in Gateways themselves, once somebody asked for them.
    of_gateways: OnceCell<Listeners>,
}

impl<'w> Standing<'w> {
    /// Reads them; `known`: what those of guests leave to others, if the routes and sets of the world are those by which that was
    /// told. It takes all routes to tell it.
    pub fn of(world: &'w World, options: &'w Options, known: Option<&Arc<Left>>) -> Self {
        let mut scratch = Built::default();
        let classes = gateways::classes(options, &world.gateway_api, &mut scratch);
        let gateways = gateways::gateways(world, options, &classes, known, &mut scratch);
        let listeners = Listeners::of(&gateways);
        Standing { world, options, gateways, listeners, of_gateways: OnceCell::new() }
    }

    /// The hosts that a route would have, whether or not it is in the world.
    pub fn hosts_of(&mut self, id: &ObjectRef, route: &Route) -> RouteHosts {
        let Standing { world, options, gateways, listeners, .. } = self;
        let attached = attach::attach(world, options, id, route, gateways, &mut Room::default());
        let default = HostPattern::default_host();
        let mut named = named(&attached, gateways, listeners);
        named.remove(&default);
        let (named, asked) = (named.into_iter().cloned().collect(), asked_by(id, route));
        let mut hosts = RouteHosts { named, asked, ..RouteHosts::default() };
        for spots::Spot { listener, at, name, .. } in spots::spots(&attached, (gateways, listeners))
        {
            match id.kind.is_of_requests() {
                true => {
                    hosts.serve(&at, name);
                    let is_covered = at.host == default || at.host != *name;
                    hosts.covered.extend(is_covered.then_some(at));
                }
                false => {
                    hosts.sessions.extend(listener.session_place(options, at.address, &at.host));
                }
            }
        }
        hosts
    }

    /// Whether a listener of a Gateway would take a route for a host that it names: those of ListenerSets, to which the host may
    /// come there, may go unasked.
    pub fn may_have(&mut self, id: &ObjectRef, route: &Route, host: &HostPattern) -> bool {
        let Standing { world, options, gateways, of_gateways, .. } = self;
        let attached = attach::attach(world, options, id, route, gateways, &mut Room::default());
        let listeners = of_gateways.get_or_init(|| Listeners::of_gateways(gateways));
        named(&attached, gateways, listeners).contains(host)
    }

    /// The hosts that a route would have beside these by listeners that do not serve it now: what is in their way may be removed,
    /// and what they lack may come, and nobody is asked about that.
    pub fn hosts_behind(&mut self, id: &ObjectRef, route: &Route) -> RouteHosts {
        let Standing { world, options, gateways, .. } = self;
        let mut hosts = RouteHosts::default();
        for parent in &route.spec.parent_refs {
            let Some(object) = parent.object(&id.key.namespace) else { continue };
            let gateway = attach::gateway_of(world, &object);
            let Some(state) = gateway.and_then(|key| gateways.get_mut(&key)) else { continue };
            let addresses = state.addresses();
            let all = state.listeners.iter_mut().filter(|of| {
                !of.is_serving()
                    && of.home.is(object.kind, &object.key)
                    && attach::names(parent, of)
            });
            for listener in all {
                if attach::takes(world, id, listener) {
                    hosts.add(options, (id, route), listener, &addresses);
                }
            }
        }
        hosts
    }
}

/// A listener of a ListenerSet, by the set and its own name.
pub type OfSet = (Key, String);

impl Standing<'_> {
    /// The listeners of ListenerSets that stand.
    pub fn of_sets(&self) -> BTreeSet<OfSet> {
        let all = self.gateways.values().flat_map(GatewayState::accepted);
        let of_sets = all.filter(|listener| listener.home.kind == Kind::ListenerSet);
        of_sets.map(|listener| (listener.home.key.clone(), listener.spec.name.clone())).collect()
    }

    /// The addresses of the Gateway of a set.
    fn addresses(&self, own: &OwnListeners<'_>) -> Vec<Option<IpAddr>> {
        let gateway = own.gateway.as_ref().and_then(|key| self.gateways.get(key));
        gateway.map(GatewayState::addresses).unwrap_or_default()
    }

    /// Why a set may not be stored: a listener of another namespace's set falls, whose host is not `excepted`, or would fall as soon
    /// as nothing else is in the way of the new one, which its owner may remove unreviewed. `standing`: those that stand with the set.
    pub fn lost_by(
        &self,
        own: &OwnListeners<'_>,
        standing: &BTreeSet<OfSet>,
        excepted: impl Fn(&HostPattern, Home<'_>) -> bool,
    ) -> Option<String> {
        let addresses = self.addresses(own);
        let all = self.gateways.iter().flat_map(|(gateway, state)| {
            let meets = state.addresses().iter().any(|address| addresses.contains(address));
            let of_sets = state.accepted().filter(|one| one.home.kind == Kind::ListenerSet);
            of_sets.map(move |listener| (meets.then_some(gateway), listener))
        });
        let namespace = &own.object.key.namespace;
        let mut lost = all.filter(|(gateway, listener)| {
            let at = (listener.home.key.clone(), listener.spec.name.clone());
            *listener.home.key.namespace != **namespace
                && (!standing.contains(&at)
                    || gateway.is_some_and(|gateway| own.take(self.options, gateway, listener)))
                && !excepted(&listener.host, listener.home)
        });
        let (_, ListenerState { home, spec, .. }) = lost.next()?;
        Some(format!(
            "listener {} of ListenerSet {} would no longer stand: this set is older, and would have its port or host; use \
             another one, or bring the listener in a new ListenerSet",
            spec.name, home.key
        ))
    }
}

impl Standing<'_> {
    /// Whether a new listener of an older set would be in the way of one of another set that has this host, if its Gateway lets it
    /// in.
    pub fn is_in_way(
        &self,
        older: &OwnListeners<'_>,
        younger: &OwnListeners<'_>,
        host: &HostPattern,
    ) -> bool {
        let state = older.gateway.as_ref().and_then(|key| self.gateways.get(key));
        let is_allowed = older.gateway.as_ref().zip(state).is_some_and(|(key, state)| {
            let namespaces = &state.gateway.spec.allowed_listeners.namespaces;
            let from = namespaces.from.as_deref().unwrap_or("None");
            let by = (from, namespaces, &key.namespace);
            attach::admits(self.world, by, &older.object.key.namespace, &mut BTreeMap::new())
        });
        let addresses = self.addresses(younger);
        let meets = || self.addresses(older).iter().any(|address| addresses.contains(address));
        let gateway = younger.gateway.as_ref().filter(|_| is_allowed && meets());
        let mut named = younger.new_ones().filter(|listener| listener.host == *host);
        gateway.is_some_and(|gateway| {
            named.any(|listener| older.take(self.options, gateway, listener))
        })
    }
}

/// The listeners that a ListenerSet has not yet.
pub struct NewListeners<'w> {
    home: Home<'w>,
    set: &'w ListenerSet,
    specs: Vec<&'w Listener>,
}

impl<'w> NewListeners<'w> {
    /// Those of a set that is stored otherwise until now.
    pub fn new((key, set): (&'w Key, &'w ListenerSet), stored: Option<&ListenerSet>) -> Self {
        let stored = stored.filter(|old| old.spec.parent_ref == set.spec.parent_ref);
        let is_new = |one: &&Listener| stored.is_none_or(|old| !old.spec.listeners.contains(one));
        let specs = set.spec.listeners.iter().filter(is_new).collect();
        NewListeners { home: Home::of_set(key, set), set, specs }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Reads all listeners of the set, each by itself.
    pub fn read(&self, world: &World, options: &Options) -> OwnListeners<'w> {
        let state = |spec| listener::state(world, options, self.home, spec);
        let is_new = |one: &Listener| self.specs.iter().any(|new| std::ptr::eq(*new, one));
        OwnListeners {
            object: ObjectRef::new(Kind::ListenerSet, self.home.key.clone()),
            gateway: self.set.spec.gateway(&self.home.key.namespace),
            listeners: self.set.spec.listeners.iter().map(state).collect(),
            is_new: self.set.spec.listeners.iter().map(is_new).collect(),
            taking: BTreeMap::new(),
        }
    }
}

/// The listeners that a ListenerSet would have, each as it is by itself.
pub struct OwnListeners<'w> {
    object: ObjectRef,
    gateway: Option<Key>,
    listeners: Vec<ListenerState<'w>>,
    is_new: Vec<bool>,
    /// The listeners that take routes of a kind and a namespace, as far as that was asked.
    taking: BTreeMap<(Kind, Name), Vec<usize>>,
}

/// A route that the listeners of a ListenerSet admit.
pub struct Admitted<'r> {
    /// Its name.
    pub id: &'r ObjectRef,
    /// The route.
    pub route: &'r Arc<Route>,
    /// The new ones among these listeners, by their place.
    new: Vec<usize>,
}

impl<'w> OwnListeners<'w> {
    /// The routes that name the set and that a listener of it admits: what others write into their parents is nothing to a set that
    /// does not let them in.
    pub fn admitted<'r>(&mut self, world: &'r World) -> impl Iterator<Item = Admitted<'r>> {
        let all = world.gateway_api.routes.iter();
        all.filter_map(|(id, route)| self.admit(world, id, route))
    }

    fn admit<'r>(
        &mut self,
        world: &World,
        id: &'r ObjectRef,
        route: &'r Arc<Route>,
    ) -> Option<Admitted<'r>> {
        let OwnListeners { object, listeners, is_new, taking, .. } = self;
        let all = route.spec.parent_refs.iter();
        let mut parents = all.filter(|of| of.object(&id.key.namespace).as_ref() == Some(object));
        let first = parents.next()?;
        let taking = taking.entry((id.kind, id.key.namespace.clone())).or_insert_with(|| {
            let all = listeners.iter_mut().enumerate();
            let open = all.filter(|(_, of)| of.is_accepted());
            open.filter_map(|(at, of)| attach::takes(world, id, of).then_some(at)).collect()
        });
        if taking.is_empty() {
            return None;
        }
        let parents: Vec<&ParentRef> = iter::once(first).chain(parents).collect();
        let is_named = |at: &&usize| {
            let listener = listeners.get(**at);
            listener.is_some_and(|of| parents.iter().any(|parent| attach::names(parent, of)))
        };
        let named: Vec<usize> = taking.iter().filter(is_named).copied().collect();
        let new = named.iter().filter(|at| is_new.get(**at) == Some(&true)).copied().collect();
        (!named.is_empty()).then_some(Admitted { id, route, new })
    }

    /// The hosts for which new listeners show certificates.
    pub fn newly_certified(&self) -> impl Iterator<Item = &HostPattern> {
        let shows = |one: &&ListenerState<'_>| one.protocol.is_some_and(Protocol::has_certificate);
        self.new_ones().filter(shows).map(|listener| &listener.host)
    }

    /// The hosts that new listeners name.
    pub fn newly_named(&self) -> impl Iterator<Item = &HostPattern> {
        let default = HostPattern::default_host();
        self.new_ones().map(|listener| &listener.host).filter(move |host| **host != default)
    }

    fn new_ones(&self) -> impl Iterator<Item = &ListenerState<'w>> {
        self.listeners.iter().zip(&self.is_new).filter_map(|(one, is_new)| is_new.then_some(one))
    }

    /// Whether a new listener has what a listener of a younger set has, if nothing else is in its way.
    fn take(&self, options: &Options, gateway: &Key, other: &ListenerState<'_>) -> bool {
        let is_same_gateway = self.gateway.as_ref() == Some(gateway);
        let transport = |one: &ListenerState<'_>| {
            let (_, number) = one.number(options)?;
            Some(one.protocol?.transport(options, one.port.unwrap_or(number)))
        };
        self.new_ones().filter(|one| one.is_accepted() && one.home < other.home).any(|one| {
            let is_same_port =
                one.number(options).is_some() && one.number(options) == other.number(options);
            // At another Gateway both may stand, and yet the older has sessions, or says which certificates clients show.
            let is_same_host = one.host == other.host
                && (is_same_gateway
                    || one.protocol != other.protocol
                    || one.protocol != Some(Protocol::Http));
            is_same_port && (transport(one) != transport(other) || is_same_host)
        })
    }

    /// The hosts that a route would have by the new listeners, if nothing else is in their way.
    pub fn hosts_of(&self, standing: &Standing<'_>, of: &Admitted<'_>) -> RouteHosts {
        let mut hosts = RouteHosts::default();
        for listener in of.new.iter().filter_map(|at| self.listeners.get(*at)) {
            hosts.add(standing.options, (of.id, of.route), listener, &standing.addresses(self));
        }
        hosts
    }

    /// What of a route is judged by the set: all of one of its own namespace, and of another one's its places at the new listeners,
    /// which is what the set's namespace pays for.
    pub fn judged<'r>(&self, of: &Admitted<'r>) -> Cow<'r, Route> {
        if self.is_own(of.id) {
            return Cow::Borrowed(of.route);
        }
        let new = of.new.iter().filter_map(|at| self.listeners.get(*at));
        let sections: BTreeSet<&String> = new.map(|listener| &listener.spec.name).collect();
        let parent = |name: Option<&String>| {
            let mut parent = self.parents(of.id, of.route).next()?.clone();
            (parent.section_name, parent.port) = (name.cloned(), None);
            Some(parent)
        };
        Cow::Owned(narrowed(of.route, sections.into_iter().filter_map(|name| parent(Some(name)))))
    }

    /// What a route had that is compared with what is [`Self::judged`]: of another namespace's what it has by the set.
    pub fn judged_before<'r>(&self, id: &ObjectRef, route: &'r Route) -> Cow<'r, Route> {
        match self.is_own(id) {
            true => Cow::Borrowed(route),
            false => Cow::Owned(narrowed(route, self.parents(id, route).cloned())),
        }
    }

    /// How many places a route of another namespace has at the new listeners; `None`: it is of the set's own.
    pub fn places_of_guest(&self, of: &Admitted<'_>) -> Option<usize> {
        let hosts = of.route.spec.hostnames.len().max(1);
        (!self.is_own(of.id)).then(|| of.new.len().saturating_mul(hosts))
    }

    fn is_own(&self, id: &ObjectRef) -> bool {
        id.key.namespace == self.object.key.namespace
    }

    fn parents<'r>(&self, id: &ObjectRef, route: &'r Route) -> impl Iterator<Item = &'r ParentRef> {
        let all = route.spec.parent_refs.iter();
        all.filter(|parent| parent.object(&id.key.namespace).as_ref() == Some(&self.object))
    }
}

/// The hosts and matches of a route with these parents alone.
fn narrowed(route: &Route, parents: impl Iterator<Item = ParentRef>) -> Route {
    let mut narrow = Route { meta: route.meta.clone(), ..Route::default() };
    narrow.spec.parent_refs = parents.collect();
    narrow.spec.hostnames = route.spec.hostnames.clone();
    let matches = |rule: &HttpRouteRule| HttpRouteRule {
        matches: rule.matches.clone(),
        ..HttpRouteRule::default()
    };
    narrow.spec.rules = route.spec.rules.iter().map(matches).collect();
    narrow
}
