//! Whose paths routes and Ingresses would take that are about to be stored.

use super::routes::{CLASS, denial, with_listeners};
use super::{Fixture, ingress};

const ALL: &str = "allowedRoutes: { namespaces: { from: All } }";
const LOGIN: &str = "path: { value: /login }";

/// The class, and a Gateway of 2019 with one listener for all hosts, or for one.
fn gateway(host: &str) -> [String; 2] {
    let listener = format!("{{ name: http, port: 80, protocol: HTTP, hostname: '{host}', {ALL} }}");
    [CLASS.to_owned(), with_listeners(&[&listener])]
}

/// A route of the Gateway, with these hosts and what the match of each of its rules says.
fn route((kind, namespace, year): (&str, &str, u16), hosts: &str, matches: &[&str]) -> String {
    let rules: Vec<_> = matches.iter().map(|one| format!("{{ matches: [{{ {one} }}] }}")).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
         metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ parentRefs: [{{ name: web, namespace: infra }}], hostnames: [{hosts}], rules: [{}] }}",
        rules.join(", ")
    )
}

fn http(namespace: &str, year: u16, hosts: &str, matches: &[&str]) -> String {
    route(("HTTPRoute", namespace, year), hosts, matches)
}

/// The Ingress of the namespace `team` that has the host from 2018 on.
fn owner(host: &str) -> String {
    let host = format!("host: {host}");
    ingress("owner", &["namespace: team", &host, "path: /", "age: 2018-01-01T00:00:00Z"])
}

/// The Ingress of 2022 that has a path of `pay.test`.
fn login() -> String {
    let words = ["namespace: victim", "host: pay.test", "path: /login"];
    ingress("login", &[&words[..], &["age: 2022-01-01T00:00:00Z"]].concat())
}

fn fixture(flags: &str, world: &[&[String]]) -> Fixture {
    Fixture::new(flags, &world.concat())
}

#[test]
fn an_old_route_newly_takes_no_path_of_younger_objects_of_others() {
    let call = "method: { service: pay, method: Login }";
    for (kind, one, holder, by) in [
        ("HTTPRoute", LOGIN, login(), "Ingress victim/login"),
        ("HTTPRoute", LOGIN, http("victim", 2022, "pay.test", &[LOGIN]), "HTTPRoute victim/r"),
        (
            "GRPCRoute",
            call,
            route(("GRPCRoute", "victim", 2022), "pay.test", &[call]),
            "GRPCRoute victim/r",
        ),
    ] {
        let world = [&gateway("")[..], &[owner("pay.test"), holder]].concat();
        let with = |namespace, year, hosts: &str, more: &[&'static str]| {
            route((kind, namespace, year), hosts, more)
        };
        let other =
            if kind == "GRPCRoute" { "method: { service: x }" } else { "path: { value: /x }" };
        let wanted = with("evil", 2020, "pay.test", &[other, one]);
        // It names the host newly, or asks there for one more path.
        for stored in [
            with("evil", 2020, "mine.test", &[other, one]),
            with("evil", 2020, "pay.test", &[other]),
        ] {
            let all = fixture("", &[&world, std::slice::from_ref(&stored)]);
            let said = denial(&all, &wanted).unwrap_or_default();
            let expected = format!("of host pay.test belongs to namespace victim, whose {by} has");
            assert!(said.contains(&expected) && said.contains(kind), "{said}");
            assert_eq!(denial(&all, &stored), None, "as it was");
            let free = with("evil", 2020, "pay.test", &[other]);
            assert_eq!(denial(&all, &free), None, "another path");
            let shared = fixture("--host-ownership=shared", &[&world, &[stored]]);
            assert_eq!(denial(&shared, &wanted), None);
        }
        let all = fixture("", &[&world]);
        assert_eq!(denial(&all, &with("young", 2025, "pay.test", &[one])), None, "a younger one");
        assert_eq!(denial(&all, &with("victim", 2020, "pay.test", &[one])), None, "its own");
        let elsewhere = wanted.replace("name: web,", "name: none,");
        assert_eq!(denial(&all, &elsewhere), None, "at no Gateway of ours");
        let has_it = fixture("", &[&world, std::slice::from_ref(&wanted)]);
        assert_eq!(denial(&has_it, &wanted), None, "it has it already");
    }
}

