//! One attempt: an endpoint of the backend, in the newest generation.

use crate::ffi::{Choice, Worker};
use crate::records::TURN;
use oxigress_core::balancer::{self, Identity};
use oxigress_core::record::{EndpointsView, Kind};
use oxigress_store::KeyHash;
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
    let kind = Kind::Endpoints as u8;
    let hash = hash.unwrap_or_else(|| guard.hash(kind, backend));
    let record = guard.get_hashed(hash, kind, backend)?;
    // All workers count together: exact turns, for one add on a line that only this backend uses.
    let turn = record.counters().get(TURN).map_or(0, |turn| turn.fetch_add(1, Relaxed));
    let endpoint = balancer::round_robin(EndpointsView::new(record.value()), turn, tried)?;
    Some(Choice::new(endpoint))
}
