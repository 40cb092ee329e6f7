//! The policies of rules: everything that is decided per request besides the backend.
//!
//! Shape:   a rule names at most one [`Policies`], which any number of rules share: the controller identifies it by
//!          a digest of its content, so that ten thousand Ingresses with equal policies have one record, and each
//!          worker one compiled form.
//! Units:   each field names its own; for an absent field the value of nginx.conf holds.
//! Errors:  [`Invalid`]: every text has its grammar, here, for both programs.
//! Source:  ingress-nginx's annotations; limits are ours.

mod access;
pub mod defined;
mod if_location;
mod input;
mod proxy;
mod redirection;
mod response;
pub mod script;
mod templates;
mod text;
mod tls;
mod tracing;

pub use access::{
    Access, AuthCache, AuthHost, BasicAuth, ConnectionLimit, ExternalAuth, Ipv6Prefix, Limits,
    RateLimit, Validity,
};
pub use defined::Definitions;
pub use input::InputEdit;
pub use proxy::{
    Condition, ConnectionHeader, CookieFlags, HttpVersion, Protocol, Proxy, ProxyRedirect,
    Replacement, SameSite, UpstreamTls,
};
pub use redirection::{PathEdit, RedirectTo};
pub use response::{EditAction, ResponseEdit};
pub use script::Script;
pub use text::{HeaderName, HeaderPattern, HeaderValue, Template};
pub use tls::{ClientCertificates, TlsPolicy, VerifyClient};
pub use tracing::{Propagation, Sampling, Tracing};

use super::{BackendId, BundleId, Invalid, checked};
use serde::{Deserialize, Deserializer, Serialize};
use std::num::NonZeroU32;

crate::model::object::objects!(Policies, Redirect, Rewrite, Cors, ResponseHeader, Errors, Mirror);

/// The policies of the rules that name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Policies {
    /// The status that answers every request, 400 to 599, because a setting that protects could not be honoured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<u16>,
    /// The redirect that answers every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// The redirect of a route that answers every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_to: Option<RedirectTo>,
    /// The path that the endpoint sees, of a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_edit: Option<PathEdit>,
    /// A redirect to HTTPS keeps the slash at the end of the request target.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_trailing_slash: bool,
    /// A redirect to HTTPS, and nginx's own redirects, name the port: this one, of the HTTPS listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
    /// nginx's own redirects name no host.
    #[serde(skip_serializing_if = "is_false")]
    pub relative_redirects: bool,
    /// The path and query that the endpoint sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<Rewrite>,
    /// Steps before all else that these policies answer, as nginx's rewrite module takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Box<Script>>,
    /// Of the policies [`Definitions::ID`]: variables for the texts of all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definitions: Option<Box<Definitions>>,
    /// `Host` as the endpoint sees it; absent: the client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_host: Option<Template>,
    /// Headers of cross-origin responses; absent: the endpoint's own pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,
    /// Address lists and authentication; absent: every client is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Rates, concurrent requests and bandwidth of each client; absent: no limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Settings of nginx's proxy modules toward client and endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// Changes of the client's headers, before all that the endpoint receives beside them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_edits: Vec<InputEdit>,
    /// Headers of every response, whatever its status, in place of the endpoint's own of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_headers: Vec<ResponseHeader>,
    /// Headers that the endpoint receives in addition to nginx.conf's; they replace the client's of the same name,
    /// and an empty value removes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request_headers: Vec<RequestHeader>,
    /// Headers that the endpoint receives in addition to the client's of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added_request_headers: Vec<RequestHeader>,
    /// Headers of every response in addition to the endpoint's of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added_response_headers: Vec<ResponseHeader>,
    /// Headers that are taken from responses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_response_headers: Vec<HeaderName>,
    /// Further changes of responses' headers, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_edits: Vec<ResponseEdit>,
    /// Headers that HTTP endpoints receive beside those that the gateway sends of itself, also of the same names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside_own_headers: Vec<RequestHeader>,
    /// Statuses that another backend answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
    /// The backend that serves, as an error of 503, while the rule's backend has no endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<BackendId>,
    /// A server that receives a copy of every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// Further servers that receive copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub more_mirrors: Vec<Mirror>,
    /// Requests are left out of the access log.
    #[serde(skip_serializing_if = "is_false")]
    pub is_unlogged: bool,
    /// Spans of requests; absent: requests are not traced, and the client's trace context passes as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

/// A redirect that answers every request of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Redirect {
    /// The status of the redirect, 300 to 308.
    #[serde(deserialize_with = "checked_redirect_code")]
    pub code: u16,
    /// `Location`, as it is: a URL, or a path on the same host and port when it begins with a slash, which
    /// then gets `scheme://host:port` before it.
    pub location: Template,
    /// The request target, without one slash at its end, follows the location.
    #[serde(default, skip_serializing_if = "is_false")]
    pub appends_target: bool,
}

fn checked_redirect_code<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    checked(from, |code| match (300..=308).contains(code) {
        true => Ok(()),
        false => Err(format!("redirect code {code} is not one of 300 to 308")),
    })
}

/// The path and query that the endpoint sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Rewrite {
    /// The text that replaces the whole path: text with variables and captures of the rule's path pattern (`$1`;
    /// captures of a path that is no pattern are empty). If it begins with `http://`, `https://` or `$scheme`, the
    /// client is redirected there instead, with status 302.
    pub target: Template,
    /// The value of `X-Forwarded-Prefix` that the endpoint receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded_prefix: Option<Template>,
}

