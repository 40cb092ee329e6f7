//! Routes that are about to be stored: whose hosts, paths and sessions they would take.

use super::{Fixture, naming, objects};
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
    let ingress = naming("victim", 2024, "shop.test");
    let world = [
        gateway.to_owned(),
        ingress.clone(),
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
    let ingress = naming("victim", 2024, "shop.test");
    let all = [class.to_owned(), gateway.to_owned()];
    for (others, year, is_denied) in [
        (vec![], 2018, false),
        (vec![route("victim", 2024)], 2018, true),
        (vec![route("victim", 2024)], 2023, true),
        (vec![route("victim", 2024)], 2025, false),
        (vec![ingress.clone()], 2018, true),
        (vec![ingress.clone()], 2023, true),
        (vec![ingress.clone()], 2025, false),
    ] {
        let fixture = Fixture::new("", &[&all[..], &others].concat());
        let own = objects(&route("team", year));
        let [(id, Object::Route(own))] = &own[..] else { panic!() };
        let denial = fixture.review_route(id, own).denial;
        assert_eq!(denial.is_some(), is_denied, "{year} beside {others:?}: {denial:?}");
    }
}

pub(super) const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
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

pub(super) fn denial(fixture: &Fixture, route: &str) -> Option<String> {
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
    let world = [CLASS.to_owned(), gateway(""), hostless("shop", 2025, "web"), young.to_owned()];
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

/// Nor by a wildcard, of hosts that other routes name on other ports.
#[test]
fn an_old_route_takes_no_sessions_newly_of_hosts_below_that_others_name() {
    let all = "allowedRoutes: { namespaces: { from: All } }";
    let gateway = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{ name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }}\n\
         spec: {{ gatewayClassName: oxigress, listeners: [{{ name: http, port: 80, protocol: HTTP, {all} }}, \
         {{ name: tls, port: 9443, protocol: TLS, tls: {{ mode: Passthrough }}, {all} }}] }}"
    );
    let named = |kind: &str, namespace: &str, year: u16, host: &str| {
        let route = hostless(namespace, year, "web").replace("HTTPRoute", kind);
        route.replace("rules:", &format!("hostnames: ['{host}'], rules:"))
    };
    let shop = named("HTTPRoute", "shop", 2024, "pay.shop.test");
    let mine = named("TLSRoute", "evil", 2020, "mine.test");
    let with_tls = gateway.clone();
    let fixture = Fixture::new("", &[CLASS.to_owned(), gateway, shop, mine]);
    for host in ["*.test", "*.shop.test"] {
        let said = denial(&fixture, &named("TLSRoute", "evil", 2020, host));
        let said = said.unwrap_or_default();
        assert!(said.contains("belongs to namespace shop, whose HTTPRoute shop/r names"), "{said}");
        for (namespace, year) in [("evil", 2025), ("shop", 2020)] {
            let route = named("TLSRoute", namespace, year, host);
            assert_eq!(denial(&fixture, &route), None, "{namespace} {year} {host}");
        }
    }
    assert_eq!(denial(&fixture, &named("TLSRoute", "evil", 2020, "*.mine.test")), None);
    // Nor does an old route name a host newly that would be kept from a younger wildcard.
    let wild = named("TLSRoute", "team", 2022, "*.team.test");
    let fixture = Fixture::new("", &[CLASS.to_owned(), with_tls, wild]);
    let of = |namespace: &str, year: u16| named("HTTPRoute", namespace, year, "app.team.test");
    let said = denial(&fixture, &of("evil", 2020)).unwrap_or_default();
    assert!(said.contains("belongs to namespace team, whose TLSRoute team/r names"), "{said}");
    assert_eq!(denial(&fixture, &of("evil", 2025)), None);
    assert_eq!(denial(&fixture, &of("team", 2020)), None);
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
        let fixture = Fixture::new("", &[&world[..], &[hostless("evil", 2020, "web")]].concat());
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
    let world = [CLASS.to_owned(), gateway(""), named("shop", 2024, "shop.test"), stored.clone()];
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

/// A Gateway of the namespace `infra`, of 2019, with these listeners.
pub(super) fn with_listeners(listeners: &[&str]) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{ name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }}\n\
         spec: {{ gatewayClassName: oxigress, allowedListeners: {{ namespaces: {{ from: All }} }}, listeners: [{}] }}",
        listeners.join(", ")
    )
}

const ALL: &str = "allowedRoutes: { namespaces: { from: All } }";

