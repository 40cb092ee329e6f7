//! Which cell counts a request, and what all cells say.
//!
//! A rule has a cell, and so has each alternative of a backend: there requests count that went to it instead.
//! What no rule takes counts in the settings' cell. So series come from the configuration and never from clients.

use oxigress_core::decision;
use oxigress_core::record::{BackendView, Kind, RuleView, ServerView};
use oxigress_core::telemetry::metrics::{self, Buckets, Exposition, Labels, Observation};
use oxigress_store::{
    CellPlace, Guard, KeyHash, Reader, Record, Transaction, WriterLock, cell_number,
};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// The cell that counts a request, to be found again when it ends. Zeroes are "none".
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Counter {
    place: CellPlace,
    hash: u64,
    index: u32,
    number: u32,
    kind: u8,
}

impl Counter {
    #[inline]
    fn new(guard: &Guard<'_>, record: &Record<'_>, index: usize) -> Option<Counter> {
        let place = guard.cell_place(record, index)?;
        Some(Counter {
            number: cell_number(guard.cell_at(place)?)?,
            place,
            hash: record.key_hash().to_bits(),
            index: u32::try_from(index).ok()?,
            kind: record.kind(),
        })
    }

    /// There is one.
    pub fn is_some(&self) -> bool {
        self.number != 0
    }
}

/// The cell that a decision names; none where the record has no cells.
#[inline]
pub fn cell_of<'g>(guard: &'g Guard<'_>, counter: decision::Counter<Record<'g>>) -> Counter {
    let counter = match counter {
        decision::Counter::Rule(record, index) | decision::Counter::Alternative(record, index) => {
            Counter::new(guard, &record, index)
        }
        decision::Counter::NoRule => guard
            .get(Kind::Settings as u8, b"")
            .and_then(|settings| Counter::new(guard, &settings, 0)),
    };
    counter.unwrap_or_default()
}

/// Counts a request that has ended. One whose cell is gone meanwhile is nobody's any more.
#[inline]
pub fn observe(reader: &Reader, buckets: &Buckets, counter: &Counter, seen: &Observation) {
    let guard = reader.read();
    if let Some(cell) = guard.cell_at(counter.place).or_else(|| find(&guard, counter)) {
        metrics::observe(cell, buckets, seen);
    }
}

/// The cell in a later generation.
#[cold]
fn find<'g>(guard: &'g Guard<'_>, counter: &Counter) -> Option<&'g [AtomicU64]> {
    let record = guard.find_hashed(KeyHash::from_bits(counter.hash), counter.kind)?;
    record.cell_numbered(counter.index as usize, counter.number)
}

/// Labels that outlive the record they come from.
#[derive(Clone, PartialEq)]
struct Origin([Vec<u8>; 5]);

impl Origin {
    fn of(host: &[u8], rule: &RuleView<'_>) -> Origin {
        let [_, namespace, ingress, service, _, path] = rule.texts();
        let path = if path.is_empty() { b"/" } else { path };
        Origin([host, namespace, ingress, service, path].map(<[u8]>::to_vec))
    }

    fn labels<'a>(&'a self, canary: &'a [u8]) -> Labels<'a> {
        let [host, namespace, ingress, service, path] = self.0.each_ref().map(Vec::as_slice);
        Labels { host, namespace, ingress, service, path, canary }
    }

    /// What both say alike.
    fn meet(&mut self, other: &Origin) {
        for (own, others) in self.0.iter_mut().zip(&other.0) {
            if own != others {
                own.clear();
            }
        }
    }
}

/// Takes all cells into an exposition.
///
/// Alternatives belong to a backend. Where several rules lead to it, their requests are told with the labels
/// that all of these rules have, and the others empty.
pub fn collect<L: WriterLock>(transaction: &Transaction<'_, L>, exposition: &mut Exposition) {
    let mut split: BTreeMap<Vec<u8>, Option<Origin>> = BTreeMap::new();
    transaction.for_each(|record| {
        if record.kind() == Kind::Backend as u8 && record.cell_count() > 0 {
            split.insert(record.key().to_vec(), None);
        }
    });
    transaction.for_each(|record| match record.kind() {
        kind if kind == Kind::Settings as u8 => {
            if let Some(cell) = record.cell(0) {
                exposition.add(&Labels { host: b"_", ..Labels::default() }, cell);
            }
        }
        kind if kind == Kind::Server as u8 => {
            for rule in ServerView::new(record.value()).rules() {
                let found = rule.backend().and_then(|id| split.get_mut(id));
                let cell = record.cell(rule.index());
                if cell.is_none() && found.is_none() {
                    continue;
                }
                let origin = Origin::of(record.key(), &rule);
                if let Some(cell) = cell {
                    exposition.add(&origin.labels(b""), cell);
                }
                match found {
                    Some(Some(there)) => there.meet(&origin),
                    Some(place) => *place = Some(origin),
                    None => {}
                }
            }
        }
        _ => {}
    });
    for (key, origin) in split {
        let Some(record) = transaction.get(Kind::Backend as u8, &key) else { continue };
        let unknown = || Origin([b"_".to_vec(), vec![], vec![], vec![], vec![]]);
        let origin = origin.unwrap_or_else(unknown);
        for (index, id) in BackendView::new(record.value()).alternatives().enumerate() {
            let alternative = transaction.get(Kind::Backend as u8, id);
            let name = alternative.map(|record| BackendView::new(record.value()).name());
            if let Some(cell) = record.cell(index) {
                exposition.add(&origin.labels(name.unwrap_or(id)), cell);
            }
        }
    }
}
