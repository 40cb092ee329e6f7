//! What nginx's rewrite module would do for a request, as data: conditions, variables, rewrites and answers in their order.
//!
//! Shape:   a rule's policies have steps of their own, and may name the policies of its server, whose steps come first and
//!          whose locations may take the request away. Evaluated in `decision/script.rs`.
//! Errors:  a text that is none of these is refused when it is read; what cannot be evaluated within its bounds answers 500.
//! Source:  ngx_http_rewrite_module, ngx_http_core_module's locations.

pub use super::if_location::{IfLocation, SharedIfLocation};
use super::{HeaderValue, PolicyId, Template, is_false};
use crate::model::{Invalid, checked, shorten};
use crate::patterns::{check_length, check_text};
use serde::{Deserialize, Deserializer, Serialize};

crate::model::object::objects!(Script, Test, If, Set, RewriteStep, Answer, Location);

/// Steps and locations of a rule, or of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Script {
    /// The policies of the server: their steps come before these, and their locations may take the request. Without a record
    /// the rule answers 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<PolicyId>,
    /// The same of all servers: its steps come after those of `server`, and its locations stand behind that one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_server: Option<PolicyId>,
    /// Policies whose steps come after these, of all locations. Without a record the rule answers 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_location: Option<PolicyId>,
    /// Of a server, and of its locations: the namespace that pays for its patterns.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The steps, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Of a server: paths that other policies hold for, in the order in which they are written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
}

/// A step of the rewrite phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Steps that are taken where a test holds.
    If(If),
    /// A variable gets a value.
    Set(Set),
    /// The path is replaced where it matches.
    Rewrite(RewriteStep),
    /// The request is answered.
    Answer(Answer),
    /// No further step is taken.
    Break,
}

/// Steps under a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct If {
    /// The condition.
    pub test: Test,
    /// The steps that are taken where it holds.
    pub then: Vec<Step>,
    /// Of a location's own `if`: what it says about answers and clients' headers. Of the conditions that hold the last one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<SharedIfLocation>,
}

/// A condition about one value: that it is neither empty nor `0`, unless it is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Test {
    /// The value, of one variable.
    pub value: Template,
    /// The text that it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<Template>,
    /// The pattern that is searched for in it, instead of the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<ScriptPattern>,
    /// The condition holds where this does not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub negated: bool,
}

/// A variable of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Set {
    /// Its name, with [`VARIABLES`] before it.
    #[serde(deserialize_with = "checked_variable")]
    pub name: String,
    /// Its value.
    pub value: Template,
}

/// What the name of each variable of a script begins with, so that no text of anybody else means it.
pub const VARIABLES: &str = "snippet_";
/// What those of a location's own steps begin with.
pub const OF_LOCATION: &str = "snippet_l_";
/// What parts of an auth server's answer begin with.
pub const OF_ANSWER: &str = "snippet_r_";
/// What those of a server, and of all servers, begin with.
pub const OF_SERVERS: [&str; 2] = ["snippet_s_", "snippet_c_"];
/// Most letters of a variable's name.
const MOST_LETTERS: usize = 80;

/// Whether a name is one of a script's variable, in whatever case it is written.
pub fn is_variable(name: &[u8]) -> bool {
    let start = name.get(..VARIABLES.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(VARIABLES.as_bytes()))
}

fn checked_variable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |name: &String| check_name(name, VARIABLES))
}

/// Says that a name does not begin so, or is no variable's.
pub fn check_name(name: &str, start: &str) -> Result<(), String> {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    match name.starts_with(start) && name.len() <= MOST_LETTERS && name.bytes().all(is_letter) {
        true => Ok(()),
        false => {
            Err(format!("variable {:?} is not {start} and letters, digits and `_`", shorten(name)))
        }
    }
}

/// A path in place of the one that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RewriteStep {
    /// The pattern that is searched for in the path.
    pub pattern: ScriptPattern,
    /// The path and query, with captures; a URL sends the client there.
    pub target: Template,
    /// What follows.
    #[serde(default, skip_serializing_if = "Then::is_next")]
    pub then: Then,
}

/// What follows a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The next step; after the last one the path is looked for again.
    #[default]
    Next,
    /// The path is looked for again.
    Last,
    /// The request goes on with the path.
    Break,
    /// 302.
    Redirect,
    /// 301.
    Permanent,
}

impl Then {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
    fn is_next(&self) -> bool {
        *self == Then::Next
    }
}

/// An answer of nginx itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Answer {
    /// From 200 to 299, 301, 302, 303, 307, 308, or from 400 to 599.
    #[serde(deserialize_with = "checked_answer")]
    pub code: u16,
    /// The lines of the body, of a code from 200 to 299 but 204.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<Template>,
    /// The type of the body, unless the path says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<HeaderValue>,
    /// `Location`, of a redirect: a URL or a path on the same host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Template>,
}

impl Answer {
    /// Whether a script can answer so.
    pub fn is_possible(code: u16, has_location: bool) -> bool {
        match has_location {
            true => matches!(code, 301 | 302 | 303 | 307 | 308),
            false => (200..=299).contains(&code) || (400..=599).contains(&code),
        }
    }

    /// One of nginx's own pages, or without a body.
    pub fn of_status(code: u16) -> Self {
        Answer { code, body: Vec::new(), media_type: None, location: None }
    }

    /// It has a body of its own, if an empty one.
    pub fn has_body(code: u16) -> bool {
        (200..=299).contains(&code) && code != 204
    }
}

