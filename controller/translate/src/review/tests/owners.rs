//! What the webhook says to namespaces about hosts that are not theirs.

use super::routes::{CLASS, with_listeners};
use super::{Fixture, ingress};
use oxigress_core::model::HostPattern;

/// A host of namespace `default`, of 2024.
fn owned() -> String {
    ingress("shop", &["age: 2024-01-01T00:00:00Z"])
}

/// Without what is missing in the other namespace.
fn about_hosts(mut warnings: Vec<String>) -> Vec<String> {
    warnings.retain(|warning| !warning.contains("does not exist"));
    warnings
}

#[test]
fn what_another_namespace_says_about_a_host_is_denied() {
    let fixture = Fixture::new("--enable-ssl-passthrough", &[owned()]);
    let other = ["namespace: evil", "path: /trap"];
    for (words, why) in [
        (
            &["server-alias: b.test"][..],
            "annotation server-alias: host a.test belongs to namespace default",
        ),
        (&["app-root: /trap"], "annotation app-root: host a.test belongs to"),
        (&["from-to-www-redirect: true"], "annotation from-to-www-redirect: host a.test"),
        (&["ssl-passthrough: true", "path: /"], "annotation ssl-passthrough: host a.test belongs"),
        (&["ssl-ciphers: AES128-SHA"], "annotation ssl-ciphers: host a.test"),
        (&["ssl-prefer-server-ciphers: true"], "annotation ssl-prefer-server-ciphers: host"),
        (&["spec: tls: [{ hosts: [a.test], secretName: x }]"], "spec.tls: host a.test belongs to"),
        (
            &["canary: true", "canary-weight: 100", "path: /x"],
            "belongs to Ingress default/shop of another namespace",
        ),
        (
            &["server-alias: a.test", "host: evil.test"],
            "annotation server-alias: host a.test belongs to namespace default",
        ),
        (
            &["from-to-www-redirect: true", "host: www.a.test"],
            "annotation from-to-www-redirect: host a.test belongs to namespace default",
        ),
    ] {
        let words = [&other[..], words].concat();
        fixture.denies("trap", &words, why);
        Fixture::new("--host-ownership=shared --enable-ssl-passthrough", &[owned()])
            .admits("trap", &words);
        // Nor is it looked over without the full test.
        Fixture::new("--disable-full-test --enable-ssl-passthrough", &[owned()])
            .denies("trap", &words, why);
    }
    assert!(about_hosts(fixture.admits("trap", &other)).is_empty(), "paths are added");
    let strict = Fixture::new("--host-ownership=strict", &[owned()]);
    strict.denies("trap", &other, "--host-ownership=strict lets only that namespace use it");
    assert!(strict.admits("more", &["path: /more"]).is_empty(), "the owner adds paths");
}

#[test]
fn what_the_owner_says_too_is_admitted() {
    let words = ["app-root: /x", "server-alias: b.test", "from-to-www-redirect: true"];
    let owner = [&words[..], &["age: 2024-01-01T00:00:00Z"]].concat();
    let fixture = Fixture::new("", &[ingress("shop", &owner)]);
    let other = [&words[..], &["namespace: evil", "path: /trap"]].concat();
    assert!(about_hosts(fixture.admits("guest", &other)).is_empty());
}

#[test]
fn a_certificate_beside_the_owner_s_is_worth_a_warning() {
    let tls = "spec: tls: [{ hosts: [a.test], secretName: x }]";
    let fixture = Fixture::new("", &[ingress("shop", &[tls, "age: 2024-01-01T00:00:00Z"])]);
    let warnings = about_hosts(fixture.admits("guest", &["namespace: evil", "path: /trap", tls]));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("spec.tls: host a.test belongs to namespace default"));
}