/// A route of a kind with one host name.
fn of_kind(kind: &str, (namespace, name): (&str, &str), year: u16, host: &str) -> String {
    let route = hostless(namespace, year, "web").replace("HTTPRoute", kind);
    let route = route.replace("name: r,", &format!("name: {name},"));
    route.replace("rules:", &format!("hostnames: ['{host}'], rules:"))
}

/// Who names a wildcard says nothing of who has its sessions.
#[test]
fn an_old_route_names_no_host_newly_that_would_be_kept_from_younger_sessions() {
    let http = format!("{{ name: http, port: 80, protocol: HTTP, {ALL} }}");
    let tls = |name: &str, port: u16, host: &str| {
        format!(
            "{{ name: {name}, port: {port}, protocol: TLS, hostname: '{host}', tls: {{ mode: Passthrough }}, {ALL} }}"
        )
    };
    let web = |host: &str| {
        let (narrow, wide) = (tls("tls", 9443, host), tls("other", 9444, ""));
        with_listeners(&[&http, &narrow, &wide])
    };
    let at = |route: String, section: &str| {
        route.replace(
            "namespace: infra }]",
            &format!("namespace: infra, sectionName: {section} }}]"),
        )
    };
    let wild = |year, host| of_kind("TLSRoute", ("victim", "tls"), year, host);
    let of_all = at(hostless("victim", 2022, "web").replace("HTTPRoute", "TLSRoute"), "tls");
    let old = |namespace, year| {
        at(of_kind("HTTPRoute", (namespace, "old"), year, "app.victim.test"), "http")
    };
    for (listener, others) in [
        ("", vec![at(wild(2022, "*.victim.test"), "tls")]),
        (
            "",
            vec![
                at(wild(2022, "*.victim.test"), "tls"),
                at(of_kind("HTTPRoute", ("victim", "http"), 2021, "*.victim.test"), "http"),
            ],
        ),
        ("*.victim.test", vec![at(wild(2022, "*.test"), "tls")]),
        ("*.victim.test", vec![of_all.clone()]),
        ("app.victim.test", vec![of_all.clone()]),
        ("", vec![of_all]),
    ] {
        let world = [&[CLASS.to_owned(), web(listener)][..], &others].concat();
        let fixture = Fixture::new("", &world);
        let said = denial(&fixture, &old("evil", 2020)).unwrap_or_default();
        assert!(said.contains("namespace victim, whose TLSRoute victim/"), "{listener}: {said}");
        assert_eq!(denial(&fixture, &old("evil", 2025)), None, "{listener}: a younger one");
        assert_eq!(denial(&fixture, &old("victim", 2020)), None, "{listener}: its own");
        let elsewhere = old("evil", 2020).replace("name: web,", "name: none,");
        assert_eq!(denial(&fixture, &elsewhere), None, "{listener}: at no Gateway of ours");
        let shared = Fixture::new("--host-ownership=shared", &world);
        assert_eq!(denial(&shared, &old("evil", 2020)), None, "{listener}: shared");
    }
}

/// Nobody keeps others from naming what is theirs by naming a wildcard far above it.
#[test]
fn a_young_wildcard_keeps_nobody_from_naming_a_host_of_its_own() {
    let http = format!("{{ name: http, port: 80, protocol: HTTP, {ALL} }}");
    let tls =
        format!("{{ name: tls, port: 9443, protocol: TLS, tls: {{ mode: Passthrough }}, {ALL} }}");
    let wide = |namespace, year, host| of_kind("TLSRoute", (namespace, "tls"), year, host);
    let world = [CLASS.to_owned(), with_listeners(&[&http, &tls]), wide("evil", 2026, "*.test")];
    let new = of_kind("HTTPRoute", ("shop", "new"), 2021, "app.shop.test");
    let ingress = naming("shop", 2019, "app.shop.test");
    let said = |own: &[String]| {
        let fixture = Fixture::new("", &[&world[..], own].concat());
        denial(&fixture, &new)
    };
    assert!(said(&[]).is_some());
    assert_eq!(said(&[ingress]), None, "it owns the host");
    let named = of_kind("HTTPRoute", ("shop", "r"), 2022, "app.shop.test");
    assert_eq!(said(&[named]), None, "it is kept already");
    assert_eq!(said(&[wide("shop", 2020, "*.shop.test")]), None, "a nearer place is its own");
    // Where there are sets, names count wherever a route attaches, but of routes of this controller alone.
    let set = "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: { name: set, namespace: evil }\n\
               spec: { parentRef: { name: web, namespace: infra }, listeners: [] }";
    let fixture = Fixture::new("", &[&world[..], &[set.to_owned()]].concat());
    assert_eq!(denial(&fixture, &new.replace("name: web,", "name: none,")), None);
    assert!(denial(&fixture, &new).is_some());
}

