//! Changes of the headers of responses, as nginx's directives make them.
//!
//! Source: ngx_http_headers_filter, ngx_http_proxy_hide_header; `more_set_headers` of the headers-more module.

use super::{HeaderName, Template};
use serde::{Deserialize, Serialize};

crate::model::object::objects!(ResponseEdit);

/// A change of a response's headers. A list of them is carried out in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ResponseEdit {
    /// The name of the header; of [`EditAction::Remove`] also the beginning of names, with a star behind it.
    pub name: HeaderName,
    /// What happens to the header.
    pub action: EditAction,
    /// The value of the header; its variables are filled in for each answer.
    #[serde(default = "Template::empty", skip_serializing_if = "is_empty")]
    pub value: Template,
    /// The change is made in responses of these statuses; empty: in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<u16>,
}

fn is_empty(template: &Template) -> bool {
    template.as_str().is_empty()
}

/// What happens to a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditAction {
    /// The endpoint's own header is taken away, before anything else is written.
    Hide,
    /// The value replaces all headers of the name; an empty one takes them away.
    Set,
    /// The value is added beside other headers of the name; an empty one is not.
    Add,
    /// All headers of the name, whoever wrote them, are taken away.
    Remove,
    /// A date replaces all headers of the name: so many seconds from now as the value says.
    Date,
}

impl ResponseEdit {
    /// [`ResponseEdit::rank`] of `add_header`, the last.
    pub(super) const ADDS: u8 = 3;
    /// The statuses of nginx's `add_header` without `always`.
    pub const GOOD: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

    /// Whether the change is made in a response of this status.
    pub fn applies(&self, status: u16) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    /// Whether nginx's own module of headers makes a change that sets: after headers-more.
    pub fn is_late(&self) -> bool {
        let sets = matches!(self.action, EditAction::Set | EditAction::Date);
        sets && self.statuses == Self::GOOD
    }

    /// Whether it is one of an `expires` directive.
    pub fn is_of_expires(&self) -> bool {
        self.is_late() && ["Expires", "Cache-Control"].contains(&self.name.as_str())
    }

    /// Its place among the changes of a location: what endpoints say is hidden first, then come headers-more, `expires` and
    /// `add_header`.
    pub fn rank(&self) -> u8 {
        match self.action {
            EditAction::Hide => 0,
            EditAction::Set | EditAction::Date if self.is_late() => 2,
            EditAction::Set | EditAction::Date | EditAction::Remove => 1,
            EditAction::Add => Self::ADDS,
        }
    }

    /// The beginning of the names that are taken away; `None`: the name is that of one header. A star is a letter of such a
    /// name.
    pub fn prefix(&self) -> Option<&str> {
        match self.action {
            EditAction::Remove => self.name.as_str().strip_suffix('*'),
            EditAction::Hide | EditAction::Set | EditAction::Add | EditAction::Date => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_more_letters_only_where_headers_are_removed() {
        for (action, prefix) in [
            (EditAction::Hide, None),
            (EditAction::Set, None),
            (EditAction::Add, None),
            (EditAction::Date, None),
            (EditAction::Remove, Some("X-")),
        ] {
            let name = HeaderName::parse("X-*").unwrap();
            let edit = ResponseEdit { name, action, value: Template::empty(), statuses: vec![] };
            assert_eq!(edit.prefix(), prefix, "{action:?}");
        }
    }

    #[test]
    fn a_change_without_statuses_is_made_in_all_responses() {
        let edit = |statuses: &[u16]| ResponseEdit {
            name: HeaderName::parse("X-*").unwrap(),
            action: EditAction::Remove,
            value: Template::empty(),
            statuses: statuses.to_vec(),
        };
        assert!(edit(&[]).applies(500) && edit(&ResponseEdit::GOOD).applies(204));
        assert!(!edit(&ResponseEdit::GOOD).applies(404));
        assert_eq!(edit(&[]).prefix(), Some("X-"));
        let text = serde_json::to_string(&edit(&[404])).unwrap();
        assert_eq!(text, r#"{"name":"X-*","action":"remove","statuses":[404]}"#);
        assert_eq!(serde_json::from_str::<ResponseEdit>(&text).unwrap(), edit(&[404]));
    }
}
