//! Records with a head of fixed length in front: backends and endpoint sets.

use crate::model::Ejection;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The head of a record.
pub(crate) trait Head: FromBytes + Immutable + KnownLayout + 'static {
    /// The head of damaged bytes, which says nothing.
    const NONE: &'static Self;
}

/// A record's value and the head that it begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Framed<'g, H: 'static> {
    pub value: &'g [u8],
    pub header: &'g H,
}

impl<H: Head> Default for Framed<'_, H> {
    fn default() -> Self {
        Framed { value: &[], header: H::NONE }
    }
}

impl<'g, H: Head> Framed<'g, H> {
    #[inline]
    pub fn new(value: &'g [u8]) -> Self {
        let header = H::ref_from_prefix(value).map_or(H::NONE, |(header, _)| header);
        Framed { value, header }
    }
}

/// When a failing endpoint is ejected, as both heads have it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Thresholds {
    failures: U32,
    connect_failures: U32,
    base_ms: U32,
    max_ms: U32,
}

impl Thresholds {
    pub fn of(ejection: &Ejection) -> Self {
        Thresholds {
            failures: ejection.failures.into(),
            connect_failures: ejection.connect_failures.into(),
            base_ms: ejection.base_ms.into(),
            max_ms: ejection.max_ms.into(),
        }
    }

    #[inline]
    pub fn ejection(&self, panic_percent: u8) -> Ejection {
        Ejection {
            failures: self.failures.get(),
            connect_failures: self.connect_failures.get(),
            base_ms: self.base_ms.get(),
            max_ms: self.max_ms.get(),
            panic_percent,
        }
    }
}
