//! The store on the heap: the same code as in nginx, with threads for workers and a panic for a kill.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cells;
#[cfg(feature = "failpoints")]
mod kill;
mod map;
mod threads;

use super::*;
use std::alloc::Layout;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: [u64; 2] = [7, 11];

/// How often something is tried: few times where each costs fifty times as much.
pub(crate) fn rounds<N>(many: N, few: N) -> N {
    let is_slow = cfg!(miri) || std::env::var_os("OXIGRESS_SLOW_CHECKER").is_some();
    if is_slow { few } else { many }
}

/// A block of heap memory with a store in it.
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
    pub(crate) store: Store,
    pub(crate) lock: Lock,
}

#[derive(Default)]
pub(crate) struct Lock(Arc<AtomicBool>);

pub(crate) struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

// SAFETY: an atomic exchange; acquire and release order one holder before the next.
unsafe impl WriterLock for Lock {
    type Held = Held;

    fn try_lock(&self) -> Option<Held> {
        (!self.0.swap(true, Ordering::Acquire)).then(|| Held(Arc::clone(&self.0)))
    }
}

impl Heap {
    pub(crate) fn new(bytes: usize) -> Heap {
        Heap::with_workers(bytes, |_| true)
    }

    fn with_workers(bytes: usize, is_alive: fn(u32) -> bool) -> Heap {
        let layout = Layout::from_size_align(bytes, 64).unwrap();
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        // SAFETY: allocated above, freed when the heap is dropped.
        let store = unsafe { Store::create(start, bytes, SEED, 1, is_alive) }.unwrap();
        Heap { start, layout, store, lock: Lock::default() }
    }

    pub(crate) fn attach(&self, slot: usize, pid: u32) -> Reader {
        // SAFETY: the tests give each reader a slot of its own, or read no more with the last one.
        unsafe { self.store.attach(slot, pid) }
    }

    pub(crate) fn write(
        &self,
        change: impl FnOnce(&mut Transaction<'_, Lock>) -> Result<(), WriteError>,
    ) -> Result<Live, WriteError> {
        let mut transaction = self.store.try_write(&self.lock).unwrap();
        change(&mut transaction)?;
        transaction.commit()
    }

    fn put(&self, key: &str, value: &str) -> Live {
        self.write(|t| t.upsert(1, key.as_bytes(), value.as_bytes(), no_cells).map(drop)).unwrap()
    }

    pub(crate) fn free_all(&self) -> usize {
        while self.store.try_free(&self.lock) {}
        self.store.space().free_bytes
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; readers borrow from tests that have ended.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

fn text(reader: &Reader, key: &str) -> Option<String> {
    let guard = reader.read();
    guard.get(1, key.as_bytes()).map(|record| String::from_utf8(record.value().to_vec()).unwrap())
}

#[test]
fn what_is_written_is_read_and_what_is_removed_is_gone() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    assert_eq!(heap.put("a", "1").generation, 1);
    assert_eq!(text(&reader, "a").as_deref(), Some("1"));
    assert_eq!(text(&reader, "b"), None);
    assert!(reader.read().get(2, b"a").is_none(), "another kind is another key");
    heap.write(|t| t.remove(1, b"a").map(|there| assert!(there))).unwrap();
    assert_eq!(text(&reader, "a"), None);
    assert_eq!(heap.store.live().counts[1], 0);
}

#[test]
fn a_write_that_changes_nothing_publishes_nothing() {
    let heap = Heap::new(1 << 20);
    heap.put("a", "1");
    let free = heap.store.space().free_bytes;
    assert_eq!(heap.put("a", "1").generation, 1);
    assert_eq!(heap.store.space().free_bytes, free);
}

#[test]
fn a_guard_keeps_its_generation_while_newer_ones_are_published() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    heap.put("a", "old");
    let guard = reader.read();
    let record = guard.get(1, b"a").unwrap();
    for n in 0..50 {
        heap.put("a", &format!("new {n}"));
        heap.put(&format!("b{n}"), "filler");
    }
    assert_eq!(record.value(), b"old");
    // A nested callback sees the newest, and does not give the outer one's records up.
    assert_eq!(text(&reader, "a").as_deref(), Some("new 49"));
    heap.put("a", "newest");
    assert_eq!(record.value(), b"old");
    drop(guard);
    assert_eq!(text(&reader, "a").as_deref(), Some("newest"));
}

#[test]
fn a_place_is_good_for_its_generation_only() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    heap.put("a", "1");
    let place = {
        let guard = reader.read();
        let record = guard.get(1, b"a").unwrap();
        assert_eq!(guard.at(guard.place(&record)).unwrap().value(), b"1");
        guard.place(&record)
    };
    assert!(reader.read().at(RecordPlace::default()).is_none());
    heap.put("b", "2");
    assert!(reader.read().at(place).is_none());
}

