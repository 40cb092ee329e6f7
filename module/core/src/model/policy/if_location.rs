//! What a location's own `if` says beside its steps: nginx makes a location of it.
//!
//! Shape:   an addition to the policies of the location around it, merged where an answer is written: few requests come to it.
//! Source:  ngx_http_rewrite_if; the merging of ngx_http_headers_filter_module, headers-more and the core module.

use super::{InputEdit, ResponseEdit, Template, is_false};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::Deref;
use std::sync::Arc;

crate::model::object::objects!(IfLocation);

/// What holds for the requests of an `if` beside the policies around it, or in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct IfLocation {
    /// Changes of the client's headers, after those of the policies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_edits: Vec<InputEdit>,
    /// Changes of responses' headers: [`IfLocation::edits`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_edits: Vec<ResponseEdit>,
    /// Requests are left out of the access log.
    #[serde(skip_serializing_if = "is_false")]
    pub is_unlogged: bool,
    /// Bytes a second of a response, 0 for any number; absent: what the policies say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate: Option<u64>,
    /// The number of bytes that are sent before `response_rate` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate_after: Option<u64>,
}

impl IfLocation {
    /// The changes of a response of this location, in their order, where `outer` are those of the policies around it: what
    /// headers-more says is added to theirs, `expires` and `add_header` stand in the place of all of their kind.
    pub fn edits<'e>(
        &'e self,
        outer: &'e [ResponseEdit],
    ) -> impl Iterator<Item = &'e ResponseEdit> {
        let has_expires = self.response_edits.iter().any(ResponseEdit::is_of_expires);
        let adds = self.response_edits.iter().any(|edit| edit.rank() == ResponseEdit::ADDS);
        let is_replaced = move |edit: &ResponseEdit| {
            has_expires && edit.is_of_expires() || adds && edit.rank() == ResponseEdit::ADDS
        };
        (0..=ResponseEdit::ADDS).flat_map(move |rank| {
            let is_one = move |edit: &&ResponseEdit| edit.rank() == rank;
            let inherited = outer.iter().filter(move |edit| !is_replaced(edit));
            inherited.filter(is_one).chain(self.response_edits.iter().filter(is_one))
        })
    }

    /// How many headers it changes.
    pub fn header_count(&self) -> usize {
        self.input_edits.len() + self.response_edits.len()
    }

    /// The texts with variables.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let inputs = self.input_edits.iter().map(|InputEdit { value, .. }| value);
        inputs.chain(self.response_edits.iter().map(|ResponseEdit { value, .. }| value))
    }
}

/// A location that a request holds longer than the policies that name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedIfLocation(Arc<IfLocation>);

impl From<IfLocation> for SharedIfLocation {
    fn from(location: IfLocation) -> Self {
        SharedIfLocation(Arc::new(location))
    }
}

impl Deref for SharedIfLocation {
    type Target = IfLocation;

    fn deref(&self) -> &IfLocation {
        &self.0
    }
}

impl Serialize for SharedIfLocation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(&*self.0, to)
    }
}

impl<'de> Deserialize<'de> for SharedIfLocation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <IfLocation as Deserialize>::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The changes as `action name value`.
    fn merged(outer: Value, inner: Value) -> String {
        let outer: Vec<ResponseEdit> = serde_json::from_value(outer).unwrap();
        let inner: IfLocation = serde_json::from_value(json!({"response_edits": inner})).unwrap();
        let shown = |edit: &ResponseEdit| {
            format!("{:?} {} {}", edit.action, edit.name.as_str(), edit.value.as_str())
        };
        inner.edits(&outer).map(shown).collect::<Vec<_>>().join(", ")
    }

    fn expires(date: &str) -> Value {
        json!({"name": "Expires", "action": "date", "value": date, "statuses": ResponseEdit::GOOD})
    }

    #[test]
    fn an_if_replaces_what_is_added_and_adds_to_headers_more() {
        let add = |value: &str| json!({"name": "A", "action": "add", "value": value});
        let set = |value: &str| json!({"name": "B", "action": "set", "value": value});
        let hide = json!({"name": "C", "action": "hide"});
        let outer = json!([hide, set("1"), expires("60"), add("1"), add("2")]);
        for (inner, expected) in [
            (json!([]), "Hide C , Set B 1, Date Expires 60, Add A 1, Add A 2"),
            (json!([add("3")]), "Hide C , Set B 1, Date Expires 60, Add A 3"),
            (json!([set("2")]), "Hide C , Set B 1, Set B 2, Date Expires 60, Add A 1, Add A 2"),
            (json!([expires("")]), "Hide C , Set B 1, Date Expires , Add A 1, Add A 2"),
            (
                json!([set("2"), expires("1"), add("")]),
                "Hide C , Set B 1, Set B 2, Date Expires 1, Add A ",
            ),
        ] {
            assert_eq!(merged(outer.clone(), inner.clone()), expected, "{inner}");
        }
    }
}
