//! The store seen as the records of `oxigress-core`.

use oxigress_core::record::{Kind, Records};
use oxigress_store::Guard;

/// The records of a generation that a guard holds.
pub struct Held<'g>(pub &'g Guard<'g>);

impl<'g> Records<'g> for Held<'g> {
    #[inline]
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.0.get(kind as u8, key).map(|record| record.value())
    }
}

/// The encoding of keys and values in a journal: any change of [`oxigress_core::record`] gets another number.
pub const JOURNAL_VERSION: u64 = 1;

/// Counters a record of this kind has: an endpoint set counts whose turn it is.
pub fn counters(kind: Kind) -> usize {
    usize::from(kind == Kind::Endpoints)
}

/// The counter of an endpoint set that says whose turn it is.
pub const TURN: usize = 0;
