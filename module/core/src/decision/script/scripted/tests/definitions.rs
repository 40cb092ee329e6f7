//! Variables that are worked out of others.

use super::decided;
use crate::decision::tests::Generated;
use crate::patterns::Budget;
use serde_json::{Value, json};

/// Policies by their ids, with definitions.
fn policies() -> Value {
    let set = |name: &str, value: &str| json!({"set": {"name": name, "value": value}});
    let kept = json!({"pattern": "^/a(.*)", "target": "/b$1", "then": "break"});
    let definitions = json!({"variables": {
        "snippet_h_kind": {"map": {
            "source": "$uri", "default": "none", "texts": {"/a": "[$snippet_h_share]"},
            "patterns": [["^/(.)/(.*)", "$2$1"]],
        }},
        "snippet_h_now": {"map": {"source": "$uri", "default": "$uri", "is_volatile": true}},
        "snippet_h_share": {"split": {"source": "$arg_u", "parts": [[0x1000_0000, "low"], [0, "high"]]}},
        "snippet_h_zone": {"geo": {
            "source": "$arg_ip", "ranges": [["10.0.0.0", "10.0.0.9", 0]], "values": ["ten"],
        }},
    }});
    json!({
        "http-snippet": {"definitions": definitions},
        "p": {"script": {"steps": [
            set("snippet_l_before", "$snippet_h_kind"),
            {"rewrite": kept},
        ]}},
        "q": {"redirect": {"code": 301, "location": "https://b.test/$snippet_h_kind"}},
        "z": {"script": {"steps": [set("snippet_l_z", "$snippet_h_zone")]}},
        "h": {
            "rewrite": {"target": "/i/b"},
            "request_headers": [{"name": "X-Kind", "value": "$snippet_h_kind"}],
        },
        "v": {
            "script": {"steps": [set("snippet_l_v", "$snippet_h_now"), {"rewrite": {
                "pattern": "^/v", "target": "/w", "then": "break",
            }}]},
            "request_headers": [{"name": "X-Now", "value": "$snippet_h_now"}],
        },
        "e": {"script": {"every_location": "all"}},
        "all": {"script": {"steps": [{"if": {
            "test": {"value": "$arg_u"}, "then": [],
            "location": {"input_edits": [{"name": "X-Gone", "value": "$snippet_h_gone"}]},
        }}]}},
        "g": {"request_headers": [{"name": "X-Gone", "value": "$snippet_h_gone"}]},
        "d": {"denied": 403, "response_edits": [{"name": "A", "action": "add", "value": "$snippet_h_gone"}]},
        "r": {"script": {"steps": [
            {"if": {"test": {"value": "$snippet_h_gone"}, "then": [{"answer": {"code": 403}}]}},
        ]}},
    })
}

/// What becomes of a request, and its variables.
fn found(path: &'static str, args: &'static str) -> (String, String) {
    let rules = [
        ("/", "p"),
        ("/q", "q"),
        ("/r", "r"),
        ("/z", "z"),
        ("/h", "h"),
        ("/g", "g"),
        ("/d", "d"),
        ("/v", "v"),
        ("/e", "e"),
    ];
    let (answer, edits) = decided(&rules, &policies(), &Generated::of(path, args, None));
    let shown =
        |(name, value): &(Box<str>, Vec<u8>)| format!("{name}={}", String::from_utf8_lossy(value));
    let all: Vec<_> = edits.variables.iter().flat_map(|all| all.iter().map(shown)).collect();
    (answer, all.join(" "))
}

#[test]
fn variables_are_worked_out_of_others_once_and_what_is_not_there_lets_nobody_in() {
    let (answer, variables) = found("/a", "u=");
    assert_eq!(answer, "to /");
    let expected = "snippet_h_share=low snippet_h_kind=[low] snippet_l_before=[low]";
    assert_eq!(variables, expected);
    let (_, variables) = found("/a/x", "");
    assert_eq!(variables, "snippet_h_kind=xa snippet_l_before=xa");
    let (answer, variables) = found("/q/x", "");
    assert!(answer.contains("301"), "{answer}");
    assert_eq!(variables, "snippet_h_kind=xq");
    assert_eq!(found("/z", "ip=10.0.0.9").1, "snippet_h_zone=ten snippet_l_z=ten");
    assert_eq!(found("/z", "ip=10.0.0.10").1, "snippet_h_zone= snippet_l_z=");
    assert_eq!(found("/r", "").0, "Respond(500)");
    // A volatile one is another for each text.
    assert_eq!(found("/v", "").1, "snippet_l_v=/v snippet_h_now=/w");
    // Those of headers are known before the request goes on, by the path that it has then.
    assert_eq!(found("/h/x", ""), ("to /h".into(), "snippet_h_kind=bi".into()));
    assert_eq!(found("/g", "").0, "Respond(500)");
    // Those of an `if` that holds, whoever wrote it.
    assert_eq!((found("/e", "u=1").0, found("/e", "").0), ("Respond(500)".into(), "to /e".into()));
    // What answers anyway needs no header.
    assert_eq!(found("/d", "").0, "Respond(403)");
}

#[test]
fn patterns_of_definitions_and_of_steps_have_one_budget() {
    let map = |name: &str| json!({"map": {"source": name, "patterns": [["^(a|b)*c$", "1"]]}});
    let policies = json!({
        "http-snippet": {"definitions": {"variables": {
            "snippet_h_one": map("$arg_a"), "snippet_h_two": map("$arg_a"),
        }}},
        "p": {
            "script": {"steps": [{"set": {"name": "snippet_l_a", "value": "$snippet_h_one"}}]},
            "request_headers": [{"name": "X-Two", "value": "$snippet_h_two"}],
        },
        "q": {"request_headers": [{"name": "X-Two", "value": "$snippet_h_two"}]},
    });
    let rules = [("/", "p"), ("/q", "q")];
    let left = |path: &'static str, letters: usize| {
        let args: &'static str = format!("a={}", "a".repeat(letters)).leak();
        let (answer, edits) = decided(&rules, &policies, &Generated::of(path, args, None));
        (answer, edits.pattern_steps.unwrap_or_default())
    };
    let ((one, of_one), (two, of_two)) = (left("/q", 100), left("/", 100));
    assert_eq!((one.as_str(), two.as_str()), ("to /q", "to /"));
    assert!(of_two < of_one && of_one < Budget::OF_SCRIPTS.left(), "{of_one} {of_two}");
    // Enough for one, and not for two of them.
    assert_eq!((left("/q", 7_000).0, left("/", 7_000).0), ("to /q".into(), "Respond(500)".into()));
}
