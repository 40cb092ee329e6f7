//! The rules of one host on one port: those of routes by age, with those of the host's Ingresses.

use super::attach::Attachment;
use super::filter;
use super::host::specificity;
use super::listener::{GatewayState, Gateways, ListenerState, by_age, most_specific};
use super::rank::{self, Age, Candidate, Flat, Ranked};
use super::room::Room;
use super::route::{CompiledRoute, CompiledRule, Target};
use super::{Beside, Built, target};
use crate::Options;
use crate::age;
use crate::host::merge::id_of;
use crate::host::owner::{self, HostOwnership};
use crate::ingress::urls;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    ListenerHost, MAX_RULES, Origin, PathPattern, Policy, Rule, Selection, Server,
};
use oxigress_objects::gateway::HttpRoute;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is served where, while routes are added.
#[derive(Default)]
pub struct Serving {
    hosts: BTreeMap<ListenerHost, Ranked>,
    /// The namespaces of routes, each with that of a Gateway by which they are served there.
    guests: BTreeMap<ListenerHost, BTreeSet<(Name, Name)>>,
    ids: BTreeMap<*const Policies, Option<PolicyId>>,
    policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// Policies whose addresses are remembered.
    kept: Vec<Arc<Policies>>,
    room: Room,
}

impl Serving {
    /// Adds the rules of a route where it is attached.
    pub fn add(
        &mut self,
        key: &Key,
        route: &HttpRoute,
        attached: &[Attachment<'_>],
        compiled: &CompiledRoute,
        gateways: &Gateways<'_>,
    ) {
        let mut served = BTreeSet::new();
        for attachment in attached {
            let Some(state) = gateways.get(&attachment.gateway) else { continue };
            for (place, hosts) in &attachment.listeners {
                let Some(listener) = state.listeners.get(*place) else { continue };
                let Some(port) = listener.port.filter(|_| listener.is_serving()) else { continue };
                for (address, (host, own)) in places(state, hosts) {
                    let at = ListenerHost::deep(port, address, host.clone());
                    let is_its = most_specific(gateways, &at) == Some(&listener.host);
                    let rank = Reverse(specificity(own));
                    if is_its && served.insert((at.clone(), rank)) {
                        let rules = self.candidates(key, compiled, listener);
                        // A host without rules is one, too: it leaves its requests to no less specific one.
                        let count: usize = rules.iter().map(|one| one.rules.len()).sum();
                        if !self.room.has_rules(key, count.max(1)) {
                            continue;
                        }
                        let guests = self.guests.entry(at.clone()).or_default();
                        guests
                            .insert((key.namespace.clone(), attachment.gateway.namespace.clone()));
                        let age = (route.meta.created, key.clone());
                        let routes = self.hosts.entry(at).or_default();
                        routes.entry(rank).or_default().insert(age, rules);
                    }
                }
            }
        }
    }

    fn candidates(
        &mut self,
        key: &Key,
        compiled: &CompiledRoute,
        listener: &ListenerState<'_>,
    ) -> Vec<Candidate> {
        let all = compiled.rules.iter().map(|rule| {
            let redirected = self.redirected(rule, listener);
            let targets = redirected.as_slice();
            let targets = if targets.is_empty() { &rule.targets } else { targets };
            let shares = targets.len() > 1;
            let rules = targets.iter().map(|target| {
                let weight = shares.then_some(target.weight);
                let selection = Selection { weight, ..rule.selection.clone() };
                let is_all = selection == Selection::default();
                Rule {
                    path: rule.path.clone(),
                    backend: target.leads.as_ref().map(|leads| leads.backend.clone()),
                    origin: origin(key, target, &rule.written),
                    policy: Policy { is_strict: true, ..Policy::default() },
                    policies: self.id(&target.policies),
                    selection: (!is_all).then(|| Box::new(selection)),
                }
            });
            let rules = rules.collect();
            Candidate { path: rule.path.clone(), selection: rule.selection.clone(), rules }
        });
        all.collect()
    }

    fn redirected(&self, rule: &CompiledRule, listener: &ListenerState<'_>) -> Vec<Target> {
        let Some((redirect, policies)) = &rule.redirect else { return Vec::new() };
        let mut policies = policies.clone();
        match filter::redirect(redirect, &rule.path, listener.is_tls, listener.spec.port) {
            Ok(to) => policies.redirect_to = Some(to),
            Err(_) => policies.denied = Some(500),
        }
        vec![Target { weight: 1, leads: None, policies: Arc::new(policies) }]
    }

    fn id(&mut self, policies: &Arc<Policies>) -> Option<PolicyId> {
        if let Some(id) = self.ids.get(&Arc::as_ptr(policies)) {
            return id.clone();
        }
        let id = id_of(policies);
        self.ids.insert(Arc::as_ptr(policies), id.clone());
        self.kept.push(policies.clone());
        self.policies.extend(id.clone().map(|id| (id, policies.clone())));
        id
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
                for address in state.addresses() {
                    self.hosts.entry(ListenerHost::deep(port, address, host.clone())).or_default();
                }
            }
        }
    }

    /// Puts the servers together.
    pub fn finish(
        mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        gateways: &Gateways<'_>,
        built: &mut Built,
    ) {
        self.add_listeners(gateways, built);
        let (mut named, mut led) = (BTreeMap::new(), BTreeSet::new());
        for (at, routes) in std::mem::take(&mut self.hosts) {
            let is_shared = options.host_ownership == HostOwnership::Shared;
            let Flat { routes, notes } = rank::flatten(&at.host, routes, is_shared, &mut self.room);
            built.notes.extend(notes);
            let parents = self.guests.remove(&at);
            // The star of an Ingress stands for one label: deeper hosts have the rules of routes alone.
            let is_beside =
                at.is_deep && at.address.is_none() && beside.servers.contains_key(&at.host);
            let one_label = ListenerHost::of_one_label(at.port, at.host.clone());
            for at in is_beside.then_some(&one_label).into_iter().chain([&at]) {
                let place = Place { at, parents: parents.as_ref() };
                let server = merge(world, options, beside, &place, &routes, built);
                for rule in &server.rules {
                    let by = || Key::new(&rule.origin.namespace, &rule.origin.ingress);
                    named.extend(rule.policies.clone().map(|id| (id, by())));
                    led.extend(rule.backend.clone());
                }
                built.servers.insert(at.clone(), server);
            }
        }
        built.notes.extend(self.room.notes());
        self.policies.retain(|id, _| named.contains_key(id));
        for (id, policies) in &self.policies {
            let Some(route) = named.get(id) else { continue };
            led.extend(policies.backends().cloned());
            for url in urls(policies) {
                built.urls.entry(url.clone()).or_default().insert(target::object(route));
            }
        }
        // What no rule leads to needs no endpoints.
        built.leads.retain(|id, _| led.contains(id));
        built.policies = self.policies;
    }
}