#[test]
fn an_old_ingress_newly_takes_no_path_of_younger_routes_of_others() {
    let call = "method: { service: pay, method: Login }";
    for (kind, one, path) in
        [("HTTPRoute", LOGIN, "path: /login"), ("GRPCRoute", call, "path: /pay/Login")]
    {
        let holder = route((kind, "victim", 2022), "pay.test", &[one]);
        let world = [&gateway("")[..], &[owner("pay.test"), holder]].concat();
        let exact = if kind == "GRPCRoute" { "type: Exact" } else { "type: Prefix" };
        let words = |namespace: &'static str, age: &'static str, path: &'static str| {
            [namespace, age, "host: pay.test", path, exact]
        };
        let (evil, old) = ("namespace: evil", "age: 2020-01-01T00:00:00Z");
        let stored = ingress("old", &words(evil, old, "path: /mine"));
        let all = fixture("", &[&world, std::slice::from_ref(&stored)]);
        let why =
            format!("belongs to namespace victim, whose {kind} victim/r has it; this Ingress");
        all.denies("old", &words(evil, old, path), &why);
        all.denies("new", &words(evil, old, path), &why);
        if kind == "HTTPRoute" {
            all.denies("old", &words(evil, old, "path: /login/"), &why);
            // It says more closely what it is.
            all.admits("old", &[&words(evil, old, path)[..4], &["type: Exact"]].concat());
        }
        all.admits("old", &words(evil, old, "path: /mine"));
        all.admits("young", &words(evil, "age: 2025-01-01T00:00:00Z", path));
        all.admits("own", &words("namespace: victim", old, path));
        let canary = ["canary: true", "canary-weight: 5"];
        let said = all.review("old", &[&words(evil, old, path)[..], &canary].concat()).denial;
        assert!(said.is_none_or(|said| !said.contains("victim")), "it joins nobody's path");
        fixture("--host-ownership=shared", &[&world, &[stored]])
            .admits("old", &words(evil, old, path));
        let had = ingress("old", &words(evil, old, path));
        fixture("", &[&world, &[had]]).admits("old", &words(evil, old, path));
        all.spend_reviews_of("evil");
        all.denies("old", &words(evil, old, path), &why);
    }
}

/// The root of an Ingress's owner is served also where none of its paths is the root.
#[test]
fn an_old_ingress_of_the_owner_newly_brings_no_root_where_others_have_it() {
    let owner = http("team", 2018, "pay.test", &["path: { value: /team }"]);
    let root = http("victim", 2022, "pay.test", &["path: { value: / }"]);
    let world = [&gateway("")[..], &[owner, root]].concat();
    let words = |age| ["namespace: team", age, "host: pay.test", "path: /x"];
    let all = fixture("", &[&world]);
    all.denies("i", &words("age: 2020-01-01T00:00:00Z"), "whose HTTPRoute victim/r has it");
    all.admits("i", &words("age: 2025-01-01T00:00:00Z"));
}

/// Conditions of the same path: who takes a part of its requests, and whose rules fall.
#[test]
fn conditions_are_lost_as_they_are_served() {
    let headed = "path: { value: /login }, headers: [{ name: a, value: '1' }]";
    let other = "path: { value: /login }, headers: [{ name: b, value: '1' }]";
    let (get, post) =
        ("path: { value: /login }, method: GET", "path: { value: /login }, method: POST");
    // What the younger one has, whether it is of the owner, what the older one asks for, whether that is denied.
    for (held, is_owners, asked, is_denied) in [
        (headed, true, headed, true),
        (LOGIN, true, headed, true),
        (headed, true, other, true),
        (headed, true, LOGIN, false),
        (get, true, post, false),
        // Where an older object of another namespace has the path, conditions of guests are not served.
        (headed, false, LOGIN, true),
        (get, false, post, true),
        (LOGIN, false, headed, true),
    ] {
        let namespace = if is_owners { "team" } else { "victim" };
        let holder = http(namespace, 2022, "pay.test", &[held]);
        let world = [&gateway("")[..], &[owner("pay.test"), holder]].concat();
        let stored = http("evil", 2020, "pay.test", &["path: { value: /x }"]);
        let wanted = http("evil", 2020, "pay.test", &[asked]);
        let all = fixture("", &[&world, &[stored]]);
        let said = denial(&all, &wanted);
        assert_eq!(said.is_some(), is_denied, "{held} of {namespace}, {asked}: {said:?}");
        // That is what would be served.
        let rules = |world: &[String]| {
            let all = fixture("", &[world]);
            let servers = all.translator.snapshot().listener_servers.values();
            let rules = servers.flat_map(|server| server.rules.clone());
            let of_login = rules.filter(|rule| rule.path.to_string().starts_with("/login"));
            of_login.map(|rule| (rule.origin.namespace, rule.selection)).collect::<Vec<_>>()
        };
        let (before, after) = (rules(&world), rules(&[&world[..], &[wanted]].concat()));
        let stays = before.iter().all(|rule| after.contains(rule));
        let is_met = after.iter().any(|(of, _)| of == "evil") && asked != LOGIN && asked != post;
        assert_eq!(!stays || is_met, is_denied, "{held} of {namespace}, {asked}: {after:?}");
    }
}

