//! Whose sessions are: what a namespace may not have of ports and server names of others.

use super::*;
use oxigress_core::model::{SessionPlace, SessionRoute};

/// A Gateway of `infra` with a port of TCP, one of UDP and one of TLS, to which routes of these namespaces may attach.
fn bench(from: &str) -> Bench {
    let mut bench = Bench::new(options("--enable-ssl-passthrough"));
    let listener = |name: &str, port: u16, protocol: &str| {
        json!({"name": name, "port": port, "protocol": protocol, "tls": {"mode": "Passthrough"},
            "allowedRoutes": {"namespaces": {"from": from}}})
    };
    let listeners = json!([
        listener("tcp", 5_432, "TCP"),
        listener("udp", 53, "UDP"),
        listener("tls", 8_443, "TLS")
    ]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    let gateway = Object::Gateway(resource(0, spec));
    bench.see([class(), (ObjectRef::new(Kind::Gateway, Key::new("infra", "g0")), Some(gateway))]);
    for namespace in ["infra", "shop", "evil"] {
        bench.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: s, namespace: {namespace} }}\nspec:\n  ports:\n  - {{ name: t, port: 80 }}\n  \
             - {{ name: u, port: 80, protocol: UDP }}\n"
        ));
    }
    bench
}

/// A route of a kind at the Gateway.
fn route(kind: Kind, namespace: &str, created: i64, hosts: &[&str]) -> Seen {
    let parents = json!([{"name": "g0", "namespace": "infra"}]);
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
    let id = ObjectRef::new(kind, Key::new(namespace, "r"));
    (id, Some(Object::Route(resource(created, spec))))
}

impl Bench {
    /// The namespace that has the sessions of a place; empty: they are closed.
    fn has_sessions(&self, place: &str) -> Option<&str> {
        let place = SessionPlace::parse(place).unwrap();
        let found: Option<&SessionRoute> = self.translator.snapshot().sessions.get(&place);
        found.map(|route| if route.targets.is_empty() { "" } else { &route.namespace })
    }

    /// The reason that a route is told for not being accepted.
    fn refusal(&self, kind: Kind, namespace: &str) -> Option<&str> {
        let object = ObjectRef::new(kind, Key::new(namespace, "r"));
        let Content::Route { parents, .. } = &self.translator.statuses()[&object].content else {
            panic!("{object}")
        };
        let told = &parents[0].conditions[0];
        (!told.holds).then_some(told.reason)
    }
}

#[test]
fn a_route_has_no_sessions_of_a_server_name_that_another_namespace_owns() {
    let mut bench = bench("All");
    bench.apply(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: { name: i, namespace: shop, \
         annotations: { kubernetes.io/ingress.class: nginx }, creationTimestamp: '1970-01-01T00:00:05Z' }\nspec: { rules: [{ host: \
         shop.test, http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: s, port: { number: 80 } } } }] } }] }",
    );
    bench.see([route(Kind::TLSRoute, "evil", 9, &["shop.test", "own.test"])]);
    assert_eq!(bench.has_sessions("tcp/8443/own.test"), Some("evil"));
    assert_eq!(bench.has_sessions("tcp/8443/shop.test"), None);
    bench.see([route(Kind::TLSRoute, "evil", 9, &["shop.test"])]);
    assert_eq!(bench.refusal(Kind::TLSRoute, "evil"), Some("HostnameConflict"));
    bench.see([route(Kind::TLSRoute, "shop", 12, &["shop.test"])]);
    assert_eq!(bench.has_sessions("tcp/8443/shop.test"), Some("shop"), "younger, and the owner's");
}

#[test]
fn a_route_that_no_listener_allows_has_no_sessions() {
    let kinds = [
        (Kind::TCPRoute, "tcp/5432", &[][..]),
        (Kind::UDPRoute, "udp/53", &[]),
        (Kind::TLSRoute, "tcp/8443/own.test", &["own.test"]),
    ];
    for (from, has) in [("Same", None), ("All", Some("evil"))] {
        let mut bench = bench(from);
        for (kind, place, hosts) in kinds {
            bench.see([route(kind, "evil", 1, hosts)]);
            assert_eq!(bench.has_sessions(place).filter(|of| !of.is_empty()), has, "{kind} {from}");
            let refusal = bench.refusal(kind, "evil");
            assert_eq!(refusal.is_some(), has.is_none(), "{kind} {from}: {refusal:?}");
            bench.see([route(kind, "infra", 9, hosts)]);
            assert_eq!(bench.has_sessions(place), has.or(Some("infra")), "{kind} {from}, younger");
        }
    }
}

