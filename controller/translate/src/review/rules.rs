//! Whose paths an object would take: those that younger objects of other namespaces have on its hosts.
//!
//! Order:   as where the rules of a host are put together ([`crate::gateway`]): of two with one path and the same conditions the older
//!          object's is served. So an old object that newly asks for a path would take it. One that has conditions would take a part
//!          of its requests, and where it is the older, those of guests with conditions fall.
//! Cost:    for each place a look-up for each path, and a look at the rules of that path there.

use super::routes::{Loss, Lost};
use crate::Translator;
use crate::claim::age::Age;
use crate::gateway::{Asked, Rank, RouteHosts, covers, excludes, specificity};
use crate::host::merge::MergedHost;
use crate::host::owner;
use crate::ingress::Claims;
use oxigress_core::model::{
    HostPattern, ListenerHost, PathPattern, Rule, Selection, Server, shorten,
};
use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroU16;

/// A rule of a younger object of another namespace.
struct ForeignRule<'r> {
    rule: &'r Rule,
    by: ObjectRef,
    /// How specific the name is that its route has written for the host; `None`: it is an Ingress.
    rank: Option<Rank>,
    /// Its namespace does not own the host.
    is_guest: bool,
}

impl Translator {
    /// What others would lose to the rules of a route of this age that has these hosts.
    pub(super) fn rules_over<'r>(
        &'r self,
        hosts: &'r RouteHosts,
        age: &'r Age,
        new: Kind,
    ) -> impl Iterator<Item = Loss> + 'r {
        hosts.served.iter().flat_map(move |(at, rank)| {
            let by = (age, new, Some(*rank));
            self.rules_over_at(at, &hosts.asked, by)
        })
    }

    /// Why an old Ingress may not be for a host with the paths that it newly asks for: a younger route has one of them. `merged`: what
    /// the Ingresses of the host come to with it; without that all paths count that it writes.
    pub(super) fn take_rules(
        &self,
        host: &HostPattern,
        claims: &Claims,
        merged: Option<&MergedHost>,
    ) -> Option<Note> {
        if claims.canary().is_some() {
            return None;
        }
        let stored = self.claims.get(&claims.key).filter(|old| old.canary().is_none());
        let stored = stored.into_iter().flat_map(|old| old.claims_on(host));
        let had: BTreeSet<&PathPattern> = stored
            .map(|claim| &claim.pattern)
            .chain(rules_by(&claims.key, self.snapshot.servers.get(host)))
            .collect();
        let paths: BTreeSet<&PathPattern> = match merged {
            Some(merged) => rules_by(&claims.key, merged.server.as_ref()).collect(),
            None => claims.claims_on(host).iter().map(|claim| &claim.pattern).collect(),
        };
        let asked =
            paths.difference(&had).map(|path| (PathPattern::clone(path), Selection::default()));
        let asked: BTreeSet<Asked> = asked.collect();
        let followers = self.aliases.of(host).map(|alias| &alias.host);
        let ports = [self.options.http_port, self.options.tls_port];
        let ports: Vec<_> = ports.into_iter().filter_map(NonZeroU16::new).collect();
        let mut places = std::iter::once(host).chain(followers).flat_map(|host| {
            ports.iter().map(|port| ListenerHost::deep(*port, None, host.clone()))
        });
        let age = claims.age();
        let by = (&age, Kind::Ingress, None);
        let lost = places.find_map(|at| self.rules_over_at(&at, &asked, by).into_iter().next());
        lost.map(|loss| Note::rejected(loss.why))
    }

    /// What others would lose at a place to an object that asks for this. `rank`: how specific the name is that it has written for the
    /// host, if it is a route.
    fn rules_over_at(
        &self,
        at: &ListenerHost,
        asked: &BTreeSet<Asked>,
        (age, new, rank): (&Age, Kind, Option<Rank>),
    ) -> Vec<Loss> {
        let (mut of_path, mut losses) = (None, Vec::new());
        for (path, selection) in asked {
            let (_, foreign) = match of_path.take().filter(|(of, _)| *of == path) {
                Some(known) => of_path.insert(known),
                None => of_path.insert((path, self.foreign_rules(at, path, age, new))),
            };
            let Some(lost) = foreign.iter().find(|lost| lost.falls_to(selection, rank, &at.host))
            else {
                continue;
            };
            let why = format!(
                "path {} of {} belongs to namespace {}, whose {} has it; this {new} is older and would take its requests: use \
                 another path",
                shorten(&path.to_string()),
                owner::words_of(&at.host),
                lost.by.key.namespace,
                lost.by
            );
            losses
                .push(Loss { of: Lost::Rule(at.clone(), (path.clone(), selection.clone())), why });
        }
        losses
    }

    /// The rules of a path at a place that younger objects of other namespaces have. Ingresses are compared with each other as they
    /// are written.
    fn foreign_rules(
        &self,
        at: &ListenerHost,
        path: &PathPattern,
        age: &Age,
        new: Kind,
    ) -> Vec<ForeignRule<'_>> {
        let all = self.rules_at_place(at, path).into_iter();
        let foreign = all.filter(|rule| *rule.origin.namespace != *age.key.namespace);
        let foreign = foreign.filter_map(|rule| {
            let (by, created, route) = self.holder_of(rule)?;
            let holder = Age { created, key: by.key.clone() };
            let counts = age.takes_from(&holder) && (new != Kind::Ingress || route.is_some());
            let place_owner = self.places.owner(at);
            counts.then(|| ForeignRule {
                rule,
                rank: route.map(|route| rank_of(route, &at.host)),
                is_guest: place_owner.is_some_and(|of| of.age.key.namespace != by.key.namespace),
                by,
            })
        });
        foreign.collect()
    }

    /// The rules of a path at a place. The star of an Ingress stands for one label there. Where there is no listener's server yet, one
    /// would have those of Ingresses beside its own.
    fn rules_at_place(&self, at: &ListenerHost, path: &PathPattern) -> Vec<&Rule> {
        let of_listener = |at: &ListenerHost| {
            let server = self.snapshot.listener_servers.get(at)?;
            Some(self.rules.at_listener(at, server, path))
        };
        let of_ingresses = || {
            let ports = [self.options.http_port, self.options.tls_port];
            let is_beside = at.address.is_none() && ports.contains(&at.port.get());
            let server = self.snapshot.servers.get(&at.host).filter(|_| is_beside)?;
            Some(self.rules.on_host(&at.host, server, path))
        };
        let one_label = ListenerHost { is_deep: false, ..at.clone() };
        let deep = at.is_deep.then(|| of_listener(at)).flatten();
        let beside = of_listener(&one_label).or_else(of_ingresses);
        deep.into_iter().chain(beside).flatten().collect()
    }

    /// The object that has a rule, with its creation, and the route if it is one: of two kinds with one name the younger.
    fn holder_of(&self, rule: &Rule) -> Option<(ObjectRef, i64, Option<&Route>)> {
        let key = Key::new(rule.origin.namespace.as_str(), rule.origin.ingress.as_str());
        // What Ingresses say is matched leniently.
        if !rule.policy.is_strict {
            let created = self.claims.get(&key)?.created;
            return Some((ObjectRef::new(Kind::Ingress, key), created, None));
        }
        let kinds = [Kind::HTTPRoute, Kind::GRPCRoute].into_iter();
        let routes = kinds.filter_map(|kind| {
            let id = ObjectRef::new(kind, key.clone());
            let route = self.known_route(&id)?;
            Some((id, route.meta.created, Some(route)))
        });
        routes.max_by_key(|(_, created, _)| *created)
    }
}

