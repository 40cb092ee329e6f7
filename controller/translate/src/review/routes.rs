//! What would become of a route that is about to be created or changed.

use super::ReviewOutcome;
use crate::Reviews;
use crate::Translator;
use crate::age::Age;
use crate::gateway::{PlaceOwner, RouteHosts, Standing};
use crate::host::owner::{self, HostOwnership};
use crate::ingress::Claims;
use crate::pace::price::Prices;
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace};
use oxigress_objects::gateway::Route;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::time::Instant;

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
        let stored = world.gateway_api.routes.get(id);
        reviews.begin(&id.key.namespace, now);
        let prices = Prices { translator: self, world };
        if !reviews.charge(prices.of_review(&id.key, &route.spec)) {
            outcome.warnings.push(too_often(&id.key.namespace));
            outcome.denial = self.taken_by_name(route, stored.map(|old| &**old), &age, id.kind);
            return outcome;
        }
        let mut standing = Standing::of(world, &self.options, Some(&self.gateways.left));
        let new = standing.hosts_of(id, route);
        outcome.compared = (new.named.len() + new.covered.len() + new.sessions.len()).min(1);
        let mut losses = self.losses(world, &new, &age, id.kind);
        losses.extend(self.taken_beside_sets(
            world,
            route,
            stored.map(|old| &**old),
            &age,
            id.kind,
        ));
        // What it takes already it has taken long ago: nobody is to be kept from changing an object by what came since.
        if let Some(stored) = stored.filter(|_| !losses.is_empty()) {
            let old = standing.hosts_of(id, stored);
            losses.retain(|loss| !loss.is_in(&old));
        }
        outcome.denial = losses.into_iter().next().map(|loss| loss.why);
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
        let by_name = hosts.named.iter().filter_map(|host| self.taken_over(host, age, kind));
        let covered = hosts.covered.iter().filter_map(|at| self.covered_over(at, age, kind));
        let sessions = hosts.sessions.iter();
        let sessions = sessions.filter_map(|place| self.sessions_over(world, place, age, kind));
        by_name.chain(covered).chain(sessions).collect()
    }

    /// Why it may not newly write names where there are ListenerSets: which of them have a listener for a host depends on the routes
    /// that name it, this one too. So the names count wherever it attaches.
    fn taken_beside_sets(
        &self,
        world: &World,
        route: &Route,
        stored: Option<&Route>,
        age: &Age,
        kind: Kind,
    ) -> Vec<Loss> {
        if world.gateway_api.sets.is_empty() {
            return Vec::new();
        }
        self.losses_of_names(route, stored, age, kind).collect()
    }

    /// What others would lose by the names that a route has newly, wherever it attaches.
    fn losses_of_names(
        &self,
        route: &Route,
        stored: Option<&Route>,
        age: &Age,
        kind: Kind,
    ) -> impl Iterator<Item = Loss> {
        let new = new_names(route, stored).filter_map(|name| HostPattern::parse(name).ok());
        new.filter_map(move |host| self.taken_over(&host, age, kind))
    }

    /// Why a route may not be stored, told without looking at listeners.
    fn taken_by_name(
        &self,
        route: &Route,
        stored: Option<&Route>,
        age: &Age,
        kind: Kind,
    ) -> Option<String> {
        let at_same = stored.filter(|old| old.spec.parent_refs == route.spec.parent_refs);
        if at_same.is_some_and(|old| old.spec.hostnames == route.spec.hostnames) {
            return None;
        }
        let names = &route.spec.hostnames;
        let covers = |name: &String| name.starts_with("*.");
        if names.is_empty() || names.iter().any(covers) {
            return Some(format!(
                "this {kind} may cover hosts of other namespaces, and {}",
                too_often(&age.key.namespace)
            ));
        }
        self.losses_of_names(route, stored, age, kind).next().map(|loss| loss.why)
    }

    /// Why a route of this age may not name a host: it would be the oldest object on one of another namespace.
    pub(super) fn taken_over(&self, host: &HostPattern, age: &Age, new: Kind) -> Option<Loss> {
        let is_lost = |(owner, _): &(Age, Kind)| {
            age.borrowed() < owner.borrowed() && owner.key.namespace != age.key.namespace
        };
        let owner = self.loser(host).filter(is_lost).or_else(|| self.set_over(host, age));
        let of = Lost::Named(host.clone());
        owner.map(|(owner, kind)| Loss { of, why: why(host, (&owner.key, kind), new) })
    }

    /// The youngest ListenerSet of another namespace that has a listener with this host, if that is younger: whoever names the host
    /// newly would become its owner, and might bring it by an older set.
    pub(super) fn set_over(&self, host: &HostPattern, age: &Age) -> Option<(Age, Kind)> {
        let all = self.hosts_of_sets.get(host)?.values();
        let younger = all.filter(|set| set.key.namespace != age.key.namespace && *set > age);
        younger
            .max()
            .map(|set| (set.clone(), Kind::ListenerSet))
            .filter(|_| *host != HostPattern::default_host())
    }

    /// Why it may not cover a host that no object names: it would be the oldest that does.
    fn covered_over(&self, at: &ListenerHost, age: &Age, new: Kind) -> Option<Loss> {
        let PlaceOwner { age: owner, kind, is_by_name } = self.gateways.owners.get(at)?;
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
        let id = self.route_of_session(place)?;
        let created = world.gateway_api.routes.get(&id)?.meta.created;
        let is_older = age.borrowed() < (created, &id.key);
        let is_lost = is_older && id.key.namespace != age.key.namespace;
        let of = Lost::Sessions(place.clone());
        let why = || {
            format!(
                "the sessions of {place} belong to namespace {}, whose {id} has them; this {new} is older and would take them \
                 over: attach a new {new}",
                id.key.namespace
            )
        };
        is_lost.then(|| Loss { of, why: why() })
    }

    /// Why an old Ingress may not newly be for requests without a host: it would take these from routes of another namespace.
    pub(super) fn take_default_host(&self, host: &HostPattern, claims: &Claims) -> Option<Note> {
        let has_it = |claims: &Claims| claims.canary().is_none() && claims.hosts.contains_key(host);
        let had_it = self.claims.get(&claims.key).is_some_and(|old| has_it(old));
        if *host != HostPattern::default_host() || had_it || !has_it(claims) {
            return None;
        }
        let owners = self.gateways.owners.iter().filter(|(at, _)| at.host == *host);
        let mut routes = owners.map(|(_, owner)| owner).filter(|owner| owner.kind.is_route());
        let PlaceOwner { age: owner, kind, .. } = routes.find(|owner| {
            let is_foreign = owner.age.key.namespace != claims.key.namespace;
            is_foreign && claims.created <= owner.age.created
        })?;
        Some(Note::rejected(why(host, (&owner.key, *kind), Kind::Ingress)))
    }

    /// Who would lose a host to an older object that names it now: a listener loses nothing.
    fn loser(&self, host: &HostPattern) -> Option<(Age, Kind)> {
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

/// What is said to a namespace that had too many routes reviewed.
fn too_often(namespace: &str) -> String {
    format!(
        "namespace {namespace} had so many or such large routes and regular expressions reviewed in the last minute that only \
         host names were checked: send it again in a minute, or name fewer listeners by sectionName"
    )
}

/// A host that another namespace would lose.
pub(super) struct Loss {
    of: Lost,
    pub(super) why: String,
}

impl Loss {
    /// Whether a route has it already that has these hosts.
    pub(super) fn is_in(&self, hosts: &RouteHosts) -> bool {
        match &self.of {
            Lost::Named(host) => hosts.named.contains(host),
            Lost::Covered(at) => hosts.covered.contains(at),
            Lost::Sessions(place) => hosts.sessions.contains(place),
        }
    }
}

enum Lost {
    Named(HostPattern),
    Covered(ListenerHost),
    Sessions(SessionPlace),
}

fn why(host: &HostPattern, (owner, kind): (&Key, Kind), new: Kind) -> String {
    format!(
        "{} belongs to namespace {}, whose {kind} {owner} names it; this {new} is older and would take it over: name the \
         host in a new {new}",
        owner::words_of(host),
        owner.namespace
    )
}

#[cfg(test)]
mod tests {
    use crate::review::tests::{Fixture, objects};
    use oxigress_objects::Object;

    #[test]
    fn an_old_route_takes_no_host_of_another_namespace() {
        let route_of = |kind: &str, namespace: &str, created: &str, host: &str| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
                 metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{created}' }}\n\
                 spec: {{ parentRefs: [{{ name: web, namespace: infra }}], hostnames: [{host}] }}"
            )
        };
        let route = |namespace: &str, created: &str, host: &str| {
            route_of("HTTPRoute", namespace, created, host)
        };
        let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                       spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
                       apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: { name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }\n\
                       spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP, \
                       allowedRoutes: { namespaces: { from: All } } }] }";
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                       metadata: { name: shop, namespace: victim, creationTimestamp: '2024-01-01T00:00:00Z' }\n\
                       spec: { ingressClassName: nginx, rules: [{ host: shop.test }] }";
        let world = [
            gateway.to_owned(),
            ingress.to_owned(),
            route("victim", "2024-01-01T00:00:00Z", "routed.test"),
        ];
        for (flags, expected) in [("", true), ("--host-ownership=shared", false)] {
            let fixture = Fixture::new(flags, &world);
            for host in ["shop.test", "routed.test"] {
                let denial = |namespace: &str, created: &str| {
                    let all = objects(&route(namespace, created, host));
                    let [(id, Object::Route(route))] = &all[..] else { panic!("{all:?}") };
                    let outcome = fixture.review_route(id, route);
                    outcome.denial
                };
                let said = denial("evil", "2023-01-01T00:00:00Z");
                assert_eq!(said.is_some(), expected, "{flags} {host}: {said:?}");
                assert!(said.is_none_or(|said| said.contains("belongs to namespace victim")));
                let call = objects(&route_of("GRPCRoute", "evil", "2023-01-01T00:00:00Z", host));
                let [(id, Object::Route(call))] = &call[..] else { panic!("{call:?}") };
                let said = fixture.review_route(id, call).denial;
                assert_eq!(said.is_some(), expected, "{flags} {host}: {said:?}");
                assert!(said.is_none_or(|said| said.contains("in a new GRPCRoute")));
                assert_eq!(denial("evil", "2025-01-01T00:00:00Z"), None, "{host}: a younger one");
                assert_eq!(denial("victim", "2023-01-01T00:00:00Z"), None, "{host}: its owner");
            }
            let mine = objects(&route("evil", "2023-01-01T00:00:00Z", "new.test"));
            let [(id, Object::Route(mine))] = &mine[..] else { panic!() };
            assert_eq!(fixture.review_route(id, mine).denial, None);
        }
    }
    /// A Gateway whose listener names a host leaves it to the oldest object that names it, too.
    #[test]
    fn a_route_may_move_to_a_younger_gateway_and_takes_nothing_from_who_is_served_there() {
        let class = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                     spec: { controllerName: oxigress.io/gateway-controller }";
        let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: { name: web, namespace: infra, creationTimestamp: '2022-01-01T00:00:00Z' }\n\
                       spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP, \
                       hostname: shop.test, allowedRoutes: { namespaces: { from: All } } }] }";
        let route = |namespace: &str, year: u16| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
                 metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
                 spec: {{ parentRefs: [{{ name: web, namespace: infra }}], hostnames: [shop.test] }}"
            )
        };
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                       metadata: { name: shop, namespace: victim, creationTimestamp: '2024-01-01T00:00:00Z' }\n\
                       spec: { ingressClassName: nginx, rules: [{ host: shop.test }] }";
        let all = [class.to_owned(), gateway.to_owned()];
        for (others, year, is_denied) in [
            (vec![], 2018, false),
            (vec![route("victim", 2024)], 2018, true),
            (vec![route("victim", 2024)], 2023, true),
            (vec![route("victim", 2024)], 2025, false),
            (vec![ingress.to_owned()], 2018, true),
            (vec![ingress.to_owned()], 2023, true),
            (vec![ingress.to_owned()], 2025, false),
        ] {
            let fixture = Fixture::new("", &[&all[..], &others].concat());
            let own = objects(&route("team", year));
            let [(id, Object::Route(own))] = &own[..] else { panic!() };
            let denial = fixture.review_route(id, own).denial;
            assert_eq!(denial.is_some(), is_denied, "{year} beside {others:?}: {denial:?}");
        }
    }

    const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                         spec: { controllerName: oxigress.io/gateway-controller }";

    /// A Gateway with one listener, whose host may be empty.
    fn gateway(host: &str) -> String {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
             metadata: {{ name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }}\n\
             spec: {{ gatewayClassName: oxigress, listeners: [{{ name: http, port: 80, protocol: HTTP, \
             hostname: '{host}', allowedRoutes: {{ namespaces: {{ from: All }} }} }}] }}"
        )
    }

    /// A route without host names, at no Gateway if it is for none.
    fn hostless(namespace: &str, year: u16, parent: &str) -> String {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
             spec: {{ parentRefs: [{{ name: {parent}, namespace: infra }}], rules: [{{}}] }}"
        )
    }

    fn denial(fixture: &Fixture, route: &str) -> Option<String> {
        let all = objects(route);
        let [(id, Object::Route(route))] = &all[..] else { panic!("{all:?}") };
        fixture.review_route(id, route).denial
    }

    #[test]
    fn a_young_ingress_without_host_keeps_nobody_from_changing_older_routes() {
        let young = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                     metadata: { name: x, namespace: evil, creationTimestamp: '2026-01-01T00:00:00Z' }\n\
                     spec: { ingressClassName: nginx, rules: [{ http: { paths: [{ path: /evil-x, pathType: Prefix, \
                     backend: { service: { name: s, port: { number: 80 } } } }] } }] }";
        let world =
            [CLASS.to_owned(), gateway(""), hostless("shop", 2025, "web"), young.to_owned()];
        let fixture = Fixture::new("", &world);
        let host = oxigress_core::model::HostPattern::default_host();
        assert_eq!(fixture.translator.owner_of(&host).unwrap().0.namespace.as_str(), "evil");
        assert_eq!(denial(&fixture, &hostless("shop", 2025, "web")), None, "it is served there");
        assert_eq!(denial(&fixture, &hostless("shop", 2024, "web")), None, "of one namespace");
        assert_eq!(denial(&fixture, &hostless("new", 2027, "web")), None, "a younger one");
        let said = denial(&fixture, &hostless("old", 2020, "web")).unwrap();
        assert!(said.contains("namespace shop, whose HTTPRoute shop/r names it"), "{said}");
        // The Ingress has the default host where no route is older.
        let fixture = Fixture::new("", &[CLASS.to_owned(), gateway(""), young.to_owned()]);
        let said = denial(&fixture, &hostless("old", 2020, "web")).unwrap();
        assert!(said.contains("whose Ingress evil/x names it"), "{said}");
    }

    /// Nothing but their age tells who has the sessions of a port, or of server names that a route has not written.
    #[test]
    fn an_old_route_takes_no_sessions_newly_that_routes_of_others_have() {
        let listeners = [
            "{ name: tcp, port: 9000, protocol: TCP, allowedRoutes: { namespaces: { from: All } } }",
            "{ name: udp, port: 53, protocol: UDP, allowedRoutes: { namespaces: { from: All } } }",
            "{ name: tls, port: 9443, protocol: TLS, tls: { mode: Passthrough }, allowedRoutes: { namespaces: { from: All } } }",
        ];
        let gateway = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
             metadata: {{ name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }}\n\
             spec: {{ gatewayClassName: oxigress, listeners: [{}] }}",
            listeners.join(", ")
        );
        for (kind, place) in
            [("TCPRoute", "tcp/9000"), ("UDPRoute", "udp/53"), ("TLSRoute", "tcp/9443/_")]
        {
            let route = |namespace: &str, year: u16, parent: &str| {
                hostless(namespace, year, parent).replace("HTTPRoute", kind)
            };
            let world = [CLASS.to_owned(), gateway.clone(), route("shop", 2024, "web")];
            let fixture = Fixture::new("", &[&world[..], &[route("evil", 2020, "none")]].concat());
            let said = denial(&fixture, &route("evil", 2020, "web")).unwrap_or_default();
            let expected = format!(
                "the sessions of {place} belong to namespace shop, whose {kind} shop/r has them"
            );
            assert!(said.contains(&expected), "{said}");
            assert_eq!(denial(&fixture, &route("evil", 2025, "web")), None, "a younger one");
            assert_eq!(denial(&fixture, &route("shop", 2020, "web")), None, "of one namespace");
            let fixture = Fixture::new("", &[&world[..], &[route("evil", 2020, "web")]].concat());
            assert_eq!(denial(&fixture, &route("evil", 2020, "web")), None, "it has them already");
        }
    }

    #[test]
    fn an_old_route_covers_no_host_newly_that_routes_of_others_have() {
        for host in ["", "apps.test"] {
            let others = [hostless("a", 2023, "web"), hostless("b", 2024, "web")];
            let world = [&[CLASS.to_owned(), gateway(host)][..], &others].concat();
            let unattached = hostless("evil", 2020, "none");
            let fixture = Fixture::new("", &[&world[..], &[unattached]].concat());
            let said = denial(&fixture, &hostless("evil", 2020, "web"));
            assert!(said.is_some_and(|said| said.contains("belongs to namespace a")), "{host}");
            assert_eq!(denial(&fixture, &hostless("b", 2024, "web")), None);
            let fixture =
                Fixture::new("", &[&world[..], &[hostless("evil", 2020, "web")]].concat());
            assert_eq!(denial(&fixture, &hostless("evil", 2020, "web")), None, "it has it already");
        }
    }

    /// Its own budget is at the hands of each namespace: spending it opens nothing.
    #[test]
    fn a_namespace_that_has_spent_its_reviews_takes_no_host() {
        let named = |namespace: &str, year: u16, host: &str| {
            hostless(namespace, year, "web")
                .replace("rules:", &format!("hostnames: ['{host}'], rules:"))
        };
        let stored = named("evil", 2020, "own.test");
        let world =
            [CLASS.to_owned(), gateway(""), named("shop", 2024, "shop.test"), stored.clone()];
        let fixture = Fixture::new("", &world);
        assert_eq!(denial(&fixture, &named("evil", 2020, "*.test")), None, "nobody has such hosts");
        fixture.spend_reviews_of("evil");
        let said = denial(&fixture, &named("evil", 2020, "shop.test")).unwrap();
        assert!(said.contains("belongs to namespace shop"), "{said}");
        for covers in [hostless("evil", 2020, "web"), named("evil", 2020, "*.test")] {
            let said = denial(&fixture, &covers).unwrap();
            assert!(said.contains("may cover hosts of other namespaces"), "{said}");
        }
        assert_eq!(denial(&fixture, &named("evil", 2020, "new.test")), None);
        assert_eq!(denial(&fixture, &stored), None, "it is so already");
        // A name that it had where it was not served is a new one at another parent.
        let parked = named("evil", 2020, "shop.test").replace("name: web,", "name: none,");
        let fixture = Fixture::new("", &[&world[..3], &[parked]].concat());
        fixture.spend_reviews_of("evil");
        let said = denial(&fixture, &named("evil", 2020, "shop.test"));
        assert!(said.is_some_and(|said| said.contains("belongs to namespace shop")));
        let fixture = Fixture::new("", &world);
        fixture.spend_reviews_of("evil");
        assert_eq!(denial(&fixture, &hostless("shop", 2024, "web")), None, "another namespace");
    }
}
