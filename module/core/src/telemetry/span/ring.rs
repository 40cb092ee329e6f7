//! A queue of records in shared memory: any worker writes, any worker takes out, and nobody ever waits.
//!
//! Shape:   a head, a number for each owner, a state for each slot, then the slots' bytes: who looks for records touches the
//!          states only. A state is free, or busy since a time, or the number of bytes that wait, and whose. A writer takes
//!          the next free slot among a few, so there is no order.
//! Shares:  an owner, which is one of [`OWNERS`] that a hash of a namespace chooses, may have as many slots as are free: one
//!          alone has half of the ring, and those that come later half of what is left each.
//! Errors:  a record that finds no free slot, or whose owner has its share, is dropped and counted.
//! Faults:  a worker that is killed while it writes or takes leaves its slot busy; after [`ABANDONED_MS`] the slot is free
//!          again. One that is killed between counting a slot and taking it leaves one slot less for that owner.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// Words of a slot.
const SLOT_WORDS: usize = 256;
/// The most bytes of a record.
pub(super) const SLOT_BYTES: usize = 8 * SLOT_WORDS;
/// Bytes that are taken out at a time: copying them takes less than a tenth of a millisecond. An answer with less has the
/// last records.
pub const TAKE_BYTES: usize = 256 * 1024;
/// Words before the owners: where the next record is tried, how many were dropped, and how many slots are not free.
const HEAD_WORDS: usize = 3;
/// Owners that are told apart.
const OWNERS: usize = 256;
/// Slots that a writer tries, all over the ring.
const TRIES: usize = 8;
/// A slot that is busy for longer belongs to a process that is gone.
const ABANDONED_MS: u64 = 10_000;

const FREE: u64 = 0;
/// The state of a slot that is written or read: this bit, the owner, and the time.
const BUSY: u64 = 1 << 63;
/// Where the owner stands in a state that is not free.
const OWNER_BIT: u32 = 48;
/// The time or the number of bytes in a state.
const NUMBER: u64 = (1 << OWNER_BIT) - 1;

const fn owner_of(state: u64) -> usize {
    ((state & !BUSY) >> OWNER_BIT) as usize % OWNERS
}

const fn state_of(owner: usize, number: u64) -> u64 {
    (owner as u64) << OWNER_BIT | number & NUMBER
}

/// What became of an attempt to write.
enum Attempt {
    Written,
    /// The slot is not free.
    Occupied,
    /// Another process took the slot meanwhile, and gave the owner its place back.
    Lost,
}

/// The queue, in memory that begins with zeroes.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'m> {
    next: &'m AtomicU64,
    dropped: &'m AtomicU64,
    used: &'m AtomicU64,
    owners: &'m [AtomicU64; OWNERS],
    states: &'m [AtomicU64],
    slots: &'m [[AtomicU64; SLOT_WORDS]],
}

impl<'m> Ring<'m> {
    /// Words that a ring with so many slots takes.
    pub const fn words(slots: usize) -> usize {
        HEAD_WORDS + OWNERS + slots * (1 + SLOT_WORDS)
    }