fn origin(key: &Key, target: &Target, path: &str) -> Origin {
    let leads = target.leads.as_ref();
    Origin {
        namespace: key.namespace.to_string(),
        ingress: key.name.to_string(),
        service: leads.map(|leads| leads.service.name.to_string()).unwrap_or_default(),
        port: leads.map(|leads| leads.port.to_string()).unwrap_or_default(),
        path: path.into(),
    }
}

/// Every address of a Gateway with each of these hosts.
fn places<'h, H>(
    state: &GatewayState<'_>,
    hosts: &'h [H],
) -> impl Iterator<Item = (Option<IpAddr>, &'h H)> {
    let addresses = state.addresses().into_iter();
    addresses.flat_map(move |address| hosts.iter().map(move |host| (address, host)))
}

/// Who has a path with these conditions.
struct Winner {
    age: Age,
    /// Its place in its object.
    place: usize,
    kind: Kind,
    rules: Vec<Rule>,
}

/// A host on a port.
struct Place<'p> {
    at: &'p ListenerHost,
    /// The namespaces of its routes, each with that of a Gateway that they have attached to.
    parents: Option<&'p BTreeSet<(Name, Name)>>,
}

impl Place<'_> {
    /// Whether the Gateways of a namespace obtain certificates for the host: its owner has attached a route there.
    fn certifies(&self, owner: &str, namespace: &str) -> bool {
        let mut all = self.parents.into_iter().flatten();
        all.any(|(route, gateway)| route.as_str() == owner && gateway.as_str() == namespace)
    }
}

