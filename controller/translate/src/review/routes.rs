//! What would become of a route that is about to be created or changed.

use super::ReviewOutcome;
use crate::Reviews;
use crate::Translator;
use crate::claim::age::Age;
use crate::gateway::{Asked, PlaceOwner, RouteHosts, Standing, asked, covers, is_wide};
use crate::host::owner::{self, HostOwnership};
use crate::ingress::Claims;
use crate::pace::price::Prices;
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace};
use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
use std::time::Instant;

/// A route that is about to be stored.
#[derive(Clone, Copy)]
struct Change<'r> {
    route: &'r Route,
    /// As it is until now.
    stored: Option<&'r Route>,
    age: &'r Age,
    kind: Kind,
}

impl Translator {
    /// Judges whose hosts a route would have. Its age is the object's, not that of a host name in it: an old one that names a
    /// new host would be the oldest there, and take the host from its owner. All else is told in the route's status.
    ///
    /// Its namespace is charged for the listeners that are looked at. Where it cannot pay, the names in the route alone are
    /// compared, wherever it attaches; one that covers other hosts than before is denied, since nothing else could tell.
    pub fn review_route(
        &self,
        world: &World,
        (id, route): (&ObjectRef, &Route),
        reviews: &mut Reviews,
        now: Instant,
    ) -> ReviewOutcome {
        let mut outcome = ReviewOutcome::default();
        if self.options.host_ownership == HostOwnership::Shared {
            return outcome;
        }
        let age = Age { created: route.meta.created, key: id.key.clone() };
        // One for which there is no room has taken nothing.
        let stored = world.gateway_api.routes.get(id).filter(|_| !self.unplaced.contains(id));
        let stored = stored.map(|old| &**old);
        let change = Change { route, stored, age: &age, kind: id.kind };
        reviews.begin(&id.key.namespace, now);
        let prices = Prices { translator: self, world };
        let mut unpaid = ReviewOutcome::default();
        unpaid.warnings.push(too_often(&id.key.namespace));
        if !reviews.charge(prices.of_review(id, &route.spec)) {
            unpaid.denial = self.taken_by_name(world, change);
            return unpaid;
        }
        let mut standing = Standing::of(world, &self.options, Some(&self.gateways.left));
        let (new, hidden) = (standing.hosts_of(id, route), standing.hosts_behind(id, route));
        if !reviews.charge(prices.of_paths(&new).saturating_add(prices.of_paths(&hidden))) {
            unpaid.denial = self.taken_by_name(world, change);
            return unpaid;
        }
        outcome.compared = (new.named.len() + new.covered.len() + new.sessions.len()).min(1);
        let mut losses = self.losses(world, &new, &age, id.kind);
        losses.extend(self.taken_beside_sets(world, change));
        let mut behind = self.losses(world, &hidden, &age, id.kind);
        // What it takes already it has taken long ago: nobody is to be kept from changing an object by what came since.
        if let Some(stored) = stored.filter(|_| !losses.is_empty() || !behind.is_empty()) {
            // Of a rule that was not served it has taken nothing yet.
            let asked = self.served_of(id);
            let had = RouteHosts { asked, ..standing.hosts_of(id, stored) };
            let had_behind = standing.hosts_behind(id, stored);
            losses.retain(|loss| !loss.is_in(&had));
            behind.retain(|loss| !loss.is_in(&had) && !loss.is_in(&had_behind));
        }
        outcome.denial = losses.into_iter().chain(behind).next().map(|loss| loss.why);
        outcome
    }

    /// What others would lose to a route of this age that has these hosts.
    pub(super) fn losses(
        &self,
        world: &World,
        hosts: &RouteHosts,
        age: &Age,
        kind: Kind,
    ) -> Vec<Loss> {
        let by_name = hosts.named.iter().flat_map(|host| {
            let taken = self.taken_over(host, age, kind);
            taken.into_iter().chain(self.held_over(host, age, kind))
        });
        let covered = hosts.covered.iter().filter_map(|at| self.covered_over(at, age, kind));
        let sessions = hosts.sessions.iter();
        let sessions = sessions.filter_map(|place| self.sessions_over(world, place, age, kind));
        let wide = hosts.sessions.iter().filter_map(|place| place.host.as_ref());
        let wide: BTreeSet<&HostPattern> = wide.collect();
        let below = wide.into_iter().filter_map(|host| self.sessions_below(host, age, kind));
        let rules = self.rules_over(hosts, age, kind);
        by_name.chain(covered).chain(sessions).chain(below).chain(rules).collect()
    }

