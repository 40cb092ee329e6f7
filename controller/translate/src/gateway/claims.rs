//! Which hosts objects of the Gateway API name: whose a host is follows from the oldest of them.

use super::gateways::listener_set;
use super::listeners::isolation;
use super::listeners::state::{GatewayState, Gateways};
use super::routes::attach::{self, Attached, Attachment};
use super::routes::room::{Room, Taken};
use super::servers::memo::{Memo, NamedHosts, Totals};
use super::{Built, gateways};
use crate::Options;
use crate::claim::age::Age;
use crate::host::owner::GatewayClaim;
use oxigress_core::model::HostPattern;
use oxigress_objects::{Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};

/// Which hosts objects of the Gateway API name.
#[derive(Default)]
pub struct Claims {
    /// Those that routes and listeners of Gateways name, each with the oldest of them.
    pub named: BTreeMap<HostPattern, GatewayClaim>,
    /// Those of listeners of ListenerSets, which make nobody the owner.
    pub of_sets: BTreeMap<HostPattern, BTreeSet<Age>>,
    /// The routes for which their namespaces have no places, which name nothing.
    pub unplaced: BTreeSet<ObjectRef>,
}

/// The hosts that accepted listeners and attached routes name. All hosts are named by routes without host names, and by no
/// listener: most Gateways have one of all hosts. What listeners of guests leave is remembered for the next [`super::build`], which
/// has to be of the same world.
pub fn claims(world: &World, options: &Options, memo: &mut Memo) -> Claims {
    (memo.left, memo.totals, memo.named) = (None, None, NamedHosts::default());
    let objects = &world.gateway_api;
    let (mut scratch, mut all) = (Built::default(), Claims::default());
    let classes = gateways::classes(options, objects, &mut scratch);
    if classes.is_empty() {
        return all;
    }
    let mut gateways = gateways::gateways(world, options, &classes, None, &mut scratch);
    memo.left = Some(scratch.left);
    let listeners = isolation::Listeners::of(&gateways);
    for listener in gateways.values().flat_map(GatewayState::accepted) {
        let (host, home) = (&listener.host, listener.home);
        match home.kind {
            Kind::Gateway => memo.named.add_listener(host, home.age()),
            _ if *host == HostPattern::default_host() => {}
            _ => {
                all.of_sets.entry(host.clone()).or_default().insert(home.age());
            }
        }
    }
    let routes = attach::all(world, options, &mut gateways, &mut Room::default());
    for Attached { id, route, at, .. } in routes {
        if at.iter().any(|attachment| !attachment.has_places) {
            all.unplaced.insert(id.clone());
        }
        let hosts = named(&at, &gateways, &listeners).into_iter().cloned().collect();
        memo.named.set_route(id, route.meta.created, hosts);
    }
    all.named = memo.named.claims();
    all
}

/// The hosts of which another object makes somebody the owner since these routes changed; `None`: all is to be told again.
///
/// Nothing else may have changed. How the routes are attached is remembered for the next [`super::edit`].
pub fn edited(
    world: &World,
    options: &Options,
    memo: &mut Memo,
    routes: &BTreeSet<ObjectRef>,
) -> Option<BTreeMap<HostPattern, Option<GatewayClaim>>> {
    // Without them all is built again, whatever comes of this.
    let mut totals = memo.totals.take()?;
    if routes.iter().any(|id| totals.is_ordered(&id.key.namespace)) {
        return None;
    }
    let mut scratch = Built::default();
    let classes = gateways::classes(options, &world.gateway_api, &mut scratch);
    let left = Some(&totals.left);
    let mut gateways = gateways::gateways(world, options, &classes, left, &mut scratch);
    let now = |id| world.gateway_api.routes.get(id).map(AsRef::as_ref);
    let both = routes.iter().flat_map(|id| [memo.route(id), now(id)]);
    if classes.is_empty() {
        return None;
    }
    if listener_set::guests_have(&gateways, both.flatten()) {
        scratch = Built::default();
        gateways = gateways::gateways(world, options, &classes, None, &mut scratch);
        if scratch.left != totals.left {
            return None;
        }
    }
    memo.left = Some(totals.left.clone());
    let listeners = isolation::Listeners::of(&gateways);
    let mut touched = BTreeSet::new();
    for id in routes {
        let (attached, created) =
            attach_again(world, options, id, (&mut *memo, &mut totals), &mut gateways)?;
        let hosts = named(&attached.0, &gateways, &listeners).into_iter().cloned().collect();
        touched.extend(memo.named.set_route(id, created, hosts));
        totals.pending.insert(id.clone(), attached);
    }
    memo.totals = Some(totals);
    let claims = touched.into_iter().map(|host| {
        let claim = memo.named.claim(&host);
        (host, claim)
    });
    Some(claims.collect())
}

/// Attaches a route that has changed; answers what is pending, and when the route was created. `None`: the order of the routes of its
/// namespace counts.
fn attach_again(
    world: &World,
    options: &Options,
    id: &ObjectRef,
    (memo, totals): (&mut Memo, &mut Totals),
    gateways: &mut Gateways<'_>,
) -> Option<((Vec<Attachment>, Taken), i64)> {
    let namespace = &id.key.namespace;
    totals.room.give_back(namespace, memo.take_places(id));
    let Some(route) = world.gateway_api.routes.get(id) else {
        return Some(Default::default());
    };
    let before = totals.room.of(namespace);
    let attached = attach::attach(world, options, id, route, gateways, &mut totals.room);
    let taken = totals.room.of(namespace).since(before);
    (!totals.is_ordered(namespace)).then_some(((attached, taken), route.meta.created))
}

/// The hosts that a route names by attaching to listeners by which it is served there: not where a more specific listener has the
/// host. The host of a listener is not named by a route that has written none or a wildcard.
pub fn named<'a>(
    attached: &'a [Attachment],
    gateways: &Gateways<'_>,
    listeners: &isolation::Listeners,
) -> BTreeSet<&'a HostPattern> {
    let mut all = BTreeSet::new();
    for attachment in attached {
        let Some(state) = gateways.get(&attachment.gateway) else { continue };
        for (place, hosts) in &attachment.listeners {
            let Some(listener) = state.listeners.get(*place) else { continue };
            let is_its = |host: &HostPattern| listeners.has(state, listener, host);
            let named = hosts.iter().filter(|(host, own)| host == own && is_its(host));
            all.extend(named.map(|(host, _)| host));
        }
    }
    all
}
