//! Scripts: the steps that nginx's rewrite module would take for a request.
//!
//! Order:   the steps of the rule's server, the server's locations, then the steps of the rule or of the location. A path that has
//!          changed is looked for again, ten times at most, without the server's steps.
//! Errors:  what takes too long, or leads in a circle, is answered with 500, and a path that could not be sent on with 400.
//! Cost:    the patterns of all scripts of a request have one budget. So has what their steps look up, and what they write into
//!          variables, paths and queries, however often the request is sent to another path.
//! Source:  ngx_http_script_regex_start_code and its neighbours; a set of captures lasts until the next pattern matches.

pub mod defined;
pub(super) mod moved;
pub(super) mod scripted;

use super::facts::Facts;
use super::rewrite::{self, Rewritten};
use super::trace::Reason;
use super::values::Routed;
use super::{Answer, redirect};
use crate::http::media;
use crate::model::policy::Redirect;
use crate::model::policy::Template;
use crate::model::policy::defined::is_defined;
use crate::model::policy::script::{
    self, If, Place, RewriteStep, SharedIfLocation, Step, Test, Then,
};
use crate::patterns::{Budget, Captures, NamespacePatterns, NoAnswer};
use crate::text::query;
use crate::text::template::{self, MAX_BYTES_OF_REQUEST, Values, cost};
use defined::DefinitionSource;
use std::borrow::Cow;

/// How often a script may send a request to another path; nginx has the same bound.
const MOST_MOVES: u8 = 10;
/// Microseconds of finding the place of one variable among [`script::Script::MAX_STEPS`].
const SETTING: u32 = 2;

/// A path, decoded, and a query.
pub(super) type Uri = (Vec<u8>, Vec<u8>);

/// A variable of a script and its value.
pub type Variable = (Box<str>, Vec<u8>);

/// Most that the steps of a request look up, in microseconds: the texts of its policies come on top.
const MOST_EFFORT: u32 = cost::MOST_OF_POLICIES / 4;

/// What scripts know of a request from one path to the next.
#[derive(Debug)]
pub(super) struct Carried {
    variables: Vec<Variable>,
    budget: Budget,
    /// What patterns of further paths may cost.
    pub paths: Budget,
    bytes: usize,
    /// What the steps have looked up, in microseconds.
    effort: u32,
    moves: u8,
    /// The steps of the server were taken.
    pub has_server_steps: bool,
    /// The first namespace that has given the request a path, by a script or an endpoint: it leads to rules of this namespace only.
    pub mover: Option<Box<[u8]>>,
}

impl Default for Carried {
    fn default() -> Self {
        Carried {
            variables: Vec::new(),
            budget: Budget::OF_SCRIPTS,
            paths: Budget::OF_MOVED_PATHS,
            bytes: 0,
            effort: 0,
            moves: 0,
            has_server_steps: false,
            mover: None,
        }
    }
}

impl Carried {
    /// Of a request for which these variables are known.
    pub fn with(variables: Vec<Variable>) -> Self {
        Carried { variables, ..Carried::default() }
    }

    /// Variables of the rule that takes the request now; those of a rule before it are nobody's any more.
    pub fn forget_rule(&mut self) {
        let is_kept = |name: &str| {
            is_defined(name.as_bytes())
                || script::OF_SERVERS.iter().any(|start| name.starts_with(start))
        };
        self.variables.retain(|(name, _)| is_kept(name));
    }

    /// Takes note of what a step has written and looked up, within what all steps of a request may.
    fn spend(&mut self, bytes: usize, effort: u32) -> Result<(), NoAnswer> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.effort = self.effort.saturating_add(effort);
        match self.bytes > MAX_BYTES_OF_REQUEST || self.effort > MOST_EFFORT {
            true => Err(NoAnswer),
            false => Ok(()),
        }
    }

    /// Takes note of a move; whether no other one may follow.
    pub fn is_last_move(&mut self) -> bool {
        self.moves += 1;
        self.moves >= MOST_MOVES
    }

    /// What patterns may cost yet.
    pub fn steps_left(&self) -> u64 {
        self.budget.left()
    }

    /// The variables, for texts of later phases.
    pub fn into_variables(self) -> Vec<Variable> {
        self.variables
    }
}

