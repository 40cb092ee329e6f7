//! Who may read the dashboard.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// The cookie that the page keeps the token in.
pub const COOKIE_NAME: &str = "oxigress-dashboard";

/// What a request has to bring.
#[derive(Clone, Debug)]
pub struct Access {
    token_file: Option<PathBuf>,
}

/// The address would be open to everybody.
#[derive(Debug, thiserror::Error)]
#[error("--dashboard-address {0} is no loopback address: give --dashboard-token-file too")]
pub struct AccessError(SocketAddr);

impl Access {
    /// On a loopback address a token is optional, elsewhere it is required. Its file is read at each request.
    pub fn new(address: SocketAddr, token_file: Option<PathBuf>) -> Result<Self, AccessError> {
        match (address.ip().is_loopback(), &token_file) {
            (false, None) => Err(AccessError(address)),
            _ => Ok(Access { token_file }),
        }
    }

    /// Whether the request may be answered.
    pub fn permits(&self, headers: &HeaderMap, query_token: Option<&str>) -> bool {
        let Some(file) = &self.token_file else { return is_local_name(headers) };
        let token = std::fs::read_to_string(file).unwrap_or_default();
        let token = token.trim().as_bytes();
        let text = |value: Option<&http::HeaderValue>| {
            value.and_then(|v| v.to_str().ok().map(str::to_owned))
        };
        let bearer = text(headers.get(AUTHORIZATION));
        let bearer = bearer.as_deref().and_then(|text| text.strip_prefix("Bearer "));
        let cookies = text(headers.get(COOKIE)).unwrap_or_default();
        let cookie = cookies
            .split(';')
            .find_map(|one| one.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
        let is_it = |given: &str| {
            let given = given.as_bytes();
            given.len() == token.len() && openssl::memcmp::eq(given, token)
        };
        !token.is_empty() && [bearer, cookie, query_token].into_iter().flatten().any(is_it)
    }
}

/// A page of another site could have its own name lead here (DNS rebinding), but cannot be called localhost.
fn is_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn only_a_loopback_address_may_do_without_a_token() {
        let file = || Some(PathBuf::from("/token"));
        assert!(Access::new("127.0.0.1:1".parse().unwrap(), None).is_ok());
        assert!(Access::new("[::1]:1".parse().unwrap(), None).is_ok());
        assert!(Access::new("0.0.0.0:1".parse().unwrap(), None).is_err());
        assert!(Access::new("0.0.0.0:1".parse().unwrap(), file()).is_ok());
    }

    #[test]
    fn a_name_of_another_site_reads_nothing_on_loopback() {
        let access = Access::new("127.0.0.1:1".parse().unwrap(), None).unwrap();
        for host in ["localhost:1", "127.0.0.1", "127.0.0.1:10253", "[::1]:1"] {
            assert!(access.permits(&headers(HOST, host), None), "{host}");
        }
        for host in ["evil.test", "localhost.evil.test:1", "10.0.0.1:1", ""] {
            assert!(!access.permits(&headers(HOST, host), None), "{host}");
        }
    }

    #[test]
    fn a_token_is_compared_whole_and_an_empty_one_opens_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let access = Access::new("0.0.0.0:1".parse().unwrap(), Some(file.path().into())).unwrap();
        assert!(!access.permits(&headers(AUTHORIZATION, "Bearer "), Some("")));
        std::fs::write(file.path(), "secret\n").unwrap();
        assert!(access.permits(&headers(AUTHORIZATION, "Bearer secret"), None));
        assert!(access.permits(&headers(COOKIE, "a=b; oxigress-dashboard=secret"), None));
        assert!(access.permits(&HeaderMap::new(), Some("secret")));
        for wrong in ["Bearer secre", "Bearer secret1", "secret"] {
            assert!(!access.permits(&headers(AUTHORIZATION, wrong), None), "{wrong}");
        }
        assert!(!access.permits(&headers(HOST, "localhost"), None));
    }
}