#[test]
fn an_old_ingress_does_not_take_a_host_over() {
    let old = ["namespace: evil", "host: evil.test", "age: 2020-01-01T00:00:00Z"];
    let fixture = Fixture::new("", &[owned(), ingress("old", &old)]);
    let names = |more: &[&'static str]| [&old[..], more].concat();
    let why = "is older and would take it over: name the host in a new Ingress";
    fixture.denies("old", &names(&["host: a.test", "path: /other"]), why);
    fixture.denies("old", &names(&["server-alias: a.test"]), why);
    fixture.admits("old", &names(&["server-alias: b.test"]));
    Fixture::new("--host-ownership=shared", &[owned(), ingress("old", &old)])
        .admits("old", &names(&["host: a.test", "path: /other"]));
}

#[test]
fn an_old_ingress_shows_no_certificate_newly_for_hosts_below() {
    let old = ["namespace: evil", "host: mine.test", "age: 2020-01-01T00:00:00Z"];
    let wild = ["host: *.test", "spec: tls: [{ hosts: ['*.test'], secretName: x }]"];
    let victim = |more: &[&str]| {
        ingress("shop", &[&["age: 2024-01-01T00:00:00Z", "host: shop.test"], more].concat())
    };
    let with = |more: &[&'static str]| [&old[..], more].concat();
    let fixture = Fixture::new("", &[victim(&[]), ingress("old", &old)]);
    let why = "host shop.test belongs to namespace default; this Ingress is older and would show its certificates there";
    fixture.denies("old", &with(&wild), why);
    // Another Ingress of the namespace could bring the certificate, which nobody would ask about.
    fixture.denies("old", &with(&wild[..1]), why);
    fixture.denies("old", &with(&["server-alias: *.test"]), why);
    fixture.admits("new", &[&["namespace: evil"], &wild[..]].concat());
    Fixture::new("--host-ownership=shared", &[victim(&[]), ingress("old", &old)])
        .admits("old", &with(&wild));
    // One that shows it already goes on, and a host with a certificate of its own shows that.
    let has_it = Fixture::new("", &[victim(&[]), ingress("old", &with(&wild))]);
    has_it.admits("old", &with(&[&wild[..], &["proxy-body-size: 8m"]].concat()));
    let names_it = Fixture::new("", &[victim(&[]), ingress("old", &with(&wild[..1]))]);
    names_it.admits("old", &with(&wild));
    let more = ["path: /more", "age: 2021-01-01T00:00:00Z"];
    names_it.admits("more", &with(&[&wild[..], &more].concat()));
    let own = victim(&["spec: tls: [{ hosts: [shop.test], secretName: y }]"]);
    Fixture::new("", &[own, ingress("old", &old)]).admits("old", &with(&wild));
}

/// Client certificates concern everybody's paths of a host.
#[test]
fn client_certificates_for_a_foreign_host_are_denied() {
    let manifests = include_str!("../../../../testdata/owner_client_certificate.in.yaml");
    let mut all = manifests.split("\n---\n");
    let secret = all.find(|text| text.contains("name: ca, namespace: evil")).unwrap().to_owned();
    let words = ["namespace: evil", "path: /trap", "auth-tls-secret: evil/ca"];
    let of = |flags: &str| Fixture::new(flags, &[owned(), secret.clone()]);
    of("").denies("trap", &words, "annotation auth-tls-secret: host a.test belongs to");
    of("").admits("own", &[&words[..], &["host: own.test"]].concat());
    of("--host-ownership=shared").admits("trap", &words);
}

#[test]
fn an_old_ingress_takes_requests_without_a_host_from_no_routes_of_others() {
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                   spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
                   apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: web, namespace: shop }\n\
                   spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP }] }\n---\n\
                   apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
                   metadata: { name: r, namespace: shop, creationTimestamp: '2024-01-01T00:00:00Z' }\n\
                   spec: { parentRefs: [{ name: web }], rules: [{}] }";
    let words = |age| ["host: ", "namespace: evil", age];
    let (old, young) = (words("age: 2020-01-01T00:00:00Z"), words("age: 2025-01-01T00:00:00Z"));
    let fixture = Fixture::new("", &[gateway.to_owned()]);
    fixture.denies("i", &old, "the default host belongs to namespace shop, whose HTTPRoute shop/r");
    fixture.admits("i", &young);
    fixture.admits("i", &["host: ", "namespace: shop", "age: 2020-01-01T00:00:00Z"]);
    let fixture = Fixture::new("", &[gateway.to_owned(), ingress("i", &old)]);
    fixture.admits("i", &old);
}

