//! The nginx module: dynamic backends, routes and certificates from shared memory.
//!
//! | directive | context | meaning |
//! |---|---|---|
//! | `ingress_zone NAME SIZE` | main | the shared memory everything lives in |
//! | `ingress_journal PATH` | main | the file that a new zone starts from |
//! | `ingress_draining FILE` | main | while the file exists, clients are told to use their connections no more |
//! | `ingress_limits SIZE` | main | the shared memory of rate and connection limits |
//! | `ingress_metrics` | main | requests are counted, by rule |
//! | `ingress_proxied_client HEADER FROM` | server | where a client is, behind the PROXY protocol and a proxy that writes headers |
//! | `ingress_configuration` | location | the configuration endpoint |
//! | `ingress_router` | location | host and path decide the backend |
//! | `ingress_error` | named location | another backend answers in the place of a status |
//! | `ingress_auth PROTOCOL` | location | through which auth servers are asked |
//! | `ingress_mirror PROTOCOL` | location | through which copies of requests go |
//! | `ingress_log_line $NAME [escape=...] FORMAT` | http | a line of the access log, written in one piece |
//! | `ingress_header_lines $NAME HEADER VALUE ...` | http | headers for endpoints, written in one piece |
//! | `ingress_target PROTOCOL` | location | where requests for endpoints of this protocol go on |
//! | `ingress_balancer [$variable]` | upstream, stream upstream | the endpoint for each attempt |
//! | `ingress_keepalive N` | upstream | connections that wait for the next request |
//! | `ingress_passthrough` | stream server | TLS server names that are not terminated here |
//!
//! | nginx calls | when | which calls |
//! |---|---|---|
//! | [`ffi`] | always: directives, phases, callbacks, in nginx's own order | |
//! | REWRITE to LOG | the rule has policies | [`policy`] |
//! | TLS client-hello callback | a handshake begins | [`tls::client_certificate`] |
//! | ACCESS phase | the rule's policies say who may come in | [`access`] |
//! | TLS certificate callback | a handshake asks for a certificate | [`tls::certificate`] |
//! | REWRITE phase | a request reached an `ingress_router` location | [`route`], which carries out what the core decides |
//! | PREACCESS phase | a routed request may be one too many | [`limits`] |
//! | `peer.init`, `peer.get`, `peer.free` | an attempt to an endpoint begins and ends | [`peer`] |
//! | `peer.init` of stream, content handler of stream | a session begins | [`stream`], then [`peer`] |
//! | PRECONTENT phase | a request is let in | [`headers::requests`] |
//! | header filter | a response is about to be sent | [`headers::responses`] |
//! | LOG phase | a request has ended | [`metrics`] |
//! | content handler | a request reached an `ingress_configuration` location | [`configuration`] |
//! | timer, thread | five times a second | [`journal`] |
//! | `peer.init` | the backend asks for a cookie or a hash | [`selection`] |
//! | variables | a log format or header wants one | [`variable`] |
//!
//! Unsafe code stands in `ffi` only. There a callback makes the safe wrapper, calls the safe function
//! and converts its answer; a panic is contained at every callback.
#![deny(unsafe_code)]

mod access;
mod configuration;
mod errors;
#[allow(unsafe_code)]
mod ffi;
mod forwarded;
mod headers;
mod journal;
mod limits;
mod metrics;
mod peer;
mod policy;
mod records;
mod retired;
mod route;
mod selection;
mod stream;
mod text;
mod tls;
mod variable;
