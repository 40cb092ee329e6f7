//! The life of a process that runs nginx: what begins with it, what is done now and then, and what ends with it.

use crate::configuration::reserve;
use crate::headers::draining::Draining;
use crate::request::policies;
use crate::request::spans;
use crate::system::{guard, log};
use crate::worker;
use crate::worker::steps::Journal;
use crate::zone;
use crate::zone::ledger;
use nginx::process::{self, Role};
use nginx::{Cycle, EventLoop};

/// How often an idle worker says that it holds nothing old: bounds how long replaced records take memory.
const TICK_MSEC: usize = 200;
/// Pause between two rounds of freeing when there is more to free.
const BUSY_TICK_MSEC: usize = 5;

/// A configuration was taken over, in the process that read it: the master, or the one process of `master_process off`
/// as it starts ([`super::directives::init_core`] refuses another one there). Neither has a worker.
pub fn take_over(cycle: &Cycle) {
    worker::count_cycle();
    ledger::create();
    spans::create();
    zone::take_over(cycle);
    process::allow_upgrade(cycle.event_loop());
}

/// Starts a worker process.
pub fn begin(cycle: &Cycle) {
    process::end_with_master();
    // The cache manager and the cache loader serve nobody: they take no slot of the zone.
    if process::role() == Role::Helper {
        return;
    }
    // A whole snapshot takes tens of megabytes for a moment.
    process::keep_memory_small();
    guard::report_panics();
    log::never_block(cycle);
    log::escape_lines(cycle);
    #[cfg(feature = "failpoints")]
    crate::system::failpoints::arm();
    let Some(worker) = worker::start(cycle, TICK_MSEC, tick) else { return };
    reserve::start(cycle);
    worker.journal().into_iter().for_each(Journal::post);
}

/// What a worker does now and then; answers when it does so next.
fn tick(here: EventLoop) -> usize {
    let Some(worker) = worker::current(here) else { return TICK_MSEC };
    worker.part::<policies::Cache>().free_ended();
    worker.part::<Draining>().look();
    nginx::reserve::tick(here, worker.is_leader());
    let has_garbage = worker.look_after(here);
    let has_more = worker.pools().look_after(here, worker.reader()) || has_garbage;
    if has_more { BUSY_TICK_MSEC } else { TICK_MSEC }
}

/// A worker ends, after the last callback of a request.
pub fn end(here: EventLoop) {
    let Some(worker) = worker::current(here) else { return };
    worker.journal().into_iter().for_each(Journal::finish);
    worker.pools().close_all();
    nginx::reserve::stop(here);
}