#[test]
fn a_hash_alone_finds_its_record_until_it_is_removed() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    for n in 0..100 {
        heap.put(&format!("key{n}"), &n.to_string());
    }
    let hash = reader.read().hash(1, b"key7");
    let found = |kind| {
        let guard = reader.read();
        let record = guard.find_hashed(hash, kind);
        record.map(|record| (record.key().to_vec(), record.value().to_vec()))
    };
    assert_eq!(found(1), Some((b"key7".to_vec(), b"7".to_vec())));
    assert_eq!(found(2), None);
    heap.write(|t| t.remove(1, b"key7").map(drop)).unwrap();
    assert_eq!(found(1), None);
}

#[test]
fn memory_is_freed_when_every_worker_has_moved_on_and_not_before() {
    let heap = Heap::new(1 << 20);
    let (idle, busy) = (heap.attach(0, 1), heap.attach(1, 2));
    heap.put("a", "1");
    drop((idle.read(), busy.read()));
    let free = heap.free_all();
    let filler = "x".repeat(1000);
    heap.put("a", &filler);
    heap.put("a", "2");
    drop(busy.read());
    assert!(heap.free_all() < free, "a worker that has not moved on holds the memory");
    drop(idle.read());
    assert_eq!(heap.free_all(), free);
}

#[test]
fn a_dead_worker_holds_nothing() {
    let heap = Heap::with_workers(1 << 20, |pid| pid != 2);
    let alive = heap.attach(0, 1);
    heap.put("a", "1");
    drop(alive.read());
    let free = heap.free_all();
    let killed = heap.attach(1, 2);
    heap.put("a", "2");
    drop(alive.read());
    assert_eq!(heap.free_all(), free);
    assert_eq!(heap.store.workers().len(), 1);
    drop(killed);
}

#[test]
fn a_removal_fits_into_a_full_store() {
    let heap = Heap::new(160 << 10);
    let fits = |n: u32, bytes: usize| {
        let value = vec![0; bytes];
        heap.write(|t| t.upsert(2, &n.to_le_bytes(), &value, no_cells).map(drop)).is_ok()
    };
    let mut count = 0;
    for bytes in [10_000, 1_000, 100, 0] {
        while fits(count, bytes) {
            heap.free_all();
            count += 1;
        }
    }
    assert!(heap.store.space().free_bytes < 100, "{:?}", heap.store.space());
    for n in 0..count {
        heap.write(|t| t.remove(2, &n.to_le_bytes()).map(drop)).unwrap();
        heap.free_all();
    }
    assert!(fits(0, 50_000));
}

