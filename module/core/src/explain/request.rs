//! The request that is asked about, and the facts that a decision reads of it.

use crate::balancer::{cookie, split};
use crate::decision::{Facts, Shown};
use crate::text::percent;
use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

/// As many header lines as nginx's router takes.
const MAX_HEADERS: usize = 100;

/// A request that is to be explained, as the command line or a query describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    /// The method of the request, such as `GET`.
    pub method: String,
    /// Whether the request comes over TLS.
    pub is_https: bool,
    /// As in `Host`, perhaps with a port.
    pub host: String,
    /// The port of nginx on which it arrives; 0: 80, or 443 over TLS.
    pub port: u16,
    /// Path and query, as on the request line.
    pub target: String,
    /// The names and values of its headers, in their order.
    pub headers: Vec<(String, String)>,
}

/// A query that is not understood, and what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not understood: write host=NAME&path=/PATH, and perhaps method=GET, scheme=https, port=80 and any number of \
     header=NAME:VALUE, percent-encoded"
)]
pub struct InvalidQuery(String);

impl ExplainRequest {
    /// Reads the query of `GET /configuration/explain`, without its question mark.
    pub fn from_query(query: &[u8]) -> Result<ExplainRequest, InvalidQuery> {
        let mut headers = Vec::new();
        let mut texts = [const { None::<String> }; 5];
        const NAMES: [&str; 5] = ["method", "scheme", "host", "path", "port"];
        for pair in query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            let refuse = || InvalidQuery(shortened(&String::from_utf8_lossy(pair)));
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            let value = value.and_then(percent::decode_text).ok_or_else(refuse)?;
            if name == b"header" {
                let (name, value) = value.split_once(':').ok_or_else(refuse)?;
                if headers.len() == MAX_HEADERS || name.is_empty() {
                    return Err(refuse());
                }
                headers.push((name.to_owned(), value.trim().to_owned()));
                continue;
            }
            let place = NAMES.iter().position(|known| known.as_bytes() == name);
            let text = place.and_then(|place| texts.get_mut(place)).ok_or_else(refuse)?;
            if text.replace(value).is_some() {
                return Err(refuse());
            }
        }
        let [method, scheme, host, target, port] = texts;
        let is_https = match scheme.as_deref() {
            None | Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(InvalidQuery(format!("scheme={}", shortened(other)))),
        };
        let port = match port.as_deref().map(str::parse) {
            None => 0,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(InvalidQuery("port".into())),
        };
        let target = target.unwrap_or_else(|| "/".into());
        if !target.starts_with('/') {
            return Err(InvalidQuery(format!("path={}", shortened(&target))));
        }
        Ok(ExplainRequest {
            method: method.unwrap_or_else(|| "GET".into()),
            is_https,
            host: host.unwrap_or_default(),
            port,
            target,
            headers,
        })
    }

    /// The query that says the same.
    pub fn to_query(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let texts = [
            ("method", &*self.method),
            ("scheme", scheme),
            ("host", &self.host),
            ("path", &self.target),
        ];
        let port = (self.port != 0).then(|| ("port", self.port.to_string()));
        let headers =
            self.headers.iter().map(|(name, value)| ("header", format!("{name}:{value}")));
        let texts = texts.into_iter().map(|(name, value)| (name, value.to_owned()));
        let mut query = String::new();
        for (name, value) in texts.chain(port).chain(headers) {
            let _ = write!(query, "{}{name}=", if query.is_empty() { "" } else { "&" });
            query.extend(percent::escaped(value.as_bytes(), b"/:").map(char::from));
        }
        query
    }

    /// The host as nginx leaves it: lower case, without port and trailing dot.
    pub fn normal_host(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        let end = match host.starts_with('[') {
            true => host.find(']').map(|end| end + 1),
            false => host.find(':'),
        };
        let host = end.and_then(|end| host.get(..end)).unwrap_or(&host);
        host.strip_suffix('.').unwrap_or(host).to_owned()
    }

    /// `scheme://` and the host as sent; `None` without one.
    pub fn origin(&self) -> Option<String> {
        let scheme = if self.is_https { "https://" } else { "http://" };
        (!self.host.is_empty()).then(|| format!("{scheme}{}", self.host))
    }

    /// The query, without its question mark.
    pub fn args(&self) -> &str {
        let target = self.target.split('#').next().unwrap_or_default();
        target.split_once('?').map_or("", |(_, args)| args)
    }

    /// The path as nginx understands it; `None`: it answers 400.
    ///
    /// Source: ngx_http_parse_complex_uri, with `merge_slashes on`.
    pub fn normal_path(&self) -> Option<Vec<u8>> {
        let raw = self.target.split(['?', '#']).next()?.as_bytes();
        let decoded = decoded(raw)?;
        let mut path: Vec<&[u8]> = Vec::new();
        let mut is_folder = true;
        for segment in decoded.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
            is_folder = matches!(segment, b"." | b"..");
            match segment {
                b"." => {}
                b".." => drop(path.pop()?),
                segment => path.push(segment),
            }
        }
        is_folder |= decoded.last() == Some(&b'/');
        let mut normal: Vec<u8> =
            path.iter().flat_map(|segment| [b"/", *segment].concat()).collect();
        if is_folder {
            normal.push(b'/');
        }
        Some(normal)
    }

    /// The first header of this name, in any case.
    pub fn header(&self, name: &[u8]) -> Option<&str> {
        self.headers_named(name).next()
    }

    fn headers_named(&self, name: &[u8]) -> impl Iterator<Item = &str> {
        let same = move |given: &str| given.as_bytes().eq_ignore_ascii_case(name);
        let found = self.headers.iter().filter(move |(given, _)| same(given));
        found.map(|(_, value)| value.as_str())
    }
}

