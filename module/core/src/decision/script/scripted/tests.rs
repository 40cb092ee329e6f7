//! Decisions by scripts.

mod definitions;

use super::*;
use crate::decision::tests::{Generated, generation, records};
use crate::decision::{Edits, Silent, decide};
use serde_json::{Value, json};

/// What becomes of a request for a path and query, where the rules have these policies by path.
fn decided(rules: &[(&str, &str)], policies: &Value, request: &Generated) -> (String, Edits) {
    let rules: Vec<_> = rules.iter().map(|(path, id)| (*path, *id, "n")).collect();
    decided_among(&rules, policies, request)
}

/// The same with the namespace of each rule.
fn decided_among(
    rules: &[(&str, &str, &str)],
    policies: &Value,
    request: &Generated,
) -> (String, Edits) {
    let rules: Vec<_> = rules
        .iter()
        .map(|(path, id, namespace)| {
            let origin = json!({"namespace": namespace, "ingress": "i", "service": "s", "port": "80", "path": path});
            json!({"path": {"prefix": path}, "backend": "own", "policies": id, "origin": origin})
        })
        .collect();
    let records = records(json!({
        "servers": {"a.test": {"rules": rules}},
        "backends": {"own": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
        "policies": policies,
    }));
    let generation = generation(&records);
    let decision = decide(&generation, request, &mut Silent);
    let path = decision.route.rule.map(|rule| rule.texts()[5].to_vec()).unwrap_or_default();
    let answer = match decision.answer {
        Answer::Forward => format!("to {}", String::from_utf8_lossy(&path)),
        other => format!("{other:?}"),
    };
    (answer, *decision.edits.unwrap_or_default())
}

/// Whoever may add a path to a host leads nobody past what protects the paths of others.
#[test]
fn a_script_leads_to_rules_of_its_own_namespace_only() {
    let policies = json!({
        "o": {"fallback": "own"},
        "g": {"script": {"steps": [{"rewrite": {"pattern": "^/evil(.*)", "target": "/$1", "then": "last"}}]}},
        "p": {"script": {"server": "s", "steps": []}},
        "s": {"script": {"owner": "n", "steps": [
            {"rewrite": {"pattern": "^/moved(.*)", "target": "/own$1", "then": "last"}},
            {"rewrite": {"pattern": "^/kept(.*)", "target": "/x$1"}},
            {"if": {"test": {"value": "$arg_key", "equals": "k", "negated": true}, "then": [{"answer": {"code": 403}}]}},
        ]}},
    });
    let rules = [("/", "p", "n"), ("/evil", "g", "g"), ("/own", "o", "g")];
    let of = |path, args| decided_among(&rules, &policies, &Generated::of(path, args, None)).0;
    assert_eq!(of("/admin", ""), "Respond(403)");
    assert_eq!(of("/admin", "key=k"), "to /");
    assert_eq!(of("/evil/admin", ""), "Respond(404)");
    assert_eq!(of("/evil/admin", "key=k"), "Respond(404)");
    assert_eq!(of("/evil/own/x", ""), "to /own");
    assert_eq!(of("/moved/x", ""), "Respond(404)", "the host's owner is a namespace as well");
    assert_eq!(of("/kept/x", "key=k"), "to /");
}

/// What the operator says of all hosts leads anywhere, unless a namespace has had its hand in it.
#[test]
fn steps_of_every_server_and_location_lead_to_any_namespace() {
    let to_guest = |from: &str| json!([{"rewrite": {"pattern": format!("^{from}(.*)"), "target": "/guest$1", "then": "last"}}]);
    let at = |path: &str, policies: &str| json!([{"at": {"prefix": path}, "policies": policies}]);
    let policies = json!({
        "p": {"script": {"server": "s", "every_server": "c", "every_location": "g", "steps": to_guest("/rule")}},
        "s": {"script": {
            "owner": "n", "locations": at("/theirs", "theirs"), "steps": [{"rewrite": {"pattern": "^/both", "target": "/server"}}],
        }},
        "c": {"script": {"owner": "op", "locations": at("/ours", "ours"), "steps": to_guest("/server")}},
        "g": {"script": {"owner": "op", "steps": to_guest("/location")}},
        "theirs": {"script": {"owner": "n", "steps": to_guest("/theirs")}},
        "ours": {"script": {"owner": "op", "steps": to_guest("/ours")}},
        "o": {"fallback": "own"},
        "hop": {"script": {"steps": [{"rewrite": {"pattern": "^/hop", "target": "/led", "then": "last"}}]}},
        "led": {"script": {"every_location": "out"}},
        "out": {"script": {"owner": "op", "steps": [{"rewrite": {"pattern": "^/led", "target": "/x", "then": "last"}}]}},
    });
    let rules = [("/", "p", "n"), ("/guest", "o", "g"), ("/hop", "hop", "g"), ("/led", "led", "g")];
    let of = |path| decided_among(&rules, &policies, &Generated::of(path, "", None)).0;
    for path in ["/server/x", "/location/x", "/ours/x"] {
        assert_eq!(of(path), "to /guest", "{path}");
    }
    for path in ["/rule/x", "/theirs/x", "/both/x"] {
        assert_eq!(of(path), "Respond(404)", "{path}");
    }
    for path in ["/x", "/led"] {
        assert_eq!(of(path), "to /", "{path}");
    }
    assert_eq!(of("/hop"), "Respond(404)", "a namespace has led there");
}

fn steps(steps: &Value) -> Value {
    json!({"p": {"script": {"steps": steps}}, "q": {"denied": 401}})
}

#[test]
fn a_request_that_is_sent_on_meets_the_policies_of_where_it_comes() {
    let policies = steps(&json!([
        {"rewrite": {"pattern": "^/a/(.*)", "target": "/b/$1", "then": "last"}},
    ]));
    let rules = [("/", "p"), ("/b", "q")];
    let answer = |path| decided(&rules, &policies, &Generated::of(path, "", None)).0;
    assert_eq!(answer("/a/x"), "Respond(401)");
    assert_eq!(answer("/c"), "to /");
    let (answer, edits) = decided(&[("/", "p")], &policies, &Generated::of("/a/x", "k=v", None));
    assert_eq!(answer, "to /");
    assert_eq!(*edits.moved.unwrap(), (b"/b/x".to_vec(), b"k=v".to_vec()));
}

#[test]
fn what_leads_in_a_circle_ends() {
    let policies = steps(&json!([{"rewrite": {"pattern": "^/(.*)", "target": "/x/$1"}}]));
    let request = Generated::of("/a", "", None);
    assert_eq!(decided(&[("/", "p")], &policies, &request).0, "Respond(500)");
}

#[test]
fn variables_end_with_the_rule_that_set_them() {
    let policies = json!({
        "p": {"script": {"steps": [
            {"set": {"name": "snippet_l_a", "value": "of p"}},
            {"rewrite": {"pattern": "^/a", "target": "/b", "then": "last"}},
        ]}},
        "q": {"script": {"steps": [{"set": {"name": "snippet_l_b", "value": "[$snippet_l_a]"}}]}},
    });
    let (_, edits) = decided(&[("/", "p"), ("/b", "q")], &policies, &Generated::of("/a", "", None));
    assert_eq!(*edits.variables.unwrap(), [("snippet_l_b".into(), b"[]".to_vec())]);
}

#[test]
fn a_rule_without_variables_has_none_of_the_rule_before_it() {
    let (_, edits) =
        decided(&[("/", "p")], &steps(&json!(["break"])), &Generated::of("/a", "", None));
    assert_eq!(edits.variables.as_deref(), Some(&Vec::new()));
}

/// A worker has not compiled them when it begins.
#[test]
fn a_path_that_a_script_gives_is_matched_by_patterns_that_nobody_has_used_yet() {
    let again = |from: &str, to: &str| json!({"script": {"steps": [{"rewrite": {"pattern": from, "target": to, "then": "last"}}]}});
    let rule = |path: Value, policies: Option<&str>| json!({"path": path, "policies": policies, "backend": "own"});
    let records = records(json!({
        "policies": {"p": again("^/a(.*)", "/b$1"), "q": again("^/b(.*)", "/c$1")},
        "servers": {"a.test": {"rules": [
            rule(json!({"prefix": "/a"}), Some("p")),
            rule(json!({"regex": "/b(/|$)(.*)"}), Some("q")),
            rule(json!({"regex": "/c(/|$)([a-z]+|[0-9]{1,9}|é*)(.*)"}), None),
        ]}},
        "backends": {"own": {}},
        "endpoints": {"own": [{"address": "10.0.0.1", "port": 1}]},
    }));
    let decision = decide(&generation(&records), &Generated::of("/a/x", "", None), &mut Silent);
    assert_eq!(decision.answer, Answer::Forward);
}

#[test]
fn a_path_that_no_client_could_send_passes_by_no_rule() {
    let policies = steps(&json!([
        {"rewrite": {"pattern": "^/a/(.*)", "target": "/shop//$1/", "then": "last"}},
    ]));
    let rules = [("/", "p"), ("/shop/admin", "q")];
    let answer = decided(&rules, &policies, &Generated::of("/a/admin", "", None)).0;
    assert_eq!(answer, "Respond(401)");
}

#[test]
fn what_steps_write_and_look_up_has_one_bound_however_often_a_path_changes() {
    let shorter = |then: &str, target: &str| json!({"rewrite": {"pattern": "^/a(.*)", "target": target, "then": then}});
    let sets = |count: usize| {
        let all =
            (0..count).map(|n| json!({"set": {"name": format!("snippet_l_{n}"), "value": ""}}));
        json!(all.chain([shorter("last", "/$1")]).collect::<Vec<_>>())
    };
    let growing = |count: usize| {
        let all = vec![shorter("next", "/$1?x=$arg_k"); count];
        json!(all.into_iter().chain([json!("break")]).collect::<Vec<_>>())
    };
    let args: &str = format!("k={}", "v".repeat(2_000)).leak();
    for (script, letters, is_bounded) in [
        (sets(500), 7, true),
        (sets(50), 7, false),
        (growing(90), 100, true),
        (growing(5), 100, false),
    ] {
        let request = Generated::of(&format!("/{}", "a".repeat(letters)), args, None);
        let (answer, _) = decided(&[("/", "p")], &steps(&script), &request);
        let expected = if is_bounded { "Respond(500)" } else { "to /" };
        assert_eq!(answer, expected, "{}", script.as_array().unwrap().len());
    }
}

#[test]
fn a_server_s_steps_come_once_and_its_locations_by_the_path_that_they_leave() {
    let policies = json!({
        "p": {"script": {"server": "s", "steps": []}},
        "s": {"script": {
            "owner": "n",
            "steps": [
                {"set": {"name": "snippet_s_n", "value": "${snippet_s_n}1"}},
                {"rewrite": {"pattern": "^/old/(.*)", "target": "/$1"}},
            ],
            "locations": [{"at": {"prefix": "/shut"}, "policies": "q"}, {"at": {"exact": "/lost"}, "policies": "none"}],
        }},
        "q": {"denied": 401},
    });
    let decided = |path| {
        decided(&[("/", "p"), ("/shut/open", "p")], &policies, &Generated::of(path, "", None))
    };
    assert_eq!(decided("/old/shut/x").0, "Respond(401)");
    assert_eq!(decided("/shut/open/x").0, "to /shut/open");
    assert_eq!(decided("/lost").0, "Respond(503)", "policies that are named and not there");
    let (answer, edits) = decided("/old/x");
    assert_eq!(answer, "to /");
    assert_eq!(*edits.variables.unwrap(), [("snippet_s_n".into(), b"1".to_vec())]);
}

#[test]
fn what_is_said_of_every_server_and_location_comes_after_what_one_says() {
    let note = |who: &str| json!({"set": {"name": "snippet_s_n", "value": format!("${{snippet_s_n}}{who}")}});
    let at = |path: &str| json!({"at": {"prefix": path}, "policies": "shut"});
    let policies = json!({
        "p": {"script": {"server": "s", "every_server": "c", "every_location": "g", "steps": [note("2")]}},
        "broken": {"script": {"every_location": "g", "steps": ["break"]}},
        "closed": {"script": {"every_location": "none", "steps": []}},
        "s": {"script": {"owner": "n", "steps": [note("0")], "locations": [at("/own")]}},
        "c": {"script": {"owner": "o", "steps": [note("1")], "locations": [at("/all")]}},
        "g": {"script": {"owner": "o", "steps": [note("3"), {"if": {
            "test": {"value": "$arg_a", "equals": "b"}, "then": [{"answer": {"code": 403}}],
        }}]}},
        "shut": {"script": {"steps": [{"answer": {"code": 401}}]}},
    });
    let rules = [("/", "p"), ("/broken", "broken"), ("/closed", "closed")];
    let decided = |path, args| decided(&rules, &policies, &Generated::of(path, args, None));
    let (answer, edits) = decided("/x", "");
    assert_eq!(answer, "to /");
    assert_eq!(*edits.variables.unwrap(), [("snippet_s_n".into(), b"0123".to_vec())]);
    assert_eq!(decided("/x", "a=b").0, "Respond(403)");
    assert_eq!(decided("/broken", "a=b").0, "to /broken", "break ends all steps of a location");
    assert_eq!(decided("/closed", "").0, "Respond(503)", "named, and not there");
    for path in ["/own/x", "/all/x"] {
        assert_eq!(decided(path, "").0, "Respond(401)", "{path}");
    }
}

#[test]
fn what_is_denied_stays_so_whatever_a_script_answers() {
    let policies = json!({"p": {"denied": 503, "script": {"steps": [
        {"answer": {"code": 301, "location": "/elsewhere"}},
    ]}}});
    let request = Generated::of("/a", "", None);
    assert_eq!(decided(&[("/", "p")], &policies, &request).0, "Respond(503)");
}

#[test]
fn a_pattern_that_takes_too_long_closes() {
    let policies = steps(&json!([
        {"if": {"test": {"value": "$uri", "pattern": "(a|aa)+(b|c)(d|e)\\1$"}, "then": [{"answer": {"code": 403}}]}},
    ]));
    let request = Generated::of(&format!("/{}", "a".repeat(900)), "", None);
    assert_eq!(decided(&[("/", "p")], &policies, &request).0, "Respond(500)");
}

/// nginx makes a location of each `if`, and stays in the last one whose condition holds.
#[test]
fn the_last_condition_that_holds_has_the_answer() {
    let of = |name: &str, then: Value| {
        let test = json!({"value": format!("$arg_{name}")});
        let location = json!({"response_edits": [{"name": "A", "action": "add", "value": name}]});
        json!({"if": {"test": test, "then": then, "location": location}})
    };
    let bare = json!({"if": {"test": {"value": "$arg_none"}, "then": []}});
    let last = json!([{"rewrite": {"pattern": "^/x", "target": "/y?none=1", "then": "last"}}]);
    let policies = json!({
        "p": {"script": {"every_location": "g", "steps": [
            of("a", json!([])), of("b", json!([])), bare, of("c", json!([{"answer": {"code": 204}}])),
            of("d", last),
        ]}},
        "g": {"script": {"owner": "o", "steps": [of("e", json!([]))]}},
        "y": {},
    });
    let found = |path: &'static str, args: &'static str| {
        let request = Generated::of(path, args, None);
        let (answer, edits) = decided(&[("/", "p"), ("/y", "y")], &policies, &request);
        let name = edits.if_location.map(|found| found.response_edits[0].value.as_str().to_owned());
        (answer, name.unwrap_or_default())
    };
    for (path, args, answer, name) in [
        ("/", "", "to /", ""),
        ("/", "a=1", "to /", "a"),
        ("/", "a=1&b=1", "to /", "b"),
        ("/", "a=1&none=1", "to /", ""),
        ("/", "a=1&c=1", "Respond(204)", "c"),
        ("/", "a=1&e=1", "to /", "e"),
        ("/", "c=1&e=1", "Respond(204)", "c"),
        ("/", "a=1&d=1", "to /", "d"),
        ("/x", "a=1&d=1", "to /y", ""),
    ] {
        assert_eq!(found(path, args), (answer.to_owned(), name.to_owned()), "{path} {args}");
    }
}
