//! A queue of records in shared memory: any worker writes, any worker takes out, and nobody ever waits.
//!
//! Shape:   a head, a state for each slot, then the slots' bytes: who looks for records touches the states only. A state is
//!          free, or busy since a time, or the number of bytes that wait. A writer takes the next free slot among a few, so
//!          there is no order.
//! Errors:  a record that finds no free slot is dropped and counted.
//! Faults:  a worker that is killed while it writes or takes leaves its slot busy; after [`ABANDONED_MS`] the slot is free again.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Words of a slot.
const SLOT_WORDS: usize = 256;
/// The most bytes of a record.
pub(super) const SLOT_BYTES: usize = 8 * SLOT_WORDS;
/// Bytes that are taken out at a time: copying them takes less than a tenth of a millisecond. An answer with less has the
/// last records.
pub const TAKE_BYTES: usize = 256 * 1024;
/// Words before the states: where the next record is tried, and how many were dropped.
const HEAD_WORDS: usize = 2;
/// Slots that a writer tries.
const TRIES: u64 = 8;
/// A slot that is busy for longer belongs to a process that is gone.
const ABANDONED_MS: u64 = 10_000;

const FREE: u64 = 0;
/// The state of a slot that is written or read: this bit, and the time.
const BUSY: u64 = 1 << 63;

/// The queue, in memory that begins with zeroes.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'m> {
    next: &'m AtomicU64,
    dropped: &'m AtomicU64,
    states: &'m [AtomicU64],
    slots: &'m [[AtomicU64; SLOT_WORDS]],
}

impl<'m> Ring<'m> {
    /// Words that a ring with so many slots takes.
    pub const fn words(slots: usize) -> usize {
        HEAD_WORDS + slots * (1 + SLOT_WORDS)
    }

    /// The ring in these words; `None` for fewer than one slot takes.
    pub fn new(words: &'m [AtomicU64]) -> Option<Ring<'m>> {
        let ([next, dropped], rest) = words.split_first_chunk::<HEAD_WORDS>()?;
        let (states, slots) = rest.split_at(rest.len() / (1 + SLOT_WORDS));
        let (slots, _) = slots.as_chunks::<SLOT_WORDS>();
        (!states.is_empty()).then_some(Ring { next, dropped, states, slots })
    }

    /// Puts a record in; one that is too long or finds no room is dropped and counted. `now_ms` is a clock of milliseconds
    /// that all processes share.
    pub fn push(&self, record: &[u8], now_ms: u64) {
        let first = self.next.fetch_add(1, Relaxed);
        let is_written = (1..=SLOT_BYTES).contains(&record.len())
            && (0..TRIES).any(|attempt| {
                let slot = first.wrapping_add(attempt) % self.states.len() as u64;
                self.write(slot as usize, record, now_ms)
            });
        if !is_written {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    fn write(&self, slot: usize, record: &[u8], now_ms: u64) -> bool {
        let (state, words) = (&self.states[slot], &self.slots[slot]);
        let found = state.load(Relaxed);
        let is_free = found == FREE || is_abandoned(found, now_ms);
        let busy = BUSY | now_ms;
        if !is_free || state.compare_exchange(found, busy, AcqRel, Relaxed).is_err() {
            return false;
        }
        for (word, bytes) in words.iter().zip(record.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        // Not where the slot was taken for abandoned meanwhile.
        state.compare_exchange(busy, record.len() as u64, Release, Relaxed).is_ok()
    }

    /// Takes records out, appended to `out`, until there are none or `out` has `most` bytes or more.
    pub fn take(&self, out: &mut Vec<u8>, most: usize, now_ms: u64) {
        for (state, words) in self.states.iter().zip(self.slots) {
            if out.len() >= most {
                return;
            }
            let length = state.load(Relaxed);
            if length == FREE || length > SLOT_BYTES as u64 {
                continue;
            }
            let busy = BUSY | now_ms;
            if state.compare_exchange(length, busy, AcqRel, Relaxed).is_err() {
                continue;
            }
            let (start, length) = (out.len(), length as usize);
            let words = words.iter().take(length.div_ceil(8));
            out.extend(words.flat_map(|word| word.load(Relaxed).to_le_bytes()));
            out.truncate(start + length);
            if state.compare_exchange(busy, FREE, Release, Relaxed).is_err() {
                // Another process took it for abandoned, and the bytes may be those of two records.
                out.truncate(start);
            }
        }
    }

    /// How many records were dropped since the ring was made.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

fn is_abandoned(state: u64, now_ms: u64) -> bool {
    state & BUSY != 0 && now_ms.saturating_sub(state & !BUSY) > ABANDONED_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn memory(slots: usize) -> Vec<AtomicU64> {
        (0..Ring::words(slots)).map(|_| AtomicU64::new(0)).collect()
    }

    fn taken(ring: Ring<'_>, now_ms: u64) -> Vec<u8> {
        let mut out = Vec::new();
        ring.take(&mut out, usize::MAX, now_ms);
        out
    }

    #[test]
    fn what_is_put_in_comes_out_once_and_the_rest_is_counted() {
        let memory = memory(4);
        let ring = Ring::new(&memory).unwrap();
        for number in 0..6u8 {
            ring.push(&[b'a' + number; 3], 1);
        }
        assert_eq!((taken(ring, 2), ring.dropped()), (b"aaabbbcccddd".to_vec(), 2));
        assert_eq!(taken(ring, 3), b"");
        ring.push(&[b'x'; SLOT_BYTES + 1], 4);
        assert_eq!((taken(ring, 5), ring.dropped()), (Vec::new(), 3));
        assert!(Ring::new(&memory[..HEAD_WORDS + SLOT_WORDS]).is_none());
    }

    #[test]
    fn a_slot_of_a_killed_worker_is_used_again() {
        let memory = memory(1);
        let ring = Ring::new(&memory).unwrap();
        memory[HEAD_WORDS].store(BUSY | 5, Relaxed);
        ring.push(b"early", 6);
        assert_eq!((taken(ring, 6), ring.dropped()), (Vec::new(), 1));
        ring.push(b"late", 6 + ABANDONED_MS);
        assert_eq!(taken(ring, 7 + ABANDONED_MS), b"late");
    }

    #[test]
    fn writers_and_takers_at_once_lose_and_double_nothing() {
        let memory = memory(64);
        let ring = Ring::new(&memory).unwrap();
        const EACH: u32 = 5_000;
        let seen = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3u32)
                .map(|writer| {
                    scope.spawn(move || {
                        for number in 0..EACH {
                            ring.push(&(writer * EACH + number).to_le_bytes(), 1);
                        }
                    })
                })
                .collect();
            let mut seen = Vec::new();
            loop {
                let is_over = writers.iter().all(std::thread::ScopedJoinHandle::is_finished);
                ring.take(&mut seen, usize::MAX, 1);
                if is_over {
                    return seen;
                }
            }
        });
        let all: Vec<_> = seen.as_chunks::<4>().0.iter().map(|n| u32::from_le_bytes(*n)).collect();
        let distinct: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(all.len() as u64 + ring.dropped(), u64::from(3 * EACH));
    }
}
