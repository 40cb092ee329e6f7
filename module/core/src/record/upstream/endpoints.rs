//! An endpoint set's record: the endpoints and how one of them is chosen, so that an attempt needs this record only.
//!
//! Layout: [`Header`], then an [`Entry`] for each endpoint; then the names, `address:port` as nginx logs them; then the table of
//! a hash: a [`ring`](crate::balancer::ring) of the endpoints or of the subsets, or a [`KeyEntry`] for each endpoint in the
//! order of the keys.

mod encode;
#[cfg(test)]
mod tests;
mod view;

pub use encode::{encode_endpoints, endpoints_bytes};
pub use view::{EndpointView, EndpointsView};

use super::framed::Thresholds;
use crate::model::{AffinityMode, Algorithm, Backend, BackendId, EndpointSet};
use crate::record::definition::Record;
use crate::record::{Change, Kind, decode_backend};
use crate::wire::native::Patch;
use std::collections::BTreeSet;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of record that holds the endpoints of a backend. They stand apart from the backend, since they change most
/// often.
pub enum EndpointSets {}

impl Record for EndpointSets {
    type Key = BackendId;
    type Value = EndpointSet;
    const COUNTED_AS: Option<&'static str> = Some("endpoint_sets");

    /// Nothing: [`changes`] encodes an endpoint set together with its backend.
    fn encode(_: &BackendId, _: &EndpointSet) -> Option<Vec<u8>> {
        None
    }
}

/// The records of the endpoint sets that a delta touches, by themselves or through their backends. `live` returns the value
/// that a record has before the delta.
pub fn changes(patch: &Patch, live: impl Fn(Kind, &[u8]) -> Option<Vec<u8>>) -> Vec<Change> {
    let (upsert, remove) = (&patch.upsert, &patch.remove);
    let ids: BTreeSet<_> =
        upsert.endpoints.keys().chain(upsert.backends.keys()).chain(&remove.backends).collect();
    let mut all = Vec::with_capacity(ids.len());
    let plain = Backend::default();
    for id in ids.into_iter().filter(|id| !remove.endpoints.contains(*id)) {
        let key = id.as_str().as_bytes();
        let written = upsert.endpoints.get(id);
        let old = match written {
            Some(_) => None,
            None => live(Kind::Endpoints, key).map(|value| EndpointsView::new(&value).decode()),
        };
        let Some(set) = written.or(old.as_ref()) else { continue };
        let old_backend = match upsert.backends.contains_key(id) || remove.backends.contains(id) {
            true => None,
            false => live(Kind::Backend, key).and_then(|value| decode_backend(&value)),
        };
        let backend = upsert.backends.get(id).or(old_backend.as_ref()).unwrap_or(&plain);
        all.push(Change::upsert(Kind::Endpoints, key, encode_endpoints(set, backend, id.as_str())));
    }
    all
}

/// How an endpoint is chosen. The numbers are part of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// Each endpoint in turn, by weight.
    RoundRobin = 0,
    /// The endpoint with the fewest requests in flight for its weight.
    LeastConn = 1,
    /// The faster of two endpoints, by a moving average of their latency.
    Ewma = 2,
    /// The better of two endpoints, by requests in flight times latency.
    P2c = 3,
    /// The endpoint that the hash of a key names.
    Hash = 4,
    /// One endpoint of the subset that the hash of a key names.
    Subset = 5,
    /// The endpoint that the hash of a cookie names.
    Balanced = 6,
    /// The endpoint that a cookie names.
    Persistent = 7,
}

impl Choice {
    /// Affinity comes first, then the hash, then the algorithm.
    pub fn of(backend: &Backend) -> Choice {
        match (&backend.affinity, &backend.hash_by, backend.algorithm) {
            (Some(affinity), ..) if affinity.mode == AffinityMode::Persistent => Choice::Persistent,
            (Some(_), ..) => Choice::Balanced,
            (None, Some(hash), _) if hash.subset_size > 0 => Choice::Subset,
            (None, Some(_), _) => Choice::Hash,
            (None, None, Algorithm::RoundRobin) => Choice::RoundRobin,
            (None, None, Algorithm::LeastConn) => Choice::LeastConn,
            (None, None, Algorithm::Ewma) => Choice::Ewma,
            (None, None, Algorithm::P2c) => Choice::P2c,
        }
    }

    fn from_number(number: u8) -> Choice {
        match number {
            1 => Choice::LeastConn,
            2 => Choice::Ewma,
            3 => Choice::P2c,
            4 => Choice::Hash,
            5 => Choice::Subset,
            6 => Choice::Balanced,
            7 => Choice::Persistent,
            _ => Choice::RoundRobin,
        }
    }
}

mod flag {
    pub const IS_EVEN: u8 = 1;
    /// The backend's record has alternatives, a cookie or a hash key.
    pub const HAS_MORE: u8 = 2;
    pub const EJECTS: u8 = 4;
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    count: U32,
    choice: u8,
    flags: u8,
    panic_percent: u8,
    zero: u8,
    total_weight: U32,
    /// Endpoints that are not draining.
    active: U32,
    max_in_flight: U32,
    slow_start_ms: U32,
    thresholds: Thresholds,
    subset_size: U32,
    table_at: U32,
    table_bytes: U32,
    reserved: U32,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Entry {
    address: [u8; 16],
    port: U16,
    /// 4 for IPv4, 6 for IPv6.
    family: u8,
    name_bytes: u8,
    name_at: U32,
    weight: U16,
    draining: u8,
    zero: u8,
}

/// The affinity key of an endpoint, in hexadecimal digits.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct KeyEntry {
    key: [u8; 32],
    index: U32,
}