fn shortened(text: &str) -> String {
    crate::model::shorten(text).to_owned()
}

fn decoded(raw: &[u8]) -> Option<Vec<u8>> {
    let is_fine = !raw.iter().any(u8::is_ascii_control);
    percent::decode(raw).filter(|path| is_fine && !path.contains(&0))
}

/// The request as [`crate::decision::decide`] reads it, with what nginx makes of its host and path.
pub(crate) struct RequestFacts<'a> {
    pub asked: &'a ExplainRequest,
    pub host: &'a str,
    pub path: &'a [u8],
}

impl split::Request for RequestFacts<'_> {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let all: Vec<_> = self.asked.headers_named(name).collect();
        (!all.is_empty()).then(|| all.join(", ").into_bytes().into())
    }

    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        cookie::value(self.asked.headers_named(b"cookie").map(str::as_bytes), name)
    }
}

impl Facts for RequestFacts<'_> {
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn args(&self) -> &[u8] {
        self.asked.args().as_bytes()
    }

    fn target(&self) -> &[u8] {
        self.asked.target.as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.asked.method.as_bytes()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        for (name, value) in &self.asked.headers {
            visit(name.as_bytes(), value.as_bytes());
        }
    }

    fn port(&self) -> u16 {
        match self.asked.port {
            0 if self.asked.is_https => 443,
            0 => 80,
            port => port,
        }
    }

    fn address(&self) -> Option<IpAddr> {
        None
    }

    fn first_header(&self, name: &[u8]) -> Option<&[u8]> {
        self.asked.header(name).map(str::as_bytes)
    }

    fn origin(&self) -> Option<Vec<u8>> {
        self.asked.origin().map(String::into_bytes)
    }

    fn client_host(&self) -> &[u8] {
        self.asked.host.as_bytes()
    }

    fn client_scheme(&self) -> &[u8] {
        if self.asked.is_https { b"https" } else { b"http" }
    }

    /// A variable that only a real request has stays as it was written.
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let text = |text: &str| Some(Cow::Owned(text.as_bytes().to_vec()));
        match name {
            b"host" => text(self.host),
            b"best_http_host" | b"http_host" => text(&self.asked.host),
            b"request_uri" => text(&self.asked.target),
            b"args" | b"query_string" => text(self.asked.args()),
            b"is_args" => text(if self.asked.args().is_empty() { "" } else { "?" }),
            b"uri" | b"document_uri" => Some(Cow::Borrowed(self.path)),
            b"scheme" | b"pass_access_scheme" => Some(Cow::Borrowed(self.client_scheme())),
            b"https" => text(if self.asked.is_https { "on" } else { "" }),
            b"request_method" => text(&self.asked.method),
            _ => Some(self.variable_with_a_name(name)),
        }
    }

    /// The end of all shares: where weights leave something to the backend itself, that is what is shown.
    fn random(&self) -> u64 {
        u64::MAX
    }

    fn is_internal(&self) -> bool {
        false
    }

    fn is_tls(&self) -> bool {
        self.asked.is_https
    }

    /// Clients name the host that they ask for.
    fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        Some(Cow::Borrowed(self.host.as_bytes())).filter(|name| !name.is_empty())
    }

    fn was_asked_for(&self, _: &[u8; 16]) -> bool {
        true
    }

    fn certificate(&self) -> Option<Shown> {
        None
    }

    fn certificate_subject(&self) -> Option<&[u8]> {
        None
    }
}

