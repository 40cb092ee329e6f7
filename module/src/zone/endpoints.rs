//! Endpoint sets in the store, with the cells in which all workers count what their endpoints do.

use crate::zone::records::RETIRED_ENDPOINTS;
use oxigress_core::balancer::statistics::Cell;
use oxigress_core::record::{EndpointsView, Kind};
use oxigress_store::{CellPlace, Guard, KeyHash, Record};

/// The cell of an endpoint set itself.
pub const STATISTICS_OF_SET: usize = 0;
/// Its word that says whose turn it is.
pub const TURN: usize = 1;

/// The cell of an endpoint of a set.
#[inline]
pub fn statistics<'g>(set: &Record<'g>, index: usize) -> Option<Cell<'g>> {
    set.cell(index + 1).and_then(Cell::new)
}

/// The same, with where it is in this generation.
#[inline]
pub fn statistics_at<'g>(
    guard: &'g Guard<'_>,
    set: &Record<'g>,
    index: usize,
) -> Option<(CellPlace, Cell<'g>)> {
    let place = guard.cell_place(set, index + 1)?;
    Some((place, guard.cell_at(place).and_then(Cell::new)?))
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

/// An endpoint has as many requests in flight as `limit` allows; 0: any number.
#[inline]
pub fn is_full(set: &Record<'_>, index: usize, limit: u32) -> bool {
    limit != 0 && statistics(set, index).is_some_and(|cell| cell.in_flight() >= limit)
}

/// An endpoint takes no more clients.
#[inline]
pub fn is_drained(view: EndpointsView<'_>, index: usize) -> bool {
    view.is_draining() && view.get(index).is_some_and(|endpoint| endpoint.is_draining())
}

/// Every endpoint of the set is busy up to its limit.
#[inline]
pub fn is_busy(set: Record<'_>, view: EndpointsView<'_>) -> bool {
    view.max_in_flight() > 0 && is_busy_up_to_limit(set, view)
}

#[cold]
fn is_busy_up_to_limit(set: Record<'_>, view: EndpointsView<'_>) -> bool {
    let limit = view.max_in_flight();
    (0..view.len()).all(|index| is_drained(view, index) || is_full(&set, index, limit))
}

/// A request that a worker died with is in flight no more.
pub fn forget(guard: &Guard<'_>, backend: u64, index: u32, number: u32) {
    let record = by_hash(guard, backend);
    if let Some(cell) = record.and_then(|record| statistics_numbered(&record, index, number)) {
        cell.end(number);
    }
}

/// The endpoint set of an attempt, live or removed, by the hash of its backend.
pub fn by_hash<'g>(guard: &'g Guard<'_>, hash: u64) -> Option<Record<'g>> {
    let find = |kind| guard.find_hashed(KeyHash::from_bits(hash), kind);
    find(Kind::Endpoints as u8).or_else(|| find(RETIRED_ENDPOINTS))
}
