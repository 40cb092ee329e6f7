//! The path and query that an endpoint sees in place of the client's.
//!
//! Shape:   text before the target's first `?` is the path, text behind it the query, which the client's own
//!          follows, unless the target ends with a `?`.
//! Errors:  [`Refused`]: 400. What captures and variables hold is the client's, so a result that is no plain path is
//!          never sent on.
//! Source:  ngx_http_script_regex_end_code, which `rewrite` ends with. It escapes the path only if the client's was
//!          escaped, so that a variable with a space ends the request line; here it always is, and `%20` in a target
//!          stands for a space.

use crate::model::policy::Rewrite;
use crate::text::percent::unescape;
use crate::text::template::{self, Part, Values};

/// What becomes of a request with a rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// It goes on with this path, decoded, and this query, encoded.
    Uri {
        /// The new path, decoded; it begins with a slash.
        path: Vec<u8>,
        /// The new query, without the question mark.
        args: Vec<u8>,
    },
    /// It is sent to this URL, with status 302.
    Elsewhere(Vec<u8>),
}

/// The result is no path that could be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Works the target out. `args` is the client's query.
pub fn apply(rewrite: &Rewrite, args: &[u8], values: &impl Values) -> Result<Rewritten, Refused> {
    apply_text(rewrite.target.as_str(), args, values)
}

/// The same for the text of a target.
pub(super) fn apply_text(
    text: &str,
    args: &[u8],
    values: &impl Values,
) -> Result<Rewritten, Refused> {
    let (kept, keeps_args) = match text.strip_suffix('?') {
        Some(kept) => (kept, false),
        None => (text, true),
    };
    let args = if keeps_args { args } else { &[] };
    let begins = |start: &&str| kept.starts_with(*start);
    if ["http://", "https://", "$scheme"].iter().any(begins) {
        let url = elsewhere(kept, values).ok_or(Refused)?;
        return Ok(Rewritten::Elsewhere(join(url, kept.contains('?'), args)));
    }
    let mut is_path = true;
    let mut own_args = Vec::new();
    let path = template::assemble(template::parts(kept.as_bytes()), |part, path| {
        let Part::Literal(literal) = part else {
            let value = values.value(part);
            return match part {
                _ if is_path => path.extend_from_slice(&value),
                Part::Capture(_) => escape(&value, ARGUMENT, &mut own_args),
                _ => escape(&value, QUERY, &mut own_args),
            };
        };
        let (before, after) = match literal.iter().position(|byte| is_path && *byte == b'?') {
            Some(at) => (&literal[..at], Some(&literal[at + 1..])),
            None if is_path => (literal, None),
            None => (&[][..], Some(literal)),
        };
        unescape(before, path);
        if let Some(after) = after {
            is_path = false;
            // As it is, but for what would end the request target.
            escape(after, &[], &mut own_args);
        }
    });
    let mut path =
        path.filter(|_| own_args.len() <= template::MAX_EXPANDED_BYTES).ok_or(Refused)?;
    // One slash begins a path. `/$1` of a pattern such as `/app(.*)` makes two, which an endpoint might read as a
    // host's name.
    match path.iter().take_while(|byte| **byte == b'/').count() {
        0 => path.insert(0, b'/'),
        slashes => drop(path.drain(1..slashes)),
    }
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    if path.iter().any(u8::is_ascii_control) || path.split(|byte| *byte == b'/').any(is_dots) {
        return Err(Refused);
    }
    let args = match is_path {
        true => args.to_vec(),
        false if args.is_empty() => own_args,
        false => [&own_args, &b"&"[..], args].concat(),
    };
    Ok(Rewritten::Uri { path, args })
}

