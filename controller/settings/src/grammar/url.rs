//! URLs of servers that annotations name: an auth server, a mirror.
//!
//! Shape:   host and port become a backend, whose id says all there is to know about it: `//url/SCHEME/HOST/PORT`.
//!          No Service's id begins so.
//! Source:  ingress-nginx's annotations; docs/operate/endpoints.md#destinations for addresses that are refused.

use super::template;
use oxigress_core::model::policy::{AuthHost, HeaderValue, Template};
use oxigress_core::model::{BackendId, shorten};
use oxigress_core::own_server::Reach;
use oxigress_core::text::template::Part;
use oxigress_objects::service::external_name::ExternalName;
use std::num::NonZeroU16;

/// The id in the place of a backend that requests name. None has it.
const OF_REQUESTS: &str = "//request";

/// A URL of an auth server or a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The backend and the host that requests go to.
    pub to: AuthHost,
    /// Path and query, as written; empty if there is none.
    pub target: Template,
}

impl Url {
    /// Reads one of letters, digits and `more`. A host with variables is looked up when a request names it.
    pub fn parse(text: &str, more: &[u8]) -> Result<Self, String> {
        let odd = |what: &str| format!("{:?} {what}", shorten(text));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| odd("has no scheme"))?;
        let https = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(odd("begins with neither http:// nor https://")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        // `$request_uri` may follow the host at once.
        let is_target = target.is_empty() && authority.ends_with("$request_uri");
        let authority =
            authority.strip_suffix("$request_uri").filter(|_| is_target).unwrap_or(authority);
        let to = match authority.contains('$') {
            true => host_of_requests(authority, https)
                .map_err(|why| why.unwrap_or_else(|| odd("names no host")))?,
            false => known_host(authority, scheme)
                .map_err(|why| why.unwrap_or_else(|| odd("names no host")))?,
        };
        let target = match target {
            "" if is_target => "$request_uri".into(),
            target if target.starts_with('?') => format!("/{target}"),
            target => target.to_owned(),
        };
        let target = template(&target, more).map_err(|why| match why {
            Some(why) => why,
            None => odd("has letters that a URL cannot have here"),
        })?;
        Ok(Url { to, target })
    }
}

/// A server whose addresses are looked up now. The error is empty where there is no host.
fn known_host(authority: &str, scheme: &str) -> Result<AuthHost, Option<String>> {
    let https = scheme == "https";
    let (host, port) = host_and_port(authority, https).ok_or(None)?;
    if let ExternalName::Odd(_, why) = ExternalName::parse(host) {
        return Err(Some(format!("host {:?} {why}", shorten(host))));
    }
    let invalid = |why: oxigress_core::model::Invalid| Some(why.to_string());
    let id = format!("//url/{scheme}/{}/{port}", host.to_ascii_lowercase());
    let backend = BackendId::parse(id).map_err(invalid)?;
    let host = HeaderValue::parse(host).map_err(invalid)?;
    Ok(AuthHost { backend, host, variable_host: None, https })
}

/// A server that each request names. The error is empty where the text can be no host.
fn host_of_requests(authority: &str, https: bool) -> Result<AuthHost, Option<String>> {
    let variable_host = template(authority, b"$")?;
    if !variable_host.parts().any(|part| !matches!(part, Part::Literal(_))) {
        return Err(None);
    }
    if Reach::of(variable_host.parts()).is_none() {
        let why = "its host has a variable that lets a client choose the server: use $host, $http_host or $namespace";
        return Err(Some(why.into()));
    }
    let invalid = |why: oxigress_core::model::Invalid| Some(why.to_string());
    let backend = BackendId::parse(OF_REQUESTS).map_err(invalid)?;
    let host = HeaderValue::parse(authority).map_err(invalid)?;
    Ok(AuthHost { backend, host, variable_host: Some(variable_host), https })
}

fn host_and_port(authority: &str, https: bool) -> Option<(&str, NonZeroU16)> {
    let usual = NonZeroU16::new(if https { 443 } else { 80 })?;
    let after = authority.rfind(']').map_or(0, |at| at + 1);
    let colon = authority.get(after..)?.find(':').map(|at| after + at);
    let (host, port) = match colon {
        None => (authority, usual),
        Some(at) => {
            let digits = authority.get(at + 1..)?;
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            (authority.get(..at)?, digits.parse().ok().filter(|_| is_number)?)
        }
    };
    (!host.is_empty()).then_some((host, port))
}

/// What the id of such a backend says; `None`: it is another kind of backend.
pub fn behind(id: &BackendId) -> Option<(ExternalName, NonZeroU16)> {
    let (_, rest) = id.as_str().strip_prefix("//url/")?.split_once('/')?;
    let (host, port) = rest.rsplit_once('/')?;
    Some((ExternalName::parse(host), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_backend_and_a_target() {
        for (text, id, target) in [
            ("http://a.test/x?y=1", "//url/http/a.test/80", "/x?y=1"),
            ("https://A.test:8443", "//url/https/a.test/8443", ""),
            ("https://[::1]:81/$1", "//url/https/[::1]/81", "/$1"),
            ("http://10.0.0.1?x", "//url/http/10.0.0.1/80", "/?x"),
            ("https://a.test$request_uri", "//url/https/a.test/443", "$request_uri"),
        ] {
            let url = Url::parse(text, b"?&=$[]").unwrap();
            assert_eq!((url.to.backend.as_str(), url.target.as_str()), (id, target), "{text}");
            assert!(behind(&url.to.backend).is_some(), "{text}");
        }
    }

    #[test]
    fn a_host_with_variables_is_no_backend_and_is_kept_as_written() {
        for (text, host, target) in [
            ("https://$host/oauth2/auth", "$host", "/oauth2/auth"),
            ("http://$http_host:81$request_uri", "$http_host:81", "$request_uri"),
            ("http://auth.$namespace.svc.cluster.local", "auth.$namespace.svc.cluster.local", ""),
        ] {
            let url = Url::parse(text, b"?&=$").unwrap();
            assert_eq!(url.to.variable_host.as_ref().map(|host| host.as_str()), Some(host));
            assert_eq!(url.target.as_str(), target, "{text}");
            assert!(behind(&url.to.backend).is_none() && url.to.known_backend().is_none());
        }
    }

    #[test]
    fn what_names_no_host_is_refused() {
        for text in [
            "",
            "a.test",
            "/x",
            "ftp://a.test",
            "http://",
            "http:///x",
            "http://$/x",
            "http://$nginx_version/x",
            "http://$host@a.test/x",
            "http://a..b/",
            "http://a.test:0/",
            "http://a.test:x/",
            "http://a.test:/",
            "http://u@a.test/",
            "http://localhost/",
            "http://127.1/",
            "http://a.test/\r\nx",
            "http://a.test/$nginx_version",
        ] {
            assert!(Url::parse(text, b"?&=$").is_err(), "{text:?}");
        }
    }
}
