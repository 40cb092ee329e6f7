//! What the block of an `if` says beside steps: nginx makes a location of it, within that around it.
//!
//! Errors:  what nginx does not permit there is refused, and takes the whole `if` with it.
//! Source:  the directives whose contexts have `if in location`.

use super::headers;
use super::names::Names;
use super::values::{At, Not, Result, impossible, size};
use oxigress_core::http::header::is_reserved;
use oxigress_core::model::policy::Policies;
use oxigress_core::model::policy::script::{IfLocation, SharedIfLocation};
use oxigress_settings::grammar::directives::Directive;

/// A block while it is read.
pub struct IfBlock<'n> {
    names: &'n Names,
    at: At,
    /// What its headers say, as a location's do.
    headers: Policies,
    found: IfLocation,
}

impl<'n> IfBlock<'n> {
    /// A block of a text with these variables.
    pub fn new(names: &'n Names, at: At) -> Self {
        IfBlock { names, at, headers: Policies::default(), found: IfLocation::default() }
    }

    /// Takes over a directive that is no step.
    pub fn add(&mut self, directive: &Directive) -> Result {
        let name = directive.name.as_str();
        if directive.block.is_some() || !is_permitted(name) {
            return Err(Not::Known);
        }
        if self.at == At::Elsewhere {
            return match self.names.is_of_auth() {
                // It would change what the auth server is told.
                true if name.ends_with("_input_headers") => Err(Not::Known),
                true => Err(Not::Needed("the answer of an auth server is not sent to clients")),
                false => impossible(format!(
                    "nginx permits {name} only within an if of a location: put it into configuration-snippet"
                )),
            };
        }
        let words = self.names.words(&directive.arguments).or_else(impossible)?;
        let words: Vec<&str> = words.iter().map(|word| &**word).collect();
        self.one(name, &words)
    }

    fn one(&mut self, name: &str, words: &[&str]) -> Result {
        // A browser's preflight is often answered so.
        if let ("add_header", [name, ..]) = (name, words)
            && is_reserved(name.as_bytes())
        {
            return Err(Not::Needed("the gateway says itself how an answer is framed"));
        }
        if let Some(read) = headers::wherever(name, words, &mut self.headers) {
            return read;
        }
        match (name, words) {
            ("access_log", ["off"]) => {
                self.found.is_unlogged = true;
                Ok(())
            }
            ("access_log", _) => Err(Not::Needed("only the operator can change logs")),
            ("limit_rate", [bytes]) => {
                self.found.response_rate = Some(size(bytes)?);
                Ok(())
            }
            ("limit_rate_after", [bytes]) => {
                self.found.response_rate_after = Some(size(bytes)?);
                Ok(())
            }
            _ => Err(Not::Known),
        }
    }

    /// What it says; `None`: nothing.
    pub fn finish(mut self) -> Option<SharedIfLocation> {
        headers::order(&mut self.headers);
        self.found.response_edits = self.headers.response_edits;
        self.found.input_edits = self.headers.input_edits;
        Some(self.found).filter(|found| *found != IfLocation::default()).map(Into::into)
    }
}

/// The directives that nginx permits in an `if` of a location, as far as they are supported.
fn is_permitted(name: &str) -> bool {
    matches!(
        name,
        "add_header"
            | "expires"
            | "more_set_input_headers"
            | "more_clear_input_headers"
            | "more_set_headers"
            | "more_clear_headers"
            | "access_log"
            | "limit_rate"
            | "limit_rate_after"
    )
}

#[cfg(test)]
mod tests {
    use super::super::location;
    use super::*;
    use crate::patterns::Compiler;
    use oxigress_settings::grammar::directives::parse;

    #[test]
    fn conditions_of_a_text_have_200_changes_of_headers() {
        let block = |count: usize| {
            let headers: String = (0..count).map(|n| format!("add_header X-{n} 1;")).collect();
            format!("if ($host) {{ {headers} }}")
        };
        let left = |text: &str| {
            let (all, names) = (parse(text).unwrap(), Names::of('h', &[]));
            let (_, left) =
                location::apply(&all, &names, &mut Policies::default(), &mut Compiler::new([]));
            left.iter().map(|one| one.reason().to_owned()).collect::<Vec<_>>()
        };
        assert!(left(&block(100).repeat(2)).is_empty());
        let why = "more than 200 changes of headers within if are too many";
        assert_eq!(left(&format!("{}{}", block(200), block(1))), [why]);
        let why = left("if ($host) { allow ::1; }");
        assert_eq!(why, ["allow is not supported within if"]);
    }
}