#[test]
fn a_record_is_replaced_by_a_smaller_one_in_a_full_store() {
    let heap = Heap::new(1 << 20);
    let put = |key: &[u8], bytes: usize| {
        heap.write(|t| t.upsert(2, key, &vec![1; bytes], no_cells).map(drop)).is_ok()
    };
    assert!(put(b"large", 7_000));
    let mut count = 0_u32;
    for bytes in [10_000, 1_000, 100, 0] {
        while put(&count.to_le_bytes(), bytes) {
            heap.free_all();
            count += 1;
        }
    }
    let space = heap.store.space();
    assert!(space.free_bytes < 100 && space.free_for_less_bytes > 7_000, "{space:?}");
    assert!(!put(b"new", 6_000), "what is new finds no room");
    assert!(!put(b"large", 7_500), "nor what grows");
    assert!(put(b"large", 6_000), "what becomes smaller does");
    heap.free_all();
    for n in 0..count {
        heap.write(|t| t.remove(2, &n.to_le_bytes()).map(drop)).unwrap();
        heap.free_all();
    }
}

#[test]
fn a_full_store_refuses_the_write_and_loses_nothing() {
    let heap = Heap::new(160 << 10);
    let reader = heap.attach(0, 1);
    heap.put("a", "kept");
    drop(reader.read());
    let free = heap.free_all();
    let value = vec![0; 1 << 10];
    let fill = |t: &mut Transaction<'_, Lock>| {
        (0..1000_u32).try_for_each(|n| t.upsert(2, &n.to_le_bytes(), &value, no_cells).map(drop))
    };
    match heap.write(fill) {
        Err(WriteError::Full { needed_bytes, free_bytes }) => assert!(needed_bytes > free_bytes),
        other => panic!("{other:?}"),
    }
    assert_eq!(heap.store.space().free_bytes, free);
    assert_eq!(heap.store.live().generation, 1);
    assert_eq!(text(&reader, "a").as_deref(), Some("kept"));
    heap.put("b", "fits");
    assert_eq!(text(&reader, "b").as_deref(), Some("fits"));
}

#[test]
fn a_note_is_cut_and_read_back() {
    let heap = Heap::new(1 << 20);
    assert_eq!(heap.store.note(), "");
    heap.store.set_note("zone full");
    assert_eq!(heap.store.note(), "zone full");
    heap.store.set_note(&"é".repeat(300));
    assert_eq!(heap.store.note(), "é".repeat(127));
}

#[test]
fn only_one_writer_is_at_work() {
    let heap = Heap::new(1 << 20);
    let first = heap.store.try_write(&heap.lock).unwrap();
    assert!(heap.store.try_write(&heap.lock).is_none());
    drop(first);
    assert!(heap.store.try_write(&heap.lock).is_some());
}

#[test]
fn another_layout_or_size_is_refused() {
    let heap = Heap::new(1 << 20);
    // SAFETY: the same memory, one handle more.
    let open = |bytes| unsafe { Store::open(heap.start, bytes, |_| true) };
    assert!(open(1 << 20).is_ok());
    assert!(matches!(open(1 << 19), Err(OpenError::Layout { .. })));
    heap.store.memory.header().layout.store(1, Ordering::Relaxed);
    assert!(matches!(open(1 << 20), Err(OpenError::Layout { found: 1, .. })));
    // SAFETY: refused before anything is written.
    let small = unsafe { Store::create(heap.start, 4096, SEED, 1, |_| true) };
    assert!(matches!(small, Err(OpenError::TooSmall { .. })));
}

#[test]
fn the_bytes_in_use_do_not_grow_with_the_number_of_updates() {
    let heap = Heap::new(1 << 20);
    let reader = heap.attach(0, 1);
    (0..100).for_each(|n| _ = heap.put(&format!("key {n}"), "value"));
    drop(reader.read());
    let free = heap.free_all();
    let rounds = rounds(5_000, 100);
    for n in 0..rounds {
        heap.put(&format!("key {}", n % 100), &"v".repeat(n % 700));
        heap.put(&format!("new {}", n % 7), "x");
        heap.write(|t| t.remove(1, format!("new {}", n % 7).as_bytes()).map(drop)).unwrap();
        drop(reader.read());
    }
    (0..100).for_each(|n| _ = heap.put(&format!("key {n}"), "value"));
    drop(reader.read());
    assert_eq!(heap.free_all(), free);
}
