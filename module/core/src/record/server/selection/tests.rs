use super::*;
use crate::model::policy::HeaderName;
use crate::model::{Policy, Server};
use crate::record::encode_server;
use crate::record::server::tests::{pattern, rule, winner};
use std::collections::BTreeSet;

/// A rule `backend` for some requests: `METHOD|*`, then `h:NAME=VALUE`, `h:NAME~REGEX`, `q:NAME=VALUE` or `w:WEIGHT`.
fn selecting(path: &str, backend: &str, conditions: &str) -> Rule {
    let mut selection = Selection::default();
    for word in conditions.split_whitespace() {
        let pair = |text: &str| match (text.split_once('='), text.split_once('~')) {
            (Some((name, value)), _) => ValueMatch::new(name, ValuePattern::Exact(value.into())),
            (_, Some((name, value))) => ValueMatch::new(name, ValuePattern::Regex(value.into())),
            _ => panic!("{text}"),
        };
        match word.split_at_checked(2) {
            Some(("h:", text)) => selection.headers.push(pair(text).unwrap()),
            Some(("q:", text)) => selection.query.push(pair(text).unwrap()),
            Some(("w:", text)) => selection.weight = Some(text.parse().unwrap()),
            _ => selection.method = Some(HeaderName::parse(word).unwrap()),
        }
    }
    Rule { selection: Some(Box::new(selection)), ..rule(pattern(path), backend) }
}

struct Parts<'a> {
    method: &'a str,
    args: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    random: u64,
}

impl RequestParts for Parts<'_> {
    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn args(&self) -> &[u8] {
        self.args.as_bytes()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.headers.iter().for_each(|(name, value)| visit(name.as_bytes(), value.as_bytes()));
    }

    fn random(&self) -> u64 {
        self.random
    }
}

fn chosen(value: &[u8], path: &str, parts: &Parts<'_>) -> Option<String> {
    let route = ServerView::new(value).rule(path.as_bytes(), parts, &Patterns::default());
    let backend = route.unwrap()?.rule.backend().unwrap().to_vec();
    Some(String::from_utf8(backend).unwrap())
}

#[test]
fn an_expression_is_one_by_itself() {
    let is_taken = |text: &str| ValueMatch::new("x", ValuePattern::Regex(text.into())).is_ok();
    assert!(is_taken("(a)|(?:b)") && !is_taken("a)|(?:b"));
    let record = r#"{"headers": [{"name": "x", "value": {"regex": "a)|(?:b"}}]}"#;
    let error = serde_json::from_str::<Selection>(record).unwrap_err().to_string();
    assert!(error.contains("without its `(`"), "{error}");
}

/// No client can send a header of this name: nginx takes no line whose name has a colon.
#[test]
fn the_whole_path_is_compared_with_an_expression_in_its_case() {
    let value = encode_server(&Server::of(vec![
        rule(pattern("/"), "root"),
        selecting("/", "method", "h::path~/[^/]+/Echo POST"),
        selecting("/", "header", "h:x-a=1 h:x-b=1"),
    ]));
    let post = |path: &str, headers: &[(&str, &str)]| {
        let parts = Parts { method: "POST", args: "x=1", headers: headers.to_vec(), random: 0 };
        chosen(&value, path, &parts).unwrap()
    };
    let both = [("x-a", "1"), ("x-b", "1")];
    assert_eq!(post("/a.B/Echo", &both), "method");
    for path in ["/a.B/echo", "/a.B/Echos", "/x/a.B/Echo", "/Echo"] {
        assert_eq!(post(path, &[]), "root", "{path}");
        assert_eq!(post(path, &both), "header", "{path}");
    }
}

