//! One of several endpoints.
//!
//! An attempt never gets an endpoint that this request has tried already: where the reference may ask a
//! dead endpoint three times, a retry here goes to another one or ends.
//!
//! * [`pick`]: round robin, least connections, the faster of two.
//! * [`ring`]: consistent hashing, and subsets.
//! * [`cookie`]: affinity of a client.
//! * [`split`]: a backend or one of its alternatives; [`patterns`] for its headers.
//! * [`hash_key`]: what consistent hashing hashes.
//! * [`latency`]: the moving average an endpoint keeps.

pub mod cookie;
pub mod hash_key;
pub mod latency;
pub mod pick;
pub mod ring;
pub mod split;

pub use crate::patterns;

/// An endpoint a request has tried: address, port and family.
pub type Identity = [u8; 19];
