//! Where routes are served: each host of each listener to which they are attached.

use crate::gateway::listeners::isolation::Listeners;
use crate::gateway::listeners::state::{GatewayState, Gateways, ListenerState};
use crate::gateway::routes::attach::Attachment;
use oxigress_core::model::{HostPattern, ListenerHost};
use std::net::IpAddr;

/// A host where a route is attached and served.
pub struct Spot<'a, 'w> {
    /// The listener by which it is.
    pub listener: &'a ListenerState<'w>,
    /// The host.
    pub at: ListenerHost,
    /// The route's own name for it.
    pub name: &'a HostPattern,
}

/// Whether a route is served anywhere, if there is room.
pub fn is_anywhere(attached: &[Attachment], by: (&Gateways<'_>, &Listeners)) -> bool {
    spots(attached, by).next().is_some()
}

/// The hosts where a route is served, at each of its listeners.
pub fn spots<'a, 'w>(
    attached: &'a [Attachment],
    by @ (_, listeners): (&'a Gateways<'w>, &'a Listeners),
) -> impl Iterator<Item = Spot<'a, 'w>> {
    all(attached, by.0).filter(|Spot { listener, at, .. }| listeners.is_of(listener, at))
}

/// The hosts of listeners to which a route is attached whose requests come to other listeners.
pub fn unserved<'a, 'w>(
    attached: &'a [Attachment],
    by @ (_, listeners): (&'a Gateways<'w>, &'a Listeners),
) -> impl Iterator<Item = (&'a ListenerState<'w>, ListenerHost)> {
    let all =
        all(attached, by.0).filter(|Spot { listener, at, .. }| !listeners.is_of(listener, at));
    all.map(|Spot { listener, at, .. }| (listener, at))
}

fn all<'a, 'w>(
    attached: &'a [Attachment],
    gateways: &'a Gateways<'w>,
) -> impl Iterator<Item = Spot<'a, 'w>> {
    let all = attached.iter().flat_map(move |attachment| {
        let state = gateways.get(&attachment.gateway);
        state.into_iter().flat_map(move |state| {
            let all = attachment.listeners.iter();
            all.filter_map(move |(place, hosts)| Some((state, state.listeners.get(*place)?, hosts)))
        })
    });
    all.flat_map(move |(state, listener, hosts)| {
        let port = listener.port.filter(|_| listener.is_serving());
        let all = port.into_iter().flat_map(move |port| {
            places(state, hosts).map(move |(address, names)| (port, address, names))
        });
        all.map(move |(port, address, (host, own))| {
            let at = ListenerHost::deep(port, address, host.clone());
            Spot { listener, at, name: own }
        })
    })
}

/// Every address of a Gateway with each of these hosts.
fn places<'h, H>(
    state: &GatewayState<'_>,
    hosts: &'h [H],
) -> impl Iterator<Item = (Option<IpAddr>, &'h H)> {
    let addresses = state.addresses().into_iter();
    addresses.flat_map(move |address| hosts.iter().map(move |host| (address, host)))
}
