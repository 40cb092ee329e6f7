//! The variables, under the names ingress-nginx's log formats and headers use.

use crate::headers::requests;
use crate::request::Request;
use crate::request::forwarded;
use crate::request::spans;
use crate::tls::client_certificate;
use crate::tls::client_certificate::Told;
use oxigress_core::decision;
use oxigress_core::http::head;
use oxigress_core::policy::auth;
use oxigress_core::text::{hex, log};
use std::borrow::Cow;

/// A variable's name and where its value comes from.
pub struct Variable {
    /// The name of the variable, without the dollar sign.
    pub name: &'static str,
    /// One value for the whole request, worked out once, also across internal redirects, which drop what a
    /// module knows.
    pub is_lasting: bool,
    /// Where its value comes from.
    pub value: Value,
}

/// The value of a variable; `None`: not found, an empty text in a log.
pub type Value = for<'r> fn(&Request<'r>) -> Option<Cow<'r, [u8]>>;

/// The name of the variable that says where a request went.
pub const UPSTREAM_NAME: &[u8] = b"proxy_upstream_name";

/// Every variable of the module.
pub const VARIABLES: &[Variable] = &[
    Variable { name: "proxy_upstream_name", is_lasting: false, value: upstream_name },
    Variable {
        name: "proxy_alternative_upstream_name",
        is_lasting: false,
        value: alternative_upstream_name,
    },
    Variable { name: "namespace", is_lasting: false, value: |request| text(request, 1) },
    Variable { name: "ingress_name", is_lasting: false, value: |request| text(request, 2) },
    Variable { name: "service_name", is_lasting: false, value: |request| text(request, 3) },
    Variable { name: "service_port", is_lasting: false, value: |request| text(request, 4) },
    Variable { name: "location_path", is_lasting: false, value: location_path },
    Variable { name: "best_http_host", is_lasting: true, value: best_http_host },
    Variable { name: "pass_access_scheme", is_lasting: true, value: scheme },
    Variable { name: "pass_port", is_lasting: true, value: port },
    Variable {
        name: "pass_server_port",
        is_lasting: true,
        value: |request| digits(request, forwarded::server_port(request)?),
    },
    Variable { name: "ingress_upstream_host", is_lasting: false, value: upstream_host },
    Variable { name: "ingress_connection", is_lasting: false, value: connection },
    Variable { name: "ingress_error_code", is_lasting: false, value: error_code },
    Variable { name: "ingress_error_length", is_lasting: false, value: error_length },
    Variable { name: "ingress_auth_host", is_lasting: false, value: auth_host },
    Variable { name: "ingress_auth_cache", is_lasting: false, value: auth_cache },
    Variable { name: "ingress_auth_cache_key", is_lasting: false, value: auth_cache_key },
    Variable {
        name: "ingress_mirror_host",
        is_lasting: false,
        value: |request| {
            let mirror = request.mirror()?;
            Some(mirror.host.as_ref().unwrap_or(&mirror.to.host).as_str().as_bytes().into())
        },
    },
    Variable {
        name: "ingress_mirror_name",
        is_lasting: false,
        value: |request| Some(request.mirror()?.to.host.as_str().as_bytes().into()),
    },
    // `CDN-Loop` (RFC 8586) for whoever gets the request.
    Variable {
        name: "ingress_cdn_loop",
        is_lasting: false,
        value: |request| {
            let is_copy = request.mirror().is_some();
            Some(request.loop_trace(if is_copy { head::COPY } else { head::NAME }))
        },
    },
    Variable { name: "req_id", is_lasting: true, value: request_id },
    // As ingress-nginx's log formats name them; empty without tracing.
    Variable {
        name: "opentelemetry_trace_id",
        is_lasting: false,
        value: |request| Some(hex::encode(&spans::of(request)?.context().trace.to_bytes()).into()),
    },
    Variable {
        name: "opentelemetry_span_id",
        is_lasting: false,
        value: |request| Some(hex::encode(&spans::of(request)?.context().span.to_bytes()).into()),
    },
    Variable {
        name: "ingress_client_verify",
        is_lasting: true,
        value: |request| client_certificate::told(request, Told::Verdict),
    },
    // As in ingress-nginx's sign-in URLs: `…?rd=$escaped_request_uri`.
    Variable {
        name: "escaped_request_uri",
        is_lasting: true,
        value: |request| Some(Cow::Owned(auth::escaped(request.target()))),
    },
    Variable {
        name: "ingress_client_subject_dn",
        is_lasting: true,
        value: |request| client_certificate::told(request, Told::Subject),
    },
    Variable {
        name: "ingress_client_issuer_dn",
        is_lasting: true,
        value: |request| client_certificate::told(request, Told::Issuer),
    },
    Variable {
        name: "ingress_client_cert",
        is_lasting: true,
        value: |request| client_certificate::told(request, Told::Certificate),
    },
];

