//! What loom tries: readers and writers in every order.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::memory::Backing;
use crate::reader::{Changed, Pin};
use crate::{FAILPOINTS, Reader, Store, Transaction, WriterLock, no_cells, set_hook};
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Room for a handful of records.
const BYTES: usize = 12 << 10;
const KEY: &[u8] = b"a";

struct Site {
    store: Store,
    lock: Lock,
    backing: *mut Backing,
}

// SAFETY: loom runs the threads of a model on one thread of the system.
unsafe impl Send for Site {}
// SAFETY: of the model's threads, which are one thread of the system, only one runs at a time.
unsafe impl Sync for Site {}

struct Lock(Arc<AtomicBool>);

struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        // A process that was killed gives nothing back: the master frees the lock, see `Site::killed`.
        if !std::thread::panicking() {
            self.0.store(false, Release);
        }
    }
}

// SAFETY: an atomic exchange; acquire and release order one holder before the next.
unsafe impl WriterLock for Lock {
    type Held = Held;

    fn try_lock(&self) -> Option<Held> {
        let is_taken = self.0.compare_exchange(false, true, Acquire, Acquire).is_ok();
        is_taken.then(|| Held(Arc::clone(&self.0)))
    }
}

loom::lazy_static! {
    static ref IS_DEAD: AtomicBool = AtomicBool::new(false);
}

/// The pid of the worker that dies in a model.
const MORTAL: u32 = 2;

fn is_alive(pid: u32) -> bool {
    pid != MORTAL || !IS_DEAD.load(Acquire)
}

impl Site {
    fn new() -> Arc<Site> {
        let backing = Box::into_raw(Box::new(Backing::new(BYTES)));
        let start = NonNull::new(backing.cast()).unwrap();
        // SAFETY: it lives until the site is dropped, which every thread has a share of.
        let store = unsafe { Store::create(start, BYTES, [7, 11], 1, is_alive) }.unwrap();
        let site = Site { store, lock: Lock(Arc::new(AtomicBool::new(false))), backing };
        site.put(1);
        Arc::new(site)
    }

    fn attach(&self, slot: usize, pid: u32) -> Reader {
        // SAFETY: each worker of a model has a slot of its own, or the slot of one that is dead.
        unsafe { self.store.attach(slot, pid) }
    }

    /// Writes two records whose values name the write. Returns whether the lock was free.
    fn put(&self, version: u8) -> bool {
        let Some(mut transaction) = self.store.try_write(&self.lock) else { return false };
        put(&mut transaction, version);
        transaction.commit().unwrap();
        true
    }

    /// Runs a writer that may be killed at the armed failpoint. The master frees the lock of the dead.
    fn put_or_die(&self, version: u8) {
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.put(version)));
        if let Err(panic) = end {
            if !panic.is::<Kill>() {
                std::panic::resume_unwind(panic);
            }
            self.lock.0.store(false, Release);
        }
    }

    /// The free bytes when no reader is left.
    fn free_bytes(&self) -> usize {
        while self.store.try_free(&self.lock) {}
        self.store.space().free_bytes
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // SAFETY: made by `new`; the last share of the site is gone.
        drop(unsafe { Box::from_raw(self.backing) });
    }
}

fn put(transaction: &mut Transaction<'_, Lock>, version: u8) {
    // Of another length each time, so that blocks change their places.
    let value = [version; 40];
    let value = &value[..8 + 8 * usize::from(version % 4)];
    transaction.upsert(1, KEY, value, no_cells).unwrap();
    transaction.upsert(1, b"b", value, no_cells).unwrap();
}

/// Reads both records; they must be whole and of one write. Answers which.
fn look(reader: &Reader) -> u8 {
    step();
    let guard = reader.read();
    step();
    let first = guard.get(1, KEY).unwrap();
    let version = first.value()[0];
    for record in [first, guard.get(1, b"b").unwrap()] {
        assert_eq!(record.value().len(), 8 + 8 * usize::from(version % 4));
        assert!(record.value().iter().all(|byte| *byte == version), "a mixed record");
    }
    step();
    // Whatever happened meanwhile, it is still there.
    assert_eq!(guard.get(1, KEY).unwrap().value()[0], version);
    version
}

loom::lazy_static! {
    static ref STEPS: loom::sync::atomic::AtomicU64 = loom::sync::atomic::AtomicU64::new(0);
}

/// A place where loom is to try the other threads. It looks for such places by itself, at words that two threads
/// use, but forgets a thread's access when the other one has looked at the word before it changes it, as
/// a writer does with the live generation. Relaxed: orders nothing.
fn step() {
    STEPS.fetch_add(1, Relaxed);
}

struct Kill;

thread_local! {
    /// Where the writer of this model dies: a failpoint, and how often it passes there first.
    static ARMED: Cell<(&'static str, u32)> = const { Cell::new(("", 0)) };
    static KILLS: Cell<u64> = const { Cell::new(0) };
}

fn pass(name: &'static str) {
    step();
    match ARMED.get() {
        (armed, _) if armed != name => {}
        (_, 0) => {
            ARMED.set(("", 0));
            KILLS.set(KILLS.get() + 1);
            std::panic::panic_any(Kill);
        }
        (_, after) => ARMED.set((name, after - 1)),
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    set_hook(pass);
    silence_kills();
    let tried = std::sync::Arc::new(AtomicU64::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check({
        let tried = tried.clone();
        move || {
            tried.fetch_add(1, Relaxed);
            model();
        }
    });
    let tried = tried.load(Relaxed);
    println!("{tried} orders");
    assert!(tried > 20, "only {tried} orders were tried");
}

/// Suppresses the report of a kill, which is no failure.
fn silence_kills() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload().is::<Kill>() {
                report(panic);
            }
        }));
    });
}

