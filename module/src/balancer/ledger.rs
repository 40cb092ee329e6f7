//! Requests in flight, by worker: what a worker that is killed cannot end itself, another one ends for it.
//!
//! Shape:   one page a process slot, in memory that the master maps before it starts workers: the zone's birth and
//!          the process id, then an entry a request: hash of the backend, place and number of the cell. Only the
//!          page's worker writes entries, until it is dead and another worker has taken the page.
//! Limits:  [`ENTRIES`] requests a worker. What is beyond is counted, but stays counted if the worker is killed.
//! Memory:  pages of the system that were never touched take none.
#![allow(unsafe_code)]

use crate::balancer::peer;
use crate::balancer::peer::Begun;
use crate::system::log;
use crate::zone;
use oxigress_core::policy::limits::{Counts, Slot};
use oxigress_store::{MAX_SLOTS, Reader};
use std::cell::RefCell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use std::time::Duration;

/// Requests of one worker that are remembered.
const ENTRIES: usize = 32_768;

/// The requests of one worker.
#[repr(C)]
struct Page {
    /// 0: nobody's.
    pid: AtomicU32,
    /// One past the last entry that was ever used.
    used: AtomicU32,
    /// Of the zone that the cells are in.
    birth: AtomicU64,
    entries: [Entry; ENTRIES],
    /// As `used`, of `limited`.
    limited_used: AtomicU32,
    /// Of the zone of `ingress_limits` that `limited` is about.
    limits_birth: AtomicU64,
    /// [`Slot`] requests; 0: none.
    limited: [AtomicU64; ENTRIES],
}

/// A request; zeroes are none.
#[repr(C)]
struct Entry {
    backend: AtomicU64,
    /// Place of the endpoint (upper half) and number of its cell.
    cell: AtomicU64,
}

/// Where the pages are; null until the master has mapped them, or if it could not.
static PAGES: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// Maps the pages, once a master. Without memory for them nothing is remembered.
pub fn create() {
    if !PAGES.load(Relaxed).is_null() {
        return;
    }
    match nginx::shared::map_words(MAX_SLOTS * size_of::<Page>() / size_of::<AtomicU64>()) {
        Ok(pages) => PAGES.store(pages.as_ptr().cast::<Page>().cast_mut(), Relaxed),
        Err(error) => log::cycle(
            log::WARN,
            format_args!("ingress: requests of killed workers stay counted: {error}"),
        ),
    }
}

fn page(slot: usize) -> Option<&'static Page> {
    let pages = NonNull::new(PAGES.load(Relaxed))?;
    // SAFETY: mapped for so many pages and never unmapped; a page consists of atomics.
    (slot < MAX_SLOTS).then(|| unsafe { &*pages.as_ptr().add(slot) })
}

/// One worker's page.
pub struct Ledger {
    page: Option<&'static Page>,
    free: RefCell<Vec<u32>>,
    free_limited: RefCell<Vec<u32>>,
}

/// What the entries of a page are ended in.
#[derive(Clone, Copy)]
pub struct Accounts<'a> {
    /// Requests of endpoints.
    pub reader: &'a Reader,
    /// Requests of clients with a limit; `None` without `ingress_limits`.
    pub counts: Option<Counts<'static>>,
}

impl Ledger {
    /// Takes the page of a slot, whose last worker is dead.
    pub fn open(slot: usize, pid: u32, accounts: Accounts<'_>) -> Ledger {
        let page = page(slot).filter(|page| take(page, pid));
        if let Some(page) = page {
            settle(page, accounts);
            page.birth.store(accounts.reader.store().birth(), Relaxed);
            page.limits_birth.store(accounts.counts.map_or(0, |counts| counts.birth()), Relaxed);
            page.used.store(0, Relaxed);
            page.limited_used.store(0, Relaxed);
        }
        Ledger { page, free: RefCell::default(), free_limited: RefCell::default() }
    }

    /// Room to remember a request that a limit of connections counts; 0: there is none.
    pub fn reserve_limited(&self) -> u32 {
        let Some(page) = self.page else { return 0 };
        let free = self.free_limited.try_borrow_mut().ok().and_then(|mut free| free.pop());
        let place = free.unwrap_or_else(|| {
            let used = page.limited_used.load(Relaxed);
            page.limited_used.store((used + 1).min(ENTRIES as u32), Release);
            used
        });
        if (place as usize) < ENTRIES { place + 1 } else { 0 }
    }

