//! The store seen as the records of `oxigress-core`.

use crate::zone::retired;
use oxigress_core::balancer::statistics::{Cell, WORDS};
use oxigress_core::metrics;
use oxigress_core::record::{BackendView, EndpointsView, Kind, Records, ServerView};
use oxigress_store::{CellNames, Guard, Record};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The records of a generation that a guard holds.
pub struct Held<'g>(pub &'g Guard<'g>);

impl<'g> Records<'g> for Held<'g> {
    #[inline]
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.0.get(kind as u8, key).map(|record| record.value())
    }
}

/// The encoding of keys and values in a journal: any change of [`oxigress_core::record`] gets another number.
pub const JOURNAL_VERSION: u64 = 8;

/// Requests are counted. One zone is of one mind: the process that makes it says so before it forks, and another
/// mind gets another zone.
static COUNTING: AtomicBool = AtomicBool::new(false);

/// Says whether requests are counted in the zone of this process.
pub fn set_counting(is_counting: bool) {
    COUNTING.store(is_counting, Relaxed);
}

/// The cells of a record: an endpoint set has one of its own and one for each endpoint. Where requests are
/// counted, a server has one for each rule, a backend for each alternative, and the settings have one for what
/// no rule takes.
pub fn cells(kind: u8, value: &[u8]) -> CellNames<'_> {
    let names = match Kind::from_number(kind) {
        Some(Kind::Endpoints) => {
            return cells_of_endpoints(value);
        }
        None if kind == retired::ENDPOINTS => return cells_of_endpoints(retired::value(value)),
        Some(Kind::Server | Kind::Listener) if COUNTING.load(Relaxed) => {
            ServerView::new(value).names().collect()
        }
        Some(Kind::Backend) if COUNTING.load(Relaxed) => {
            BackendView::new(value).alternatives().collect()
        }
        Some(Kind::Settings) if COUNTING.load(Relaxed) => vec![&b""[..]],
        _ => return CellNames::default(),
    };
    CellNames { names, words: metrics::WORDS }
}

fn cells_of_endpoints(value: &[u8]) -> CellNames<'_> {
    let endpoints = EndpointsView::new(value);
    let names = endpoints.iter().map(|e| &e.identity()[..]);
    CellNames { names: [&b""[..]].into_iter().chain(names).collect(), words: WORDS }
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

/// The cell of an endpoint that stood at `index`, by its number, as long as the endpoint is in the set.
#[inline]
pub fn statistics_numbered<'g>(set: &Record<'g>, index: u32, number: u32) -> Option<Cell<'g>> {
    set.cell_numbered(index as usize + 1, number).and_then(Cell::new)
}

/// Marks endpoints that came from a journal or from another zone as older than those that join.
pub fn mark_endpoints_older(set: Option<Record<'_>>) {
    let Some(set) = set else { return };
    (0..set.cell_count()).filter_map(|n| statistics(&set, n)).for_each(|cell| cell.mark_older());
}

/// Initialises the endpoints that are new to a set: they join at `now`, with the mean latency of the others.
pub fn initialise_endpoints(set: Option<Record<'_>>, now: u64) {
    let Some(set) = set else { return };
    let all = || (0..set.cell_count()).filter_map(|index| statistics(&set, index));
    if all().all(|cell| cell.is_initialised()) {
        return;
    }
    let known = || all().map(|cell| cell.latency(now)).filter(|latency| *latency > 0.0);
    let mean = known().sum::<f32>() / known().count().max(1) as f32;
    all().for_each(|cell| cell.initialise(now, mean));
}

/// A hasher for keys that are keyed hashes already.
#[derive(Default)]
pub struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Nobody asks: keys are numbers.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
