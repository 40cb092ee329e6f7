//! What is built again when routes change alone.

use super::*;

/// So many routes of two namespaces, each with a host of its own, at one of two Gateways.
fn bench(count: usize) -> Bench {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let gateways = (0..2).map(|n| gateway(n, [json!({"port": 80})].into_iter(), &all));
    bench.see(gateways.chain([class()]));
    bench.see((0..count).map(|n| one(n, 0, &json!([{}]))));
    work::take(Step::Built);
    bench
}

fn one(n: usize, created: i64, rules: &Value) -> Seen {
    let namespace = if n.is_multiple_of(2) { "a" } else { "b" };
    http_route((namespace, &format!("r{n}")), created, 1, &[format!("h{n}.test")], rules)
}

/// What was done since: everything built, some routes built, hosts compared with listeners, hosts put together.
fn steps() -> [usize; 4] {
    [Step::Built, Step::Edited, Step::Place, Step::Merged].map(work::take)
}

fn attached(bench: &Bench) -> usize {
    let object = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    let Content::Gateway { listeners, .. } = &bench.translator.statuses()[&object].content else {
        panic!("{object}")
    };
    listeners[0].attached
}

#[test]
fn a_route_that_changes_costs_the_same_whatever_number_of_others_there_is() {
    for count in [10, 300] {
        let mut bench = bench(count);
        steps();
        bench.see([one(7, 1, &json!([{"matches": [{"path": {"value": "/new"}}]}]))]);
        assert_eq!(steps(), [0, 1, 1, 1], "{count}: its rules");
        bench.see([one(count, 1, &json!([{}]))]);
        assert_eq!(steps(), [0, 1, 1, 1], "{count}: it comes");
        assert_eq!(attached(&bench), count + 1);
        bench.see([(one(count, 1, &json!([{}])).0, None)]);
        assert_eq!(steps(), [0, 1, 0, 0], "{count}: it goes");
        assert_eq!(attached(&bench), count);
        assert!(!bench.serves(&format!("h{count}.test")) && bench.serves("h7.test"));
    }
}

#[test]
fn everything_is_built_again_where_routes_depend_on_more_than_themselves() {
    let mut bench = bench(4);
    let policy = json!({"group": "oxigress.io", "kind": "Policy", "name": "p"});
    let by_policy = json!([{"filters": [{"type": "ExtensionRef", "extensionRef": policy}]}]);
    let all = json!({"from": "All"});
    let many: Vec<_> = (0..20_001).map(|n| json!({"path": {"value": format!("/{n}")}})).collect();
    for (what, seen) in [
        ("a listener", gateway(1, [json!({"port": 81})].into_iter(), &all)),
        ("its first Policy", one(2, 1, &by_policy)),
        ("it named one that nobody names any more", one(2, 2, &json!([{}]))),
        ("more rules than its namespace may have", one(2, 3, &json!([{"matches": many}]))),
        ("it had", one(2, 4, &json!([{}]))),
    ] {
        steps();
        bench.see([seen]);
        assert_eq!(steps()[0], 1, "{what}");
    }
    bench.see([one(2, 5, &json!([{}]))]);
    assert_eq!(steps()[..2], [0, 1], "there is room again");
    bench.see([one(2, 6, &by_policy)]);
    steps();
    bench.see([one(2, 7, &by_policy)]);
    assert_eq!(steps()[..2], [0, 1], "it names the same Policy");
}

/// What is served and told equals what is translated from scratch.
fn check(bench: &Bench, what: &str) {
    let mut scratch = Translator::new(bench.translator.options.clone());
    scratch.update(&bench.world, &bench.world.all());
    assert_eq!(bench.translator.snapshot(), scratch.snapshot(), "{what}");
    assert_eq!(bench.translator.statuses(), scratch.statuses(), "{what}");
    assert_eq!(bench.translator.verdicts(), scratch.verdicts(), "{what}");
}

fn services(names: &[&str]) -> String {
    let one = |name: &&str| {
        format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: a }}\nspec: {{ ports: [{{ port: 80 }}] }}\n"
        )
    };
    names.iter().map(one).collect()
}

