//! Whom a host is kept from, since an older object that is not in force names it.

mod parked;

use super::*;
use crate::Options;
use crate::gateway::work::{self, Step};
use crate::pace::take_hosts_read;
use crate::patterns::budget::OF_NAMESPACE;
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway::{MAX_ROUTES, MAX_SETS};
use oxigress_objects::ingress::{Ingress, Port, Rule, Target};
use oxigress_objects::{Changed, Key, Seen};
use std::sync::Arc;
use std::time::Duration;

/// What was admitted, and what a review of another object says.
struct Bench {
    world: World,
    translator: Translator,
    pace: Pace,
    reviews: Reviews,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Bench {
            world: World::default(),
            translator: Translator::new(Options::default()),
            pace: Pace::default(),
            reviews: Reviews::default(),
            now: Instant::now(),
        }
    }

    /// Takes objects over at once.
    fn see(&mut self, seen: impl IntoIterator<Item = Seen>) {
        let mut changed = Changed::default();
        seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
        self.translator.update(&self.world, &changed);
    }

    /// Lets objects wait.
    fn delay(&mut self, seen: impl IntoIterator<Item = Seen>) {
        for (id, object) in seen {
            self.pace.spend_share(&id.key.namespace, self.now);
            let prices = Prices { translator: &self.translator, world: &self.world };
            assert!(self.pace.admit((id, object), &prices, self.now).is_none());
        }
    }

    /// Why an object may not be stored.
    fn denial_of(&mut self, (id, object): Seen) -> Option<String> {
        let Bench { world, translator, pace, reviews, now } = self;
        translator.reserved(world, pace, (&id, &object.unwrap()), reviews, *now)
    }

    /// Why a younger Ingress of another namespace may not name a host.
    fn denial(&mut self, host: &str) -> Option<String> {
        self.denial_of(ingress("shop", 9, host))
    }

    fn owner(&self, host: &str) -> Option<&str> {
        let (owner, _) = self.translator.owner_of(&HostPattern::parse(host).unwrap())?;
        Some(&owner.namespace)
    }
}

fn ingress(namespace: &str, created: i64, host: &str) -> Seen {
    annotated((namespace, "i"), created, host, &[])
}

fn annotated(
    (namespace, name): (&str, &str),
    created: i64,
    host: &str,
    annotations: &[(&str, &str)],
) -> Seen {
    let rule = Rule { host: host.into(), paths: Vec::new() };
    let mut ingress = Ingress { created, rules: vec![rule], ..Ingress::default() };
    ingress.annotations.insert("kubernetes.io/ingress.class".into(), "nginx".into());
    for (name, text) in annotations {
        let key = format!("nginx.ingress.kubernetes.io/{name}");
        ingress.annotations.insert(key, (*text).into());
    }
    let id = ObjectRef::new(Kind::Ingress, Key::new(namespace, name));
    (id, Some(Object::Ingress(Arc::new(ingress))))
}

/// One with another name for its host.
fn aliased(name: &str, created: i64, alias: &str) -> Seen {
    annotated(("evil", name), created, "x.test", &[("server-alias", alias)])
}

#[test]
fn another_name_that_waits_or_does_not_hold_yet_is_nobody_s() {
    let mut bench = Bench::new();
    bench.delay([aliased("e", 5, "pay.test, b.test")]);
    assert!(bench.denial("pay.test").is_some());
    assert_eq!(bench.denial("other.test"), None);
    // Of two Ingresses of a host the aliases of the older one hold.
    let mut bench = Bench::new();
    bench.see([aliased("f", 1, "other.test"), aliased("e", 5, "pay.test")]);
    assert!(bench.owner("other.test").is_some() && bench.owner("pay.test").is_none());
    assert!(bench.denial("pay.test").is_some());
    let (id, _) = aliased("e", 5, "");
    bench.see([(id, None)]);
    assert_eq!(bench.denial("pay.test"), None);
}