#[test]
fn a_reader_reads_while_a_writer_publishes_and_frees() {
    check(|| {
        let site = Site::new();
        let reader = site.attach(0, 1);
        let writer = thread::spawn({
            let site = site.clone();
            move || assert!(site.put(2) && site.put(3))
        });
        let first = look(&reader);
        assert!(look(&reader) >= first, "an older generation after a newer one");
        writer.join().unwrap();
        assert_eq!(look(&reader), 3);
    });
}

#[test]
fn a_worker_attaches_while_a_writer_publishes_and_frees() {
    check(|| {
        let site = Site::new();
        let writer = thread::spawn({
            let site = site.clone();
            move || assert!(site.put(2) && site.put(3))
        });
        let reader = site.attach(0, 1);
        look(&reader);
        look(&reader);
        writer.join().unwrap();
    });
}

#[test]
fn what_was_replaced_is_freed_after_every_acknowledgement_and_all_of_it() {
    check(|| {
        let site = Site::new();
        let readers = [site.attach(0, 1), site.attach(1, 3)];
        readers.iter().for_each(|reader| drop(reader.read()));
        let free = site.free_bytes();
        let [first, second] = readers;
        let worker = thread::spawn(move || {
            look(&first);
            look(&first);
            first
        });
        // Five is as long as one.
        assert!(site.put(5));
        assert!(site.free_bytes() < free, "a worker that has not moved on holds the memory");
        look(&second);
        let first = worker.join().unwrap();
        look(&first);
        assert_eq!(site.free_bytes(), free);
    });
}

#[test]
fn what_the_journal_holds_is_not_freed_while_it_looks_for_changes() {
    check(|| {
        let site = Site::new();
        let writer = thread::spawn({
            let site = site.clone();
            move || assert!(site.put(2) && site.put(3))
        });
        let mut pin = Pin::attach(site.store, 1).unwrap();
        let mut versions = BTreeMap::new();
        step();
        pin.for_each(|record| _ = versions.insert(record.key().to_vec(), record.value()[0]));
        for _ in 0..2 {
            step();
            pin.advance(|changed| match changed {
                Changed::Written(now) => _ = versions.insert(now.key().to_vec(), now.value()[0]),
                Changed::Removed(_) => panic!("nothing is removed"),
            });
        }
        writer.join().unwrap();
        let all: Vec<u8> = versions.into_values().collect();
        assert!(all.len() == 2 && all[0] == all[1], "{all:?} are not of one write");
    });
}

#[test]
fn two_writers_exclude_each_other() {
    check(|| {
        let site = Site::new();
        let reader = site.attach(0, 1);
        let other = thread::spawn({
            let site = site.clone();
            move || site.put(2)
        });
        let is_done = site.put(3);
        look(&reader);
        let other_is_done = other.join().unwrap();
        assert!(is_done || other_is_done);
        let expected = 1 + u64::from(is_done) + u64::from(other_is_done);
        assert_eq!(site.store.live().generation, expected);
    });
}

#[test]
fn a_dead_worker_holds_nothing_and_its_slot_is_taken_again() {
    check(|| {
        let site = Site::new();
        let killed = site.attach(0, MORTAL);
        let worker = thread::spawn({
            let site = site.clone();
            move || {
                look(&killed);
                std::mem::forget(killed);
                IS_DEAD.store(true, Release);
                // nginx's master starts the next one in the same slot.
                look(&site.attach(0, 1));
            }
        });
        assert!(site.put(2));
        while site.store.try_free(&site.lock) {}
        assert!(site.put(3));
        worker.join().unwrap();
    });
}

/// A kill at any step, with a reader at the same time, and the writer that finds what is left.
#[test]
fn a_writer_that_dies_at_any_step_harms_no_reader() {
    for name in FAILPOINTS.iter().filter(|name| **name != "adopt.acknowledge") {
        for after in [0, 1] {
            KILLS.set(0);
            check(move || {
                // What is free once a write of this length is all there is.
                let site = Site::new();
                let reader = site.attach(0, 1);
                let free = site.free_bytes();
                let writer = thread::spawn({
                    let site = site.clone();
                    move || {
                        ARMED.set((name, after));
                        site.put_or_die(2);
                        site.put_or_die(3);
                        ARMED.set(("", 0));
                        assert!(site.put(5));
                    }
                });
                let first = look(&reader);
                assert!(look(&reader) >= first, "an older generation after a newer one");
                writer.join().unwrap();
                assert_eq!(look(&reader), 5);
                assert_eq!(site.free_bytes(), free, "bytes are lost");
            });
            let is_passed_once = ["update.begin", "publish.before", "publish.after"].contains(name);
            assert!(
                KILLS.get() > 0 || (after > 0 && is_passed_once),
                "{name} {after}: never passed"
            );
        }
    }
}
