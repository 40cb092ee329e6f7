//! One attempt: an endpoint of the backend, in the newest generation.

use crate::ffi::{Choice, Worker};
use crate::records::TURN;
use oxigress_core::balancer::{self, Identity};
use oxigress_core::record::{EndpointsView, Kind};
use oxigress_store::{Guard, KeyHash, Record};
use std::sync::atomic::Ordering::Relaxed;

/// Chooses an endpoint that `tried` does not hold; `None` when none is left.
///
/// Looks the backend up anew, so that an attempt never goes to an endpoint that has left meanwhile.
#[inline]
pub fn choose(
    worker: &Worker,
    backend: &[u8],
    hash: Option<KeyHash>,
    tried: &[Identity],
) -> Option<Choice> {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, hash)?;
    // All workers count together: exact turns, for one add on a line that only this backend uses.
    let turn = record.counters().get(TURN).map_or(0, |turn| turn.fetch_add(1, Relaxed));
    let view = EndpointsView::new(record.value());
    let endpoint = balancer::round_robin(view, turn, tried)?;
    Some(Choice::new(endpoint, balancer::untried(view, tried)))
}

/// How many endpoints of the backend `tried` does not hold, now.
pub fn untried(
    worker: &Worker,
    backend: &[u8],
    hash: Option<KeyHash>,
    tried: &[Identity],
) -> usize {
    let guard = worker.reader().read();
    let record = endpoints(&guard, backend, hash);
    record.map_or(0, |record| balancer::untried(EndpointsView::new(record.value()), tried))
}

#[inline]
fn endpoints<'g>(
    guard: &'g Guard<'_>,
    backend: &[u8],
    hash: Option<KeyHash>,
) -> Option<Record<'g>> {
    let kind = Kind::Endpoints as u8;
    let hash = hash.unwrap_or_else(|| guard.hash(kind, backend));
    guard.get_hashed(hash, kind, backend)
}
