//! References of endpoints to themselves, translated for clients: `proxy_cookie_domain`, `proxy_cookie_path` and
//! `proxy_redirect`, with texts; and the flags of cookies, `proxy_cookie_flags`.
//!
//! Errors:  none; `None` means that nothing changes.
//! Source:  ngx_http_proxy_module.c: a domain is compared whole and without case, a path and a redirect from their
//!          beginning. Nothing of it is a pattern or has variables.

use crate::model::policy::{CookieFlags, Replacement, SameSite};
use std::borrow::Cow;

/// The name of an attribute of a `Set-Cookie`, and its value; the first one is the cookie's.
type Attribute<'v> = (&'v [u8], Option<Cow<'v, [u8]>>);

/// A `Set-Cookie` with another domain, path, and other flags. As nginx, writes the attributes apart with `; ` when one changes.
pub fn cookie(
    value: &[u8],
    domain: Option<&Replacement>,
    path: Option<&Replacement>,
    flags: &[CookieFlags],
) -> Option<Vec<u8>> {
    let mut is_changed = false;
    let mut attributes: Vec<Attribute<'_>> = Vec::new();
    for (place, attribute) in value.split(|byte| *byte == b';').enumerate() {
        let mut halves = attribute.splitn(2, |byte| *byte == b'=');
        let name = trim(halves.next().unwrap_or_default());
        let text = halves.next().map(trim);
        if place == 0 {
            // Without a value it is no cookie.
            text?;
        }
        let changed = match text {
            Some(text) if place > 0 && name.eq_ignore_ascii_case(b"domain") => {
                domain.and_then(|domain| replace_domain(text, domain))
            }
            Some(text) if place > 0 && name.eq_ignore_ascii_case(b"path") => {
                path.and_then(|path| replace_start(text, path))
            }
            _ => None,
        };
        is_changed |= changed.is_some();
        attributes.push((name, changed.map(Cow::Owned).or(text.map(Cow::Borrowed))));
    }
    is_changed |= set_flags(&mut attributes, flags);
    let text = |(name, value): &Attribute<'_>| match value {
        Some(value) => [name, &b"="[..], value].concat(),
        None => name.to_vec(),
    };
    is_changed.then(|| attributes.iter().map(text).collect::<Vec<_>>().join(&b"; "[..]))
}

/// Changes the flags as the first that is about the cookie says; whether it says anything.
fn set_flags(attributes: &mut Vec<Attribute<'_>>, flags: &[CookieFlags]) -> bool {
    let Some((cookie, _)) = attributes.first() else { return false };
    let is_about = |flags: &&CookieFlags| {
        let name = flags.cookie.as_ref().map(|name| name.as_str().as_bytes());
        name.is_none_or(|name| cookie.eq_ignore_ascii_case(name))
    };
    let Some(flags) = flags.iter().find(is_about) else { return false };
    let same_site = flags.same_site.map(|value| match value {
        SameSite::Absent => None,
        SameSite::None => Some(&b"None"[..]),
        SameSite::Lax => Some(&b"Lax"[..]),
        SameSite::Strict => Some(&b"Strict"[..]),
    });
    set_flag(attributes, b"Secure", flags.secure.map(|is_on| is_on.then_some(None)));
    set_flag(attributes, b"HttpOnly", flags.http_only.map(|is_on| is_on.then_some(None)));
    set_flag(attributes, b"SameSite", same_site.map(|value| value.map(Some)));
    flags.secure.is_some() || flags.http_only.is_some() || same_site.is_some()
}

/// Adds a flag, or takes it away. nginx changes the first one of a name, and adds none where there is one.
fn set_flag<'v>(
    attributes: &mut Vec<Attribute<'v>>,
    name: &'static [u8],
    to: Option<Option<Option<&'static [u8]>>>,
) {
    let is_it = |(place, (known, _)): (usize, &Attribute<'v>)| {
        place > 0 && known.eq_ignore_ascii_case(name)
    };
    let Some(to) = to else { return };
    let Some(value) = to else {
        let mut place = 0;
        attributes.retain(|attribute| {
            place += 1;
            !is_it((place - 1, attribute))
        });
        return;
    };
    match attributes.iter().enumerate().position(is_it).and_then(|at| attributes.get_mut(at)) {
        None => attributes.push((name, value.map(Cow::Borrowed))),
        Some((known, found)) => {
            let is_said = |value: &[u8]| {
                found.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(value))
            };
            if let Some(value) = value.filter(|value| !is_said(value)) {
                (*known, *found) = (name, Some(Cow::Borrowed(value)));
            }
        }
    }
}

/// A leading dot of a domain is ignored.
fn replace_domain(text: &[u8], domain: &Replacement) -> Option<Vec<u8>> {
    let undotted = |text: &'_ [u8]| text.strip_prefix(b".").map_or(0, |_| 1);
    let (from, to) = (domain.from.as_str().as_bytes(), domain.to.as_str().as_bytes());
    let (dot, name) = text.split_at_checked(undotted(text))?;
    let is_same = name.eq_ignore_ascii_case(from.get(undotted(from)..)?);
    is_same.then_some(())?;
    Some([dot, to.get(undotted(to)..)?].concat())
}

fn replace_start(text: &[u8], path: &Replacement) -> Option<Vec<u8>> {
    let rest = text.strip_prefix(path.from.as_str().as_bytes())?;
    Some([path.to.as_str().as_bytes(), rest].concat())
}

