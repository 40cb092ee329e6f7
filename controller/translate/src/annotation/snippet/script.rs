//! Directives of nginx's rewrite module to the steps of a script.
//!
//! Errors:  a directive that no step can say is left out. Where any of the others may keep somebody out it takes these with it:
//!          what they decide could hang on it.
//! Source:  ngx_http_rewrite_module; [`IfBlock`] reads what an `if` says beside steps.

use super::if_block::IfBlock;
use super::names::Names;
use super::values::{At, Left, Loss, Not, Result, impossible};
use crate::patterns::Compiler;
use crate::patterns::snippets::within_parentheses;
use oxigress_core::model::policy::script::{
    Answer, If, RewriteStep, Script, ScriptPattern, Set, Step, Test, Then,
};
use oxigress_core::model::policy::{HeaderValue, Template};
use oxigress_core::text::template::is_allowed;
use oxigress_settings::grammar::directives::{self, Directive};

/// How a text's steps are read.
struct Place<'p> {
    /// Its variables.
    names: &'p Names,
    at: At,
}

/// The directives that are steps.
pub fn is_step(directive: &Directive) -> bool {
    matches!(
        directive.name.as_str(),
        "if" | "set" | "rewrite" | "break" | "return" | "limit_except"
    )
}

/// Whether the answers of a text depend on steps.
pub fn is_needed(directives: &[Directive]) -> bool {
    directives.iter().any(|one| match one.name.as_str() {
        "return" => has_own_answer(one),
        _ => is_step(one),
    })
}

/// Whether a `return` answers by itself, and lets nobody in or out.
fn has_own_answer(directive: &Directive) -> bool {
    let code = directive.arguments.first().and_then(|code| code.parse().ok());
    directive.name == "return" && code.is_some_and(|code: u16| (200..=299).contains(&code))
}

/// Reads the steps of a text, and answers what is left out. Variables that only this would set are forgotten.
pub fn read_all<'d>(
    directives: &'d [Directive],
    names: &mut Names,
    at: At,
    compiler: &mut Compiler<'_>,
) -> (Vec<Step>, Vec<Left<'d>>) {
    for _ in 0..MOST_READINGS {
        let (mut left, place) = (Vec::new(), Place { names, at });
        let steps = read(directives, &place, compiler, &mut left);
        let lost = left.iter().filter(|one| one.loss != Loss::Nothing);
        // What has read them has to be read again.
        if lost.filter(|one| names.forget(one.directive)).count() == 0 {
            return (steps, left);
        }
    }
    names.clear();
    let (mut left, place) = (Vec::new(), Place { names, at });
    (read(directives, &place, compiler, &mut left), left)
}

/// The methods that `limit_except` knows.
const METHODS: [&str; 14] = [
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LOCK",
    "MKCOL",
    "MOVE",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PUT",
    "UNLOCK",
];

/// Most changes of headers within all conditions of a text.
const MOST_HEADERS: usize = 200;

/// How often a text is read, each time without variables that turned out not to be set.
const MOST_READINGS: usize = 10;

/// Reads the steps of a text; what is left out is added to `left`.
fn read<'d>(
    directives: &'d [Directive],
    place: &Place<'_>,
    compiler: &mut Compiler<'_>,
    left: &mut Vec<Left<'d>>,
) -> Vec<Step> {
    let kind = directives.iter().rfind(|one| one.name == "default_type");
    let kind = kind.and_then(|one| one.arguments.first()).filter(|kind| !kind.contains('$'));
    let media_type = kind.and_then(|kind| HeaderValue::parse(kind.as_str()).ok());
    let (idle, patterns, header_count) = (Vec::new(), 0, 0);
    let mut reader = Reader { place, compiler, patterns, header_count, idle, media_type };
    let (mut steps, mut lost) = (Vec::new(), Vec::new());
    // nginx takes another location for what `limit_except` limits, before all steps.
    let (limits, others): (Vec<_>, Vec<_>) =
        directives.iter().filter(|one| is_step(one)).partition(|one| one.name == "limit_except");
    for directive in limits.into_iter().chain(others) {
        let mut kept = Vec::new();
        let read = reader.step(directive, false, &mut kept);
        let idle = std::mem::take(&mut reader.idle);
        match read {
            Ok(()) => {
                steps.append(&mut kept);
                left.extend(idle);
            }
            // It is said of a part of what is kept.
            Err(Not::Needed(why)) => {
                steps.append(&mut kept);
                left.push(Left { directive, why: Some(why.to_owned()), loss: Loss::Nothing });
            }
            Err(Not::Known) => lost.push((directive, None)),
            Err(Not::Possible(why) | Not::Open(why)) => lost.push((directive, Some(why))),
        }
    }
    // Steps of an auth-snippet may answer in the auth server's place.
    let is_of_auth = place.names.is_of_auth();
    let protects = is_of_auth || directives.iter().filter(|one| is_step(one)).any(protects);
    let loss = if protects { Loss::Protection } else { Loss::AsNamed };
    left.extend(lost.into_iter().map(|(directive, why)| Left { directive, why, loss }));
    steps
}

