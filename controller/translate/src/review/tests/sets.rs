//! Routes where there are ListenerSets, whose listeners depend on the routes that name their hosts.

use super::{Fixture, ingress, naming, objects};
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

/// A set that is about to be created.
fn new_set(namespace: &str, host: &str) -> String {
    let created = "creationTimestamp: '2026-01-01T00:00:00Z' }";
    set(namespace, host).replace(
        &format!("namespace: {namespace} }}"),
        &format!("namespace: {namespace}, {created}"),
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

/// What is said to a set in a world of these objects.
fn said(flags: &str, others: &[String], set: &str) -> Option<String> {
    let mut fixture = Fixture::new(flags, &[&[GATEWAY.to_owned()], others].concat());
    fixture.review_set(set).denial
}

#[test]
fn a_set_brings_an_old_route_no_host_of_another_namespace() {
    let ingress = naming("victim", 2024, "shop.test");
    for victim in [route("victim", 2024, BY_GATEWAY, "shop.test"), ingress.clone()] {
        let parked = |year| route("evil", year, BY_SET, "shop.test");
        let others = |year| [victim.clone(), parked(year)];
        let stored = |host: &str| [&others(2020)[..], &[set("evil", host)]].concat();
        for host in ["shop.test", "*.test", ""] {
            let made = new_set("evil", host);
            let why = said("", &others(2020), &made).unwrap_or_default();
            let expected = "by this ListenerSet HTTPRoute evil/r would get what it has not: host shop.test belongs to \
                            namespace victim";
            assert!(why.contains(expected), "{host}: {why}");
            assert!(said("", &stored("other.test"), &made).is_some(), "{host}: a change");
            assert_eq!(said("", &others(2025), &made), None, "{host}: a younger route");
            assert_eq!(said("", &others(2020), &made.replace("evil", "team")), None, "{host}");
            assert_eq!(said("--host-ownership=shared", &others(2020), &made), None, "{host}");
            let elsewhere = made.replace("name: web", "name: none");
            assert_eq!(said("", &others(2020), &elsewhere), None, "{host}: no Gateway of ours");
        }
        assert_eq!(said("", &others(2020), &set("evil", "other.test")), None);
    }
}

#[test]
fn a_set_that_has_a_host_may_change() {
    let victim = route("victim", 2024, BY_GATEWAY, "shop.test");
    let has = [victim, route("evil", 2020, BY_SET, "shop.test"), set("evil", "shop.test")];
    let more = ", { name: more, port: 80, protocol: HTTP, hostname: more.test }] }";
    for changed in [
        set("evil", "shop.test"),
        set("evil", "*.test"),
        set("evil", "other.test"),
        set("evil", "shop.test").replace("] }", more),
    ] {
        assert_eq!(said("", &has, &changed), None, "{changed}");
    }
}

/// Whoever has put a set in the way of another one of its own can take it away unreviewed.
#[test]
fn a_set_behind_another_one_is_judged_by_names() {
    let victim = route("victim", 2024, BY_GATEWAY, "shop.test");
    let in_the_way = set("evil", "*.test").replace("name: set", "name: first");
    let parked = route("evil", 2020, BY_SET, "shop.test");
    let mut others = vec![victim, in_the_way, parked];
    assert!(said("", &others, &set("evil", "*.test")).is_some());
    // Nobody keeps others from changing their sets by routes that these do not allow.
    others[2] =
        route("evil", 2020, "{ kind: ListenerSet, name: set, namespace: team }", "shop.test");
    assert_eq!(said("", &others, &set("team", "*.test")), None);
}

/// Of two sets the listeners of the one that comes first stand, and routes without host names have all that comes to these.
#[test]
fn a_set_that_comes_first_takes_nothing_from_routes_of_others_without_names() {
    let tcp = "port: 9000, protocol: TCP";
    for (kind, host, listener) in
        [("HTTPRoute", "*.v.test", "port: 80, protocol: HTTP"), ("TCPRoute", "", tcp)]
    {
        let of =
            |namespace: &str| set(namespace, host).replace("port: 80, protocol: HTTP", listener);
        let hostless = |namespace: &str, year| {
            let route = route(namespace, year, BY_SET, "").replace("hostnames: [''], ", "");
            route.replace("HTTPRoute", kind)
        };
        // Whatever becomes of the route, the other set's listener would fall.
        for year in [2020, 2025] {
            let others = [of("victim"), hostless("victim", 2024), hostless("evil", year)];
            let others = [&others[..], &[set("evil", "other.test")]].concat();
            let why = said("", &others, &of("evil"));
            assert!(why.is_some(), "{kind}, {year}");
        }
    }
}

#[test]
fn the_review_of_a_set_is_charged_to_its_namespace() {
    let routes = |count: usize| {
        let one = |n: usize| {
            route("evil", 2020, BY_SET, &format!("h{n}.test"))
                .replace("name: r", &format!("name: r{n}"))
        };
        let all = std::iter::once(GATEWAY.to_owned()).chain((0..count).map(one));
        Fixture::new("", &all.collect::<Vec<_>>())
    };
    let mut reviewed = [10, 1_000].map(|count| {
        let mut fixture = routes(count);
        let is_whole = |_: &usize| fixture.review_set(&set("evil", "*.test")).denial.is_none();
        (0..2_000).take_while(is_whole).count()
    });
    reviewed.sort_unstable();
    assert!((10..150).contains(&reviewed[0]) && reviewed[1] > 1_000, "{reviewed:?}");
    let mut fixture = routes(1);
    fixture.spend_reviews_of("evil");
    let why = fixture.review_set(&set("evil", "h0.test")).denial.unwrap();
    assert!(why.contains("namespace evil had so many"), "{why}");
    assert_eq!(fixture.review_set(&set("team", "h0.test")).denial, None, "another namespace's");
    let mut fixture = Fixture::new("", &[GATEWAY.to_owned(), set("evil", "h0.test")]);
    fixture.spend_reviews_of("evil");
    assert_eq!(fixture.review_set(&set("evil", "h0.test")).denial, None, "nothing is new");
}

/// Whoever names a set that does not admit it costs its owner nothing.
#[test]
fn routes_that_a_set_does_not_admit_keep_nobody_from_changing_it() {
    let many: Vec<_> =
        (0..64).map(|n| format!("{{ name: l{n}, port: 80, protocol: HTTP }}")).collect();
    let wide = |n: usize| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{ name: s{n}, namespace: evil }}\n\
             spec: {{ parentRef: {{ name: none }}, listeners: [{}] }}",
            many.join(", ")
        )
    };
    let parents: String =
        (0..31).map(|n| format!(", {{ kind: ListenerSet, name: s{n} }}")).collect();
    let hosts: Vec<_> = (0..16).map(|n| format!("h{n}.test")).collect();
    let evil = |n: usize| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: r{n}, namespace: evil }}\n\
             spec: {{ parentRefs: [{{ kind: ListenerSet, name: set, namespace: team }}{parents}], hostnames: [{}] }}",
            hosts.join(", ")
        )
    };
    let others: Vec<_> = (0..31).map(wide).chain((0..20).map(evil)).collect();
    let made = set("team", "app.team.test");
    assert_eq!(said("", &others, &made), None);
    // Of those that it does admit it pays for their places at its own listeners alone.
    let all = "hostname: 'app.team.test', allowedRoutes: { namespaces: { from: All } } }";
    assert_eq!(said("", &others, &made.replace("hostname: 'app.team.test' }", all)), None);
}

