//! Short forms: rules and request lines.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A rule of `--- ingress`: `{ host: shop.test, path: /cart, pathType: Prefix, backend: cart }`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The host; `_` when it is absent.
    pub host: String,
    /// The path; `/` when it is absent.
    pub path: String,
    /// How the path is compared: `prefix`, `exact` or `regex`.
    pub kind: Kind,
    /// Name of a backend: a line of `--- backends`, else the sample endpoint of that name.
    pub backend: Option<String>,
    pub redirect: Option<String>,
    /// Id of policies, which `--- snapshot` has.
    pub policies: Option<String>,
    /// `namespace/ingress/service/port`: whose rule it is.
    pub origin: Option<String>,
}

/// Which paths a rule takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Prefix,
    Exact,
    /// `pathType: Regex`, which Kubernetes does not have
    Regex,
}

/// The rules, one a line.
pub fn rules(text: &str) -> Result<Vec<Rule>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| rule(line).with_context(|| format!("rule `{line}`"))).collect()
}

fn rule(line: &str) -> Result<Rule> {
    let line = line.trim();
    let inner = line.strip_prefix('{').and_then(|l| l.strip_suffix('}')).context("needs { }")?;
    let mut rule = Rule { host: "_".into(), path: "/".into(), ..Rule::default() };
    for member in inner.split(',') {
        let (key, value) = member.split_once(": ").context("needs `key: value`")?;
        let value = value.trim().trim_matches('"').to_owned();
        match key.trim() {
            "host" => rule.host = value,
            "path" => rule.path = value,
            "pathType" => {
                rule.kind = match value.as_str() {
                    "Prefix" | "ImplementationSpecific" => Kind::Prefix,
                    "Exact" => Kind::Exact,
                    "Regex" => Kind::Regex,
                    other => bail!("no pathType `{other}`"),
                };
            }
            "backend" => rule.backend = Some(value),
            "redirect" => rule.redirect = Some(value),
            "policies" => rule.policies = Some(value),
            "origin" => rule.origin = Some(value),
            key => bail!("there is no key `{key}`"),
        }
    }
    Ok(rule)
}

/// The native snapshot of these rules; `backends` gives the endpoints of each backend as JSON.
pub fn snapshot(rules: &[Rule], backends: &BTreeMap<String, Vec<Value>>) -> Value {
    let mut servers: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for rule in rules {
        let kind = match rule.kind {
            Kind::Prefix => "prefix",
            Kind::Exact => "exact",
            Kind::Regex => "regex",
        };
        let mut value = json!({"path": {kind: rule.path}});
        if let Some(backend) = &rule.backend {
            value["backend"] = backend.as_str().into();
        }
        if let Some(redirect) = &rule.redirect {
            value["policy"] = json!({"https_redirect": redirect});
        }
        if let Some(policies) = &rule.policies {
            value["policies"] = policies.as_str().into();
        }
        if let Some(origin) = &rule.origin {
            let keys = ["namespace", "ingress", "service", "port"];
            value["origin"] = keys.into_iter().zip(origin.split('/')).collect();
        }
        servers.entry(&rule.host).or_default().push(value);
    }
    let servers: Map<String, Value> =
        servers.into_iter().map(|(host, rules)| (host.into(), json!({"rules": rules}))).collect();
    let declared: Map<String, Value> =
        backends.keys().map(|name| (name.clone(), json!({}))).collect();
    json!({"servers": servers, "backends": declared, "endpoints": backends})
}

/// A line of `--- requests`: `12x GET https://shop.test/cart => 200 a=6 b=6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub times: u32,
    pub method: String,
    pub url: Url,
    pub status: u16,
    pub endpoints: Endpoints,
    pub location: Option<String>,
}

/// Which sample endpoints are to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// The block expects nothing of the endpoint.
    Any,
    /// nginx answers by itself, without an endpoint.
    None,
    OneOf(Vec<String>),
    /// All the same one: the one of this name, or from now on it has it.
    Named(String),
    /// Any but the one of this name.
    NotNamed(String),
    /// Each so often, give or take.
    Counts(BTreeMap<String, (u32, u32)>),
}

/// Scheme, host, port and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub is_tls: bool,
    /// For `Host` and SNI; `localhost` when the line gives a path only.
    pub host: String,
    /// Absent: nginx's port of the scheme.
    pub port: Option<u16>,
    pub target: String,
}