/// A URL for a client: what captures and decoded paths hold is escaped, so that it stays in its place.
pub(crate) fn elsewhere(text: &str, values: &impl Values) -> Option<Vec<u8>> {
    let mut is_path = true;
    template::assemble(template::parts(text.as_bytes()), |part, url| {
        let value = values.value(part);
        match part {
            Part::Literal(literal) => {
                is_path &= !literal.contains(&b'?');
                url.extend_from_slice(literal);
            }
            Part::Capture(_) => escape(&value, if is_path { PATH } else { ARGUMENT }, url),
            Part::Variable(name) if is_decoded(name) => escape(&value, PATH, url),
            Part::Variable(_) => escape(&value, URL, url),
        }
    })
}

fn join(mut url: Vec<u8>, has_args: bool, args: &[u8]) -> Vec<u8> {
    if !args.is_empty() {
        url.push(if has_args { b'&' } else { b'?' });
        url.extend_from_slice(args);
    }
    url
}

/// Variables that hold a path as nginx decoded it.
fn is_decoded(name: &[u8]) -> bool {
    [&b"uri"[..], b"document_uri", b"request_filename"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
}

/// Bytes that are escaped in one argument, beside control bytes, space, and those that are not ASCII.
const ARGUMENT: &[u8] = b"#%&+?\"<>";
/// Bytes that are escaped in a path, beside the same.
const PATH: &[u8] = b"#%?\"<>";
/// Bytes that are escaped in a query, beside the same.
const QUERY: &[u8] = b"#\"<>";
/// and of what is a URL already.
const URL: &[u8] = b"\"<>";

/// Writes a decoded path as a part of a URL.
pub(crate) fn escape_path(path: &[u8], to: &mut Vec<u8>) {
    escape(path, PATH, to);
}

fn escape(text: &[u8], special: &[u8], to: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii_graphic() && !special.contains(&byte) {
            to.push(byte);
        } else {
            let digit = |n: u8| b"0123456789ABCDEF".get(usize::from(n)).copied().unwrap_or(b'0');
            to.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Template;
    use crate::text::template::tests::FixedValues;
    use proptest::prelude::*;

    fn rewrite(target: &str, args: &str, captures: &[&str]) -> Result<String, Refused> {
        let variables = [
            ("host", "shop.test"),
            ("scheme", "http"),
            ("uri", "/u\r\nX: y?z"),
            ("request_uri", "/r%20x?q=1"),
            ("http_x", "a b#c&d"),
            ("arg_up", ".."),
        ];
        let rewrite = Rewrite { target: Template::parse(target).unwrap(), forwarded_prefix: None };
        let show = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(match apply(&rewrite, args.as_bytes(), &FixedValues(&variables, captures))? {
            Rewritten::Uri { path, args } if args.is_empty() => show(path),
            Rewritten::Uri { path, args } => format!("{} ? {}", show(path), show(args)),
            Rewritten::Elsewhere(url) => format!("302 {}", show(url)),
        })
    }

    #[test]
    fn the_whole_path_is_replaced_and_the_query_kept() {
        for (target, args, captures, expected) in [
            ("/", "", &[][..], "/"),
            ("/", "a=1", &[], "/ ? a=1"),
            ("/$2", "a=1", &["", "/", "x/y z"], "/x/y z ? a=1"),
            ("/$2", "", &["", "", ""], "/"),
            ("$1", "", &["", ""], "/"),
            ("$1", "", &["", "/x"], "/x"),
            ("/n?v=$1", "a=1", &["", "x&y=1 %"], "/n ? v=x%26y%3D1".replace("%3D", "=").as_str()),
            ("/n?v=1", "", &[], "/n ? v=1"),
            ("/n?v=1&w=2?x", "a=1", &[], "/n ? v=1&w=2?x&a=1"),
            ("/n?v=1?", "a=1", &[], "/n ? v=1"),
            ("/n?", "a=1", &[], "/n"),
            ("/n?v=$http_x", "", &[], "/n ? v=a%20b%23c&d"),
            ("/n?v=a b\tc%20#d", "", &[], "/n ? v=a%20b%09c%20#d"),
            ("/$http_x", "", &[], "/a b#c&d"),
            ("/a%20b%2", "", &[], "/a b%2"),
            // A question mark of the client's stays in the path: it is escaped on its way.
            ("/$1", "", &["", "a?b=1"], "/a?b=1"),
        ] {
            let expected = if target == "/n?v=$1" { "/n ? v=x%26y=1%20%25&a=1" } else { expected };
            assert_eq!(rewrite(target, args, captures).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn what_is_no_plain_path_is_refused() {
        for (target, captures) in [
            ("/x/$1", &["", ".."][..]),
            ("/x/$1/y", &["", "."]),
            ("/$1", &["", "../etc"]),
            ("/$arg_up/x", &[]),
            ("/%2e%2e/x", &[]),
            ("/.$1", &["", "."]),
            ("/$1", &["", "a\nb"]),
            ("/%00", &[]),
            ("$uri", &[]),
        ] {
            assert_eq!(rewrite(target, "", captures), Err(Refused), "{target} {captures:?}");
        }
        let long = "a".repeat(template::MAX_EXPANDED_BYTES);
        assert_eq!(rewrite("/$1", "", &["", &long]), Err(Refused));
        assert_eq!(rewrite("/?$1", "", &["", &long, ""]).map(|_| ()), Ok(()));
        assert_eq!(rewrite("/?$1$1", "", &["", &long]), Err(Refused));
        assert_eq!(rewrite("/..a/b..", "", &[]).as_deref(), Ok("/..a/b.."));
    }

    #[test]
    fn a_path_begins_with_one_slash() {
        for (target, captures) in
            [("/$1", &["", "/a/b"][..]), ("$1", &["", "//a/b"]), ("$1", &["", "a/b"])]
        {
            assert_eq!(rewrite(target, "", captures).as_deref(), Ok("/a/b"), "{target}");
        }
        assert_eq!(rewrite("/a$1", "", &["", "//b"]).as_deref(), Ok("/a//b"));
    }

    #[test]
    fn a_url_is_a_redirect_and_nothing_of_the_clients_leaves_its_place() {
        for (target, args, captures, expected) in [
            (
                "https://new.test/$1",
                "a=1",
                &["", "x y/ü"][..],
                "302 https://new.test/x%20y/%C3%BC?a=1",
            ),
            ("http://new.test/?b=$1", "a=1", &["", "x&y"], "302 http://new.test/?b=x%26y&a=1"),
            (
                "$scheme://$host/$1",
                "",
                &["", "a\r\nX: b?c#d"],
                "302 http://shop.test/a%0D%0AX:%20b%3Fc%23d",
            ),
            ("https://new.test$uri?", "a=1", &[], "302 https://new.test/u%0D%0AX:%20y%3Fz"),
            ("https://new.test$request_uri?", "a=1", &[], "302 https://new.test/r%20x?q=1"),
        ] {
            assert_eq!(rewrite(target, args, captures).as_deref(), Ok(expected), "{target}");
        }
    }

    proptest! {
        #[test]
        fn no_client_leaves_the_path(first in ".{0,12}", second in "[./a%?\r\n]{0,8}", args in "[a-z=&]{0,6}") {
            for target in ["/$1/$2", "$1$2", "/x$2?a=$1", "/$2/..$1", "https://a.test/$1?b=$2", "$scheme://a/$2"] {
                let Ok(text) = rewrite(target, &args, &["", &first, &second]) else { continue };
                prop_assert!(!text.bytes().any(|byte| byte.is_ascii_control()), "{:?}", text);
                if let Some(url) = text.strip_prefix("302 ") {
                    prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", text);
                } else {
                    let path = text.split(" ? ").next().unwrap();
                    prop_assert!(path.starts_with('/') && !path.starts_with("//"));
                    prop_assert!(!path.split('/').any(|segment| [".", ".."].contains(&segment)), "{:?}", text);
                }
            }
        }
    }
}
