//! One attempt: an endpoint of the backend, in the newest generation.

use crate::ffi::{Found, Worker};
use crate::records::TURN;
use oxigress_core::balancer::{self, Identity};
use oxigress_core::record::{EndpointView, EndpointsView, Kind};
use oxigress_store::{Guard, KeyHash, Record};
use std::sync::atomic::Ordering::Relaxed;

/// Chooses an endpoint that `tried` does not hold; `None` when none is left.
///
/// Looks the backend up anew, so that an attempt never goes to an endpoint that has left meanwhile. `copy`
/// takes what the attempt needs out of shared memory; it is told how many endpoints are left, this one
/// included, and the generation.
#[inline]
pub fn choose<T>(
    worker: &Worker,
    backend: &[u8],
    found: Found,
    tried: &[Identity],
    copy: impl FnOnce(EndpointView<'_>, usize, u64) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, found)?;
    // All workers count together: exact turns, for one add on a line that only this backend uses.
    let turn = record.counters().get(TURN).map_or(0, |turn| turn.fetch_add(1, Relaxed));
    let view = EndpointsView::new(record.value());
    let endpoint = balancer::round_robin(view, turn, tried)?;
    Some(copy(endpoint, balancer::untried(view, tried), guard.generation()))
}

/// How many endpoints of the backend `tried` does not hold, now.
pub fn untried(worker: &Worker, backend: &[u8], found: Found, tried: &[Identity]) -> usize {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, found);
    record.map_or(0, |record| balancer::untried(EndpointsView::new(record.value()), tried))
}

/// The endpoints of a backend whose id is known by its hash only.
pub fn endpoints_by_hash<'g>(guard: &'g Guard<'_>, hash: u64) -> EndpointsView<'g> {
    let record = guard.find_hashed(KeyHash::from_bits(hash), Kind::Endpoints as u8);
    record.map_or_else(EndpointsView::default, |record| EndpointsView::new(record.value()))
}

#[inline]
fn endpoints<'g>(guard: &'g Guard<'_>, backend: &[u8], found: Found) -> Option<Record<'g>> {
    guard.at(found.place).or_else(|| {
        let kind = Kind::Endpoints as u8;
        let hash = found.hash.unwrap_or_else(|| guard.hash(kind, backend));
        guard.get_hashed(hash, kind, backend)
    })
}