#[test]
fn what_a_gateway_shows_to_endpoints_of_sessions_is_charged_as_often_as_it_is_copied() {
    let mut bench = bench("All");
    let listeners = json!([{"name": "tls", "port": 9_443, "protocol": "TLS",
        "tls": {"certificateRefs": [{"name": "pair"}]}, "allowedRoutes": {"namespaces": {"from": "All"}}}]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners,
        "tls": {"backend": {"clientCertificateRef": {"name": "pair"}}}});
    let gateway = ObjectRef::new(Kind::Gateway, Key::new("infra", "g1"));
    bench.see([
        (gateway, Some(Object::Gateway(resource(0, spec)))),
        pair("infra", &"c".repeat(100_000)),
    ]);
    bench.apply(&[https::tls_policy("p", "shop"), https::authorities("shop")].concat());
    let mut policies = |count: usize| {
        let targets: Vec<_> = (0..count).map(|_| json!({"name": "s", "port": 80})).collect();
        let parents = json!([{"name": "g1", "namespace": "infra"}]);
        let spec = json!({"parentRefs": parents, "hostnames": ["own.test"], "rules": [{"backendRefs": targets}]});
        let id = ObjectRef::new(Kind::TLSRoute, Key::new("shop", "r"));
        bench.see([(id, Some(Object::Route(resource(0, spec))))]);
        let place = SessionPlace::parse("tcp/9443/own.test").unwrap();
        let snapshot = bench.translator.snapshot();
        let route = snapshot.sessions.get(&place)?;
        let named = route.targets.iter().filter(|target| target.policies.is_some()).count();
        assert_eq!(snapshot.policies.len(), usize::from(named > 0), "all have the same");
        Some(named)
    };
    assert_eq!(
        (policies(5), policies(40), policies(1)),
        (Some(5), None, Some(1)),
        "2 MiB are the most"
    );
}

/// Whoever answers TLS for a name gets certificates for it, so an older route's names are not a younger one's by a wildcard.
#[test]
fn a_wildcard_has_no_sessions_of_hosts_that_older_routes_of_others_name() {
    let mut bench = bench("All");
    let web = |namespace: &str, listeners: serde_json::Value| {
        let spec = json!({"gatewayClassName": "c", "listeners": listeners});
        (
            ObjectRef::new(Kind::Gateway, Key::new(namespace, "web")),
            Some(Object::Gateway(resource(0, spec))),
        )
    };
    let http = json!({"name": "http", "port": 80, "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "All"}}});
    bench.see([web("infra", json!([http]))]);
    let pay = |namespace: &str, host: &str| {
        let parents = json!([{"name": "web", "namespace": "infra"}]);
        let spec = json!({"parentRefs": parents, "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "s", "port": 80}]}]});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, "pay"));
        (id, Some(Object::Route(resource(20, spec))))
    };
    let evil = |created: i64, hosts: &[&str]| route(Kind::TLSRoute, "evil", created, hosts);
    bench.see([evil(30, &["*.test"]), pay("shop", "pay.test")]);
    assert_eq!(bench.has_sessions("tcp/8443/**.test"), Some("evil"));
    assert_eq!(bench.has_sessions("tcp/8443/pay.test"), Some(""), "closed");
    bench.see([evil(30, &[])]);
    assert_eq!(bench.has_sessions("tcp/8443/_"), Some("evil"));
    assert_eq!(bench.has_sessions("tcp/8443/pay.test"), Some(""), "below all names");
    bench.see([pay("evil", "own.test")]);
    assert_eq!(bench.has_sessions("tcp/8443/own.test"), None, "its own are its own");
    bench.see([evil(10, &["*.test"])]);
    assert_eq!(bench.has_sessions("tcp/8443/pay.test"), None, "nobody takes what it has by a name");
    bench.see([evil(30, &["*.test"])]);
    let (id, _) = pay("shop", "");
    bench.see([(id, None)]);
    assert_eq!(bench.has_sessions("tcp/8443/pay.test"), None);
}

/// A wildcard's sessions make no build of everything out of each host name that somebody writes later.
#[test]
fn names_that_are_kept_from_no_wildcard_are_edits() {
    let mut bench = bench("All");
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}});
    let spec = json!({"gatewayClassName": "c", "listeners": [listener]});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "web"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec))))]);
    let pay = |created: i64, host: &str| {
        let parents = json!([{"name": "web", "namespace": "infra"}]);
        let spec = json!({"parentRefs": parents, "hostnames": [host], "rules": [{}]});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("shop", "pay"));
        (id, Some(Object::Route(resource(created, spec))))
    };
    for (wide, place) in [(&["*.test"][..], "tcp/8443/**.test"), (&[], "tcp/8443/_")] {
        bench.see([route(Kind::TLSRoute, "evil", 30, wide), pay(40, "first.test")]);
        assert_eq!(bench.has_sessions(place), Some("evil"));
        for (created, host, is_edit, kept) in [
            (40, "a.test", 1, None),
            (20, "b.test", 0, Some("")),
            (20, "c.b.test", 0, Some("")),
            (40, "c.b.test", 0, None),
            (40, "d.test", 1, None),
            (20, "*.x.test", 0, Some("")),
        ] {
            work::take(Step::Edited);
            bench.see([pay(created, host)]);
            let place = format!("tcp/8443/{}", host.replace("*.", "**."));
            assert_eq!(bench.has_sessions(&place), kept, "{host} {created}");
            assert_eq!(work::take(Step::Edited), is_edit, "{host} {created}");
        }
        bench.see([pay(40, "last.test")]);
        assert_eq!(bench.has_sessions("tcp/8443/**.x.test"), None);
    }
}

