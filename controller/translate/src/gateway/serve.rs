//! The rules of one host on one port: those of routes by age, with those of the host's Ingresses.

use super::attach::Attachment;
use super::filter;
use super::listener::{Gateways, ListenerState, most_specific};
use super::route::{CompiledRoute, CompiledRule, Target};
use super::{Beside, Built, target};
use crate::Options;
use crate::host::merge::id_of;
use crate::host::owner::{self, HostOwnership};
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    ListenerHost, MAX_RULES, Origin, PathPattern, Policy, Rule, Selection, Server,
};
use oxigress_objects::gateway::HttpRoute;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is served where, while routes are added.
#[derive(Default)]
pub struct Serving {
    hosts: BTreeMap<ListenerHost, BTreeMap<Age, Vec<Candidate>>>,
    ids: BTreeMap<*const Policies, Option<PolicyId>>,
    policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// Policies whose addresses are remembered.
    kept: Vec<Arc<Policies>>,
}

/// Creation, then name.
type Age = (i64, Key);

struct Candidate {
    path: PathPattern,
    selection: Selection,
    rules: Vec<Rule>,
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
                for host in hosts {
                    let is_its = most_specific(gateways, port, host) == Some(&listener.host);
                    let at = ListenerHost { port, host: host.clone() };
                    if is_its && served.insert(at.clone()) {
                        let rules = self.candidates(key, compiled, listener);
                        let age = (route.meta.created, key.clone());
                        self.hosts.entry(at).or_default().insert(age, rules);
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

    /// Puts the servers together. A listener's host is one also where no route serves it.
    pub fn finish(
        mut self,
        world: &World,
        options: &Options,
        beside: &Beside<'_>,
        gateways: &Gateways<'_>,
        built: &mut Built,
    ) {
        let listeners = gateways.values().flat_map(|state| &state.listeners);
        for listener in listeners.filter(|listener| listener.is_accepted()) {
            let Some(port) = listener.port else { continue };
            let host = listener.host.clone();
            if let Some(id) = listener.certificate.clone().filter(|_| listener.is_serving()) {
                built.certificates.entry(host.clone()).or_insert(id);
            }
            self.hosts.entry(ListenerHost { port, host }).or_default();
        }
        let mut named = BTreeSet::new();
        for (at, routes) in &self.hosts {
            let server = merge(world, options, beside, at, routes, built);
            named.extend(server.rules.iter().filter_map(|rule| rule.policies.clone()));
            built.servers.insert(at.clone(), server);
        }
        self.policies.retain(|id, _| named.contains(id));
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

/// Who has a path with these conditions.
struct Winner {
    age: Age,
    /// Its place in its object.
    place: usize,
    kind: Kind,
    rules: Vec<Rule>,
}

/// The rules of a host on a port, while those of its objects are put together.
#[derive(Default)]
struct Merge {
    all: BTreeMap<(PathPattern, Selection), Winner>,
    /// Rules that no Ingress has: they stand for what the owner leaves open.
    kept: Vec<Rule>,
    /// The number of all rules.
    count: usize,
    is_full: bool,
}

fn merge(
    world: &World,
    options: &Options,
    beside: &Beside<'_>,
    at: &ListenerHost,
    routes: &BTreeMap<Age, Vec<Candidate>>,
    built: &mut Built,
) -> Server {
    let is_shared = [options.http_port, options.tls_port].contains(&at.port.get());
    let ingresses = beside.servers.get(&at.host).filter(|_| is_shared);
    let owner = is_shared.then(|| (beside.owner)(&at.host)).flatten();
    let mut merge = Merge::default();
    for rule in ingresses.into_iter().flat_map(|server| &server.rules) {
        merge.put_ingress(world, rule);
    }
    for (age, candidates) in routes {
        for (place, candidate) in candidates.iter().enumerate() {
            match refused(options, owner.as_ref(), age, candidate) {
                Some(why) => built.notes.push((
                    target::object(&age.1),
                    Note::rejected(format!("host {}, path {}: {why}", at.host, candidate.path)),
                )),
                None => merge.put_route(at, age, place, candidate, built),
            }
        }
    }
    if merge.is_full {
        note_full(at, routes, built);
    }
    merge.finish()
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
        let winner = Winner { age, place: 0, kind: Kind::Ingress, rules };
        self.all.insert((rule.path.clone(), Selection::default()), winner);
    }

    /// Gives a route what it asks for, unless an older object has it.
    fn put_route(
        &mut self,
        at: &ListenerHost,
        age: &Age,
        place: usize,
        candidate: &Candidate,
        built: &mut Built,
    ) {
        let Candidate { path, selection, rules } = candidate;
        let asked = (path.clone(), selection.clone());
        let old = self.all.get(&asked);
        if let Some(winner) = old.filter(|winner| winner.age <= *age) {
            return say(at, path, winner, (Kind::HTTPRoute, &age.1), built);
        }
        let count = self.count + rules.len() - old.map_or(0, |loser| loser.rules.len());
        if count > MAX_RULES {
            self.is_full = true;
            return;
        }
        self.count = count;
        let (age, rules) = (age.clone(), rules.clone());
        let winner = Winner { age, place, kind: Kind::HTTPRoute, rules };
        if let Some(loser) = old {
            say(at, path, &winner, (loser.kind, &loser.age.1), built);
        }
        self.all.insert(asked, winner);
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

fn note_full(at: &ListenerHost, routes: &BTreeMap<Age, Vec<Candidate>>, built: &mut Built) {
    let message = format!(
        "host {}: at most {MAX_RULES} rules in one host: what came last is not served",
        at.host
    );
    let youngest = routes.keys().next_back();
    built.notes.extend(youngest.map(|(_, key)| (target::object(key), Note::rejected(message))));
}

/// Why a route may not have a path of a host that an older Ingress of another namespace names.
fn refused(
    options: &Options,
    owner: Option<&(String, i64)>,
    age: &Age,
    candidate: &Candidate,
) -> Option<String> {
    let (namespace, created) = owner?;
    if *namespace == age.1.namespace || *created > age.0 {
        return None;
    }
    let whose = format!("namespace {namespace} owns the host by an older Ingress");
    match options.host_ownership {
        HostOwnership::Strict => {
            Some(format!("{whose}, and --host-ownership=strict leaves it alone there"))
        }
        HostOwnership::Settings if owner::is_well_known(&candidate.path) => Some(whose),
        HostOwnership::Settings | HostOwnership::Shared => None,
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
