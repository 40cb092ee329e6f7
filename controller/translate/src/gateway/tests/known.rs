//! What is known of routes and hosts that did not change.

use super::*;

fn bench(hosts: &[&str]) -> Bench {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let listeners = hosts.iter().map(|host| json!({"port": 80, "hostname": host}));
    bench.see([class(), gateway(0, listeners, &all)]);
    bench
}

fn to(host: &str) -> Vec<String> {
    vec![host.to_owned()]
}

#[test]
fn routes_with_expressions_are_read_when_they_change() {
    let mut bench = bench(&["a.test", "b.test"]);
    let regex = |text: &str| json!([{"matches": [{"headers": [{"name": "x", "type": "RegularExpression", "value": text}]}]}]);
    let route =
        |created, text: &str| http_route(("a", "r"), created, 1, &to("a.test"), &regex(text));
    let other = |created| http_route(("b", "r"), created, 1, &to("b.test"), &json!([{}]));
    bench.see([route(0, "a|b"), other(0)]);
    work::take(Step::Read);
    work::take(Step::Merged);
    bench.see([other(1)]);
    assert_eq!((work::take(Step::Read), work::take(Step::Merged)), (1, 1), "the other one's");
    bench.see([route(1, "a|c")]);
    assert_eq!((work::take(Step::Read), work::take(Step::Merged)), (1, 1));
    assert!(bench.route("a", "r").holds);
    bench.see([route(2, "a(")]);
    assert!(!bench.route("a", "r").holds, "it is no expression");
    work::take(Step::Read);
    bench.see([other(2)]);
    assert!(!bench.route("a", "r").holds);
    assert_eq!(work::take(Step::Read), 1, "the other one's");
}

#[test]
fn hosts_where_several_names_meet_are_merged_when_they_change() {
    let mut bench = bench(&["x.a.test", "b.test"]);
    let rules = json!([{"matches": [{"headers": [{"name": "x", "value": "1"}]}]}]);
    let wide = http_route(("a", "wide"), 0, 1, &to("*.a.test"), &rules);
    let path = |path: &str| json!([{"matches": [{"path": {"value": path}}]}]);
    let none = |created, text| http_route(("a", "none"), created, 1, &[], &path(text));
    let other = |created| http_route(("b", "r"), created, 1, &to("b.test"), &json!([{}]));
    bench.see([wide, none(1, "/x"), other(0)]);
    work::take(Step::Merged);
    let rules = |bench: &Bench| {
        let at = ListenerHost::parse("80/x.a.test").unwrap();
        bench.translator.snapshot().listener_servers[&at].rules.len()
    };
    assert_eq!(rules(&bench), 3, "the condition of the more specific name holds at the path, too");
    bench.see([other(1)]);
    assert_eq!(work::take(Step::Merged), 1, "the other host");
    bench.see([none(1, "/y")]);
    assert_eq!(work::take(Step::Merged), 2, "both have it");
    assert_eq!(rules(&bench), 3);
}
