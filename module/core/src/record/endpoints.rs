//! An endpoint set's record: the endpoints and how one of them is chosen, so that an attempt needs this record
//! only.
//!
//! Layout: a header of 56 bytes ([`Header`]'s fields in order), then per endpoint 28 bytes: `address [16]`,
//! `port u16`, `family u8` (4 or 6), `name_length u8`, `name_offset u32`, `weight u16`, `draining u8`, 0; then the
//! names, `address:port` as nginx logs them; then the table of a hash: a ring ([`ring`]) of the endpoints or of
//! the subsets, or each endpoint's affinity key (`key [32]`, `index u32`) in the order of the keys.

use super::{length, u16_at, u32_at};
use crate::balancer::{cookie, ring};
use crate::model::{AffinityMode, Algorithm, Backend, Ejection, Endpoint, EndpointSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

const HEADER: usize = 56;
const ENTRY: usize = 28;
const KEY: usize = 32;
const KEY_ENTRY: usize = KEY + 4;

/// How an endpoint is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// Each in turn.
    RoundRobin = 0,
    /// By requests in flight.
    LeastConn = 1,
    /// By latency.
    Ewma = 2,
    /// By requests in flight and latency.
    P2c = 3,
    /// By the hash of a key.
    Hash = 4,
    /// By the hash of a key, one of a subset.
    Subset = 5,
    /// By the hash of a cookie.
    Balanced = 6,
    /// By a cookie.
    Persistent = 7,
}

impl Choice {
    /// Affinity first, then the hash, then the algorithm.
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

/// All weights are 1.
const IS_EVEN: u8 = 1;
/// The backend's record has more to say: alternatives, a cookie or a hash key.
const HAS_MORE: u8 = 2;
/// Failing endpoints are left out.
const EJECTS: u8 = 4;

/// What holds for the set. Fields as in the record.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    count: u32,
    choice: u8,
    flags: u8,
    panic_percent: u8,
    zero: u8,
    total_weight: u32,
    active: u32,
    max_in_flight: u32,
    slow_start_ms: u32,
    failures: u32,
    connect_failures: u32,
    base_ms: u32,
    max_ms: u32,
    subset_size: u32,
    table_at: u32,
    table_bytes: u32,
    reserved: u32,
}

impl Header {
    fn to_bytes(self) -> Vec<u8> {
        let mut value = self.count.to_le_bytes().to_vec();
        value.extend([self.choice, self.flags, self.panic_percent, self.zero]);
        let words = [
            self.total_weight,
            self.active,
            self.max_in_flight,
            self.slow_start_ms,
            self.failures,
            self.connect_failures,
            self.base_ms,
            self.max_ms,
            self.subset_size,
            self.table_at,
            self.table_bytes,
            self.reserved,
        ];
        value.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        value
    }
}

