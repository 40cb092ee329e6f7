//! Choosing one of several endpoints.
//!
//! An attempt gets an endpoint that this request has not tried: where ingress-nginx may try a dead endpoint three times, a
//! retry here goes to another one or ends, unless the route asks for more.
//!
//! * [`attempts`]: how many more there may be.
//! * [`pick`]: round robin, least connections, the faster of two.
//! * [`ring`]: consistent hashing, and subsets.
//! * [`cookie`]: affinity of a client.
//! * [`split`]: a backend or one of its alternatives.
//! * [`hash_key`]: the text that consistent hashing hashes.
//! * [`statistics`]: the counters of an endpoint; [`latency`]: the moving average among them.
//! * [`destinations`]: which addresses an endpoint may have.
//! * [`idle`]: the pool of idle connections to endpoints.
//! * [`sessions`]: how many TCP and UDP sessions a worker has open.

pub mod attempts;
pub mod cookie;
pub mod destinations;
pub mod hash_key;
pub mod idle;
pub mod latency;
pub mod pick;
pub mod ring;
pub mod sessions;
pub mod split;
pub mod statistics;

/// An endpoint a request has tried: address, port and family.
pub type Identity = [u8; 19];