fn trim(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(b" ") {
        text = rest;
    }
    while let Some(rest) = text.strip_suffix(b" ") {
        text = rest;
    }
    text
}

/// A `Location`, or the URL of a `Refresh`, that begins with `from`.
pub fn location(value: &[u8], replacement: &Replacement) -> Option<Vec<u8>> {
    replace_start(value, replacement)
}

/// The path of a URL that names one of the endpoint's own authorities: an address with its port, a host.
pub fn own_path<'v>(value: &'v [u8], authorities: &[&[u8]]) -> Option<&'v [u8]> {
    let scheme = |scheme: &[u8]| {
        value.split_at_checked(scheme.len()).filter(|(start, _)| start.eq_ignore_ascii_case(scheme))
    };
    let (_, rest) = scheme(b"http://").or_else(|| scheme(b"https://"))?;
    let end = rest.iter().position(|byte| b"/?#".contains(byte))?;
    let (authority, path) = rest.split_at_checked(end)?;
    let is_own = |own: &&[u8]| !own.is_empty() && own.eq_ignore_ascii_case(authority);
    (path.first() == Some(&b'/') && authorities.iter().any(is_own)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::HeaderValue;

    fn replacement(from: &str, to: &str) -> Replacement {
        let value = |text| HeaderValue::parse(text).unwrap();
        Replacement { from: value(from), to: value(to) }
    }

    fn text(value: Option<Vec<u8>>) -> Option<String> {
        value.map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn a_domain_is_compared_whole_and_without_case() {
        let domain = replacement("endpoint.local", "shop.test");
        let with = |value: &str| text(cookie(value.as_bytes(), Some(&domain), None, &[]));
        assert_eq!(with("a=b; Domain=Endpoint.Local").unwrap(), "a=b; Domain=shop.test");
        assert_eq!(
            with("a=b;domain=.endpoint.local;HttpOnly").unwrap(),
            "a=b; domain=.shop.test; HttpOnly"
        );
        for other in
            ["a=b; Domain=x.endpoint.local", "a=b", "a=endpoint.local", "Domain=endpoint.local"]
        {
            assert_eq!(with(other), None, "{other}");
        }
        let dotted = replacement(".endpoint.local", ".shop.test");
        let with = |value: &str| text(cookie(value.as_bytes(), Some(&dotted), None, &[]));
        assert_eq!(with("a=b; Domain=endpoint.local").unwrap(), "a=b; Domain=shop.test");
    }

    #[test]
    fn a_path_is_compared_from_its_beginning() {
        let path = replacement("/app", "/");
        let with = |value: &str| text(cookie(value.as_bytes(), None, Some(&path), &[]));
        assert_eq!(with("a=b; Path=/app/x; Secure").unwrap(), "a=b; Path=//x; Secure");
        assert_eq!(with("a=b; PATH = /app").unwrap(), "a=b; PATH=/");
        assert_eq!(with("a=b; Path=/App"), None);
        assert_eq!(with("a=b; Path=/x/app"), None);
        assert_eq!(with("a; Path=/app"), None);
        assert_eq!(with(""), None);
    }

    #[test]
    fn a_cookie_has_the_flags_of_the_first_that_is_about_it() {
        let flags: Vec<CookieFlags> = serde_json::from_str(
            r#"[{"cookie": "a", "secure": true, "http_only": false, "same_site": "lax"},
                {"cookie": "b"},
                {"same_site": "absent", "http_only": true, "secure": false}]"#,
        )
        .unwrap();
        for (value, expected) in [
            ("a=1", Some("a=1; Secure; SameSite=Lax")),
            ("A=1;HTTPONLY; samesite=LAX", Some("A=1; samesite=LAX; Secure")),
            ("a=1; secure; SameSite=None; Path=/", Some("a=1; secure; SameSite=Lax; Path=/")),
            ("a=1; SameSite", Some("a=1; SameSite=Lax; Secure")),
            ("b=1; Secure", None),
            ("secure=1; Secure; SameSite=Lax; Secure", Some("secure=1; HttpOnly")),
            ("secure", None),
        ] {
            assert_eq!(text(cookie(value.as_bytes(), None, None, &flags)).as_deref(), expected);
        }
        assert_eq!(cookie(b"a=1; Secure", None, None, &[]), None);
    }

    #[test]
    fn a_redirect_is_compared_from_its_beginning() {
        let redirect = replacement("http://inside:8080/", "https://shop.test/");
        let with = |value: &str| text(location(value.as_bytes(), &redirect));
        assert_eq!(with("http://inside:8080/a?b").unwrap(), "https://shop.test/a?b");
        assert_eq!(with("http://inside:8080"), None);
        assert_eq!(with("/a"), None);
    }

    #[test]
    fn only_an_endpoints_own_url_becomes_a_path() {
        let own: [&[u8]; 2] = [b"10.0.0.5:8080", b"vhost.test"];
        assert_eq!(own_path(b"http://10.0.0.5:8080/a?b", &own), Some(&b"/a?b"[..]));
        assert_eq!(own_path(b"HTTPS://VHOST.test/", &own), Some(&b"/"[..]));
        for other in [
            "http://10.0.0.5:80801/",
            "http://10.0.0.5:8080",
            "http://vhost.test?x",
            "/a",
            "ftp://vhost.test/",
        ] {
            assert_eq!(own_path(other.as_bytes(), &own), None, "{other}");
        }
        assert_eq!(own_path(b"http:///a", &[b""]), None);
    }
}