/// The record's value of the endpoint set of a backend, whose id this is.
pub fn encode_endpoints(set: &EndpointSet, backend: &Backend, id: &str) -> Vec<u8> {
    let endpoints = set.as_slice();
    let names: Vec<_> =
        endpoints.iter().map(|e| SocketAddr::new(e.address, e.port.get()).to_string()).collect();
    let table_at = HEADER + endpoints.len() * ENTRY + names.iter().map(String::len).sum::<usize>();
    let table = encode_table(&names, backend, id);
    let ejection = backend.ejection;
    let has_more =
        backend.affinity.is_some() || backend.hash_by.is_some() || !backend.alternatives.is_empty();
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let ejects = ejection.unwrap_or(Ejection {
        failures: 0,
        connect_failures: 0,
        base_ms: 0,
        max_ms: 0,
        panic_percent: 0,
    });
    let header = Header {
        count: length(endpoints.len()),
        choice: Choice::of(backend) as u8,
        flags: flag(endpoints.iter().all(|e| e.weight == 1), IS_EVEN)
            | flag(has_more, HAS_MORE)
            | flag(ejection.is_some(), EJECTS),
        panic_percent: ejects.panic_percent,
        zero: 0,
        total_weight: endpoints.iter().map(|e| u32::from(e.weight)).sum(),
        active: length(endpoints.iter().filter(|e| !e.draining).count()),
        max_in_flight: backend.max_in_flight,
        slow_start_ms: backend.slow_start_ms,
        failures: ejects.failures,
        connect_failures: ejects.connect_failures,
        base_ms: ejects.base_ms,
        max_ms: ejects.max_ms,
        subset_size: backend.hash_by.as_ref().map_or(0, |hash| hash.subset_size),
        table_at: length(table_at),
        table_bytes: length(table.len()),
        reserved: 0,
    };
    let mut value = header.to_bytes();
    let mut name_at = HEADER + endpoints.len() * ENTRY;
    for (endpoint, name) in endpoints.iter().zip(&names) {
        let (address, family) = match endpoint.address {
            IpAddr::V4(v4) => {
                let mut padded = [0; 16];
                padded[..4].copy_from_slice(&v4.octets());
                (padded, 4)
            }
            IpAddr::V6(v6) => (v6.octets(), 6),
        };
        value.extend(address);
        value.extend(endpoint.port.get().to_le_bytes());
        value.push(family);
        // The longest, an IPv6 address in brackets with a port, has 47 bytes.
        value.push(name.len().min(usize::from(u8::MAX)) as u8);
        value.extend(length(name_at).to_le_bytes());
        value.extend(endpoint.weight.to_le_bytes());
        value.extend([u8::from(endpoint.draining), 0]);
        name_at += name.len();
    }
    value.extend(names.iter().flat_map(|name| name.bytes()));
    value.extend(table);
    value
}

