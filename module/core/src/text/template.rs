//! Texts of users with variables and captures.
//!
//! Shape:   `$name` and `${name}` are variables, `$1` and `${1}` captures, all else is text, also a `$` that begins
//!          no name.
//! Errors:  `None` for a text that is too long, or would end a header's line, when it is expanded.
//! Source:  nginx's own syntax; the list and what a value may hold are ours.

pub mod cost;

use std::borrow::Cow;
use std::cmp::Ordering;

/// The longest text that a template expands to: twice the limit of nginx for all headers of a request.
pub const MAX_EXPANDED_BYTES: usize = 64 * 1024;

/// How many bytes of values all texts of one request may have, where [`Values`] counts them: four of the longest texts.
pub const MAX_BYTES_OF_REQUEST: usize = 4 * MAX_EXPANDED_BYTES;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Text that stands for itself.
    Literal(&'a [u8]),
    /// The value of a variable of nginx or of ours, as it is written: nginx looks it up in lower case.
    Variable(&'a [u8]),
    /// What the path pattern's group of this number matched.
    Capture(u8),
}

/// The variables that a text of a user may have: content and origin of the request, but nothing about this machine,
/// other requests or secrets. By length, then by letters: mostly a length tells names apart.
const NAMES: [&str; 61] = [
    "uri",
    "args",
    "host",
    "http2",
    "https",
    "dollar",
    "req_id",
    "scheme",
    "is_args",
    "request",
    "hostname",
    "namespace",
    "pass_port",
    "proxy_host",
    "request_id",
    "ssl_cipher",
    "remote_addr",
    "remote_port",
    "remote_user",
    "request_uri",
    "server_addr",
    "server_name",
    "server_port",
    "the_real_ip",
    "content_type",
    "document_uri",
    "ingress_name",
    "query_string",
    "service_name",
    "service_port",
    "ssl_protocol",
    "document_root",
    "location_path",
    "best_http_host",
    "content_length",
    "request_method",
    "ssl_session_id",
    "server_protocol",
    "ssl_client_i_dn",
    "ssl_client_s_dn",
    "ssl_server_name",
    "pass_server_port",
    "request_filename",
    "fastcgi_path_info",
    "ssl_client_serial",
    "ssl_client_verify",
    "binary_remote_addr",
    "pass_access_scheme",
    "realip_remote_addr",
    "realip_remote_port",
    "escaped_request_uri",
    "fastcgi_script_name",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_upstream_name",
    "opentelemetry_span_id",
    "opentelemetry_trace_id",
    "ssl_client_fingerprint",
    "proxy_add_x_forwarded_for",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
];

/// Prefixes of variables whose name continues with that of a parameter, cookie, header or variable of a script.
const PREFIXES: [&str; 4] = ["arg_", "cookie_", "http_", "snippet_"];

/// Whether a variable has this name, whatever a request has: no other one may have it.
pub fn is_known(name: &[u8]) -> bool {
    NAMES.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a text of a user may have this variable.
pub fn is_allowed(name: &[u8]) -> bool {
    // As almost everybody writes it: a look into a sorted list.
    if NAMES.binary_search_by(|known| by_length(known.as_bytes(), name)).is_ok() {
        return true;
    }
    let same = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
            && name.len() > prefix.len()
    };
    PREFIXES.iter().any(begins) || NAMES.iter().any(same)
}

#[inline]
fn by_length(one: &[u8], other: &[u8]) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// The variable behind a name in lower case: some of ingress-nginx's names stand for another one here.
pub fn alias(name: &[u8]) -> &[u8] {
    match name {
        // nginx has a variable of this name too: the name of an upstream block, which is one for all backends.
        b"proxy_host" => b"proxy_upstream_name",
        b"the_real_ip" => b"remote_addr",
        name => name,
    }
}

/// What the parts of a template stand for, during one request.
pub trait Values {
    /// The value of a variable by its lower-case name, which is no [`alias`]; `None`: there is none.
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>>;
    /// What the path pattern's group of this number matched.
    fn capture(&self, number: u8) -> &[u8];

    /// Counts bytes that a text has of values; `false`: the request has no more for it, and the text is none.
    fn spend(&self, bytes: usize) -> bool {
        let _ = bytes;
        true
    }

    /// The text that replaces a part.
    fn value<'v>(&'v self, part: Part<'v>) -> Cow<'v, [u8]> {
        match part {
            Part::Literal(text) => Cow::Borrowed(text),
            Part::Capture(number) => Cow::Borrowed(self.capture(number)),
            // nginx has no way to write one that begins no name.
            Part::Variable(b"dollar") => Cow::Borrowed(b"$"),
            Part::Variable(name) if name.iter().any(u8::is_ascii_uppercase) => {
                let value = self.variable(alias(&name.to_ascii_lowercase()));
                Cow::Owned(value.unwrap_or_default().into_owned())
            }
            Part::Variable(name) => self.variable(alias(name)).unwrap_or_default(),
        }
    }
}

/// The text with its variables and captures, once: what these hold is never looked at again. `None`: it is too
/// long, or has a byte that no header's value may have; or the request's texts together are too long.
pub fn expand<'t>(parts: impl Iterator<Item = Part<'t>>, values: &impl Values) -> Option<Vec<u8>> {
    let mut has_room = true;
    let text = assemble(parts, |part, text| {
        // Nothing is looked up for a text that is none.
        if has_room {
            let value = values.value(part);
            has_room = matches!(part, Part::Literal(_)) || values.spend(value.len());
            text.extend_from_slice(&value);
        }
    })?;
    let ends_line = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    (has_room && !text.iter().fold(false, |any, byte| any | ends_line(byte))).then_some(text)
}