    /// Why it may not newly write names where there are ListenerSets: which of them have a listener for a host depends on the routes
    /// that name it, this one too. So the names count wherever it attaches.
    fn taken_beside_sets(&self, world: &World, change: Change<'_>) -> Vec<Loss> {
        let mut losses: Vec<Loss> = self.losses_below(change).collect();
        // One that it names may wait until its namespace can pay for it.
        if !world.gateway_api.sets.is_empty() || has_set(change.route) {
            losses.extend(self.losses_of_names(world, change));
        }
        losses
    }

    /// What others would lose by the names that a route has newly, wherever it attaches.
    fn losses_of_names(&self, world: &World, change: Change<'_>) -> impl Iterator<Item = Loss> {
        let Change { route, stored, age, kind } = change;
        // What a route of another controller names is kept from nobody.
        let is_ours = Prices { translator: self, world }.has_gateway(&age.key, &route.spec);
        let new = new_names(route, stored).filter_map(|name| HostPattern::parse(name).ok());
        new.flat_map(move |host| {
            let held = is_ours.then(|| self.held_over(&host, age, kind)).flatten();
            self.taken_over(&host, age, kind).into_iter().chain(held)
        })
    }

    /// What others would lose by the wildcards that a route of sessions has newly, wherever it attaches: what is in the way of a
    /// listener may be removed, and the listener may wait. One of all names has those of listeners of sets.
    fn losses_below(&self, change: Change<'_>) -> impl Iterator<Item = Loss> {
        let Change { route, stored, age, kind } = change;
        let wild = new_names(route, stored).filter_map(|name| HostPattern::parse(name).ok());
        let stored = stored.filter(|old| old.spec.parent_refs == route.spec.parent_refs);
        let is_of_all = route.spec.hostnames.is_empty()
            && stored.is_none_or(|old| !old.spec.hostnames.is_empty())
            && has_set(route);
        let all = wild.chain(is_of_all.then(HostPattern::default_host));
        let all = all.filter(move |_| kind == Kind::TLSRoute);
        all.filter_map(move |wide| self.sessions_below(&wide, age, kind))
    }

    /// Why a route may not be stored, told without looking at listeners.
    fn taken_by_name(&self, world: &World, change: Change<'_>) -> Option<String> {
        let Change { route, stored, age, kind } = change;
        let at_same = stored.filter(|old| old.spec.parent_refs == route.spec.parent_refs);
        if at_same.is_some_and(|old| old.spec.hostnames == route.spec.hostnames) {
            return self.unchecked_paths(world, change, true);
        }
        let names = &route.spec.hostnames;
        let covers = |name: &String| name.starts_with("*.");
        if names.is_empty() || names.iter().any(covers) {
            return Some(format!(
                "this {kind} may cover hosts of other namespaces, and {}",
                too_often(&age.key.namespace)
            ));
        }
        let mut losses = self.losses_of_names(world, change);
        let lost = losses.next().map(|loss| loss.why);
        lost.or_else(|| self.unchecked_paths(world, change, false))
    }

    /// Why a route may not newly ask for paths where nobody looks whose they are: others have some of its hosts' paths, or may.
    fn unchecked_paths(
        &self,
        world: &World,
        change: Change<'_>,
        has_hosts: bool,
    ) -> Option<String> {
        let Change { route, age, kind, .. } = change;
        let prices = Prices { translator: self, world };
        let counts = kind.is_of_requests() && prices.has_gateway(&age.key, &route.spec);
        let known = || match has_hosts {
            true => self.served_of(&ObjectRef::new(kind, age.key.clone())),
            false => BTreeSet::new(),
        };
        if !counts || asked(kind, &route.spec.rules).is_subset(&known()) {
            return None;
        }
        let names = &route.spec.hostnames;
        let may_have = |name: &String| {
            let host = HostPattern::parse(name);
            name.starts_with("*.")
                || host.is_ok_and(|host| self.has_rules_of_others(&host, &age.key.namespace))
        };
        (names.is_empty() || names.iter().any(may_have)).then(|| {
            format!(
                "this {kind} may take paths of other namespaces, and {}",
                too_often(&age.key.namespace)
            )
        })
    }

    /// Why a route of this age may not name a host: it would be the oldest object on one of another namespace.
    pub(super) fn taken_over(&self, host: &HostPattern, age: &Age, new: Kind) -> Option<Loss> {
        let owner = self.loser(host).filter(|(owner, _)| age.takes_from(owner));
        let owner = owner.or_else(|| self.set_over(host, age));
        let owner = owner.or_else(|| self.unwritten_over(host, |route| age.takes_from(route)));
        let of = Lost::Named(host.clone());
        owner.map(|(owner, kind)| Loss { of, why: why(host, (&owner.key, kind), new) })
    }

