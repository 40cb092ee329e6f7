//! Label selectors, as kubectl writes them: `team=shop,stage in (test, live),!internal`.
//!
//! Source:  apimachinery labels.Parse. kube-rs knows what a selector means and writes one, but reads none.

use kube::core::{Expression, Selector};
use std::collections::BTreeSet;

/// Reads one; the error says what to write. The empty text selects everything.
pub fn parse(text: &str) -> Result<Selector, String> {
    if text.trim().is_empty() {
        return Ok(Selector::default());
    }
    let requirements = split(text)?;
    let parsed: Result<Vec<_>, _> = requirements.into_iter().map(requirement).collect();
    Ok(parsed?.into_iter().collect())
}

/// At the commas that stand in no parentheses.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut is_within) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' if !is_within => is_within = true,
            b')' if is_within => is_within = false,
            b'(' | b')' => return Err(wrong(text)),
            b',' if !is_within => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    if is_within { Err(wrong(text)) } else { Ok(parts) }
}

fn requirement(text: &str) -> Result<Expression, String> {
    let text = text.trim();
    let wrong = || wrong(text);
    if let Some((key, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(wrong)?;
        let values: Result<BTreeSet<_>, _> = values.split(',').map(|v| value(v.trim())).collect();
        let words: Vec<_> = key.split_whitespace().collect();
        return match words[..] {
            [key, "in"] => Ok(Expression::In(name(key)?, values?)),
            [key, "notin"] => Ok(Expression::NotIn(name(key)?, values?)),
            _ => Err(wrong()),
        };
    }
    if let Some((key, text)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(name(key.trim())?, value(text.trim())?));
    }
    if let Some((key, text)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(name(key.trim())?, value(text.trim())?));
    }
    match text.strip_prefix('!') {
        Some(key) => Ok(Expression::DoesNotExist(name(key.trim())?)),
        None => Ok(Expression::Exists(name(text)?)),
    }
}

fn wrong(text: &str) -> String {
    format!(
        "{text:?} is no requirement: write `a=b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a` or `!a`"
    )
}

/// A key such as `team` or `example.com/team`.
fn name(text: &str) -> Result<String, String> {
    let (prefix, name) = text.split_once('/').unwrap_or(("a", text));
    match is_word(name) && !name.is_empty() && !prefix.is_empty() && prefix.len() <= 253 {
        true if prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)) => {
            Ok(text.into())
        }
        _ => Err(format!("{text:?} is no key of a label")),
    }
}

fn value(text: &str) -> Result<String, String> {
    if is_word(text) { Ok(text.into()) } else { Err(format!("{text:?} is no value of a label")) }
}

fn is_word(text: &str) -> bool {
    text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::SelectorExt;
    use std::collections::BTreeMap;

    #[test]
    fn a_selector_means_what_it_means_to_kubectl() {
        let labels: BTreeMap<_, _> =
            [("team", "shop"), ("example.com/stage", "live"), ("empty", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
        for (text, matches) in [
            ("team=shop", true),
            ("team==shop,empty=", true),
            ("team = shop , !internal", true),
            ("example.com/stage in (test, live)", true),
            ("team notin (shop,other)", false),
            ("team!=shop", false),
            ("other!=shop", true),
            ("team", true),
            ("!team", false),
            ("internal", false),
        ] {
            assert_eq!(parse(text).unwrap().matches(&labels), matches, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in
            ["a in b", "a in (b", "a=b,", "a within (b)", "=b", "a b", "a=(b)", "/a", "a,(b)"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
