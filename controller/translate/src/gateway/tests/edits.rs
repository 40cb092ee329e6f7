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
    let namespace = if n % 2 == 0 { "a" } else { "b" };
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
