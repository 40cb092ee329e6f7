//! The text that consistent hashing hashes, with variables.
//!
//! Shape:   a [`template`].
//! Errors:  none: a variable that is not on the list is empty, as an unknown one is in the reference.
//! Source:  ingress-nginx's Lua balancer, chash; the list of variables is ours.

use crate::model::policy::script;
use crate::text::template;
pub use crate::text::template::Part;

/// The parts of a key. Those that are empty are left out.
pub fn parse(key: &[u8]) -> impl Iterator<Item = Part<'_>> {
    template::parts(key).filter(|part| match part {
        Part::Literal(_) | Part::Capture(_) => true,
        Part::Variable(name) => is_allowed(name),
    })
}

/// Whether a key may have this variable: those of a snippet are its own, and who gets an endpoint could tell them.
pub fn is_allowed(name: &[u8]) -> bool {
    template::is_allowed(name) && !script::is_variable(name)
}

#[cfg(test)]
mod tests {
    use super::Part::{Literal, Variable};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_text_and_variables() {
        for (key, expected) in [
            ("$request_uri", vec![Variable(b"request_uri")]),
            (
                "${http_x_tenant}-$host",
                vec![Variable(b"http_x_tenant"), Literal(b"-"), Variable(b"host")],
            ),
            ("${host}name", vec![Variable(b"host"), Literal(b"name")]),
            ("a$arg_x.b", vec![Literal(b"a"), Variable(b"arg_x"), Literal(b".b")]),
            ("plain", vec![Literal(b"plain")]),
            ("$arg_1x", vec![Variable(b"arg_1x")]),
            ("$HTTP_X", vec![Variable(b"HTTP_X")]),
            ("", vec![]),
            // Text after all.
            ("$", vec![Literal(b"$")]),
            ("a$$host", vec![Literal(b"a"), Literal(b"$"), Variable(b"host")]),
            ("${host", vec![Literal(b"${host")]),
            ("${}", vec![Literal(b"${}")]),
            ("$-x", vec![Literal(b"$-x")]),
        ] {
            assert_eq!(parse(key.as_bytes()).collect::<Vec<_>>(), expected, "{key}");
        }
    }

    #[test]
    fn what_is_not_on_the_list_is_empty() {
        for key in [
            "$unknown",
            "$pid",
            "$msec",
            "$realpath_root",
            "$ssl_client_cert",
            "$http_",
            "$nginx_version",
            "$snippet_s_token",
            "$SNIPPET_s_token",
        ] {
            assert_eq!(parse(key.as_bytes()).next(), None, "{key}");
        }
        let all: Vec<_> = parse(b"a$1$pid").collect();
        assert_eq!(all, [Literal(b"a"), Part::Capture(1)]);
    }

    proptest! {
        #[test]
        fn text_without_variables_stays_whole(key in "[a-z${}_ -]{0,40}") {
            let parts: usize = parse(key.as_bytes())
                .map(|part| match part { Literal(text) | Variable(text) => text.len(), Part::Capture(_) => 2 })
                .sum();
            prop_assert!(parts <= key.len());
            if !key.contains('$') {
                prop_assert_eq!(parts, key.len());
            }
        }
    }
}
