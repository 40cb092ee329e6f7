//! Texts of users with variables and captures.
//!
//! Shape:   `$name` and `${name}` are variables, `$1` and `${1}` captures, all else is text, also a `$` that begins
//!          no name.
//! Source:  nginx's own syntax; security.md §2 for the list.

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// As it is.
    Literal(&'a [u8]),
    /// The value of a variable of nginx or of ours, as it is written: nginx looks it up in lower case.
    Variable(&'a [u8]),
    /// What the path pattern's group of this number matched.
    Capture(u8),
}

/// Variables that a text of a user may have: what a request says and where it came from. Nothing that tells of
/// this machine, other requests or secrets.
const NAMES: [&str; 54] = [
    "args",
    "best_http_host",
    "binary_remote_addr",
    "content_length",
    "content_type",
    "document_uri",
    "host",
    "hostname",
    "http2",
    "https",
    "ingress_name",
    "is_args",
    "location_path",
    "namespace",
    "pass_access_scheme",
    "pass_port",
    "pass_server_port",
    "proxy_add_x_forwarded_for",
    "proxy_host",
    "proxy_protocol_addr",
    "proxy_protocol_port",
    "proxy_protocol_server_addr",
    "proxy_protocol_server_port",
    "proxy_upstream_name",
    "query_string",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_addr",
    "remote_port",
    "remote_user",
    "req_id",
    "request",
    "request_filename",
    "request_id",
    "request_method",
    "request_uri",
    "scheme",
    "server_addr",
    "server_name",
    "server_port",
    "server_protocol",
    "service_name",
    "service_port",
    "ssl_cipher",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_s_dn",
    "ssl_client_serial",
    "ssl_client_verify",
    "ssl_protocol",
    "ssl_server_name",
    "ssl_session_id",
    "the_real_ip",
    "uri",
];

/// Variables whose name goes on.
const PREFIXES: [&str; 3] = ["arg_", "cookie_", "http_"];

/// Whether a text of a user may have this variable.
pub fn is_allowed(name: &[u8]) -> bool {
    // As almost everybody writes it: a look into a sorted list, at the cost of some six comparisons.
    if NAMES.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok() {
        return true;
    }
    let same = |known: &&str| known.as_bytes().eq_ignore_ascii_case(name);
    let begins = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
            && name.len() > prefix.len()
    };
    PREFIXES.iter().any(begins) || NAMES.iter().any(same)
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
    let is_name = |byte: &u8| {
        byte.is_ascii_digit() || !is_capture && (byte.is_ascii_alphabetic() || *byte == b'_')
    };
    let end = after.iter().position(|byte| !is_name(byte)).unwrap_or(after.len());
    let (name, after) = after.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    if braced { Some((name, after.strip_prefix(b"}")?)) } else { Some((name, after)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn a_digit_is_a_capture_and_what_follows_is_text() {
        let all: Vec<_> = parts(b"/$1x${2}$arg_1").collect();
        let expected =
            [Part::Literal(b"/"), Part::Capture(1), Part::Literal(b"x"), Part::Capture(2)];
        assert_eq!(all[..4], expected);
        assert_eq!(all[4..], [Part::Variable(b"arg_1")]);
    }
}
