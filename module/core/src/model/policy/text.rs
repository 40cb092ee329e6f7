//! Texts of policies: header names and values, and templates.

use super::defined::OF_DEFINITIONS;
use crate::model::text::as_string;
use crate::model::{Invalid, shorten};
use crate::patterns::Allowance;
use crate::text::template::{self, Part};
use serde::{Deserialize, Serialize};

/// The name of a header: a token (RFC 9110 §5.6.2) of at most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderName(String);

impl HeaderName {
    /// Reads a name; keeps its case.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        match (1..=128).contains(&text.len()) && text.bytes().all(is_token) {
            true => Ok(HeaderName(text.into())),
            false => Err(Invalid::new(format!(
                "header name {:?} is not 1 to 128 letters, digits and `-`",
                shorten(text)
            ))),
        }
    }

    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The value of a header: at most 8 KiB, no control byte but the tab.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderValue(String);

impl HeaderValue {
    /// Refuses control bytes and values over the limit.
    pub fn parse(text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        check_value(&text)?;
        Ok(HeaderValue(text))
    }

    /// The value as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A pattern for values of a header, in the form of nginx's `map`: the whole value in any case, or after `~` (`~*`:
/// in any case) a regular expression that is found in the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderPattern(String);

impl HeaderPattern {
    /// Reads a pattern; refuses a regular expression that could not be served. Compiles it.
    pub fn parse(text: impl Into<String>, allowance: Allowance) -> Result<Self, Invalid> {
        let pattern = HeaderPattern::uncompiled(text)?;
        if let Some(regex) = pattern.regex() {
            crate::patterns::pattern_is_valid(&regex, allowance)?;
        }
        Ok(pattern)
    }

    /// As [`Self::parse`], of a pattern that is compiled elsewhere: there it may turn out to be none.
    pub fn uncompiled(text: impl Into<String>) -> Result<Self, Invalid> {
        let pattern = HeaderPattern(text.into());
        check_value(&pattern.0)?;
        if let Some(regex) = pattern.regex() {
            crate::patterns::check_length(&regex)?;
        }
        Ok(pattern)
    }

    /// The regular expression, if it is one.
    pub fn regex(&self) -> Option<String> {
        let text = self.0.strip_prefix('~')?;
        Some(match text.strip_prefix('*') {
            Some(text) => format!("(?i){text}"),
            None => text.into(),
        })
    }

    /// The pattern as it is written, with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check_value(text: &str) -> Result<(), Invalid> {
    if text.len() > 8 * 1024 {
        return Err(Invalid::new(format!("value of {} bytes, at most 8192 are taken", text.len())));
    }
    match text.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
        true => {
            Err(Invalid::new(format!("value {:?} has control bytes: remove them", shorten(text))))
        }
        false => Ok(()),
    }
}

/// A text with variables: `$name` or `${name}` of [`template::is_allowed`], and captures `$1` to `$9`.
///
/// Expanded once for each request, by the module; the result is never expanded again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template(String);

impl Template {
    /// Reads a template; refuses variables that users may not read, and more than [`template::cost`] has bounds for.
    pub fn parse(text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        check_value(&text)?;
        let foreign = template::parts(text.as_bytes()).find_map(|part| match part {
            Part::Variable(name) if !template::is_allowed(name) => {
                Some(name.escape_ascii().to_string())
            }
            _ => None,
        });
        match foreign {
            Some(name) => {
                Err(Invalid::new(format!("variable ${} cannot be used here", shorten(&name))))
            }
            None => {
                template::cost::of(template::parts(text.as_bytes())).map_err(Invalid::new)?;
                Ok(Template(text))
            }
        }
    }

    /// A text that stands for itself, also where it has a `$`.
    pub fn literal(text: &str) -> Result<Self, Invalid> {
        // What reads it later sees the longer text.
        Template::parse(text.replace('$', "${dollar}"))
    }

    /// A text without variables, whatever it holds: none is looked for in a text that has no `$`.
    pub fn empty() -> Self {
        Template(String::new())
    }

    /// The text as it is written, with its variables.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has a variable that is worked out of others.
    pub fn uses_definitions(&self) -> bool {
        self.0.contains(OF_DEFINITIONS)
    }

    /// What expanding it takes at most, in microseconds.
    pub fn cost(&self) -> u32 {
        template::cost::of(self.parts()).unwrap_or(template::cost::MOST_OF_TEXT)
    }

    /// The literals, variables and captures of the text, in order.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        template::parts(self.0.as_bytes())
    }
}

as_string!(HeaderName, |text| HeaderName::parse(&text), |name| name.0);
as_string!(HeaderValue, |text| HeaderValue::parse(text), |value| value.0);
as_string!(Template, |text| Template::parse(text), |template| template.0);
// `wire::patterns` compiles it, off the event loop.
as_string!(HeaderPattern, |text| HeaderPattern::uncompiled(text), |pattern| pattern.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_header_is_refused() {
        for text in ["a\r\nb", "a\nb", "a\0b", "\u{7f}"] {
            assert!(HeaderValue::parse(text).is_err(), "{text:?}");
            assert!(Template::parse(text).is_err(), "{text:?}");
        }
        for name in ["", "a b", "a:", "é", "a\n", &"a".repeat(129)] {
            assert!(HeaderName::parse(name).is_err(), "{name:?}");
        }
        HeaderName::parse("X-Real-IP").unwrap();
        HeaderValue::parse("a\tb $x").unwrap();
    }

    #[test]
    fn a_template_has_variables_that_anybody_may_ask_for() {
        Template::parse("/x/$1?h=${host}&a=$arg_b").unwrap();
        assert!(Template::parse("$ssl_client_raw_cert").is_err());
        assert!(Template::parse("$realpath_root").is_err());
        assert!(Template::parse("$host".repeat(64)).is_ok());
        assert!(Template::parse("$host".repeat(65)).is_err());
        assert!(Template::literal(&"$".repeat(700)).is_ok());
        let long = Template::literal(&"$".repeat(4_096));
        assert!(long.is_err(), "36,864 bytes, which nobody could read again");
    }
}