#[test]
fn what_is_no_boolean_hides_no_other_name() {
    let long = " ".repeat(64 * 1024) + "true";
    for canary in [" true", "true ", "maybe", &long] {
        let all = [("server-alias", "pay.test"), ("canary", canary)];
        let object = || annotated(("evil", "e"), 5, "x.test", &all);
        let mut bench = Bench::new();
        bench.see([aliased("f", 1, "other.test"), object()]);
        assert!(bench.denial("pay.test").is_some(), "{canary:?}");
        let mut bench = Bench::new();
        bench.delay([object()]);
        assert!(bench.denial("pay.test").is_some(), "{canary:?}");
    }
}

#[test]
fn what_can_never_hold_is_kept_from_nobody() {
    let alias = ("server-alias", "pay.test");
    let long = "pay.test,".repeat(10_000);
    for annotations in [
        &[alias, ("canary", "true")][..],
        &[alias, ("canary", "maybe"), ("canary-weight", "5")],
        &[("server-alias", &long)],
        &[("from-to-www-redirect", " true")],
    ] {
        let object = || annotated(("evil", "e"), 5, "x.test", annotations);
        let mut bench = Bench::new();
        bench.see([aliased("f", 1, "other.test"), object()]);
        let mut waiting = Bench::new();
        waiting.delay([object()]);
        for host in ["pay.test", "www.x.test"] {
            assert_eq!(bench.denial(host), None, "{annotations:?}");
            assert_eq!(waiting.denial(host), None, "{annotations:?}");
        }
    }
}

#[test]
fn a_host_that_an_older_object_names_which_waits_is_nobody_s_yet() {
    let mut bench = Bench::new();
    bench.delay([ingress("evil", 5, "pay.test")]);
    let why = bench.denial("pay.test").unwrap();
    assert!(why.contains("Ingress evil/i"), "{why}");
    for other in [ingress("shop", 9, "other.test"), ingress("evil", 9, "pay.test")] {
        assert_eq!(bench.denial_of(other), None);
    }
    // It names another host now, and then it is taken over.
    bench.delay([ingress("evil", 5, "else.test")]);
    assert_eq!(bench.denial("pay.test"), None);
    assert!(bench.denial("else.test").is_some());
    let prices = Prices { translator: &bench.translator, world: &bench.world };
    assert_eq!(bench.pace.due(&prices, bench.now + Duration::from_mins(9)).len(), 1);
    assert_eq!(bench.denial("else.test"), None);
}

fn read(manifest: &str) -> Seen {
    let found = document::read(manifest, false).pop().unwrap().found.unwrap().pop();
    let Some(Found::Object(id, object)) = found else { panic!("{manifest}") };
    (id, Some(object))
}

const API: &str = "apiVersion: gateway.networking.k8s.io/v1";

fn class() -> Seen {
    read(&format!(
        "{{{API}, kind: GatewayClass, metadata: {{name: c}}, spec: {{controllerName: oxigress.io/gateway-controller}}}}"
    ))
}

/// A Gateway of the operator, whose listener lets routes in from namespaces.
fn gateway(from: &str, host: &str) -> Seen {
    gateway_with("All", from, host)
}

/// One that lets ListenerSets in from namespaces, too.
fn gateway_with(sets: &str, from: &str, host: &str) -> Seen {
    read(&format!(
        "{{{API}, kind: Gateway, metadata: {{name: g, namespace: infra}}, spec: {{gatewayClassName: c, allowedListeners: \
         {{namespaces: {{from: {sets}}}}}, listeners: [{{name: l, port: 80, protocol: HTTP, hostname: '{host}', allowedRoutes: \
         {{namespaces: {{from: {from}}}}}}}]}}}}"
    ))
}

/// A route of the hostile namespace, at the Gateway.
fn route(n: usize, host: &str) -> Seen {
    route_at(n, host, "name: g, namespace: infra")
}

fn route_at(n: usize, host: &str, parent: &str) -> Seen {
    read(&format!(
        "{{{API}, kind: HTTPRoute, metadata: {{name: r{n:05}, namespace: evil, creationTimestamp: \
         '1970-01-01T00:00:01Z'}}, spec: {{parentRefs: [{{{parent}}}], hostnames: [{host}]}}}}"
    ))
}