    /// Why a route of this age may not name a host: a younger route of another namespace has its sessions on some port by a wildcard
    /// or by its listener, from which the host would be kept.
    pub(super) fn held_over(&self, host: &HostPattern, age: &Age, new: Kind) -> Option<Loss> {
        // What the namespace has named before is kept already, or its own.
        let route = self.gateway_claims.get(host).and_then(|claim| claim.route.clone());
        let own = self.loser(host).into_iter().chain(route).map(|(owner, _)| owner);
        let own = own.filter(|owner| owner.key.namespace == age.key.namespace).min();
        let mut all = self.gateways.session_holders.over(host).filter(|(route, _)| {
            own.as_ref().is_none_or(|own| route < own) && age.takes_from(route)
        });
        let (owner, kind) = all.next()?;
        let of = Lost::Named(host.clone());
        Some(Loss { of, why: why(host, (&owner.key, *kind), new) })
    }

    /// A route that has a host by its listener alone, and is lost to one that writes the name.
    fn unwritten_over(
        &self,
        host: &HostPattern,
        is_lost: impl Fn(&Age) -> bool,
    ) -> Option<(Age, Kind)> {
        let lost = self.places.covering(host).filter(|(route, _)| is_lost(route)).min();
        lost.map(|(route, kind)| (route.clone(), kind))
    }

    /// The youngest ListenerSet of another namespace that has a listener with this host, if that is younger: whoever names the host
    /// newly would become its owner, and might bring it by an older set.
    pub(super) fn set_over(&self, host: &HostPattern, age: &Age) -> Option<(Age, Kind)> {
        let all = self.hosts_of_sets.get(host)?.iter();
        // A namespace that owns the host gains nothing where that is older than the set.
        let own = self.loser(host).map(|(owner, _)| owner);
        let own = own.filter(|owner| owner.key.namespace == age.key.namespace);
        let all = all.filter(|set| own.as_ref().is_none_or(|own| *set < own));
        let youngest = all.filter(|set| age.takes_from(set)).max();
        youngest.map(|set| (set.clone(), Kind::ListenerSet))
    }

    /// Why it may not cover a host that no object names: it would be the oldest that does.
    fn covered_over(&self, at: &ListenerHost, age: &Age, new: Kind) -> Option<Loss> {
        let PlaceOwner { age: owner, kind, is_by_name } = self.places.owner(at)?;
        let is_older = match kind {
            Kind::Ingress => age.created < owner.created,
            _ => age.borrowed() < owner.borrowed(),
        };
        let is_lost = is_older && !is_by_name && owner.key.namespace != age.key.namespace;
        let of = Lost::Covered(at.clone());
        is_lost.then(|| Loss { of, why: why(&at.host, (&owner.key, *kind), new) })
    }

    /// Why it may not ask for sessions that a younger route of another namespace has.
    fn sessions_over(
        &self,
        world: &World,
        place: &SessionPlace,
        age: &Age,
        new: Kind,
    ) -> Option<Loss> {
        let of = Lost::Sessions(place.clone());
        // Whose listener's host it is that has not been written there.
        let named = place.host.as_ref().filter(|host| **host != HostPattern::default_host());
        let named = named.and_then(|host| Some((host, self.loser(host)?)));
        if let Some((host, (owner, kind))) = named.filter(|(_, (by, _))| age.takes_from(by)) {
            return Some(Loss { of, why: why(host, (&owner.key, kind), new) });
        }
        let id = self.route_of_session(place)?;
        let created = world.gateway_api.routes.get(&id)?.meta.created;
        let is_older = age.borrowed() < (created, &id.key);
        let is_lost = is_older && id.key.namespace != age.key.namespace;
        let why = || {
            format!(
                "the sessions of {place} belong to namespace {}, whose {id} has them; this {new} is older and would take them \
                 over: attach a new {new}",
                id.key.namespace
            )
        };
        is_lost.then(|| Loss { of, why: why() })
    }

