//! Routes where there are ListenerSets, whose listeners depend on the routes that name their hosts.

use super::{Fixture, objects};
use oxigress_objects::Object;

const GATEWAY: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
    spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
    metadata: { name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }\n\
    spec: { gatewayClassName: oxigress, allowedListeners: { namespaces: { from: All } }, \
    listeners: [{ name: http, port: 80, protocol: HTTP, allowedRoutes: { namespaces: { from: All } } }] }";

const BY_GATEWAY: &str = "{ name: web, namespace: infra }";
const BY_SET: &str = "{ kind: ListenerSet, name: set }";

fn set(namespace: &str, host: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{ name: set, namespace: {namespace} }}\n\
         spec: {{ parentRef: {BY_GATEWAY}, listeners: [{{ name: l, port: 80, protocol: HTTP, hostname: '{host}' }}] }}"
    )
}

fn route(namespace: &str, year: u16, parent: &str, host: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
         metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ parentRefs: [{parent}], hostnames: ['{host}'], rules: [{{}}] }}"
    )
}

/// Whether it is denied that a stored route becomes another one.
fn is_denied(others: &[String], stored: Option<&str>, new: &str) -> bool {
    let world = [&[GATEWAY.to_owned()], others, stored.map(str::to_owned).as_slice()].concat();
    let fixture = Fixture::new("", &world);
    let all = objects(new);
    let [(id, Object::Route(route))] = &all[..] else { panic!("{all:?}") };
    let denial = fixture.review_route(id, route).denial;
    assert!(denial.as_ref().is_none_or(|why| why.contains("belongs to namespace")), "{denial:?}");
    denial.is_some()
}

#[test]
fn an_old_route_at_a_set_takes_no_host_of_another_namespace() {
    let victim = route("victim", 2024, BY_GATEWAY, "shop.test");
    let mine = route("evil", 2020, BY_SET, "mine.test");
    for host in ["shop.test", "*.test", "other.test"] {
        let others = [victim.clone(), set("evil", host)];
        let of = |year| route("evil", year, BY_SET, "shop.test");
        assert!(is_denied(&others, Some(&mine), &of(2020)), "{host}");
        assert!(is_denied(&others, None, &of(2020)), "{host}");
        assert!(!is_denied(&others, None, &of(2025)), "{host}: a younger one");
        assert!(!is_denied(&others, Some(&mine), &mine), "{host}: it stays as it is");
    }
}

#[test]
fn an_old_route_takes_no_host_from_the_set_of_another_namespace() {
    for host in ["*.team.test", "app.team.test"] {
        let others = [set("team", host), route("team", 2024, BY_SET, "app.team.test")];
        let of = |namespace, year, parent| route(namespace, year, parent, "app.team.test");
        assert!(is_denied(&others, None, &of("evil", 2020, BY_GATEWAY)), "{host}");
        assert!(!is_denied(&others, None, &of("evil", 2025, BY_GATEWAY)), "{host}: a younger one");
        let mine = of("team", 2024, BY_SET);
        let young = route("evil", 2025, BY_GATEWAY, "app.team.test");
        let others = [set("team", host), young];
        assert!(!is_denied(&others, Some(&mine), &mine), "{host}: its own");
    }
}
