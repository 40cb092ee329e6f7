//! What Policies cost that rules of routes name.

use super::*;
use crate::pace::price::Prices;

fn policy(name: &str, fields: &str) -> String {
    format!(
        "---\napiVersion: oxigress.io/v1alpha1\nkind: Policy\nmetadata: {{ name: {name}, namespace: a }}\nspec: {{ {fields} }}\n"
    )
}

fn bench() -> Bench {
    let mut bench = Bench::new(options(""));
    bench.see([class(), gateway(0, [json!({"port": 80})].into_iter(), &json!({"from": "All"}))]);
    bench.apply("apiVersion: v1\nkind: Service\nmetadata: { name: s, namespace: a }\nspec: { ports: [{ port: 80 }] }");
    bench
}

/// A route whose rules, each of one path, name a Policy.
fn naming(route: &str, policy: &str, rules: usize) -> Seen {
    let filter = json!({"type": "ExtensionRef",
        "extensionRef": {"group": "oxigress.io", "kind": "Policy", "name": policy}});
    let rule = |n| {
        json!({"matches": [{"path": {"value": format!("/{n}")}}], "filters": [filter],
            "backendRefs": [{"name": "s", "port": 80}]})
    };
    let rules: Vec<_> = (0..rules).map(rule).collect();
    http_route(("a", route), 0, 1, &[format!("{route}.test")], &json!(rules))
}

#[test]
fn a_change_reads_the_routes_again_that_name_the_policy_or_what_it_names() {
    let mut bench = bench();
    bench.apply(
        &[policy("p", "limit-rps: 1"), policy("q", "auth-type: basic, auth-secret: x")].concat(),
    );
    bench.see([naming("r", "p", 2), naming("s", "p", 1), naming("t", "q", 1)]);
    bench.see([http_route(("a", "u"), 0, 1, &["u.test".to_owned()], &json!([{}]))]);
    work::take(Step::Read);
    bench.apply(&policy("p", "limit-rps: 2"));
    assert_eq!(work::take(Step::Read), 2, "p");
    bench.apply("apiVersion: v1\nkind: Secret\nmetadata: { name: x, namespace: a }\nstringData: { auth: 'a:$apr1$x$y' }");
    assert_eq!(work::take(Step::Read), 1, "the Secret of q");
    bench.apply("apiVersion: v1\nkind: Secret\nmetadata: { name: y, namespace: a }\nstringData: { auth: b }");
    assert_eq!(work::take(Step::Read), 0, "a Secret of none");
    bench.apply(&policy("p", "limit-rps: 2").replace("namespace: a", "namespace: b"));
    assert_eq!(work::take(Step::Read), 0, "another namespace's");
    bench.see([(ObjectRef::new(Kind::Policy, Key::new("a", "p")), None)]);
    assert_eq!(work::take(Step::Read), 2, "p goes");
}

#[test]
fn a_policy_is_charged_for_each_rule_that_names_it() {
    let mut bench = bench();
    let networks: Vec<_> = (0..3_000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    bench.apply(&policy("p", &format!("allowlist-source-range: '{}'", networks.join(","))));
    bench.see([naming("few", "p", 4)]);
    assert!(bench.route("a", "few").holds);
    bench.see([naming("many", "p", 100)]);
    let refused = bench.route("a", "many");
    assert!(!refused.holds && refused.message.contains("or of filters"), "{refused:?}");
    // What is built for its Policy is not for nothing, though it is not read.
    bench.see([(ObjectRef::new(Kind::HTTPRoute, Key::new("a", "few")), None)]);
    let prices = Prices { translator: &bench.translator, world: &bench.world };
    let (id, new) = (ObjectRef::new(Kind::Policy, Key::new("a", "p")), resource(9, json!({})));
    assert!(!prices.is_free(&id, &Object::Policy(new)));
    bench.see([naming("few", "p", 4)]);
    assert!(bench.route("a", "few").holds);
}

/// The status is told of what is attached; what is not is kept as it is now, and is served so when it is.
#[test]
fn what_no_route_and_no_gateway_of_ours_names_builds_nothing() {
    let mut bench = bench();
    bench.see([naming("r", "p", 1)]);
    work::take(Step::Built);
    let foreign = |version: i64| {
        let spec = json!({"parentRefs": [{"name": "other"}], "hostnames": ["u.test"]});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("b", "u"));
        [(id, Some(Object::Route(resource(version, spec))))]
    };
    for version in 1..4 {
        bench.apply(&policy("unused", &format!("limit-rps: {version}")));
        bench.see(foreign(version));
    }
    bench.apply(&policy("p", "limit-rps: 1").replace("namespace: a", "namespace: b"));
    assert_eq!(work::take(Step::Built), 0);
    let limit = |bench: &Bench| {
        let all = bench.translator.snapshot().policies.values();
        all.filter_map(|policies| policies.limits.as_ref()).count()
    };
    assert_eq!(limit(&bench), 0);
    // What is missing is named.
    bench.apply(&policy("p", "limit-rps: 9"));
    assert_eq!((work::take(Step::Built), limit(&bench)), (1, 1));
    bench.see([naming("s", "unused", 1)]);
    assert_eq!((work::take(Step::Built), limit(&bench)), (1, 2));
    let texts: Vec<_> =
        bench.translator.snapshot().policies.values().map(|it| format!("{it:?}")).collect();
    assert!(texts.iter().any(|text| text.contains("3")), "its newest form: {texts:?}");
    bench.apply(&policy("unused", "limit-rps: 4"));
    assert_eq!(work::take(Step::Built), 1, "it is named now");
    bench.see([(ObjectRef::new(Kind::HTTPRoute, Key::new("a", "s")), None)]);
    assert_eq!(work::take(Step::Built), 1, "a route that has a status goes");
    bench.apply(&policy("unused", "limit-rps: 5"));
    assert_eq!(work::take(Step::Built), 0, "nobody names it any more");
}
