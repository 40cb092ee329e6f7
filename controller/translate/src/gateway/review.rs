//! Which hosts routes would have, for reviews of objects that are about to be stored.

use super::isolation::Listeners;
use super::listener_set::Left;
use super::room::Room;
use super::state::{Gateways, Home, ListenerState};
use super::{Built, attach, gateways, listener, named, spots};
use crate::Options;
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace};
use oxigress_objects::gateway::{Listener, ListenerSet, ParentRef, Route};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
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
}

/// The listeners of a world.
pub struct Standing<'w> {
    world: &'w World,
    options: &'w Options,
    gateways: Gateways<'w>,
    listeners: Listeners,
}

impl<'w> Standing<'w> {
    /// Reads them; `known`: what those of guests leave to others, if the routes and sets of the world are those by which that was
    /// told. It takes all routes to tell it.
    pub fn of(world: &'w World, options: &'w Options, known: Option<&Arc<Left>>) -> Self {
        let mut scratch = Built::default();
        let classes = gateways::classes(options, &world.gateway_api, &mut scratch);
        let gateways = gateways::gateways(world, options, &classes, known, &mut scratch);
        let listeners = Listeners::of(&gateways);
        Standing { world, options, gateways, listeners }
    }

    /// The hosts that a route would have, whether or not it is in the world.
    pub fn hosts_of(&mut self, id: &ObjectRef, route: &Route) -> RouteHosts {
        let Standing { world, options, gateways, listeners } = self;
        let attached = attach::attach(world, options, id, route, gateways, &mut Room::default());
        let default = HostPattern::default_host();
        let mut named = named(&attached, gateways, listeners);
        named.remove(&default);
        let mut hosts =
            RouteHosts { named: named.into_iter().cloned().collect(), ..RouteHosts::default() };
        for spots::Spot { listener, at, name, .. } in spots::spots(&attached, (gateways, listeners))
        {
            match id.kind.is_of_requests() {
                true if at.host == default || at.host != *name => drop(hosts.covered.insert(at)),
                true => {}
                false => {
                    hosts.sessions.extend(listener.session_place(options, at.address, &at.host));
                }
            }
        }
        hosts
    }
}

/// The listeners that a ListenerSet has not yet.
pub struct NewListeners<'w> {
    home: Home<'w>,
    object: ObjectRef,
    specs: Vec<&'w Listener>,
}

impl<'w> NewListeners<'w> {
    /// Those of a set that is stored otherwise until now.
    pub fn new((key, set): (&'w Key, &'w ListenerSet), stored: Option<&ListenerSet>) -> Self {
        let stored = stored.filter(|old| old.spec.parent_ref == set.spec.parent_ref);
        let is_new = |one: &&Listener| stored.is_none_or(|old| !old.spec.listeners.contains(one));
        let specs = set.spec.listeners.iter().filter(is_new).collect();
        let object = ObjectRef::new(Kind::ListenerSet, key.clone());
        NewListeners { home: Home::of_set(key, set), object, specs }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The routes that name the set.
    pub fn routes<'r>(
        &self,
        world: &'r World,
    ) -> impl Iterator<Item = (&'r ObjectRef, &'r Arc<Route>)> {
        let all = world.gateway_api.routes.iter();
        all.filter(|(id, route)| self.parents(id, route).next().is_some())
    }

    fn parents<'r>(&self, id: &ObjectRef, route: &'r Route) -> impl Iterator<Item = &'r ParentRef> {
        let all = route.spec.parent_refs.iter();
        all.filter(|parent| parent.object(&id.key.namespace).as_ref() == Some(&self.object))
    }

    /// Reads them, each by itself.
    pub fn read(&self, world: &World, options: &Options) -> Vec<ListenerState<'w>> {
        self.specs.iter().map(|spec| listener::state(world, options, self.home, spec)).collect()
    }

    /// The hosts that a route names at them, if nothing else is in their way.
    pub fn named_by(
        &self,
        world: &World,
        (id, route): (&ObjectRef, &Route),
        listeners: &mut [ListenerState<'w>],
    ) -> BTreeSet<HostPattern> {
        let parents = self.parents(id, route);
        let hosts = parents.flat_map(|parent| {
            attach::names_at(world, (id, route), (parent, self.home), listeners)
        });
        hosts.collect()
    }
}
