use super::*;
use crate::decision::tests::{CA, Encoded, LOST, records};
use crate::record::MatchResult;
use crate::router;
use proptest::prelude::*;
use serde_json::json;

fn ask(records: &Encoded, query: &str) -> Explanation {
    let asked = ExplainRequest::from_query(query.as_bytes()).unwrap();
    explain(&records, &asked, &Patterns::default(), |_, _| None)
}

fn shop() -> Encoded {
    let endpoint = |port: u16| json!([{"address": "10.0.0.1", "port": port}]);
    records(json!({
        "servers": {
            "shop.test": {"rules": [
                {"path": {"prefix": "/"}, "backend": "shop", "origin": {"namespace": "default", "ingress": "shop",
                    "service": "shop", "port": "80", "path": "/"}},
                {"path": {"prefix": "/cart"}, "backend": "cart"},
                {"path": {"exact": "/cart/pay"}, "backend": "pay", "policy": {"https_redirect": "always"}},
                {"path": {"regex": "/cart/[0-9]+"}, "backend": "numbers"},
                {"path": {"regex": "/v(1|2)/(.*)"}, "backend": "shop", "policies": "rewrite"},
                {"path": {"prefix": "/gone"}, "backend": "gone"},
                {"path": {"prefix": "/old"}, "policies": "old", "backend": "shop"},
            ]},
            "*.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]},
        },
        "backends": {
            "shop": {"alternatives": ["canary", "empty"]},
            "canary": {"split": {"weight": 20, "header": "X-Canary", "cookie": "canary"}},
            "empty": {"split": {"weight": 100}},
            "cart": {}, "pay": {}, "numbers": {},
        },
        "endpoints": {"shop": endpoint(1), "canary": endpoint(2), "cart": endpoint(3), "pay": endpoint(4),
            "numbers": [{"address": "10.0.0.1", "port": 5, "draining": true}, {"address": "10.0.0.2", "port": 5}]},
        "policies": {
            "rewrite": {"rewrite": {"target": "/api/$2"}, "access": {"allow": ["10.0.0.0/8"]}},
            "old": {"redirect": {"code": 301, "location": "https://new.test$request_uri"}},
        },
    }))
}

#[test]
fn the_winner_stands_first_and_the_others_say_why_they_lose() {
    let told = ask(&shop(), "host=Shop.test:8080&path=/cart/12/../17%3Fa");
    assert_eq!((told.host.as_str(), told.path.as_str()), ("shop.test", "/cart/17"));
    assert_eq!(told.server, Some(Server { host: "shop.test".into(), found: "exact".into() }));
    let rules: Vec<_> = told.rules.iter().map(|rule| (rule.path.to_string(), rule.wins)).collect();
    let expected = [
        ("/cart/[0-9]+ (regular expression)", true),
        ("/cart (Prefix)", false),
        ("/ (Prefix)", false),
    ];
    assert_eq!(rules, expected.map(|(path, wins)| (path.to_owned(), wins)));
    assert_eq!(told.other_rules, 4);
    assert_eq!(told.rules[2].ingress, "shop");
    let backend = told.backend.unwrap();
    assert_eq!((backend.id.as_str(), told.outcome.status), ("numbers", None));
    let eligible: Vec<_> = backend.endpoints.iter().map(|endpoint| endpoint.eligible).collect();
    assert_eq!(eligible, [false, true]);
}

#[test]
fn a_pattern_that_was_tried_and_does_not_match_is_told() {
    let told = ask(&shop(), "host=shop.test&path=/cart/x");
    let tried = told.rules.iter().find(|rule| matches!(rule.path, PathPattern::Regex(_))).unwrap();
    assert_eq!((tried.wins, &*tried.why), (false, MatchResult::OtherPath.why()));
    assert_eq!(told.rules[0].path, PathPattern::Prefix("/cart".into()));
}

#[test]
fn redirects_rewrites_and_errors_say_what_a_client_gets() {
    let shop = shop();
    let outcome = |query: &str| ask(&shop, query).outcome;
    let found = outcome("host=shop.test&path=/cart/pay%3Fa=1");
    assert_eq!(
        (found.status, found.location.as_deref()),
        (Some(308), Some("https://shop.test/cart/pay?a=1"))
    );
    assert_eq!(outcome("host=shop.test&path=/cart/pay&scheme=https").status, None);
    let found = outcome("host=shop.test&path=/old/x%3Fy");
    assert_eq!(
        (found.status, found.location.as_deref()),
        (Some(301), Some("https://new.test/old/x?y"))
    );
    let told = ask(&shop, "host=shop.test&path=/v2/items%3Fq");
    assert_eq!(told.outcome.rewritten.as_deref(), Some("/api/items?q"));
    assert_eq!(told.conditions, ["a client address in a network"]);
    assert_eq!(outcome("host=shop.test&path=/gone").status, Some(503));
    assert_eq!(outcome("host=shop.test&path=/..").status, Some(400));
    assert_eq!(outcome("host=elsewhere.org&path=/").status, Some(404));
    assert_eq!(ask(&shop, "host=elsewhere.org").server, None);
    let wildcard = ask(&shop, "host=a.test");
    assert_eq!(wildcard.server, Some(Server { host: "*.test".into(), found: "wildcard".into() }));
}