/// What is not compiled is owned all the same.
#[test]
fn a_namespace_that_has_spent_its_reviews_takes_no_host() {
    let fixture = Fixture::new("", &[owned()]);
    let words =
        ["namespace: evil", "path: /(x|y)", "use-regex: true", "type: ImplementationSpecific"];
    let old = [&words[..], &["age: 2020-01-01T00:00:00Z"]].concat();
    fixture.spend_reviews_of("evil");
    fixture.denies("trap", &old, "belongs to namespace default");
    let warnings = fixture.admits("trap", &words);
    assert!(warnings.iter().any(|warning| warning.contains("was not checked but for")));
}

/// A route says nothing of certificates, however old it is.
#[test]
fn an_old_route_that_names_a_wildcard_lets_no_ingress_show_a_certificate_below() {
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                   spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
                   apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: web, namespace: infra }\n\
                   spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP, \
                   allowedRoutes: { namespaces: { from: All } } }] }\n---\n\
                   apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
                   metadata: { name: r, namespace: evil, creationTimestamp: '2020-01-01T00:00:00Z' }\n\
                   spec: { parentRefs: [{ name: web, namespace: infra }], hostnames: ['*.test'], rules: [{}] }";
    let victim = ingress("shop", &["age: 2022-01-01T00:00:00Z", "host: shop.test"]);
    let wild = |age| ["namespace: evil", "host: *.test", "spec: tls: [{ secretName: x }]", age];
    let (old, new) = (wild("age: 2020-06-01T00:00:00Z"), wild("age: 2025-01-01T00:00:00Z"));
    let fixture = Fixture::new("", &[gateway.to_owned(), victim.clone()]);
    fixture.denies(
        "old",
        &old,
        "host shop.test belongs to namespace default; this Ingress is older",
    );
    fixture.admits("new", &new);
    for (words, is_redirected) in [(new, false), (old, true)] {
        let world = [gateway.to_owned(), victim.clone(), ingress("w", &words)];
        let fixture = Fixture::new("", &world);
        let host = HostPattern::parse("shop.test").unwrap();
        let shown = fixture.translator.snapshot().names.get(&host);
        assert_eq!(shown.is_none(), is_redirected, "{words:?}: {shown:?}");
    }
}

/// An old Ingress does not take a path either, whatever it says of canaries.
#[test]
fn an_old_ingress_takes_no_path_of_another_namespace() {
    let world = [
        ingress("first", &["host: pay.test", "path: /", "age: 2019-01-01T00:00:00Z"]),
        ingress("login", &["host: pay.test", "path: /login", "age: 2022-01-01T00:00:00Z"]),
    ];
    let old = ["namespace: evil", "age: 2020-01-01T00:00:00Z", "host: pay.test", "path: /login"];
    let young = ["namespace: evil", "age: 2025-01-01T00:00:00Z", "host: pay.test", "path: /login"];
    let fixture = Fixture::new("", &world);
    let why = "is already defined in ingress default/login";
    fixture.denies("old", &old, why);
    fixture.denies("old", &[&old[..], &["canary: false"]].concat(), why);
    let own = [&old[1..], &["canary: false"]].concat();
    fixture.admits("old", &own);
    fixture.admits("young", &[&young[..], &["canary: false"]].concat());
    fixture.spend_reviews_of("evil");
    let patterns = ["use-regex: true", "type: ImplementationSpecific"];
    fixture.denies("old", &[&old[..], &patterns].concat(), why);
}

/// What nothing is served of comes back as old as it is, and then has its paths.
#[test]
fn a_path_of_an_older_ingress_that_is_refused_is_nobody_else_s() {
    let catch_all = "spec: defaultBackend: { service: { name: cart, port: { number: 80 } } }";
    let refused = ["host: pay.test", "path: /x", "age: 2019-01-01T00:00:00Z", catch_all];
    let fixture = Fixture::new("--disable-catch-all", &[ingress("first", &refused)]);
    let young = ["namespace: shop", "age: 2025-01-01T00:00:00Z", "host: pay.test"];
    let why = "is already defined in ingress default/first";
    fixture.denies("young", &[&young[..], &["path: /x"]].concat(), why);
    fixture.admits("young", &[&young[..], &["path: /y"]].concat());
    let old = ["namespace: shop", "age: 2018-01-01T00:00:00Z", "host: pay.test", "path: /x"];
    fixture.denies("old", &old, "pay.test");
}

