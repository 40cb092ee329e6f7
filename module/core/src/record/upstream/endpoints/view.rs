//! An endpoint set read in place.

use super::{Choice, Entry, Header, KeyEntry, flag};
use crate::model::{Ejection, Endpoint, EndpointSet};
use crate::record::upstream::framed::{Framed, Head};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use zerocopy::{FromBytes, IntoBytes, transmute_ref};

/// The record of an endpoint set, as [`encode_endpoints`](super::encode_endpoints) wrote it. Damaged bytes are an empty set.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndpointsView<'g>(Framed<'g, Header>);

impl Head for Header {
    const NONE: &'static Header = transmute_ref!(&[0_u8; size_of::<Header>()]);
}

impl<'g> EndpointsView<'g> {
    /// A view of a record's value.
    #[inline]
    pub fn new(value: &'g [u8]) -> Self {
        EndpointsView(Framed::new(value))
    }

    /// The number of endpoints, draining ones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.header.count.get() as usize
    }

    /// Whether the set has no endpoints.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How an endpoint is chosen.
    #[inline]
    pub fn choice(&self) -> Choice {
        Choice::from_number(self.0.header.choice)
    }

    /// Whether the backend's record has alternatives, a cookie or a hash key.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.0.header.flags & flag::HAS_MORE != 0
    }

    /// Whether all weights are 1.
    #[inline]
    pub fn is_even(&self) -> bool {
        self.0.header.flags & flag::IS_EVEN != 0
    }

    /// The sum of the weights.
    #[inline]
    pub fn total_weight(&self) -> u32 {
        self.0.header.total_weight.get()
    }

    /// Whether some but not all endpoints are draining, so that they get no new requests.
    #[inline]
    pub fn is_draining(&self) -> bool {
        let active = self.0.header.active.get() as usize;
        active != self.len() && active != 0
    }

    /// The most concurrent requests of one endpoint; 0 for no limit.
    #[inline]
    pub fn max_in_flight(&self) -> u32 {
        self.0.header.max_in_flight.get()
    }

    /// The milliseconds in which a new endpoint's share grows; 0 for no slow start.
    #[inline]
    pub fn slow_start_ms(&self) -> u32 {
        self.0.header.slow_start_ms.get()
    }

    /// When a failing endpoint is ejected.
    #[inline]
    pub fn ejection(&self) -> Option<Ejection> {
        let header = self.0.header;
        (header.flags & flag::EJECTS != 0).then(|| header.thresholds.ejection(header.panic_percent))
    }

    /// The number of endpoints in a subset; 0 without subsets.
    pub fn subset_size(&self) -> usize {
        self.0.header.subset_size.get() as usize
    }

    fn table(&self) -> &'g [u8] {
        let (at, bytes) = (self.0.header.table_at.get(), self.0.header.table_bytes.get());
        self.0.value.get(at as usize..).and_then(|v| v.get(..bytes as usize)).unwrap_or_default()
    }

    /// The ring of the endpoints or of the subsets; empty if nothing is hashed.
    pub fn ring(&self) -> &'g [u8] {
        self.table()
    }

    fn keys(&self) -> &'g [KeyEntry] {
        let table = self.table();
        let count = table.len() / size_of::<KeyEntry>();
        <[KeyEntry]>::ref_from_prefix_with_elems(table, count).map_or(&[], |(keys, _)| keys)
    }

    /// The index of the endpoint with this affinity key.
    pub fn by_affinity_key(&self, key: &[u8]) -> Option<usize> {
        let keys = self.keys();
        let place = keys.binary_search_by(|entry| entry.key[..].cmp(key)).ok()?;
        Some(keys.get(place)?.index.get() as usize)
    }

    /// The affinity key of an endpoint.
    pub fn affinity_key(&self, index: usize) -> Option<&'g [u8]> {
        let entry = self.keys().iter().find(|entry| entry.index.get() as usize == index)?;
        Some(&entry.key)
    }

    /// The endpoint at `index`; `None` beyond the end.
    #[inline]
    pub fn get(&self, index: usize) -> Option<EndpointView<'g>> {
        if index >= self.len() {
            return None;
        }
        let start = size_of::<Header>() + index * size_of::<Entry>();
        let (entry, _) = Entry::ref_from_prefix(self.0.value.get(start..)?).ok()?;
        Some(EndpointView { value: self.0.value, entry })
    }

    /// Whether one of the endpoints has this identity.
    pub fn contains(&self, identity: &[u8; 19]) -> bool {
        self.iter().any(|endpoint| endpoint.identity() == identity)
    }

    /// All endpoints, in the order of the set.
    pub fn iter(&self) -> impl Iterator<Item = EndpointView<'g>> + use<'g> {
        let view = *self;
        (0..self.len()).map_while(move |index| view.get(index))
    }

    /// The set as it was before it was encoded.
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
    entry: &'g Entry,
}

impl<'g> EndpointView<'g> {
    /// Address, port and family, by which endpoints are distinguished.
    #[inline]
    pub fn identity(&self) -> &'g [u8; 19] {
        self.entry.as_bytes().first_chunk().unwrap_or(&[0; 19])
    }

    /// The address to connect to.
    #[inline]
    pub fn socket_address(&self) -> SocketAddr {
        let address = self.entry.address;
        let ip = match self.entry.family {
            4 => IpAddr::from([address[0], address[1], address[2], address[3]]),
            _ => IpAddr::from(address),
        };
        SocketAddr::new(ip, self.entry.port.get())
    }

    /// `address:port`, as nginx logs it.
    pub fn name(&self) -> &'g [u8] {
        let start = self.entry.name_at.get() as usize;
        self.value
            .get(start..)
            .and_then(|v| v.get(..usize::from(self.entry.name_bytes)))
            .unwrap_or_default()
    }

    /// The share of the endpoint relative to the others.
    #[inline]
    pub fn weight(&self) -> u32 {
        u32::from(self.entry.weight.get())
    }

    /// Whether the endpoint is about to end.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.entry.draining != 0
    }
}
