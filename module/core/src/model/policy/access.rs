//! Who may come in, and how often.
//!
//! Source: ingress-nginx's annotations.

use super::{HeaderName, RequestHeader, Template, is_false};
use crate::model::{BackendId, Invalid};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::fmt;

crate::wire::objects!(
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

/// Who may come in: the networks, then the password, then the auth server; all of them, or any of them.
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
    /// Never these clients.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "checked_networks")]
    pub deny: Vec<IpNet>,
    /// A name and a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicAuth>,
    /// Another server decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalAuth>,
    /// One of the three is enough.
    #[serde(skip_serializing_if = "is_false")]
    pub any: bool,
}

fn checked_networks<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let all = Vec::<IpNet>::deserialize(from)?;
    match all.len() <= MAX_NETWORKS {
        true => Ok(all),
        false => Err(serde::de::Error::custom(format!(
            "{} networks, at most {MAX_NETWORKS} are taken: join some",
            all.len()
        ))),
    }
}

fn checked_networks_or_none<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<IpNet>>, D::Error> {
    checked_networks(from).map(Some)
}

/// HTTP Basic authentication.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct BasicAuth {
    /// Shown to the user.
    pub realm: String,
    /// Lines `user:hash`, as `htpasswd` writes them; at most [`MAX_PASSWORD_BYTES`]. Never logged, never
    /// returned.
    #[serde(deserialize_with = "checked_users")]
    pub users: String,
}

fn checked_users<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let users = String::deserialize(from)?;
    match users.len() <= MAX_PASSWORD_BYTES {
        true => Ok(users),
        false => Err(serde::de::Error::custom(format!(
            "password file of {} bytes, at most {MAX_PASSWORD_BYTES} are taken",
            users.len()
        ))),
    }
}

impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BasicAuth").field("realm", &self.realm).finish_non_exhaustive()
    }
}

/// A server of a URL that a user wrote: reached through a backend, whose endpoints the controller keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AuthHost {
    /// Its addresses.
    pub backend: BackendId,
    /// Host name as the URL has it, without port: `Host` and the TLS server name.
    pub host: super::HeaderValue,
    /// TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub https: bool,
}

/// Another server decides: 2xx lets a request in, 401 and 403 are the client's answer, all else is 500.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ExternalAuth {
    /// Who decides.
    pub to: AuthHost,
    /// Path and query of the question.
    pub target: Template,
    /// Method of the question; absent: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// On 401 the client is sent here, with status 302.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signin: Option<Template>,
    /// The parameter of `signin` that tells where the client wanted to go; absent: `rd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signin_parameter: Option<String>,
    /// Headers of the answer that the endpoint gets, in place of the client's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_headers: Vec<HeaderName>,
    /// More headers of the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<RequestHeader>,
    /// `X-Auth-Request-Redirect`; absent: the request target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<Template>,
    /// The answer's cookies reach the client whatever the final status; else only 200 201 204 206 301 302 303
    /// 304 307 308.
    #[serde(default, skip_serializing_if = "is_false")]
    pub always_sets_cookie: bool,
    /// Answers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<AuthCache>,
}

/// Answers of an auth server are kept, for all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct AuthCache {
    /// What tells one client from another, with variables.
    pub key: Template,
    /// How long; the first that has the status counts.
    pub valid: Vec<Validity>,
}

/// How long an answer is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Validity {
    /// Of these statuses.
    pub statuses: Vec<u16>,
    /// Seconds.
    pub seconds: u32,
}

/// How often, how many at once, and how fast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Limits {
    /// Whose limit it is: rules with the same text share their counts. The controller says
    /// `namespace/ingress/uid`.
    pub owner: String,
    /// Requests a second, a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<RateLimit>,
    /// Requests a minute, a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<RateLimit>,
    /// Requests at the same time, a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionLimit>,
    /// Clients that none of the above holds for.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "checked_networks")]
    pub exempt: Vec<IpNet>,
    /// What a client is; absent: its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Template>,
    /// How many bits of an IPv6 address are one client.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6_prefix: Ipv6Prefix,
    /// Bytes a second of one response; absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate: Option<u64>,
    /// Bytes before `response_rate` begins to hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_rate_after: Option<u64>,
}

/// How many bits of an IPv6 address are one client: 1 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Ipv6Prefix(u8);

impl Ipv6Prefix {
    /// The number of bits.
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

/// A rate; what comes above it and the burst is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct RateLimit {
    /// Requests in the unit of the field.
    pub requests: u32,
    /// Requests that may come at once above the rate.
    #[serde(default)]
    pub burst: u32,
    /// Status of a refusal.
    pub status: u16,
}

/// Requests at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ConnectionLimit {
    /// At most this many.
    pub requests: u32,
    /// Status of a refusal.
    pub status: u16,
}
