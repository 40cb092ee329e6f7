//! A decision about a request whose rule has a script.

use super::facts::{CompiledPolicies, Facts, Generation};
use super::moved::Moved;
use super::script::{Carried, End, Move, Run, Uri};
use super::trace::{Reason, Trace};
use super::values::{Routed, RuleNames};
use super::{Answer, Counter, Decider, Decision};
use crate::model::policy::{PolicyId, Script};
use crate::patterns::{NamespacePatterns, Patterns};
use crate::record::{RuleView, ServerView};
use std::cell::Cell;

/// Decides again, until the path stays as it is.
#[cold]
pub(super) fn again<'g, G, F, T>(
    generation: &G,
    facts: &F,
    trace: &mut T,
    first: Move,
) -> Decision<'g, G>
where
    G: Generation<'g>,
    F: Facts,
    T: Trace,
{
    let mut next = first;
    loop {
        let Move { path, args, mut carried } = next;
        let moved = Moved { facts, path, args, budget: Cell::new(carried.paths) };
        let is_last = carried.is_last_move();
        let mut decision = Decision::new();
        match super::once(generation, &moved, trace, &mut decision, Some(carried)) {
            Some(further) if !is_last => {
                next = *further;
                next.carried.paths = moved.budget.get();
                continue;
            }
            Some(_) => {
                trace.answer(Reason::MovesInACircle);
                decision.answer = Answer::Respond(500);
            }
            None => {}
        }
        decision.edits.moved = Some(Box::new((moved.path, moved.args)));
        return decision;
    }
}

