//! A safe layer over nginx, for modules written in Rust.
//!
//! * A callback is a trait with a function of `&Request` or `&mut Conf` that answers a [`Code`] or a `Result`; the layer
//!   makes nginx's own function pointer of it, and contains panics there ([`contain`]).
//! * nginx's structs are seen through handles, [`Request`], [`Connection`], [`Upstream`], [`Cycle`] and others: references
//!   to cells whose fields are read and written by copy, one accessor each. They are neither `Send` nor `Sync`.
//! * What a module keeps with a server, a location or a request has the type that its [`module::HttpModule`] says.
//! * Memory comes from a [`Pool`], with values that are dropped when it goes, or not; timers and posted events have
//!   closures ([`event`]); work goes to threads while its request waits ([`thread`]); shared memory comes as one block
//!   ([`zone`]).
//! * Where nothing of that fits, [`sys`] has nginx's own names, from its headers by bindgen, as one set for everything.
//!
//! A module in full, which the test `nginx_layer` of the repository runs:
//!
//! ```no_run
#![doc = include_str!("../examples/hello.rs")]
//! ```
#![deny(missing_docs)]

mod basic;
mod body_filter;
mod conf;
mod connection;
mod cycle;
mod location;
pub mod process;
mod request;
pub mod reserve;
pub mod ssl;
pub mod stock;
pub mod stream;
pub mod sys;
mod upstream;

pub use basic::address::{Address, RawAddress};
pub use basic::chain::Buffer;
pub use basic::clock::{now_milliseconds, wall_clock, with_log_time};
pub use basic::code::Code;
pub use basic::event_loop::{EventLoop, ForProcess};
pub use basic::guard::contain;
pub use basic::log;
pub use basic::pool::Pool;
pub use basic::text::bytes;
pub use basic::wiping::WipingAllocator;
pub use body_filter::{Ask, BodyFilter, Encoded, Encoder, filter_context, filter_module};
pub use conf::module;
pub use conf::{
    Argument, Conf, CoreLocation, Refused, Server, UpstreamBlock, parse_milliseconds, parse_number,
};
pub use connection::{Connection, Event, Proxied};
pub use cycle::Cycle;
pub use location::{LocationCopy, NewLocation, Settings};
pub use process::{event, shared, thread, zone};
pub use request::header::{Header, Headers, Sole};
pub use request::{
    AfterBody, BodyHandler, Ended, HeaderFilter, Kind, Lookup, Next, NextFilters, Phase,
    PhaseHandler, Pieces, Request, Value, Variable, VariableFlags, VariableIndex, WeakRequest,
    crypt,
};
pub use stock::{ComplexValue, UpstreamConf};
pub use upstream::balancer::{Attempt, Balancer, NewUpstream, Outcome, Peer, PeerName};
pub use upstream::head::{Head, HeadCallbacks, HeadReader};
pub use upstream::idle::{Idle, Keeper, Open};
pub use upstream::rewrite::{Rewriter, Rewritten};
pub use upstream::trailers::TrailerBounds;
pub use upstream::{State, Upstream};
