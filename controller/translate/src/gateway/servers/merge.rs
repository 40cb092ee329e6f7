//! The rules of routes and Ingresses on one host of one port, put together: who has which path.

mod well_known;

use super::memo::{Outcome, ParentsOfHost};
use super::rank::{self, Age, Ranked};
use super::served::Candidate;
use crate::Options;
use crate::claim::age;
use crate::claim::well_known::is_well_known;
use crate::gateway::listeners::state::seen_port;
use crate::gateway::{Beside, HostOwner, PlaceOwner};
use crate::host::guests::Shares;
use crate::host::owner::HostOwnership;
use oxigress_core::model::{
    HostPattern, ListenerHost, MAX_RULES, PathPattern, Policy, Rule, Selection, Server,
};
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
    rules: Vec<Rule>,
}

/// A host on a port.
pub struct Place<'p> {
    /// The host.
    pub at: &'p ListenerHost,
    /// The namespaces of its routes on any port, each with that of a Gateway that they have attached to.
    pub parents: &'p ParentsOfHost,
    /// The oldest route that has written this host name, or else the oldest route.
    pub eldest: Option<&'p Age>,
}

impl Place<'_> {
    /// Whether the Gateways of a namespace obtain certificates for the host: its owner has attached a route there.
    fn certifies(&self, owner: &str, namespace: &str) -> bool {
        let mut all = self.parents.keys();
        all.any(|(route, gateway)| route.as_str() == owner && gateway.as_str() == namespace)
    }
}

/// The rules of a host on a port, while those of its objects are put together.
#[derive(Default)]
struct Merge<'r> {
    /// The port of the host, as clients see it.
    port: u16,
    all: BTreeMap<(PathPattern, Selection), Winner>,
    /// The oldest object that has a path, whatever its conditions are.
    paths: BTreeMap<PathPattern, Age>,
    /// What the Ingresses of the owner have as the root, where another namespace has it.
    root_of_ingress: Option<(Age, Rule)>,
    /// The number of all rules.
    count: usize,
    /// What routes of other namespaces than the owner's may still add.
    guests: Shares<'r>,
    /// Objects of which rules found no place.
    full: BTreeSet<ObjectRef>,
}

/// Most rules that routes of other namespaces than the owner's add to one host.
const MAX_GUESTS: usize = MAX_RULES / 4;

/// Puts the rules of a host together: those of its owner first, so that others leave them their place.
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
    let server = beside.servers.get(&at.host).filter(|_| is_shared);
    let rules = server.into_iter().flat_map(|server| &server.rules);
    let named = (beside.owner)(&at.host);
    let owner = Owner::of(named.as_ref(), place);
    outcome.owner = owner.as_ref().map(Owner::place_owner);
    let owner = owner.filter(|_| options.host_ownership != HostOwnership::Shared);
    let is_owners =
        |namespace: &str| owner.as_ref().is_none_or(|owner| owner.namespace == namespace);
    let (own_rules, guest_rules): (Vec<_>, Vec<_>) =
        rules.partition(|rule| is_owners(&rule.origin.namespace));
    let (own, guests): (Vec<_>, Vec<_>) =
        routes.iter().partition(|(age, _)| is_owners(&age.1.namespace));
    let port = seen_port(options, at.port).get();
    let mut merge = Merge { port, guests: shares(&guests), ..Merge::default() };
    let notes = &mut outcome.notes;
    own_rules.into_iter().for_each(|rule| merge.put_ingress(world, at, rule, notes));
    for (age, candidates) in &own {
        for (number, candidate) in candidates.iter().enumerate() {
            merge.put_route(at, (age, number), candidate, true, notes);
        }
    }
    for rule in guest_rules {
        merge.put_guest(world, options, place, owner.as_ref(), rule, notes);
    }
    for (age, candidates) in guests {
        for (number, candidate) in candidates.iter().enumerate() {
            let refusal = owner.as_ref().and_then(|owner| {
                refused(options, owner, place, &age.1.namespace, &candidate.path)
                    .or_else(|| merge.refused(age, candidate))
            });
            match refusal {
                Some(why) => notes.push((
                    rank::object(age),
                    Note::rejected(format!("host {}, path {}: {why}", at.host, candidate.path)),
                )),
                None => merge.put_route(at, (age, number), candidate, false, notes),
            }
        }
    }
    if let Some(owner) = &owner {
        merge.keep_well_known(owner, place, &own);
    }
    merge.note_full(at, notes);
    merge.finish(outcome)
}

