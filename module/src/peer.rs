//! One attempt: an endpoint of the backend, in the newest generation.

use crate::ffi::{Found, Worker};
use crate::records::TURN;
use oxigress_core::balancer::{self, Identity};
use oxigress_core::record::{EndpointView, EndpointsView, Kind};
use oxigress_store::{Guard, Record};
use std::sync::atomic::Ordering::Relaxed;

/// Chooses an endpoint that `tried` does not hold; `None` when none is left.
///
/// Looks the backend up anew, so that an attempt never goes to an endpoint that has left meanwhile. `copy`
/// takes what the attempt needs out of shared memory; it is told how many endpoints are left, this one
/// included.
#[inline]
pub fn choose<T>(
    worker: &Worker,
    backend: &[u8],
    found: Found,
    tried: &[Identity],
    copy: impl FnOnce(EndpointView<'_>, usize) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, found)?;
    // All workers count together: exact turns, for one add on a line that only this backend uses.
    let turn = record.counters().get(TURN).map_or(0, |turn| turn.fetch_add(1, Relaxed));
    let view = EndpointsView::new(record.value());
    let endpoint = balancer::round_robin(view, turn, tried)?;
    Some(copy(endpoint, balancer::untried(view, tried)))
}

/// How many endpoints of the backend `tried` does not hold, now.
pub fn untried(worker: &Worker, backend: &[u8], found: Found, tried: &[Identity]) -> usize {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, found);
    record.map_or(0, |record| balancer::untried(EndpointsView::new(record.value()), tried))
}

#[inline]
fn endpoints<'g>(guard: &'g Guard<'_>, backend: &[u8], found: Found) -> Option<Record<'g>> {
    guard.at(found.place).or_else(|| {
        let kind = Kind::Endpoints as u8;
        let hash = found.hash.unwrap_or_else(|| guard.hash(kind, backend));
        guard.get_hashed(hash, kind, backend)
    })
}