/// Merging hosts of thousands of paths again is charged, and done once.
#[test]
fn a_review_is_charged_for_the_rules_on_its_hosts() {
    let path = |n: usize| {
        format!(
            "{{ path: /{n}, pathType: Exact, backend: {{ service: {{ name: cart, port: {{ number: 80 }} }} }} }}"
        )
    };
    let paths: Vec<_> = (0..5_000).map(path).collect();
    let many = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: many, namespace: evil }}\n\
         spec: {{ ingressClassName: nginx, rules: [{{ host: many.test, http: {{ paths: [{}] }} }}] }}",
        paths.join(", ")
    );
    let fixture = Fixture::new("", &[many]);
    let words = ["namespace: evil", "host: many.test", "path: /new"];
    let is_checked = |words: &[&str]| {
        let warnings = fixture.admits("new", words);
        !warnings.iter().any(|warning| warning.contains("was not checked"))
    };
    let reviewed = (0..1_000).take_while(|_| is_checked(&words)).count();
    assert!((60..=80).contains(&reviewed), "{reviewed}: 2 seconds' worth");
    assert!(is_checked(&["namespace: evil", "host: few.test", "path: /new"]), "few rules");
}

/// What an Ingress was as a canary gives it nothing when it is none.
#[test]
fn an_old_canary_takes_nothing_when_it_becomes_none() {
    let world = [
        ingress("first", &["host: pay.test", "path: /", "age: 2019-01-01T00:00:00Z"]),
        ingress("login", &["host: pay.test", "path: /login", "age: 2022-01-01T00:00:00Z"]),
        ingress(
            "old",
            &[
                "namespace: evil",
                "age: 2020-01-01T00:00:00Z",
                "host: pay.test",
                "path: /login",
                "type: Exact",
                "canary: true",
            ],
        ),
    ];
    let old = ["namespace: evil", "age: 2020-01-01T00:00:00Z", "host: pay.test", "path: /login"];
    Fixture::new("", &world).denies("old", &old, "is already defined in ingress default/login");
}

/// An Ingress of the host `mine.test` with so many paths.
fn with_paths(name: &str, age: &str, first: usize) -> String {
    let path = |n: usize| {
        format!(
            "{{ path: /{n}, pathType: Exact, backend: {{ service: {{ name: cart, port: {{ number: 80 }} }} }} }}"
        )
    };
    let paths: Vec<_> = (first..first + 9_000).map(path).collect();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: {name}, namespace: evil, creationTimestamp: '{age}' }}\n\
         spec: {{ ingressClassName: nginx, rules: [{{ host: mine.test, http: {{ paths: [{}] }} }}] }}",
        paths.join(", ")
    )
}

/// What hides an alias may be removed, and nobody is asked about that.
#[test]
fn an_old_ingress_does_not_take_a_host_by_an_alias_that_does_not_hold_yet() {
    let evil = |name: &str, age: &'static str, alias: &str| {
        let words = ["namespace: evil", "host: mine.test", age, alias];
        ingress(name, &words[..if alias.is_empty() { 3 } else { 4 }])
    };
    let (first, old) = ("age: 2019-01-01T00:00:00Z", "age: 2020-01-01T00:00:00Z");
    let victim = ["age: 2022-01-01T00:00:00Z", "host: shop.test"];
    let hidden = [
        ingress("shop", &victim),
        evil("first", first, "server-alias: a.evil.test"),
        evil("old", old, ""),
    ];
    let many = |n: usize| with_paths(&format!("many{n}"), "2026-01-01T00:00:00Z", n * 9_000);
    let crowded = [hidden[0].clone(), hidden[2].clone(), many(0), many(1), many(2)];
    let why = "belongs to namespace default";
    let names =
        |name: &'static str| ["namespace: evil", "host: mine.test", "path: /old", old, name];
    for world in [&hidden[..], &crowded[..]] {
        let fixture = Fixture::new("", world);
        for alias in ["server-alias: shop.test", "server-alias: *.test"] {
            fixture.denies("old", &names(alias), why);
        }
        fixture.admits("old", &names("server-alias: free.test"));
        Fixture::new("--host-ownership=shared", world)
            .admits("old", &names("server-alias: shop.test"));
    }
    // What holds already goes on.
    let has_it = evil("old", old, "server-alias: shop.test");
    let fixture = Fixture::new("", &[ingress("shop", &victim), has_it]);
    fixture.admits("old", &names("server-alias: shop.test"));
    // So does what it has written and does not hold, though the name is another one's since.
    let has_written = evil("old", old, "server-alias: shop.test");
    let fixture = Fixture::new("", &[hidden[0].clone(), hidden[1].clone(), has_written]);
    fixture.admits("old", &names("server-alias: shop.test"));
}

