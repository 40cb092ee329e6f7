//! The shared memory zone: made by the master, inherited by every worker, kept by a reload.
#![allow(unsafe_code)]

pub mod counters;
pub mod endpoints;
pub mod journal;
pub mod ledger;
pub mod limits;
pub mod records;
pub mod retired;

use crate::conf::Core;
use crate::conf::CoreConf;
use crate::system::log;
use crate::system::memory::monotonic_nanoseconds;
use crate::system::memory::random;
use nginx::Cycle;
use nginx::zone::{Block, BlockZone, Tag, Zone, ZoneHeld, ZoneMutex, is_test};
use oxigress_store::{Store, Transaction, WriterLock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::time::{Duration, Instant};

/// The zone of `ingress_zone`.
pub struct StoreZone;

impl BlockZone for StoreZone {
    type Module = Core;

    const NAME: &'static str = "ingress_zone";

    fn tag() -> &'static Tag {
        static TAG: Tag = Tag::new();
        &TAG
    }

    fn create(zone: &Zone, main: &CoreConf, block: Block) -> Result<(), String> {
        records::set_counting(main.metrics.is_some());
        // The zone holds private keys.
        block.hide_from_core_files();
        let (secret, key) = ([random(), random()], random());
        // SAFETY: page-aligned, mapped as long as the zone, and nobody else's.
        unsafe { Store::create(block.start(), block.bytes(), secret, key, is_alive) }
            .map_err(|error| error.to_string())?;
        fill(zone, main)
    }

    fn adopt(_: &Zone, main: &CoreConf, block: Block) -> Result<(), String> {
        records::set_counting(main.metrics.is_some());
        open(block).map(|_| ())
    }
}

/// Fills a zone that was just made: from the zone that it replaces, else from the journal.
fn fill(zone: &Zone, main: &CoreConf) -> Result<(), String> {
    if is_test() {
        return Ok(());
    }
    let Some((store, lock)) = store(zone) else { return Ok(()) };
    store.set_birth(monotonic_nanoseconds());
    if let Some((old, old_lock)) = store_of_last(zone) {
        // Refused, so that the last cycle goes on: nothing that is served may be lost.
        return journal::copy((&old, &old_lock), (&store, &lock), false)
            .map_err(|error| format!("records of the previous zone do not fit: {error}; the new configuration is refused: make ingress_zone larger"));
    }
    if let Some(path) = main.journal() {
        let start = journal::load(&store, &lock, &path);
        if let Some(warning) = start.warning {
            log::cycle(log::WARN, format_args!("ingress_journal: {warning}"));
        }
    }
    Ok(())
}

/// nginx has taken a configuration over: what was written to the zone that was replaced, after it was copied, is
/// copied too, and it takes no more writes.
pub fn take_over(cycle: &Cycle) {
    let Some(zone) = cycle.core::<Core>().and_then(|core| core.zone(cycle)) else { return };
    let Some((store, lock)) = self::store(zone) else { return };
    // The next cycle may keep it: nginx would unmap it all the same.
    zone.allow_reuse();
    let last = cycle.retire_last(zone, self::store).flatten();
    let Some((old, old_lock)) = last else { return };
    if let Err(error) = journal::copy((&old, &old_lock), (&store, &lock), true) {
        let line = format_args!(
            "ingress_zone: writes to the old zone during the reload were lost: {error}"
        );
        log::cycle(log::ALERT, line);
    }
}

/// The store that the last cycle serves from, if it is another one. Called before nginx goes on with the next cycle.
fn store_of_last(zone: &Zone) -> Option<(Store, ZoneLock)> {
    Cycle::with_current(zone.event_loop(), |last| {
        last.zones().find(|old| old.is_other_of(zone)).and_then(store)
    })
}

fn open(block: Block) -> Result<Store, String> {
    // SAFETY: the block that `create` was given, mapped as long as the zone.
    unsafe { Store::open(block.start(), block.bytes(), is_alive) }
        .map_err(|error| error.to_string())
}

/// The store in a zone and the lock of its writers; `None` if the zone was never initialised. Both are used while the
/// zone is mapped: until its cycle has been replaced.
pub fn store(zone: &Zone) -> Option<(Store, ZoneLock)> {
    let store = open(zone.block::<StoreZone>()?).ok()?;
    // SAFETY: the lock lies in the zone beside the store; both are given out for the cycle whose zone it is, which stays mapped
    // as long.
    Some((store, ZoneLock(unsafe { zone.mutex() }?)))
}

/// The lock of the store's writers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ZoneLock(ZoneMutex);

// SAFETY: nginx's mutex excludes processes, and two threads of one process, since a taken lock is never 0. It is taken and given
// back by compare-and-swap, a full barrier: the next holder sees what was written.
unsafe impl WriterLock for ZoneLock {
    type Held = ZoneHeld;

    fn try_lock(&self) -> Option<ZoneHeld> {
        self.0.try_lock()
    }
}

/// How long a writer waits for another writer: the event loop not at all, a thread for a moment.
#[derive(Clone, Copy)]
pub struct Patience(Duration);

impl Patience {
    /// The event loop waits for nothing.
    pub const NONE: Patience = Patience(Duration::ZERO);
    /// On a thread: longer than any write takes, shorter than a client waits.
    pub const THREAD: Patience = Patience(Duration::from_secs(2));

    /// Whoever began to wait then may go on.
    pub fn is_left(self, start: Instant) -> bool {
        start.elapsed() < self.0
    }

    /// There is any at all.
    pub fn is_any(self) -> bool {
        self.0 > Duration::ZERO
    }

    /// Begins a write as soon as no other is at work; `None` when patience runs out.
    pub fn write<'l>(self, store: &Store, lock: &'l ZoneLock) -> Option<Transaction<'l, ZoneLock>> {
        let start = Instant::now();
        loop {
            if let Some(transaction) = store.try_write(lock) {
                return Some(transaction);
            }
            if !self.is_left(start) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a process runs.
pub fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM))
}
