//! The requests that are asked: from a list, an access log, or Ingress objects.

use crate::access_log;
use crate::routes::Routes;
use crate::spelling::spellings;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One request, asked of both gateways.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Request {
    /// The method in upper case.
    pub method: String,
    /// Whether it goes to the HTTPS port.
    pub is_https: bool,
    /// The host of the `Host` header and of the handshake, with a port if the client named one.
    pub host: String,
    /// The path and query as they are sent.
    pub target: String,
}

impl Request {
    /// The host without a port.
    pub fn host_name(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => &self.host,
        }
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{} {scheme}://{}{}", self.method, self.host, self.target)
    }
}

/// What a line of an access log may leave out.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// The host of lines that name none.
    pub host: Option<String>,
    /// Whether lines that name no scheme are HTTPS.
    pub is_https: bool,
}

/// Requests without repetition, and what was left out, by reason.
#[derive(Debug, Default)]
pub struct Requests {
    /// Those to ask, each once, in the order of their hosts and paths.
    pub all: BTreeSet<Request>,
    /// How many lines or requests were left out for which reason.
    pub skipped: BTreeMap<String, usize>,
    methods: BTreeSet<String>,
}

impl Requests {
    /// No requests yet, of which only those with one of these methods are taken.
    pub fn new(methods: &[String]) -> Self {
        let methods = methods.iter().map(|method| method.to_ascii_uppercase()).collect();
        Requests { methods, ..Self::default() }
    }

    fn skip(&mut self, reason: impl Into<String>) {
        *self.skipped.entry(reason.into()).or_default() += 1;
    }

    fn add(&mut self, request: Request) {
        if !self.methods.contains(&request.method) {
            self.skip(format!("method {}", request.method));
        } else if request.target.parse::<http::uri::PathAndQuery>().is_err()
            || !request.target.starts_with('/')
        {
            self.skip("a path that cannot be sent");
        } else if request.host.parse::<http::uri::Authority>().is_err() {
            self.skip("a host that cannot be sent");
        } else {
            self.all.insert(request);
        }
    }

    /// Adds the lines of a list: `URL`, or `METHOD URL`. Empty lines and those that begin with `#` say nothing.
    pub fn add_list(&mut self, text: &str) {
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (method, url) = line.split_once(char::is_whitespace).unwrap_or(("GET", line));
            match parse_url(url.trim()) {
                Some((is_https, host, target)) => {
                    self.add(Request {
                        method: method.to_ascii_uppercase(),
                        is_https,
                        host,
                        target,
                    });
                }
                None => self.skip("no URL: write [METHOD] URL"),
            }
        }
    }

    /// Adds the lines of an access log: see the formats in docs/migrate.md. Lines that name no host are looked up among
    /// the routes by the upstream's name and the path, and else have the default host.
    pub fn add_access_log(&mut self, text: &str, defaults: &Defaults, routes: &Routes) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match access_log::read(line, defaults, routes) {
                Ok(request) => self.add(request),
                Err(reason) => self.skip(reason),
            }
        }
    }

    /// Adds the requests that the Ingress objects suggest: each host and path, in the spellings that gateways treat
    /// differently, with each method that may be sent, and over HTTPS where the host has a certificate.
    pub fn add_routes(&mut self, routes: &Routes) {
        let methods: Vec<_> = self.methods.iter().cloned().collect();
        for route in routes.all() {
            for target in spellings(&route.path) {
                for method in &methods {
                    for is_https in [false, true] {
                        if is_https && !route.has_tls {
                            continue;
                        }
                        let host = route.sample_host();
                        let (method, target) = (method.clone(), target.clone());
                        self.add(Request { method, is_https, host, target });
                    }
                }
            }
        }
    }

    /// Leaves at most so many requests, evenly chosen; 0 leaves all.
    pub fn sample(&mut self, most: usize) {
        let all = self.all.len();
        if most == 0 || all <= most {
            return;
        }
        let mut index = 0;
        self.all.retain(|_| {
            index += 1;
            index * most / all > (index - 1) * most / all
        });
        *self.skipped.entry("beyond --limit".into()).or_default() += all - self.all.len();
    }
}

/// Scheme, host and target of an absolute URL. The target stays as it is written.
fn parse_url(url: &str) -> Option<(bool, String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let is_https = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let rest = rest.split('#').next()?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(at);
    let target = if target.starts_with('/') { target.into() } else { format!("/{target}") };
    (!host.is_empty()).then(|| (is_https, host.to_owned(), target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(requests: &Requests) -> Vec<String> {
        requests.all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_the_methods_that_were_named_are_asked() {
        let mut requests = Requests::new(&["GET".into(), "head".into()]);
        requests.add_list(
            "# a list\nhttp://a.test/x\nHEAD https://a.test\nPOST http://a.test/x\nnonsense\n",
        );
        assert_eq!(texts(&requests), ["GET http://a.test/x", "HEAD https://a.test/"]);
        let skipped: Vec<_> = requests.skipped.iter().collect();
        assert_eq!(
            skipped,
            [(&"method POST".to_owned(), &1), (&"no URL: write [METHOD] URL".into(), &1)]
        );
    }

    #[test]
    fn targets_stay_as_they_are_written() {
        let mut requests = Requests::new(&["GET".into()]);
        requests.add_list("http://a.test//a/../b%2Fc?d=%zz#e\nhttp://a.test?q\nhttp://a.test/a b");
        assert_eq!(
            texts(&requests),
            ["GET http://a.test//a/../b%2Fc?d=%zz", "GET http://a.test/?q"]
        );
        assert_eq!(requests.skipped.values().sum::<usize>(), 1);
    }

    #[test]
    fn a_sample_is_spread_over_all_requests() {
        let mut requests = Requests::new(&["GET".into()]);
        let list: String = (0..100).map(|n| format!("http://a.test/{n:03}\n")).collect();
        requests.add_list(&list);
        requests.sample(10);
        let left = texts(&requests);
        assert_eq!(left.len(), 10);
        assert!(
            left[0].as_str() < "GET http://a.test/010"
                && left[9].as_str() >= "GET http://a.test/090"
        );
        assert_eq!(requests.skipped["beyond --limit"], 90);
    }
}
