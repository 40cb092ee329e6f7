//! The variables that a snippet sets, under names that nobody else's texts have.

use super::values::{Result, impossible};
use oxigress_core::model::policy::Template;
use oxigress_core::model::policy::script::VARIABLES;
use oxigress_core::text::template::{Part, parts};
use oxigress_settings::grammar::directives::{self, Directive};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The scope of an auth subrequest.
pub const OF_AUTH: char = 'a';

/// The scope of what an `http-snippet` defines.
const OF_DEFINITIONS: char = 'h';

/// Longest name of a variable.
const MOST_LETTERS: usize = 64;

/// The names that a text sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// `l` of a location, `s` of a server, `a` of an auth subrequest.
    scope: char,
    /// Each with the scope of the text that sets it.
    known: BTreeMap<String, char>,
    /// The text has patterns of its own, whose captures only steps know.
    has_patterns: bool,
}

impl Names {
    /// The variables of a text: those that any of its directives sets.
    pub fn of(scope: char, all: &[Directive]) -> Self {
        let mut names = Names { scope, known: BTreeMap::new(), has_patterns: false };
        directives::each(all, &mut |directive| match directive.name.as_str() {
            "set" | "auth_request_set" => {
                let name = directive.arguments.first().and_then(|name| name.strip_prefix('$'));
                let name = name.filter(|name| is_name(name)).map(str::to_ascii_lowercase);
                names.known.extend(name.map(|name| (name, scope)));
            }
            "rewrite" => names.has_patterns = true,
            "if" => names.has_patterns |= directive.arguments.iter().any(|word| word.contains('~')),
            _ => {}
        });
        names
    }

    /// The variables that an `http-snippet` defines under these names.
    pub fn of_definitions<S: AsRef<str>>(all: impl Iterator<Item = S>) -> Self {
        let all = all.filter(|name| is_name(name.as_ref()));
        let known = all.map(|name| (name.as_ref().to_ascii_lowercase(), OF_DEFINITIONS));
        Names { scope: OF_DEFINITIONS, known: known.collect(), has_patterns: false }
    }

    /// Takes over the variables of another text, also in place of those of the same name.
    pub fn learn_over(&mut self, of: Option<&Names>) {
        for (name, scope) in of.iter().flat_map(|of| &of.known) {
            self.known.insert(name.clone(), *scope);
        }
    }

    /// The variables of a location beside those of its server.
    pub fn with(&self, block: &[Directive]) -> Names {
        let mut names = Names::of(self.scope, block);
        names.has_patterns |= self.has_patterns;
        names.learn(self);
        names
    }

    /// Takes over the variables of another text that it does not set itself.
    pub fn learn(&mut self, of: &Names) {
        for (name, scope) in &of.known {
            self.known.entry(name.clone()).or_insert(*scope);
        }
    }

    /// They are those of an auth subrequest, which has no query of the client's.
    pub fn is_of_auth(&self) -> bool {
        self.scope == OF_AUTH
    }

    /// Forgets what a directive sets that is not carried out; answers whether there was any.
    pub fn forget(&mut self, directive: &Directive) -> bool {
        let before = self.known.len();
        directives::each(std::slice::from_ref(directive), &mut |one| {
            if let Some(name) = one.arguments.first().filter(|_| one.name == "set") {
                self.known.remove(&name.trim_start_matches('$').to_ascii_lowercase());
            }
        });
        self.known.len() < before
    }

    /// The name that one of them has in policies.
    pub fn full(&self, name: &str) -> Option<String> {
        self.known.get(name).map(|scope| format!("{VARIABLES}{scope}_{name}"))
    }

    /// A text of a step.
    pub fn template(&self, text: &str) -> Result<Template> {
        let text = self.renamed(text, true).or_else(impossible)?;
        Ok(Template::parse(text)?)
    }

    /// Words with their variables under the names that they have in policies; or why they cannot be had.
    pub fn words<'w>(&self, all: &'w [String]) -> std::result::Result<Vec<Cow<'w, str>>, String> {
        let word = |word: &'w String| match word.contains('$') {
            false => Ok(Cow::Borrowed(word.as_str())),
            true => self.renamed(word, false).map(Cow::Owned),
        };
        all.iter().map(word).collect()
    }

    /// Forgets all that the text sets.
    pub fn clear(&mut self) {
        self.known.retain(|_, scope| *scope != self.scope);
    }

    /// The name in policies of a variable that the text sets itself.
    pub fn own(&self, name: &str) -> Option<String> {
        self.full(name).filter(|_| self.known.get(name) == Some(&self.scope))
    }

    fn renamed(&self, text: &str, is_step: bool) -> std::result::Result<String, String> {
        let all: Vec<_> = parts(text.as_bytes()).collect();
        let (mut renamed, mut is_same) = (Vec::with_capacity(text.len()), true);
        for (at, part) in all.iter().enumerate() {
            match part {
                Part::Literal(literal) => renamed.extend_from_slice(literal),
                Part::Capture(_) if self.has_patterns && !is_step => {
                    return Err(
                        "captures are known to set, if, rewrite and return only: set a variable"
                            .to_owned(),
                    );
                }
                Part::Capture(_) if self.is_of_auth() && !is_step => is_same = false,
                Part::Capture(number) => renamed.extend([b'$', b'0' + number]),
                Part::Variable(name) => {
                    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
                    let full = self.full(&lower);
                    if full.is_none() && self.is_of_auth() {
                        match of_subrequest(&lower) {
                            Some(Of::Nothing) => {
                                is_same = false;
                                continue;
                            }
                            Some(Of::Another) => {
                                return Err(format!(
                                    "${lower} is no path of the client's in an auth request: use $uri"
                                ));
                            }
                            None => {}
                        }
                    }
                    if full.is_none() && lower.starts_with(VARIABLES) {
                        return Err(format!("variable ${lower} cannot be used here"));
                    }
                    is_same &= full.is_none();
                    let name = full.map_or_else(|| name.to_vec(), String::into_bytes);
                    let is_letter = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
                    let goes_on = matches!(all.get(at + 1), Some(Part::Literal([first, ..])) if is_letter(first));
                    let (start, end): (&[u8], &[u8]) =
                        if goes_on { (b"${", b"}") } else { (b"$", b"") };
                    renamed.extend([start, &name, end].concat());
                }
            }
        }
        match is_same {
            true => Ok(text.to_owned()),
            false => Ok(String::from_utf8(renamed).unwrap_or_default()),
        }
    }
}

/// What a variable of the client's path and query is in an auth subrequest. `$uri` is that of the request that is asked about: in
/// nginx it is the path of a location of its own, of which nobody can make anything.
enum Of {
    /// Empty.
    Nothing,
    /// The path of a location of nginx's own.
    Another,
}

fn of_subrequest(name: &str) -> Option<Of> {
    match name {
        "args" | "query_string" | "is_args" => Some(Of::Nothing),
        "request_filename" => Some(Of::Another),
        name => name.starts_with("arg_").then_some(Of::Nothing),
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=MOST_LETTERS).contains(&name.len()) && name.bytes().all(is_letter)
}