/// A location of a server, the patterns of who wrote it, and the namespace to whose rules alone it may lead, if it may not lead to
/// any.
pub(super) type PlacedLocation<'s, 'a> =
    (&'s script::Location, NamespacePatterns<'a>, Option<&'s [u8]>);

/// The policies of a location, and where it may lead to.
type FoundLocation<'s> = (&'s [u8], Option<&'s [u8]>);

fn found<'s>((location, _, owner): PlacedLocation<'s, '_>) -> FoundLocation<'s> {
    (location.policies.as_str().as_bytes(), owner)
}

/// The path and query that a script has given a request, and what it carries there.
#[derive(Debug)]
pub(super) struct Move {
    pub path: Vec<u8>,
    pub args: Vec<u8>,
    pub carried: Box<Carried>,
}

/// How the steps have ended.
pub(super) enum End {
    /// All were taken.
    Over,
    /// No further one is to be taken.
    Break,
    /// The path is to be looked for again.
    Last,
    /// The request is answered.
    Answer(Answer, Reason),
}

/// Steps while they are taken.
pub(super) struct Run<'a, 'g, F> {
    pub values: Routed<'a, 'g, F>,
    pub patterns: NamespacePatterns<'a>,
    /// Where the variables are that are worked out of others.
    definitions: &'a dyn DefinitionSource,
    /// `scheme://` and the host, for redirects to a path, unless they name none.
    pub origin: Option<Vec<u8>>,
    pub carried: Box<Carried>,
    uri: Option<Uri>,
    /// The path has changed, and is to be looked for again.
    pub is_changed: bool,
    /// What the last condition that held says about answers: nginx makes a location of each.
    pub if_location: Option<SharedIfLocation>,
    /// The captures of the last pattern that matched, and the value that it matched in.
    matched: Option<(Captures, Vec<u8>)>,
}

impl<'a, 'g, F: Facts> Run<'a, 'g, F> {
    pub fn new(
        values: Routed<'a, 'g, F>,
        patterns: NamespacePatterns<'a>,
        definitions: &'a dyn DefinitionSource,
        origin: Option<Vec<u8>>,
        carried: Box<Carried>,
    ) -> Self {
        Run {
            values,
            patterns,
            definitions,
            origin,
            carried,
            uri: None,
            is_changed: false,
            if_location: None,
            matched: None,
        }
    }

    /// The new path and query; `None`: they are the request's.
    pub fn into_uri(self) -> (Option<Uri>, Box<Carried>) {
        (self.uri, self.carried)
    }

    /// Whether the steps have given the request another path or query.
    pub fn has_uri(&self) -> bool {
        self.uri.is_some()
    }

    fn path(&self) -> &[u8] {
        self.uri.as_ref().map_or(self.values.facts.path(), |(path, _)| path)
    }

    fn args(&self) -> &[u8] {
        self.uri.as_ref().map_or(self.values.facts.args(), |(_, args)| args)
    }

    /// Takes the steps.
    pub fn take(&mut self, steps: &[Step]) -> End {
        self.steps(steps)
            .unwrap_or(Some(End::Answer(Answer::Respond(500), Reason::NoAnswer)))
            .unwrap_or(End::Over)
    }

    fn steps(&mut self, steps: &[Step]) -> Result<Option<End>, NoAnswer> {
        for step in steps {
            let end = match step {
                Step::If(If { test, then, location }) => match self.holds(test)? {
                    true => {
                        self.if_location.clone_from(location);
                        self.steps(then)?
                    }
                    false => None,
                },
                Step::Set(set) => {
                    let value = self.text(&set.value)?;
                    self.carried.spend(0, SETTING)?;
                    let variables = &mut self.carried.variables;
                    match variables.iter_mut().find(|(name, _)| **name == *set.name) {
                        Some((_, known)) => *known = value,
                        None => variables.push((set.name.as_str().into(), value)),
                    }
                    None
                }
                Step::Rewrite(step) => self.rewrite(step)?,
                Step::Answer(answer) => Some(self.answer(answer)?),
                Step::Break => {
                    self.is_changed = false;
                    Some(End::Break)
                }
            };
            if end.is_some() {
                return Ok(end);
            }
        }
        Ok(None)
    }

    /// Works out the variables of a text that are worked out of others.
    fn know(&mut self, text: &Template) -> Result<(), NoAnswer> {
        if !text.uses_definitions() {
            return Ok(());
        }
        let (mut known, mut budget) =
            (std::mem::take(&mut self.carried.variables), self.carried.budget);
        let before = known.len();
        let done = defined::know(text, self.definitions, &mut known, &mut budget, self);
        let bytes = known.iter().skip(before).map(|(_, value)| value.len()).sum();
        (self.carried.variables, self.carried.budget) = (known, budget);
        done.and_then(|()| self.carried.spend(bytes, 0))
    }

    /// A text, within what all of the request's may have.
    fn text(&mut self, text: &Template) -> Result<Vec<u8>, NoAnswer> {
        self.know(text)?;
        let mut effort = 0;
        let text = template::assemble(text.parts(), |part, text| {
            effort += cost::of_part(part);
            text.extend_from_slice(&self.value(part));
        });
        let text = text.ok_or(NoAnswer)?;
        self.carried.spend(text.len(), effort)?;
        Ok(text)
    }

    fn holds(&mut self, test: &Test) -> Result<bool, NoAnswer> {
        let value = self.text(&test.value)?;
        let holds = match (&test.equals, &test.pattern) {
            (_, Some(pattern)) => self.search(pattern, value)?,
            (Some(text), None) => value == self.text(text)?,
            (None, None) => !matches!(&*value, b"" | b"0"),
        };
        Ok(holds != test.negated)
    }

    fn search(
        &mut self,
        pattern: &script::ScriptPattern,
        value: Vec<u8>,
    ) -> Result<bool, NoAnswer> {
        let budget = &mut self.carried.budget;
        let found = self.patterns.search(pattern.as_str().as_bytes(), &value, budget)?;
        let is_found = found.is_some();
        if let Some(captures) = found {
            self.matched = Some((captures, value));
        }
        Ok(is_found)
    }

    fn rewrite(&mut self, step: &RewriteStep) -> Result<Option<End>, NoAnswer> {
        let path = self.path().to_vec();
        if !self.search(&step.pattern, path)? {
            return Ok(None);
        }
        self.know(&step.target)?;
        self.carried.spend(0, step.target.parts().map(cost::of_part).sum())?;
        let code = if step.then == Then::Permanent { 301 } else { 302 };
        let result = rewrite::apply_text(step.target.as_str(), self.args(), self);
        let Ok(result) = result else {
            return Ok(Some(End::Answer(Answer::Respond(400), Reason::RewriteRefused)));
        };
        let (path, args) = match result {
            Rewritten::Elsewhere(location) => {
                let answer = Answer::Redirect { code, location };
                return Ok(Some(End::Answer(answer, Reason::ScriptAnswers)));
            }
            Rewritten::Uri { path, args } => (path, args),
        };
        self.carried.spend(path.len() + args.len(), 0)?;
        if matches!(step.then, Then::Redirect | Then::Permanent) {
            let location = redirect::to_path(self.origin.as_deref(), &path, &args);
            let answer = Answer::Redirect { code, location };
            return Ok(Some(End::Answer(answer, Reason::ScriptAnswers)));
        }
        self.uri = Some((path, args));
        self.is_changed = step.then != Then::Break;
        Ok(match step.then {
            Then::Last => Some(End::Last),
            Then::Break => Some(End::Break),
            Then::Next | Then::Redirect | Then::Permanent => None,
        })
    }

    fn answer(&mut self, answer: &script::Answer) -> Result<End, NoAnswer> {
        if script::Answer::has_body(answer.code) {
            let mut lines = Vec::with_capacity(answer.body.len());
            for line in &answer.body {
                lines.push(self.text(line)?);
            }
            let of_path = media::of_path(self.path()).map(str::to_owned);
            let said = || answer.media_type.as_ref().map(|it| it.as_str().to_owned());
            let media_type = of_path.or_else(said);
            let answer = Answer::Text { code: answer.code, body: lines.join(&b'\n'), media_type };
            return Ok(End::Answer(answer, Reason::ScriptAnswers));
        }
        let Some(location) = &answer.location else {
            // A redirect that leads nowhere is none.
            let status = if matches!(answer.code, 300..400) { 400 } else { answer.code };
            return Ok(End::Answer(Answer::Respond(status), Reason::ScriptAnswers));
        };
        self.know(location)?;
        let to = Redirect { code: answer.code, location: location.clone(), appends_target: false };
        let is_relative = self.origin.is_none();
        Ok(match redirect::elsewhere(&to, self.origin.as_deref(), is_relative, b"", self) {
            Some(location) => {
                let answer = Answer::Redirect { code: answer.code, location };
                End::Answer(answer, Reason::ScriptAnswers)
            }
            None => End::Answer(Answer::Respond(400), Reason::RedirectLeadsNowhere),
        })
    }

    /// The policies of the server's location that takes the request from its rule, whose path that is, with whether it is a
    /// pattern, or exact; `None`: the rule has it.
    pub fn location<'s>(
        &mut self,
        locations: &[PlacedLocation<'s, 'a>],
        (rule_text, is_regex, is_exact): (&[u8], bool, bool),
    ) -> Result<Option<FoundLocation<'s>>, NoAnswer> {
        let path = self.values.facts.path().to_vec();
        let mut longest: Option<(&str, bool, PlacedLocation<'s, 'a>)> = None;
        for placed @ (location, ..) in locations {
            match &location.at {
                Place::Exact(text) if text.as_bytes() == path && !is_exact => {
                    return Ok(Some(found(*placed)));
                }
                Place::Prefix(text) | Place::FirstPrefix(text)
                    if path.starts_with(text.as_bytes())
                        && longest.is_none_or(|(other, ..)| text.len() > other.len()) =>
                {
                    let is_first = matches!(location.at, Place::FirstPrefix(_));
                    longest = Some((text, is_first, *placed));
                }
                _ => {}
            }
        }
        // A prefix of an Ingress is an exact location too in ingress-nginx.
        if is_exact || !is_regex && !rule_text.is_empty() && rule_text == path {
            return Ok(None);
        }
        let is_longer = |text: &str| is_regex || text.len() > rule_text.len();
        let longest = longest.filter(|(text, ..)| is_longer(text));
        if let Some((_, true, placed)) = longest {
            return Ok(Some(found(placed)));
        }
        for placed @ (location, patterns, _) in locations {
            self.patterns = *patterns;
            if let Place::Pattern(pattern) = &location.at
                && self.search(pattern, path.clone())?
            {
                return Ok(Some(found(*placed)));
            }
        }
        let longest = longest.filter(|_| !is_regex);
        Ok(longest.map(|(_, _, placed)| found(placed)))
    }
}

impl<F: Facts> Values for Run<'_, '_, F> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        if name.starts_with(script::VARIABLES.as_bytes()) {
            let mut all = self.carried.variables.iter();
            let (_, value) = all.find(|(known, _)| known.as_bytes() == name)?;
            return Some(Cow::Borrowed(value));
        }
        of_uri(name, self.path(), self.args()).unwrap_or_else(|| self.values.variable(name))
    }

    fn capture(&self, number: u8) -> &[u8] {
        match &self.matched {
            Some((captures, value)) => captures.get(number, value),
            None => self.values.capture(number),
        }
    }
}

/// The variables that tell of path and query; the outer `None`: the name is none of theirs.
pub(super) fn of_uri<'u>(
    name: &[u8],
    path: &'u [u8],
    args: &'u [u8],
) -> Option<Option<Cow<'u, [u8]>>> {
    Some(Some(Cow::Borrowed(match name {
        b"uri" | b"document_uri" => path,
        b"args" | b"query_string" => args,
        b"is_args" if args.is_empty() => b"",
        b"is_args" => b"?",
        name => {
            let parameter = query::parameter(args, name.strip_prefix(b"arg_")?);
            return Some(parameter.map(Cow::Borrowed));
        }
    })))
}
