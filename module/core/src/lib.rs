//! What Oxigress decides, without nginx, memory tricks or I/O.
//!
//! The controller compiles this crate to build and send a [`model::Snapshot`]; the nginx module compiles
//! it to read one. Both therefore agree on the format by construction.
//!
//! * [`model`]: servers, rules, backends, endpoints, certificates.
//! * [`wire`]: the JSON of the configuration endpoint, in two dialects.
//! * [`record`]: the bytes the module keeps in shared memory, and views that read them in place.
//! * [`router`]: host and path to a rule.
//! * [`patterns`]: regular expressions of users.
//! * [`balancer`]: one of several endpoints.
//! * [`destinations`]: where connections to endpoints may lead.
//! * [`explain`]: why a request goes where it goes.
//! * [`cors`]: which origins may read.
//! * [`forwarded`]: what a proxy in front says of the client.
//! * [`header`]: what a header may be called and hold; [`head`]: which of a client's are taken.
//! * [`paths`]: request targets that endpoints read in more than one way.
//! * [`auth`]: what another server says about a request.
//! * [`networks`]: an address in one of many networks.
//! * [`passwords`]: a password file, and what an entry costs.
//! * [`idle`]: upstream connections that wait for the next request.
//! * [`interim`]: what comes before a response.
//! * [`line`]: text of others in a line of ours.
//! * [`limits`]: requests by time and at once, counted by all workers together.
//! * [`metrics`]: requests counted and timed, for Prometheus.
//! * [`tls`]: server name to certificate.
//! * [`turns`]: waiting lines of tenants, which take turns.
//! * [`redirect`]: where a client is sent instead; [`rewrite`]: what an endpoint sees instead.
//! * [`reverse`]: what endpoints say of themselves, as clients see it.
//! * [`session`]: a TCP or UDP session to its backend.
#![forbid(unsafe_code)]

pub mod auth;
pub mod balancer;
pub mod cors;
pub mod destinations;
pub mod explain;
pub mod fastcgi;
pub mod forwarded;
pub mod head;
pub mod header;
pub mod idle;
pub mod interim;
pub mod limits;
pub mod line;
pub mod metrics;
pub mod model;
pub mod networks;
pub mod passwords;
pub mod paths;
pub mod patterns;
pub mod record;
pub mod redirect;
pub mod reverse;
pub mod rewrite;
pub mod router;
pub mod session;
pub mod statistics;
pub mod table;
pub mod template;
pub mod tls;
pub mod turns;
pub mod wire;
