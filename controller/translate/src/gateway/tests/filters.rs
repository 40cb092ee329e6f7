//! What filters cost, which are written once and hold for many matches, backends and listeners.

use super::*;

/// A filter that sets so many headers of requests.
fn headers(count: usize, value: &str) -> Value {
    let header = |number| json!({"name": format!("x-{number}"), "value": value});
    let set: Vec<_> = (0..count).map(header).collect();
    json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}})
}

/// A rule of 64 matches and 16 backends that all are one.
fn rule(filters: &[Value]) -> Value {
    let matches: Vec<_> = (0..64).map(|n| json!({"path": {"value": format!("/{n}")}})).collect();
    let backends = vec![json!({"name": "s", "port": 80}); 16];
    json!({"matches": matches, "backendRefs": backends, "filters": filters})
}

fn prefix_rewrite() -> Value {
    let path = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"});
    json!({"type": "URLRewrite", "urlRewrite": {"path": path}})
}

fn bench() -> Bench {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see([class(), gateway(0, [json!({"port": 80})].into_iter(), &all)]);
    bench.apply("apiVersion: v1\nkind: Service\nmetadata: { name: s, namespace: a }\nspec: { ports: [{ port: 80 }] }");
    work::take(Step::Filters);
    bench
}

fn of_a(name: &str, rules: &Value) -> Seen {
    http_route(("a", name), 0, 1, &["a.test".to_owned()], rules)
}

#[test]
fn filters_are_read_once_for_all_matches_and_backends() {
    let mut bench = bench();
    bench.see([of_a("r", &json!([rule(&[headers(3, "v")]), rule(&[headers(3, "w")])]))]);
    assert_eq!(work::take(Step::Filters), 2);
    let snapshot = bench.translator.snapshot();
    assert_eq!(snapshot.policies.len(), 1, "the first rule has all paths");
    let at = ListenerHost::parse("80/a.test").unwrap();
    assert_eq!(snapshot.listener_servers[&at].rules.len(), 64 * 16);
    bench.see([of_a("r", &json!([rule(&[headers(3, "v"), prefix_rewrite()])]))]);
    assert_eq!(work::take(Step::Filters), 64, "each rewrites another path");
    assert_eq!(bench.translator.snapshot().policies.len(), 64);
}

#[test]
fn what_nginx_would_not_take_of_filters_is_refused_with_the_rule() {
    let mut bench = bench();
    for (filter, why) in [
        (headers(1_001, "v"), "1001 headers, at most 1000"),
        (headers(70, &"v".repeat(8_000)), "at most 524288 are taken"),
        (headers(1, &"$".repeat(4_096)), "value of 36864 bytes, at most 8192"),
    ] {
        bench.see([of_a("r", &json!([rule(std::slice::from_ref(&filter))]))]);
        let told = bench.route("a", "r");
        assert!(!told.holds && told.message.contains(why), "{told:?}");
        let backend = json!({"name": "s", "port": 80, "filters": [filter]});
        bench.see([of_a("r", &json!([{"backendRefs": [backend]}]))]);
        let told = bench.route("a", "r");
        assert!(!told.holds && told.message.contains(why), "{told:?}");
        assert_eq!(bench.translator.snapshot().policies.len(), 0);
    }
}

#[test]
fn filters_of_a_namespace_are_counted_before_anything_is_made_of_them() {
    let mut bench = bench();
    // 128 times 8 KiB, which is more than half of what there is for all.
    let mut dear = rule(&[headers(2, &"v".repeat(4_096)), prefix_rewrite()]);
    dear["backendRefs"] = json!([{"name": "s", "port": 80}]);
    let dear = json!(vec![dear; 2]);
    bench.see([of_a("old", &dear), of_a("young", &dear), of_a("zero", &json!([{}]))]);
    assert_eq!(work::take(Step::Filters), 128 + 1, "once");
    assert!(bench.route("a", "old").holds && bench.route("a", "zero").holds);
    let refused = bench.route("a", "young");
    assert!(!refused.holds && refused.message.contains("or of filters"), "{refused:?}");
    bench.see([http_route(("b", "r"), 9, 1, &["b.test".to_owned()], &json!([{}]))]);
    assert_eq!(work::take(Step::Filters), 1, "others change");
}

#[test]
fn matches_of_one_redirect_share_its_filters_in_whatever_order_they_stand() {
    let mut bench = bench();
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}});
    let open = "/.well-known/acme-challenge";
    let path = |n: usize| format!("{}/{n}", if n.is_multiple_of(2) { open } else { "" });
    let matches: Vec<_> = (0..64).map(|n| json!({"path": {"value": path(n)}})).collect();
    bench.see([of_a("r", &json!([{"matches": matches, "filters": [headers(3, "v"), redirect]}]))]);
    assert!(bench.route("a", "r").holds);
    assert_eq!(
        work::take(Step::Filters),
        2 + 2,
        "where a password may be asked for, and elsewhere"
    );
}

#[test]
fn redirects_at_many_ports_are_counted_at_each() {
    let mut bench = bench();
    let all = json!({"from": "All"});
    let ports = (0..60).map(|n| json!({"port": 1_000 + n, "hostname": "a.test"}));
    bench.see([gateway(0, ports, &all)]);
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}});
    let response = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier":
        headers(8, &"v".repeat(4_096))["requestHeaderModifier"]});
    let matches = json!([{"path": {"value": "/"}}]);
    let dear = json!({"matches": matches, "filters": [response, redirect]});
    bench.see([of_a("r", &json!(vec![dear; 4]))]);
    let served = |bench: &Bench| {
        let servers = bench.translator.snapshot().listener_servers.values();
        servers.filter(|server| !server.rules.is_empty()).count()
    };
    let first = served(&bench);
    assert!((10..16).contains(&first), "{first} of 60 ports, 140 KB each");
    bench.see([http_route(("b", "r"), 9, 1, &["b.test".to_owned()], &json!([{}]))]);
    assert_eq!(served(&bench), first, "whatever is known");
}

