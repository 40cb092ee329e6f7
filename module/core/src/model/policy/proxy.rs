//! How nginx talks to client and endpoint.
//!
//! Source: ingress-nginx's annotations.

use super::{HeaderValue, RequestHeader, is_false};
use crate::model::BundleId;
use serde::{Deserialize, Serialize};
use std::fmt;

crate::model::object::objects!(Proxy, Replacement, CookieFlags, UpstreamTls);

/// Settings of nginx's proxy modules; for an absent one the value of nginx.conf holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
#[allow(missing_docs, reason = "the directives of nginx; units in the names")]
pub struct Proxy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_timeout_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_timeout_seconds: Option<u32>,
    /// Bounds connecting, each pause in sending and in receiving, and further attempts, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
    /// Bounds further attempts in place of that, in milliseconds: those that are made have what is left of it. 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_timeout_ms: Option<u32>,
    /// Responses are read as fast as the endpoint sends them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffering: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_buffers_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_temp_file_bytes: Option<u64>,
    /// A request is read as a whole before the endpoint sees any of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_buffering: Option<bool>,
    /// Largest request body; 0: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_buffer_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_version: Option<HttpVersion>,
    /// Replacements of `Domain` in `Set-Cookie`, as nginx's `proxy_cookie_domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_domain: Option<Replacement>,
    /// Replacements of `Path` in `Set-Cookie`, as nginx's `proxy_cookie_path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_path: Option<Replacement>,
    /// Flags of `Set-Cookie`, as nginx's `proxy_cookie_flags`: those of the first that is about a cookie count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_flags: Option<Vec<CookieFlags>>,
    /// Replacements in `Location` and `Refresh`, as nginx's `proxy_redirect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<ProxyRedirect>,
    /// The conditions on which another endpoint is tried; empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream: Option<Vec<Condition>>,
    /// The time within which another endpoint may be tried, in seconds; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream_timeout_seconds: Option<u32>,
    /// The number of attempts, counting the first; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream_tries: Option<u32>,
    /// When all endpoints have been tried, they are tried again.
    #[serde(skip_serializing_if = "is_false")]
    pub next_upstream_repeats: bool,
    /// The value of `Connection` that the endpoint receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionHeader>,
    /// Follows a path that ends with a slash, for FastCGI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fastcgi_index: Option<HeaderValue>,
    /// FastCGI parameters beside nginx.conf's, in place of those of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fastcgi_params: Vec<RequestHeader>,
    /// Certificates, ciphers and verification of TLS connections to endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
}

impl Proxy {
    /// The smallest buffer: into one without room nginx reads for ever, and with one byte it works for each byte as long as
    /// for a page.
    pub const LEAST_BUFFER_BYTES: u32 = 1_024;
}

/// What becomes of the flags of a cookie; `None`: what the endpoint says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct CookieFlags {
    /// The name of the cookie, in whatever case; `None`: every cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<HeaderValue>,
    /// The cookie has the flag `Secure`, or has it not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// The cookie has the flag `HttpOnly`, or has it not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_only: Option<bool>,
    /// The value of `SameSite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_site: Option<SameSite>,
}

/// The value of a cookie's `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the values of the attribute")]
pub enum SameSite {
    /// The cookie has no such attribute.
    Absent,
    None,
    Lax,
    Strict,
}

/// The protocol between nginx and endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "names of protocols")]
pub enum Protocol {
    #[default]
    Http,
    Https,
    /// HTTPS for a request that came so, else HTTP.
    AutoHttp,
    Grpc,
    Grpcs,
    Fastcgi,
}

/// The version of HTTP toward the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpVersion {
    /// HTTP/1.0, which closes the connection after each response.
    #[serde(rename = "1.0")]
    V10,
    /// HTTP/1.1, with keep-alive and upgrades.
    #[serde(rename = "1.1")]
    V11,
}

/// The value of `Connection` in requests to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the header's values")]
pub enum ConnectionHeader {
    #[serde(rename = "close")]
    Close,
    #[serde(rename = "keep-alive")]
    KeepAlive,
}

/// A replacement of one text by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Replacement {
    /// The text that is replaced, literally.
    pub from: HeaderValue,
    /// The text that takes its place.
    pub to: HeaderValue,
}

/// How `Location` and `Refresh` of a response change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyRedirect {
    /// `Location` and `Refresh` of endpoints pass unchanged.
    Off,
    /// The URL of the endpoint is replaced by the client's.
    Default,
    /// A beginning with the one text is replaced by the other.
    Replace(Replacement),
}

/// A condition on which another endpoint is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the words of proxy_next_upstream")]
pub enum Condition {
    Error,
    Timeout,
    InvalidHeader,
    Http500,
    Http502,
    Http503,
    Http504,
    Http403,
    Http404,
    Http429,
    NonIdempotent,
}

/// Certificates, ciphers and verification of TLS connections to endpoints.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct UpstreamTls {
    /// PEM: the client certificate shown to endpoints, with its chain; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub certificate: String,
    /// PEM: its key. Never logged, never returned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The bundle of trusted authorities; absent: none. A bundle without a record closes with 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<BundleId>,
    /// Whether a certificate that is not trusted, or has another name, ends the attempt.
    #[serde(skip_serializing_if = "is_false")]
    pub verify: bool,
    /// Certificates between the endpoint's and the authority's; 0: 1.
    pub verify_depth: u32,
    /// The name that is verified and sent; absent: `Host` as the endpoint sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<HeaderValue>,
    /// The name is sent (SNI).
    #[serde(skip_serializing_if = "is_false")]
    pub server_name: bool,
    /// OpenSSL's cipher list; absent: its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ciphers: Option<HeaderValue>,
    /// Words `TLSv1.2` and `TLSv1.3`; empty: TLSv1.2.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls")
            .field("verify", &self.verify)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