/// A route of another namespace that the set admits is judged by the new listeners all the same.
#[test]
fn a_set_that_admits_all_brings_an_old_route_of_a_third_namespace_no_host() {
    let victim = route("victim", 2024, BY_GATEWAY, "shop.test");
    let by_team = "{ kind: ListenerSet, name: set, namespace: team }";
    for host in ["shop.test", "*.test"] {
        let all = "hostname: '$', allowedRoutes: { namespaces: { from: All } } }";
        let made = new_set("team", host);
        let open = made.replace(&format!("hostname: '{host}' }}"), &all.replace('$', host));
        let others = |year| [victim.clone(), route("evil", year, by_team, "shop.test")];
        assert!(said("", &others(2020), &open).is_some(), "{host}");
        assert_eq!(said("", &others(2025), &open), None, "{host}: a younger one");
        assert_eq!(said("", &others(2020), &made), None, "{host}: it does not admit it");
    }
}

#[test]
fn prices_are_told_until_they_are_more_than_what_is_left() {
    let mut reviews = crate::Reviews::default();
    reviews.begin("evil", std::time::Instant::now());
    let told = std::cell::Cell::new(0);
    let priced = (0..1_000_000).map(|n| (n, 160_000_000)).inspect(|_| told.set(told.get() + 1));
    assert_eq!(reviews.charge_all(priced), None);
    assert_eq!(told.get(), 13, "of two seconds");
    reviews.begin("evil", std::time::Instant::now());
    assert!(!reviews.charge(2_000_000_000), "telling is charged");
    reviews.begin("evil", std::time::Instant::now());
    assert!(reviews.charge(1_999_000_000), "and no more than that");
}