fn rule(path: &str, service: &str) -> Value {
    json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": service, "port": 80}]})
}

#[test]
fn a_route_that_leaves_a_path_leaves_it_to_one_with_affinity() {
    let mut bench = bench(0);
    bench.apply(
        &(services(&["s0", "s1", "s2"])
            + "---\napiVersion: oxigress.io/v1alpha1\nkind: Policy\n\
        metadata: { name: p, namespace: a }\nspec: { affinity: cookie }\n"),
    );
    let host = ["h.test".to_owned()];
    let route =
        |name: &str, created, rules: &Value| http_route(("a", name), created, 1, &host, rules);
    let mut sticky = rule("/", "s2");
    let policy = json!({"group": "oxigress.io", "kind": "Policy", "name": "p"});
    sticky["filters"] = json!([{"type": "ExtensionRef", "extensionRef": policy}]);
    bench.see([route("r1", 1, &json!([rule("/", "s1")])), route("r2", 2, &json!([sticky]))]);
    steps();
    bench.see([route("r1", 1, &json!([rule("/x", "s0")]))]);
    assert_eq!(steps()[..2], [0, 1]);
    check(&bench, "the other one has the path, and its cookie the place of it");
}

#[test]
fn hosts_kept_from_a_wildcard_that_is_passed_through_are_so_no_more_when_it_goes() {
    let mut bench = Bench::new(Options { ssl_passthrough: true, ..options("") });
    let all = json!({"from": "All"});
    bench.see([class(), gateway(0, [json!({"port": 80})].into_iter(), &all)]);
    bench.see([http_route(("a", "r"), 1, 1, &["h.x.test".to_owned()], &json!([{}]))]);
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: { name: i, namespace: b, \
        creationTimestamp: \"2020-01-01T00:00:00Z\", annotations: { kubernetes.io/ingress.class: nginx, \
        nginx.ingress.kubernetes.io/ssl-passthrough: \"true\" } }\nspec:\n  rules:\n  - host: '*.x.test'\n    \
        http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: s, port: { number: 80 } } } }] }\n";
    bench.apply(ingress);
    check(&bench, "it is kept");
    assert!(!bench.translator.snapshot().sessions.is_empty());
    bench.see([(ObjectRef::new(Kind::Ingress, Key::new("b", "i")), None)]);
    check(&bench, "there is nothing to keep it from");
}

#[test]
fn a_service_that_many_routes_read_costs_each_of_them_once() {
    let mut bench = bench(0);
    let names: Vec<_> = (0..100).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["common"]).collect();
    bench.apply(&services(&names));
    let route = |n: usize| {
        let rules = json!([rule("/", names[n]), rule("/common", "common")]);
        http_route(("a", &format!("r{n}")), 1, 1, &[format!("h{n}.test")], &rules)
    };
    bench.see((0..100).map(route));
    steps();
    work::take(Step::Led);
    bench.apply(&services(&["common"]).replace("port: 80", "port: 80, targetPort: 8080"));
    assert_eq!(steps()[..2], [0, 1]);
    assert_eq!(work::take(Step::Led), 2 * 100, "each of two backends");
    check(&bench, "the other port");
}

#[test]
fn a_namespace_that_compared_too_many_rules_is_served_again_where_others_have_gone() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let listeners = ["h1.x.test", "h2.x.test"].map(|host| json!({"port": 80, "hostname": host}));
    bench.see([class(), gateway(0, listeners.into_iter(), &all)]);
    let many = |value: &str| {
        let one = |n: usize| json!({"headers": [{"name": "h", "value": format!("{value}{n}")}], "method": value});
        json!([{"matches": (0..600).map(one).collect::<Vec<_>>()}])
    };
    let at = |name: &str, host: &str, rules: &Value| {
        http_route(("b", name), 1, 1, &[host.to_owned()], rules)
    };
    let wide = http_route(("a", "wide"), 0, 1, &["*.x.test".to_owned()], &many("POST"));
    bench.see([wide, at("r1", "h1.x.test", &many("GET")), at("r2", "h2.x.test", &many("GET"))]);
    let count = |bench: &Bench| {
        let at = ListenerHost::parse("80/h2.x.test").unwrap();
        bench.translator.snapshot().listener_servers[&at].rules.len()
    };
    let before = count(&bench);
    bench.see([(ObjectRef::new(Kind::HTTPRoute, Key::new("b", "r1")), None)]);
    assert!(count(&bench) > before, "{before}");
    check(&bench, "there is room for all");
}

