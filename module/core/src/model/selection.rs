//! Which of the requests for its path a rule takes.
//!
//! Source:  HTTPRouteMatch of the Gateway API.

use super::policy::HeaderName;
use super::{Invalid, checked, shorten};
use crate::patterns::check_text;
use serde::{Deserialize, Deserializer, Serialize};

crate::model::object::objects!(Selection, ValueMatch);

/// Most conditions of one rule.
const MAX_CONDITIONS: usize = 64;
/// Most bytes of a name or a value that is compared.
const MAX_TEXT_BYTES: usize = 4_096;

/// The name of the condition among those of headers that asks for the whole path. No header has it: a name has no colon.
pub const PATH: &str = ":path";

/// What a request has beside its path so that a rule takes it. Of the rules for one path those with a method come first, then
/// those with more headers, then those with more query parameters, then in the order in which they stand in the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Selection {
    /// The method, byte for byte; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<HeaderName>,
    /// Each of these headers has a value that matches; [`PATH`] stands for the path. The names are compared in any case.
    #[serde(deserialize_with = "checked_matches", skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ValueMatch>,
    /// Each of these parameters has a value that matches. Names and values are compared decoded.
    #[serde(deserialize_with = "checked_matches", skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<ValueMatch>,
    /// The rule's share, relative to those of the rules next to it with the same path and conditions, one of which takes a
    /// request by chance; absent: it takes all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// The conditions of a selection, without its share.
pub type Criteria<'a> = (Option<&'a HeaderName>, &'a [ValueMatch], &'a [ValueMatch]);

impl Selection {
    /// The conditions; `None`: there is none, so that every request fulfils them.
    pub fn criteria(&self) -> Option<Criteria<'_>> {
        let all = (self.method.as_ref(), &*self.headers, &*self.query);
        (all != (None, &[], &[])).then_some(all)
    }

    /// How much it asks for: what is greater is compared first.
    pub fn rank(&self) -> (bool, usize, usize) {
        (self.method.is_some(), self.headers.len(), self.query.len())
    }
}

/// A named value of a request, and what it has to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ValueMatch {
    /// The name of the header or parameter. One that a request has several times matches if any of its values does.
    pub name: String,
    /// What the value is compared with.
    pub value: ValuePattern,
}

/// What a value is compared with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValuePattern {
    /// This text, byte for byte.
    Exact(String),
    /// A regular expression that matches the whole value.
    Regex(String),
}

impl ValueMatch {
    /// A name and a pattern that can be served; a regular expression is compiled elsewhere.
    pub fn new(name: impl Into<String>, value: ValuePattern) -> Result<Self, Invalid> {
        let found = ValueMatch { name: name.into(), value };
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), Invalid> {
        let (ValuePattern::Exact(value) | ValuePattern::Regex(value)) = &self.value;
        let is_fine = |text: &str| text.len() <= MAX_TEXT_BYTES;
        match !self.name.is_empty() && is_fine(&self.name) && is_fine(value) {
            true => match &self.value {
                ValuePattern::Exact(_) => Ok(()),
                ValuePattern::Regex(pattern) => check_text(pattern),
            },
            false => Err(Invalid::new(format!(
                "match of {:?}: name and value have at most {MAX_TEXT_BYTES} bytes, and the name is not empty",
                shorten(&self.name)
            ))),
        }
    }

    /// The regular expression that matches the whole value, if it is one.
    pub fn regex(&self) -> Option<String> {
        match &self.value {
            ValuePattern::Regex(pattern) => Some(format!("^(?:{pattern})$")),
            ValuePattern::Exact(_) => None,
        }
    }
}

fn checked_matches<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ValueMatch>, D::Error> {
    checked(from, |all: &Vec<ValueMatch>| {
        if all.len() > MAX_CONDITIONS {
            return Err(Invalid::new(format!(
                "{} conditions of one rule, at most {MAX_CONDITIONS}",
                all.len()
            )));
        }
        all.iter().try_for_each(ValueMatch::check)
    })
}