/// As many routes as a namespace may have.
fn fillers() -> impl Iterator<Item = Seen> {
    let (_, filler) = route(0, "filler.test");
    let id = |n: usize| ObjectRef::new(Kind::HTTPRoute, Key::new("evil", format!("r{n:05}")));
    (0..MAX_ROUTES).map(move |n| (id(n), filler.clone()))
}

#[test]
fn a_host_of_an_older_route_that_has_no_room_is_nobody_s_yet() {
    let mut bench = Bench::new();
    bench.see(fillers().chain([class(), gateway("All", "*.test"), route(99_999, "pay.test")]));
    let why = bench.denial("pay.test").unwrap();
    assert!(why.contains("HTTPRoute evil/r99999"), "{why}");
    assert_eq!(bench.denial("other.test"), None);
    // A listener that names the host leaves it to the oldest route.
    bench.see([gateway("All", "pay.test")]);
    assert!(bench.denial("pay.test").is_some());
    bench.see([gateway("Same", "*.test")]);
    assert_eq!(bench.denial("pay.test"), None, "no listener takes it");
    bench.see([gateway("All", "*.test"), (route(0, "").0, None)]);
    assert_eq!(bench.denial("pay.test"), None, "it has room, and owns the host");
    assert_eq!(bench.owner("pay.test"), Some("evil"));
}

/// A ListenerSet at the Gateway, with a listener for each host.
fn set(named: (&str, &str), created: i64, hosts: &[(&str, u16)]) -> Seen {
    set_at("g", named, created, hosts)
}

fn set_at(
    gateway: &str,
    (namespace, name): (&str, &str),
    created: i64,
    hosts: &[(&str, u16)],
) -> Seen {
    let listener = |(host, port): &(&str, u16)| {
        format!("{{name: '{host}-{port}', port: {port}, protocol: HTTP, hostname: '{host}'}}")
    };
    let listeners: Vec<_> = hosts.iter().map(listener).collect();
    read(&format!(
        "{{{API}, kind: ListenerSet, metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \
         '1970-01-01T00:00:0{created}Z'}}, spec: {{parentRef: {{name: {gateway}, namespace: infra}}, listeners: [{}]}}}}",
        listeners.join(", ")
    ))
}

const AT_SET: &str = "kind: ListenerSet, group: gateway.networking.k8s.io, name: s";

#[test]
fn whether_a_listener_takes_a_route_without_room_is_told_when_its_host_is_wanted() {
    let mut bench = Bench::new();
    let beyond = route_at(99_999, "pay.test", AT_SET);
    bench.see(fillers().chain([class(), gateway("All", "*.infra"), beyond]));
    assert!(bench.denial("pay.test").is_some(), "its namespace may bring the set");
    bench.see([set(("evil", "s"), 2, &[("*.test", 80)])]);
    assert!(bench.denial("pay.test").is_some());
    assert_eq!(bench.denial("other.test"), None);
    bench.see([set(("evil", "s"), 2, &[("*.else", 80)])]);
    assert!(bench.denial("pay.test").is_some(), "or a listener of it");
    bench.see([(route(99_999, "").0, None), (set(("evil", "s"), 2, &[]).0, None)]);
    assert_eq!(bench.denial("pay.test"), None);
    bench.see([(route(0, "").0, None), route(99_999, "pay.test")]);
    bench.see([gateway("All", "*.test")]);
    assert_eq!(bench.denial("pay.test"), None, "it has the host, which other reviews tell");
    bench.see([gateway("Same", "*.test")]);
    assert_eq!(bench.denial("pay.test"), None, "the operator's listener does not let it in");
}

#[test]
fn a_route_in_force_keeps_the_hosts_that_a_set_of_its_would_give_it() {
    let mut bench = Bench::new();
    let both =
        "name: g, namespace: infra}, {kind: ListenerSet, group: gateway.networking.k8s.io, name: s";
    bench.see([class(), gateway("All", "*.infra"), route_at(1, "pay.test", both)]);
    assert!(bench.denial("pay.test").is_some() && bench.owner("pay.test").is_none());
    // A Gateway of another controller.
    let other = gateway("All", "*.infra").0;
    bench.see([(other, None), route_at(1, "pay.test", "name: g, namespace: infra")]);
    assert!(bench.denial("pay.test").is_some(), "it is not there");
    let (id, object) = gateway("All", "*.test");
    let Some(Object::Gateway(gateway)) = object else { panic!("{id}") };
    let mut gateway = Arc::unwrap_or_clone(gateway);
    gateway.spec.gateway_class_name = "other".into();
    bench.see([(id, Some(Object::Gateway(Arc::new(gateway))))]);
    assert_eq!(bench.denial("pay.test"), None);
}

