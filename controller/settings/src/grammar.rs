//! How ingress-nginx writes values: what annotations and keys of the ConfigMap have in common.

pub mod directives;
pub mod external_auth;
pub mod load_balance;
pub mod retries;
pub mod url;

use oxigress_core::model::policy::Template;
use oxigress_core::model::policy::script::{VARIABLES, is_variable};
use oxigress_core::text::template::{Part, parts};

/// A boolean as Go's `strconv.ParseBool` reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Letters, digits and `- . _ ~ / :`, the reference's plainest alphabet, and those of `more`.
pub fn is_plain(text: &str, more: &[u8]) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~/:".contains(&b) || more.contains(&b))
}

/// A text with variables, of letters, digits and `more`; `Some` says which variable it cannot have.
pub fn template(text: &str, more: &[u8]) -> Result<Template, Option<String>> {
    if !is_plain(text, more) {
        return Err(None);
    }
    any_template(text).map_err(Some)
}

/// A text with variables, of any characters; the error says which variable it cannot have.
pub fn any_template(text: &str) -> Result<Template, String> {
    // Those of a snippet are its own.
    let is_of_snippet = |part: &Part<'_>| match part {
        Part::Variable(name) => is_variable(name),
        Part::Literal(_) | Part::Capture(_) => false,
    };
    if parts(text.as_bytes()).any(|part| is_of_snippet(&part)) {
        return Err(format!("variables that begin with {VARIABLES} cannot be used here"));
    }
    Template::parse(text).map_err(|why| why.to_string())
}

/// Letters, digits, `-` and `_`.
pub fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_read_as_go_reads_them() {
        for text in ["yes", "on", "tRUE", " true", ""] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
        assert_eq!(parse_bool("T"), Some(true));
    }
}
