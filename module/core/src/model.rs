//! The model that both programs share: the content of one generation of configuration.
//!
//! Shape:   [`Snapshot`] > [`Server`] > [`Rule`] > backend id > [`EndpointSet`] > [`Endpoint`];
//!          certificates and their server names are separate from the servers.
//! Units:   ports are TCP ports, paths are as nginx normalises them (decoded, no dot segments).
//! Errors:  [`Invalid`], whose text names the value and the remedy; the wire adds the JSON pointer.
//! Source:  docs/module/endpoint.md; limits are ours.

mod backend;
mod bundle;
mod listener;
pub(super) mod object;
pub mod policy;
mod selection;
mod session;
mod text;

pub use backend::{
    Affinity, AffinityMode, Algorithm, Backend, Cookie, Ejection, Endpoint, EndpointSet, HashBy,
    SameSite, Split,
};
pub use bundle::{Bundle, BundleId};
pub use listener::ListenerHost;
pub use selection::{PATH, Selection, ValueMatch, ValuePattern};
pub use session::{SessionPlace, SessionRoute, SessionTarget, SessionWay};
pub use text::{BackendId, CertificateId, HostPattern, Invalid, PathPattern, StreamPort, shorten};

pub use crate::record::table::Snapshot;
use policy::{HeaderPattern, HeaderValue, PolicyId, TlsPolicy};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

crate::model::object::objects!(Settings, Server, Rule, Origin, Policy, Certificate);

/// Most endpoints one backend may have.
pub const MAX_ENDPOINTS: usize = 10_000;
/// Most alternatives one backend may have.
pub const MAX_ALTERNATIVES: usize = 64;
/// Most rules one server may have.
pub const MAX_RULES: usize = 10_000;
/// Longest certificate chain or key, in bytes of PEM.
pub const MAX_PEM_BYTES: usize = 128 * 1024;

/// Settings that hold for every server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Settings {
    /// The backend of requests that match no rule; absent: 404.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<BackendId>,
    /// Status of redirects to HTTPS.
    pub http_redirect_code: RedirectCode,
    /// `Strict-Transport-Security` of responses that go out over TLS; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<HeaderValue>,
    /// Requests with one of these `User-Agent`s are answered with 403.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_user_agents: Vec<HeaderPattern>,
    /// Requests with one of these `Referer`s are answered with 403.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_referers: Vec<HeaderPattern>,
    /// Handshakes for a server name of no host are refused, and so are those without one unless a certificate is there for them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rejects_unknown_names: bool,
    /// Ports of nginx on which only [`Snapshot::listener_servers`] are served, and no other server.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub listener_ports: BTreeSet<u16>,
    /// Addresses of this machine that Gateways have for themselves: the same holds for them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub listener_addresses: BTreeSet<IpAddr>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            default_backend: None,
            http_redirect_code: RedirectCode::PermanentRedirect,
            hsts: None,
            blocked_user_agents: Vec::new(),
            blocked_referers: Vec::new(),
            rejects_unknown_names: false,
            listener_ports: BTreeSet::new(),
            listener_addresses: BTreeSet::new(),
        }
    }
}

/// The statuses a redirect may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum RedirectCode {
    /// Status 301, after which a client may change POST to GET.
    MovedPermanently,
    /// Status 302, after which a client may change POST to GET.
    Found,
    /// Status 307, which keeps method and body.
    TemporaryRedirect,
    /// Status 308, which keeps method and body.
    PermanentRedirect,
}

impl TryFrom<u16> for RedirectCode {
    type Error = Invalid;

    fn try_from(code: u16) -> Result<Self, Invalid> {
        match code {
            301 => Ok(RedirectCode::MovedPermanently),
            302 => Ok(RedirectCode::Found),
            307 => Ok(RedirectCode::TemporaryRedirect),
            308 => Ok(RedirectCode::PermanentRedirect),
            _ => {
                Err(Invalid::new(format!("redirect code {code} is not one of 301, 302, 307, 308")))
            }
        }
    }
}

impl From<RedirectCode> for u16 {
    fn from(code: RedirectCode) -> u16 {
        match code {
            RedirectCode::MovedPermanently => 301,
            RedirectCode::Found => 302,
            RedirectCode::TemporaryRedirect => 307,
            RedirectCode::PermanentRedirect => 308,
        }
    }
}

/// One virtual host: its rules, in any order (the record sorts them).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Server {
    /// At most [`MAX_RULES`], no two with the same path pattern, unless they take other requests for it, or shares of the
    /// same ones.
    #[serde(deserialize_with = "checked_rules")]
    pub rules: Vec<Rule>,
    /// The listener that has the host, if it is one of HTTPS: requests over TLS have to come by a connection for this
    /// listener. Looked at in [`Snapshot::listener_servers`] only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<ListenerHost>,
    /// What this listener asks of its connections, in place of what Ingresses ask for the host. Looked at where `listener` is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<TlsPolicy>>,
}