    /// Says what is remembered at a place of [`Ledger::reserve_limited`].
    #[inline]
    pub fn write_limited(&self, place: u32, held: Slot) {
        if let Some(entry) = self.limited(place) {
            entry.store(held.to_bits(), Release);
        }
    }

    /// What was remembered there has ended.
    #[inline]
    pub fn clear_limited(&self, place: u32) {
        let Some(entry) = self.limited(place) else { return };
        entry.store(0, Relaxed);
        if let Ok(mut free) = self.free_limited.try_borrow_mut() {
            free.push(place - 1);
        }
    }

    fn limited(&self, place: u32) -> Option<&'static AtomicU64> {
        self.page?.limited.get(place.checked_sub(1)? as usize)
    }

    /// Remembers a request; 0: there is no room.
    #[inline]
    pub fn write(&self, begun: &Begun) -> u32 {
        let Some(page) = self.page else { return 0 };
        let free = self.free.try_borrow_mut().ok().and_then(|mut free| free.pop());
        let place = free.unwrap_or_else(|| {
            let used = page.used.load(Relaxed);
            // The entry stands before it counts.
            page.used.store((used + 1).min(ENTRIES as u32), Release);
            used
        });
        let Some(entry) = page.entries.get(place as usize) else { return 0 };
        entry.cell.store(u64::from(begun.index) << 32 | u64::from(begun.cell), Relaxed);
        entry.backend.store(begun.backend, Release);
        place + 1
    }

    /// What [`Ledger::write`] remembered has ended.
    #[inline]
    pub fn clear(&self, place: u32) {
        let entries = self.page.map(|page| &page.entries[..]).unwrap_or_default();
        let Some(entry) = place.checked_sub(1).and_then(|at| entries.get(at as usize)) else {
            return;
        };
        entry.backend.store(0, Relaxed);
        if let Ok(mut free) = self.free.try_borrow_mut() {
            free.push(place - 1);
        }
    }

    /// Gives the page back.
    pub fn close(&self, accounts: Accounts<'_>) {
        if let Some(page) = self.page {
            settle(page, accounts);
            page.pid.store(0, Release);
        }
    }
}

/// Ends what dead workers left, of any slot.
pub fn sweep(accounts: Accounts<'_>) {
    for page in (0..accounts.reader.store().slots_used()).filter_map(page) {
        let pid = page.pid.load(Acquire);
        // One worker takes the page; if it dies here the rest stays counted.
        let own = std::process::id();
        if pid != 0
            && !zone::is_alive(pid)
            && page.pid.compare_exchange(pid, own, AcqRel, Relaxed).is_ok()
        {
            settle(page, accounts);
            page.pid.store(0, Release);
        }
    }
}

/// Makes a page the worker's own, unless another one is clearing it up and does not get done.
fn take(page: &Page, pid: u32) -> bool {
    for _ in 0..100 {
        let holder = page.pid.load(Acquire);
        let is_free = holder == 0 || holder == pid || !zone::is_alive(holder);
        if is_free && page.pid.compare_exchange(holder, pid, AcqRel, Relaxed).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Ends every request of a page whose worker does nothing any more.
fn settle(page: &Page, Accounts { reader, counts }: Accounts<'_>) {
    let is_same_zone = page.birth.load(Relaxed) == reader.store().birth();
    let guard = reader.read();
    let used = (page.used.load(Acquire) as usize).min(ENTRIES);
    for entry in &page.entries[..used] {
        let backend = entry.backend.swap(0, Acquire);
        if backend != 0 && is_same_zone {
            let cell = entry.cell.load(Relaxed);
            peer::forget(&guard, backend, (cell >> 32) as u32, cell as u32);
        }
    }
    let counts = counts.filter(|counts| page.limits_birth.load(Relaxed) == counts.birth());
    let used = (page.limited_used.load(Acquire) as usize).min(ENTRIES);
    for entry in &page.limited[..used] {
        if let (Some(held), Some(counts)) = (Slot::from_bits(entry.swap(0, Acquire)), counts) {
            counts.connections().end(held);
        }
    }
}