#[test]
fn of_one_path_method_headers_parameters_and_then_the_order_decide() {
    let value = encode_server(&Server::of(vec![
        rule(pattern("/"), "root"),
        rule(pattern("/a"), "plain"),
        selecting("/a", "query", "q:x=a+b q:y=1"),
        selecting("/a", "header", "h:X-A=1"),
        selecting("/a", "later", "h:x-a=1"),
        selecting("/a", "headers", "h:x-a=1 h:x-b~v[0-9]"),
        selecting("/a", "method", "POST"),
        selecting("=/a", "exact", "h:x-exact=1"),
        selecting("/a/lone", "lone", "h:x-lone=1"),
    ]));
    let get = |path: &str, method: &str, args: &str, headers: &[(&str, &str)]| {
        let parts = Parts { method, args, headers: headers.to_vec(), random: 0 };
        chosen(&value, path, &parts).unwrap()
    };
    assert_eq!(get("/a", "GET", "", &[]), "plain");
    assert_eq!(get("/a/x", "GET", "", &[("x-a", "1")]), "header");
    assert_eq!(get("/a", "GET", "", &[("x-a", "2")]), "plain");
    assert_eq!(get("/a", "GET", "", &[("X-A", "2"), ("x-A", "1")]), "header");
    assert_eq!(get("/a", "GET", "", &[("x-a", "1"), ("x-b", "v1")]), "headers");
    assert_eq!(get("/a", "GET", "", &[("x-a", "1"), ("x-b", "v12")]), "header");
    assert_eq!(get("/a", "POST", "", &[("x-a", "1"), ("x-b", "v1")]), "method");
    assert_eq!(get("/a", "GET", "z&x=%61+b&y=1", &[]), "plain");
    assert_eq!(get("/a", "GET", "z&x=a%2Bb&y=1&x=a%2bb", &[("x-a", "1")]), "header");
    assert_eq!(get("/a", "GET", "y=1&x=a%2Bb", &[]), "query");
    assert_eq!(get("/a", "POST", "", &[("x-exact", "1")]), "exact");
    assert_eq!(get("/a/lone", "GET", "", &[("x-lone", "1")]), "lone");
    assert_eq!(get("/a/lone/x", "GET", "", &[("x-lone", "2")]), "plain", "the next shorter path");
    assert_eq!(get("/b", "POST", "", &[("x-a", "1")]), "root");
    let all = ServerView::new(&value).considered(b"/a/lone", &Patterns::default());
    let told: Vec<_> = all.iter().map(|one| one.rule.backend().unwrap()).collect();
    assert_eq!((told[0], told.len()), (&b"plain"[..], 8), "{told:?}");
}

