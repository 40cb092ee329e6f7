//! What is closed where a path cannot be served: a shorter path, which may be open, would take its requests.

use oxigress_core::model::PathPattern;
use oxigress_core::patterns::{MAX_PATTERN_BYTES, leading_text};

/// What closes a path that is not served, and the text that requests begin with then: of an expression what all its matches begin
/// with, of any other path as much of it as can be served. It is compared as nginx compares expressions, upper and lower case alike,
/// since the rest may begin within a segment. Nothing closes a whole host.
pub fn of(written: &str, is_regex: bool) -> Option<(PathPattern, &str)> {
    let text = match is_regex {
        true => leading_text(written),
        false => servable(written),
    };
    let pattern = PathPattern::uncompiled(&literal(text)).ok()?;
    (text.len() > 1).then_some((pattern, text))
}

/// The beginning of a path that is not served as a whole.
fn servable(written: &str) -> &str {
    let end = written.bytes().position(|byte| byte.is_ascii_control()).unwrap_or(written.len());
    // As an expression no letter takes more than two bytes.
    let mut end = end.min(MAX_PATTERN_BYTES / 2);
    while !written.is_char_boundary(end) {
        end -= 1;
    }
    written.get(..end).unwrap_or_default()
}

/// An expression that matches this text.
fn literal(text: &str) -> String {
    let is_plain =
        |letter: char| letter.is_alphanumeric() || !letter.is_ascii() || "/_-".contains(letter);
    let escaped = text.chars().flat_map(|letter| {
        let mark = (!is_plain(letter)).then_some('\\');
        mark.into_iter().chain([letter])
    });
    escaped.collect()
}