impl Url {
    /// Reads `/path`, `http://host/path` or `https://host:port/path`.
    pub fn parse(text: &str) -> Result<Self> {
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => {
                let host = "localhost".into();
                return Ok(Url { is_tls: false, host, port: None, target: text.into() });
            }
        };
        let (authority, target) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse()?)),
            _ => (authority, None),
        };
        Ok(Url { is_tls, host: host.into(), port, target: target.into() })
    }

    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }
}

/// The lines of `--- requests`.
pub fn lines(text: &str) -> Result<Vec<Line>> {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    lines.map(|line| request_line(line).with_context(|| format!("request `{line}`"))).collect()
}

fn request_line(text: &str) -> Result<Line> {
    let (what, expected) = text.split_once("=>").unwrap_or((text, "200"));
    let mut words = what.split_whitespace().peekable();
    let times = match words.peek().and_then(|word| word.strip_suffix('x')) {
        Some(count) => {
            let count = count.parse().context("how often?")?;
            words.next();
            count
        }
        None => 1,
    };
    let method = words.next().context("a method?")?.to_owned();
    let url = Url::parse(words.next().context("a URL?")?)?;
    ensure!(words.next().is_none(), "too many words");

    let mut words = expected.split_whitespace();
    let status = words.next().context("a status?")?.parse().context("a status?")?;
    let (mut endpoints, mut location) = (Endpoints::Any, None);
    for word in words {
        if word == "-" {
            endpoints = Endpoints::None;
        } else if let Some(name) = word.strip_prefix('@') {
            endpoints = Endpoints::Named(name.into());
        } else if let Some(name) = word.strip_prefix("!@") {
            endpoints = Endpoints::NotNamed(name.into());
        } else if word.contains("://") || word.starts_with('/') {
            location = Some(word.to_owned());
        } else if let Some((name, count)) = word.split_once('=') {
            let (count, slack) = count.split_once('~').unwrap_or((count, "0"));
            let expected = (count.parse()?, slack.parse()?);
            match &mut endpoints {
                Endpoints::Counts(counts) => drop(counts.insert(name.into(), expected)),
                _ => endpoints = Endpoints::Counts([(name.to_owned(), expected)].into()),
            }
        } else {
            endpoints = Endpoints::OneOf(word.split('|').map(str::to_owned).collect());
        }
    }
    Ok(Line { times, method, url, status, endpoints, location })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_becomes_a_native_server() {
        let rules =
            rules("{ host: shop.test, path: /cart, pathType: Exact, backend: cart }").unwrap();
        let value = snapshot(&rules, &[("cart".to_owned(), vec![])].into());
        assert_eq!(
            value["servers"]["shop.test"]["rules"],
            json!([{"path": {"exact": "/cart"}, "backend": "cart"}])
        );
        let text = value.to_string();
        serde_json::from_str::<oxigress_core::model::Snapshot>(&text).unwrap();
    }

    #[test]
    fn a_rule_with_a_typing_error_is_refused() {
        for text in ["{ hots: a }", "host: a", "{ pathType: Prefx }", "{ host }"] {
            assert!(rules(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_line_says_how_often_what_and_who() {
        let line = request_line("12x GET https://shop.test/a?b => 200 a=6 b=6~1").unwrap();
        assert_eq!((line.times, line.url.is_tls, line.url.target.as_str()), (12, true, "/a?b"));
        let counts = [("a".to_owned(), (6, 0)), ("b".to_owned(), (6, 1))].into();
        assert_eq!(line.endpoints, Endpoints::Counts(counts));
        let line = request_line("GET http://a.test:81/ => 308 https://a.test").unwrap();
        assert_eq!((line.status, line.url.port), (308, Some(81)));
        assert_eq!(line.location.as_deref(), Some("https://a.test"));
        assert_eq!(request_line("GET /").unwrap().status, 200);
        assert_eq!(request_line("GET / => 404 -").unwrap().endpoints, Endpoints::None);
        assert_eq!(
            request_line("GET / => 200 @x").unwrap().endpoints,
            Endpoints::Named("x".into())
        );
        let line = request_line("GET / => 200 !@x").unwrap();
        assert_eq!(line.endpoints, Endpoints::NotNamed("x".into()));
        assert!(request_line("GET").is_err());
        assert!(request_line("GET / => ok").is_err());
    }
}
