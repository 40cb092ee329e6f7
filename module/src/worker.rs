//! What one worker process has: its reader, its part in the journal, its requests in flight, and what features keep.
#![allow(unsafe_code)]

pub mod parts;
pub mod steps;

use crate::conf::Core;
use crate::system::{log, memory};
use crate::worker::parts::{Features, Has, OfWorker, Parts};
use crate::worker::steps::Journal;
use crate::zone;
use crate::zone::ZoneLock;
use crate::zone::ledger::{self, Accounts, Ledger};
use crate::zone::records;
use nginx::event::{Timer, is_exiting};
use nginx::process;
use nginx::{Cycle, EventLoop, ForProcess};
use oxigress_core::policy::limits::Counts;
use oxigress_core::telemetry::metrics::Buckets;
use oxigress_core::text::hex;
use oxigress_store::{Reader, Role};
use siphasher::sip128::{Hasher128, SipHasher13};
use std::cell::{Cell, OnceCell};
use std::hash::Hasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Ticks from one look for dead workers to the next.
const SWEEP_TICKS: u32 = 5;

/// Largest buffer that is kept for the next text.
const MAX_SCRATCH: usize = 64 * 1_024;

/// What a worker process keeps from its start to its end.
pub struct Worker {
    reader: Reader,
    lock: ZoneLock,
    parts: OfWorker,
    journal: Option<Journal>,
    ledger: Ledger,
    counts: Option<Counts<'static>>,
    random: Cell<u64>,
    ticks: Cell<u32>,
    request_id_key: [u64; 2],
    request_ids: Cell<u64>,
    /// Where a text is put together before it is copied into a request's pool.
    scratch: Cell<Vec<u8>>,
    processes: usize,
    buckets: Option<Buckets>,
    timer: OnceCell<Timer>,
}

/// How many configurations this process has taken over: settings of an earlier one are not a later one's.
static CYCLES: AtomicU64 = AtomicU64::new(0);

/// The number of the running configuration.
pub fn cycle_number() -> u64 {
    CYCLES.load(Relaxed)
}

static WORKER: ForProcess<Worker> = ForProcess::new();

/// This process's worker; `None` without an `ingress_zone`, or before the process has started. It is used during a callback
/// of a request, a handshake or a timer: none of these runs after [`stop`].
#[inline]
pub fn current(here: EventLoop) -> Option<&'static Worker> {
    WORKER.get(here)
}

impl Worker {
    /// What a feature keeps with it.
    #[inline]
    pub fn part<P>(&self) -> &P
    where
        OfWorker: Has<P>,
    {
        self.parts.part()
    }

    /// Its access to the store.
    #[inline]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The lock of the store's writers.
    pub fn lock(&self) -> ZoneLock {
        self.lock
    }

    /// How many workers its nginx is to have.
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// The bounds of the histograms; `None`: requests are not counted.
    #[inline]
    pub fn buckets(&self) -> Option<&Buckets> {
        self.buckets.as_ref()
    }

    /// Its part in the journal; `None` without one.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Its requests in flight, for whoever comes after it.
    #[inline]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What all workers count together about clients; `None` without `ingress_limits`.
    #[inline]
    pub fn counts(&self) -> Option<&Counts<'static>> {
        self.counts.as_ref()
    }

    fn accounts(&self) -> Accounts<'_> {
        Accounts { reader: &self.reader, counts: self.counts }
    }

    /// A number that spreads requests; whoever sees enough of them can foretell it (SplitMix64).
    #[inline]
    pub fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// An empty buffer, to be given back by [`Worker::keep_scratch`].
    pub fn take_scratch(&self) -> Vec<u8> {
        self.scratch.take()
    }

    /// Keeps a buffer for the next text, unless it has grown large.
    pub fn keep_scratch(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= MAX_SCRATCH {
            buffer.clear();
            self.scratch.set(buffer);
        }
    }

    /// A new request id, 32 hex digits: a keyed hash of a counter, which is unique and cannot be guessed, at
    /// a tenth of the cost of the system's random numbers.
    pub fn next_request_id(&self) -> [u8; 32] {
        self.request_ids.set(self.request_ids.get() + 1);
        let [a, b] = self.request_id_key;
        let mut hasher = SipHasher13::new_with_keys(a, b);
        hasher.write_u64(self.request_ids.get());
        hex::digits(hasher.finish128().as_u128().to_be_bytes())
    }

    /// What it does now and then, beside its features: lets go of what is old. `true`: more is to be freed soon.
    pub fn look_after(&self, here: EventLoop) -> bool {
        drop(self.reader.read());
        match &self.journal {
            Some(journal) if is_exiting(here) && self.is_leader() => journal.leave(),
            Some(journal) => journal.post(),
            None => {}
        }
        self.ticks.set(self.ticks.get().wrapping_add(1));
        if self.ticks.get().is_multiple_of(SWEEP_TICKS) {
            ledger::sweep(self.accounts());
            // They may have been reopened.
            Cycle::with_current(here, log::never_block);
        }
        self.reader.has_garbage() && self.reader.store().try_free(&self.lock)
    }

    /// Writes go to its nginx, and not to one that has taken over.
    pub fn is_leader(&self) -> bool {
        self.reader.store().role() == Role::Leader
    }
}

/// Makes this process a worker, which calls `tick` after so many milliseconds, and then after as many as that answers; `None`:
/// there is no `ingress_zone`.
pub fn start(
    cycle: &Cycle,
    milliseconds: usize,
    tick: fn(EventLoop) -> usize,
) -> Option<&'static Worker> {
    let core = cycle.core::<Core>()?;
    let (store, lock) = core.zone(cycle).and_then(zone::store)?;
    let (slot, pid) = (process::slot(), process::id());
    // SAFETY: nginx gives a slot to one living process at a time.
    let reader = unsafe { store.attach(slot, pid) };
    let buckets = core.metrics;
    // The master may have read another configuration since, and given it up.
    records::set_counting(buckets.is_some());
    let counts = zone::limits::counts_of(cycle);
    let here = cycle.event_loop();
    let worker = Worker {
        ledger: Ledger::open(slot, pid, Accounts { reader: &reader, counts }),
        counts,
        reader,
        lock,
        parts: Features::of_worker(cycle, core),
        random: Cell::new(memory::random()),
        ticks: Cell::new(0),
        journal: Journal::of(here, core, store, lock, pid),
        request_id_key: [memory::random(), memory::random()],
        request_ids: Cell::new(0),
        scratch: Cell::default(),
        processes: cycle.worker_processes(),
        buckets,
        timer: OnceCell::new(),
    };
    let worker = WORKER.set(here, worker);
    worker.timer.get_or_init(|| Timer::start(here, milliseconds, move |here| Some(tick(here))));
    Some(worker)
}

/// A configuration was taken over, in the process that read it.
pub fn count_cycle() {
    CYCLES.fetch_add(1, Relaxed);
}

/// Gives the worker's slot back and frees what it has.
///
/// # Safety
/// No reference from [`current`] is in use.
pub unsafe fn stop(here: EventLoop) {
    let Some(worker) = current(here) else { return };
    worker.ledger.close(worker.accounts());
    // SAFETY: the only reference is the one above, which is used no more: the process ends, and nginx calls nothing else of ours.
    drop(unsafe { WORKER.take(here) });
}
