//! The end of an attempt: what its endpoint's statistics learn from it.

use super::choose::StartedAttempt;
use crate::system::memory::now_milliseconds;
use crate::worker::Worker;
use crate::zone::endpoints::{by_hash, statistics_numbered};
use crate::zone::retired;
use oxigress_core::balancer::statistics::{Cell, Failure};
use oxigress_store::Guard;

/// How an attempt at an endpoint ended, as far as the endpoint's statistics are concerned.
#[derive(Clone, Copy, Debug)]
pub struct AttemptOutcome {
    /// The way in which the endpoint failed; `None`: it did not.
    pub failure: Option<Failure>,
    /// Until the end of the answer, or of the attempt.
    pub seconds: f32,
    /// Whether the endpoint answered, whatever the status.
    pub is_answered: bool,
}

/// Ends what [`choose::endpoint`](super::choose::endpoint) began, if the endpoint is still there. Answers for how many milliseconds it is left out
/// because of this.
pub fn end(worker: &Worker, started: &StartedAttempt, outcome: &AttemptOutcome) -> Option<u64> {
    let guard = worker.reader().read();
    let cell = under_way(&guard, started)?;
    if !cell.end(started.cell) {
        return None;
    }
    let now = now_milliseconds();
    observe(started, cell, now, outcome.seconds, outcome.is_answered);
    match outcome.failure {
        None => {
            // A client that did not wait for the answer says nothing about the endpoint.
            if outcome.is_answered {
                cell.succeeded();
            }
            None
        }
        Some(failure) => {
            let record = by_hash(&guard, started.backend);
            let ejection = record.and_then(|record| retired::view(&record).ejection());
            cell.failed(failure, ejection.as_ref(), now)
        }
    }
}

/// What [`choose::endpoint`](super::choose::endpoint) began goes on, and its endpoint is well: it took the connection after so many seconds.
pub fn connected(worker: &Worker, started: &StartedAttempt, seconds: f32) {
    let guard = worker.reader().read();
    if let Some(cell) = under_way(&guard, started) {
        observe(started, cell, now_milliseconds(), seconds, true);
        cell.succeeded();
    }
}

/// The statistics of an attempt that is under way, if its endpoint is still there.
#[inline]
fn under_way<'g>(guard: &'g Guard<'_>, started: &StartedAttempt) -> Option<Cell<'g>> {
    match guard.cell_at(started.place) {
        Some(cell) => Cell::new(cell),
        None => found_again(guard, started),
    }
}

/// Another generation may have the statistics elsewhere.
#[cold]
fn found_again<'g>(guard: &'g Guard<'_>, started: &StartedAttempt) -> Option<Cell<'g>> {
    let record = by_hash(guard, started.backend)?;
    statistics_numbered(&record, started.index, started.cell)
}

#[inline]
fn observe(started: &StartedAttempt, cell: Cell<'_>, now: u64, seconds: f32, is_answered: bool) {
    // A quick refusal is not a quick answer.
    if started.is_by_latency && (is_answered || seconds > cell.latency(now)) {
        cell.observe(now, seconds);
    } else if is_answered {
        cell.observe_now_and_then(now, seconds);
    }
}
