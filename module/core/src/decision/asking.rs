//! The steps before an auth server is asked.
//!
//! Errors:  what takes too long is answered with 500, which lets nobody in.
//! Cost:    a budget of its own, beside that of the steps by which the request was decided; a request asks once.
//! Source:  ngx_http_auth_request_module: a subrequest whose rewrite phase answers reaches no server, and its status counts.

use super::script::defined::DefinitionSource;
use super::script::{Carried, End, Run, Variable};
use super::values::Routed;
use super::{Answer, Facts};
use crate::model::policy::Script;
use crate::patterns::NamespacePatterns;

/// What the steps come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The server is asked, by texts that know these variables.
    Server(Vec<Variable>),
    /// The steps answer in the server's place, with this status.
    Answer(u16),
}

/// Takes the steps of an auth server's policy, which know `variables`. `patterns` are those of who wrote them.
pub fn before_asking<F: Facts>(
    script: &Script,
    facts: &F,
    patterns: NamespacePatterns<'_>,
    definitions: &dyn DefinitionSource,
    variables: Vec<Variable>,
) -> Asking {
    // The location of a subrequest is no pattern: there are no captures before the first pattern matches.
    let values = Routed { facts, names: None, captures: None, known: &[] };
    let mut run = Run::new(values, patterns, definitions, None, Box::new(Carried::with(variables)));
    match run.take(&script.steps) {
        End::Over | End::Break => Asking::Server(run.into_uri().1.into_variables()),
        End::Answer(Answer::Respond(status), _) => Asking::Answer(status),
        End::Last | End::Answer(..) => Asking::Answer(500),
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::defined::OfGeneration;
    use super::super::tests::Generated;
    use super::*;
    use crate::patterns::Patterns;
    use serde_json::{Value, json};

    fn asked(steps: Value, path: &str) -> Asking {
        let script = serde_json::from_value(json!({"steps": steps})).unwrap();
        let known = vec![("snippet_l_a".into(), b"of the path".to_vec())];
        let patterns = Patterns::default();
        let records = crate::decision::tests::records(json!({}));
        let generation = crate::decision::tests::generation(&records);
        let facts = Generated::of(path, "", None);
        let definitions = OfGeneration { generation: &generation, namespace: b"n" };
        before_asking(&script, &facts, patterns.of(b"n"), &definitions, known)
    }

    #[test]
    fn steps_answer_in_the_place_of_a_server_or_leave_their_variables() {
        let open = json!({"if": {"test": {"value": "$uri", "pattern": "^/open/(.*)"}, "then": [
            {"set": {"name": "snippet_a_rest", "value": "[$1]"}},
            {"answer": {"code": 204}},
        ]}});
        let set = json!({"set": {"name": "snippet_a_b", "value": "<$snippet_l_a>"}});
        assert_eq!(asked(json!([open, set]), "/open/x"), Asking::Answer(204));
        let Asking::Server(variables) = asked(json!([open, set]), "/shut") else { panic!() };
        assert_eq!(variables.last(), Some(&("snippet_a_b".into(), b"<of the path>".to_vec())));
        assert_eq!(asked(json!([{"answer": {"code": 401}}]), "/"), Asking::Answer(401));
    }

    #[test]
    fn what_takes_too_long_lets_nobody_in() {
        let slow = json!({"if": {
            "test": {"value": "$uri", "pattern": "(a|aa)+(b|c)(d|e)\\1$"}, "then": [],
        }});
        let found =
            asked(json!([slow, {"answer": {"code": 204}}]), &format!("/{}", "a".repeat(900)));
        assert_eq!(found, Asking::Answer(500));
        let elsewhere = json!([{"answer": {"code": 302, "location": "/x"}}]);
        assert_eq!(asked(elsewhere, "/"), Asking::Answer(500));
    }
}