#[test]
fn a_route_keeps_a_host_that_it_leaves_to_a_set_of_its_own_namespace() {
    let mut bench = Bench::new();
    let own = set(("evil", "s"), 2, &[("pay.test", 80)]);
    bench.see([class(), gateway("All", "*.test"), route(1, "pay.test"), own]);
    assert!(bench.owner("pay.test").is_none(), "the more specific listener has it");
    assert!(bench.denial("pay.test").is_some());
}

#[test]
fn routes_that_wait_for_one_gateway_share_its_hosts_and_a_namespace_nobody_watches_keeps_none() {
    let mut bench = Bench::new();
    bench.see([class(), route(1, "pay.test")]);
    assert!(bench.denial("pay.test").is_some(), "an Ingress has it alone");
    let (id, object) = route(2, "pay.test");
    let id = ObjectRef::new(id.kind, Key::new("shop", id.key.name));
    assert_eq!(bench.denial_of((id, object)), None);
    let watch = Options { watch_namespace: Some("shop".into()), ..Options::default() };
    let mut bench = Bench { translator: Translator::new(watch), ..Bench::new() };
    bench.see([class(), route(1, "pay.test")]);
    assert_eq!(bench.denial("pay.test"), None);
}

#[test]
fn an_object_that_waits_and_names_a_host_newly_comes_after_all_who_name_it() {
    let mut bench = Bench::new();
    bench.delay([ingress("shop", 1, "shop.test"), ingress("evil", 5, "pay.test")]);
    assert!(bench.denial_of(ingress("shop", 1, "pay.test")).is_some());
    assert_eq!(bench.denial_of(ingress("shop", 1, "shop.test")), None);
}

#[test]
fn an_old_object_that_names_a_host_newly_comes_after_all_who_name_it() {
    let mut bench = Bench::new();
    bench.see([ingress("shop", 1, "shop.test")]);
    bench.delay([ingress("evil", 5, "pay.test")]);
    assert!(bench.denial_of(ingress("shop", 1, "pay.test")).is_some());
    assert_eq!(bench.denial_of(ingress("shop", 1, "shop.test")), None);
}

#[test]
fn a_route_without_room_may_be_edited_without_end() {
    let mut bench = Bench::new();
    bench.see(fillers().chain([class(), gateway("All", "*.test")]));
    bench.see((0..20).map(|n| set(("evil", &format!("s{n}")), 2, &[("a.test", 80)])));
    let _ = [Step::Listener, Step::Place].map(work::take);
    for host in ["pay.test", "b.test"] {
        bench.see([route(99_999, host), route_at(99_998, host, AT_SET)]);
    }
    assert_eq!([Step::Listener, Step::Place].map(work::take), [0, 0]);
    assert!(bench.denial("b.test").is_some());
    assert_eq!(bench.denial("pay.test"), None, "it is named no more");
}

/// Whether the reviews of a namespace have cost nothing.
fn has_all(bench: &mut Bench, namespace: &str) -> bool {
    bench.reviews.begin(namespace, bench.now);
    bench.reviews.charge(OF_NAMESPACE)
}