/// Where several names meet on the host of a listener, the more specific one has its paths whatever the age is.
#[test]
fn names_of_routes_decide_where_they_meet() {
    for (listener, held, asked, is_denied) in [
        ("", "", "", true),
        ("*.pay.test", "", "", true),
        ("", "'*.pay.test'", "'*.pay.test'", true),
        ("a.pay.test", "a.pay.test", "", false),
        ("a.pay.test", "a.pay.test", "'*.pay.test'", false),
        ("a.b.pay.test", "'*.b.pay.test'", "'*.pay.test'", true),
        ("a.b.pay.test", "'*.b.pay.test'", "", false),
        ("a.b.pay.test", "'*.pay.test'", "'*.b.pay.test'", true),
    ] {
        let first = http("team", 2018, held, &["path: { value: /team }"]);
        let young = http("victim", 2022, held, &[LOGIN]);
        let old = |one| http("evil", 2020, asked, &[one]);
        let world = [&gateway(listener)[..], &[first, young, old("path: { value: /x }")]].concat();
        let said = denial(&fixture("", &[&world]), &old(LOGIN));
        assert_eq!(said.is_some(), is_denied, "{held} {asked} at {listener}: {said:?}");
        assert!(said.is_none_or(|said| said.contains("whose HTTPRoute victim/r has it")));
        let after = fixture("", &[&world[..4], &[old(LOGIN)]]);
        let mut servers = after.translator.snapshot().listener_servers.values();
        let is_lost = servers.any(|server| {
            let mut rules = server.rules.iter();
            rules.any(|rule| rule.origin.namespace == "evil" && rule.origin.path == "/login")
        });
        assert_eq!(is_lost, is_denied, "{held} {asked} at {listener}");
    }
}

/// An Ingress means one label by its star, where a route means one or more.
#[test]
fn paths_of_wildcards_are_compared_with_those_of_ingresses() {
    let world = [&gateway("")[..], &[owner("*.pay.test")]].concat();
    let young = http("victim", 2022, "'*.pay.test'", &[LOGIN]);
    let words = ["namespace: evil", "age: 2020-01-01T00:00:00Z", "host: *.pay.test"];
    let asks = [&words[..], &["path: /login"]].concat();
    fixture("", &[&world, &[young]]).denies("old", &asks, "whose HTTPRoute victim/r has it");
    let victim =
        ["namespace: victim", "age: 2022-01-01T00:00:00Z", "host: *.pay.test", "path: /login"];
    let young = ingress("login", &victim);
    let old = http("evil", 2020, "'*.pay.test'", &[LOGIN]);
    let said = denial(&fixture("", &[&world, std::slice::from_ref(&young)]), &old);
    assert!(said.is_some_and(|said| said.contains("whose Ingress victim/login has it")));
    let beside = http("other", 2023, "'*.pay.test'", &["path: { value: /other }"]);
    let said = denial(&fixture("", &[&world, &[young, beside]]), &old);
    assert!(said.is_some_and(|said| said.contains("whose Ingress victim/login has it")));
}

/// A host that follows another one has the paths of that.
#[test]
fn paths_that_come_to_an_alias_are_looked_at_there() {
    let words = ["namespace: team", "host: pay.test", "path: /", "server-alias: alias.test"];
    let owner = ingress("owner", &[&words[..], &["age: 2018-01-01T00:00:00Z"]].concat());
    let young = http("team", 2022, "alias.test", &[LOGIN]);
    let all = fixture("", &[&gateway(""), &[owner, young]]);
    let words = ["namespace: evil", "host: pay.test", "path: /login"];
    let with = |age| [&words[..], &[age]].concat();
    all.denies("old", &with("age: 2020-01-01T00:00:00Z"), "of host alias.test belongs to");
    all.admits("young", &with("age: 2025-01-01T00:00:00Z"));
}

