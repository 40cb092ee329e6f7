//! A backend's record: settings that only some requests need, and the element of ingress-nginx's wire format it came from.
//!
//! Layout: [`Header`], then the sections. A text in a section is `length u32` and its bytes.
//!
//! The flags come first, so that one comparison of one byte shows that a backend has nothing special.

mod affinity;
mod decode;
mod encode;
#[cfg(test)]
mod tests;
mod view;

pub use affinity::AffinityView;
pub use decode::decode_backend;
pub use encode::encode_backend;
pub use view::{BackendView, SplitView};

use super::framed::Thresholds;
use crate::model::{Algorithm, Backend, BackendId};
use crate::record::definition::Record;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of record that holds a backend. A rule may name a backend without a record: it answers 503.
pub enum Backends {}

impl Record for Backends {
    type Key = BackendId;
    type Value = Backend;

    fn encode(id: &BackendId, backend: &Backend) -> Option<Vec<u8>> {
        Some(encode_backend(id, backend))
    }
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    flags: u8,
    algorithm: u8,
    slow_start_ms: U32,
    max_in_flight: U32,
    subset_size: U32,
    thresholds: Thresholds,
    panic_percent: u8,
    unused: u8,
    /// In the order of [`Section`].
    sections: [SectionBounds; SECTIONS],
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct SectionBounds {
    /// Counted from the beginning of the record.
    at: U32,
    bytes: U32,
}

mod flag {
    pub const ALTERNATIVES: u8 = 1;
    pub const AFFINITY: u8 = 1 << 1;
    pub const HASH: u8 = 1 << 2;
    /// With any of these, more than the algorithm decides.
    pub const SPECIAL: u8 = ALTERNATIVES | AFFINITY | HASH;
    pub const SPLIT: u8 = 1 << 3;
    pub const EJECTION: u8 = 1 << 4;
    pub const NAME: u8 = 1 << 5;
    pub const COMPATIBLE: u8 = 1 << 6;
}

const SECTIONS: usize = 6;

/// The parts without a fixed length.
#[derive(Clone, Copy)]
enum Section {
    /// The name, or the id of a backend without one.
    Name,
    HashKey,
    /// The number of alternatives (`count u32`), then their ids as texts.
    Alternatives,
    Affinity,
    /// `weight u32`, `weight_total u32`, then four texts.
    Split,
    Compatible,
}

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::RoundRobin, Algorithm::LeastConn, Algorithm::Ewma, Algorithm::P2c];

fn put_text(value: &mut Vec<u8>, text: &str) {
    value.extend(crate::record::length(text.len()).to_le_bytes());
    value.extend(text.as_bytes());
}

/// Reads numbers and texts one after the other; `None` from the first that is cut.
#[derive(Clone, Copy, Debug)]
struct RecordReader<'g>(&'g [u8]);

impl<'g> RecordReader<'g> {
    #[inline]
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = U32::ref_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(number.get())
    }

    #[inline]
    fn text(&mut self) -> Option<&'g [u8]> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }

    /// Reads `count u32` and that many texts, or fewer if they are cut.
    fn texts(mut self) -> impl Iterator<Item = &'g [u8]> + Clone {
        let count = self.number().unwrap_or_default();
        (0..count).scan(self, |reader, _| reader.text())
    }
}