#[test]
fn a_name_is_not_hidden_behind_others_and_who_writes_them_pays() {
    let mut bench = Bench::new();
    bench.see([class(), gateway("All", "*.test")]);
    let decoy = |n| route_at(n, "pay.test", "name: g, namespace: infra, sectionName: none");
    let host_of_few = |n| route_at(n, "few.test", "name: g, namespace: infra, sectionName: none");
    bench.delay((0..MOST).map(decoy).chain([route(99_999, "pay.test")]));
    bench.delay((500..500 + MOST).map(host_of_few));
    assert!(bench.denial("pay.test").is_some());
    assert_eq!(bench.denial("few.test"), None, "no listener takes them");
    assert_eq!(bench.denial("other.test"), None);
    assert!(has_all(&mut bench, "shop") && has_all(&mut bench, "evil"));
    assert!(!bench.reviews.charge_beside("evil", OF_NAMESPACE, bench.now));
    // Nothing is left to pay with: what it has written counts, and nothing else.
    for part in [1_000, 1_000_000] {
        while bench.reviews.charge_beside("evil", OF_NAMESPACE / part, bench.now) {}
    }
    assert!(bench.denial("few.test").is_some());
    assert_eq!(bench.denial("other.test"), None);
}

#[test]
fn routes_without_room_cost_the_owner_of_a_host_nothing() {
    let mut bench = Bench::new();
    bench.see([class(), gateway("All", "*.test"), ingress("shop", 0, "shop.test")]);
    bench.see(fillers().chain((90_000..90_100).map(|n| route(n, "shop.test"))));
    work::take(Step::Place);
    assert_eq!(bench.denial("shop.test"), None);
    assert_eq!(work::take(Step::Place), 0);
    assert!(has_all(&mut bench, "shop"));
    assert!(bench.reviews.charge_beside("evil", OF_NAMESPACE, bench.now));
}

#[test]
fn a_set_that_is_not_in_force_keeps_a_host_from_a_listener_alone_that_it_would_have() {
    let mut bench = Bench::new();
    let (_, filler) = set_at("none", ("evil", "f"), 0, &[]);
    let id = |n: usize| ObjectRef::new(Kind::ListenerSet, Key::new("evil", format!("f{n}")));
    bench.see((0..MAX_SETS).map(|n| (id(n), filler.clone())));
    let beyond = set(("evil", "s"), 2, &[("pay.test", 80), ("other.test", 8081)]);
    bench.see([class(), gateway("All", "*.infra"), beyond]);
    let own = |hosts: &[(&str, u16)]| set(("shop", "s"), 9, hosts);
    let denial = |bench: &mut Bench, hosts: &[(&str, u16)]| bench.denial_of(own(hosts));
    let why = denial(&mut bench, &[("pay.test", 80)]).unwrap();
    assert!(why.contains("ListenerSet evil/s"), "{why}");
    assert_eq!(denial(&mut bench, &[("pay.test", 8081)]), None, "another port");
    assert_eq!(bench.denial("pay.test"), None, "a set takes a host from sets alone");
    // What it has already is not judged anew.
    bench.see([own(&[("pay.test", 80)])]);
    assert_eq!(denial(&mut bench, &[("pay.test", 80), ("more.test", 80)]), None);
    assert!(denial(&mut bench, &[("pay.test", 80), ("other.test", 8081)]).is_some());
    bench.see([(own(&[]).0, None)]);
    // Its owner named the host before there was the set, or after.
    for (created, is_denied) in [(1, false), (3, true)] {
        bench.see([ingress("shop", created, "pay.test")]);
        assert_eq!(denial(&mut bench, &[("pay.test", 80)]).is_some(), is_denied);
        bench.see([(ingress("shop", 0, "").0, None)]);
    }
    // To one that owns the host by a route a guest's listener would leave it, in force.
    let (id, object) = route(1, "pay.test");
    let id = ObjectRef::new(id.kind, Key::new("shop", id.key.name));
    bench.see([gateway("All", "*.test"), (id.clone(), object)]);
    assert_eq!(bench.owner("pay.test"), Some("shop"));
    assert_eq!(denial(&mut bench, &[("pay.test", 80)]), None);
    bench.see([gateway("All", "*.infra"), (id, None)]);
    // One of a Gateway that lets it in no more.
    bench.see([gateway_with("Same", "All", "*.infra")]);
    assert_eq!(denial(&mut bench, &[("pay.test", 80)]), None);
}