/// As [`expand`], without its limits: for a key, which is no header and may have any length.
pub fn bytes<'t>(parts: impl Iterator<Item = Part<'t>>, values: &impl Values) -> Vec<u8> {
    parts.fold(Vec::new(), |mut text, part| {
        text.extend_from_slice(&values.value(part));
        text
    })
}

/// The text that `put` makes of each part; `None`: it is too long.
pub(crate) fn assemble<'t>(
    parts: impl Iterator<Item = Part<'t>>,
    mut put: impl FnMut(Part<'t>, &mut Vec<u8>),
) -> Option<Vec<u8>> {
    // Nearly all are shorter: what has room is not moved.
    let mut text = Vec::with_capacity(64);
    for part in parts {
        put(part, &mut text);
        if text.len() > MAX_EXPANDED_BYTES {
            return None;
        }
    }
    Some(text)
}

/// The parts of a text, in order; variables whether they are allowed or not.
pub fn parts(text: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, after) = first_part(rest);
        rest = after;
        Some(part)
    })
}

/// The first part of a text that is not empty, and what follows.
fn first_part(text: &[u8]) -> (Part<'_>, &[u8]) {
    if let Some((name, after)) = variable(text) {
        return match name.first() {
            Some(digit @ b'0'..=b'9') if name.len() == 1 => (Part::Capture(digit - b'0'), after),
            _ => (Part::Variable(name), after),
        };
    }
    // A `$` that begins no variable is text: look for the next one behind it.
    let next = text.iter().skip(1).position(|byte| *byte == b'$').map_or(text.len(), |at| at + 1);
    let (literal, after) = text.split_at_checked(next).unwrap_or((text, &[]));
    (Part::Literal(literal), after)
}

