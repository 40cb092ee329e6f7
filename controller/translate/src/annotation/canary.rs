//! Annotations that make an Ingress the canary of others.
//!
//! Source:  ingress-nginx's annotations. A rule that cannot be read is left out and never widened: the share
//!          of requests a canary gets is at most the one that its other rules say.

use super::reader::value::Value;
use crate::patterns::{Compiler, Searched};
use oxigress_core::model::{Cookie, Split, shorten};
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::{is_plain, parse_bool};

/// Which requests of the main Ingress's paths a canary takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canary {
    /// Which requests the canary takes.
    pub split: Split,
    /// affinity-canary-behavior: sessions stay with it as they stay with the main Service.
    pub is_sticky: bool,
}

/// What the annotations come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The Ingress is no canary.
    Main,
    /// The Ingress is a canary.
    Canary(Box<Canary>),
    /// It has a canary's rules, and `canary` says neither true nor false: nobody knows which it is.
    Unclear,
}

/// The annotations as they are read, one by one.
#[derive(Default)]
pub struct Draft {
    /// The annotation `canary`, as written.
    canary: Option<String>,
    split: Split,
    weight: Option<i64>,
    weight_total: Option<i64>,
    is_header_value_invalid: bool,
    is_header_pattern_invalid: bool,
    is_legacy: Option<bool>,
    /// Rules that were there, readable or not.
    rules: Vec<String>,
}

impl Draft {
    /// Answers whether the annotation is one of these.
    pub fn take(&mut self, value: Value<'_>, compiler: &mut Compiler<'_>) -> bool {
        if value.name.starts_with("canary-") && value.name != "canary-weight-total" {
            self.rules.push(value.name.to_owned());
        }
        let split = &mut self.split;
        let is_name = |text: &str| is_plain(text, b"") && Cookie::check_name(text).is_ok();
        match value.name {
            "canary" => self.canary = Some(value.text.to_owned()),
            "canary-weight" => value.number(0, i64::from(u32::MAX), &mut self.weight),
            "canary-weight-total" => value.number(0, i64::from(u32::MAX), &mut self.weight_total),
            "canary-by-header" => {
                value.text("a header's name", is_name, &mut split.header);
            }
            "canary-by-header-value" => {
                let is_value = |text: &str| is_plain(text, b" ") && text.len() <= 1_024;
                let what = "letters, digits, spaces and `- . _ ~ / :`";
                self.is_header_value_invalid = !value.text(what, is_value, &mut split.header_value);
            }
            "canary-by-header-pattern" => {
                let text = value.text.trim();
                let checked = match has_letters(text) {
                    true => compiler
                        .value(Searched::CanaryHeader, text)
                        .map_err(|why| format!("usable ({why})")),
                    false => Err("a regular expression of printable ASCII characters".into()),
                };
                let what = checked.as_ref().err().map_or("", |what| what);
                self.is_header_pattern_invalid =
                    !value.text(what, |_| checked.is_ok(), &mut split.header_pattern);
            }
            "canary-by-cookie" => {
                value.text("a cookie's name", is_name, &mut split.cookie);
            }
            "affinity-canary-behavior" => {
                let behaviors = &[("sticky", false), ("legacy", true)];
                value.choice(behaviors, &mut self.is_legacy);
            }
            _ => return false,
        }
        true
    }

    /// Puts the annotations together; notes those that have no effect.
    pub fn finish(mut self, notes: &mut Vec<Note>) -> Finished {
        let text = self.canary.take().unwrap_or_else(|| "false".into());
        match parse_bool(&text) {
            Some(true) => {}
            None if !self.rules.is_empty() => {
                notes.push(Note::rejected(format!(
                    "annotation canary: {:?} is neither true nor false, and {} {} set: the Ingress \
                     is not served until canary is true or false",
                    shorten(&text),
                    self.rules.join(", "),
                    if self.rules.len() == 1 { "is" } else { "are" }
                )));
                return Finished::Unclear;
            }
            canary => {
                if canary.is_none() {
                    Value { name: "canary", text: &text, notes }.refuse("true or false");
                }
                if self.is_legacy.is_some() {
                    self.rules.push("affinity-canary-behavior".into());
                }
                if !self.rules.is_empty() {
                    notes.push(Note::warning(format!(
                        "{} {} no effect without canary: \"true\"",
                        self.rules.join(", "),
                        if self.rules.len() == 1 { "has" } else { "have" }
                    )));
                }
                return Finished::Main;
            }
        }
        if self.rules.is_empty() {
            notes.push(Note::warning(
                "a canary without a rule gets no request: add canary-weight, canary-by-header or \
                 canary-by-cookie",
            ));
        }
        let split = &mut self.split;
        let is_value_lost = self.is_header_value_invalid && split.header_pattern.is_empty();
        let is_pattern_lost = self.is_header_pattern_invalid && split.header_value.is_empty();
        if is_value_lost || is_pattern_lost {
            // Without them the header would decide by `always` and `never`, which nobody asked for.
            split.header.clear();
        }
        if split.header.is_empty() {
            split.header_value.clear();
            split.header_pattern.clear();
        }
        let number = |number: Option<i64>, default| {
            number.and_then(|number| u32::try_from(number).ok()).unwrap_or(default)
        };
        split.weight = number(self.weight, 0);
        split.weight_total = number(self.weight_total, 100).max(100);
        let is_sticky = self.is_legacy != Some(true);
        Finished::Canary(Box::new(Canary { split: self.split, is_sticky }))
    }
}

