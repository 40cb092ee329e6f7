//! A backend read in place.

use super::affinity::AffinityView;
use super::{ALGORITHMS, Header, RecordReader, Section, flag};
use crate::model::{Algorithm, Ejection};
use crate::record::upstream::framed::{Framed, Head};
use zerocopy::transmute_ref;

/// The record of a backend, as [`encode_backend`](super::encode_backend) wrote it. Damaged bytes are a backend without
/// settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackendView<'g>(Framed<'g, Header>);

impl Head for Header {
    const NONE: &'static Header = transmute_ref!(&[0_u8; size_of::<Header>()]);
}

impl<'g> BackendView<'g> {
    /// A view of a record's value.
    #[inline]
    pub fn new(value: &'g [u8]) -> Self {
        BackendView(Framed::new(value))
    }

    #[inline]
    pub(super) fn has(&self, bits: u8) -> bool {
        self.0.header.flags & bits != 0
    }

    #[inline]
    pub(super) fn section(&self, section: Section) -> Option<&'g [u8]> {
        let place = &self.0.header.sections[section as usize];
        self.0.value.get(place.at.get() as usize..)?.get(..place.bytes.get() as usize)
    }

    /// Whether only the algorithm decides: no alternatives, no affinity, no hash.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.has(flag::SPECIAL)
    }

    /// The name in ingress-nginx's format; the id if there is none.
    pub fn name(&self) -> &'g [u8] {
        self.section(Section::Name).unwrap_or_default()
    }

    /// How an endpoint is chosen.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        ALGORITHMS.get(usize::from(self.0.header.algorithm)).copied().unwrap_or_default()
    }

    /// The milliseconds in which a new endpoint's share grows; 0 for no slow start.
    #[inline]
    pub fn slow_start_ms(&self) -> u32 {
        self.0.header.slow_start_ms.get()
    }

    /// The most concurrent requests of one endpoint; 0 for no limit.
    #[inline]
    pub fn max_in_flight(&self) -> u32 {
        self.0.header.max_in_flight.get()
    }

    /// The text whose value is hashed ([`crate::balancer::hash_key`]).
    pub fn hash_key(&self) -> Option<&'g [u8]> {
        if self.has(flag::HASH) { self.section(Section::HashKey) } else { None }
    }

    /// The number of endpoints in a subset chosen by the hash; 0 if the hash chooses one endpoint.
    pub fn subset_size(&self) -> u32 {
        self.0.header.subset_size.get()
    }

    /// When a failing endpoint is ejected.
    #[inline]
    pub fn ejection(&self) -> Option<Ejection> {
        let header = self.0.header;
        self.has(flag::EJECTION).then(|| header.thresholds.ejection(header.panic_percent))
    }

    /// The ids of the backends that serve a part of the requests, in order.
    pub fn alternatives(&self) -> impl Iterator<Item = &'g [u8]> + Clone + use<'g> {
        RecordReader(self.section(Section::Alternatives).unwrap_or_default()).texts()
    }

    /// The settings of cookie affinity.
    #[inline]
    pub fn affinity(&self) -> Option<AffinityView<'g>> {
        if !self.has(flag::AFFINITY) {
            return None;
        }
        AffinityView::new(self.section(Section::Affinity)?)
    }

    /// Which requests the backend serves where it is an alternative.
    pub fn split(&self) -> Option<SplitView<'g>> {
        if !self.has(flag::SPLIT) {
            return None;
        }
        let mut reader = RecordReader(self.section(Section::Split)?);
        Some(SplitView {
            weight: reader.number()?,
            weight_total: reader.number()?,
            header: reader.text()?,
            header_value: reader.text()?,
            header_pattern: reader.text()?,
            cookie: reader.text()?,
        })
    }
}

/// The [`Split`](crate::model::Split) of a backend, read in place.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the model")]
pub struct SplitView<'g> {
    pub weight: u32,
    pub weight_total: u32,
    pub header: &'g [u8],
    pub header_value: &'g [u8],
    pub header_pattern: &'g [u8],
    pub cookie: &'g [u8],
}
