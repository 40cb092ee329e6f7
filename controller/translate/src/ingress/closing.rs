//! What is closed where a path cannot be served: a shorter path, which may be open, would take its requests.

use oxigress_core::model::PathPattern;
use oxigress_core::patterns::{leading_text, plain_start};

/// The longest text that closes a path, in bytes: to compare a longer one with a long path would take more than a request may have.
const LONGEST: usize = 256;

/// What closes a path that is not served, and the text that requests begin with then: of an expression what all its matches begin
/// with, of any other path its first plain letters. It is compared as nginx compares expressions, upper and lower case alike, since
/// the rest may begin within a segment. Nothing closes a whole host.
pub fn of(written: &str, is_regex: bool) -> Option<(PathPattern, &str)> {
    let text = match is_regex {
        true => leading_text(written),
        // Nothing is compiled for it.
        false => {
            plain_start(written.get(..written.floor_char_boundary(LONGEST)).unwrap_or_default())
        }
    };
    let pattern = PathPattern::uncompiled(text).ok()?;
    (text.len() > 1).then_some((pattern, text))
}
