//! Where a client is sent instead: by a rule's redirect, to a path with the slash that it lacks, or back over HTTPS.

use super::rewrite;
use crate::model::HttpsRedirect;
use crate::model::policy::Redirect;
use crate::text::template::Values;

/// Whether a request is answered with a redirect to HTTPS. Both closures are called only where they matter.
#[inline]
pub fn is_redirected(
    policy: HttpsRedirect,
    is_https: impl FnOnce() -> bool,
    has_certificate: impl FnOnce() -> bool,
) -> bool {
    match policy {
        HttpsRedirect::Never => false,
        HttpsRedirect::WithCertificate => !is_https() && has_certificate(),
        HttpsRedirect::Always => !is_https(),
    }
}

/// The value of `Location` for a redirect to HTTPS: `https://`, the host without its port, the port if one is to
/// be named, and the request target without one trailing slash, as the reference does unless told to keep it.
///
/// `host` is the `Host` header as sent; `target` the raw path and query.
pub fn location(host: &[u8], port: Option<u16>, target: &[u8], keeps_slash: bool) -> Vec<u8> {
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let target = if keeps_slash { target } else { without_slash(target) };
    [&b"https://"[..], without_port(host), port.as_bytes(), target].concat()
}

/// The host of a `Host` header; an IPv6 address keeps its brackets.
pub(super) fn without_port(host: &[u8]) -> &[u8] {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|end| end + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    end.and_then(|end| host.get(..end)).unwrap_or(host)
}

/// The value of `Location` for a rule's redirect. `None`: it leads nowhere, or is too long.
///
/// `origin` is `scheme://` and the `Host` header, if there is one, which a path is told with unless `is_relative`;
/// `target` the raw path and query.
pub fn elsewhere(
    redirect: &Redirect,
    origin: Option<&[u8]>,
    is_relative: bool,
    target: &[u8],
    values: &impl Values,
) -> Option<Vec<u8>> {
    let mut location = rewrite::elsewhere(redirect.location.as_str(), values)?;
    if redirect.appends_target {
        location.extend_from_slice(without_slash(target));
    }
    // A path that begins with two slashes would be a host; browsers take a backslash for a slash.
    let is_host = matches!(*location, [b'/', b'/' | b'\\', ..]);
    if location.starts_with(b"/") && (!is_relative || is_host) {
        location = [origin?, &location].concat();
    }
    (!location.is_empty()).then_some(location)
}

/// The value of `Location` for a client that is sent to its path with a slash behind it, query included.
///
/// `origin` is as for [`elsewhere`]; without one, or where redirects name no host, the path alone is told. `path` is
/// nginx's normal form, `args` the query as sent.
pub fn with_slash(origin: Option<&[u8]>, path: &[u8], args: &[u8]) -> Vec<u8> {
    let mut location = origin.unwrap_or_default().to_vec();
    rewrite::escape_path(path, &mut location);
    location.push(b'/');
    push_args(&mut location, args);
    location
}

fn push_args(location: &mut Vec<u8>, args: &[u8]) {
    if !args.is_empty() {
        location.push(b'?');
        location.extend_from_slice(args);
    }
}

/// The value of `Location` for a client that is sent to a path, decoded, with this query; without an origin the path alone.
pub(super) fn to_path(origin: Option<&[u8]>, path: &[u8], args: &[u8]) -> Vec<u8> {
    let mut location = origin.unwrap_or_default().to_vec();
    match path {
        // Browsers take a backslash for a slash, and two slashes begin a host.
        [b'/', b'\\', rest @ ..] => {
            location.extend_from_slice(b"/%5C");
            rewrite::escape_path(rest, &mut location);
        }
        path => rewrite::escape_path(path, &mut location),
    }
    push_args(&mut location, args);
    location
}

