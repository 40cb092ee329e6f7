//! Access control and limits.
//!
//! Source: ingress-nginx's annotations.

use super::script::Set;
use super::{HeaderName, RequestHeader, Script, Template, is_false};
use crate::model::{BackendId, Invalid, checked};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

crate::model::object::objects!(
    Access,
    BasicAuth,
    ExternalAuth,
    AuthHost,
    AuthCache,
    Validity,
    Limits,
    RateLimit,
    ConnectionLimit
);

/// Most networks of one list.
pub const MAX_NETWORKS: usize = 10_000;
/// Longest password file, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 1024 * 1024;

/// Access control: the networks, then the password, then the auth server. A request has to pass all of them, or any
/// of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Access {
    /// Only these clients, if there is a list.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "checked_networks_or_none"
    )]
    pub allow: Option<Vec<IpNet>>,
    /// Clients in these networks are refused, even if `allow` has them.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "checked_networks")]
    pub deny: Vec<IpNet>,
    /// A name and a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuth>,
    /// A subrequest to an auth server decides about each request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalAuth>,
    /// One of the three is enough.
    #[serde(skip_serializing_if = "is_false")]
    pub any: bool,
}

impl Access {
    /// Whether it lists networks.
    pub fn has_lists(&self) -> bool {
        self.allow.is_some() || !self.deny.is_empty()
    }

    /// Whether who has a password, or whom an auth server lets in, may come from anywhere.
    pub fn has_other_way(&self) -> bool {
        self.any && (self.basic.is_some() || self.external.is_some())
    }

    /// Whether lists of a wider level hold: beside another way in they could only let in whom that keeps out.
    pub fn inherits_lists(&self) -> bool {
        !self.has_lists() && !self.has_other_way()
    }
}

fn checked_networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    checked(from, |all: &Vec<IpNet>| match all.len() <= MAX_NETWORKS {
        true => Ok(()),
        false => {
            Err(format!("{} networks, at most {MAX_NETWORKS} are taken: join some", all.len()))
        }
    })
}

fn checked_networks_or_none<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<IpNet>>, D::Error> {
    checked_networks(from).map(Some)
}

/// HTTP Basic authentication (RFC 7617) against a password file.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct BasicAuth {
    /// The realm of the challenge, which browsers show to the user.
    pub realm: String,
    /// Lines `user:hash`, as `htpasswd` writes them; at most [`MAX_PASSWORD_BYTES`]. Never logged, never
    /// returned.
    #[serde(deserialize_with = "checked_users")]
    pub users: String,
}

fn checked_users<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    checked(from, |users: &String| match users.len() <= MAX_PASSWORD_BYTES {
        true => Ok(()),
        false => Err(format!(
            "password file of {} bytes, at most {MAX_PASSWORD_BYTES} are taken",
            users.len()
        )),
    })
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("realm", &self.realm).finish_non_exhaustive()
    }
}

/// The server of a URL that a user wrote: it is reached through a backend, whose endpoints the controller keeps up to
/// date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AuthHost {
    /// The backend with the addresses of the server.
    pub backend: BackendId,
    /// Host name as the URL has it, without port: `Host` and the TLS server name.
    pub host: super::HeaderValue,
    /// The host, perhaps with a port, as a text with variables, which then stands in place of `backend` and `host`: it is
    /// looked up among the rules of this gateway and its Services, and never in DNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable_host: Option<Template>,
    /// Whether connections to the server use TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub https: bool,
}

impl AuthHost {
    /// The backend whose endpoints the controller keeps up to date; `None`: each request names a server.
    pub fn known_backend(&self) -> Option<&BackendId> {
        self.variable_host.is_none().then_some(&self.backend)
    }
}

/// External authentication: an answer of 2xx admits a request, 401 and 403 are returned to the client, all else
/// becomes 500.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ExternalAuth {
    /// The auth server that receives the subrequest.
    pub to: AuthHost,
    /// The path and query of the auth subrequest.
    pub target: Template,
    /// The method of the auth subrequest; absent: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// On 401 the client is sent here, with status 302.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signin: Option<Template>,
    /// The parameter of `signin` that carries the URL to return to; absent: `rd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signin_parameter: Option<String>,
    /// The headers of the answer that the endpoint receives, in place of the client's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_headers: Vec<HeaderName>,
    /// Additional headers of the auth subrequest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<RequestHeader>,
    /// Steps that are taken before the server is asked. One that answers does so in the server's place; their variables
    /// are known to `headers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Box<Script>>,
    /// Variables of later texts, from the server's answer: parts of it have names that begin with
    /// [`script::OF_ANSWER`](super::script::OF_ANSWER).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer_variables: Vec<Set>,
    /// `X-Auth-Request-Redirect`; absent: the request target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<Template>,
    /// The answer's cookies reach the client whatever the final status; else only 200 201 204 206 301 302 303
    /// 304 307 308.
    #[serde(default, skip_serializing_if = "is_false")]
    pub always_sets_cookie: bool,
    /// How long answers are cached; absent: every request has its own subrequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<AuthCache>,
}

/// The cache for answers of an auth server, which all workers share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AuthCache {
    /// The text, with variables, by which clients are distinguished.
    pub key: Template,
    /// The lifetimes of answers; the first entry with the status counts.
    pub valid: Vec<Validity>,
}

/// The lifetime of answers with certain statuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Validity {
    /// The statuses to which the lifetime applies.
    pub statuses: Vec<u16>,
    /// The lifetime of a cached answer, in seconds.
    pub seconds: u32,
}

/// Limits of requests by rate, concurrency and bandwidth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Limits {
    /// The owner of the limits: rules with the same text share their counts. The controller writes
    /// `namespace/ingress/uid`.
    pub owner: String,
    /// The rate of one client's requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<RateLimit>,
    /// The rate of one client's requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<RateLimit>,
    /// The limit of one client's concurrent requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionLimit>,
    /// Clients without limits of rate and concurrency.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "checked_networks")]
    pub exempt: Vec<IpNet>,
    /// The text that identifies a client; absent: its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Template>,
    /// The number of bits of an IPv6 address that identify one client.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6_prefix: Ipv6Prefix,
    /// Bytes a second of one response; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate: Option<u64>,
    /// The number of bytes that are sent before `response_rate` applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate_after: Option<u64>,
}

/// How many bits of an IPv6 address are one client: 1 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    /// The prefix length, in bits.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Ipv6Prefix {
    /// What a site gets at least (RFC 6177).
    fn default() -> Self {
        Ipv6Prefix(64)
    }
}

impl TryFrom<u8> for Ipv6Prefix {
    type Error = Invalid;

    fn try_from(bits: u8) -> Result<Self, Invalid> {
        match bits {
            1..=128 => Ok(Ipv6Prefix(bits)),
            _ => Err(Invalid::new(format!("IPv6 prefix {bits} is not 1 to 128"))),
        }
    }
}

impl From<Ipv6Prefix> for u8 {
    fn from(prefix: Ipv6Prefix) -> u8 {
        prefix.0
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A rate; requests above it and the burst are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RateLimit {
    /// The number of requests in each second or minute.
    pub requests: u32,
    /// The number of requests above the rate that are admitted at once.
    #[serde(default)]
    pub burst: u32,
    /// The status of requests over the limit, 400 to 599.
    pub status: u16,
}

/// A limit of concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ConnectionLimit {
    /// The most concurrent requests of one client.
    pub requests: u32,
    /// The status of requests over the limit, 400 to 599.
    pub status: u16,
}
