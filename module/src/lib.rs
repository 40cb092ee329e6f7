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
//! | `ingress_brotli LEVEL MIN_LENGTH TYPE...` | server | such responses are compressed with Brotli |
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
//! | `ingress_decrypt` | stream server | sessions whose TLS ends here, by server name |
//!
//! | nginx calls | when | which calls |
//! |---|---|---|
//! | directives, tables | a configuration is read | [`module`] |
//! | start and end of a process, timer | five times a second | [`module::process`] |
//! | TLS client-hello callback | a handshake begins | [`tls::client_certificate`] |
//! | TLS certificate callback | a handshake asks for a certificate | [`tls::certificate`] |
//! | POST_READ phase | a request's head was read | [`headers::directives`] |
//! | REWRITE phase | a request reached an `ingress_router` location | [`route`], which carries out what the core decides |
//! | PREACCESS phase | a routed request may be one too many | [`access::limits`] |
//! | ACCESS phase | the rule's policies say who may come in | [`access`] |
//! | PRECONTENT phase | a request is let in | [`headers::requests`], [`route::mirror`] |
//! | content handler | a request reached an `ingress_configuration` location | [`configuration`] |
//! | `peer.init`, `peer.get`, `peer.free` | an attempt to an endpoint begins and ends | [`balancer`] |
//! | `peer.init` of stream, content handler of stream | a session begins | [`stream`], then [`balancer`] |
//! | header filter | a response is about to be sent | [`headers::filter`] |
//! | body filter | a part of a response is about to be sent | [`headers::compression`] |
//! | LOG phase | a request has ended | [`logging::observe`] |
//! | variables | a log format or header wants one | [`logging::variables`] |
//!
//! A callback makes the safe wrapper, calls the safe function and converts its answer; a panic is contained at every
//! callback. Facts that the SAFETY comments lean on, all given by nginx:
//! * a worker runs all its callbacks on one thread, its event loop; what implements `nginx::thread::Work` runs elsewhere;
//! * a request, its pool and what was allocated from it live until the request is freed, which is after
//!   the last callback that gets it;
//! * configuration structs live as long as the cycle, and so longer than its requests;
//! * memory from `ngx_pcalloc` is zeroed and aligned to 8 (`NGX_ALIGNMENT`).
#![deny(unsafe_code)]

mod access;
mod balancer;
mod conf;
mod configuration;
mod headers;
mod logging;
mod module;
mod request;
mod route;
mod stream;
mod system;
mod tls;
mod worker;
mod zone;