#[test]
fn rules_share_requests_by_weight() {
    let rules = [("a", 1), ("b", 0), ("c", 3)];
    let share =
        |(backend, weight): (&str, u32)| selecting("/", backend, &format!("h:x=1 w:{weight}"));
    let plain = [rule(pattern("/"), "plain")];
    let rules = rules.into_iter().map(share).chain(plain).collect();
    let value = encode_server(&Server::of(rules));
    let mut counts = std::collections::BTreeMap::new();
    for step in 0..400u64 {
        let parts = Parts {
            method: "GET",
            args: "",
            headers: vec![("x", "1")],
            random: step * (u64::MAX / 400),
        };
        *counts.entry(chosen(&value, "/", &parts).unwrap()).or_insert(0) += 1;
    }
    assert!(!counts.contains_key("b") && !counts.contains_key("plain"), "{counts:?}");
    assert!((90..=110).contains(&(counts["a"])), "{counts:?}");
    assert_eq!(ServerView::new(&value).names().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn a_path_without_a_rule_for_all_lacks_no_slash_and_is_not_listed() {
    let rules = vec![selecting("=/a/", "a", "POST"), selecting("/b", "b", "POST")];
    let value = encode_server(&Server::of(rules));
    let post = |path| {
        let parts = Parts { method: "POST", args: "", headers: vec![], random: 0 };
        chosen(&value, path, &parts)
    };
    assert_eq!(winner(&value, "/a"), None);
    assert_eq!((winner(&value, "/b"), post("/b").as_deref()), (None, Some("b")));
    assert_eq!(ServerView::new(&value).rules().count(), 2);
    let strict = Policy { is_strict: true, ..Policy::default() };
    let strict = Rule { policy: strict, ..rule(pattern("=/a/"), "a") };
    assert_eq!(winner(&encode_server(&Server::of(vec![strict])), "/a"), None);
}

/// What is compared does not grow with the number of rules that the request does not fit.
#[test]
fn a_thousand_selections_on_one_path_cost_what_ten_do() {
    let time = |count: usize| {
        let rules = (0..count).map(|n| selecting("/", &format!("b{n}"), &format!("h:x-t=t{n}")));
        let value = encode_server(&Server::of(rules.collect()));
        let headers = vec![("host", "a.test"), ("accept", "*/*"), ("x-t", "t7"), ("x-u", "1")];
        let parts = Parts { method: "GET", args: "", headers, random: 0 };
        let (view, patterns) = (ServerView::new(&value), Patterns::default());
        let best = (0..50).map(|_| {
            let start = std::time::Instant::now();
            for _ in 0..100 {
                assert!(
                    std::hint::black_box(view.rule(b"/", &parts, &patterns)).unwrap().is_some()
                );
            }
            start.elapsed().as_nanos() / 100
        });
        best.min().unwrap()
    };
    let (ten, thousand) = (time(10), time(1_000));
    println!("10: {ten} ns, 1,000: {thousand} ns");
    // Measured 2026-11: a few hundred nanoseconds with optimisation; without it both are slower alike.
    assert!(thousand < 3 * ten, "{ten} ns for 10, {thousand} ns for 1,000");
}

/// However many rules, conditions, parameters and paths below each other there are, a request has its steps.
#[test]
fn a_request_takes_so_many_steps_and_then_has_no_rule() {
    let conditions = |number: usize| {
        let common: Vec<_> = (0..14).map(|n| format!("q:a{n}=1")).collect();
        format!("{} q:u{number}=1 q:absent=1", common.join(" "))
    };
    let rules = |count: usize| {
        let rules = (0..count).map(|number| selecting("/", "b", &conditions(number)));
        encode_server(&Server::of(rules.chain([rule(pattern("/"), "plain")]).collect()))
    };
    let asked = |value: &[u8], path: &str, args: &str| {
        let headers = vec![("x-one", "1")];
        let parts = Parts { method: "GET", args, headers, random: 0 };
        let route = ServerView::new(value).rule(path.as_bytes(), &parts, &Patterns::default());
        route.map(|route| route.is_some())
    };
    let all = |count: usize| {
        let unique: Vec<_> = (0..count).map(|n| format!("u{n}=1")).collect();
        let common: Vec<_> = (0..14).map(|n| format!("a{n}=1")).collect();
        format!("{}&{}", common.join("&"), unique.join("&"))
    };
    assert_eq!(asked(&rules(1_000), "/", &all(10)), Ok(true), "an ordinary request");
    assert_eq!(asked(&rules(1_000), "/", &all(1_000)), Err(NoAnswer), "it has the keys of all");
    let with_regex = |regex: &str| {
        let rules = (0..1_000).map(|number| selecting("/", "b", &conditions(number)));
        let plain = [rule(pattern("/"), "plain"), rule(pattern(regex), "regex")];
        encode_server(&Server::of(rules.chain(plain).collect()))
    };
    let longer = with_regex("~/own/[a-z]+");
    assert_eq!(
        asked(&longer, "/own/a", &all(1_000)),
        Ok(true),
        "a stronger expression has its own"
    );
    assert_eq!(asked(&longer, "/other", &all(1_000)), Err(NoAnswer));
    let nested = (1..=200).map(|depth| selecting(&"/d".repeat(depth), "b", "h:x-absent=1"));
    let nested = encode_server(&Server::of(nested.collect()));
    assert_eq!(asked(&nested, &"/d".repeat(200), "a=1&b=2"), Ok(false), "few parameters");
    assert_eq!(asked(&nested, &"/d".repeat(200), &all(200)), Err(NoAnswer), "many, for each path");
}