fn checked_answer<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    checked(from, |code| match Answer::is_possible(*code, matches!(code, 300..400)) {
        true => Ok(()),
        false => Err(format!("status {code} is none that a script answers with")),
    })
}

/// Paths of a server that other policies hold for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Location {
    /// The paths.
    pub at: Place,
    /// What holds for them. Without a record they answer 503.
    pub policies: PolicyId,
}

/// The paths of a location, as nginx compares them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// `=`: this path alone, before all others.
    Exact(String),
    /// Paths that begin with this text; the longest of these counts.
    Prefix(String),
    /// `^~`: the same, and no pattern is tried where it is the longest.
    FirstPrefix(String),
    /// `~`: paths in which this is found; the first one counts, before prefixes.
    Pattern(ScriptPattern),
}

/// A regular expression that is searched for in a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScriptPattern(String);

impl ScriptPattern {
    /// A pattern that is compiled elsewhere: there it may turn out to be none.
    pub fn uncompiled(text: &str, ignores_case: bool) -> Result<Self, Invalid> {
        let pattern = if ignores_case { format!("(?i){text}") } else { text.to_owned() };
        ScriptPattern::try_from(pattern)
    }

    /// The regular expression.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ScriptPattern {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        check_length(&text)?;
        check_text(&text)?;
        Ok(ScriptPattern(text))
    }
}

impl From<ScriptPattern> for String {
    fn from(pattern: ScriptPattern) -> String {
        pattern.0
    }
}

impl Script {
    /// Most steps, those under conditions included.
    pub const MAX_STEPS: usize = 1_000;
    /// Most locations.
    pub const MAX_LOCATIONS: usize = 200;
    /// Most patterns, those of locations included.
    pub const MAX_PATTERNS: usize = 100;

    /// The namespace that has its patterns, where its rule is of this one.
    pub fn payer<'s>(&'s self, namespace: &'s [u8]) -> &'s [u8] {
        if self.owner.is_empty() { namespace } else { self.owner.as_bytes() }
    }

    /// Calls the function with each step, those under a condition behind it.
    pub fn each_step<'s>(&'s self, visit: &mut dyn FnMut(&'s Step)) {
        each(&self.steps, visit);
    }

    /// The texts with variables.
    pub fn templates(&self) -> Vec<&Template> {
        let mut all = Vec::new();
        self.each_step(&mut |step| match step {
            Step::If(If { test: Test { value, equals, .. }, location, .. }) => {
                all.push(value);
                all.extend(equals);
                all.extend(location.iter().flat_map(|location| location.templates()));
            }
            Step::Set(Set { value, .. }) => all.push(value),
            Step::Rewrite(RewriteStep { target, .. }) => all.push(target),
            Step::Answer(Answer { location, body, .. }) => all.extend(location.iter().chain(body)),
            Step::Break => {}
        });
        all
    }

    /// The patterns of steps and locations.
    pub fn patterns(&self) -> Vec<&ScriptPattern> {
        let mut all = Vec::new();
        self.each_step(&mut |step| match step {
            Step::If(If { test, .. }) => all.extend(&test.pattern),
            Step::Rewrite(rewrite) => all.push(&rewrite.pattern),
            Step::Set(_) | Step::Answer(_) | Step::Break => {}
        });
        let places = self.locations.iter().map(|location| &location.at);
        all.extend(places.filter_map(|at| match at {
            Place::Pattern(pattern) => Some(pattern),
            Place::Exact(_) | Place::Prefix(_) | Place::FirstPrefix(_) => None,
        }));
        all
    }

    /// How many changes of headers stand under its conditions.
    pub fn header_count(&self) -> usize {
        let mut count = 0;
        self.each_step(&mut |step| {
            if let Step::If(If { location: Some(location), .. }) = step {
                count += location.header_count();
            }
        });
        count
    }

    /// How many steps there are.
    pub fn step_count(&self) -> usize {
        let mut count = 0;
        self.each_step(&mut |_| count += 1);
        count
    }
}

fn each<'s>(steps: &'s [Step], visit: &mut dyn FnMut(&'s Step)) {
    for step in steps {
        visit(step);
        if let Step::If(If { then, .. }) = step {
            each(then, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_step_is_refused_when_it_is_read() {
        let read = |text: &str| serde_json::from_str::<Script>(text);
        for (text, is_good) in [
            (r#"{"steps":["break",{"answer":{"code":403}}]}"#, true),
            (r#"{"steps":[{"answer":{"code":301,"location":"/x"}}]}"#, true),
            (r#"{"steps":[{"answer":{"code":200,"body":["a","$host"]}}]}"#, true),
            (r#"{"steps":[{"answer":{"code":304}}]}"#, false),
            (r#"{"steps":[{"set":{"name":"snippet_l_a","value":"$host"}}]}"#, true),
            (r#"{"steps":[{"set":{"name":"host","value":"a"}}]}"#, false),
            (r#"{"steps":[{"set":{"name":"snippet_l_a","value":"$realpath_root"}}]}"#, false),
            (r#"{"steps":[{"rewrite":{"pattern":"^/a","target":"/b","then":"last"}}]}"#, true),
            (r#"{"steps":[{"rewrite":{"pattern":"a)|(b","target":"/b"}}]}"#, false),
        ] {
            let found = read(text);
            assert_eq!(found.is_ok(), is_good, "{text}: {found:?}");
        }
    }
}