#[test]
fn grants_and_policies_that_concern_no_route_build_nothing() {
    let mut bench = bench(4);
    let grant = |kind: &str, service: &str| {
        let spec = json!({"from": [{"group": GROUP, "kind": kind, "namespace": "a"}],
            "to": [{"group": "", "kind": "Service", "name": service}]});
        let id = ObjectRef::new(Kind::ReferenceGrant, Key::new("c", "g"));
        (id, Some(Object::ReferenceGrant(resource(0, spec))))
    };
    let foreign = json!([{"backendRefs": [{"name": "s", "namespace": "c", "port": 80}]}]);
    bench.see([one(2, 1, &foreign)]);
    bench.apply(&services(&["s"]).replace("namespace: a", "namespace: c"));
    for (kind, service, expected, what) in [
        ("HTTPRoute", "other", [0, 0], "nobody asks about it"),
        ("HTTPRoute", "s", [0, 1], "a route does"),
        ("Gateway", "s", [1, 0], "whatever Gateways may refer to"),
        ("TCPRoute", "none", [1, 0], "what it was for"),
        ("TCPRoute", "other", [0, 0], "neither before nor now"),
    ] {
        steps();
        bench.see([grant(kind, service)]);
        assert_eq!(steps()[..2], expected, "{what}");
        check(&bench, what);
    }
    steps();
    bench.apply(&https::tls_policy("p", "a"));
    assert_eq!(steps()[..2], [0, 0], "no route leads to its Service");
    bench.apply(&https::authorities("a"));
    assert_eq!(steps()[..2], [0, 0], "nor does its ConfigMap concern one");
    bench.apply(&services(&["s"]));
    bench.see([one(0, 1, &json!([rule("/", "s")]))]);
    check(&bench, "the ConfigMap is read as it is now");
    steps();
    bench.apply(&https::authorities("a").replace("ca.crt", "none"));
    assert_eq!(steps()[..2], [1, 0], "a policy that is used names it");
    bench.see([(ObjectRef::new(Kind::BackendTLSPolicy, Key::new("a", "p")), None)]);
    assert_eq!(steps()[..2], [1, 0], "a route does");
    check(&bench, "it is gone");
}

#[test]
fn who_has_everything_built_pays_for_it_and_a_route_of_requests_does_not() {
    let mut bench = bench(8);
    let mut work = |seen: Seen| {
        bench.translator.take_build_work();
        bench.see([seen]);
        bench.translator.take_build_work().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(work(one(3, 1, &json!([{}]))), []);
    let (id, object) = one(3, 1, &json!([{"backendRefs": [{"name": "s", "port": 80}]}]));
    let tcp = (ObjectRef::new(Kind::TCPRoute, id.key), object);
    assert_eq!(work(tcp), [("b".into(), 9 * crate::pace::price::REBUILT / 4)]);
}

#[test]
fn who_is_refused_a_host_and_asks_for_too_much_has_nothing_built_for_others() {
    let mut bench = bench(2);
    let many: Vec<_> = (0..20_001).map(|n| json!({"path": {"value": format!("/{n}")}})).collect();
    bench.see([one(0, 0, &json!([{"matches": many}]))]);
    let (id, object) = http_route(("a", "call"), 5, 1, &["h1.test".into()], &json!([{}]));
    bench.see([(ObjectRef::new(Kind::GRPCRoute, id.key), object)]);
    check(&bench, "a kind that does not have the host");
    steps();
    bench.see([one(1, 1, &json!([{"matches": [{"path": {"value": "/new"}}]}]))]);
    assert_eq!(steps()[..2], [0, 1]);
    check(&bench, "the owner's route");
}
