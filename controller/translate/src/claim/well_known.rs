//! Paths below `/.well-known/`, which belong to a host's owner.

use oxigress_core::model::{self, PathPattern, WELL_KNOWN};
use oxigress_core::patterns::literal_prefix;
use std::borrow::Cow;

/// Whether a path lies below [`WELL_KNOWN`], or is an expression whose plain beginning does or may lead there. Others, such
/// as `/(.*)`, are served, and the router leaves what lies there to the owner.
pub fn is_well_known(pattern: &PathPattern) -> bool {
    let plain = plain_beginning(pattern);
    let is_expression = matches!(pattern, PathPattern::Regex(_));
    model::is_well_known(&plain)
        || is_expression && plain.len() > 1 && WELL_KNOWN.as_bytes().starts_with(&plain)
}

/// Whether all that a path takes lies below [`WELL_KNOWN`].
pub fn is_below_well_known(pattern: &PathPattern) -> bool {
    model::is_well_known(&plain_beginning(pattern))
}

fn plain_beginning(pattern: &PathPattern) -> Cow<'_, [u8]> {
    match pattern {
        PathPattern::Exact(path) | PathPattern::Prefix(path) => path.as_bytes().into(),
        PathPattern::Regex(text) => literal_prefix(text).into(),
    }
}