/// The reference's alphabet of regular expressions.
fn has_letters(text: &str) -> bool {
    is_plain(text, br"^$[](){}*+?&=\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(all: &[(&str, &str)]) -> (Finished, Vec<Note>) {
        let (mut draft, mut notes) = (Draft::default(), Vec::new());
        for &(name, text) in all {
            let mut compiler = Compiler::new([]);
            assert!(draft.take(Value { name, text, notes: &mut notes }, &mut compiler), "{name}");
        }
        let finished = draft.finish(&mut notes);
        (finished, notes)
    }

    fn canary(rules: &[(&str, &str)]) -> (Canary, usize) {
        match read(&[&[("canary", "true")], rules].concat()) {
            (Finished::Canary(canary), notes) => (*canary, notes.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rules_without_canary_make_no_canary() {
        for canary in [&[][..], &[("canary", "false")]] {
            let all = [canary, &[("canary-weight", "10")]].concat();
            let (finished, notes) = read(&all);
            assert_eq!((finished, notes.len()), (Finished::Main, 1));
        }
        assert_eq!(read(&[("canary-weight-total", "10")]), (Finished::Main, vec![]));
        assert_eq!(read(&[("canary", "no")]).0, Finished::Main);
        assert_eq!(read(&[("canary", "yes"), ("canary-weight", "9")]).0, Finished::Unclear);
    }

    #[test]
    fn weights_are_numbers_and_a_total_is_at_least_100() {
        let (canary_of_5, notes) = canary(&[("canary-weight", "5")]);
        assert_eq!((canary_of_5.split.weight, canary_of_5.split.weight_total, notes), (5, 100, 0));
        for (total, expected) in [("50", 100), ("1000", 1_000)] {
            let (canary, notes) = canary(&[("canary-weight", "5"), ("canary-weight-total", total)]);
            assert_eq!((canary.split.weight_total, notes), (expected, 0));
        }
        for text in ["", "-1", "5%", "ten", "99999999999"] {
            assert_eq!(canary(&[("canary-weight", text)]).1, 1, "{text}");
            assert_eq!(canary(&[("canary-weight", text)]).0.split.weight, 0, "{text}");
        }
        let (canary, notes) = canary(&[("canary-weight", "5"), ("canary-weight-total", "-5")]);
        assert_eq!((canary.split.weight_total, notes), (100, 1));
    }

    #[test]
    fn names_of_headers_and_cookies_are_tokens() {
        let (named, _) = canary(&[("canary-by-header", "X-Next"), ("canary-by-cookie", "next")]);
        assert_eq!((&*named.split.header, &*named.split.cookie), ("X-Next", "next"));
        for text in ["", "a b", "a:b", "a/b", "a;b", "a\nb", "é"] {
            let (canary, notes) = canary(&[("canary-by-header", text), ("canary-by-cookie", text)]);
            assert_eq!((&*canary.split.header, &*canary.split.cookie), ("", ""), "{text:?}");
            assert_eq!(notes, 2, "{text:?}");
        }
    }

    #[test]
    fn a_header_without_its_value_or_pattern_decides_nothing() {
        for (name, good, bad) in
            [("canary-by-header-value", "a b", "a;b"), ("canary-by-header-pattern", "^v[23]$", "(")]
        {
            let (of_good, notes) = canary(&[("canary-by-header", "x"), (name, good)]);
            assert_eq!((&*of_good.split.header, notes), ("x", 0));
            assert_eq!(
                format!("{}{}", of_good.split.header_value, of_good.split.header_pattern),
                good
            );
            let (of_bad, notes) = canary(&[("canary-by-header", "x"), (name, bad)]);
            assert_eq!((of_bad.split, notes), (canary(&[("canary-weight", "0")]).0.split, 1));
        }
    }

    #[test]
    fn patterns_are_what_the_module_takes() {
        let is_pattern = |text: &str| {
            let rules = [("canary-by-header", "x"), ("canary-by-header-pattern", text)];
            canary(&rules).0.split.header_pattern == text
        };
        for text in ["^v[0-9]+$", r"\d\.", "a|b", "(?:x)*", "(?=a)", r"^(\w+)-\1$"] {
            assert!(is_pattern(text), "{text}");
        }
        for text in ["(", "a b", "\"", "a{1000}{1000}{1000}", &"a".repeat(1_025)] {
            assert!(!is_pattern(text), "{text}");
        }
    }

    #[test]
    fn a_canary_shares_the_affinity_unless_it_is_legacy() {
        for (text, is_sticky, notes) in [("sticky", true, 0), ("legacy", false, 0), ("x", true, 1)]
        {
            let all = [("canary-weight", "5"), ("affinity-canary-behavior", text)];
            let (canary, noted) = canary(&all);
            assert_eq!((canary.is_sticky, noted), (is_sticky, notes), "{text}");
        }
        assert!(canary(&[("canary-weight", "5")]).0.is_sticky);
    }
}
