//! The decisions of Oxigress as plain functions: no nginx symbol, no I/O, no unsafe code.
//!
//! The controller compiles this crate to build and send a [`model::Snapshot`]; the nginx module compiles it to read
//! one. Both therefore agree on the format by construction.
//!
//! * [`model`]: servers, rules, backends, endpoints, certificates, policies.
//! * [`wire`]: the JSON of the configuration endpoint, in its own format and in ingress-nginx's.
//! * [`record`]: the kinds of records, the bytes that the module keeps in shared memory, and views that read them in place.
//! * [`decision`]: the decision about one request, which nginx carries out, with [`decision::rewrite`] and
//!   [`decision::redirect`].
//! * [`own_server`]: the server of a URL whose host a request names, among the gateway's own rules and Services.
//! * [`router`]: the rule for a host and a path, the certificate for a server name, the backend of a TCP or UDP session.
//! * [`patterns`]: regular expressions of users, with bounded work.
//! * [`policy`]: access lists, passwords, external authentication, CORS, limits.
//! * [`balancer`]: the choice of an endpoint, its statistics, the pool of idle connections.
//! * [`http`]: request heads, header fields, paths, and rewritten response headers.
//! * [`cache`]: compiled forms of records and patterns, bounded by bytes; [`cache::recent`]: what was found lately in one
//!   generation of records.
//! * [`telemetry`]: counters of requests and their Prometheus text, and spans.
//! * [`text`]: templates with variables, and the escaping of foreign text in log lines.
//! * [`explain`]: the same decision, with the steps that led to it.
#![forbid(unsafe_code)]

pub mod balancer;
pub mod cache;
pub mod decision;
pub mod explain;
pub mod http;
pub mod model;
pub mod own_server;
pub mod patterns;
pub mod policy;
pub mod record;
pub mod router;
pub mod telemetry;
pub mod text;
pub mod wire;
