//! Decoding that is stricter than `serde_json` and reports where a document is wrong.
//!
//! Two passes: the first reads the document for its form (UTF-8, syntax, depth, duplicate keys), also in
//! unused parts; the second reads the typed value. Rejected: one pass with a checking wrapper around
//! every type, which must be remembered for each new field.

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor,
};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// Deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 64;

/// The first fault of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at {pointer:?})")]
pub struct DecodeError {
    /// JSON pointer of the value; empty for the whole document.
    pub pointer: String,
    /// The problem and its remedy.
    pub message: String,
}

impl DecodeError {
    /// An error of the value at `pointer`.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        DecodeError { pointer: pointer.into(), message: message.into() }
    }

    /// Whether the document has a version that this program does not support.
    pub fn is_version(&self) -> bool {
        self.pointer == "/version" && self.message.contains("is not understood")
    }
}

/// The value of `body` and the number of fields in it that are not known.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<(T, usize), DecodeError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        DecodeError::new(
            "",
            format!("not UTF-8 from byte {}: send UTF-8 JSON", error.valid_up_to()),
        )
    })?;
    check_form(text)?;

    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let mut ignored = 0;
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    match serde_ignored::deserialize(tracked, |_| ignored += 1) {
        Ok(value) => Ok((value, ignored)),
        Err(error) => Err(DecodeError::new(pointer_of(&track.path()), describe(&error))),
    }
}

/// What is wrong with each record of a document of the native format that does not decode, one fault a record and at most
/// `most`; none where the document as a whole is wrong. `within` is the field that has the tables.
pub fn faults(body: &[u8], within: &str, most: usize) -> Vec<DecodeError> {
    let document = serde_json::from_slice::<serde_json::Value>(body).unwrap_or_default();
    let Some(tables) = document.get(within).and_then(|tables| tables.as_object()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for table in &crate::record::table::TABLES {
        let records = tables.get(table.name).and_then(|records| records.as_object());
        for (key, value) in records.into_iter().flatten() {
            if all.len() == most {
                return all;
            }
            if let Err(mut error) = (table.decode)(key, value) {
                let mut pointer = format!("/{within}/{}", table.name);
                push_segment(&mut pointer, key);
                error.pointer.insert_str(0, &pointer);
                all.push(error);
            }
        }
    }
    all
}

/// Decodes a record by itself; the pointer of an error begins at the record.
pub(crate) fn decode_record<K: TryFrom<String, Error: fmt::Display>, V: DeserializeOwned>(
    key: &str,
    value: &serde_json::Value,
) -> Result<(), DecodeError> {
    K::try_from(key.to_owned()).map_err(|error| DecodeError::new("", error.to_string()))?;
    let decoded = serde_path_to_error::deserialize::<_, V>(value);
    decoded.map(drop).map_err(|e| DecodeError::new(pointer_of(e.path()), describe(e.inner())))
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => push_segment(&mut pointer, &index.to_string()),
            Segment::Map { key } => push_segment(&mut pointer, key),
            // An enum's variant is a key of the document too: {"exact": "/"}.
            Segment::Enum { variant } => push_segment(&mut pointer, variant),
            Segment::Unknown => {}
        }
    }
    pointer
}

/// A key as a step of a JSON pointer (RFC 6901 §3).
pub fn pointer_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// At most 256 characters of a client's key go into an answer.
fn push_segment(pointer: &mut String, text: &str) {
    pointer.push('/');
    pointer.push_str(&pointer_step(&text.chars().take(256).collect::<String>()));
}

fn check_form(text: &str) -> Result<(), DecodeError> {
    let mut path = Vec::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let result = Form { path: &mut path }.deserialize(&mut json).and_then(|()| json.end());
    result.map_err(|error| {
        let mut pointer = String::new();
        for step in &path {
            match step {
                Step::Index(index) => push_segment(&mut pointer, &index.to_string()),
                Step::Key(key) => push_segment(&mut pointer, key),
            }
        }
        DecodeError::new(pointer, describe(&error))
    })
}

/// serde's message without the text that it may quote: a private key in the wrong place must not reach an answer or a
/// log. The pointer identifies the place.
fn describe(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let (Some(start), Some(end)) = (message.find(": string \""), message.rfind("\", expected "))
    else {
        return message.chars().take(512).collect();
    };
    let (before, after) = (&message[..start], &message[end + 1..]);
    format!("{before}: string{after}").chars().take(512).collect()
}

enum Step<'de> {
    Index(usize),
    Key(Cow<'de, str>),
}

/// Reads any value. The path keeps the steps to the value where reading failed.
struct Form<'p, 'de> {
    path: &'p mut Vec<Step<'de>>,
}

