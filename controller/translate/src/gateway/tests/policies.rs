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

fn filter(policy: &str) -> Value {
    json!({"type": "ExtensionRef",
        "extensionRef": {"group": "oxigress.io", "kind": "Policy", "name": policy}})
}

/// A route whose rules, each of one path, name a Policy.
fn naming(route: &str, policy: &str, rules: usize) -> Seen {
    let filter = filter(policy);
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

#[test]
fn which_policies_name_an_object_is_looked_up_and_only_for_what_they_can_name() {
    let mut bench = bench();
    let name = |n: usize| format!("p{n}");
    let policies =
        (0..50).map(|n| policy(&name(n), &format!("auth-type: basic, auth-secret: s{n}")));
    bench.apply(&policies.collect::<String>());
    bench.see((0..50).map(|n| naming(&format!("r{n}"), &name(n), 1)));
    let asked = |bench: &Bench, kind: Kind, name: &str, object: Object| {
        work::take(Step::Naming);
        let prices = Prices { translator: &bench.translator, world: &bench.world };
        prices.is_free(&ObjectRef::new(kind, Key::new("a", name)), &object);
        work::take(Step::Naming)
    };
    let secret = || {
        let fields = Arc::new(Fields::new(Default::default()));
        Object::Secret(Secret { offer: Offer::WithoutPair, fields })
    };
    assert_eq!(asked(&bench, Kind::Secret, "none", secret()), 1);
    assert_eq!(asked(&bench, Kind::Secret, "s7", secret()), 2, "one names it");
    assert_eq!(asked(&bench, Kind::EndpointSlice, "s7", Object::EndpointSlice(Arc::default())), 0);
    assert_eq!(asked(&bench, Kind::Ingress, "s7", Object::Ingress(Arc::default())), 0);
    let (id, route) = naming("r1", "p2", 1);
    assert_eq!(asked(&bench, id.kind, "r1", route.unwrap()), 0);
    // Nor does an update look at more, and what is named no more is forgotten.
    bench.see([(ObjectRef::new(Kind::Secret, Key::new("a", "none")), Some(secret()))]);
    assert_eq!(work::take(Step::Naming), 1);
    bench.see([(ObjectRef::new(Kind::HTTPRoute, Key::new("a", "r7")), None)]);
    assert_eq!(asked(&bench, Kind::Secret, "s7", secret()), 1);
    bench.apply(&policy("p8", "limit-rps: 1"));
    assert_eq!(asked(&bench, Kind::Secret, "s8", secret()), 1);
}

#[test]
fn policies_are_read_for_rules_that_are_read_and_name_one() {
    let mut bench = bench();
    bench.apply(&["p", "q", "last"].map(|name| policy(name, "limit-rps: 1")).concat());
    let known = |bench: &Bench| {
        ["p", "q", "last"].map(|name| bench.translator.bytes_of_policy(&Key::new("a", name)) > 0)
    };
    let route = |name: &str, created: i64, rules: Vec<Value>| {
        http_route(("a", name), created, 1, &[format!("{name}.test")], &json!(rules))
    };
    bench.see([route("two", 0, vec![json!({"filters": [filter("p"), filter("q")]})])]);
    assert_eq!(known(&bench), [false; 3], "the rule is refused, whatever they say");
    // There is room for 20,000 rules.
    let many = json!({"matches": vec![json!({}); 64], "filters": [filter("last")],
        "backendRefs": vec![json!({"name": "s", "port": 80}); 16]});
    bench.see([route("many", 1, vec![many; 20]), naming("few", "p", 2)]);
    assert_eq!(known(&bench), [true, false, false]);
    assert!(!bench.route("a", "many").holds && bench.route("a", "few").holds);
    work::take(Step::Built);
    bench.apply(&policy("last", "limit-rps: 2"));
    assert_eq!(work::take(Step::Built), 0, "no rule that is read names it");
}
