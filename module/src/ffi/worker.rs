//! What one worker process has: its reader, its caches, its timer.

use super::journal::Journal;
use super::ledger::{self, Accounts, Ledger};
use super::password::Checks;
use super::pool::Pools;
use super::tls::Parsed;
use super::zone::{self, ZoneLock};
use super::{destinations, directives, draining, guard, limits, log, reserve};
use crate::client_certificate::HostPolicy;
use crate::{access, bundles, certificate, client_certificate, policy, records};
use nginx::sys::{
    NGX_OK, NGX_PROCESS_HELPER, NGX_PROCESS_WORKER, ngx_add_timer, ngx_connection_t,
    ngx_core_conf_t, ngx_core_module, ngx_cycle, ngx_cycle_t, ngx_event_t, ngx_exiting,
    ngx_inherited, ngx_int_t, ngx_msec_t, ngx_parent, ngx_pid, ngx_pid_t, ngx_process,
    ngx_process_slot,
};
use oxigress_core::balancer::destinations::Denial;
use oxigress_core::cache::Cache;
use oxigress_core::metrics::Buckets;
use oxigress_core::patterns::Patterns;
use oxigress_core::policy::limits::Counts;
use oxigress_core::router::session;
use oxigress_store::{Reader, Role};
use siphasher::sip::SipHasher13;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::HashSet;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How often an idle worker says that it holds nothing old: bounds how long replaced records take memory.
const TICK_MSEC: ngx_msec_t = 200;
/// Ticks from one look for dead workers to the next.
const SWEEP_TICKS: u32 = 5;
/// Pause between two rounds of freeing when there is more to free.
const BUSY_TICK_MSEC: ngx_msec_t = 5;

/// One worker process.
pub struct Worker {
    reader: Reader,
    lock: ZoneLock,
    certificates: RefCell<Cache<Parsed>>,
    host_policies: RefCell<Cache<Option<Rc<HostPolicy>>>>,
    bundles: RefCell<Cache<bundles::Made>>,
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
    processes: usize,
    buckets: Option<Buckets>,
    draining_file: Option<PathBuf>,
    destinations: Option<destinations::Checked>,
    is_draining: Cell<bool>,
    tick: UnsafeCell<ngx_event_t>,
    /// nginx's debug log wants every event to belong to a connection.
    tick_connection: UnsafeCell<ngx_connection_t>,
}

struct Slot(UnsafeCell<*mut Worker>);

// SAFETY: set in init_process and read in callbacks, all on the event loop's thread.
unsafe impl Sync for Slot {}

/// How many configurations this process has taken over: settings of an earlier one are not a later one's.
static CYCLES: AtomicU64 = AtomicU64::new(0);

/// The number of the running configuration.
pub fn cycle_number() -> u64 {
    CYCLES.load(Relaxed)
}

static WORKER: Slot = Slot(UnsafeCell::new(null_mut()));