fn encode_table(names: &[String], backend: &Backend, id: &str) -> Vec<u8> {
    match Choice::of(backend) {
        Choice::Hash | Choice::Balanced => {
            ring::encode(&ring::points(names.iter().map(|name| name.as_bytes())))
        }
        Choice::Subset => {
            let size = backend.hash_by.as_ref().map_or(1, |hash| hash.subset_size.max(1));
            let sets = 1..=ring::subset_count(names.len(), size as usize);
            let sets: Vec<_> = sets.map(|set| format!("set{set}")).collect();
            ring::encode(&ring::points(sets.iter().map(|name| name.as_bytes())))
        }
        Choice::Persistent => {
            let backend = backend.name.as_deref().unwrap_or(id).as_bytes();
            let keys = names.iter().map(|name| cookie::persistent_key(backend, name.as_bytes()));
            let mut keys: Vec<_> = keys.zip(0_u32..).collect();
            keys.sort_unstable();
            keys.iter()
                .flat_map(|(key, index)| key.iter().copied().chain(index.to_le_bytes()))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// An endpoint set read in place.
#[derive(Clone, Copy, Debug)]
pub struct EndpointsView<'g> {
    value: &'g [u8],
    header: &'g [u8; HEADER],
}

const NO_HEADER: &[u8; HEADER] = &[0; HEADER];

impl Default for EndpointsView<'_> {
    fn default() -> Self {
        EndpointsView { value: &[], header: NO_HEADER }
    }
}

impl<'g> EndpointsView<'g> {
    /// Reads `value`, which [`encode_endpoints`] wrote.
    #[inline]
    pub fn new(value: &'g [u8]) -> Self {
        EndpointsView { value, header: value.first_chunk().unwrap_or(NO_HEADER) }
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        u32_at(self.header, at).unwrap_or_default()
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.word(0) as usize
    }

    /// There are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How one is chosen.
    #[inline]
    pub fn choice(&self) -> Choice {
        Choice::from_number(self.header[4])
    }

    /// The backend's record has more to say: alternatives, a cookie or a hash key.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.header[5] & HAS_MORE != 0
    }

    /// All weights are 1.
    #[inline]
    pub fn is_even(&self) -> bool {
        self.header[5] & IS_EVEN != 0
    }

    /// The sum of the weights.
    #[inline]
    pub fn total_weight(&self) -> u32 {
        self.word(8)
    }

    /// Some but not all are to get no new requests.
    #[inline]
    pub fn is_draining(&self) -> bool {
        let active = self.word(12) as usize;
        active != self.len() && active != 0
    }

    /// Requests one endpoint has at the same time; 0: any number.
    #[inline]
    pub fn max_in_flight(&self) -> u32 {
        self.word(16)
    }

    /// Milliseconds in which a new endpoint's share grows; 0: it does not.
    #[inline]
    pub fn slow_start_ms(&self) -> u32 {
        self.word(20)
    }

    /// When a failing one is left out.
    #[inline]
    pub fn ejection(&self) -> Option<Ejection> {
        (self.header[5] & EJECTS != 0).then(|| Ejection {
            failures: self.word(24),
            connect_failures: self.word(28),
            base_ms: self.word(32),
            max_ms: self.word(36),
            panic_percent: self.header[6],
        })
    }

    /// Endpoints of a subset.
    pub fn subset_size(&self) -> usize {
        self.word(40) as usize
    }

    fn table(&self) -> &'g [u8] {
        let (at, bytes) = (self.word(44) as usize, self.word(48) as usize);
        self.value.get(at..).and_then(|value| value.get(..bytes)).unwrap_or_default()
    }

    /// The points of the endpoints or of the subsets; empty if nothing is hashed.
    pub fn ring(&self) -> &'g [u8] {
        self.table()
    }

    /// The endpoint with this affinity key.
    pub fn by_affinity_key(&self, key: &[u8]) -> Option<usize> {
        let (entries, _) = self.table().as_chunks::<KEY_ENTRY>();
        let place = entries.binary_search_by(|entry| entry[..KEY].cmp(key)).ok()?;
        u32_at(entries.get(place)?, KEY).map(|index| index as usize)
    }

    /// The affinity key of an endpoint.
    pub fn affinity_key(&self, index: usize) -> Option<&'g [u8]> {
        let (entries, _) = self.table().as_chunks::<KEY_ENTRY>();
        let entry = entries.iter().find(|e| u32_at(&e[..], KEY) == u32::try_from(index).ok())?;
        entry.get(..KEY)
    }

    /// The endpoint at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<EndpointView<'g>> {
        if index >= self.len() {
            return None;
        }
        let start = HEADER + index * ENTRY;
        Some(EndpointView { value: self.value, entry: self.value.get(start..)?.first_chunk()? })
    }

    /// One of them has this identity.
    pub fn contains(&self, identity: &[u8; 19]) -> bool {
        self.iter().any(|endpoint| endpoint.identity() == identity)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = EndpointView<'g>> + use<'g> {
        let view = *self;
        (0..self.len()).map_while(move |index| view.get(index))
    }

    /// The set as it was written.
    pub fn decode(&self) -> EndpointSet {
        let all = self.iter().filter_map(|endpoint| {
            let address = endpoint.socket_address();
            Some(Endpoint {
                weight: endpoint.weight() as u16,
                draining: endpoint.is_draining(),
                ..Endpoint::new(address.ip(), NonZeroU16::new(address.port())?)
            })
        });
        EndpointSet::new(all).unwrap_or_default()
    }
}

/// One endpoint read in place.
#[derive(Clone, Copy, Debug)]
pub struct EndpointView<'g> {
    value: &'g [u8],
    entry: &'g [u8; ENTRY],
}

