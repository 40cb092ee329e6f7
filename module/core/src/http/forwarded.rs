//! Scheme, host and port as a trusted proxy in front reports them.
//!
//! Errors:  a malformed value counts as absent.
//! Source:  ingress-nginx's template of nginx.conf.

/// The first host of `X-Forwarded-Host`: each proxy adds its own behind.
pub fn host(value: &[u8]) -> Option<&[u8]> {
    let first = first(value)?;
    let is_fine = |b: &u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(b);
    (first.len() <= 260 && first.iter().all(is_fine)).then_some(first)
}

/// The first scheme of `X-Forwarded-Proto`.
pub fn scheme(value: &[u8]) -> Option<&[u8]> {
    let first = first(value)?;
    if let Some(known) = [&b"https"[..], b"http"].iter().find(|s| first.eq_ignore_ascii_case(s)) {
        return Some(known);
    }
    let is_fine = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    (first.len() <= 32 && first.iter().all(is_fine)).then_some(first)
}

/// The first port of `X-Forwarded-Port`.
pub fn port(value: &[u8]) -> Option<u16> {
    let first = str::from_utf8(first(value)?).ok()?;
    let is_plain = first.bytes().all(|b| b.is_ascii_digit());
    first.parse().ok().filter(|port| *port > 0 && is_plain)
}

/// The host with its port as the client wrote it, if it is the host that the request was routed by: an absolute
/// request target and `Host` may differ.
pub fn authority<'a>(host: &'a [u8], header: Option<&'a [u8]>) -> &'a [u8] {
    let Some(header) = header else { return host };
    let name = match header.iter().rposition(|byte| *byte == b':').map(|at| header.split_at(at)) {
        // A port has digits only; the colons of an IPv6 address stand within brackets.
        Some((name, port)) if port.iter().skip(1).all(u8::is_ascii_digit) => name,
        _ => header,
    };
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.eq_ignore_ascii_case(host) { header } else { host }
}

fn first(value: &[u8]) -> Option<&[u8]> {
    let first = value.split(|b| *b == b',').next()?.trim_ascii();
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_list_counts() {
        assert_eq!(host(b"shop.test:8443, proxy.test"), Some(&b"shop.test:8443"[..]));
        assert_eq!(scheme(b" HTTPS , http"), Some(&b"https"[..]));
        assert_eq!(port(b"8443,80"), Some(8443));
    }

    #[test]
    fn what_cannot_be_one_is_not_there() {
        for odd in [&b""[..], b", shop.test", b"a/b", b"a b", b"a\"b", b"a@b", &[b'a'; 261]] {
            assert_eq!(host(odd), None, "{odd:?}");
        }
        for odd in [&b""[..], b"ht tp", b"https://x", b"\"", &[b'a'; 33]] {
            assert_eq!(scheme(odd), None, "{odd:?}");
        }
        for odd in [&b""[..], b"0", b"65536", b"+80", b"80x"] {
            assert_eq!(port(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn the_host_that_was_routed_by_is_told_whatever_the_header_says() {
        assert_eq!(authority(b"a.test", Some(b"a.test:8080")), b"a.test:8080");
        assert_eq!(authority(b"a.test", Some(b"A.test.")), b"A.test.");
        assert_eq!(authority(b"a.test", Some(b"open.test")), b"a.test");
        assert_eq!(authority(b"a.test", Some(b"a.test:80@x")), b"a.test");
        assert_eq!(authority(b"a.test", None), b"a.test");
        assert_eq!(authority(b"[::1]", Some(b"[::1]:80")), b"[::1]:80");
        assert_eq!(authority(b"[::1]", Some(b"[::1]")), b"[::1]");
    }
}
