//! Which of a client's headers a change is about.

use super::header::{is_alike, is_replaced, is_reserved};
use crate::model::policy::InputEdit;

/// Whether it is about a header of this name. What frames a message, and what the gateway sends of itself, no beginning of names
/// takes away.
pub fn is_about(edit: &InputEdit, name: &[u8]) -> bool {
    let Some(prefix) = edit.prefix() else {
        return is_alike(name, edit.name.as_str().as_bytes());
    };
    let start = name.get(..prefix.len());
    start.is_some_and(|start| is_alike(start, prefix.as_bytes()))
        && !is_reserved(name)
        && !is_replaced(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_more_letters_only_where_headers_are_taken_away() {
        let edit = |text: &str| serde_json::from_str::<InputEdit>(text).unwrap();
        let all = edit(r#"{"name": "X-*"}"#);
        for (name, expected) in [
            ("x-a", true),
            ("X_B", true),
            ("X-Forwarded-Secret", true),
            ("X-Real-IP", false),
            ("Cookie", false),
            ("x", false),
        ] {
            assert_eq!(is_about(&all, name.as_bytes()), expected, "{name}");
        }
        assert!(!is_about(&edit(r#"{"name": "*"}"#), b"Content-Length"));
        let one = edit(r#"{"name": "X-*", "value": "a"}"#);
        assert!(!is_about(&one, b"X-A") && is_about(&one, b"x-*"));
        assert!(is_about(&edit(r#"{"name": "X-A"}"#), b"x_a"));
    }
}
