//! The store seen as the records of `oxigress-core`.

use oxigress_core::balancer::statistics::WORDS;
use oxigress_core::record::{BackendView, EndpointsView, Kind, Records, ServerView};
use oxigress_core::telemetry::metrics;
use oxigress_store::{CellNames, Guard};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The records of a generation that a guard holds.
pub struct GuardedRecords<'g>(pub &'g Guard<'g>);

impl<'g> Records<'g> for GuardedRecords<'g> {
    #[inline]
    fn value(&self, kind: Kind, key: &[u8]) -> Option<&'g [u8]> {
        self.0.get(kind as u8, key).map(|record| record.value())
    }
}

/// The encoding of keys and values in a journal: any change of [`oxigress_core::record`] gets another number.
pub const JOURNAL_VERSION: u64 = 11;

/// The kind of endpoint sets that a write has removed, beside the model's kinds (`retired.rs`).
pub const RETIRED_ENDPOINTS: u8 = 15;

/// Before the value of a removed record: the generation without it, and when that began.
pub const RETIRED_HEAD: usize = 16;

/// The value that a record had before it was removed.
pub fn retired_value(kept: &[u8]) -> &[u8] {
    kept.get(RETIRED_HEAD..).unwrap_or_default()
}

/// Requests are counted. The process that makes a zone sets it before it forks; where the configuration changes it, a new zone
/// is made.
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
        None if kind == RETIRED_ENDPOINTS => return cells_of_endpoints(retired_value(value)),
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

/// A hasher for keys that are keyed hashes already.
#[derive(Default)]
pub struct IdentityHasher(u64);

impl std::hash::Hasher for IdentityHasher {
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
