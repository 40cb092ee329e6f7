//! The orders of paths, prefixes and regular expressions within a server.

use std::cmp::Ordering;

/// Compares byte by byte, with `/` below every other byte.
pub fn segment_order(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: u8| if byte == b'/' { 0 } else { u16::from(byte) + 1 };
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => rank(x).cmp(&rank(y)),
        None => a.len().cmp(&b.len()),
    }
}

/// Compares the texts of two rules that both match a path: the longer one is stronger, of equal lengths the one that is
/// greater byte by byte.
pub fn strength(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Compares a literal, which is in lower case, with a path in any case.
pub fn folded_order(literal: &[u8], path: &[u8]) -> Ordering {
    literal.iter().copied().cmp(path.iter().map(u8::to_ascii_lowercase))
}

/// Whether a path starts with a literal, ignoring case.
pub fn starts_with_folded(path: &[u8], literal: &[u8]) -> bool {
    path.get(..literal.len()).is_some_and(|start| start.eq_ignore_ascii_case(literal))
}

/// Whether a prefix matches a path: they are equal, or the path continues with a slash.
pub fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}
