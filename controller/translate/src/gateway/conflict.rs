//! HTTPRoutes and GRPCRoutes that meet on one host of a listener: they are never merged, so routes of one kind are served there.
//!
//! Order:   the kind of the oldest route of the host's owner, or else of the oldest route. Two names that overlap are two hosts:
//!          the more specific one has its requests, whatever the kinds are.
//! Source:  `hostnames` of both kinds in Gateway API v1.7, which lets one of two routes be refused. Rejected: to refuse the younger
//!          one wherever names overlap. An old route without host names would keep all of the other kind from a listener, those
//!          of other namespaces and of more specific hosts too.

use super::attach::{Attached, Attachment};
use super::isolation::Listeners;
use super::merge::{self, Place};
use super::rank::{self, Ranked};
use super::state::Gateways;
use super::{Beside, Built};
use crate::Options;
use oxigress_core::model::ListenerHost;
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};

/// The hosts where a route is not served, each with the reason.
pub type Refused = BTreeMap<ObjectRef, BTreeMap<ListenerHost, String>>;

/// Leaves a host routes of one kind.
pub fn separate(
    options: &Options,
    beside: &Beside<'_>,
    (at, parents): (&ListenerHost, &BTreeSet<(Name, Name)>),
    ranked: &mut Ranked,
    refused: &mut Refused,
) {
    let mut kinds = ranked.values().flat_map(|routes| routes.keys()).map(|age| age.2);
    let first = kinds.next();
    if kinds.all(|kind| Some(kind) == first) {
        return;
    }
    let place = Place { at, parents, eldest: rank::eldest(&at.host, ranked) };
    let owner = merge::owner_of(options, beside, &place);
    let is_guest = |namespace| owner.as_ref().is_some_and(|owner| owner != namespace);
    let all = ranked.values().flat_map(|routes| routes.keys());
    let winner = all.min_by_key(|age| (is_guest(&age.1.namespace), *age)).cloned();
    let Some(winner) = winner else { return };
    for routes in ranked.values_mut() {
        routes.retain(|age, _| {
            let is_kept = age.2 == winner.2;
            if !is_kept {
                let hosts = refused.entry(rank::object(age)).or_default();
                let winner = rank::object(&winner);
                let why =
                    "is served there, and routes of two kinds are not merged: use another host";
                let why = format!("host {}: {winner} {why}", at.host);
                hosts.insert(at.clone(), why);
            }
            is_kept
        });
    }
    ranked.retain(|_, routes| !routes.is_empty());
}

/// Refuses routes that are served nowhere at a parent, and tells those that are served on other hosts alone.
pub fn report(
    routes: &mut [Attached<'_>],
    refused: &Refused,
    by: (&Gateways<'_>, &Listeners),
    built: &mut Built,
) {
    if refused.is_empty() {
        return;
    }
    for (id, _, attached) in routes {
        let Some(hosts) = refused.get(id) else { continue };
        for attachment in attached {
            let all = hosts_of(attachment, by);
            let lost = all.iter().find_map(|at| Some((at, hosts.get(at)?)));
            let Some((at, why)) = lost else { continue };
            let why = format!("port {}, {why}", at.port);
            if all.iter().all(|at| hosts.contains_key(at)) {
                attachment.refusal = Some(Condition::no("Accepted", "HostnameConflict", why));
            } else {
                built.notes.push((id.clone(), Note::rejected(why)));
            }
        }
    }
}

/// The hosts that a route has by a parent.
fn hosts_of(
    attachment: &Attachment<'_>,
    (gateways, listeners): (&Gateways<'_>, &Listeners),
) -> Vec<ListenerHost> {
    let Some(state) = gateways.get(&attachment.gateway) else { return Vec::new() };
    let mut all = Vec::new();
    for (place, hosts) in &attachment.listeners {
        let Some(listener) = state.listeners.get(*place) else { continue };
        let Some(port) = listener.port.filter(|_| listener.is_serving()) else { continue };
        for address in state.addresses() {
            let places =
                hosts.iter().map(|(host, _)| ListenerHost::deep(port, address, host.clone()));
            all.extend(places.filter(|at| listeners.most_specific(at) == Some(&listener.host)));
        }
    }
    all
}