#[test]
fn rules_of_a_route_that_no_listener_serves_are_not_kept() {
    let mut bench = bench();
    let tls = json!({"certificateRefs": [{"name": "pair"}]});
    let listeners = json!([{"name": "l", "port": 443, "protocol": "HTTPS", "tls": tls,
        "allowedRoutes": {"namespaces": {"from": "All"}}}]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec)))), of_a("r", &json!([rule(&[])]))]);
    assert_eq!(work::take(Step::Read), 1);
    bench.see([http_route(("b", "r"), 9, 1, &["b.test".to_owned()], &json!([{}]))]);
    assert_eq!(work::take(Step::Read), 1, "the other one");
    bench.see([pair("infra", "c")]);
    assert_eq!(work::take(Step::Read), 2, "both are served now");
    let at = ListenerHost::parse("443/a.test").unwrap();
    let found = bench.translator.snapshot().listener_servers.keys().find(|it| it.host == at.host);
    let rules = &bench.translator.snapshot().listener_servers[found.unwrap()].rules;
    assert_eq!(rules.len(), 64 * 16);
    bench.see([http_route(("b", "r"), 8, 1, &["b.test".to_owned()], &json!([{}]))]);
    assert_eq!(work::take(Step::Read), 1, "what is served is known");
}

/// A Gateway that shows endpoints a certificate with this chain.
fn showing(chain: &str) -> [Seen; 2] {
    let all = json!({"namespaces": {"from": "All"}});
    let spec = json!({"gatewayClassName": "c",
        "listeners": [{"name": "l", "port": 80, "protocol": "HTTP", "allowedRoutes": all}],
        "tls": {"backend": {"clientCertificateRef": {"name": "pair"}}}});
    let gateway = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    [(gateway, Some(Object::Gateway(resource(0, spec)))), pair("infra", chain)]
}

#[test]
fn what_a_listener_shows_to_endpoints_is_charged_as_often_as_it_is_copied() {
    let mut bench = bench();
    bench.see(showing(&"c".repeat(100_000)));
    bench.apply(&[https::tls_policy("p", "a"), https::authorities("a")].concat());
    let mut policies = |count: usize| {
        let rules: Vec<_> = (0..count)
            .map(|n| {
                json!({"matches": [{"path": {"value": format!("/{n}")}}],
                    "backendRefs": [{"name": "s", "port": 80}], "filters": [headers(1, &n.to_string())]})
            })
            .collect();
        bench.see([of_a("r", &json!(rules))]);
        bench.translator.snapshot().policies.len()
    };
    assert_eq!((policies(5), policies(40)), (5, 0), "2 MiB are the most");
}

#[test]
fn endpoints_are_shown_the_certificate_of_a_policy_rather_than_the_gateway_s() {
    let mut bench = bench();
    bench.see(showing("of the Gateway"));
    bench.apply(&https::secret("a"));
    bench.apply(
        "apiVersion: oxigress.io/v1alpha1\nkind: Policy\nmetadata: { name: p, namespace: a }\n\
         spec: { backend-protocol: HTTPS, proxy-ssl-secret: a/tls }\n",
    );
    let named = json!({"group": "oxigress.io", "kind": "Policy", "name": "p"});
    let filters = json!([{"type": "ExtensionRef", "extensionRef": named}]);
    let backends = json!([{"name": "s", "port": 80}]);
    bench.see([of_a("r", &json!([{"backendRefs": backends, "filters": filters}]))]);
    let policies = bench.translator.snapshot().policies.values();
    let shown = policies.filter_map(|all| Some(&all.proxy.as_ref()?.tls.as_ref()?.certificate));
    let shown: Vec<_> = shown.map(|chain| chain.starts_with("-----BEGIN CERTIFICATE")).collect();
    let notes: Vec<_> = bench.translator.notes().collect();
    assert_eq!(shown, [true], "{notes:?}");
}

/// Neither ports of a Service nor policies that name it count for each other.
#[test]
fn policies_of_a_service_are_looked_at_once_whatever_number_of_routes_and_ports_has_it() {
    let mut bench = bench();
    let ports: String = (1..=32).map(|n| format!("{{ name: p{n}, port: {n} }}, ")).collect();
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: s, namespace: a }}\nspec: {{ ports: [{ports}] }}"
    );
    let policies: String = (0..50).map(|n| https::tls_policy(&format!("p{n}"), "a")).collect();
    bench.apply(&format!("{policies}{service}\n---\n{}", https::authorities("a")));
    let backends: Vec<_> = (1..=16).map(|n| json!({"name": "s", "port": n})).collect();
    let rules = json!([{"backendRefs": backends}]);
    for n in 0..10 {
        bench.see([of_a(&format!("r{n}"), &rules)]);
    }
    work::take(Step::NotedService);
    // A route that names a Policy has everything built again.
    let named = json!({"group": "oxigress.io", "kind": "Policy", "name": "p"});
    let filters = json!([{"filters": [{"type": "ExtensionRef", "extensionRef": named}]}]);
    bench.see([http_route(("b", "r"), 9, 1, &["b.test".to_owned()], &filters)]);
    // 10 routes and 50 policies; 16 ports of 10 routes, each with 50 policies, were 8,000.
    assert_eq!(work::take(Step::NotedService), 60);
}