/// The rules of a host on a port, while those of its objects are put together.
#[derive(Default)]
struct Merge {
    all: BTreeMap<(PathPattern, Selection), Winner>,
    /// The oldest object that has a path, whatever its conditions are.
    paths: BTreeMap<PathPattern, Age>,
    /// Rules that no Ingress has: they stand for what the owner leaves open.
    kept: Vec<Rule>,
    /// The number of all rules.
    count: usize,
    /// The number of those that other namespaces than the owner's have added.
    guests: usize,
    /// Objects of which rules found no place.
    full: BTreeSet<Key>,
}

/// Most rules of other namespaces than the owner's in one host: the others are the owner's, who may be younger than they.
const MAX_GUESTS: usize = MAX_RULES / 4;

fn merge(
    world: &World,
    options: &Options,
    beside: &Beside<'_>,
    place: &Place<'_>,
    routes: &BTreeMap<Age, Vec<Candidate>>,
    built: &mut Built,
) -> Server {
    let at = place.at;
    let is_shared = at.address.is_none()
        && [options.http_port, options.tls_port].contains(&at.port.get())
        && !at.is_deep;
    let ingresses = beside.servers.get(&at.host).filter(|_| is_shared);
    let by_ingress = is_shared.then(|| (beside.owner)(&at.host)).flatten();
    let mut merge = Merge::default();
    for rule in ingresses.into_iter().flat_map(|server| &server.rules) {
        merge.put_ingress(world, rule);
    }
    let owner = Owner::of(by_ingress.as_ref(), routes);
    let is_owners =
        |age: &Age| owner.as_ref().is_none_or(|owner| age.1.namespace == owner.namespace);
    let (own, guests): (Vec<_>, Vec<_>) = routes.iter().partition(|(age, _)| is_owners(age));
    for (age, candidates) in own.into_iter().chain(guests) {
        for (number, candidate) in candidates.iter().enumerate() {
            let refusal = owner.as_ref().filter(|_| !is_owners(age)).and_then(|owner| {
                refused(options, owner, place, age, candidate)
                    .or_else(|| merge.refused(options, age, candidate))
            });
            match refusal {
                Some(why) => built.notes.push((
                    target::object(&age.1),
                    Note::rejected(format!("host {}, path {}: {why}", at.host, candidate.path)),
                )),
                None => merge.put_route(at, (age, number), candidate, is_owners(age), built),
            }
        }
    }
    merge.note_full(at, built);
    merge.finish()
}

/// Whose a host on a port is: the namespace of the oldest object that names it.
struct Owner<'o> {
    namespace: &'o str,
    kind: Kind,
}

impl<'o> Owner<'o> {
    fn of(
        by_ingress: Option<&'o (String, i64)>,
        routes: &'o BTreeMap<Age, Vec<Candidate>>,
    ) -> Option<Self> {
        let route = routes.keys().next();
        let is_older =
            |owner: &&(String, i64)| route.is_none_or(|(created, _)| owner.1 <= *created);
        match (by_ingress.filter(is_older), route) {
            (Some((namespace, _)), _) => Some(Owner { namespace, kind: Kind::Ingress }),
            (None, Some((_, key))) => {
                Some(Owner { namespace: &key.namespace, kind: Kind::HTTPRoute })
            }
            (None, None) => None,
        }
    }
}

impl Merge {
    fn put_ingress(&mut self, world: &World, rule: &Rule) {
        self.count += 1;
        if rule.origin.ingress.is_empty() {
            return self.kept.push(rule.clone());
        }
        let key = Key::new(&rule.origin.namespace, &rule.origin.ingress);
        let created = world.ingresses.get(&key).map_or(i64::MAX, |ingress| ingress.created);
        let (age, rules) = ((created, key), vec![rule.clone()]);
        self.paths.insert(rule.path.clone(), age.clone());
        let winner = Winner { age, place: 0, kind: Kind::Ingress, rules };
        self.all.insert((rule.path.clone(), Selection::default()), winner);
    }