/// Whether a step may keep somebody out.
fn protects(directive: &Directive) -> bool {
    let mut found = false;
    directives::each(std::slice::from_ref(directive), &mut |one| {
        found |= super::protects("configuration-snippet", one);
    });
    found
}

struct Reader<'r, 'p, 'c, 'd> {
    place: &'r Place<'p>,
    compiler: &'r mut Compiler<'c>,
    patterns: usize,
    /// Changes of headers within conditions.
    header_count: usize,
    /// What has no effect within the condition that is read.
    idle: Vec<Left<'d>>,
    /// The type of bodies.
    media_type: Option<HeaderValue>,
}

impl<'d> Reader<'_, '_, '_, 'd> {
    /// Adds a directive's step to `to`.
    fn step(&mut self, directive: &'d Directive, is_inner: bool, to: &mut Vec<Step>) -> Result {
        let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        match (directive.name.as_str(), &directive.block) {
            ("if", Some(block)) if !is_inner => {
                let test = self.test(&words)?;
                self.block(test, block).map(|found| to.push(Step::If(found)))
            }
            ("limit_except", Some(block)) if !is_inner => {
                self.limit(&words, block).map(|steps| to.extend(steps))
            }
            ("set", None) => self.set(&words).map(|set| to.push(Step::Set(set))),
            ("rewrite", None) => self.rewrite(&words).map(|step| to.push(Step::Rewrite(step))),
            ("break", None) if words.is_empty() => {
                to.push(Step::Break);
                Ok(())
            }
            ("return", None) => self.answer(&words, to),
            _ => Err(Not::Known),
        }
    }

    /// The steps and the location of a condition.
    fn block(&mut self, test: Test, block: &'d [Directive]) -> Result<If> {
        let (mut then, mut location) = (Vec::new(), IfBlock::new(self.place.names, self.place.at));
        for inner in block {
            let read = match is_step(inner) {
                true => self.step(inner, true, &mut then),
                false => location.add(inner),
            };
            match read {
                Ok(()) => {}
                Err(not @ Not::Needed(_)) => self.idle.push(Left::of(inner, not)),
                Err(Not::Known) => {
                    return impossible(format!(
                        "{} is not supported within if",
                        oxigress_core::model::shorten(&inner.name)
                    ));
                }
                Err(other) => return Err(other),
            }
        }
        let location = location.finish();
        self.header_count += location.as_ref().map_or(0, |found| found.header_count());
        match self.header_count > MOST_HEADERS {
            true => impossible("more than 200 changes of headers within if are too many"),
            false => Ok(If { test, then, location }),
        }
    }

    /// What answers all other methods than those.
    fn limit(&self, words: &[&str], block: &[Directive]) -> Result<Vec<Step>> {
        if !matches!(self.place.at, At::Location { .. }) {
            return impossible("it holds in a location of its own text only");
        }
        if words.is_empty() {
            return Err(Not::Known);
        }
        let is_closed = match block {
            [one] => one.name == "deny" && one.arguments == ["all"] && one.block.is_none(),
            _ => false,
        };
        if !is_closed {
            return impossible("its block is `deny all;`");
        }
        let mut methods = Vec::new();
        for word in words {
            let method = word.to_ascii_uppercase();
            let known = METHODS.iter().find(|known| **known == method).ok_or(Not::Known)?;
            methods.push(*known);
        }
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.sort_unstable();
        methods.dedup();
        let mut steps = vec![Step::Answer(Answer::of_status(403))];
        for method in methods {
            let (value, equals) =
                (Template::parse("$request_method")?, Some(Template::parse(method)?));
            let test = Test { value, equals, pattern: None, negated: true };
            steps = vec![Step::If(If { test, then: steps, location: None })];
        }
        Ok(steps)
    }

    /// The condition between the parentheses of an `if`.
    fn test(&mut self, words: &[&str]) -> Result<Test> {
        let text = within_parentheses(words).ok_or(Not::Known)?;
        let (value, operator, operand) = match &*text {
            [value] => (*value, None, ""),
            [value, operator, operand] => (*value, Some(*operator), *operand),
            _ => return impossible("it is ($variable), or a variable, a comparison and a text"),
        };
        let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        // nginx takes all that follows the `$` for the name.
        let name = value.strip_prefix('$').filter(|name| name.bytes().all(is_letter));
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return impossible("only variables are compared");
        };
        let value = self.place.names.template(&format!("${name}"))?;
        let mut test = Test { value, equals: None, pattern: None, negated: false };
        let Some(operator) = operator else { return Ok(test) };
        test.negated = operator.starts_with('!');
        match operator {
            "=" | "!=" => test.equals = Some(self.place.names.template(operand)?),
            "~" | "!~" => test.pattern = Some(self.pattern(operand, false)?),
            "~*" | "!~*" => test.pattern = Some(self.pattern(operand, true)?),
            _ => return impossible(format!("the comparison {operator} is not supported")),
        }
        Ok(test)
    }

    fn pattern(&mut self, text: &str, ignores_case: bool) -> Result<ScriptPattern> {
        self.patterns += 1;
        if self.patterns > Script::MAX_PATTERNS {
            return impossible("more than 100 patterns of one snippet are too many");
        }
        let pattern = ScriptPattern::uncompiled(text, ignores_case)?;
        self.compiler.snippet(pattern.as_str())?;
        Ok(pattern)
    }

    fn set(&mut self, words: &[&str]) -> Result<Set> {
        let [name, value] = words else { return Err(Not::Known) };
        let name = name.strip_prefix('$').ok_or(Not::Known)?.to_ascii_lowercase();
        match name.as_str() {
            "best_http_host" | "pass_access_scheme" | "pass_port" => {
                return Err(Not::Needed("the gateway works this variable out itself"));
            }
            name if is_allowed(name.as_bytes()) => {
                return impossible(format!("variable ${name} is nginx's own and cannot be set"));
            }
            _ => {}
        }
        let name = self.place.names.own(&name).ok_or(Not::Known)?;
        Ok(Set { name, value: self.place.names.template(value)? })
    }

    fn rewrite(&mut self, words: &[&str]) -> Result<RewriteStep> {
        let (pattern, target, flag) = match words {
            [pattern, target] => (*pattern, *target, ""),
            [pattern, target, flag] => (*pattern, *target, *flag),
            _ => return Err(Not::Known),
        };
        let then = match flag {
            "" => Then::Next,
            "last" => Then::Last,
            "break" => Then::Break,
            "redirect" => Then::Redirect,
            "permanent" => Then::Permanent,
            _ => return Err(Not::Known),
        };
        if self.place.names.is_of_auth() {
            return impossible("the path of an auth request is that of auth-url");
        }
        let is_url = is_url(target);
        let has_rewrite =
            matches!(self.place.at, At::EveryLocation | At::Location { has_rewrite: true });
        if then == Then::Next && has_rewrite && !is_url {
            return impossible("beside rewrite-target it needs last or break");
        }
        if target.is_empty() {
            return impossible("a path is not empty");
        }
        let pattern = self.pattern(pattern, false)?;
        Ok(RewriteStep { pattern, target: self.place.names.template(target)?, then })
    }

    fn answer(&mut self, words: &[&str], to: &mut Vec<Step>) -> Result {
        let (code, text) = match words {
            [url] if is_url(url) => (302, Some(*url)),
            [code] => (code.parse().map_err(|_| Not::Known)?, None),
            [code, text] => (code.parse().map_err(|_| Not::Known)?, Some(*text)),
            _ => return Err(Not::Known),
        };
        if self.place.names.is_of_auth() {
            to.push(Step::Answer(Answer::of_status(of_auth(code))));
            return Ok(());
        }
        let is_redirect = matches!(code, 301 | 302 | 303 | 307 | 308);
        let text = text.filter(|text| !text.is_empty());
        if !Answer::is_possible(code, is_redirect && text.is_some()) {
            return impossible(
                "only redirects, statuses from 200 to 299 and from 400 on are answered",
            );
        }
        let location = match text.filter(|_| is_redirect) {
            Some(text) => Some(self.place.names.template(text)?),
            None => None,
        };
        let mut answer = Answer { location, ..Answer::of_status(code) };
        if Answer::has_body(code) {
            let lines = text.unwrap_or_default().split('\n').filter(|_| text.is_some());
            let lines = lines.map(|line| self.place.names.template(line.trim_end_matches('\r')));
            answer.body = lines.collect::<Result<_>>()?;
            answer.media_type = self.media_type.clone();
        }
        let is_complete = answer.location.is_some() || text.is_none() || Answer::has_body(code);
        to.push(Step::Answer(answer));
        match is_complete {
            true => Ok(()),
            false => Err(Not::Needed("the status is answered with nginx's own page")),
        }
    }
}

/// The status that means the same as the answer of an auth server.
fn of_auth(code: u16) -> u16 {
    match code {
        200..=299 => 204,
        400..=599 => code,
        // Neither yes nor no.
        _ => 500,
    }
}

fn is_url(text: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|start| text.starts_with(start))
}