/// What is in the way of a listener may be removed, and it may wait until its namespace can pay for it.
#[test]
fn an_old_route_of_sessions_names_no_wildcard_newly_above_hosts_of_others_wherever_it_attaches() {
    let https = format!("{{ name: https, port: 443, protocol: HTTPS, {ALL} }}");
    let set = |name: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
             metadata: {{ name: {name}, namespace: evil, creationTimestamp: '2026-01-01T00:00:00Z' }}\n\
             spec: {{ parentRef: {{ name: web, namespace: infra }}, listeners: [{{ name: l, port: 443, protocol: TLS, \
             hostname: '*.test', tls: {{ mode: Passthrough }} }}] }}"
        )
    };
    let flags = "--enable-ssl-passthrough";
    let http = format!("{{ name: http, port: 80, protocol: HTTP, {ALL} }}");
    let world = [
        CLASS.to_owned(),
        with_listeners(&[&https, &http]),
        of_kind("HTTPRoute", ("shop", "pay"), 2022, "pay.shop.test"),
    ];
    let at_set = |host: &str| {
        let route = of_kind("TLSRoute", ("evil", "t"), 2020, host);
        route.replace("[{ name: web, namespace: infra }]", "[{ kind: ListenerSet, name: s2 }]")
    };
    let own = at_set("mine.test");
    let of_all = own.replace("hostnames: ['mine.test'], ", "");
    let decoy = [&world[..], &[set("decoy"), set("s2"), own.clone()]].concat();
    let waiting = [&world[..], std::slice::from_ref(&own)].concat();
    for world in [&decoy, &waiting] {
        let fixture = Fixture::new(flags, world);
        for wide in [&at_set("*.test"), &of_all] {
            let said = denial(&fixture, wide).unwrap_or_default();
            assert!(
                said.contains("the sessions of pay.shop.test would come with those of"),
                "{said}"
            );
        }
        assert_eq!(denial(&fixture, &at_set("*.mine.test")), None);
        assert_eq!(denial(&fixture, &of_all.replace("2020", "2025")), None, "a younger one");
    }
    // Names, too: the first set of all may wait.
    let fixture = Fixture::new(flags, &waiting);
    let named = at_set("pay.shop.test").replace("TLSRoute", "HTTPRoute");
    assert!(denial(&fixture, &named).is_some_and(|said| said.contains("namespace shop")));
    // A set is judged by the routes that it would bring, whatever is in its way.
    let parked = [&world[..], &[set("decoy"), at_set("*.test")]].concat();
    for (world, is_denied) in [(&parked[..], true), (&waiting[..], false)] {
        let said = Fixture::new(flags, world).review_set(&set("s2")).denial;
        assert_eq!(said.is_some(), is_denied, "{said:?}");
    }
}

/// Both listeners of two Gateways with the same addresses stand, unless another one is in the way of the second.
#[test]
fn an_old_route_behind_a_listener_that_does_not_stand_covers_nothing_of_others_newly() {
    let listener = |name: &str, routes: &str| {
        format!("{{ name: {name}, port: 8080, protocol: HTTP, hostname: app.test{routes} }}")
    };
    let open = listener("http", &format!(", {ALL}"));
    let web = with_listeners(&[&open]);
    let other =
        with_listeners(&[&listener("first", ""), &open]).replace("name: web", "name: other");
    let world = [CLASS.to_owned(), web, other, hostless("victim", 2022, "web")];
    let fixture = Fixture::new("", &world);
    let at = |year| {
        let route = hostless("evil", year, "other");
        route.replace("namespace: infra }]", "namespace: infra, sectionName: http }]")
    };
    assert!(denial(&fixture, &at(2020)).is_some_and(|said| said.contains("namespace victim")));
    assert_eq!(denial(&fixture, &at(2025)), None, "a younger one");
    // What it has there already it goes on to have there, and nowhere else.
    let fixture = Fixture::new("", &[&world[..], &[at(2020)]].concat());
    assert_eq!(denial(&fixture, &at(2020)), None);
    assert!(denial(&fixture, &hostless("evil", 2020, "web")).is_some());
}