/// What each namespace may add of the rules of guests.
fn shares<'r>(guests: &[(&'r Age, &Vec<Candidate>)]) -> Shares<'r> {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for (age, candidates) in guests {
        let rules = candidates.iter().map(|candidate| candidate.rules.len());
        *asked.entry(&age.1.namespace).or_default() += rules.sum::<usize>();
    }
    Shares::of(MAX_GUESTS, &asked)
}

/// What decides between two objects: of an Ingress and a route of one age and name the Ingress stands, which is put first.
fn order(age: &Age) -> (i64, &Key) {
    (age.0, &age.1)
}

/// Who keeps routes of another kind out of a host, and which routes nobody keeps out.
pub struct Sides {
    /// The namespace that has the host by its name.
    pub owner: Option<Name>,
    /// The routes that only answer challenges, of the owner and of who obtains its certificates.
    pub solvers: BTreeSet<Age>,
}

impl Sides {
    /// The sides of a host where routes of two kinds meet.
    pub fn of(options: &Options, beside: &Beside<'_>, place: &Place<'_>, ranked: &Ranked) -> Self {
        let named = (beside.owner)(&place.at.host);
        let owner = Owner::of(named.as_ref(), place)
            .filter(|_| options.host_ownership != HostOwnership::Shared);
        let certifies =
            |namespace: &str| owner.as_ref().is_none_or(|owner| owner.certifies(place, namespace));
        let solvers = ranked.values().flatten().filter(|(age, served)| {
            let mut all = served.candidates.iter();
            all.all(|one| is_well_known(&one.path)) && certifies(&age.1.namespace)
        });
        let solvers = solvers.map(|(age, _)| age.clone()).collect();
        let by_name = owner.as_ref().filter(|owner| owner.is_by_name);
        Sides { owner: by_name.map(|owner| owner.namespace.into()), solvers }
    }
}

/// The namespace of the owner of a host's sessions, where that counts. Whoever names the host later than the eldest route there
/// closes nothing.
pub fn owner_of_sessions(
    options: &Options,
    beside: &Beside<'_>,
    place: &Place<'_>,
) -> Option<Name> {
    let named = (beside.owner)(&place.at.host);
    let owner = Owner::of(named.as_ref(), place)
        .filter(|_| options.host_ownership != HostOwnership::Shared)?;
    let eldest = place.eldest.filter(|eldest| order(eldest) < (owner.created, owner.key));
    Some(eldest.map_or(owner.namespace, |eldest| eldest.1.namespace.as_str()).into())
}

/// The namespace of the Ingress that named a host before any listener and route, where Ingresses are served.
pub fn ingress_owner(options: &Options, beside: &Beside<'_>, place: &Place<'_>) -> Option<Name> {
    let at = place.at;
    let is_served =
        at.address.is_none() && [options.http_port, options.tls_port].contains(&at.port.get());
    let counts = is_served && options.host_ownership != HostOwnership::Shared;
    let named = (beside.owner)(&at.host).filter(|_| counts);
    let owner = Owner::of(named.as_ref(), place);
    let owner = owner.filter(|owner| owner.kind == Kind::Ingress && owner.listener.is_none());
    owner.map(|owner| owner.namespace.into())
}

/// Whose a host on a port is.
struct Owner<'o> {
    created: i64,
    key: &'o Key,
    namespace: &'o str,
    kind: Kind,
    /// An object names the host, so it is nobody's who only covers it.
    is_by_name: bool,
    /// The host follows another one by an annotation.
    is_alias: bool,
    /// The namespace of the Gateway whose listener has left its host to the owner.
    listener: Option<&'o str>,
}

