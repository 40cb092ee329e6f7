//! Readers on other threads while a writer publishes.

use super::*;
use std::sync::atomic::AtomicU64;

/// Sets a flag when it goes, also by a panic.
struct Set<'a>(&'a AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Readers check that what they see is whole: every value of one generation names that generation.
#[test]
fn readers_on_other_threads_see_whole_generations_only() {
    let heap = Heap::new(4 << 20);
    let newest = AtomicU64::new(0);
    let keys = 40;
    let generations = rounds(3_000, 50);
    let try_publish = |generation: u64| {
        heap.write(|t| {
            (0..keys).try_for_each(|key: u32| {
                let value = vec![generation as u8; 8 + (generation % 90) as usize];
                t.upsert(1, &key.to_le_bytes(), &value, no_cells).map(drop)
            })
        })
    };
    let publish = |generation: u64| {
        let live = loop {
            match try_publish(generation) {
                // A reader that does not run holds every generation since.
                Err(WriteError::Full { .. }) => {
                    std::thread::yield_now();
                    heap.store.try_free(&heap.lock);
                }
                other => break other.unwrap(),
            }
        };
        newest.store(live.generation, Ordering::SeqCst);
    };
    let is_over = AtomicBool::new(false);
    publish(1);
    std::thread::scope(|scope| {
        let read = |slot: usize| {
            let (store, newest, is_over) = (heap.store, &newest, &is_over);
            scope.spawn(move || {
                // SAFETY: each thread has a slot of its own.
                let reader = unsafe { store.attach(slot, slot as u32 + 1) };
                let mut last = 0;
                while last < generations && !is_over.load(Ordering::Relaxed) {
                    let least = newest.load(Ordering::SeqCst);
                    let guard = reader.read();
                    assert!(guard.generation() >= least, "an older generation after the answer");
                    last = guard.generation();
                    for key in 0..keys {
                        let record = guard.get(1, &key.to_le_bytes()).unwrap();
                        assert!(record.value().iter().all(|byte| *byte == last as u8));
                    }
                }
            })
        };
        // A writer that panics does not leave them waiting for its last generation.
        let _end = Set(&is_over);
        let readers = [0, 1, 2].map(read);
        (2..=generations).for_each(publish);
        // ThreadSanitizer sees a join, but not what the scope waits on.
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert!(heap.free_all() > 0);
}