/// Cross-origin resource sharing, decided by the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Cors {
    /// `scheme://host[:port]` with `*.` for one first label, or `null`; absent: every origin is allowed. Empty:
    /// none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<HeaderValue>>,
    /// The value of `Access-Control-Allow-Methods` in preflight responses.
    pub methods: HeaderValue,
    /// The value of `Access-Control-Allow-Headers` in preflight responses.
    pub headers: HeaderValue,
    /// `Access-Control-Expose-Headers`; absent: no such header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed: Option<HeaderValue>,
    /// Whether responses have `Access-Control-Allow-Credentials: true`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub credentials: bool,
    /// The value of `Access-Control-Max-Age`, in seconds.
    pub max_age: i64,
    /// As the Gateway API has it: the star of an origin stands for several labels, and where `*` is allowed the answer names what
    /// the client asks for, if it may be allowed to send credentials.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_of_route: bool,
}

/// A header of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ResponseHeader {
    /// The name of the header in the response.
    pub name: HeaderName,
    /// The value of the header, without variables.
    pub value: HeaderValue,
}

/// A header for the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHeader {
    /// The name of the header in the request to the endpoint.
    pub name: HeaderName,
    /// Its value, with variables; one that turns out empty is not sent.
    pub value: Template,
}

/// Statuses that another backend answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Errors {
    /// The intercepted statuses, each from 300 to 599.
    #[serde(deserialize_with = "checked_error_codes")]
    pub codes: Vec<u16>,
    /// The backend that answers; absent: the default backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendId>,
    /// Only nginx's own errors count; those of an endpoint pass as they are.
    #[serde(skip_serializing_if = "is_false")]
    pub own_only: bool,
}

fn checked_error_codes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u16>, D::Error> {
    checked(from, |codes: &Vec<u16>| match codes.iter().find(|code| !(300..=599).contains(*code)) {
        None => Ok(()),
        Some(code) => Err(format!("error code {code} is not one of 300 to 599")),
    })
}

/// A server that receives a copy of every request; its answers are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Mirror {
    /// The server that receives the copy.
    pub to: AuthHost,
    /// Path and query of the copy, with variables; empty: the client's.
    #[serde(default = "Template::empty")]
    pub target: Template,
    /// `Host` of the copy; absent: that of `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HeaderValue>,
    /// The copy has no body.
    #[serde(default, skip_serializing_if = "is_false")]
    pub without_body: bool,
    /// The share of requests that are copied, a numerator and a denominator; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<(u32, NonZeroU32)>,
}

impl Policies {
    /// Most bytes of one record's JSON: 30,000 networks (1.4 MB) and a password file.
    pub const MAX_BYTES: usize = 4 * 1024 * 1024;
    /// Most headers in all its lists: each is compared with all headers of a request or answer.
    pub const MAX_HEADERS: usize = 1_000;
    /// Most bytes of it besides networks, passwords, certificates and keys, which have their own bounds. A worker reads so
    /// much in 1 to 3 ms, 30,000 networks in 3.5 ms, a password file in 2 ms (release build).
    pub const MAX_OTHER_BYTES: usize = 512 * 1024;

    /// The backends that it names.
    pub fn backends(&self) -> impl Iterator<Item = &BackendId> {
        let Policies {
            access,
            errors,
            fallback,
            mirror: _,
            more_mirrors: _,
            denied: _,
            redirect: _,
            redirect_to: _,
            path_edit: _,
            added_request_headers: _,
            added_response_headers: _,
            removed_response_headers: _,
            response_edits: _,
            input_edits: _,
            beside_own_headers: _,
            keeps_trailing_slash: _,
            redirect_port: _,
            relative_redirects: _,
            rewrite: _,
            script: _,
            definitions: _,
            upstream_host: _,
            cors: _,
            limits: _,
            proxy: _,
            response_headers: _,
            request_headers: _,
            is_unlogged: _,
            tracing: _,
        } = self;
        let external = access.as_ref().and_then(|access| access.external.as_ref());
        let errors = errors.as_ref().and_then(|errors| errors.backend.as_ref());
        let auth = external.and_then(|external| external.to.known_backend());
        let mirrors = self.mirrors().filter_map(|mirror| mirror.to.known_backend());
        [auth, errors, fallback.as_ref()].into_iter().flatten().chain(mirrors)
    }

    /// The servers that receive copies.
    pub fn mirrors(&self) -> impl Iterator<Item = &Mirror> {
        self.mirror.iter().chain(&self.more_mirrors)
    }

    /// The bundles that it names.
    pub fn bundles(&self) -> impl Iterator<Item = &BundleId> {
        self.proxy.iter().filter_map(|proxy| proxy.tls.as_ref()?.authorities.as_ref())
    }
}

super::text::id!(
    /// The identity of [`Policies`]; the controller uses a digest of the content.
    PolicyId,
    /// Reads an id of 1 to 255 bytes: letters, digits and `- _ . /`.
    check_policy_id
);

fn check_policy_id(text: &str) -> Result<(), Invalid> {
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    match (1..=255).contains(&text.len()) && text.bytes().all(is_fine) {
        true => Ok(()),
        false => Err(Invalid::new(format!(
            "policy id {:?} is not 1 to 255 letters, digits, `-`, `_`, `.` and `/`",
            super::shorten(text)
        ))),
    }
}
