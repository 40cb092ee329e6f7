//! Host, scheme and port of a request as its client sees them: what a proxy in front says, where it is believed.
//!
//! Source: ingress-nginx's template. Unlike there, only peers within proxy-real-ip-cidr are believed: the variable of
//! `ingress_forwarded_headers` says which.

use crate::request::Request;
use oxigress_core::http::forwarded;

/// The host, perhaps with a port; empty if there is none.
pub fn host<'r>(request: &Request<'r>) -> &'r [u8] {
    if request.has_trusted_peer()
        && let Some(host) = request.header(b"x-forwarded-host").and_then(forwarded::host)
    {
        return host;
    }
    request.host_header().unwrap_or(request.host())
}

/// The scheme: `https`, `http`, or another one that a proxy names.
pub fn scheme<'r>(request: &Request<'r>) -> &'r [u8] {
    // A load balancer that ends TLS tells it by the port that it was asked for.
    if request.proxied_port() == Some(443) {
        return b"https";
    }
    if request.has_trusted_peer()
        && let Some(scheme) = request.header(b"x-forwarded-proto").and_then(forwarded::scheme)
    {
        return scheme;
    }
    if request.is_https() { b"https" } else { b"http" }
}

/// The port of the listener, or the one that a proxy in front names.
pub fn server_port(request: &Request<'_>) -> Option<u16> {
    let named = || request.header(b"x-forwarded-port").and_then(forwarded::port);
    let named = request.has_trusted_peer().then(named).flatten();
    named.or_else(|| request.local_port())
}

/// The port a client would use: 443 on the HTTPS listener whatever its own number, since a Service maps 443 to it.
pub fn port(request: &Request<'_>) -> Option<u16> {
    if request.has_trusted_peer()
        && let Some(port) = request.header(b"x-forwarded-port").and_then(forwarded::port)
    {
        return Some(port);
    }
    match request.proxied_port() {
        Some(port) => Some(port),
        None if request.is_https() => Some(443),
        None => request.local_port(),
    }
}