fn set_of(namespace: &str, year: u16, listeners: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
         metadata: {{ name: set, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ parentRef: {BY_GATEWAY}, listeners: [{listeners}] }}"
    )
}

/// Of two sets the older has a port, and nobody's age is that of a listener.
#[test]
fn an_old_set_takes_no_port_from_a_set_of_another_namespace() {
    let own = "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }";
    let victim = set_of(
        "victim",
        2022,
        "{ name: tcp, port: 9100, protocol: TCP }, { name: any, port: 9102, protocol: HTTP }, \
         { name: http, port: 9101, protocol: HTTP, hostname: api.test }",
    );
    for (listener, is_denied) in [
        ("port: 9100, protocol: TCP", true),
        ("port: 9102, protocol: HTTP", true),
        ("port: 9101, protocol: TLS, hostname: x.test, tls: { mode: Passthrough }", true),
        ("port: 9101, protocol: HTTP, hostname: api.test", true),
        ("port: 9101, protocol: HTTP, hostname: x.test", false),
        ("port: 9103, protocol: TCP", false),
    ] {
        let of = |year| set_of("evil", year, &format!("{own}, {{ name: new, {listener} }}"));
        let others = [victim.clone(), set_of("evil", 2020, own)];
        let why = said("", &others, &of(2020));
        assert_eq!(why.is_some(), is_denied, "{listener}: {why:?}");
        let expected = "of ListenerSet victim/set would no longer stand: this set is older";
        assert!(why.is_none_or(|why| why.contains(expected)), "{listener}");
        assert_eq!(
            said("", std::slice::from_ref(&victim), &of(2025)),
            None,
            "{listener}: a younger one"
        );
        assert_eq!(said("--host-ownership=shared", &others, &of(2020)), None, "{listener}");
        // What keeps the new listener from standing now may be removed unreviewed.
        let decoy =
            set_of("evil", 2019, "{ name: d, port: 9101, protocol: HTTP, hostname: x.evil.test }");
        let decoy = decoy.replace("name: set", "name: decoy");
        let behind = [victim.clone(), decoy, set_of("evil", 2020, own)];
        let is_behind = listener.contains("9101, protocol: TLS");
        assert!(
            !is_behind || said("", &behind, &of(2020)).is_some(),
            "{listener}: behind another set"
        );
        let had = [victim.clone(), of(2020)];
        assert_eq!(said("", &had, &of(2020).replace("mine.test", "m.test")), None, "{listener}");
    }
}

#[test]
fn an_old_set_shows_no_certificate_newly_for_hosts_below() {
    let ingress = naming("victim", 2024, "shop.test");
    let own = "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }";
    let of = |year, port: u16| {
        let tls = "tls: { certificateRefs: [{ name: wild }] }";
        let wild =
            format!("{{ name: w, port: {port}, protocol: HTTPS, hostname: '*.test', {tls} }}");
        set_of("evil", year, &format!("{own}, {wild}"))
    };
    let others = [ingress.clone(), set_of("evil", 2020, own)];
    let why = said("", &others, &of(2020, 443)).unwrap_or_default();
    assert!(
        why.starts_with("host shop.test belongs to namespace victim; this ListenerSet"),
        "{why}"
    );
    assert_eq!(said("", &others[..1], &of(2025, 443)), None, "a younger one");
    // A host that a route alone names has what the route's own listener shows.
    let alone = [route("victim", 2024, BY_GATEWAY, "shop.test"), set_of("evil", 2020, own)];
    assert_eq!(said("", &alone, &of(2020, 443)), None);
    let both = [&alone[..], &[ingress]].concat();
    assert!(said("", &both, &of(2020, 443)).is_some());
}

