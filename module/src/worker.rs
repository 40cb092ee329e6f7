//! What one worker process has: its reader, its caches, its timer.
#![allow(unsafe_code)]

use crate::access;
use crate::access::buffers;
use crate::access::counts as limits;
use crate::access::password::Checks;
use crate::balancer::destinations;
use crate::balancer::idle::Pools;
use crate::conf::Core;
use crate::endpoint::reserve;
use crate::route::policy;
use crate::spans;
use crate::system::guard;
use crate::system::log;
use crate::tls::bundles;
use crate::tls::certificate;
use crate::tls::client_certificate;
use crate::tls::client_certificate::HostPolicy;
use crate::zone;
use crate::zone::ZoneLock;
use crate::zone::ledger;
use crate::zone::ledger::Accounts;
use crate::zone::ledger::Ledger;
use crate::zone::records;
use crate::zone::steps::Journal;
use nginx::event::{Timer, is_exiting};
use nginx::process::{self, Role as ProcessRole};
use nginx::ssl::pem::KeyPair;
use nginx::{Cycle, EventLoop, ForProcess};
use oxigress_core::balancer::destinations::Denial;
use oxigress_core::cache::Cache;
use oxigress_core::metrics::Buckets;
use oxigress_core::patterns::Patterns;
use oxigress_core::policy::limits::Counts;
use oxigress_core::router::session;
use oxigress_store::{Reader, Role};
use siphasher::sip::SipHasher13;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How often an idle worker says that it holds nothing old: bounds how long replaced records take memory.
const TICK_MSEC: usize = 200;
/// Ticks from one look for dead workers to the next.
const SWEEP_TICKS: u32 = 5;
/// Pause between two rounds of freeing when there is more to free.
const BUSY_TICK_MSEC: usize = 5;

/// Largest buffer that is kept for the next text.
const MAX_SCRATCH: usize = 64 * 1_024;

/// One worker process.
pub struct Worker {
    reader: Reader,
    lock: ZoneLock,
    certificates: RefCell<Cache<KeyPair>>,
    host_policies: RefCell<Cache<Option<Rc<HostPolicy>>>>,
    bundles: RefCell<bundles::Bundles>,
    buffers_of_requests: buffers::Counted,
    journal: Option<Journal>,
    pools: Pools,
    ledger: Ledger,
    counts: Option<Counts<'static>>,
    random: Cell<u64>,
    patterns: Patterns,
    policies: policy::Cache,
    known_passwords: access::Known,
    /// Of the TLS handshakes that are passed through: one that comes again has gone in a circle.
    passed_through: RefCell<HashSet<[u8; session::RANDOM]>>,
    password_checks: Checks,
    /// The last generation that was asked for blocked clients, and its answer.
    blocks: Cell<(u64, bool)>,
    ticks: Cell<u32>,
    request_id_key: [u64; 2],
    request_ids: Cell<u64>,
    /// Where a text is put together before it is copied into a request's pool.
    scratch: Cell<Vec<u8>>,
    processes: usize,
    buckets: Option<Buckets>,
    draining_file: Option<PathBuf>,
    destinations: Option<destinations::Checked>,
    is_draining: Cell<bool>,
    tick: OnceCell<Timer>,
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

    /// What the buffers of its requests take.
    #[inline]
    pub fn buffers_of_requests(&self) -> &buffers::Counted {
        &self.buffers_of_requests
    }

    /// The bounds of the histograms; `None`: requests are not counted.
    #[inline]
    pub fn buckets(&self) -> Option<&Buckets> {
        self.buckets.as_ref()
    }

    /// nginx is about to end: its clients should use their connections no more.
    #[inline]
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Why no connection is made to an endpoint's address; `None`: it is made.
    #[inline]
    pub fn denial(&self, to: SocketAddr) -> Option<Denial> {
        self.destinations.as_ref()?.denial(to)
    }

    /// Its parsed certificates.
    pub fn certificates(&self) -> &RefCell<Cache<KeyPair>> {
        &self.certificates
    }

    /// Its parsed bundles.
    pub fn bundles(&self) -> &RefCell<bundles::Bundles> {
        &self.bundles
    }

    /// Its TLS policies of hosts.
    pub fn host_policies(&self) -> &RefCell<Cache<Option<Rc<HostPolicy>>>> {
        &self.host_policies
    }

    /// Its part in the journal; `None` without one.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Whether the settings of a generation block clients: looked up once a generation.
    #[inline]
    pub fn blocks(&self, generation: u64, look_up: impl FnOnce() -> bool) -> bool {
        let (known, answer) = self.blocks.get();
        if known == generation {
            return answer;
        }
        let answer = look_up();
        self.blocks.set((generation, answer));
        answer
    }

