//! A server that a URL names by a request's variables, such as `https://$host/oauth2/auth`: looked up among this
//! gateway's own Services and rules.
//!
//! No name server is asked for a name that a client chose. The rule that would take the URL says whose endpoints are asked,
//! by [`decision::decide`] itself. What it answers by itself (a redirect, a status) is no server, and neither is a rule that
//! restricts access: the question comes from the gateway, which nobody has let in there.

use crate::decision::{
    self, Answer, CompiledPolicies, EndpointSet, Facts, Generation, Shown, Silent, SplitRequest,
};
use crate::explain::{ExplainRequest, RequestFacts};
use crate::model::policy::{Policies, Protocol};
use crate::text::template::Part;
use std::borrow::Cow;
use std::net::IpAddr;

/// A server of this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnServer {
    /// Id of the backend whose endpoints are asked.
    pub backend: Vec<u8>,
    /// The host, without port: `Host` and the TLS server name.
    pub host: Vec<u8>,
    /// Whether the endpoints are spoken to over TLS.
    pub https: bool,
    /// Path and query that the endpoints get.
    pub target: Vec<u8>,
}

/// What a host with variables may lead to: it depends on who says what the variables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The client has a say, by its `Host`: rules of the namespace that names the URL.
    Rules,
    /// Only the configuration has: Services too.
    Services,
}

impl Reach {
    /// By the parts of the host; `None`: the client could name any host at all.
    pub fn of<'a>(parts: impl Iterator<Item = Part<'a>>) -> Option<Reach> {
        const OURS: [&[u8]; 4] = [b"ingress_name", b"namespace", b"service_name", b"service_port"];
        const HOST: [&[u8]; 4] = [b"best_http_host", b"host", b"http_host", b"server_name"];
        let mut reach = Reach::Services;
        for part in parts {
            let name = match part {
                Part::Literal(_) => continue,
                Part::Capture(_) => return None,
                Part::Variable(name) => name,
            };
            let is_one_of = |all: [&[u8]; 4]| all.iter().any(|it| it.eq_ignore_ascii_case(name));
            if is_one_of(HOST) {
                reach = Reach::Rules;
            } else if !is_one_of(OURS) {
                return None;
            }
        }
        Some(reach)
    }
}

/// A URL whose host a request names.
#[derive(Clone, Copy, Debug)]
pub struct Url<'a> {
    /// Whether the scheme of the URL is `https`.
    pub is_https: bool,
    /// Its host, perhaps with a port.
    pub authority: &'a [u8],
    /// The path and query of the URL, undecoded.
    pub target: &'a [u8],
    /// What its host may lead to.
    pub reach: Reach,
    /// The namespace of the rule whose policies have it.
    pub namespace: &'a [u8],
}

/// Why there is no such server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoServer {
    /// The variables make no host name.
    #[error("is no host name")]
    NoHost,
    /// The gateway has neither a rule nor a Service for it.
    #[error("is neither a Service nor a host and path that a rule takes")]
    Unknown,
    /// The rule answers by itself.
    #[error("is answered by its rule itself, with a redirect or a status")]
    Answered,
    /// The rule that takes the URL restricts access, and nobody has let this gateway in.
    #[error("belongs to a rule that restricts access: take its path out of that rule")]
    Protected,
    /// The endpoints have to be verified, or speak something else.
    #[error(
        "belongs to a rule whose endpoints speak neither plain HTTP nor HTTPS that is not verified"
    )]
    Protocol,
    /// The rule is another namespace's, which would say who may see this one's pages.
    #[error("belongs to a rule of another namespace: give the path an Ingress in this one")]
    Stranger,
    /// The backend has no endpoint.
    #[error("has no endpoint")]
    NoEndpoint,
}