#[test]
fn a_canary_is_told_with_its_reason() {
    let shop = shop();
    let chosen = |query: &str| {
        let backend = ask(&shop, query).backend.unwrap();
        (backend.id, backend.why)
    };
    let by_weight = "the rule's own, by weight: alternatives take their share";
    assert_eq!(chosen("host=shop.test"), ("shop".into(), by_weight.into()));
    let by_header = ("canary".into(), "by a header of the request".into());
    assert_eq!(chosen("host=shop.test&header=x-canary:always"), by_header);
    let by_cookie = ("canary".into(), "by a cookie of the request".into());
    assert_eq!(chosen("host=shop.test&header=Cookie:canary%3Dalways"), by_cookie);
    let never = ("shop".into(), "by a header of the request".into());
    assert_eq!(chosen("host=shop.test&header=X-Canary:never"), never);
    let alternatives = ask(&shop, "host=shop.test").backend.unwrap().alternatives;
    let seen: Vec<_> = alternatives.iter().map(|a| (&*a.id, a.weight, a.has_endpoints)).collect();
    assert_eq!(seen, [("canary", 20, true), ("empty", 100, false)]);
}

#[test]
fn what_is_counted_closes_endpoints() {
    let shop = records(json!({
        "servers": {"_": {"rules": [{"path": {"prefix": "/"}, "backend": "b"}]}},
        "backends": {"b": {"max_in_flight": 3}},
        "endpoints": {"b": [{"address": "10.0.0.1", "port": 1}, {"address": "10.0.0.2", "port": 1}]},
    }));
    let asked = ExplainRequest::from_query(b"host=any").unwrap();
    let patterns = Patterns::default();
    let busy = |_: &[u8], index| {
        Some(Counted { in_flight: if index == 0 { 3 } else { 0 }, ejected_ms: 0 })
    };
    let told = explain(&&shop, &asked, &patterns, busy);
    assert_eq!(told.server.unwrap().found, "default");
    let eligible: Vec<_> = told.backend.unwrap().endpoints.iter().map(|e| e.eligible).collect();
    assert_eq!(eligible, [false, true]);
    let all_busy = |_: &[u8], _| Some(Counted { in_flight: 9, ejected_ms: 0 });
    assert_eq!(explain(&&shop, &asked, &patterns, all_busy).outcome.status, Some(503));
}

#[test]
fn endpoints_that_fail_all_at_once_are_tried_as_nginx_tries_them() {
    let endpoints = json!([{"address": "10.0.0.1", "port": 1}, {"address": "10.0.0.2", "port": 1}]);
    let failing = |panic_percent: u8| {
        let ejection = json!({"failures": 1, "panic_percent": panic_percent});
        let records = records(json!({
            "servers": {"_": {"rules": [{"path": {"prefix": "/"}, "backend": "b"}]}},
            "backends": {"b": {"ejection": ejection}},
            "endpoints": {"b": endpoints},
        }));
        let asked = ExplainRequest::from_query(b"host=any").unwrap();
        let counted = |_: &[u8], _| Some(Counted { in_flight: 0, ejected_ms: 5 });
        explain(&&records, &asked, &Patterns::default(), counted).outcome.status
    };
    assert_eq!(failing(50), None, "too many are left out: none is");
    assert_eq!(failing(0), Some(502));
}

#[test]
fn alternatives_that_take_all_requests_leave_nothing_to_the_backend() {
    let endpoint = json!([{"address": "10.0.0.1", "port": 1}]);
    let records = records(json!({
        "servers": {"_": {"rules": [{"path": {"prefix": "/"}, "backend": "own"}]}},
        "backends": {
            "own": {"alternatives": ["one", "two"]},
            "one": {"split": {"weight": 50}}, "two": {"split": {"weight": 50}},
        },
        "endpoints": {"own": endpoint, "one": endpoint, "two": endpoint},
    }));
    let backend = ask(&records, "host=any").backend.unwrap();
    assert_eq!(
        (&*backend.id, &*backend.why),
        ("two", "by weight: alternatives share all requests")
    );
}

#[test]
fn a_backend_without_endpoints_has_no_alternatives_to_ask() {
    let records = records(json!({
        "servers": {"_": {"rules": [{"path": {"prefix": "/"}, "backend": "own"}]}},
        "backends": {"own": {"alternatives": ["canary"]}, "canary": {"split": {"weight": 100}}},
        "endpoints": {"canary": [{"address": "10.0.0.1", "port": 1}]},
    }));
    let told = ask(&records, "host=any");
    assert_eq!((told.outcome.status, &*told.backend.unwrap().id), (Some(503), "own"));
}

