//! What is served where: the rules of one host on one port, those of routes by age, with those of the host's Ingresses.

use super::attach::Attachment;
use super::conflict::{self, Refused};
use super::host::{Wildcards, specificity};
use super::isolation::Listeners;
use super::memo::{HostInput, HttpsListener, KnownRoute, Memo, Outcome};
use super::merge::{self, Place};
use super::rank::{self, Flat, Ranked};
use super::room::{Meeting, Room};
use super::sessions::Sessions;
use super::spots::{Spot, spots};
use super::state::{GatewayState, Gateways, ListenerState};
use super::work::{self, Step};
use super::{Beside, Built, Shown};
use crate::Options;
use crate::host::certificate;
use crate::host::owner::HostOwnership;
use crate::ingress::urls;
use oxigress_core::model::policy::{Policies, PolicyId, TlsPolicy};
use oxigress_core::model::{BackendId, HostPattern, ListenerHost, Server, SessionRoute};
use oxigress_objects::gateway::Route;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is served where, while routes are added.
#[derive(Default)]
pub struct Serving {
    hosts: BTreeMap<ListenerHost, Ranked>,
    /// The namespaces of a host's routes, each with that of a Gateway by which they are served on any port.
    parents: BTreeMap<HostPattern, BTreeSet<(Name, Name)>>,
    policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// Backends with affinity, with the hosts and paths that give out their cookies.
    sticky: BTreeMap<BackendId, BTreeMap<String, BTreeSet<String>>>,
    sessions: Sessions,
    /// The hosts where a route is not served, since others are.
    refused: Refused,
    /// The listeners of HTTPS, what their clients have to show, and the namespaces that say so.
    https: BTreeMap<ListenerHost, (Option<TlsPolicy>, Name)>,
    /// How much the routes of each namespace have taken.
    pub room: Room,
}