fn variable(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = text.strip_prefix(b"$")?;
    let (braced, after) = match after.strip_prefix(b"{") {
        Some(after) => (true, after),
        None => (false, after),
    };
    // `$1x` is a capture and an `x`.
    let is_capture = after.first().is_some_and(u8::is_ascii_digit);
    let is_name = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_');
    let end = match is_capture {
        true => after.iter().position(|byte| !byte.is_ascii_digit()),
        false => after.iter().position(|byte| !is_name(byte)),
    };
    let end = end.unwrap_or(after.len());
    let (name, after) = after.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    if braced { Some((name, after.strip_prefix(b"}")?)) } else { Some((name, after)) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Variables and captures, the whole match first.
    pub(crate) struct FixedValues<'a>(pub &'a [(&'a str, &'a str)], pub &'a [&'a str]);

    impl Values for FixedValues<'_> {
        fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
            let found = self.0.iter().find(|(known, _)| known.as_bytes() == name)?;
            Some(found.1.as_bytes().into())
        }

        fn capture(&self, number: u8) -> &[u8] {
            self.1.get(usize::from(number)).map_or(&[], |text| text.as_bytes())
        }
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(NAMES.is_sorted_by(|a, b| by_length(a.as_bytes(), b.as_bytes()).is_lt()));
    }

    #[test]
    fn a_digit_is_a_capture_and_what_follows_is_text() {
        let all: Vec<_> = parts(b"/$1x${2}$arg_1").collect();
        let expected =
            [Part::Literal(b"/"), Part::Capture(1), Part::Literal(b"x"), Part::Capture(2)];
        assert_eq!(all[..4], expected);
        assert_eq!(all[4..], [Part::Variable(b"arg_1")]);
    }

    #[test]
    fn a_text_is_expanded_once() {
        let values = FixedValues(&[("arg_a", "$host$1"), ("http_x", "x")], &["/all", "$arg_a"]);
        let expand = |text: &str| expand(parts(text.as_bytes()), &values);
        assert_eq!(expand("<$arg_a$1$2$HTTP_X$none>").unwrap(), b"<$host$1$arg_ax>");
    }

    #[test]
    fn names_of_the_reference_stand_for_what_they_mean_there() {
        let values =
            FixedValues(&[("proxy_upstream_name", "a-b-80"), ("remote_addr", "10.0.0.1")], &[]);
        let expand = |text: &str| expand(parts(text.as_bytes()), &values);
        assert_eq!(
            expand("$proxy_host ${Proxy_Host} $the_real_ip").unwrap(),
            b"a-b-80 a-b-80 10.0.0.1"
        );
        assert!(NAMES.iter().all(|name| is_allowed(alias(name.as_bytes()))));
    }

    #[test]
    fn what_would_end_a_line_or_never_ends_is_refused() {
        let long = "a".repeat(MAX_EXPANDED_BYTES / 2 + 1);
        let values =
            FixedValues(&[("uri", "/a\r\nSet-Cookie: x"), ("arg_n", "\0"), ("arg_l", &long)], &[]);
        let expand = |text: &str| expand(parts(text.as_bytes()), &values);
        assert_eq!(expand("$uri"), None);
        assert_eq!(expand("$arg_n"), None);
        assert!(expand("$arg_l").is_some());
        assert_eq!(expand("$arg_l$arg_l"), None);
    }

    /// A value of 100 bytes for every variable, as long as there is room.
    struct Purse(std::cell::Cell<usize>, std::cell::Cell<usize>);

    impl Values for Purse {
        fn variable(&self, _: &[u8]) -> Option<Cow<'_, [u8]>> {
            self.1.set(self.1.get() + 1);
            Some(vec![b'a'; 100].into())
        }

        fn capture(&self, _: u8) -> &[u8] {
            &[]
        }

        fn spend(&self, bytes: usize) -> bool {
            let room = self.0.get().checked_sub(bytes);
            self.0.set(room.unwrap_or(0));
            room.is_some()
        }
    }

    #[test]
    fn the_texts_of_a_request_have_one_budget() {
        let values = Purse(250.into(), 0.into());
        let expand = |text: &str| expand(parts(text.as_bytes()), &values);
        assert_eq!(expand("$host").map(|text| text.len()), Some(100));
        assert_eq!(expand("a text of its own").map(|text| text.len()), Some(17));
        assert_eq!(expand("$host$host$host$host"), None);
        assert_eq!(values.1.get(), 3, "nothing is looked up for a text that is none");
        assert_eq!(expand("$host"), None);
    }
}