/// Serving compares patterns: a slash at the end of a prefix has no meaning.
#[test]
fn an_old_ingress_takes_no_path_of_another_namespace_by_writing_it_otherwise() {
    let world = [
        ingress("first", &["host: pay.test", "path: /api", "age: 2019-01-01T00:00:00Z"]),
        ingress("login", &["host: pay.test", "path: /login", "age: 2022-01-01T00:00:00Z"]),
        ingress("root", &["host: pay.test", "path: /", "age: 2022-01-01T00:00:00Z"]),
    ];
    let fixture = Fixture::new("", &world);
    let words =
        |path: &'static str, age: &'static str| ["namespace: evil", age, path, "host: pay.test"];
    let (old, young) = ("age: 2020-01-01T00:00:00Z", "age: 2025-01-01T00:00:00Z");
    for path in ["path: /login/", "path: /login//", "path: //"] {
        fixture.denies("old", &words(path, old), "is already defined in ingress default/");
        fixture.admits("young", &words(path, young));
    }
    fixture.admits("old", &[&words("path: /login/", old)[..], &["type: Exact"]].concat());
    // Who has the path goes on, whatever has come since, and an exact path is not all below it.
    let had = |kind| [&words("path: /login/", old)[..], &[kind]].concat();
    let fixture = Fixture::new("", &[&world[..], &[ingress("old", &had("type: Prefix"))]].concat());
    fixture.admits("old", &had("type: Prefix"));
    let fixture = Fixture::new("", &[&world[..], &[ingress("old", &had("type: Exact"))]].concat());
    fixture.denies("old", &had("type: Prefix"), "is already defined in ingress default/login");
}

/// A Gateway of the namespace `infra`, of 2019, with these listeners for routes of all namespaces.
fn gateway(listeners: &[&str]) -> String {
    let open =
        |one: &&str| format!("{{ {one}, allowedRoutes: {{ namespaces: {{ from: All }} }} }}");
    let listeners: Vec<_> = listeners.iter().map(open).collect();
    let listeners: Vec<_> = listeners.iter().map(String::as_str).collect();
    format!("{CLASS}\n---\n{}", with_listeners(&listeners))
}

/// A route of the namespace `victim`, of 2022, with what is said of its hosts.
fn route(kind: &str, hosts: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
         metadata: {{ name: r, namespace: victim, creationTimestamp: '2022-01-01T00:00:00Z' }}\n\
         spec: {{ parentRefs: [{{ name: web, namespace: infra }}], {hosts}rules: [{{}}] }}"
    )
}

