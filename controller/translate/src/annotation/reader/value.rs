//! The value of one annotation on its way into a field.
//!
//! Errors:  a value that cannot be what it should be is noted, and the field stays as it was.
//! Source:  ingress-nginx's parsers of texts, booleans and numbers.

use oxigress_core::model::shorten;
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::parse_bool;

/// The value of one annotation.
pub struct Value<'a> {
    /// The annotation's name without prefix.
    pub name: &'a str,
    /// The text as the Ingress writes it.
    pub text: &'a str,
    /// Where to say that it is invalid.
    pub notes: &'a mut Vec<Note>,
}

impl Value<'_> {
    /// A boolean as Go reads it.
    pub fn flag(self, into: &mut impl From<bool>) {
        match parse_bool(self.text) {
            Some(flag) => *into = flag.into(),
            None => self.refuse("true or false"),
        }
    }

    /// A decimal number, perhaps with a sign, between `least` and `most`.
    pub fn number(self, least: i64, most: i64, into: &mut Option<i64>) {
        match self.text.parse() {
            Ok(number) if (least..=most).contains(&number) => *into = Some(number),
            _ => self.refuse(&format!("a number from {least} to {most}")),
        }
    }

    /// One of `all`, upper and lower case apart.
    pub fn choice<T: Copy>(self, all: &[(&str, T)], into: &mut Option<T>) {
        let text = self.text.trim();
        match all.iter().find(|(name, _)| *name == text) {
            Some((_, choice)) => *into = Some(*choice),
            None => {
                let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
                self.refuse(&names.join(" or "));
            }
        }
    }

    /// A text that `is_valid`, of which `what` speaks; answers whether it was.
    pub fn text(self, what: &str, is_valid: impl Fn(&str) -> bool, into: &mut String) -> bool {
        let text = self.text.trim();
        let is_valid = !text.is_empty() && is_valid(text);
        match is_valid {
            true => *into = text.into(),
            false => self.refuse(what),
        }
        is_valid
    }

    /// Says that it is not `what`.
    pub fn refuse(self, what: &str) {
        self.notes.push(Note::warning(format!(
            "annotation {}: {:?} is not {what}: the default is used",
            self.name,
            shorten(self.text)
        )));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_in_the_note() {
        let mut notes = Vec::new();
        let text = "é".repeat(9_000);
        Value { name: "x", text: &text, notes: &mut notes }.flag(&mut false);
        assert!(notes[0].message.len() < 400, "{}", notes[0].message);
    }

    #[test]
    fn a_number_has_no_white_space_and_stays_in_its_bounds() {
        for (text, expected) in
            [("5", Some(5)), ("+5", Some(5)), ("-1", None), (" 5", None), ("", None), ("11", None)]
        {
            let (mut notes, mut into) = (Vec::new(), None);
            Value { name: "x", text, notes: &mut notes }.number(0, 10, &mut into);
            assert_eq!(
                (into, notes.len()),
                (expected, usize::from(expected.is_none())),
                "{text:?}"
            );
        }
    }
}