impl<'de> DeserializeSeed<'de> for Form<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Form<'_, 'de> {
    fn check_depth<E: Error>(&self) -> Result<(), E> {
        if self.path.len() >= MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH}: flatten the document")));
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Form<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.check_depth()?;
        for index in 0.. {
            self.path.push(Step::Index(index));
            if seq.next_element_seed(Form { path: self.path })?.is_none() {
                self.path.pop();
                break;
            }
            self.path.pop();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.check_depth()?;
        let mut seen = Keys::default();
        while let Some(Key(key)) = map.next_key()? {
            self.path.push(Step::Key(key.clone()));
            if !seen.insert(key) {
                return Err(A::Error::custom("this key is defined twice in its object: keep one"));
            }
            map.next_value_seed(Form { path: self.path })?;
            self.path.pop();
        }
        Ok(())
    }
}

/// The keys of one object: few in most, so a list first, and a randomly keyed set past that.
#[derive(Default)]
struct Keys<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Keys<'de> {
    fn insert(&mut self, key: Cow<'de, str>) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(key);
        }
        if self.few.contains(&key) {
            return false;
        }
        self.few.push(key);
        if self.few.len() > 16 {
            self.many.extend(self.few.drain(..));
        }
        true
    }
}

/// An object's key, borrowed from the document where it has no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct KeyVisitor;

        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }

        from.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::native::Whole;

    fn error(body: &[u8]) -> DecodeError {
        decode::<Whole>(body).unwrap_err()
    }

    #[test]
    fn a_duplicate_key_is_refused_where_it_stands_even_in_unknown_fields() {
        assert_eq!(error(br#"{"version":1,"x":[{"a":1,"a":2}]}"#).pointer, "/x/0/a");
    }

    #[test]
    fn two_spellings_of_a_host_are_one_key() {
        let found = error(br#"{"version":1,"snapshot":{"servers":{"A.test":{},"a.test":{}}}}"#);
        assert_eq!(found.pointer, "/snapshot/servers");
        assert!(found.message.contains("a.test is defined twice"), "{found}");
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(check_form(&deep(MAX_DEPTH)).is_ok());
        assert!(check_form(&deep(MAX_DEPTH + 1)).unwrap_err().message.contains("nested deeper"));
        assert!(check_form(&deep(100_000)).is_err());
    }

    #[test]
    fn a_value_out_of_range_is_named_by_its_pointer() {
        let body = br#"{"version":1,"snapshot":{"endpoints":{"a/b~c":[{"address":"10.0.0.1","port":70000}]}}}"#;
        assert_eq!(error(body).pointer, "/snapshot/endpoints/a~1b~0c/0/port");
    }

    #[test]
    fn bytes_that_are_not_utf8_and_cut_documents_are_refused() {
        assert!(error(b"{\"version\":1,\"\xff\":1}").message.contains("not UTF-8 from byte 14"));
        assert!(error(b"{\"version\":1").message.contains("EOF"));
        assert!(error(b"{\"version\":1}{}").message.contains("trailing"));
    }

    #[test]
    fn a_value_in_the_wrong_place_is_not_quoted() {
        let found =
            error(br#"{"version":1,"snapshot":{"certificates":{"c":"SECRET \", expected KEY"}}}"#);
        assert_eq!(found.pointer, "/snapshot/certificates/c");
        assert!(!found.message.contains("SECRET") && !found.message.contains("KEY"), "{found}");
        assert!(found.message.contains("invalid type: string, expected an object"), "{found}");
    }

    #[test]
    fn an_array_is_no_object() {
        assert_eq!(error(br#"{"version":1,"snapshot":[]}"#).pointer, "/snapshot");
        assert!(decode::<Whole>(b"[1]").is_err());
        assert!(decode::<Vec<crate::wire::compat::Element>>(br#"[["a"]]"#).is_err());
    }

    #[test]
    fn unknown_fields_are_counted_and_nothing_else() {
        let (_, ignored) =
            decode::<Whole>(br#"{"version":1,"new":{"deep":[1,2]},"snapshot":{"x":1}}"#).unwrap();
        assert_eq!(ignored, 2);
    }

    #[test]
    fn every_record_that_does_not_decode_is_named() {
        let body =
            br#"{"version":1,"upsert":{"servers":{"a.test":{"rules":[{}]},"b.test":{},"-":3},
            "endpoints":{"a/b":[{"address":"x","port":1}],"c/d":[]}, "tls": {"c.test": []}}}"#;
        let found = faults(body, "upsert", 10);
        let pointers: Vec<_> = found.iter().map(|fault| fault.pointer.as_str()).collect();
        let expected = [
            "/upsert/endpoints/a~1b/0/address",
            "/upsert/tls/c.test",
            "/upsert/servers/-",
            "/upsert/servers/a.test/rules/0",
        ];
        assert_eq!(pointers, expected, "{found:?}");
        assert_eq!(faults(body, "upsert", 2).len(), 2);
        assert!(faults(body, "snapshot", 10).is_empty() && faults(b"{", "upsert", 10).is_empty());
    }

    #[test]
    fn another_wire_version_is_told_apart() {
        assert!(error(br#"{"version":2}"#).is_version());
        assert!(!error(br#"{"version":"1"}"#).is_version());
    }
}