impl ForeignRule<'_> {
    /// Whether it would no longer have all of its requests if an older object asked for the same path with these conditions.
    fn falls_to(&self, asked: &Selection, rank: Option<Rank>, host: &HostPattern) -> bool {
        let held = self.rule.selection.as_deref();
        let (is_all, is_part) =
            (asked.criteria().is_none(), held.is_some_and(|held| held.criteria().is_some()));
        let meets = held.is_none_or(|held| !excludes(asked, held));
        // Of guests only the namespace that has a path takes a part of its requests.
        let is_refused = is_part && self.is_guest;
        let by_age = is_refused || if is_all { !is_part } else { meets };
        let (Some(own), Some(of)) = (rank, self.rank) else { return by_age };
        // What the more specific name leaves is the others', but for wildcards of which the older route keeps its own.
        let is_written = own != specificity(&HostPattern::default_host());
        match own.cmp(&of) {
            Ordering::Greater => meets || is_refused,
            Ordering::Less if of == specificity(host) || !is_written => {
                is_refused && (is_all || !meets)
            }
            _ => by_age,
        }
    }
}

/// How specific the most specific name is that a route has written for a host.
fn rank_of(route: &Route, host: &HostPattern) -> Rank {
    let names = route.spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
    let names = names.filter(|name| covers(name, host));
    names.map(|name| specificity(&name)).max().unwrap_or_default()
}

/// The paths of the rules that an Ingress has in a server.
fn rules_by<'s>(by: &Key, server: Option<&'s Server>) -> impl Iterator<Item = &'s PathPattern> {
    let rules = server.into_iter().flat_map(|server| &server.rules);
    let own = rules.filter(move |rule| {
        *rule.origin.ingress == *by.name && *rule.origin.namespace == *by.namespace
    });
    own.map(|rule| &rule.path)
}