    /// Its idle upstream connections.
    #[inline]
    pub fn pools(&self) -> &Pools {
        &self.pools
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

    /// Compiled patterns of traffic splits.
    pub fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// Policies of rules, compiled.
    #[inline]
    pub fn policies(&self) -> &policy::Cache {
        &self.policies
    }

    /// Notes the handshake of a connection that is to be passed through; false: one with this `random` is already.
    pub fn pass_through(&self, random: [u8; session::RANDOM]) -> bool {
        self.passed_through.try_borrow_mut().is_ok_and(|mut all| all.insert(random))
    }

    /// A connection that was passed through is over.
    pub fn end_passed_through(&self, random: &[u8; session::RANDOM]) {
        if let Ok(mut all) = self.passed_through.try_borrow_mut() {
            all.remove(random);
        }
    }

    /// What was found out about passwords lately.
    pub fn known_passwords(&self) -> &access::Known {
        &self.known_passwords
    }

    /// Passwords that threads look at.
    pub(crate) fn password_checks(&self) -> &Checks {
        &self.password_checks
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
        let mut id = [0; 32];
        for (half, digits) in id.chunks_exact_mut(16).enumerate() {
            let [a, b] = self.request_id_key;
            let mut hasher = SipHasher13::new_with_keys(a, b ^ half as u64);
            hasher.write_u64(self.request_ids.get());
            let number = hasher.finish();
            for (place, digit) in digits.iter_mut().enumerate() {
                *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
            }
        }
        id
    }
}

/// Starts a worker process.
pub fn begin(cycle: &Cycle) {
    process::end_with_master();
    // The cache manager and the cache loader serve nobody: they take no slot of the zone.
    if process::role() == ProcessRole::Helper {
        return;
    }
    // A whole snapshot takes tens of megabytes for a moment.
    process::keep_memory_small();
    guard::report_panics();
    log::never_block(cycle);
    log::escape_lines(cycle);
    #[cfg(feature = "failpoints")]
    crate::system::failpoints::arm();
    start(cycle);
    current(cycle.event_loop()).and_then(Worker::journal).into_iter().for_each(Journal::post);
}

fn start(cycle: &Cycle) {
    let Some(core) = cycle.core::<Core>() else { return };
    let Some((store, lock)) = core.zone(cycle).and_then(zone::store) else { return };
    let (slot, pid) = (process::slot(), process::id());
    // SAFETY: nginx gives a slot to one living process at a time.
    let reader = unsafe { store.attach(slot, pid) };
    let buckets = core.metrics;
    // The master may have read another configuration since, and given it up.
    records::set_counting(buckets.is_some());
    let counts = limits::counts_of(cycle);
    let here = cycle.event_loop();
    let worker = Worker {
        ledger: Ledger::open(slot, pid, Accounts { reader: &reader, counts }),
        counts,
        reader,
        random: Cell::new(crate::system::memory::random()),
        patterns: Patterns::default(),
        blocks: Cell::new((0, false)),
        policies: policy::Cache::default(),
        known_passwords: access::Known::new([
            crate::system::memory::random(),
            crate::system::memory::random(),
        ]),
        passed_through: RefCell::default(),
        password_checks: Checks::default(),
        ticks: Cell::new(0),
        lock,
        certificates: RefCell::new(Cache::new(certificate::MAX_BYTES)),
        host_policies: RefCell::new(Cache::new(client_certificate::MAX_BYTES)),
        bundles: RefCell::default(),
        buffers_of_requests: buffers::Counted::new(core),
        journal: Journal::of(here, core, store, lock, pid),
        pools: Pools::new(here),
        request_id_key: [crate::system::memory::random(), crate::system::memory::random()],
        request_ids: Cell::new(0),
        scratch: Cell::default(),
        processes: cycle.worker_processes(),
        buckets,
        draining_file: core.draining(),
        destinations: destinations::Checked::of(cycle),
        is_draining: Cell::new(false),
        tick: OnceCell::new(),
    };
    let worker = WORKER.set(here, worker);
    worker.tick.get_or_init(|| Timer::start(here, TICK_MSEC, |here| Some(tick(here))));
    reserve::start(cycle);
}

/// What a worker does now and then; answers when it does so next.
fn tick(here: EventLoop) -> usize {
    let Some(worker) = current(here) else { return TICK_MSEC };
    drop(worker.reader.read());
    worker.policies.free_ended();
    if let Some(file) = &worker.draining_file {
        worker.is_draining.set(file.exists());
    }
    let is_leader = worker.reader.store().role() == Role::Leader;
    match &worker.journal {
        Some(journal) if is_exiting(here) && is_leader => journal.leave(),
        Some(journal) => journal.post(),
        None => {}
    }
    nginx::reserve::tick(here, is_leader);
    worker.ticks.set(worker.ticks.get().wrapping_add(1));
    if worker.ticks.get().is_multiple_of(SWEEP_TICKS) {
        ledger::sweep(worker.accounts());
        // They may have been reopened.
        log::never_block(Cycle::current(here));
    }
    let has_garbage = worker.reader.has_garbage() && worker.reader.store().try_free(&worker.lock);
    let has_more = worker.pools.look_after(here, &worker.reader) || has_garbage;
    if has_more { BUSY_TICK_MSEC } else { TICK_MSEC }
}

/// A configuration was taken over, in the process that read it: the master, or the one process of `master_process off`
/// as it starts ([`crate::module::directives::init_core`] refuses another one there). Neither has a worker.
pub fn take_over(cycle: &Cycle) {
    CYCLES.fetch_add(1, Relaxed);
    ledger::create();
    spans::create();
    zone::take_over(cycle);
    process::allow_upgrade();
}

/// Gives the worker's slot back and frees what it has.
///
/// # Safety
/// No reference from [`current`] is in use.
pub unsafe fn stop(here: EventLoop) {
    let Some(worker) = current(here) else { return };
    if let Some(journal) = &worker.journal {
        journal.finish();
    }
    worker.pools.close_all();
    worker.ledger.close(worker.accounts());
    nginx::reserve::stop(here);
    // SAFETY: the caller promises it, and the one above is not used any more.
    drop(unsafe { WORKER.take(here) });
}
