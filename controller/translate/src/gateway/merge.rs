//! The rules of routes and Ingresses on one host of one port, put together: who has which path.

use super::memo::Outcome;
use super::rank::Age;
use super::served::Candidate;
use super::{Beside, target};
use crate::Options;
use crate::host::owner::{self, HostOwnership};
use oxigress_core::model::{ListenerHost, MAX_RULES, PathPattern, Rule, Selection, Server};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};

/// What there is to say about objects.
type Notes = Vec<(ObjectRef, Note)>;

/// Who has a path with these conditions.
struct Winner {
    age: Age,
    /// Its place in its object.
    place: usize,
    kind: Kind,
    rules: Vec<Rule>,
}

/// A host on a port.
pub struct Place<'p> {
    /// The host.
    pub at: &'p ListenerHost,
    /// The namespaces of its routes, each with that of a Gateway that they have attached to.
    pub parents: &'p BTreeSet<(Name, Name)>,
}

impl Place<'_> {
    /// Whether the Gateways of a namespace obtain certificates for the host: its owner has attached a route there.
    fn certifies(&self, owner: &str, namespace: &str) -> bool {
        let mut all = self.parents.iter();
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

/// Puts the rules of a host together.
pub fn merge(
    world: &World,
    options: &Options,
    beside: &Beside<'_>,
    place: &Place<'_>,
    routes: &BTreeMap<Age, Vec<Candidate>>,
    outcome: &mut Outcome,
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
                Some(why) => outcome.notes.push((
                    target::object(&age.1),
                    Note::rejected(format!("host {}, path {}: {why}", at.host, candidate.path)),
                )),
                None => merge.put_route(
                    at,
                    (age, number),
                    candidate,
                    is_owners(age),
                    &mut outcome.notes,
                ),
            }
        }
    }
    merge.note_full(at, &mut outcome.notes);
    let server = merge.finish();
    outcome.note_rules(&server.rules);
    server
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
        notes: &mut Notes,
    ) {
        let Candidate { path, selection, rules } = candidate;
        let asked = (path.clone(), selection.clone());
        let old = self.all.get(&asked);
        if let Some(winner) = old.filter(|winner| winner.age <= *age) {
            return say(at, path, winner, (Kind::HTTPRoute, &age.1), notes);
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
            say(at, path, &winner, (loser.kind, &loser.age.1), notes);
        }
        self.all.insert(asked, winner);
    }

    fn note_full(&self, at: &ListenerHost, notes: &mut Notes) {
        let message = format!(
            "host {}: at most {MAX_RULES} rules in one host, of which {MAX_GUESTS} are of other namespaces than the one that \
             has the host: rules that found no place are not served",
            at.host
        );
        let all =
            self.full.iter().map(|key| (target::object(key), Note::rejected(message.clone())));
        notes.extend(all);
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
    notes: &mut Notes,
) {
    if *loser == winner.age.1 && kind == winner.kind {
        return;
    }
    let message = format!(
        "port {}, host {}, path {path} is served by {} {}, which is older or first by name: remove one of both",
        at.port, at.host, winner.kind, winner.age.1
    );
    notes.push((ObjectRef::new(kind, loser.clone()), Note::warning(message)));
}
