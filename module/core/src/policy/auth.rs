//! External authentication: the auth subrequest and its answer.
//!
//! Source:  ingress-nginx's annotations; an answer that cannot be honoured refuses the request.

pub mod answers;
pub mod parts;

use crate::http::header;
use crate::text::percent;

/// What the answer of an auth server means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The auth server admits the request.
    Allowed,
    /// The client gets this status, which is final.
    Refused(u16),
    /// The answer is neither: the request is refused.
    Broken,
}

/// The verdict of an answer with this status.
pub fn verdict(status: u16) -> Verdict {
    match status {
        200..=299 => Verdict::Allowed,
        401 | 403 => Verdict::Refused(status),
        _ => Verdict::Broken,
    }
}

/// Statuses with which the cookies of the auth server reach the client: those of nginx's `add_header`.
pub fn carries_cookies(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

/// A header of a client that the auth server gets.
pub fn is_passed(name: &[u8]) -> bool {
    !header::is_withheld_from_auth(name)
}

/// A request target that begins with a slash and has no byte that would end it.
pub fn target(text: &[u8]) -> Vec<u8> {
    let mut target = Vec::with_capacity(text.len() + 1);
    if text.first() != Some(&b'/') {
        target.push(b'/');
    }
    push_printable(&mut target, text);
    target
}

/// Whether a sign-in URL needs the parameter with the URL to return to, because it does not have it yet.
pub fn needs_return_parameter(signin: &str, parameter: &str) -> bool {
    let (_, query) = signin.split_once('?').unwrap_or((signin, ""));
    !query.split('&').any(|pair| {
        pair.split_once('=').is_some_and(|(name, value)| name == parameter && !value.is_empty())
    })
}

/// The `Location` for a client that has to sign in. `back` has the parameter, and scheme, authority and request
/// target of the URL to return to.
pub fn signin(url: &[u8], back: Option<(&str, [&[u8]; 3])>) -> Vec<u8> {
    let mut location = Vec::with_capacity(url.len() + 64);
    push_printable(&mut location, url);
    let Some((parameter, [scheme, authority, target])) = back else { return location };
    match (url.contains(&b'?'), url.last()) {
        (false, _) => location.push(b'?'),
        (true, Some(b'?' | b'&')) => {}
        (true, _) => location.push(b'&'),
    }
    location.extend_from_slice(parameter.as_bytes());
    location.push(b'=');
    location.extend_from_slice(scheme);
    location.extend_from_slice(b"://");
    location.extend(percent::escaped(authority, b"~:[]"));
    location.extend(percent::escaped(target, b"~"));
    location
}

/// What would end a line or a request target is escaped.
fn push_printable(into: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            0..=b' ' | 0x7f => into.extend(percent::escape(byte)),
            _ => into.push(byte),
        }
    }
}

/// A text as the value of a parameter: all but unreserved characters (RFC 3986 §2.3) is escaped.
pub fn escaped(text: &[u8]) -> Vec<u8> {
    percent::escaped(text, b"~").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_2xx_lets_in_and_only_401_and_403_are_said_to_the_client() {
        for status in 0..1000 {
            let expected = match status {
                200..=299 => Verdict::Allowed,
                401 => Verdict::Refused(401),
                403 => Verdict::Refused(403),
                _ => Verdict::Broken,
            };
            assert_eq!(verdict(status), expected, "{status}");
        }
    }

    #[test]
    fn what_we_say_ourselves_is_withheld_however_it_is_spelt() {
        for name in [
            "X-Original-URL",
            "x_original_url",
            "X-Original-Method",
            "X-ORIGINAL_anything",
            "X-Forwarded-For",
            "x_forwarded-proto",
            "X-Real-IP",
            "X-Auth-Request-Redirect",
            "X-Sent-From",
            "ssl-client-verify",
            "SSL_Client_Subject_DN",
            "Content-Length",
            "Transfer_Encoding",
            "Host",
            "If-None-Match",
            "Range",
        ] {
            assert!(!is_passed(name.as_bytes()), "{name}");
        }
        for name in ["Authorization", "Cookie", "X-Origin", "X-Forwarded", "Accept", "X-Api-Key"] {
            assert!(is_passed(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_target_stays_one_target() {
        assert_eq!(target(b"/auth?x=1"), b"/auth?x=1");
        assert_eq!(target(b""), b"/");
        assert_eq!(target(b"?x"), b"/?x");
        assert_eq!(target(b"/a b\r\nHost: x\0"), b"/a%20b%0D%0AHost:%20x%00");
    }

    #[test]
    fn a_client_that_signs_in_comes_back() {
        let back =
            |target: &'static [u8]| Some(("rd", [&b"https"[..], &b"shop.test:8443"[..], target]));
        let case =
            |url: &str, target| String::from_utf8(signin(url.as_bytes(), back(target))).unwrap();
        assert_eq!(
            case("https://in.test/start", b"/a b?x=1&y=%2F#z"),
            "https://in.test/start?rd=https://shop.test:8443%2Fa%20b%3Fx%3D1%26y%3D%252F%23z"
        );
        assert_eq!(
            case("https://in.test/?a=b", b"/"),
            "https://in.test/?a=b&rd=https://shop.test:8443%2F"
        );
        assert_eq!(
            case("https://in.test/?", b"/"),
            "https://in.test/?rd=https://shop.test:8443%2F"
        );
        assert_eq!(signin(b"/in\r\nX: y", None), b"/in%0D%0AX:%20y");
        // A host has no way to add a parameter.
        let odd = signin(b"/in", Some(("rd", [b"http", b"a&rd=b#c", b"/"])));
        assert_eq!(odd, b"/in?rd=http://a%26rd%3Db%23c%2F");
    }

    #[test]
    fn a_url_that_says_where_to_return_is_left_alone() {
        assert!(needs_return_parameter("https://in.test/start", "rd"));
        assert!(needs_return_parameter("https://in.test/start?x=rd", "rd"));
        assert!(needs_return_parameter("https://in.test/start?rd=", "rd"));
        assert!(needs_return_parameter("https://in.test/start?ard=1", "rd"));
        assert!(!needs_return_parameter("https://in.test/start?a=b&rd=$scheme://x", "rd"));
        assert!(needs_return_parameter("https://in.test/start?rd=1", "next"));
    }
}