impl<'g> EndpointView<'g> {
    /// What tells it from other endpoints: address, port and family.
    #[inline]
    pub fn identity(&self) -> &'g [u8; 19] {
        self.entry.first_chunk().unwrap_or(&[0; 19])
    }

    /// Where to connect to.
    #[inline]
    pub fn socket_address(&self) -> SocketAddr {
        let address: [u8; 16] = *self.entry.first_chunk().unwrap_or(&[0; 16]);
        let ip = match self.entry[18] {
            4 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address),
        };
        SocketAddr::new(ip, u16_at(self.entry, 16).unwrap_or_default())
    }

    /// `address:port`, as nginx logs it.
    pub fn name(&self) -> &'g [u8] {
        let start = u32_at(self.entry, 20).unwrap_or_default() as usize;
        self.value
            .get(start..)
            .and_then(|v| v.get(..usize::from(self.entry[19])))
            .unwrap_or_default()
    }

    /// Its share beside the others'.
    #[inline]
    pub fn weight(&self) -> u32 {
        u32::from(u16_at(self.entry, 24).unwrap_or_default())
    }

    /// It ends soon.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.entry[26] != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Affinity, HashBy};

    fn endpoint(address: &str, port: u16) -> Endpoint {
        Endpoint::new(address.parse().unwrap(), port.try_into().unwrap())
    }

    #[test]
    fn endpoints_are_read_as_they_were_written() {
        let set =
            EndpointSet::new([endpoint("10.0.0.1", 80), endpoint("2001:db8::1", 8080)]).unwrap();
        let value = encode_endpoints(&set, &Backend::default(), "x");
        let view = EndpointsView::new(&value);
        let read: Vec<_> =
            view.iter().map(|e| (e.socket_address().to_string(), e.name().to_vec())).collect();
        assert_eq!(read[0], ("10.0.0.1:80".into(), b"10.0.0.1:80".to_vec()));
        assert_eq!(read[1], ("[2001:db8::1]:8080".into(), b"[2001:db8::1]:8080".to_vec()));
        assert_eq!(read.len(), 2);
        assert!(view.get(2).is_none());
        let second = *view.get(1).unwrap().identity();
        assert!(view.contains(&second));
        assert!(!EndpointsView::new(&value[..HEADER + ENTRY]).contains(&second));
    }

    #[test]
    fn cut_bytes_end_the_list_instead_of_panicking() {
        let value = encode_endpoints(
            &EndpointSet::new([endpoint("10.0.0.1", 80)]).unwrap(),
            &Backend::default(),
            "x",
        );
        for cut in 0..value.len() {
            EndpointsView::new(&value[..cut]).iter().for_each(|e| drop(e.name().to_vec()));
        }
    }

    fn three() -> EndpointSet {
        let mut all = [1, 2, 3].map(|n| endpoint(&format!("10.0.0.{n}"), 8080));
        (all[1].weight, all[2].draining) = (7, true);
        EndpointSet::new(all).unwrap()
    }

    #[test]
    fn a_set_is_decoded_as_it_was() {
        let value = encode_endpoints(&three(), &Backend::default(), "x");
        let view = EndpointsView::new(&value);
        assert_eq!(view.decode(), three());
        assert_eq!((view.total_weight(), view.is_even(), view.is_draining()), (9, false, true));
        assert!(view.ejection().is_none() && !view.has_more());
    }

    #[test]
    fn the_header_says_how_to_choose() {
        let ejection = Ejection { failures: 3, panic_percent: 40, ..Ejection::default() };
        let backend = Backend {
            ejection: Some(ejection),
            slow_start_ms: 5,
            max_in_flight: 6,
            hash_by: Some(HashBy { key: "$uri".into(), subset_size: 2 }),
            ..Backend::default()
        };
        let value = encode_endpoints(&three(), &backend, "x");
        let view = EndpointsView::new(&value);
        assert_eq!(view.choice(), Choice::Subset);
        assert_eq!((view.slow_start_ms(), view.max_in_flight(), view.subset_size()), (5, 6, 2));
        assert_eq!(view.ejection(), Some(ejection));
        assert!(view.has_more());
        assert_eq!(view.ring().len(), 2 * 160 * 8);
    }

    #[test]
    fn an_affinity_key_leads_to_its_endpoint() {
        let affinity = Affinity { mode: AffinityMode::Persistent, ..Affinity::default() };
        let backend = Backend {
            name: Some("default-http-svc-80".into()),
            affinity: Some(affinity),
            ..Backend::default()
        };
        let value = encode_endpoints(&three(), &backend, "x");
        let view = EndpointsView::new(&value);
        // As in ingress-nginx's balancer.
        assert_eq!(view.affinity_key(0), Some(&b"5527bcca0bd221fcb9f44d85ffc6cc19"[..]));
        for index in 0..3 {
            assert_eq!(view.by_affinity_key(view.affinity_key(index).unwrap()), Some(index));
        }
        assert_eq!(view.by_affinity_key(b"5527bcca0bd221fcb9f44d85ffc6cc1"), None);
        assert_eq!(view.by_affinity_key(b""), None);
    }
}