/// Finds the server of a URL that a request, `client`, names.
pub fn find<'g, G: Generation<'g>>(
    generation: &G,
    client: &impl Facts,
    url: &Url<'_>,
) -> Result<OwnServer, NoServer> {
    let Url { is_https, authority, target, reach, namespace } = *url;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| NoServer::NoHost);
    let asked = ExplainRequest {
        method: "GET".into(),
        is_https,
        host: text(authority)?,
        port: 0,
        target: text(target)?,
        headers: Vec::new(),
    };
    let host = asked.normal_host();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(is_name) {
        return Err(NoServer::NoHost);
    }
    let service = (reach == Reach::Services).then(|| service(&asked.host, &host, is_https));
    if let Some(backend) = service.flatten() {
        let endpoints = generation.endpoints(&backend);
        let host = host.into_bytes();
        return match endpoints.is_empty() {
            true => Err(NoServer::NoEndpoint),
            false => Ok(OwnServer { backend, host, https: is_https, target: target.to_vec() }),
        };
    }
    let path = asked.normal_path().ok_or(NoServer::Unknown)?;
    let url = RequestFacts { asked: &asked, host: &host, path: &path };
    let facts = Hop { client, url };
    let decision = decision::decide(generation, &facts, &mut Silent);
    let route = &decision.route;
    if route.rule.is_some_and(|rule| rule.texts()[1] != namespace) {
        return Err(NoServer::Stranger);
    }
    let no_policies = Policies::default();
    let policies = route.policies.as_ref().map(|policies| policies.source());
    let policies = policies.unwrap_or(&no_policies);
    if policies.access.is_some() {
        return Err(NoServer::Protected);
    }
    match (&decision.answer, route.rule) {
        (Answer::Forward, Some(_)) => {}
        (Answer::Respond(503), Some(_)) => return Err(NoServer::NoEndpoint),
        (_, Some(_)) => return Err(NoServer::Answered),
        (_, None) => return Err(NoServer::Unknown),
    }
    let https = speaks_tls(policies, is_https).ok_or(NoServer::Protocol)?;
    let has_endpoints = route.destination.as_ref().and_then(|to| to.endpoints);
    let backend = route.backend().filter(|_| has_endpoints.is_some_and(|all| !all.is_empty()));
    let backend = backend.ok_or(NoServer::NoEndpoint)?.to_vec();
    let target = match decision.edits.as_ref().and_then(|edits| edits.uri.as_ref()) {
        Some((path, args)) => rewritten(path, args),
        None => target.to_vec(),
    };
    Ok(OwnServer { backend, host: host.into_bytes(), https, target })
}

/// The backend of a Service that a host names as Kubernetes does: `service.namespace.svc`, perhaps with the cluster's domain.
fn service(authority: &str, host: &str, is_https: bool) -> Option<Vec<u8>> {
    let mut labels = host.split('.');
    let (service, namespace) = (labels.next()?, labels.next()?);
    if labels.next() != Some("svc") {
        return None;
    }
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let port = port.unwrap_or(if is_https { "443" } else { "80" });
    Some(format!("{namespace}/{service}/{port}").into_bytes())
}

/// Whether the endpoints of a rule speak TLS; `None`: they speak no HTTP, or have to be verified.
fn speaks_tls(policies: &Policies, is_https: bool) -> Option<bool> {
    let proxy = policies.proxy.as_ref();
    if proxy.and_then(|proxy| proxy.tls.as_ref()).is_some_and(|tls| tls.verify) {
        return None;
    }
    match proxy.and_then(|proxy| proxy.protocol) {
        None | Some(Protocol::Http) => Some(false),
        Some(Protocol::Https) => Some(true),
        Some(Protocol::AutoHttp) => Some(is_https),
        Some(_) => None,
    }
}

/// A decoded path and its query, as a request target.
fn rewritten(path: &[u8], args: &[u8]) -> Vec<u8> {
    let mut target = Vec::with_capacity(path.len() + args.len() + 1);
    for (at, segment) in path.split(|byte| *byte == b'/').enumerate() {
        if at > 0 {
            target.push(b'/');
        }
        target.extend(crate::policy::auth::escaped(segment));
    }
    if !args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(args);
    }
    target
}

