//! Changes of what a client has sent, as `more_set_input_headers` and `more_clear_input_headers` make them.
//!
//! Source: the headers-more module.

use super::{HeaderName, Template, is_false};
use serde::{Deserialize, Serialize};

crate::model::object::objects!(InputEdit);

/// A change of a client's headers. A list of them is carried out in its order, before any other header for the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct InputEdit {
    /// The name of the header; without a value also the beginning of names, with a star behind it.
    pub name: HeaderName,
    /// Its value, with variables, in place of all headers of the name; one that turns out empty takes them away.
    #[serde(default = "Template::empty", skip_serializing_if = "is_empty")]
    pub value: Template,
    /// A request without such a header gets none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub replaces_only: bool,
}

fn is_empty(template: &Template) -> bool {
    template.as_str().is_empty()
}

impl InputEdit {
    /// Whether it takes headers away, and sets none.
    pub fn is_removal(&self) -> bool {
        is_empty(&self.value)
    }

    /// The beginning of the names that are taken away; `None`: the name is that of one header.
    pub fn prefix(&self) -> Option<&str> {
        self.name.as_str().strip_suffix('*').filter(|_| self.is_removal())
    }
}