impl<'o> Owner<'o> {
    /// The owner of the host on all ports. A listener leaves its host to the oldest Ingress or route that names it, or else to
    /// the oldest route there; the host of requests that name none is left to the oldest object.
    fn of(named: Option<&'o HostOwner>, place: &Place<'o>) -> Option<Self> {
        let is_unnamed = place.at.host == HostPattern::default_host();
        let of = |created, key: &'o Key, kind| Owner {
            created,
            key,
            namespace: &key.namespace,
            kind,
            is_by_name: !is_unnamed,
            is_alias: false,
            listener: None,
        };
        let of_age = |age: &'o age::Age, kind| of(age.created, &age.key, kind);
        let eldest = place
            .eldest
            .map(|(created, key, kind)| Owner { is_by_name: false, ..of(*created, key, *kind) });
        let Some(named) = named else { return eldest };
        let owner = Owner { is_alias: named.is_alias, ..of_age(&named.age, named.kind) };
        if named.kind == Kind::Gateway && !named.is_alias {
            let heir = named.heir.as_ref().map(|(age, kind)| of_age(age, *kind));
            let listener = Some(owner.namespace);
            return Some(Owner { listener, ..heir.or(eldest).unwrap_or(owner) });
        }
        let older = eldest.filter(|eldest| is_unnamed && eldest.created < named.age.created);
        Some(older.unwrap_or(owner))
    }
}

impl Owner<'_> {
    fn place_owner(&self) -> PlaceOwner {
        let age = age::Age { created: self.created, key: self.key.clone() };
        PlaceOwner { age, kind: self.kind, is_by_name: self.is_by_name }
    }

    /// Whether a namespace obtains certificates for the host: the owner, and those of Gateways that it lets do so.
    fn certifies(&self, place: &Place<'_>, namespace: &str) -> bool {
        namespace == self.namespace
            || self.listener == Some(namespace)
            || place.certifies(self.namespace, namespace)
    }
}

