//! nginx's callbacks, and what they need of ingress. They stand on the safe layer (`module/nginx`): a directive is a function
//! of `&mut Conf` in [`table`], a phase a `PhaseHandler` that `directives::postconfiguration` adds, a variable a line of
//! `VARIABLES`. What the layer does not have yet is unsafe here: peers, stream, TLS, settings of locations.
//!
//! Facts that the SAFETY comments lean on, all given by nginx:
//! * a worker runs all its callbacks on one thread, its event loop; what implements `nginx::thread::Work` runs elsewhere;
//! * a request, its pool and what was allocated from it live until the request is freed, which is after
//!   the last callback that gets it;
//! * configuration structs live as long as the cycle, and so longer than its requests;
//! * memory from `ngx_pcalloc` is zeroed and aligned to 8 (`NGX_ALIGNMENT`).

mod access;
mod allocator;
mod answer;
mod attempt;
mod destinations;
mod directives;
mod discard;
mod draining;
mod endpoint;
#[cfg(feature = "failpoints")]
mod failpoints;
mod fastcgi;
mod guard;
mod head;
mod header_filter;
mod interim;
mod journal;
mod keepalive;
mod ledger;
mod limits;
mod location;
mod log;
mod memory;
mod metrics;
mod mirror;
mod password;
mod pool;
mod precontent;
mod question;
mod request;
mod reserve;
mod reverse;
mod stream;
mod table;
mod text;
mod tls;
mod upstream;
mod variables;
mod worker;
mod zone;

pub use access::Progress;
pub use endpoint::Head;
pub use location::{Entered, Locations};
pub use log::warn;
pub use memory::{
    monotonic_milliseconds, monotonic_nanoseconds, now_milliseconds, now_seconds, random,
};
pub use request::{BadHead, Found, Names, NewRoute, Request, Sole};
pub use tls::{
    Authorities, Certificates, ClientHello, Handshake, Parsed, Revocations, ServerName,
    clear_errors, sha256,
};
pub use worker::{Worker, wall_clock_milliseconds};
pub use zone::ZoneLock;
