//! Which hosts routes would have, for reviews of objects that are about to be stored.

use super::isolation::Listeners;
use super::listener_set::Left;
use super::room::Room;
use super::state::Gateways;
use super::{Built, attach, gateways, named, spots};
use crate::Options;
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace};
use oxigress_objects::gateway::Route;
use oxigress_objects::{ObjectRef, World};
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
