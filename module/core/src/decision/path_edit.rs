//! Paths and redirects of the Gateway API.
//!
//! Source:  HTTPPathModifier, HTTPRequestRedirectFilter.

use super::redirect::without_port;
use super::rewrite::escape_path;
use crate::model::policy::{PathEdit, RedirectTo};
use crate::text::percent::unescape;

/// The path, decoded, in place of the client's; begins with a slash. `None`: the path has a segment `.` or `..` then, or a
/// control byte.
pub fn edited(edit: &PathEdit, path: &[u8]) -> Option<Vec<u8>> {
    let mut edited = Vec::new();
    match edit {
        PathEdit::Full(to) => unescape(to.as_str().as_bytes(), &mut edited),
        PathEdit::Prefix { from, to } => {
            let rest = path.strip_prefix(from.as_str().as_bytes()).unwrap_or(path);
            unescape(to.as_str().as_bytes(), &mut edited);
            if !rest.is_empty() {
                while edited.last() == Some(&b'/') {
                    edited.pop();
                }
            }
            edited.extend_from_slice(rest);
        }
    }
    match edited.iter().take_while(|byte| **byte == b'/').count() {
        0 => edited.insert(0, b'/'),
        slashes => drop(edited.drain(1..slashes)),
    }
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    let is_plain = !edited.iter().any(u8::is_ascii_control)
        && !edited.split(|byte| *byte == b'/').any(is_dots);
    is_plain.then_some(edited)
}

/// The value of `Location`. `host` is the `Host` header as sent, `path` nginx's normal form, `target` path and query as sent.
/// `None`: the client names no host, and the redirect neither; or the path is none.
pub fn location(to: &RedirectTo, host: &[u8], path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let host = match &to.host {
        Some(host) => host.as_str().as_bytes(),
        None => without_port(host),
    };
    if host.is_empty() {
        return None;
    }
    let mut location = [to.scheme.as_str().as_bytes(), b"://", host].concat();
    if let Some(port) = to.port {
        location.extend(format!(":{port}").bytes());
    }
    match &to.path {
        None => location.extend_from_slice(target),
        Some(edit) => {
            escape_path(&edited(edit, path)?, &mut location);
            let query = target.iter().position(|byte| *byte == b'?');
            location.extend_from_slice(query.and_then(|at| target.get(at..)).unwrap_or_default());
        }
    }
    Some(location)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::HeaderValue;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::parse(text).unwrap()
    }

    fn prefix(from: &str, to: &str) -> PathEdit {
        PathEdit::Prefix { from: value(from), to: value(to) }
    }

    #[test]
    fn a_prefix_is_replaced_by_whole_segments() {
        for (path, from, to, expected) in [
            ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
            ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
            ("/foo/bar", "/foo", "/", "/bar"),
            ("/foo/bar", "/foo", "", "/bar"),
            ("/foo", "/foo", "", "/"),
            ("/foo", "/foo", "/", "/"),
            ("/foo", "/foo", "/xyz", "/xyz"),
            ("/foo/", "/foo", "/xyz", "/xyz/"),
            ("/foo", "/foo", "/xyz/", "/xyz/"),
            ("/a", "", "/x", "/x/a"),
            ("/foo/b c", "/foo", "/x%20y", "/x y/b c"),
        ] {
            let edited = edited(&prefix(from, to), path.as_bytes());
            assert_eq!(edited.as_deref(), Some(expected.as_bytes()), "{path} {from} {to}");
        }
        assert_eq!(edited(&PathEdit::Full(value("/x/..")), b"/"), None);
        assert_eq!(edited(&PathEdit::Full(value("//evil")), b"/").unwrap(), b"/evil");
    }

    #[test]
    fn a_redirect_keeps_what_it_does_not_name() {
        let plain =
            RedirectTo { code: 302, scheme: value("http"), host: None, port: None, path: None };
        let to = |redirect: &RedirectTo, host: &str| {
            let found = location(redirect, host.as_bytes(), b"/a b", b"/a%20b?q=1");
            found.map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(to(&plain, "a.test:8080").as_deref(), Some("http://a.test/a%20b?q=1"));
        assert_eq!(to(&plain, ""), None);
        let port = RedirectTo { port: Some(8443), scheme: value("https"), ..plain.clone() };
        assert_eq!(to(&port, "[::1]:80").as_deref(), Some("https://[::1]:8443/a%20b?q=1"));
        let full = Some(PathEdit::Full(value("/é?x")));
        let path = RedirectTo { path: full, host: Some(value("b.test")), ..plain };
        assert_eq!(to(&path, "").as_deref(), Some("http://b.test/%C3%A9%3Fx?q=1"));
    }
}