fn without_slash(target: &[u8]) -> &[u8] {
    target.strip_suffix(b"/").unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Template;
    use crate::text::template::tests::FixedValues;

    #[test]
    fn only_plain_http_is_redirected() {
        assert!(is_redirected(HttpsRedirect::Always, || false, || false));
        assert!(!is_redirected(HttpsRedirect::Always, || true, || true));
        assert!(is_redirected(HttpsRedirect::WithCertificate, || false, || true));
        assert!(!is_redirected(HttpsRedirect::WithCertificate, || false, || false));
        assert!(!is_redirected(HttpsRedirect::Never, || false, || true));
    }

    #[test]
    fn the_target_loses_its_port_and_one_trailing_slash() {
        let plain = |host: &str, target: &str| {
            String::from_utf8(location(host.as_bytes(), None, target.as_bytes(), false)).unwrap()
        };
        assert_eq!(plain("a.test:8080", "/x/?q=1"), "https://a.test/x/?q=1");
        assert_eq!(plain("a.test", "/"), "https://a.test");
        assert_eq!(plain("[::1]:8080", "/x//"), "https://[::1]/x/");
    }

    #[test]
    fn a_path_gets_its_slash_and_keeps_its_query() {
        let with_slash = |origin: Option<&str>, path: &str, args: &str| {
            let location =
                super::with_slash(origin.map(str::as_bytes), path.as_bytes(), args.as_bytes());
            String::from_utf8(location).unwrap()
        };
        let origin = Some("http://shop.test:8080");
        assert_eq!(with_slash(origin, "/a/b", ""), "http://shop.test:8080/a/b/");
        assert_eq!(with_slash(origin, "/a", "x=%20/?y"), "http://shop.test:8080/a/?x=%20/?y");
        assert_eq!(with_slash(None, "/a", "x"), "/a/?x");
        assert_eq!(with_slash(None, "/é ?#%\r\n", ""), "/%C3%A9%20%3F%23%25%0D%0A/");
    }

    #[test]
    fn a_path_alone_leads_to_no_other_host() {
        assert_eq!(to_path(None, b"/\\evil.test/a\\b", b"x=1"), b"/%5Cevil.test/a\\b?x=1");
        assert_eq!(to_path(Some(b"http://a.test"), b"/a b", b""), b"http://a.test/a%20b");
    }

    #[test]
    fn a_port_is_named_and_a_slash_kept_if_asked_for() {
        assert_eq!(location(b"a.test:80", Some(8443), b"/x/", true), b"https://a.test:8443/x/");
        assert_eq!(location(b"[::1]:80", Some(443), b"/", false), b"https://[::1]:443");
    }

    #[test]
    fn a_redirect_leads_to_a_url_or_to_a_path_of_the_same_host() {
        let values = FixedValues(
            &[("scheme", "http"), ("request_uri", "/a?b"), ("http_x", "c\r\nd")],
            &["", "x\r\nSet-Cookie: y"],
        );
        let elsewhere = |location: &str, appends_target, origin: Option<&[u8]>| {
            let location = Template::parse(location).unwrap();
            let redirect = Redirect { code: 302, location, appends_target };
            let found = super::elsewhere(&redirect, origin, false, b"/cart/?q/", &values)?;
            Some(String::from_utf8(found).unwrap())
        };
        let origin = Some(&b"http://shop.test:8080"[..]);
        let is = |location, appends, expected: &str| {
            assert_eq!(elsewhere(location, appends, origin).as_deref(), Some(expected));
        };
        is("https://new.test/x", false, "https://new.test/x");
        is("$scheme://www.shop.test:80", true, "http://www.shop.test:80/cart/?q");
        is("https://new.test$request_uri", false, "https://new.test/a?b");
        is("/app/", false, "http://shop.test:8080/app/");
        is("https://new.test/$1$http_x", false, "https://new.test/x%0D%0ASet-Cookie:%20yc%0D%0Ad");
        assert_eq!(elsewhere("/app", false, None), None);
        let relative = |location: &str, origin: Option<&[u8]>| {
            let location = Template::parse(location).unwrap();
            let redirect = Redirect { code: 302, location, appends_target: false };
            let values = FixedValues(&[], &["", "/evil.test"]);
            let found = super::elsewhere(&redirect, origin, true, b"/", &values)?;
            Some(String::from_utf8(found).unwrap())
        };
        assert_eq!(relative("/app?x", origin).as_deref(), Some("/app?x"));
        assert_eq!(relative("/app", None).as_deref(), Some("/app"));
        assert_eq!(relative("https://new.test/", origin).as_deref(), Some("https://new.test/"));
        let host = "http://shop.test:8080//evil.test";
        assert_eq!(relative("/$1", origin).as_deref(), Some(host));
        assert_eq!(relative("/$1", None), None);
        let location = Template::parse("/").unwrap();
        let appends = Redirect { code: 302, location, appends_target: true };
        let found = super::elsewhere(&appends, origin, true, b"/evil.test", &values).unwrap();
        assert_eq!(found, host.as_bytes());
        assert_eq!(elsewhere("$arg_none", false, origin), None);
    }
}