    /// Why it may not ask for the sessions of a wildcard, or of all names: of hosts below that younger routes of another namespace name
    /// it would have them, too.
    fn sessions_below(&self, wide: &HostPattern, age: &Age, new: Kind) -> Option<Loss> {
        if !is_wide(wide) {
            return None;
        }
        let (host, (owner, kind)) = self.gateway_claims.iter().find_map(|(host, claim)| {
            let (named, kind) = claim.route.as_ref()?;
            let is_lost = age.takes_from(named) && host != wide && covers(wide, host);
            is_lost.then_some((host, (named, kind)))
        })?;
        let why = format!(
            "the sessions of {host} would come with those of {wide}, and it belongs to namespace {}, whose {kind} {} names it; this \
             {new} is older and would have them: attach a new {new}",
            owner.key.namespace, owner.key
        );
        Some(Loss { of: Lost::Below(wide.clone()), why })
    }

    /// Why an old Ingress may not newly be for a host that routes of another namespace have without having written it: that of their
    /// listener, or that of requests without a host. It would be the one that names it.
    pub(super) fn take_unwritten(&self, host: &HostPattern, claims: &Claims) -> Option<Note> {
        let age = claims.age();
        let had_it = self.claims.get(&claims.key).is_some_and(|old| {
            let mut aliases = self.aliases_onto(host).into_iter();
            old.canary().is_none() && old.hosts.contains_key(host)
                || aliases.any(|(alias, _)| alias.age.key == claims.key)
        });
        if had_it || claims.canary().is_some() {
            return None;
        }
        let is_unnamed = *host == HostPattern::default_host();
        let is_lost = |route: &Age| match is_unnamed {
            // There an Ingress is first of one age.
            true => route.key.namespace != age.key.namespace && age.created <= route.created,
            false => age.takes_from(route),
        };
        let mut held = self.gateways.session_holders.at(host).filter(|_| !is_unnamed);
        let held = held.find(|(route, _)| is_lost(route)).cloned();
        let (owner, kind) = self.unwritten_over(host, is_lost).or(held)?;
        Some(Note::rejected(why(host, (&owner.key, kind), Kind::Ingress)))
    }

    /// Who would lose a host to an older object that names it now: a listener loses nothing.
    pub(super) fn loser(&self, host: &HostPattern) -> Option<(Age, Kind)> {
        let decided = self.decide_owner(host);
        match decided.kind {
            Kind::Gateway => self.successor(host, decided.kind),
            kind => Some((decided.by?, kind)),
        }
    }
}

/// The host names that a route has newly. At other parents it may be served for the first time by a name that it had.
fn new_names<'r>(route: &'r Route, stored: Option<&Route>) -> impl Iterator<Item = &'r String> {
    let stored = stored.filter(|old| old.spec.parent_refs == route.spec.parent_refs);
    let names = route.spec.hostnames.iter();
    names.filter(move |name| stored.is_none_or(|old| !old.spec.hostnames.contains(name)))
}

/// Whether one of its parents is a ListenerSet.
fn has_set(route: &Route) -> bool {
    route.spec.parent_refs.iter().any(|parent| parent.kind.as_deref() == Some("ListenerSet"))
}

/// What is said to a namespace that had too many routes reviewed.
fn too_often(namespace: &str) -> String {
    format!(
        "namespace {namespace} had so many or such large routes and regular expressions reviewed in the last minute that only \
         host names were checked: send it again in a minute, or name fewer listeners by sectionName"
    )
}

/// A host, or a path of one, that another namespace would lose.
pub(super) struct Loss {
    pub(super) of: Lost,
    pub(super) why: String,
}

impl Loss {
    /// Whether a route has it already that has these hosts.
    pub(super) fn is_in(&self, hosts: &RouteHosts) -> bool {
        match &self.of {
            Lost::Named(host) => hosts.named.contains(host),
            Lost::Covered(at) => hosts.covered.contains(at),
            Lost::Sessions(place) => hosts.sessions.contains(place),
            Lost::Rule(at, asked) => hosts.served.contains_key(at) && hosts.asked.contains(asked),
            Lost::Below(host) => hosts.sessions.iter().any(|at| at.host.as_ref() == Some(host)),
        }
    }
}

/// What it would lose.
pub(super) enum Lost {
    Named(HostPattern),
    Covered(ListenerHost),
    /// What a rule asks for at a place.
    Rule(ListenerHost, Asked),
    Sessions(SessionPlace),
    /// Sessions of hosts below this one.
    Below(HostPattern),
}

/// What is said to who would take a host over.
pub(super) fn why(host: &HostPattern, (owner, kind): (&Key, Kind), new: Kind) -> String {
    format!(
        "{} belongs to namespace {}, whose {kind} {owner} names it; this {new} is older and would take it over: name the \
         host in a new {new}",
        owner::words_of(host),
        owner.namespace
    )
}