impl RequestFacts<'_> {
    fn variable_with_a_name(&self, name: &[u8]) -> Cow<'_, [u8]> {
        let value = if let Some(name) = name.strip_prefix(b"arg_") {
            let pairs = self.asked.args().split('&').filter_map(|pair| pair.split_once('='));
            let mut found = pairs.filter(|(key, _)| key.as_bytes().eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.as_bytes().to_vec())
        } else if let Some(name) = name.strip_prefix(b"cookie_") {
            split::Request::cookie(self, name).map(<[u8]>::to_vec)
        } else if let Some(name) = name.strip_prefix(b"http_") {
            let name: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
            split::Request::header(self, &name).map(Cow::into_owned)
        } else {
            return Cow::Owned([b"$", name].concat());
        };
        Cow::Owned(value.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(target: &str) -> Option<String> {
        let asked = ExplainRequest::from_query(b"host=a").unwrap();
        let asked = ExplainRequest { target: target.into(), ..asked };
        asked.normal_path().map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    #[test]
    fn a_path_is_understood_as_nginx_does() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a//b/?x=/../", "/a/b/"),
            ("/a/./b/../c", "/a/c"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a%2Fb%2f%2e%2e", "/a/"),
            ("/%41%3f%23%25", "/A?#%"),
            ("/a#b", "/a"),
            ("/..a/b..", "/..a/b.."),
        ] {
            assert_eq!(path(target).as_deref(), Some(expected), "{target}");
        }
        for target in ["/..", "/a/../../b", "/%00", "/%4", "/%zz", "/\u{1}"] {
            assert_eq!(path(target), None, "{target}");
        }
    }

    #[test]
    fn a_query_is_read_and_written_again() {
        let query = b"method=POST&scheme=https&host=Shop.test%3A8443&path=/a%20b%3Fc%3D1&header=X-A:%20b:c&header=x-a:d";
        let asked = ExplainRequest::from_query(query).unwrap();
        assert_eq!(asked.headers, [("X-A".into(), "b:c".into()), ("x-a".into(), "d".into())]);
        assert_eq!((asked.args(), &*asked.normal_host()), ("c=1", "shop.test"));
        assert_eq!(ExplainRequest::from_query(asked.to_query().as_bytes()), Ok(asked));
        for query in
            ["path=a", "scheme=ftp", "host=a&host=b", "colour=red", "header=x", "host", "path=/%zz"]
        {
            assert!(ExplainRequest::from_query(query.as_bytes()).is_err(), "{query}");
        }
    }
}
