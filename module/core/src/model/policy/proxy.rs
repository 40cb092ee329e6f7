//! How nginx talks to client and endpoint.
//!
//! Source: ingress-nginx's annotations.

use super::{HeaderValue, RequestHeader, is_false};
use crate::model::BundleId;
use serde::{Deserialize, Serialize};
use std::fmt;

crate::wire::objects!(Proxy, Replacement, UpstreamTls);

/// Settings of nginx's proxy modules; an absent one is what nginx.conf says.
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
    /// `Domain` of cookies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_domain: Option<Replacement>,
    /// `Path` of cookies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_path: Option<Replacement>,
    /// `Location` and `Refresh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<ProxyRedirect>,
    /// When another endpoint is asked; empty: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream: Option<Vec<Condition>>,
    /// 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream_timeout_seconds: Option<u32>,
    /// Attempts, with the first; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_upstream_tries: Option<u32>,
    /// `Connection` for the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionHeader>,
    /// Follows a path that ends with a slash, for FastCGI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fastcgi_index: Option<HeaderValue>,
    /// FastCGI parameters beside nginx.conf's, in place of those of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fastcgi_params: Vec<RequestHeader>,
    /// TLS toward the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTls>,
}

/// What an endpoint speaks.
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
    /// HTTP/1.0
    #[serde(rename = "1.0")]
    V10,
    /// HTTP/1.1
    #[serde(rename = "1.1")]
    V11,
}

/// `Connection` for the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the header's values")]
pub enum ConnectionHeader {
    #[serde(rename = "close")]
    Close,
    #[serde(rename = "keep-alive")]
    KeepAlive,
}

/// Text in place of other text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Replacement {
    /// What is replaced.
    pub from: HeaderValue,
    /// By what.
    pub to: HeaderValue,
}

/// What becomes of `Location` and `Refresh` of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyRedirect {
    /// They pass.
    Off,
    /// What begins with the endpoint's URL gets the client's.
    Default,
    /// What begins with the one text begins with the other.
    Replace(Replacement),
}

/// When another endpoint is asked.
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

/// TLS toward an endpoint.
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
    /// The bundle of those who vouch for endpoints; absent: nobody does. One that is not there: 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<BundleId>,
    /// A certificate that nobody vouches for, or of another name, ends the attempt.
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
