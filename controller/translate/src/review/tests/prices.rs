//! What the reviews of routes are charged.

use super::{Fixture, objects};
use crate::pace::price::Prices;
use oxigress_objects::gateway::Route;
use oxigress_objects::{Object, ObjectRef};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                     spec: { controllerName: oxigress.io/gateway-controller }";

/// So many Gateways of 64 listeners each.
fn gateways(count: usize) -> Vec<String> {
    let listener =
        |n: usize| format!("{{ name: l{n}, port: 80, protocol: HTTP, hostname: h{n}.test }}");
    let listeners = (0..64).map(listener).collect::<Vec<_>>().join(", ");
    let gateway = |n: usize| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: web{n}, namespace: a }}\n\
             spec: {{ gatewayClassName: oxigress, listeners: [{listeners}] }}"
        )
    };
    std::iter::once(CLASS.to_owned()).chain((0..count).map(gateway)).collect()
}

/// A route at the first Gateway, with so many parents and host names.
fn wide(parents: usize, hosts: usize) -> (ObjectRef, Arc<Route>) {
    let (parents, hosts) = ("{ name: web0 }, ".repeat(parents), "h1.test, ".repeat(hosts));
    let route = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: r, namespace: a }}\n\
         spec: {{ parentRefs: [{parents}], hostnames: [{hosts}] }}"
    );
    match objects(&route).pop() {
        Some((id, Object::Route(route))) => (id, route),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_route_of_many_listeners_is_charged_for_them() {
    let (fixture, (id, route)) = (Fixture::new("", &gateways(1)), wide(32, 16));
    let is_whole = |_: &usize| fixture.review_route(&id, &route).warnings.is_empty();
    let count = (0..1_000).take_while(is_whole).count();
    assert!((5..100).contains(&count), "{count}");
}

/// What its rules ask for is looked for at each listener.
#[test]
fn a_route_of_many_matches_is_charged_for_them_at_each_of_its_places() {
    let reviewed = |parents: &str, matches: usize| {
        let matches: Vec<_> =
            (0..matches).map(|n| format!("{{ path: {{ value: /{n} }} }}")).collect();
        let route = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: r, namespace: a }}\n\
             spec: {{ parentRefs: [{parents}], rules: [{{ matches: [{}] }}] }}",
            matches.join(", ")
        );
        let all = objects(&route);
        let [(id, Object::Route(route))] = &all[..] else { panic!("{all:?}") };
        let fixture = Fixture::new("", &gateways(1));
        let is_whole = |_: &usize| fixture.review_route(id, route).warnings.is_empty();
        (0..450).take_while(is_whole).count()
    };
    assert!((30..65).contains(&reviewed("{ name: web0 }", 500)), "32 ms for 64 listeners");
    let at_one = reviewed("{ name: web0, sectionName: l1 }", 500);
    assert!((250..449).contains(&at_one), "{at_one}: reading 500 matches");
}

/// Prints what a review takes beside what is charged: `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn what_a_review_is_charged_is_what_it_takes() {
    for (count, parents, hosts) in [(1, 1, 1), (16, 1, 1), (1, 32, 16)] {
        let (fixture, (id, route)) = (Fixture::new("", &gateways(count)), wide(parents, hosts));
        let prices = Prices { translator: &fixture.translator, world: &fixture.world };
        let price = Duration::from_nanos(prices.of_review(&id, &route.spec));
        let start = Instant::now();
        (0..10).for_each(|_| drop(fixture.review_route(&id, &route)));
        let took = start.elapsed() / 10;
        println!(
            "{count} Gateways, {parents} parents, {hosts} hosts: charged {price:?}, took {took:?}"
        );
    }
}