    /// Why a route may not take a part of the requests of a path: like the canary of an Ingress it must be of the namespace that
    /// has the path.
    fn refused(&self, options: &Options, age: &Age, candidate: &Candidate) -> Option<String> {
        let is_shared = options.host_ownership == HostOwnership::Shared;
        if is_shared || candidate.selection == Selection::default() {
            return None;
        }
        let older = self.paths.get(&candidate.path).filter(|older| *older < age)?;
        (older.1.namespace != age.1.namespace).then(|| {
            format!(
                "{}, which is older and of another namespace, has the path, and only objects of that namespace take a part \
                 of its requests: use a path of your own",
                older.1
            )
        })
    }

    /// Gives a route what it asks for, unless an older object has it.
    fn put_route(
        &mut self,
        at: &ListenerHost,
        (age, place): (&Age, usize),
        candidate: &Candidate,
        is_owners: bool,
        built: &mut Built,
    ) {
        let Candidate { path, selection, rules } = candidate;
        let asked = (path.clone(), selection.clone());
        let old = self.all.get(&asked);
        if let Some(winner) = old.filter(|winner| winner.age <= *age) {
            return say(at, path, winner, (Kind::HTTPRoute, &age.1), built);
        }
        let count = self.count + rules.len() - old.map_or(0, |loser| loser.rules.len());
        let guests = self.guests + if is_owners { 0 } else { rules.len() };
        if count > MAX_RULES || guests > MAX_GUESTS {
            self.full.insert(age.1.clone());
            return;
        }
        (self.count, self.guests) = (count, guests);
        let path_age = self.paths.entry(path.clone()).or_insert_with(|| age.clone());
        if *age < *path_age {
            path_age.clone_from(age);
        }
        let (age, rules) = (age.clone(), rules.clone());
        let winner = Winner { age, place, kind: Kind::HTTPRoute, rules };
        if let Some(loser) = old {
            say(at, path, &winner, (loser.kind, &loser.age.1), built);
        }
        self.all.insert(asked, winner);
    }

    fn note_full(&self, at: &ListenerHost, built: &mut Built) {
        let message = format!(
            "host {}: at most {MAX_RULES} rules in one host, of which {MAX_GUESTS} are of other namespaces than the one that \
             has the host: rules that found no place are not served",
            at.host
        );
        let all =
            self.full.iter().map(|key| (target::object(key), Note::rejected(message.clone())));
        built.notes.extend(all);
    }

    fn finish(self) -> Server {
        let Merge { mut all, kept, .. } = self;
        for rule in kept {
            let place = (rule.path.clone(), Selection::default());
            let age = (i64::MAX, Key::new("", ""));
            let winner = Winner { age, place: 0, kind: Kind::Ingress, rules: vec![rule] };
            all.entry(place).or_insert(winner);
        }
        let mut rules: Vec<_> = all.into_values().collect();
        // Of rules that ask for equally much the older one is compared first.
        rules.sort_by(|a, b| (&a.age, a.place).cmp(&(&b.age, b.place)));
        Server { rules: rules.into_iter().flat_map(|winner| winner.rules).collect() }
    }
}

/// Why a route may not have a path of a host that an older object of another namespace names.
fn refused(
    options: &Options,
    owner: &Owner<'_>,
    place: &Place<'_>,
    age: &Age,
    candidate: &Candidate,
) -> Option<String> {
    let Owner { namespace, kind } = owner;
    let whose = format!("namespace {namespace} owns the host by an older {kind}");
    let is_challenge = owner::is_well_known(&candidate.path);
    match options.host_ownership {
        HostOwnership::Strict if *kind == Kind::Ingress => {
            Some(format!("{whose}, and --host-ownership=strict leaves it alone there"))
        }
        HostOwnership::Strict | HostOwnership::Settings
            if is_challenge
                && (*kind == Kind::Ingress || !place.certifies(namespace, &age.1.namespace)) =>
        {
            Some(whose)
        }
        _ => None,
    }
}

fn say(
    at: &ListenerHost,
    path: &PathPattern,
    winner: &Winner,
    (kind, loser): (Kind, &Key),
    built: &mut Built,
) {
    if *loser == winner.age.1 && kind == winner.kind {
        return;
    }
    let message = format!(
        "port {}, host {}, path {path} is served by {} {}, which is older or first by name: remove one of both",
        at.port, at.host, winner.kind, winner.age.1
    );
    built.notes.push((ObjectRef::new(kind, loser.clone()), Note::warning(message)));
}