impl Merge<'_> {
    fn put_ingress(&mut self, world: &World, at: &ListenerHost, rule: &Rule, notes: &mut Notes) {
        let key = Key::new(&rule.origin.namespace, &rule.origin.ingress);
        let created = world.ingresses.get(&key).map_or(i64::MAX, |ingress| ingress.created);
        let age = (created, key, Kind::Ingress);
        if well_known::stands_for_root(rule) {
            self.root_of_ingress = Some((age, rule.clone()));
            return;
        }
        let winner = Winner { age, place: 0, rules: vec![rule.clone()] };
        self.put(at, (rule.path.clone(), Selection::default()), winner, notes);
    }

    /// Puts what an Ingress of another namespace than the owner's says, as a host of Ingresses alone takes it.
    fn put_guest(
        &mut self,
        world: &World,
        options: &Options,
        place: &Place<'_>,
        owner: Option<&Owner<'_>>,
        rule: &Rule,
        notes: &mut Notes,
    ) {
        // What stands for the root of an owner stands for no other's.
        if well_known::stands_for_root(rule) {
            return;
        }
        let object = || {
            let key = Key::new(&rule.origin.namespace, &rule.origin.ingress);
            ObjectRef::new(Kind::Ingress, key)
        };
        let namespace = &rule.origin.namespace;
        let refusal = owner.and_then(|owner| refused(options, owner, place, namespace, &rule.path));
        if let Some(why) = refusal {
            let message = format!("host {}, path {}: {why}", place.at.host, rule.path);
            return notes.push((object(), Note::rejected(message)));
        }
        if self.count >= MAX_RULES - MAX_GUESTS {
            self.full.insert(object());
            return;
        }
        let is_regex = matches!(rule.path, PathPattern::Regex(_));
        let policy = Policy { yields: rule.policy.yields || is_regex, ..rule.policy.clone() };
        self.put_ingress(world, place.at, &Rule { policy, ..rule.clone() }, notes);
    }

    /// Why a route may not take a part of the requests of a path: like the canary of an Ingress it must be of the namespace that
    /// has the path.
    fn refused(&self, age: &Age, candidate: &Candidate) -> Option<String> {
        if candidate.selection == Selection::default() {
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
        let added = if is_owners { 0 } else { rules.len() };
        if !is_owners && !self.guests.has(&age.1.namespace, added) {
            self.full.insert(rank::object(age));
            return;
        }
        let (age, rules) = (age.clone(), rules.clone());
        let namespace = age.1.namespace.clone();
        let winner = Winner { age, place, rules };
        if self.put(at, (path.clone(), selection.clone()), winner, notes) {
            self.guests.take(&namespace, added);
        }
    }

    /// Answers whether the winner stands now.
    fn put(
        &mut self,
        at: &ListenerHost,
        asked: (PathPattern, Selection),
        winner: Winner,
        notes: &mut Notes,
    ) -> bool {
        let old = self.all.get(&asked);
        if let Some(older) = old.filter(|older| order(&older.age) <= order(&winner.age)) {
            say((self.port, at), &asked.0, older, &winner.age, notes);
            return false;
        }
        let count = self.count + winner.rules.len() - old.map_or(0, |loser| loser.rules.len());
        // One place is kept for the owner's root below `/.well-known`.
        if count >= MAX_RULES {
            self.full.insert(rank::object(&winner.age));
            return false;
        }
        self.count = count;
        if let Some(loser) = old {
            say((self.port, at), &asked.0, &winner, &loser.age, notes);
        }
        let path_age = self.paths.entry(asked.0.clone()).or_insert_with(|| winner.age.clone());
        if winner.age < *path_age {
            path_age.clone_from(&winner.age);
        }
        self.all.insert(asked, winner);
        true
    }

    fn note_full(&self, at: &ListenerHost, notes: &mut Notes) {
        let message = format!(
            "host {}: at most {MAX_RULES} rules in one host, those of its owner first, and at most {MAX_GUESTS} of routes of \
             other namespaces, each its share of these: rules that found no place are not served",
            at.host
        );
        notes.extend(self.full.iter().map(|of| (of.clone(), Note::rejected(message.clone()))));
    }

    fn finish(self, outcome: &mut Outcome) -> Server {
        let Merge { mut all, root_of_ingress, .. } = self;
        if let Some((_, rule)) = root_of_ingress {
            let place = (rule.path.clone(), Selection::default());
            all.entry(place).or_insert_with(|| well_known::nobodys(rule));
        }
        let mut rules: Vec<_> = all.into_values().collect();
        // Of rules that ask for equally much the older one is compared first.
        rules.sort_by(|a, b| (order(&a.age), a.place).cmp(&(order(&b.age), b.place)));
        rules.iter().for_each(|winner| outcome.note_rules(winner.age.2, &winner.rules));
        Server::of(rules.into_iter().flat_map(|winner| winner.rules).collect())
    }
}

/// Why an object of another namespace than the owner's may not have a path.
fn refused(
    options: &Options,
    owner: &Owner<'_>,
    place: &Place<'_>,
    guest: &str,
    path: &PathPattern,
) -> Option<String> {
    let Owner { namespace, kind, is_alias, listener, .. } = owner;
    if *is_alias {
        return Some(format!(
            "the host follows another one by an annotation of an older Ingress of namespace {namespace}: use a host of \
             your own"
        ));
    }
    let whose = format!("namespace {namespace} owns the host by an older {kind}");
    let is_challenge = is_well_known(path);
    // Whoever has the listener shows its certificates, and obtains them.
    if is_challenge && *listener == Some(guest) {
        return None;
    }
    match options.host_ownership {
        HostOwnership::Strict if *kind == Kind::Ingress => {
            Some(format!("{whose}, and --host-ownership=strict leaves it alone there"))
        }
        HostOwnership::Strict | HostOwnership::Settings
            if is_challenge && (*kind == Kind::Ingress || !place.certifies(namespace, guest)) =>
        {
            Some(whose)
        }
        _ => None,
    }
}

fn say(
    (port, at): (u16, &ListenerHost),
    path: &PathPattern,
    winner: &Winner,
    loser: &Age,
    notes: &mut Notes,
) {
    if (&loser.1, loser.2) == (&winner.age.1, winner.age.2) {
        return;
    }
    let message = format!(
        "port {port}, host {}, path {path} is served by {}, which is older or first by name: remove one of the two",
        at.host,
        rank::object(&winner.age)
    );
    notes.push((rank::object(loser), Note::warning(message)));
}

#[cfg(test)]
mod tests;
