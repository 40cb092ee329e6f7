//! Whom a host is kept from, since an older object that is not in force names it.

use super::*;
use crate::Options;
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway::MAX_ROUTES;
use oxigress_objects::ingress::{Ingress, Rule};
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
    for other in [
        ingress("shop", 9, "other.test"),
        ingress("shop", 1, "pay.test"),
        ingress("evil", 9, "pay.test"),
    ] {
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
    read(&format!(
        "{{{API}, kind: Gateway, metadata: {{name: g, namespace: infra}}, spec: {{gatewayClassName: c, listeners: \
         [{{name: l, port: 80, protocol: HTTP, hostname: '{host}', allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}}}}"
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
    (0..MAX_ROUTES).map(|n| route(n, "filler.test"))
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
    bench.see([gateway("Same", "*.test"), (route(99_999, "").0, None)]);
    bench.see([route(99_999, "pay.test")]);
    assert_eq!(bench.denial("pay.test"), None, "no listener takes it");
    bench.see([gateway("All", "*.test"), (route(0, "").0, None)]);
    assert_eq!(bench.denial("pay.test"), None, "it has room, and owns the host");
    assert_eq!(bench.owner("pay.test"), Some("evil"));
}