/// The question as a decision reads it: its own URL, and all else of the client that it is asked for.
struct Hop<'a, F> {
    client: &'a F,
    url: RequestFacts<'a>,
}

impl<F: Facts> SplitRequest for Hop<'_, F> {
    fn header(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.client.header(name)
    }

    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        self.client.cookie(name)
    }
}

impl<F: Facts> Facts for Hop<'_, F> {
    fn host(&self) -> &[u8] {
        self.url.host()
    }

    fn path(&self) -> &[u8] {
        self.url.path()
    }

    fn args(&self) -> &[u8] {
        self.url.args()
    }

    fn target(&self) -> &[u8] {
        self.url.target()
    }

    fn method(&self) -> &[u8] {
        self.url.method()
    }

    fn each_header(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.client.each_header(visit);
    }

    fn port(&self) -> u16 {
        self.client.port()
    }

    fn address(&self) -> Option<IpAddr> {
        self.client.address()
    }

    fn first_header(&self, name: &[u8]) -> Option<&[u8]> {
        self.client.first_header(name)
    }

    fn origin(&self) -> Option<Vec<u8>> {
        self.url.origin()
    }

    /// Without the port, which leads to this gateway and not to an endpoint.
    fn client_host(&self) -> &[u8] {
        self.url.host()
    }

    fn client_scheme(&self) -> &[u8] {
        self.url.client_scheme()
    }

    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            b"best_http_host" => self.url.variable(b"host"),
            b"host" | b"request_uri" | b"args" | b"query_string" | b"uri" | b"document_uri" => {
                self.url.variable(name)
            }
            name => self.client.variable(name),
        }
    }

    fn random(&self) -> u64 {
        self.client.random()
    }

    fn is_internal(&self) -> bool {
        self.url.is_internal()
    }

    /// The client's connection counts where certificates are asked for: the URL's scheme shows none.
    fn is_tls(&self) -> bool {
        self.client.is_tls()
    }

    /// The URL's own: it leads to its host, whatever the client's connection is for.
    fn server_name(&self) -> Option<Cow<'_, [u8]>> {
        self.url.server_name()
    }

    fn was_asked_for(&self, asks: &[u8; 16]) -> bool {
        self.client.was_asked_for(asks)
    }

    fn certificate(&self) -> Option<Shown> {
        self.client.certificate()
    }

    fn certificate_subject(&self) -> Option<&[u8]> {
        self.client.certificate_subject()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::tests::records;
    use crate::explain::{Counted, Offline};
    use crate::patterns::Patterns;
    use crate::text::template;
    use serde_json::json;

    /// Hosts a.test, whose sign-in is below /oauth2, and mine.test, which wants client certificates.
    fn found(url_host: &str, target: &str) -> Result<OwnServer, NoServer> {
        found_by(Reach::Services, "", url_host, target)
    }

    fn found_by(
        reach: Reach,
        namespace: &str,
        url_host: &str,
        target: &str,
    ) -> Result<OwnServer, NoServer> {
        let endpoint = json!([{"address": "10.0.0.1", "port": 80}]);
        let rule = |path: &str, backend: &str, policies: &str| match policies {
            "" => json!({"path": {"prefix": path}, "backend": backend}),
            id => json!({"path": {"prefix": path}, "backend": backend, "policies": id}),
        };
        let records = records(json!({
            "servers": {"a.test": {"rules": [
                rule("/", "auth/app/80", "closed"),
                rule("/empty", "auth/none/80", ""),
                rule("/moved", "auth/proxy/80", "moved"),
                rule("/new", "auth/proxy/80", "new"),
                rule("/oauth2", "auth/proxy/80", ""),
                rule("/tls", "auth/proxy/80", "tls"),
            ]}, "mine.test": {"rules": [rule("/", "auth/proxy/80", "")]}},
            "policies": {
                "tls": {"proxy": {"protocol": "https"}},
                "moved": {"redirect": {"location": "https://x.test/", "code": 301}},
                "new": {"rewrite": {"target": "/n%20w?x=1"}},
                "closed": {"access": {"allow": ["10.0.0.0/8"]}}},
            "tls": {"mine.test": {"denied": true}},
            "backends": {"auth/proxy/80": {}, "auth/app/80": {}, "auth/none/80": {}},
            "endpoints": {"auth/proxy/80": endpoint, "auth/app/80": endpoint, "auth/none/80": []},
        }));
        let counted = |_: &[u8], _: usize| None::<Counted>;
        let patterns = Patterns::default();
        let generation = Offline { records: &&records, patterns: &patterns, counted: &counted };
        let asked = ExplainRequest::from_query(b"host=a.test&path=/x").unwrap();
        let client = RequestFacts { asked: &asked, host: "a.test", path: b"/x" };
        let (authority, target) = (url_host.as_bytes(), target.as_bytes());
        let namespace = namespace.as_bytes();
        find(&generation, &client, &Url { is_https: true, authority, target, reach, namespace })
    }

    #[test]
    fn the_rule_of_the_url_says_whose_endpoints_are_asked() {
        let server = found("a.test:8443", "/oauth2/auth?x=1").unwrap();
        assert_eq!(server.backend, b"auth/proxy/80");
        assert_eq!((&*server.host, &*server.target), (&b"a.test"[..], &b"/oauth2/auth?x=1"[..]));
        assert!(!server.https);
        assert!(found("A.test", "/tls").unwrap().https);
        assert_eq!(found("a.test", "/new").unwrap().target, b"/n%20w?x=1");
    }

    #[test]
    fn a_service_is_found_by_its_name_in_the_cluster() {
        let server = found("proxy.auth.svc.cluster.local:80", "/auth").unwrap();
        assert_eq!(server.backend, b"auth/proxy/80");
        assert_eq!(found("proxy.auth.svc", "/auth"), Err(NoServer::NoEndpoint), "port 443");
    }

    #[test]
    fn neither_a_client_nor_another_namespace_chooses_who_lets_in() {
        assert!(found_by(Reach::Rules, "", "a.test", "/oauth2/auth").is_ok());
        let stranger = found_by(Reach::Rules, "other", "a.test", "/oauth2/auth");
        assert_eq!(stranger, Err(NoServer::Stranger));
        let service = found_by(Reach::Rules, "", "proxy.auth.svc:80", "/auth");
        assert_eq!(service, Err(NoServer::Unknown), "a Host that names a Service");
        let reach = |text: &'static str| Reach::of(template::parts(text.as_bytes()));
        assert_eq!(reach("$host"), Some(Reach::Rules));
        assert_eq!(reach("sso.$Http_Host"), Some(Reach::Rules));
        assert_eq!(reach("proxy.$namespace.svc"), Some(Reach::Services));
        for text in ["$arg_to", "$cookie_a.test", "$1.test", "$http_x", "$uri"] {
            assert_eq!(reach(text), None, "{text}");
        }
    }

    #[test]
    fn what_answers_by_itself_or_restricts_access_is_no_server() {
        for (host, target, why) in [
            ("a.test", "/", NoServer::Protected),
            ("a.test", "/oauth2/../", NoServer::Protected),
            ("a.test", "/moved", NoServer::Answered),
            ("mine.test", "/", NoServer::Unknown),
            ("a.test", "/empty", NoServer::NoEndpoint),
            ("b.test", "/", NoServer::Unknown),
            ("", "/", NoServer::NoHost),
            ("a.test/x", "/", NoServer::NoHost),
            ("a.test\r\nX: y", "/", NoServer::NoHost),
        ] {
            assert_eq!(found(host, target), Err(why), "{host}{target}");
        }
    }
}