fn text<'r>(request: &Request<'r>, place: usize) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(request.route_names()?.texts[place]))
}

/// `-` before REWRITE has decided.
fn upstream_name<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    let Some(names) = request.route_names() else { return Some(Cow::Borrowed(b"-")) };
    Some(decision::upstream_name(names.texts, names.backend))
}

/// The parts of `$proxy_upstream_name`, one after the other.
pub fn upstream_name_parts<'r>(request: &Request<'r>) -> [&'r [u8]; 5] {
    match request.route_names() {
        Some(names) => decision::upstream_name_parts(names.texts, names.backend),
        None => [b"-", b"", b"", b"", b""],
    }
}

/// The alternative that takes the request, as ingress-nginx writes its name; empty if none does.
fn alternative_upstream_name<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    let Some(id) = request.alternative() else { return Some(Cow::Borrowed(b"")) };
    // `namespace/service/port`; what tells it from other backends of the port is the controller's.
    let end = id.windows(2).position(|pair| pair == b"//").unwrap_or(id.len());
    let id = id.get(..end).unwrap_or(id);
    if !id.contains(&b'/') {
        return Some(Cow::Borrowed(id));
    }
    Some(Cow::Owned(id.iter().map(|byte| if *byte == b'/' { b'-' } else { *byte }).collect()))
}

fn location_path<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(decision::location_path(request.route_names()?.path())))
}

fn best_http_host<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(forwarded::host(request)))
}

/// `Host` for the endpoint: what the policies say, else what the client said.
fn upstream_host<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    match requests::host(request) {
        Some(host) => Some(Cow::Owned(host)),
        None => best_http_host(request),
    }
}

/// `Connection` for the endpoint: what the policies say, else `upgrade` if the client asks for one.
fn connection<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(requests::connection(request)))
}

/// The status that another backend answers; empty if none does.
fn error_code<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    let code = request.error_status().map(|status| status.to_string().into_bytes());
    Some(code.map_or(Cow::Borrowed(&b""[..]), Cow::Owned))
}

/// `Content-Length` for that backend; empty where the body is not there to be sent.
fn error_length<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    let length = request.content_length().filter(|_| request.has_body());
    Some(
        length
            .map_or(Cow::Borrowed(&b""[..]), |length| Cow::Owned(length.to_string().into_bytes())),
    )
}

fn scheme<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(forwarded::scheme(request)))
}

fn port<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    digits(request, forwarded::port(request)?)
}

fn digits<'r>(request: &Request<'r>, port: u16) -> Option<Cow<'r, [u8]>> {
    let known: &[u8] = match port {
        80 => b"80",
        443 => b"443",
        port => {
            let pool = request.nginx().pool();
            return log::with_digits(port.into(), |digits| pool.concat(&[digits]))
                .map(Cow::Borrowed);
        }
    };
    Some(Cow::Borrowed(known))
}

/// The client's `X-Request-ID`, else one made up: the same each time it is asked for in one request.
fn request_id<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    match request.header(b"x-request-id") {
        Some(id) if !id.is_empty() => Some(Cow::Borrowed(id)),
        _ => Some(Cow::Borrowed(request.id()?)),
    }
}

/// In an `ingress_auth` location: the auth server's name.
fn auth_host<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(request.auth()?.host()))
}

/// In an `ingress_auth` location: the cache that the answer is kept in, or `off`.
fn auth_cache<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    let is_kept = request.auth().is_some_and(|auth| !auth.cache_key().is_empty());
    Some(Cow::Borrowed(if is_kept { b"ingress_auth" } else { b"off" }))
}

/// In an `ingress_auth` location: what the answer is kept under.
fn auth_cache_key<'r>(request: &Request<'r>) -> Option<Cow<'r, [u8]>> {
    Some(Cow::Borrowed(request.auth()?.cache_key()))
}
