//! Requests in flight, by worker: what a worker that is killed cannot end itself, another one ends for it.
//!
//! Shape:   one page a process slot, in memory that the master maps before it starts workers: the zone's birth and
//!          the process id, then an entry a request: hash of the backend, place and number of the cell. Only the
//!          page's worker writes entries, until it is dead and another worker has taken the page.
//! Limits:  [`ENTRIES`] requests a worker. What is beyond is counted, but stays counted if the worker is killed.
//! Memory:  pages of the system that were never touched take none.

use crate::system::log;
use crate::zone;
use crate::zone::endpoints;
use nginx::shared::map_words;
use oxigress_core::policy::limits::{Counts, Slot};
use oxigress_store::{MAX_SLOTS, Reader};
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

/// Requests of one worker that are remembered.
const ENTRIES: usize = 32_768;

/// The requests of one worker, as words in the memory that all share.
#[derive(Clone, Copy)]
struct Page {
    /// 0: nobody's.
    pid: &'static AtomicU64,
    /// One past the last entry that was ever used.
    used: &'static AtomicU64,
    /// Of the zone that the cells are in.
    birth: &'static AtomicU64,
    /// As `used`, of `limited`.
    limited_used: &'static AtomicU64,
    /// Of the zone of `ingress_limits` that `limited` is about.
    limits_birth: &'static AtomicU64,
    entries: &'static [[AtomicU64; 2]],
    /// [`Slot`] requests; 0: none.
    limited: &'static [AtomicU64],
}

/// The words in front of a page's entries.
const HEAD_WORDS: usize = 8;
const PAGE_WORDS: usize = HEAD_WORDS + 3 * ENTRIES;

/// Where the pages are; none until the master has mapped them, or if it could not.
static PAGES: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// Maps the pages, once a master. Without memory for them nothing is remembered.
pub fn create() {
    if PAGES.get().is_some() {
        return;
    }
    match map_words(MAX_SLOTS * PAGE_WORDS) {
        Ok(words) => {
            // One thread reads configurations.
            let _ = PAGES.set(words);
        }
        Err(error) => log::cycle(
            log::WARN,
            format_args!(
                "ingress: no memory for the ledger of requests in flight: {error}; requests of killed workers stay counted"
            ),
        ),
    }
}

fn page(slot: usize) -> Option<Page> {
    let words = PAGES.get()?.get(slot * PAGE_WORDS..)?.get(..PAGE_WORDS)?;
    let ([pid, used, birth, limited_used, limits_birth, _, _, _], rest) =
        words.split_first_chunk::<HEAD_WORDS>()?;
    let (entries, limited) = rest.split_at_checked(2 * ENTRIES)?;
    let (entries, _) = entries.as_chunks::<2>();
    Some(Page { pid, used, birth, limited_used, limits_birth, entries, limited })
}

/// One worker's page.
pub struct Ledger {
    page: Option<Page>,
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
            settle(&page, accounts);
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
        let place = reserve(page.limited_used, &self.free_limited);
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
        release(&self.free_limited, place - 1);
    }

    fn limited(&self, place: u32) -> Option<&'static AtomicU64> {
        self.page?.limited.get(place.checked_sub(1)? as usize)
    }

    /// Remembers a request that is in flight at a backend's endpoint: the hash of the backend, the endpoint's place and the
    /// number of its cell. 0: there is no room.
    #[inline]
    pub fn write(&self, backend: u64, index: u32, number: u32) -> u32 {
        let Some(page) = self.page else { return 0 };
        let place = reserve(page.used, &self.free);
        let Some([key, cell]) = page.entries.get(place as usize) else { return 0 };
        cell.store(u64::from(index) << 32 | u64::from(number), Relaxed);
        key.store(backend, Release);
        place + 1
    }

    /// What [`Ledger::write`] remembered has ended.
    #[inline]
    pub fn clear(&self, place: u32) {
        let entries = self.page.map(|page| page.entries).unwrap_or_default();
        let Some([backend, _]) = place.checked_sub(1).and_then(|at| entries.get(at as usize))
        else {
            return;
        };
        backend.store(0, Relaxed);
        release(&self.free, place - 1);
    }

    /// Gives the page back.
    pub fn close(&self, accounts: Accounts<'_>) {
        if let Some(page) = self.page {
            settle(&page, accounts);
            page.pid.store(0, Release);
        }
    }
}

/// A free place of a page, else the one after the last that was ever used.
#[inline]
fn reserve(used: &AtomicU64, free: &RefCell<Vec<u32>>) -> u32 {
    let place = free.try_borrow_mut().ok().and_then(|mut free| free.pop());
    place.unwrap_or_else(|| {
        let before = used.load(Relaxed);
        // The place counts before its entry is written: an empty entry is passed over.
        used.store((before + 1).min(ENTRIES as u64), Release);
        before as u32
    })
}

#[inline]
fn release(free: &RefCell<Vec<u32>>, place: u32) {
    if let Ok(mut free) = free.try_borrow_mut() {
        free.push(place);
    }
}

/// Ends what dead workers left, of any slot.
pub fn sweep(accounts: Accounts<'_>) {
    for page in (0..accounts.reader.store().slots_used()).filter_map(page) {
        let pid = page.pid.load(Acquire);
        // One worker takes the page; if it dies here the rest stays counted.
        let own = u64::from(std::process::id());
        if pid != 0
            && !zone::is_alive(pid as u32)
            && page.pid.compare_exchange(pid, own, AcqRel, Relaxed).is_ok()
        {
            settle(&page, accounts);
            page.pid.store(0, Release);
        }
    }
}

/// Makes a page the worker's own, unless another one is clearing it up and does not get done.
fn take(page: &Page, pid: u32) -> bool {
    for _ in 0..100 {
        let holder = page.pid.load(Acquire);
        let own = u64::from(pid);
        let is_free = holder == 0 || holder == own || !zone::is_alive(holder as u32);
        if is_free && page.pid.compare_exchange(holder, own, AcqRel, Relaxed).is_ok() {
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
    for [backend, cell] in &page.entries[..used] {
        let backend = backend.swap(0, Acquire);
        if backend != 0 && is_same_zone {
            let cell = cell.load(Relaxed);
            endpoints::forget(&guard, backend, (cell >> 32) as u32, cell as u32);
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
