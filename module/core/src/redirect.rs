//! When a request has to come back over HTTPS, and where to (compat/balancer.md §10).

use crate::model::HttpsRedirect;

/// Whether a request is answered with a redirect. `has_certificate` is asked only when it matters.
pub fn is_redirected(
    policy: HttpsRedirect,
    is_https: bool,
    has_certificate: impl FnOnce() -> bool,
) -> bool {
    match policy {
        _ if is_https => false,
        HttpsRedirect::Never => false,
        HttpsRedirect::WithCertificate => has_certificate(),
        HttpsRedirect::Always => true,
    }
}

/// The value of `Location`: `https://`, the host without its port, and the request target without one
/// trailing slash, as the reference does unless told to preserve it.
///
/// `host` is the `Host` header as sent; `target` the raw path and query.
pub fn location(host: &[u8], target: &[u8]) -> Vec<u8> {
    let name = match host.first() {
        Some(b'[') => host.iter().position(|&byte| byte == b']').map(|end| &host[..=end]),
        _ => host.iter().position(|&byte| byte == b':').map(|colon| &host[..colon]),
    };
    [&b"https://"[..], name.unwrap_or(host), target.strip_suffix(b"/").unwrap_or(target)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_is_redirected() {
        assert!(is_redirected(HttpsRedirect::Always, false, || false));
        assert!(!is_redirected(HttpsRedirect::Always, true, || true));
        assert!(is_redirected(HttpsRedirect::WithCertificate, false, || true));
        assert!(!is_redirected(HttpsRedirect::WithCertificate, false, || false));
        assert!(!is_redirected(HttpsRedirect::Never, false, || true));
    }

    #[test]
    fn the_target_loses_its_port_and_one_trailing_slash() {
        assert_eq!(location(b"a.test:8080", b"/x/?q=1"), b"https://a.test/x/?q=1");
        assert_eq!(location(b"a.test", b"/"), b"https://a.test");
        assert_eq!(location(b"[::1]:8080", b"/x//"), b"https://[::1]/x/");
    }
}