impl Serving {
    /// Adds the rules of a route where it is attached.
    pub fn add(
        &mut self,
        options: &Options,
        (id, route): (&ObjectRef, &Route),
        attached: &[Attachment<'_>],
        known: &mut KnownRoute,
        by: (&Gateways<'_>, &Listeners),
    ) {
        if !id.kind.is_of_requests() {
            let with = (&mut self.room, &mut self.policies);
            let spots = spots(attached, by);
            return self.sessions.add(options, (id, route), spots, known, with);
        }
        let ObjectRef { kind, key } = id;
        let (mut served, mut made) = (BTreeSet::new(), None);
        for Spot { listener, at, name, .. } in spots(attached, by) {
            let rank = Reverse(specificity(name));
            if !served.insert((at.clone(), rank)) {
                continue;
            }
            // A host without rules is one, too: it leaves its requests to no less specific one.
            if !self.room.has_rules(key, *kind, known.count().max(1)) {
                known.lacks_room = true;
                continue;
            }
            // Nothing is made of a route before there is room for it.
            let rules = match made.take().filter(|(by, _)| std::ptr::eq(*by, listener)) {
                Some((_, rules)) => rules,
                None if !self.room.has_filters(key, *kind, known.bytes_at(listener)) => {
                    known.lacks_room = true;
                    continue;
                }
                None => {
                    let rules = known.served_at(key, listener);
                    self.policies.extend(rules.policies.clone());
                    rules
                }
            };
            for (backend, path) in &rules.sticky {
                let hosts = self.sticky.entry(backend.clone()).or_default();
                hosts.entry(at.host.to_string()).or_default().insert(path.clone());
            }
            made = Some((listener, rules.clone()));
            let parents = self.parents.entry(at.host.clone()).or_default();
            parents.insert((key.namespace.clone(), listener.home.key.namespace.clone()));
            let age = (route.meta.created, key.clone(), *kind);
            let routes = self.hosts.entry(at).or_default();
            routes.entry(rank).or_default().insert(age, rules);
        }
        known.forget_unused();
    }

    /// Adds the hosts of listeners, also where no route serves them, and their certificates: of several that of the object that
    /// comes first.
    fn add_listeners(&mut self, gateways: &Gateways<'_>, built: &mut Built) {
        let of_one = |state| {
            let all = GatewayState::standing(state);
            all.map(move |listener| (listener, state))
        };
        let mut all: Vec<_> = gateways.values().flat_map(of_one).collect();
        all.sort_by_key(|(listener, _)| listener.home);
        for (listener, state) in &all {
            let Some(port) = listener.port else { continue };
            let host = listener.host.clone();
            if let Some(id) = listener.certificate.clone().filter(|_| listener.is_serving()) {
                let shown = || Shown { id, age: listener.home.age(), kind: listener.home.kind };
                built.certificates.entry(host.clone()).or_insert_with(shown);
            }
            for address in state.addresses().into_iter().filter(|_| listener.is_http()) {
                let at = ListenerHost::deep(port, address, host.clone());
                if listener.is_https() {
                    let asks = || (listener.clients.clone(), listener.home.key.namespace.clone());
                    self.https.entry(at.clone()).or_insert_with(asks);
                }
                self.hosts.entry(at).or_default();
            }
        }
        leave_certificates(all.into_iter().map(|(listener, _)| listener), built);
    }

    /// Puts the servers together; answers which routes are not served where.
    pub fn finish(
        mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        (gateways, listeners): (&Gateways<'_>, &Listeners),
        (old, memo): (&mut Memo, &mut Memo),
        built: &mut Built,
    ) -> Refused {
        self.add_listeners(gateways, built);
        let (mut named, mut used) = (BTreeMap::new(), BTreeSet::new());
        let mut keep = |outcome: &Outcome, places: &[ListenerHost], built: &mut Built| {
            built.note_owner(places, outcome.owner.as_ref());
            built.notes.extend(outcome.notes.iter().cloned());
            named.extend(outcome.named.iter().map(|(id, by)| (id.clone(), by.clone())));
            used.extend(outcome.used_backends.iter().cloned());
        };
        let parents = std::mem::take(&mut self.parents);
        for (at, mut ranked) in std::mem::take(&mut self.hosts) {
            let none = BTreeSet::new();
            let parents = parents.get(&at.host).unwrap_or(&none);
            conflict::separate(options, beside, (&at, parents), &mut ranked, &mut self.refused);
            let places: Vec<_> = one_label(&at, beside).into_iter().chain([at.clone()]).collect();
            let listener = self.https_listener(&at, listeners).filter(|(of, home)| {
                let place = (&at, parents, home);
                let refused = &mut self.refused;
                of.clients.is_none()
                    || !conflict::leave_to_ingress(options, beside, place, &mut ranked, refused)
            });
            let listener = listener.map(|(of, _)| of);
            let input = HostInput { at: &at, ranked: &ranked, parents, listener };
            if let Some(known) = old.take_host(&input, beside, &mut self.room) {
                keep(&known.outcome, &places, built);
                built.servers.extend(places.into_iter().map(|at| (at, None)));
                memo.put_host(at, known);
                continue;
            }
            let (outcome, meeting) = self.merge(world, options, beside, (&input, &places), built);
            keep(&outcome, &places, built);
            let known = input.known(beside, meeting, outcome);
            memo.put_host(at, known);
        }
        let mut refused = std::mem::take(&mut self.refused);
        let sessions = std::mem::take(&mut self.sessions);
        sessions.finish(options, beside, (gateways, listeners), &mut refused, built);
        note_sessions(built.sessions.values(), &mut named, &mut used);
        self.keep_named(&named, used, built);
        refused
    }

    /// The listener of HTTPS that has a host, and its namespace.
    fn https_listener(
        &self,
        at: &ListenerHost,
        listeners: &Listeners,
    ) -> Option<(HttpsListener, Name)> {
        let host = listeners.most_specific(at)?;
        let at = ListenerHost::deep(at.port, at.address, host.clone());
        let (clients, home) = self.https.get(&at)?.clone();
        Some((HttpsListener { at, clients }, home))
    }

    /// Puts the rules of a host together, which are the same at each of its places.
    fn merge(
        &mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        (input, places): (&HostInput<'_>, &[ListenerHost]),
        built: &mut Built,
    ) -> (Outcome, Meeting) {
        let HostInput { at, ranked, parents, ref listener } = *input;
        let mut outcome = Outcome::default();
        let is_shared = options.host_ownership == HostOwnership::Shared;
        let namespaces =
            ranked.values().flat_map(|routes| routes.keys()).map(|age| &age.1.namespace);
        let mut meeting = self.room.begin_meeting(namespaces.filter(|_| ranked.len() > 1));
        let Flat { routes, notes, left_out } =
            rank::flatten(&at.host, ranked, is_shared, &mut self.room);
        self.room.end_meeting(&mut meeting, left_out);
        outcome.notes = notes;
        let eldest = rank::eldest(&at.host, ranked);
        for at in places {
            work::count(Step::Merged);
            let place = Place { at, parents, eldest };
            let server = merge::merge(world, options, beside, &place, &routes, &mut outcome);
            let tls = listener.as_ref().and_then(|of| of.clients.clone()).map(Box::new);
            let listener = listener.as_ref().map(|of| of.at.clone());
            let server = Server { listener, tls, ..server };
            built.servers.insert(at.clone(), Some(server));
        }
        (outcome, meeting)
    }

    /// Keeps the policies that rules name, and what these and the rules lead to: what no rule leads to needs no endpoints.
    fn keep_named(
        mut self,
        named: &BTreeMap<PolicyId, ObjectRef>,
        mut used: BTreeSet<BackendId>,
        built: &mut Built,
    ) {
        built.notes.extend(self.room.notes());
        self.policies.retain(|id, _| named.contains_key(id));
        for (id, policies) in &self.policies {
            let Some(route) = named.get(id) else { continue };
            used.extend(policies.backends().cloned());
            for url in urls(policies) {
                built.urls.entry(url.clone()).or_default().insert(route.clone());
            }
        }
        built.backends.retain(|id, _| used.contains(id));
        for (id, locations) in self.sticky {
            if let Some(backend) = built.backends.get_mut(&id) {
                backend.locations = locations;
            }
        }
        built.policies = self.policies;
    }
}

/// Notes which policies the targets of sessions name, and where they lead.
fn note_sessions<'s>(
    sessions: impl Iterator<Item = &'s SessionRoute>,
    named: &mut BTreeMap<PolicyId, ObjectRef>,
    used: &mut BTreeSet<BackendId>,
) {
    for route in sessions {
        let by =
            || ObjectRef::new(Kind::TLSRoute, Key::new(&*route.namespace, route.route.as_str()));
        for target in &route.targets {
            used.extend(target.backend.clone());
            named.extend(target.policies.clone().map(|id| (id, by())));
        }
    }
}

/// Shows hosts that listeners leave to others what would be shown if these listeners were not there: their certificates are for
/// hosts of their own.
fn leave_certificates<'s, 'w: 's>(
    listeners: impl Iterator<Item = &'s ListenerState<'w>>,
    built: &mut Built,
) {
    let mut leavers = BTreeMap::new();
    for listener in listeners {
        let shown = built.certificates.get(&listener.host);
        let is_its = |shown: &Shown| listener.home.is(shown.kind, &shown.age.key);
        if let Some(leaves) = listener.leaves.as_ref().filter(|_| shown.is_some_and(is_its)) {
            leavers.entry(&listener.host).or_insert((leaves, listener.home));
        }
    }
    if leavers.is_empty() {
        return;
    }
    let mut wildcards = Wildcards::default();
    for (host, shown) in &built.certificates {
        let Some(below) = host.as_str().strip_prefix('*') else { continue };
        wildcards.insert(below, (leavers.get(host), shown));
    }
    let shown = built.left.hosts().filter_map(|(host, named)| {
        let (mut home, mut shown) = (None, None);
        for (leaver, by) in wildcards.above(host) {
            match leaver.filter(|(leaves, _)| leaves.leave(named)) {
                Some((_, of)) => home = home.into_iter().chain([*of]).min(),
                None => {
                    shown = Some(Shown::clone(by));
                    break;
                }
            }
        }
        let home = home?;
        // The default one.
        let none = || Shown { id: certificate::none(), age: home.age(), kind: home.kind };
        Some((host.clone(), shown.unwrap_or_else(none)))
    });
    let shown: Vec<_> = shown.collect();
    for (host, shown) in shown {
        built.certificates.entry(host).or_insert(shown);
    }
}

/// The hosts that an Ingress means by the star of a host, if one has it: it stands for one label, and deeper hosts have the rules
/// of routes alone.
fn one_label(at: &ListenerHost, beside: &Beside<'_>) -> Option<ListenerHost> {
    let is_beside = at.is_deep && at.address.is_none() && beside.servers.contains_key(&at.host);
    is_beside.then(|| ListenerHost::of_one_label(at.port, at.host.clone()))
}