impl Server {
    /// The server with these rules, which is of no listener of HTTPS.
    pub fn of(rules: Vec<Rule>) -> Self {
        Server { rules, ..Server::default() }
    }
}

/// Reads a field that is valid only if `check` says so.
fn checked<'de, T: Deserialize<'de>, D: Deserializer<'de>, E: fmt::Display>(
    from: D,
    check: impl FnOnce(&T) -> Result<(), E>,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    check(&value).map_err(serde::de::Error::custom)?;
    Ok(value)
}

fn checked_rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Rule>, D::Error> {
    checked(from, |rules: &Vec<Rule>| check_rules(rules))
}

fn check_rules(rules: &[Rule]) -> Result<(), String> {
    if rules.len() > MAX_RULES {
        return Err(format!(
            "{} rules in one server, at most {MAX_RULES} are served: split the host",
            rules.len()
        ));
    }
    let mut seen = BTreeMap::new();
    let mut twice = None;
    for rule in rules {
        let criteria = rule.selection.as_deref().and_then(Selection::criteria);
        let shares = rule.selection.as_ref().is_some_and(|selection| selection.weight.is_some());
        let other = seen.insert((&rule.path, criteria), shares);
        if other.is_some_and(|other| !(other && shares)) {
            twice = twice.or(Some(rule));
        }
    }
    match twice {
        Some(twice) => Err(format!("path {} is defined twice in one server: keep one", twice.path)),
        None => Ok(()),
    }
}

/// A path of a server and what happens to requests for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Rule {
    /// The paths that the rule matches.
    pub path: PathPattern,
    /// The backend of the rule's requests; absent: the default backend, or 404 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendId>,
    /// The objects that the rule comes from: logged, never matched.
    #[serde(default)]
    pub origin: Origin,
    /// The decisions of a rule that are made per request.
    #[serde(default)]
    pub policy: Policy,
    /// The policies of the rule; absent: none. If they have no record the rule answers 503, as a missing policy may
    /// be one that protects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PolicyId>,
    /// The requests for its path that the rule takes; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Box<Selection>>,
}

/// The Kubernetes objects a rule comes from, for logs, metrics and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Origin {
    /// Namespace of the Ingress and the Service.
    pub namespace: String,
    /// The name of the Ingress that has the rule.
    pub ingress: String,
    /// The name of the Service that the rule leads to.
    pub service: String,
    /// Port as the Ingress writes it: a number or a name.
    pub port: String,
    /// Path as the Ingress writes it.
    pub path: String,
}

/// The path below which a response speaks for the whole host (RFC 8615) and can obtain certificates for it (RFC 8555
/// §8.3): it belongs to the host's owner. Without a trailing slash.
pub const WELL_KNOWN: &str = "/.well-known";

/// Whether a path is [`WELL_KNOWN`] or lies below it.
pub fn is_well_known(path: &[u8]) -> bool {
    let rest = path.strip_prefix(WELL_KNOWN.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Per-request decisions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Policy {
    /// When plain HTTP is answered with a redirect to HTTPS.
    pub https_redirect: HttpsRedirect,
    /// For a regular expression that another namespace than the host's owner has added: it matches a path of another
    /// namespace's rule only if its literal beginning is longer than that rule's path, as for a prefix of the same
    /// text, and never at or below [`WELL_KNOWN`]. For a prefix: expressions compare with it as with the root.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// For an exact path: a request that lacks its slash is not redirected to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_strict: bool,
}

/// When plain HTTP is answered with a redirect to HTTPS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpsRedirect {
    /// Plain HTTP requests are never redirected, such as ACME challenges.
    #[default]
    Never,
    /// Plain HTTP requests are redirected if their host has a certificate.
    WithCertificate,
    /// Every plain HTTP request is redirected.
    Always,
}

/// A certificate chain with its private key, both PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Certificate {
    /// Leaf first, then intermediates; at most [`MAX_PEM_BYTES`].
    #[serde(deserialize_with = "checked_pem")]
    pub chain: String,
    /// Private key of the leaf; at most [`MAX_PEM_BYTES`]. Never logged, never returned.
    #[serde(deserialize_with = "checked_pem")]
    pub key: String,
}

fn checked_pem<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |pem: &String| match pem.len() > MAX_PEM_BYTES {
        true => Err(format!("{} bytes of PEM, at most {MAX_PEM_BYTES} are taken", pem.len())),
        false => Ok(()),
    })
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("chain_bytes", &self.chain.len())
            .finish_non_exhaustive()
    }
}
