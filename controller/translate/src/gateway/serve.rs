//! What is served where: the rules of one host on one port, those of routes by age, with those of the host's Ingresses.

use super::attach::Attachment;
use super::conflict::{self, Refused};
use super::host::specificity;
use super::isolation::Listeners;
use super::memo::{HostInput, KnownRoute, Memo, Outcome};
use super::merge::{self, Place};
use super::rank::{self, Flat, Ranked};
use super::room::Room;
use super::sessions::Sessions;
use super::state::{GatewayState, Gateways, by_age};
use super::work::{self, Step};
use super::{Beside, Built};
use crate::Options;
use crate::age;
use crate::host::owner::HostOwnership;
use crate::ingress::urls;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{BackendId, HostPattern, ListenerHost};
use oxigress_objects::gateway::Route;
use oxigress_objects::{Name, ObjectRef, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is served where, while routes are added.
#[derive(Default)]
pub struct Serving {
    hosts: BTreeMap<ListenerHost, Ranked>,
    /// The namespaces of a host's routes, each with that of a Gateway by which they are served on any port.
    parents: BTreeMap<HostPattern, BTreeSet<(Name, Name)>>,
    policies: BTreeMap<PolicyId, Arc<Policies>>,
    sessions: Sessions,
    /// The hosts where a route is not served, since others are.
    refused: Refused,
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
        (gateways, listeners): (&Gateways<'_>, &Listeners),
    ) {
        if !id.kind.is_of_requests() {
            let (by, room) = ((gateways, listeners), &mut self.room);
            return self.sessions.add(options, (id, route), attached, known, by, room);
        }
        let ObjectRef { kind, key } = id;
        let mut served = BTreeSet::new();
        for attachment in attached {
            let Some(state) = gateways.get(&attachment.gateway) else { continue };
            for (place, hosts) in &attachment.listeners {
                let Some(listener) = state.listeners.get(*place) else { continue };
                let Some(port) = listener.port.filter(|_| listener.is_serving()) else { continue };
                let mut rules = None;
                for (address, (host, own)) in places(state, hosts) {
                    let at = ListenerHost::deep(port, address, host.clone());
                    let is_its = listeners.most_specific(&at) == Some(&listener.host);
                    let rank = Reverse(specificity(own));
                    if !is_its || !served.insert((at.clone(), rank)) {
                        continue;
                    }
                    // A host without rules is one, too: it leaves its requests to no less specific one.
                    if !self.room.has_rules(key, *kind, known.count().max(1)) {
                        continue;
                    }
                    // Nothing is made of a route before there is room for it.
                    let rules = rules.get_or_insert_with(|| {
                        let rules = known.served_at(key, listener);
                        self.policies.extend(rules.policies.clone());
                        rules
                    });
                    let parents = self.parents.entry(at.host.clone()).or_default();
                    parents.insert((key.namespace.clone(), attachment.gateway.namespace.clone()));
                    let age = (route.meta.created, key.clone(), *kind);
                    let routes = self.hosts.entry(at).or_default();
                    routes.entry(rank).or_default().insert(age, rules.clone());
                }
            }
        }
        known.forget_unused();
    }

    /// Adds the hosts of listeners, also where no route serves them, and their certificates: of several the oldest Gateway's.
    fn add_listeners(&mut self, gateways: &Gateways<'_>, built: &mut Built) {
        let states = by_age(gateways).into_iter().filter_map(|key| Some((key, gateways.get(key)?)));
        for (key, state) in states {
            let age = || age::Age { created: state.gateway.meta.created, key: key.clone() };
            for listener in state.listeners.iter().filter(|listener| listener.is_accepted()) {
                let Some(port) = listener.port else { continue };
                let host = listener.host.clone();
                if let Some(id) = listener.certificate.clone().filter(|_| listener.is_serving()) {
                    built.certificates.entry(host.clone()).or_insert_with(|| (id, age()));
                }
                if !listener.is_http() {
                    continue;
                }
                for address in state.addresses() {
                    self.hosts.entry(ListenerHost::deep(port, address, host.clone())).or_default();
                }
            }
        }
    }

    /// Puts the servers together; answers which routes are not served where.
    pub fn finish(
        mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        gateways: &Gateways<'_>,
        (old, memo): (&mut Memo, &mut Memo),
        built: &mut Built,
    ) -> Refused {
        self.add_listeners(gateways, built);
        let (mut named, mut led) = (BTreeMap::new(), BTreeSet::new());
        let mut keep = |outcome: &Outcome, built: &mut Built| {
            built.notes.extend(outcome.notes.iter().cloned());
            named.extend(outcome.named.iter().map(|(id, by)| (id.clone(), by.clone())));
            led.extend(outcome.led.iter().cloned());
        };
        let parents = std::mem::take(&mut self.parents);
        for (at, mut ranked) in std::mem::take(&mut self.hosts) {
            let none = BTreeSet::new();
            let parents = parents.get(&at.host).unwrap_or(&none);
            conflict::separate(options, beside, (&at, parents), &mut ranked, &mut self.refused);
            let one_label = one_label(&at, beside);
            let input = HostInput { at: &at, ranked: &ranked, parents };
            if let Some(known) = old.take_host(&input, beside) {
                keep(&known.outcome, built);
                built
                    .servers
                    .extend(one_label.into_iter().chain([at.clone()]).map(|at| (at, None)));
                memo.put_host(at, known);
                continue;
            }
            let places = one_label.iter().chain([&at]);
            let outcome = self.merge(world, options, beside, (&input, places), built);
            keep(&outcome, built);
            if let Some(known) = input.known(beside, outcome) {
                memo.put_host(at, known);
            }
        }
        let mut refused = std::mem::take(&mut self.refused);
        let sessions = std::mem::take(&mut self.sessions);
        sessions.finish(options, beside, gateways, &mut refused, built);
        let targets = built.sessions.values().flat_map(|route| &route.targets);
        led.extend(targets.filter_map(|target| target.backend.clone()));
        self.keep_named(&named, led, built);
        refused
    }

    /// Puts the rules of a host together, which are the same at each of its places.
    fn merge<'p>(
        &mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        (input, places): (&HostInput<'_>, impl Iterator<Item = &'p ListenerHost>),
        built: &mut Built,
    ) -> Outcome {
        let HostInput { at, ranked, parents } = *input;
        let mut outcome = Outcome::default();
        let is_shared = options.host_ownership == HostOwnership::Shared;
        let Flat { routes, notes } = rank::flatten(&at.host, ranked, is_shared, &mut self.room);
        outcome.notes = notes;
        let eldest = rank::eldest(&at.host, ranked);
        for at in places {
            work::count(Step::Merged);
            let place = Place { at, parents, eldest };
            let server = merge::merge(world, options, beside, &place, &routes, &mut outcome);
            built.servers.insert(at.clone(), Some(server));
        }
        outcome
    }

    /// Keeps the policies that rules name, and what these and the rules lead to: what no rule leads to needs no endpoints.
    fn keep_named(
        mut self,
        named: &BTreeMap<PolicyId, ObjectRef>,
        mut led: BTreeSet<BackendId>,
        built: &mut Built,
    ) {
        built.notes.extend(self.room.notes());
        self.policies.retain(|id, _| named.contains_key(id));
        for (id, policies) in &self.policies {
            let Some(route) = named.get(id) else { continue };
            led.extend(policies.backends().cloned());
            for url in urls(policies) {
                built.urls.entry(url.clone()).or_default().insert(route.clone());
            }
        }
        built.leads.retain(|id, _| led.contains(id));
        built.policies = self.policies;
    }
}

/// The hosts that an Ingress means by the star of a host, if one has it: it stands for one label, and deeper hosts have the rules
/// of routes alone.
fn one_label(at: &ListenerHost, beside: &Beside<'_>) -> Option<ListenerHost> {
    let is_beside = at.is_deep && at.address.is_none() && beside.servers.contains_key(&at.host);
    is_beside.then(|| ListenerHost::of_one_label(at.port, at.host.clone()))
}

/// Every address of a Gateway with each of these hosts.
fn places<'h, H>(
    state: &GatewayState<'_>,
    hosts: &'h [H],
) -> impl Iterator<Item = (Option<IpAddr>, &'h H)> {
    let addresses = state.addresses().into_iter();
    addresses.flat_map(move |address| hosts.iter().map(move |host| (address, host)))
}