/// An Ingress that comes to own a host, or no longer does, may have everything built again.
#[test]
fn an_ingress_by_which_others_sessions_change_pays_for_the_build() {
    let mut bench = bench("All");
    let ingress = |host: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i, namespace: evil, \
             annotations: {{ kubernetes.io/ingress.class: nginx }}, creationTimestamp: '1970-01-01T00:00:05Z' }}\nspec: {{ rules: [{{ \
             host: {host}, http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} \
             }} }}] }} }}] }}"
        )
    };
    bench.see([route(Kind::TLSRoute, "shop", 30, &["shop.test"])]);
    bench.apply(&ingress("other.test"));
    for (host, has_sessions) in
        [("shop.test", None), ("other.test", Some("shop")), ("third.test", Some("shop"))]
    {
        bench.translator.take_build_work();
        bench.apply(&ingress(host));
        assert_eq!(bench.has_sessions("tcp/8443/shop.test"), has_sessions, "{host}");
        let payers: Vec<_> = bench.translator.take_build_work().into_keys().collect();
        let expected = if host == "third.test" { &[][..] } else { &["evil"] };
        assert_eq!(payers, expected, "{host}");
    }
}

/// A name that somebody writes later, on whatever port, closes nothing of what routes have by their listeners.
#[test]
fn a_young_name_closes_no_sessions_that_a_route_has_by_its_listener() {
    let mut bench = bench("All");
    let listener = |name: &str, port: u16, protocol: &str, host: &str| {
        json!({"name": name, "port": port, "protocol": protocol, "hostname": host, "tls": {"mode": "Passthrough"},
            "allowedRoutes": {"namespaces": {"from": "All"}}})
    };
    let listeners =
        json!([listener("http", 80, "HTTP", ""), listener("tls", 8_443, "TLS", "app.shop.test")]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec))))]);
    let named = |created| route(Kind::HTTPRoute, "evil", created, &["app.shop.test"]);
    bench.see([route(Kind::TLSRoute, "shop", 20, &["*.shop.test"]), named(30)]);
    assert_eq!(bench.has_sessions("tcp/8443/app.shop.test"), Some("shop"));
    assert_eq!(bench.refusal(Kind::TLSRoute, "shop"), None);
    bench.see([named(10)]);
    assert_eq!(bench.has_sessions("tcp/8443/app.shop.test"), Some(""), "closed: an older name");
    assert_eq!(bench.refusal(Kind::TLSRoute, "shop"), Some("HostnameConflict"));
}