/// What a route has by its listener alone is whose writes the name first.
#[test]
fn an_old_ingress_newly_names_no_host_that_routes_of_others_have_by_their_listener() {
    for (listener, host, route) in [
        (
            "port: 80, protocol: HTTP, hostname: app.victim.test",
            "app.victim.test",
            route("HTTPRoute", ""),
        ),
        (
            "port: 80, protocol: HTTP, hostname: '*.victim.test'",
            "*.victim.test",
            route("HTTPRoute", ""),
        ),
        (
            "port: 80, protocol: HTTP, hostname: app.victim.test",
            "app.victim.test",
            route("GRPCRoute", "hostnames: ['*.victim.test'], "),
        ),
        (
            "port: 8443, protocol: TLS, hostname: app.victim.test, tls: { mode: Passthrough }",
            "app.victim.test",
            route("TLSRoute", "hostnames: ['*.victim.test'], "),
        ),
    ] {
        let gateway = gateway(&[&format!("name: l, {listener}")]);
        let named = format!("host: {host}");
        let words =
            |namespace: &'static str, age: &'static str| [namespace, age, "path: /", &*named];
        let (old, young) = ("age: 2020-01-01T00:00:00Z", "age: 2025-01-01T00:00:00Z");
        let fixture = Fixture::new("", &[gateway.clone(), route.clone()]);
        let why = "belongs to namespace victim, whose";
        fixture.denies("old", &words("namespace: evil", old), why);
        let mine = ["namespace: evil", old, "host: mine.test", "path: /"];
        let alias = format!("server-alias: {host}");
        fixture.denies("old", &[&mine[..], &[&*alias]].concat(), "belongs to namespace");
        fixture.admits("young", &words("namespace: evil", young));
        fixture.admits("own", &words("namespace: victim", old));
        let had = ingress("old", &words("namespace: evil", old));
        Fixture::new("", &[gateway.clone(), route.clone(), had])
            .admits("old", &words("namespace: evil", old));
        Fixture::new("--host-ownership=shared", &[gateway, route])
            .admits("old", &words("namespace: evil", old));
    }
}

/// A Gateway that names the host too owns it, and leaves it to the Ingress.
#[test]
fn an_old_ingress_newly_names_no_host_that_a_set_of_others_and_a_gateway_have() {
    let set = "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
               metadata: { name: set, namespace: victim, creationTimestamp: '2022-01-01T00:00:00Z' }\n\
               spec: { parentRef: { name: web, namespace: infra }, \
               listeners: [{ name: l, port: 8080, protocol: HTTP, hostname: app.victim.test }] }";
    let world = [
        gateway(&["name: l, port: 80, protocol: HTTP, hostname: app.victim.test"]),
        set.to_owned(),
    ];
    let words = |age| ["namespace: evil", age, "host: app.victim.test"];
    let (old, young) = (words("age: 2020-01-01T00:00:00Z"), words("age: 2025-01-01T00:00:00Z"));
    let fixture = Fixture::new("", &world);
    fixture.denies(
        "old",
        &old,
        "belongs to namespace victim, whose ListenerSet victim/set names it",
    );
    fixture.admits("old", &[&old[..], &["canary: true", "canary-weight: 5"]].concat());
    fixture.admits("young", &young);
    Fixture::new("", &[&world[..], &[ingress("old", &old)]].concat()).admits("old", &old);
    // The Gateway leaves the host to an older Ingress, and nothing to this one.
    let more = [&old[..], &["path: /old"]].concat();
    for (age, is_heir) in
        [("age: 2019-06-01T00:00:00Z", false), ("age: 2021-01-01T00:00:00Z", true)]
    {
        let first = ingress("first", &["namespace: first", age, "host: app.victim.test"]);
        let fixture = Fixture::new("", &[&world[..], &[first]].concat());
        assert_eq!(fixture.review("old", &more).denial.is_some(), is_heir, "{age}");
    }
}

/// A route that alone names a host below has no certificate there, and no connections that are passed through.
#[test]
fn an_old_ingress_newly_names_no_wildcard_above_hosts_of_routes() {
    let listeners = ["name: l, port: 443, protocol: HTTPS", "name: h, port: 80, protocol: HTTP"];
    let world = [gateway(&listeners), route("HTTPRoute", "hostnames: [pay.shop.test], ")];
    let words = |age| ["namespace: evil", age, "host: *.shop.test", "path: /"];
    let (old, young) = (words("age: 2020-01-01T00:00:00Z"), words("age: 2025-01-01T00:00:00Z"));
    for flags in ["", "--enable-ssl-passthrough"] {
        let fixture = Fixture::new(flags, &world);
        fixture.denies("old", &old, "host pay.shop.test belongs to namespace victim");
        fixture.admits("young", &young);
        fixture.admits("own", &[&["namespace: victim"], &old[1..]].concat());
        Fixture::new(flags, &[&world[..], &[ingress("old", &old)]].concat()).admits("old", &old);
        Fixture::new(&format!("{flags} --host-ownership=shared"), &world).admits("old", &old);
    }
}