/// An Ingress with a host, or without one, and a set of the same year.
fn old(year: u16, host: &str) -> [String; 2] {
    let rule = if host.is_empty() { String::new() } else { format!("host: '{host}', ") };
    let named = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: old, namespace: evil, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ ingressClassName: nginx, rules: [{{ {rule}http: {{ paths: [{{ path: /, pathType: Prefix, \
         backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}] }}"
    );
    [named, set_of("evil", year, "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }")]
}

/// Whoever has the requests without a host has no ports by that.
#[test]
fn the_owner_of_the_default_host_takes_no_port_by_an_old_set() {
    let victim = set_of("victim", 2022, "{ name: tcp, port: 9100, protocol: TCP }");
    let new = "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }, \
               { name: new, port: 9100, protocol: TCP }";
    let [hostless, set] = old(2020, "");
    let why = said("", &[victim, hostless, set], &set_of("evil", 2020, new));
    assert!(why.is_some_and(|why| why.contains("victim/set would no longer stand")));
}

/// It would be the host's owner, who may bring its listener by an older set.
#[test]
fn an_old_object_names_no_host_newly_that_the_set_of_another_namespace_has() {
    let tls = "tls: { certificateRefs: [{ name: x }] }";
    let listener = |host: &str| {
        format!("{{ name: l, port: 443, protocol: HTTPS, hostname: '{host}', {tls} }}")
    };
    for host in ["*.victim.test", "app.victim.test"] {
        let victim = set_of("victim", 2022, &listener(host));
        let [mine, set] = old(2020, "mine.test");
        let world = [GATEWAY.to_owned(), victim.clone(), mine, set];
        let fixture = Fixture::new("", &world);
        let named = format!("host: {host}");
        let why = "belongs to namespace victim, whose ListenerSet victim/set names it";
        fixture.denies("old", &["namespace: evil", "age: 2020-01-01T00:00:00Z", &named], why);
        fixture.admits("new", &["namespace: evil", "age: 2025-01-01T00:00:00Z", &named]);
        fixture.admits("own", &["namespace: victim", "age: 2020-01-01T00:00:00Z", &named]);
        assert!(
            is_denied(std::slice::from_ref(&victim), None, &route("evil", 2020, BY_GATEWAY, host)),
            "{host}"
        );
        assert!(!is_denied(&[victim], None, &route("evil", 2025, BY_GATEWAY, host)), "{host}");
        // Nothing is gained by what the namespace has longer than there was that set.
        let owns = |age: &str| {
            let other = ["namespace: evil", age, &named, "path: /o"];
            Fixture::new("", &[&world[..], &[ingress("other", &other)]].concat())
        };
        let again = ["namespace: evil", "age: 2020-01-01T00:00:00Z", &*named];
        owns("age: 2021-01-01T00:00:00Z").admits("old", &again);
        owns("age: 2024-01-01T00:00:00Z").denies("old", &again, why);
        let alias = [
            "namespace: evil",
            "age: 2020-01-01T00:00:00Z",
            "host: mine.test",
            &*format!("server-alias: {host}"),
        ];
        fixture.denies("old", &alias, why);
        let has_alias = [GATEWAY.to_owned(), world[1].clone(), ingress("old", &alias)];
        Fixture::new("", &has_alias)
            .admits("old", &[&alias[..], &["proxy-body-size: 8m"]].concat());
        // A canary is no owner.
        let canary = ingress(
            "old",
            &["namespace: evil", "age: 2020-01-01T00:00:00Z", &named, "canary: true"],
        );
        let canary = Fixture::new("", &[GATEWAY.to_owned(), world[1].clone(), canary]);
        canary.denies("old", &["namespace: evil", "age: 2020-01-01T00:00:00Z", &named], why);
        // It goes on where it has named the host before.
        let [had, set] = old(2020, host);
        let fixture = Fixture::new("", &[GATEWAY.to_owned(), world[1].clone(), had, set]);
        fixture
            .admits("old", &["namespace: evil", "age: 2020-01-01T00:00:00Z", &named, "path: /y"]);
    }
}

/// At two Gateways with the same addresses both stand, and the older set's sessions are served.
#[test]
fn an_old_set_at_another_gateway_takes_no_port() {
    let other = GATEWAY.split("---\n").nth(1).unwrap().replace("name: web", "name: web2");
    let at = |set: String| set.replace("name: web,", "name: web2,");
    let victim = set_of("victim", 2022, "{ name: tcp, port: 9100, protocol: TCP }");
    let own = "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }";
    let others = [other, victim, at(set_of("evil", 2020, own))];
    let new = |year| {
        at(set_of("evil", year, &format!("{own}, {{ name: new, port: 9100, protocol: TCP }}")))
    };
    assert!(said("", &others, &new(2020)).is_some());
    assert_eq!(said("", &others[..2], &new(2025)), None, "a younger one");
}

/// The same wildcard on many ports is looked at once, and what is looked at is charged.
#[test]
fn a_set_is_charged_for_the_hosts_below_its_wildcards() {
    use crate::pace::price::Prices;
    let rules: Vec<_> = (0..1_000).map(|n| format!("{{ host: h{n}.test }}")).collect();
    let many = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: many, namespace: evil }}\n\
         spec: {{ ingressClassName: nginx, rules: [{}] }}",
        rules.join(", ")
    );
    let fixture = Fixture::new("", &[GATEWAY.to_owned(), many]);
    let tls = "tls: { certificateRefs: [{ name: x }] }";
    let listener = |port: u16| {
        format!("{{ name: l{port}, port: {port}, protocol: HTTPS, hostname: '*.test', {tls} }}")
    };
    let listeners: Vec<_> = (1_001..1_065).map(listener).collect();
    let all = objects(&set_of("evil", 2025, &listeners.join(", ")));
    let [(_, Object::ListenerSet(set))] = &all[..] else { panic!("{all:?}") };
    let prices = Prices { translator: &fixture.translator, world: &fixture.world };
    let price = prices.of_set_review(&set.spec);
    assert!((4_000_000..5_000_000).contains(&price), "{price}");
}