/// What a route has asked for where it was not served is new where it is.
#[test]
fn a_rule_that_was_not_served_takes_nothing_when_it_is() {
    let world =
        [&gateway("")[..], &[owner("pay.test"), http("victim", 2022, "pay.test", &[LOGIN])]];
    let wanted = http("evil", 2020, "pay.test", &["path: { value: /x }", LOGIN]);
    let parked = wanted.replace("value: /login } }]", "value: /login } }], sessionPersistence: {}");
    let invalid = wanted.replace("value: /login } }", "value: /login } }, { path: { value: x } }");
    let elsewhere = wanted.replace("name: web,", "name: none,");
    for stored in [parked, invalid, elsewhere] {
        assert_ne!(stored, wanted);
        let all = fixture("", &[&world.concat(), &[stored]]);
        assert!(denial(&all, &wanted).is_some_and(|said| said.contains("victim/r has it")));
    }
}

/// A route that has asked for a path in vain is not kept from other changes by who has it since.
#[test]
fn what_a_route_has_asked_for_already_is_not_new() {
    let headed = "path: { value: /login }, headers: [{ name: a, value: '1' }]";
    let words = ["namespace: team", "host: pay.test", "path: /login"];
    let first = ingress("first", &[&words[..], &["age: 2018-01-01T00:00:00Z"]].concat());
    let (young, old) = (http("team", 2022, "pay.test", &[headed]), |more: &[&str]| {
        http("evil", 2020, "pay.test", &[&[headed], more].concat())
    });
    let all = fixture("", &[&gateway(""), &[first, young, old(&[])]]);
    assert_eq!(denial(&all, &old(&["path: { value: /x }"])), None);
}

/// A listener that a set brings lets an old route have its paths at one more place.
#[test]
fn a_set_brings_no_old_route_where_younger_ones_have_its_paths() {
    let set = |host: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\n\
             metadata: {{ name: s, namespace: evil, creationTimestamp: '2026-01-01T00:00:00Z' }}\n\
             spec: {{ parentRef: {{ name: web, namespace: infra }}, listeners: [{{ name: l, port: 80, protocol: HTTP, \
             hostname: {host}, {ALL} }}] }}"
        )
    };
    let first = http("team", 2018, "pay.test", &["path: { value: /team }"]);
    let at_set = |year, one| {
        let route = http("evil", year, "pay.test", &[one]);
        route.replace("[{ name: web, namespace: infra }]", "[{ kind: ListenerSet, name: s }]")
    };
    let young = http("victim", 2022, "pay.test", &[LOGIN]);
    let young = young
        .replace("[{ name: web", "[{ kind: ListenerSet, name: s, namespace: evil }, { name: web");
    let world = [&gateway("")[..], &[first, young, set("free.test")]].concat();
    for (year, one, is_denied) in
        [(2020, LOGIN, true), (2025, LOGIN, false), (2020, "path: { value: /x }", false)]
    {
        let mut all = fixture("", &[&world, &[at_set(year, one)]]);
        let said = all.review_set(&set("pay.test")).denial;
        assert_eq!(said.is_some(), is_denied, "{year} {one}: {said:?}");
        assert!(said.is_none_or(|said| said.contains("whose HTTPRoute victim/r has it")));
    }
}

/// Its own budget is at the hands of each namespace: spending it opens nothing.
#[test]
fn a_namespace_that_has_spent_its_reviews_takes_no_path() {
    let others = [owner("pay.test"), http("victim", 2022, "routed.test", &[LOGIN])];
    let all = |hosts: &str| {
        let stored = http("evil", 2020, hosts, &["path: { value: /x }"]);
        let all = fixture("", &[&gateway(""), &others, std::slice::from_ref(&stored)]);
        all.spend_reviews_of("evil");
        assert_eq!(denial(&all, &stored), None, "as it was");
        all
    };
    for (hosts, is_denied) in [
        ("pay.test", true),
        ("routed.test", true),
        ("", true),
        ("'*.test'", true),
        ("mine.test", false),
    ] {
        let wanted = http("evil", 2020, hosts, &["path: { value: /x }", LOGIN]);
        let said = denial(&all(hosts), &wanted);
        assert_eq!(said.is_some(), is_denied, "{hosts}: {said:?}");
        assert!(said.is_none_or(|said| said.contains("may take paths of other namespaces")));
    }
}