fn guarded() -> Encoded {
    let client = |authorities: &str| json!({"client": {"authorities": authorities, "verify": "on", "depth": 1}});
    records(json!({
        "servers": {"_": {"rules": [
            {"path": {"prefix": "/"}, "backend": "b"},
            {"path": {"prefix": "/sent"}, "backend": "b", "policy": {"https_redirect": "always"}},
        ]}},
        "tls": {"a.test": client(CA), "lost.test": client(LOST)},
        "bundles": {CA: "PEM"},
        "endpoints": {"b": [{"address": "10.0.0.1", "port": 1}]},
    }))
}

#[test]
fn plain_http_shows_no_client_certificate() {
    let guarded = guarded();
    let status = |query: &str| ask(&guarded, query).outcome.status;
    assert_eq!(status("host=a.test&path=/x"), Some(400));
    assert_eq!(status("host=a.test&path=/x&scheme=https"), None, "it is a condition");
    assert_eq!(status("host=a.test&path=/sent"), Some(308), "it may come to be sent to HTTPS");
}

#[test]
fn a_host_whose_authorities_are_not_there_is_closed() {
    assert_eq!(ask(&guarded(), "host=lost.test&scheme=https").outcome.status, Some(503));
}

#[test]
fn a_root_that_no_ingress_asks_for_is_no_rule() {
    let origin = json!({"namespace": "n", "ingress": "i", "path": "/"});
    let records = records(json!({
        "servers": {"a.test": {"rules": [
            {"path": {"prefix": "/"}, "origin": origin},
            {"path": {"prefix": "/cart"}, "backend": "cart"},
        ]}},
    }));
    let told = ask(&records, "host=a.test&path=/other");
    assert_eq!((told.rules.len(), told.other_rules, told.outcome.status), (0, 1, Some(404)));
    assert_eq!(told.outcome.why, Reason::NoRule.text());
    let told = ask(&records, "host=a.test&path=/cart/1");
    assert_eq!((told.rules.len(), told.other_rules), (1, 0));
}

#[test]
fn texts_name_the_rule_as_nginx_does() {
    let origin = json!({"namespace": "n", "ingress": "i", "service": "s", "port": "80"});
    let location = "https://new.test$location_path?to=$proxy_host";
    let records = records(json!({
        "servers": {"_": {"rules": [
            {"path": {"prefix": "/"}, "backend": "b", "policies": "moved", "origin": origin},
        ]}},
        "policies": {"moved": {
            "redirect": {"code": 301, "location": location}, "access": {"allow": ["10.0.0.0/8"]},
        }},
    }));
    let told = ask(&records, "host=a.test");
    assert_eq!(told.outcome.location.as_deref(), Some("https://new.test/?to=n-s-80"));
    assert!(told.conditions.is_empty(), "it is answered before ACCESS: {:?}", told.conditions);
}

#[test]
fn an_explanation_is_read_again() {
    let told = ask(&shop(), "host=shop.test&path=/v1/x");
    let json = serde_json::to_string(&told).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap(), told);
}

proptest! {
    /// The winner is the router's, and of all rules that take the path nobody else is said to win.
    #[test]
    fn the_winner_is_the_router_s(
        prefixes in proptest::collection::btree_set("(/[ab]{1,2}){0,3}", 0..6),
        regexes in proptest::collection::btree_set("/[ab][.][*+]|/a(/|b)?|/[(]a[|]b[)]", 0..4),
        exact in proptest::option::of("/[ab]/?[ab]?"),
        path in "/([ab]{1,2}(/[ab]{0,2})?)?",
    ) {
        let rule = |path: Value| json!({"path": path, "backend": path.to_string()});
        let rules: Vec<_> = prefixes
            .iter()
            .map(|p| rule(json!({"prefix": if p.is_empty() { "/" } else { p }})))
            .chain(regexes.iter().map(|r| rule(json!({"regex": r}))))
            .chain(exact.iter().map(|e| rule(json!({"exact": e}))))
            .collect();
        let count = rules.len();
        let records = records(json!({"servers": {"_": {"rules": rules}}}));
        let told = ask(&records, &format!("host=a&path={path}"));
        let patterns = Patterns::default();
        let route = router::route(&&records, b"a", path.as_bytes(), &patterns).unwrap();
        let winner = told.rules.iter().filter(|rule| rule.wins).map(|rule| rule.path.clone()).collect::<Vec<_>>();
        let expected = route.map(|route| text(route.rule.backend().unwrap()));
        let winner: Vec<_> = winner.iter().map(|path| serde_json::to_value(path).unwrap().to_string()).collect();
        prop_assert_eq!(winner, expected.into_iter().collect::<Vec<_>>());
        prop_assert!(told.rules.first().is_none_or(|rule| rule.wins || told.rules.iter().all(|r| !r.wins)));
        prop_assert_eq!(told.rules.len() + told.other_rules, count);
    }
}