    /// The ring in these words; `None` for fewer than one slot takes.
    pub fn new(words: &'m [AtomicU64]) -> Option<Ring<'m>> {
        let ([next, dropped, used], rest) = words.split_first_chunk::<HEAD_WORDS>()?;
        let (owners, rest) = rest.split_first_chunk::<OWNERS>()?;
        let (states, slots) = rest.split_at(rest.len() / (1 + SLOT_WORDS));
        let (slots, _) = slots.as_chunks::<SLOT_WORDS>();
        (!states.is_empty()).then_some(Ring { next, dropped, used, owners, states, slots })
    }

    /// Puts a record in; one that is too long, finds no room or is beyond its owner's share is dropped and counted. `owner` is a
    /// hash of the namespace that it belongs to, `now_ms` a clock of milliseconds that all processes share.
    pub fn push(&self, record: &[u8], owner: u64, now_ms: u64) {
        let owner = owner as usize % OWNERS;
        let is_written = (1..=SLOT_BYTES).contains(&record.len())
            && self.reserve(owner)
            && self.put(record, owner, now_ms);
        if !is_written {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Counts a slot for an owner, unless it has its share.
    fn reserve(&self, owner: usize) -> bool {
        let own = self.owners[owner].fetch_add(1, Relaxed);
        let used = self.used.fetch_add(1, Relaxed);
        let free = (self.states.len() as u64).saturating_sub(used);
        let is_within = own < free;
        if !is_within {
            self.release(owner);
        }
        is_within
    }

    fn release(&self, owner: usize) {
        self.owners[owner].fetch_sub(1, Relaxed);
        self.used.fetch_sub(1, Relaxed);
    }

    fn put(&self, record: &[u8], owner: usize, now_ms: u64) -> bool {
        let slots = self.states.len();
        let first = (self.next.fetch_add(1, Relaxed) % slots as u64) as usize;
        for attempt in 0..TRIES {
            // Slots that are not free lie side by side.
            let slot = (first + attempt * (slots / TRIES).max(1)) % slots;
            match self.write(slot, record, owner, now_ms) {
                Attempt::Written => return true,
                Attempt::Lost => return false,
                Attempt::Occupied => {}
            }
        }
        self.release(owner);
        false
    }

    fn write(&self, slot: usize, record: &[u8], owner: usize, now_ms: u64) -> Attempt {
        let (state, words) = (&self.states[slot], &self.slots[slot]);
        let found = state.load(Relaxed);
        let is_free = found == FREE || is_abandoned(found, now_ms);
        let busy = BUSY | state_of(owner, now_ms);
        if !is_free || state.compare_exchange(found, busy, AcqRel, Relaxed).is_err() {
            return Attempt::Occupied;
        }
        if found != FREE {
            self.release(owner_of(found));
        }
        for (word, bytes) in words.iter().zip(record.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        // Not where the slot was taken for abandoned meanwhile.
        let waiting = state_of(owner, record.len() as u64);
        match state.compare_exchange(busy, waiting, Release, Relaxed) {
            Ok(_) => Attempt::Written,
            Err(_) => Attempt::Lost,
        }
    }

    /// Takes records out, appended to `out`, until there are none or `out` has `most` bytes or more.
    pub fn take(&self, out: &mut Vec<u8>, most: usize, now_ms: u64) {
        for (state, words) in self.states.iter().zip(self.slots) {
            if out.len() >= most {
                return;
            }
            let found = state.load(Relaxed);
            let (owner, length) = (owner_of(found), found & NUMBER);
            if is_abandoned(found, now_ms)
                && state.compare_exchange(found, FREE, AcqRel, Relaxed).is_ok()
            {
                self.release(owner);
            }
            if found == FREE || found & BUSY != 0 || length > SLOT_BYTES as u64 {
                continue;
            }
            let busy = BUSY | state_of(owner, now_ms);
            if state.compare_exchange(found, busy, AcqRel, Relaxed).is_err() {
                continue;
            }
            let (start, length) = (out.len(), length as usize);
            let words = words.iter().take(length.div_ceil(8));
            out.extend(words.flat_map(|word| word.load(Relaxed).to_le_bytes()));
            out.truncate(start + length);
            match state.compare_exchange(busy, FREE, Release, Relaxed) {
                Ok(_) => self.release(owner),
                // Another process took it for abandoned, and the bytes may be those of two records.
                Err(_) => out.truncate(start),
            }
        }
    }

    /// How many records were dropped since the ring was made.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

fn is_abandoned(state: u64, now_ms: u64) -> bool {
    state & BUSY != 0 && now_ms.saturating_sub(state & NUMBER) > ABANDONED_MS
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

    /// What is counted is what the states say.
    fn assert_counts(ring: Ring<'_>) {
        let states: Vec<_> = ring.states.iter().map(|state| state.load(Relaxed)).collect();
        let used = states.iter().filter(|state| **state != FREE).count() as u64;
        assert_eq!(ring.used.load(Relaxed), used);
        for (owner, count) in ring.owners.iter().enumerate() {
            let own = states.iter().filter(|state| **state != FREE && owner_of(**state) == owner);
            assert_eq!(count.load(Relaxed), own.count() as u64, "owner {owner}");
        }
    }

    #[test]
    fn what_is_put_in_comes_out_once_and_the_rest_is_counted() {
        let memory = memory(4);
        let ring = Ring::new(&memory).unwrap();
        for number in 0..6u8 {
            ring.push(&[b'a' + number; 3], u64::from(number), 1);
        }
        assert_counts(ring);
        assert_eq!((taken(ring, 2), ring.dropped()), (b"aaabbbcccddd".to_vec(), 2));
        assert_eq!(taken(ring, 3), b"");
        ring.push(&[b'x'; SLOT_BYTES + 1], 0, 4);
        assert_eq!((taken(ring, 5), ring.dropped()), (Vec::new(), 3));
        ring.push(&[b'x'; SLOT_BYTES], 255, 4);
        assert_eq!(taken(ring, 5).len(), SLOT_BYTES);
        assert_counts(ring);
        assert!(Ring::new(&memory[..HEAD_WORDS + OWNERS + SLOT_WORDS]).is_none());
    }

    #[test]
    fn owners_that_have_much_leave_room_for_others() {
        let memory = memory(1_000);
        let ring = Ring::new(&memory).unwrap();
        for number in 0..2_000 {
            ring.push(b"busy", 7 + 256 * number, 1);
        }
        assert_eq!((ring.used.load(Relaxed), ring.dropped()), (500, 1_500));
        for owner in 20..24 {
            (0..2_000).for_each(|_| ring.push(b"busy", owner, 1));
        }
        assert!(ring.used.load(Relaxed) < 970);
        let before = ring.dropped();
        for owner in 100..105 {
            ring.push(b"calm", owner, 1);
        }
        assert_eq!(ring.dropped(), before, "a record of each of five others has room");
        assert_counts(ring);
        let out = taken(ring, 2);
        assert_eq!(out.chunks(4).filter(|record| record == b"calm").count(), 5);
        assert_counts(ring);
    }

    #[test]
    fn slots_of_a_killed_worker_are_used_again() {
        let memory = memory(10);
        let ring = Ring::new(&memory).unwrap();
        for (number, state) in ring.states.iter().skip(2).enumerate() {
            let owner = number % 3;
            assert!(ring.reserve(owner));
            state.store(BUSY | state_of(owner, 5), Relaxed);
        }
        assert_counts(ring);
        (0..4).for_each(|_| ring.push(b"early", 9, 6));
        assert_eq!((taken(ring, 6), ring.dropped()), (b"early".to_vec(), 3));
        assert_counts(ring);
        // By those that write, and by those that take.
        (0..20).for_each(|_| ring.push(b"late.", 9, 6 + ABANDONED_MS));
        assert_counts(ring);
        assert!(!taken(ring, 7 + ABANDONED_MS).is_empty());
        assert_eq!(ring.used.load(Relaxed), 0);
        assert_counts(ring);
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
                            ring.push(
                                &(writer * EACH + number).to_le_bytes(),
                                u64::from(number % 8),
                                1,
                            );
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
        assert_counts(ring);
    }
}