/// This process's worker; `None` without an `ingress_zone`, or before the process has started.
///
/// # Safety
/// Called on the event loop's thread, in a callback of a request, a handshake or a timer: none of these
/// runs after [`stop`].
#[inline]
pub unsafe fn current() -> Option<&'static Worker> {
    // SAFETY: only that thread reads and writes it; null, or alive until `stop`.
    unsafe { (*WORKER.0.get()).as_ref() }
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
    pub fn certificates(&self) -> &RefCell<Cache<Parsed>> {
        &self.certificates
    }

    /// Its parsed bundles.
    pub fn bundles(&self) -> &RefCell<Cache<bundles::Made>> {
        &self.bundles
    }

    /// Its TLS policies of hosts.
    pub fn host_policies(&self) -> &RefCell<Cache<Option<Rc<HostPolicy>>>> {
        &self.host_policies
    }

    /// Its part in the journal; `None` without one.
    pub(super) fn journal(&self) -> Option<&Journal> {
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
    pub(super) fn ledger(&self) -> &Ledger {
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
    pub(super) fn password_checks(&self) -> &Checks {
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

/// nginx's callback at the start of a worker process. Never fails: nginx would not start the worker again.
pub unsafe extern "C" fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard::contain("init_process", (), || {
        die_with_master();
        // The cache manager and the cache loader serve nobody: they take no slot of the zone.
        // SAFETY: a number that nginx sets before it forks.
        if unsafe { ngx_process } == NGX_PROCESS_HELPER as usize {
            return;
        }
        keep_memory_small();
        guard::report_panics();
        // SAFETY: nginx gives the cycle the process runs, on the event loop's thread.
        unsafe { log::never_block(cycle) };
        #[cfg(feature = "failpoints")]
        super::failpoints::arm();
        // SAFETY: nginx gives the cycle the process runs.
        unsafe { start(cycle) };
        // SAFETY: on the event loop's thread.
        unsafe { current() }.and_then(Worker::journal).into_iter().for_each(Journal::post);
    });
    NGX_OK as ngx_int_t
}

/// # Safety
/// `cycle` is the running cycle.
unsafe fn start(cycle: *mut ngx_cycle_t) {
    // SAFETY: vouched for by the caller.
    let zone = unsafe { directives::zone_of(cycle) };
    // SAFETY: the zone is of this cycle.
    let Some((store, lock)) = (unsafe { zone.as_mut().and_then(|zone| zone::store(zone)) }) else {
        return;
    };
    // SAFETY: plain numbers that nginx sets before it forks.
    let (slot, pid) = unsafe { (ngx_process_slot, ngx_pid) };
    let slot = usize::try_from(slot).unwrap_or(0);
    // SAFETY: nginx gives a slot to one living process at a time.
    let reader = unsafe { store.attach(slot, pid as u32) };
    // SAFETY: vouched for by the caller.
    let buckets = unsafe { directives::metrics_of(cycle) };
    // The master may have read another configuration since, and given it up.
    records::set_counting(buckets.is_some());
    // SAFETY: vouched for by the caller; its zones stay mapped until the worker is stopped.
    let counts = unsafe { limits::counts_of(cycle) };
    let worker = Box::leak(Box::new(Worker {
        ledger: Ledger::open(slot, pid as u32, Accounts { reader: &reader, counts }),
        counts,
        reader,
        random: Cell::new(super::random()),
        patterns: Patterns::default(),
        blocks: Cell::new((0, false)),
        policies: policy::Cache::default(),
        known_passwords: access::Known::new([super::random(), super::random()]),
        passed_through: RefCell::default(),
        password_checks: Checks::default(),
        ticks: Cell::new(0),
        lock,
        certificates: RefCell::new(Cache::new(certificate::MAX_BYTES)),
        host_policies: RefCell::new(Cache::new(client_certificate::MAX_BYTES)),
        bundles: RefCell::new(Cache::new(bundles::MAX_BYTES)),
        // SAFETY: the zone is of this cycle.
        journal: unsafe { Journal::of(cycle, store, lock, pid as u32) },
        pools: Pools::default(),
        request_id_key: [super::random(), super::random()],
        request_ids: Cell::new(0),
        // SAFETY: vouched for by the caller.
        processes: unsafe { processes(cycle) },
        buckets,
        // SAFETY: vouched for by the caller.
        draining_file: unsafe { draining::file_of(cycle) },
        // SAFETY: vouched for by the caller.
        destinations: unsafe { destinations::Checked::of(cycle) },
        is_draining: Cell::new(false),
        // SAFETY: a C struct of numbers and pointers.
        tick: UnsafeCell::new(unsafe { std::mem::zeroed() }),
        // SAFETY: as above.
        tick_connection: UnsafeCell::new(unsafe { std::mem::zeroed() }),
    }));
    // SAFETY: leaked, so it lives as long as the process; this is its only thread so far.
    unsafe {
        (*worker.tick_connection.get()).fd = -1;
        let tick = worker.tick.get();
        (*tick).handler = Some(tick_handler);
        (*tick).data = worker.tick_connection.get().cast();
        (*tick).log = (*cycle).log;
        // A worker that shuts down does not wait for it.
        (*tick).set_cancelable(1);
        ngx_add_timer(tick, TICK_MSEC);
        *WORKER.0.get() = worker;
        reserve::start(cycle);
    }
}

/// `worker_processes`, as far as there are any.
///
/// # Safety
/// `cycle` is the running cycle.
unsafe fn processes(cycle: *mut ngx_cycle_t) -> usize {
    // SAFETY: nginx makes the core module's configuration before it starts a process.
    let core = unsafe {
        let all = (*cycle).conf_ctx;
        (*all.add(ngx_core_module.index)).cast::<ngx_core_conf_t>().as_ref()
    };
    match core {
        Some(core) if core.master != 0 => usize::try_from(core.worker_processes).unwrap_or(0),
        _ => 1,
    }
}

/// A whole snapshot takes tens of megabytes for a moment. glibc would answer that by keeping such blocks on the
/// heap from then on, and by an arena for each thread of the pool.
fn keep_memory_small() {
    // SAFETY: sets two numbers of the allocator; the pool's threads have allocated nothing yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1024 * 1024);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// A worker whose master was killed would keep the listening sockets and answer for ever with what it has.
fn die_with_master() {
    // SAFETY: plain numbers that nginx sets before it forks.
    let (process, master) = unsafe { (ngx_process, ngx_parent) };
    if ![NGX_PROCESS_WORKER, NGX_PROCESS_HELPER].contains(&(process as u32)) {
        return;
    }
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    // SAFETY: asks. The master may have died before the attribute was set.
    if unsafe { libc::getppid() } != master {
        // SAFETY: ends this process as the signal would have.
        unsafe { libc::raise(libc::SIGTERM) };
    }
}

unsafe extern "C" fn tick_handler(event: *mut ngx_event_t) {
    let pause = guard::contain("tick", TICK_MSEC, || {
        // SAFETY: a timer's callback runs on the event loop's thread.
        let Some(worker) = (unsafe { current() }) else { return TICK_MSEC };
        drop(worker.reader.read());
        worker.policies.free_ended();
        if let Some(file) = &worker.draining_file {
            worker.is_draining.set(file.exists());
        }
        // SAFETY: a number that nginx sets on this thread.
        let is_exiting = unsafe { ngx_exiting } != 0;
        let is_leader = worker.reader.store().role() == Role::Leader;
        match &worker.journal {
            Some(journal) if is_exiting && is_leader => journal.leave(),
            Some(journal) => journal.post(),
            None => {}
        }
        // SAFETY: as above.
        unsafe { reserve::tick(is_leader) };
        worker.ticks.set(worker.ticks.get().wrapping_add(1));
        if worker.ticks.get().is_multiple_of(SWEEP_TICKS) {
            ledger::sweep(worker.accounts());
            // They may have been reopened.
            // SAFETY: the worker runs one cycle, on this thread.
            unsafe { log::never_block(ngx_cycle) };
        }
        let has_garbage =
            worker.reader.has_garbage() && worker.reader.store().try_free(&worker.lock);
        let has_more = worker.pools.look_after(&worker.reader) || has_garbage;
        if has_more { BUSY_TICK_MSEC } else { TICK_MSEC }
    });
    // SAFETY: the event is the worker's own.
    unsafe { ngx_add_timer(event, pause) };
}

/// nginx ignores USR2 while the process that started it lives, which it takes for the old binary of an
/// upgrade. With `daemon off` that is the supervisor, so the signal would never be heard. A new binary
/// (`ngx_inherited`) keeps the rule: its parent is the old one.
fn allow_upgrade() {
    const NOBODY: ngx_pid_t = -1;
    // SAFETY: plain numbers of this process, read by nginx's signal handler on this thread; no worker runs on
    // the value, since nginx sets it anew in each process that it forks.
    unsafe {
        if ngx_inherited == 0 {
            ngx_parent = NOBODY;
        }
    }
}

/// nginx's callback when a configuration was taken over, in the process that read it: the master, which has
/// no worker, or the one process of `master_process off`, which goes on with the new zone,
/// and without a journal: nginx starts the threads once a process.
pub unsafe extern "C" fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    guard::contain("init_module", (), || {
        CYCLES.fetch_add(1, Relaxed);
        ledger::create();
        // SAFETY: nginx gives the cycle it goes on with.
        unsafe { zone::take_over(cycle) };
        allow_upgrade();
        // SAFETY: on the event loop, in no callback of a request.
        let Some(worker) = (unsafe { current() }) else { return };
        // SAFETY: the cycle is complete.
        let parts =
            unsafe { directives::zone_of(cycle).as_mut().and_then(|zone| zone::store(zone)) };
        worker.journal().into_iter().for_each(Journal::end);
        // Requests that are under way know this worker, so it stays where its zone does.
        if parts.is_none_or(|(_, lock)| lock != worker.lock) {
            // SAFETY: the old zone is still mapped, and `cycle` is the one that runs from now on.
            unsafe {
                stop();
                start(cycle);
            }
            // SAFETY: as above.
            unsafe { current() }.and_then(Worker::journal).into_iter().for_each(Journal::end);
        }
    });
    NGX_OK as ngx_int_t
}

/// nginx's callback at the end of a worker process.
pub unsafe extern "C" fn exit_process(_: *mut ngx_cycle_t) {
    // SAFETY: no callback of a request follows; nginx's thread pools, which come first, have stopped.
    guard::contain("exit_process", (), || unsafe { stop() });
}

/// Milliseconds since 1970, as this turn of the event loop read them.
pub fn wall_clock_milliseconds() -> u64 {
    // SAFETY: nginx keeps this pointer at a time that it does not change any more.
    unsafe {
        (*nginx::sys::ngx_cached_time).sec as u64 * 1_000
            + (*nginx::sys::ngx_cached_time).msec as u64
    }
}

/// Gives the worker's slot back and frees what it has.
///
/// # Safety
/// On the event loop's thread, and no reference from [`current`] is in use.
unsafe fn stop() {
    // SAFETY: vouched for by the caller.
    let worker = unsafe { std::mem::replace(&mut *WORKER.0.get(), null_mut()) };
    if worker.is_null() {
        return;
    }
    // SAFETY: alive until it is dropped below.
    if let Some(journal) = unsafe { &(*worker).journal } {
        journal.finish();
    }
    // SAFETY: `start` leaked it from a box.
    unsafe { (*worker).pools.close_all() };
    // SAFETY: as above.
    unsafe { (*worker).ledger.close((*worker).accounts()) };
    // SAFETY: `start` leaked it from a box; its timer is taken out before it goes.
    unsafe {
        reserve::stop();
        let tick = (*worker).tick.get();
        if (*tick).timer_set() != 0 {
            nginx::sys::ngx_del_timer(tick);
        }
        drop(Box::from_raw(worker));
    }
}