#[test]
fn what_an_object_names_already_is_kept_from_nobody() {
    let mut bench = Bench::new();
    let alias = |namespace: &str, name: &str, created| {
        annotated((namespace, name), created, "shop.test", &[("server-alias", "pay.test")])
    };
    // Neither alias holds: those of the oldest Ingress do.
    let first = annotated(("shop", "f"), 1, "shop.test", &[("server-alias", "first.test")]);
    bench.see([first, alias("shop", "i", 9)]);
    bench.delay([ingress("evil", 5, "pay.test")]);
    assert_eq!(bench.denial_of(alias("shop", "i", 9)), None);
    assert!(bench.denial_of(alias("shop", "new", 9)).is_some());
    assert!(bench.denial_of(alias("shop", "i", 8)).is_some(), "it is made anew");
}

/// An Ingress with `spec.defaultBackend`, too.
fn with_default_backend((id, object): Seen) -> Seen {
    let Some(Object::Ingress(ingress)) = object else { panic!("{id}") };
    let mut ingress = Arc::unwrap_or_clone(ingress);
    ingress.default_backend = Some(Target::Service { name: "s".into(), port: Port::Number(80) });
    ingress.rules.retain(|rule| rule.host != "none");
    (id, Some(Object::Ingress(Arc::new(ingress))))
}

#[test]
fn a_default_backend_beside_rules_names_no_host() {
    let mut bench = Bench::new();
    bench.delay([ingress("evil", 5, "")]);
    assert_eq!(bench.denial_of(with_default_backend(ingress("shop", 9, "shop.test"))), None);
    assert!(bench.denial_of(with_default_backend(ingress("shop", 9, "none"))).is_some());
    let mut bench = Bench::new();
    bench.delay([with_default_backend(ingress("evil", 5, "x.test"))]);
    assert_eq!(bench.denial(""), None);
}

#[test]
fn many_aliases_of_an_ingress_of_which_nothing_is_served_are_reserved_and_not_kept() {
    let host = |n: usize| HostPattern::parse(&format!("h{n}.test")).unwrap();
    let names: Vec<_> = (0..64).map(|n| format!("a{n}.test")).collect();
    for (hosts, kept) in [(64, 64 * 64), (65, 0)] {
        let options = Options { disable_catch_all: true, ..Options::default() };
        let mut bench = Bench { translator: Translator::new(options), ..Bench::new() };
        let (id, object) = with_default_backend(aliased("e", 5, &names.join(",")));
        let Some(Object::Ingress(ingress)) = object else { panic!("{id}") };
        let mut ingress = Arc::unwrap_or_clone(ingress);
        let rule = |n| Rule { host: host(n).to_string(), paths: Vec::new() };
        ingress.rules = (0..hosts).map(rule).collect();
        bench.see([(id, Some(Object::Ingress(Arc::new(ingress))))]);
        let aliases = (0..hosts).map(|n| bench.translator.aliases.of(&host(n)).count());
        assert_eq!(aliases.sum::<usize>(), kept);
        let has_owner = bench.owner("a0.test").is_some();
        assert_eq!((has_owner, bench.denial("a0.test").is_some()), (kept > 0, kept == 0));
    }
}

#[test]
fn hosts_of_what_waits_are_read_again_only_where_it_writes_others() {
    let mut bench = Bench::new();
    let object = |host: &str, all: &[(&str, &str)]| annotated(("evil", "e"), 5, host, all);
    let mut read = |host: &str, all: &[(&str, &str)]| {
        take_hosts_read();
        bench.delay([object(host, all)]);
        take_hosts_read()
    };
    assert_eq!(read("x.test", &[("server-alias", "a.test")]), 1);
    assert_eq!(read("x.test", &[("server-alias", "a.test"), ("app-root", "/a")]), 0);
    assert_eq!(read("x.test", &[("server-alias", "pay.test"), ("app-root", "/a")]), 1);
    assert_eq!(read("x.test", &[("server-alias", "pay.test"), ("canary", "false")]), 1);
    assert_eq!(read("y.test", &[("server-alias", "pay.test"), ("canary", "false")]), 1);
    assert!(bench.denial("pay.test").is_some() && bench.denial("y.test").is_some());
    assert_eq!(bench.denial("x.test"), None);
}
