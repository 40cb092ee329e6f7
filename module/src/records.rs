//! The store seen as the records of `oxigress-core`.

use oxigress_core::record::{EndpointsView, Kind, Records};
use oxigress_core::statistics::{Cell, WORDS};
use oxigress_store::{CellNames, Guard, Record};

/// The records of a generation that a guard holds.
pub struct Held<'g>(pub &'g Guard<'g>);

impl<'g> Records<'g> for Held<'g> {
    #[inline]
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.0.get(kind as u8, key).map(|record| record.value())
    }
}

/// The encoding of keys and values in a journal: any change of [`oxigress_core::record`] gets another number.
pub const JOURNAL_VERSION: u64 = 2;

/// The cells of a record: an endpoint set has one of its own and one for each endpoint.
pub fn cells(kind: u8, value: &[u8]) -> CellNames<'_> {
    if kind != Kind::Endpoints as u8 {
        return CellNames::default();
    }
    let endpoints = EndpointsView::new(value);
    let names = std::iter::once(&b""[..]).chain(endpoints.iter().map(|e| &e.identity()[..]));
    CellNames { names: names.collect(), words: WORDS }
}

/// The cell of an endpoint set itself.
pub const STATISTICS_OF_SET: usize = 0;
/// Its word that says whose turn it is.
pub const TURN: usize = 1;

/// The cell of an endpoint of a set.
#[inline]
pub fn statistics<'g>(set: &Record<'g>, index: usize) -> Option<Cell<'g>> {
    set.cell(index + 1).and_then(Cell::new)
}

/// Endpoints that are new to a set begin at `now` with the mean latency of the others.
pub fn welcome(set: Option<Record<'_>>, now: u64) {
    let Some(set) = set else { return };
    let all = || (0..set.cell_count()).filter_map(|index| statistics(&set, index));
    if all().all(|cell| cell.is_welcome()) {
        return;
    }
    let known = || all().map(|cell| cell.latency(now)).filter(|latency| *latency > 0.0);
    let mean = known().sum::<f32>() / known().count().max(1) as f32;
    all().for_each(|cell| cell.welcome(now, mean));
}