/// Its owner could not name it in an older object any more.
#[test]
fn an_old_set_of_a_guest_newly_names_no_host_of_another_namespace() {
    let ingress = naming("shop", 2021, "shop.test");
    let own = "{ name: own, port: 80, protocol: HTTP, hostname: mine.test }";
    let new = |port: u16| {
        format!("{own}, {{ name: new, port: {port}, protocol: HTTP, hostname: shop.test }}")
    };
    let others = |namespace| [ingress.clone(), set_of(namespace, 2020, own)];
    let said = |others: &[String], set: &str| said("", others, set);
    let why = said(&others("evil"), &set_of("evil", 2020, &new(80))).unwrap_or_default();
    assert!(
        why.contains("namespace shop, whose Ingress shop/shop names it; this ListenerSet"),
        "{why}"
    );
    assert_eq!(said(&others("evil"), &set_of("evil", 2022, &new(80))), None, "a younger one");
    for namespace in ["shop", "infra"] {
        assert_eq!(
            said(&others(namespace), &set_of(namespace, 2020, &new(80))),
            None,
            "{namespace}"
        );
    }
    let has_it = [ingress.clone(), set_of("evil", 2020, &new(80))];
    assert_eq!(said(&has_it, &set_of("evil", 2020, &new(8080))), None, "it has the host");
    // A route that names the set wants the listener.
    let by_set =
        route("shop", 2021, "{ kind: ListenerSet, name: set, namespace: evil }", "shop.test");
    let open =
        new(80).replace("shop.test }", "shop.test, allowedRoutes: { namespaces: { from: All } } }");
    for (parents, is_denied) in
        [(by_set.clone(), false), (route("shop", 2021, BY_GATEWAY, "shop.test"), true)]
    {
        let others = [parents, set_of("evil", 2020, own)];
        let why = said(&others, &set_of("evil", 2020, &open));
        assert_eq!(why.is_some(), is_denied, "{why:?}");
    }
}
