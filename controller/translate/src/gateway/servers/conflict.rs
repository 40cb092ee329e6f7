//! HTTPRoutes and GRPCRoutes that meet on one host of a listener: those of one namespace are never merged, and neither are those
//! of others with the routes of the namespace that has the host by its name.
//!
//! Order:   of a namespace the kind of its oldest route that has a rule; the kind of the host's owner comes first. Two names that
//!          overlap are two hosts: the more specific one has its requests, whatever the kinds are.
//! Exempt:  guests among each other, whose paths have owners: a route would else take those of others from them that it does not
//!          name. Routes that answer challenges alone, of the owner and of who obtains its certificates. Routes without rules
//!          keep nobody out.
//! Source:  `hostnames` of both kinds in Gateway API v1.7, which lets one of two routes be refused. Rejected: to refuse the younger
//!          one wherever names overlap. An old route without host names would keep all of the other kind from a listener, those
//!          of other namespaces and of more specific hosts too.

use super::memo::{ParentsOfHost, Refused};
use super::merge::{self, Place, Sides};
use super::rank::{self, Age, Ranked};
use super::spots::{spots, unserved};
use crate::Options;
use crate::gateway::Beside;
use crate::gateway::listeners::host::specificity;
use crate::gateway::listeners::isolation::Listeners;
use crate::gateway::listeners::state::Gateways;
use crate::gateway::routes::attach::Attachment;
use oxigress_core::model::ListenerHost;
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Name, ObjectRef};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The hosts where routes are not served, each with the reason.
pub type RefusedHosts = BTreeMap<ObjectRef, BTreeMap<ListenerHost, String>>;

/// Leaves each namespace routes of one kind on a host, and the guests of an owner those of its kind.
pub fn separate(
    options: &Options,
    beside: &Beside<'_>,
    (at, parents): (&ListenerHost, &ParentsOfHost),
    ranked: &mut Ranked,
    refused: &mut Refused,
) {
    let mut kinds = ranked.values().flat_map(|routes| routes.keys()).map(|age| age.2);
    let first = kinds.next();
    if kinds.all(|kind| Some(kind) == first) {
        return;
    }
    let place = Place { at, parents, eldest: rank::eldest(&at.host, ranked) };
    let Sides { owner, solvers } = Sides::of(options, beside, &place, ranked);
    let mut rivals: Vec<&Age> = ranked
        .values()
        .flatten()
        .filter(|(age, served)| !served.candidates.is_empty() && !solvers.contains(*age))
        .map(|(age, _)| age)
        .collect();
    rivals.sort();
    let of_owner = rivals.iter().find(|age| owner.as_ref() == Some(&age.1.namespace)).copied();
    let mut winners: BTreeMap<&Name, &Age> = BTreeMap::new();
    let mut losers: BTreeMap<Age, ObjectRef> = BTreeMap::new();
    for age in rivals {
        let own = winners.get(&age.1.namespace).copied();
        let winner = of_owner.into_iter().chain(own).find(|winner| winner.2 != age.2);
        match winner {
            Some(winner) => drop(losers.insert(age.clone(), rank::object(winner))),
            None => drop(winners.entry(&age.1.namespace).or_insert(age)),
        }
    }
    for (age, winner) in &losers {
        let why = format!(
            "host {}: {winner} is served there, and routes of two kinds are not merged, neither of one namespace nor with those \
             of the host's owner: use another host",
            at.host
        );
        refused.insert(rank::object(age), why);
    }
    ranked.values_mut().for_each(|routes| routes.retain(|age, _| !losers.contains_key(age)));
    ranked.retain(|_, routes| !routes.is_empty());
}

/// Leaves a host to the Ingress of another namespace that named it first, where a listener asks clients for certificates: neither
/// the listener nor others' routes there say what the owner's clients have to show, and no route is served without. `home` is the
/// namespace of the listener. Answers whether the host is left.
pub fn leave_to_ingress(
    options: &Options,
    beside: &Beside<'_>,
    (at, parents, home): (&ListenerHost, &ParentsOfHost, &Name),
    ranked: &mut Ranked,
    refused: &mut Refused,
) -> bool {
    let place = Place { at, parents, eldest: rank::eldest(&at.host, ranked) };
    let Some(owner) = merge::ingress_owner(options, beside, &place) else { return false };
    // What covers the host says nothing about it, as long as nobody else names it.
    let named = ranked.get(&Reverse(specificity(&at.host)));
    let mut named = named.into_iter().flat_map(|routes| routes.keys());
    if *home == owner || named.any(|age| age.1.namespace == owner) {
        return false;
    }
    for age in ranked.values().flat_map(|routes| routes.keys()) {
        let why = format!(
            "host {}: an Ingress of namespace {owner} has it, and the listener asks for client certificates that its \
             requests need not show: use another host",
            at.host
        );
        refused.insert(rank::object(age), why);
    }
    ranked.clear();
    true
}

/// What a route is told that is not served on some hosts: why it is refused at a parent where it is served on none, by the place of
/// the attachment, and what it loses where it is served on others.
pub fn report(
    id: &ObjectRef,
    attached: &[Attachment],
    hosts: &BTreeMap<ListenerHost, String>,
    by: (&Gateways<'_>, &Listeners),
) -> (BTreeMap<usize, Condition>, Vec<Note>) {
    let mut refusals = BTreeMap::new();
    let mut notes: Vec<_> = report_taken(id, attached, by).into_iter().collect();
    if hosts.is_empty() {
        return (refusals, notes);
    }
    for (place, attachment) in attached.iter().enumerate() {
        let all: Vec<_> = spots(std::slice::from_ref(attachment), by).collect();
        let lost = all.iter().find_map(|spot| Some((spot.listener, hosts.get(&spot.at)?)));
        let Some((listener, why)) = lost else { continue };
        let why = format!("port {}, {why}", listener.spec.port);
        if all.iter().all(|spot| hosts.contains_key(&spot.at)) {
            refusals.insert(place, Condition::no("Accepted", "HostnameConflict", why));
        } else {
            notes.push(Note::rejected(why));
        }
    }
    (refusals, notes)
}

/// What a route is told of the first of its hosts whose requests come to listeners to which it is not attached. Whose they are is
/// said to their own namespace alone.
fn report_taken(
    id: &ObjectRef,
    attached: &[Attachment],
    by: (&Gateways<'_>, &Listeners),
) -> Option<Note> {
    let mut taken = unserved(attached, by).peekable();
    taken.peek()?;
    let served: BTreeSet<_> = spots(attached, by).map(|spot| spot.at).collect();
    let (listener, at) = taken.find(|(_, at)| !served.contains(at))?;
    let (object, _) = by.1.owner(&at)?;
    let is_own = object.key.namespace == id.key.namespace;
    let whose = if is_own { object.to_string() } else { "another Gateway or ListenerSet".into() };
    Some(Note::warning(format!(
        "port {}, host {}: requests come to a listener of {whose}, whose hostname is more specific and to which this route \
         is not attached: attach it there, or use another host",
        listener.spec.port, at.host
    )))
}