/// What a script leaves to the policies that it belongs to.
pub(super) struct Scripted<P> {
    /// They hold from now on: the rule's, or those of a location of its server.
    pub policies: P,
    /// `None`: they say what becomes of the request.
    pub answer: Option<Answer>,
    /// Their rewrite has no effect.
    pub is_broken_off: bool,
}

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// Takes the steps of a rule's script, and of its server's.
    #[cold]
    pub(super) fn scripted(
        &mut self,
        policies: G::Policies,
        rule: RuleView<'g>,
    ) -> Scripted<G::Policies> {
        let mut carried = self.carried.take().unwrap_or_default();
        carried.forget_rule();
        let mut done = Scripted { policies, answer: None, is_broken_off: false };
        // What is closed stays closed, whatever a script would answer.
        if done.policies.source().denied.is_some() {
            return done;
        }
        let (servers, every_location) = match self.named_by(&done.policies) {
            Ok(found) => found,
            Err(answer) => {
                done.answer = Some(answer);
                return done;
            }
        };
        let mut last = every_location;
        if !servers.is_empty() {
            match self.of_servers(&servers, rule, carried) {
                Ok((kept, location)) => {
                    carried = kept;
                    if let Some(found) = location {
                        (done.policies, last) = (found, None);
                    }
                }
                Err(answer) => {
                    done.answer = Some(answer);
                    return done;
                }
            }
        }
        let source = done.policies.source();
        if source.denied.is_some()
            || self.is_preflight(done.policies.origins(), source.cors.as_ref())
        {
            return done;
        }
        let last = last.as_ref().and_then(|last| last.source().script.as_deref());
        let scripts: Vec<&Script> = source.script.as_deref().into_iter().chain(last).collect();
        let (answer, is_broken_off) =
            self.own_steps(&scripts, source.relative_redirects, rule, carried);
        (done.answer, done.is_broken_off) = (answer, is_broken_off);
        done
    }

    /// With the patterns of the rule's namespace.
    fn run<'s>(
        &'s mut self,
        rule: RuleView<'g>,
        is_relative: bool,
        carried: Box<Carried>,
    ) -> Run<'s, 'g, F> {
        self.route.is_named = true;
        let facts = self.facts;
        let captures = self.route.captures.as_deref();
        let values = Routed { facts, names: Some(RuleNames::of(rule)), captures };
        let [_, namespace, ..] = rule.texts();
        let patterns = self.generation.patterns().of(namespace);
        Run::new(values, patterns, facts.origin().filter(|_| !is_relative), carried)
    }

    /// The policies of the rule's servers, and those whose steps follow its own.
    #[allow(clippy::type_complexity, reason = "policies by what names them")]
    fn named_by(
        &mut self,
        policies: &G::Policies,
    ) -> Result<(Vec<G::Policies>, Option<G::Policies>), Answer> {
        let Some(script) = &policies.source().script else { return Ok((Vec::new(), None)) };
        let found = |id: &PolicyId| self.generation.policies(id.as_str().as_bytes());
        let servers = [&script.server, &script.every_server].into_iter().flatten().map(found);
        let last = script.every_location.as_ref().map(found);
        match (servers.collect::<Option<_>>(), last) {
            (Some(servers), None) => Ok((servers, None)),
            (Some(servers), Some(Some(last))) => Ok((servers, Some(last))),
            _ => Err(self.respond(503, Reason::PoliciesMissing)),
        }
    }

    /// The steps of servers, which are taken once, and the location that takes the request from its rule.
    #[allow(clippy::type_complexity, reason = "what is carried on, and where to")]
    fn of_servers(
        &mut self,
        servers: &[G::Policies],
        rule: RuleView<'g>,
        carried: Box<Carried>,
    ) -> Result<(Box<Carried>, Option<G::Policies>), Answer> {
        let (place, generation) = (self.place_of(rule), self.generation);
        let scripts = servers.iter().filter_map(|server| server.source().script.as_deref());
        let scripts: Vec<&Script> = scripts.collect();
        let [_, namespace, ..] = rule.texts();
        let all = generation.patterns();
        let mut run = self.run(rule, false, carried);
        if !run.carried.is_moved() {
            for script in &scripts {
                run.patterns = patterns_of(script, all, namespace);
                match run.take(&script.steps) {
                    End::Over => {}
                    End::Break | End::Last => break,
                    End::Answer(answer, reason) => {
                        let (_, carried) = run.into_uri();
                        return Err(self.ends(answer, reason, *carried));
                    }
                }
            }
            // nginx looks for the location with the new path, whatever ended the steps.
            if run.has_uri() {
                let moved = run.into_uri();
                return Err(self.moves(moved));
            }
        }
        let locations = scripts.iter().flat_map(|script| {
            let patterns = patterns_of(script, all, namespace);
            script.locations.iter().map(move |location| (location, patterns))
        });
        let locations: Vec<_> = locations.collect();
        let Ok(found) = run.location(&locations, place) else {
            return Err(self.respond(500, Reason::NoAnswer));
        };
        let carried = run.carried;
        match found.map(|id| generation.policies(id)) {
            None => Ok((carried, None)),
            Some(Some(found)) => Ok((carried, Some(found))),
            Some(None) => Err(self.respond(503, Reason::PoliciesMissing)),
        }
    }

    /// The path of a rule, and whether it is a pattern, or exact.
    fn place_of(&self, rule: RuleView<'g>) -> (&'g [u8], bool, bool) {
        let is_regex = self.route.captures.is_some();
        match *self.counter {
            Some(Counter::Rule(server, _)) => {
                let view = ServerView::new(self.generation.value_of(server));
                let (path, is_exact) = view.place(rule.index());
                (path, is_regex, is_exact)
            }
            _ => (&[], is_regex, false),
        }
    }

    /// Steps of the rule, or of a location, and those that follow; whether they end its rewrite.
    fn own_steps(
        &mut self,
        scripts: &[&Script],
        is_relative: bool,
        rule: RuleView<'g>,
        carried: Box<Carried>,
    ) -> (Option<Answer>, bool) {
        let generation = self.generation;
        let [_, namespace, ..] = rule.texts();
        let mut run = self.run(rule, is_relative, carried);
        let mut end = End::Over;
        for script in scripts {
            run.patterns = patterns_of(script, generation.patterns(), namespace);
            end = run.take(&script.steps);
            if !matches!(end, End::Over) {
                break;
            }
        }
        let is_changed = run.is_changed;
        let (uri, carried) = run.into_uri();
        let is_broken_off = match end {
            End::Answer(answer, reason) => {
                return (Some(self.ends(answer, reason, *carried)), false);
            }
            End::Last => return (Some(self.moves((uri, carried))), false),
            End::Over if is_changed => return (Some(self.moves((uri, carried))), false),
            End::Over => false,
            End::Break => true,
        };
        self.edits.uri = uri;
        self.keep_variables(*carried);
        (None, is_broken_off)
    }

    fn ends(&mut self, answer: Answer, reason: Reason, carried: Carried) -> Answer {
        self.keep_variables(carried);
        self.trace.answer(reason);
        answer
    }

    /// Also where there are none: those of a rule that an endpoint has sent the request on from are nobody's.
    fn keep_variables(&mut self, carried: Carried) {
        self.edits.variables = Some(Box::new(carried.into_variables()));
    }

    /// The request has another path from now on; the answer is nobody's.
    fn moves(&mut self, (uri, carried): (Option<Uri>, Box<Carried>)) -> Answer {
        let (mut path, args) =
            uri.unwrap_or_else(|| (self.facts.path().to_vec(), self.facts.args().to_vec()));
        // As a client's: a path that a rule protects has one slash between its segments.
        path.dedup_by(|next, before| (*before, *next) == (b'/', b'/'));
        *self.moved = Some(Box::new(Move { path, args, carried }));
        Answer::Respond(500)
    }
}

/// The patterns of a script, which are its owner's, or, without one, the rule's namespace's.
fn patterns_of<'p>(
    script: &'p Script,
    patterns: &'p Patterns,
    namespace: &'p [u8],
) -> NamespacePatterns<'p> {
    let owner = Some(script.owner.as_bytes()).filter(|owner| !owner.is_empty());
    patterns.of(owner.unwrap_or(namespace))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Generated, generation, records};
    use super::super::{Edits, decide};
    use super::*;
    use crate::decision::Silent;
    use serde_json::{Value, json};

    /// What becomes of a request for a path and query, where the rules have these policies by path.
    fn decided(rules: &[(&str, &str)], policies: &Value, request: &Generated) -> (String, Edits) {
        let rules: Vec<_> = rules
            .iter()
            .map(|(path, id)| {
                let origin = json!({"namespace": "n", "ingress": "i", "service": "s", "port": "80", "path": path});
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
        (answer, decision.edits)
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
        let (answer, edits) =
            decided(&[("/", "p")], &policies, &Generated::of("/a/x", "k=v", None));
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
        let (_, edits) =
            decided(&[("/", "p"), ("/b", "q")], &policies, &Generated::of("/a", "", None));
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
}
