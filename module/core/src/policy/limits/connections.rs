//! Requests at the same time, by key: nginx's `limit_conn`.
//!
//! Shape:   a set is eight words, a cache line; each is free (0), or a key's tag (upper 40 bits) and its requests
//!          in flight (lower 24 bits). A word becomes free with the last of them.
//! Exact:   two workers may give the same new key two places at the same moment: the requests of a key are the
//!          sum over its set, looked at once more after counting. So there are never more than the limit, while
//!          the set has room for all of its keys.
//! Full:    a new key in a full set replaces the key with the fewest requests, whose requests are
//!          forgotten. A refusal would let a flood from many addresses lock all others out, and no count at all
//!          would let a few addresses hide behind the flood; a key near its limit has many requests, and keeps
//!          its place. A forgotten key may have at most as many requests above its limit as were forgotten.

use super::{MAX_TRIES, Sets};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const SET_WORDS: usize = 8;
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Of the hash, that choose the set; the others are the tag.
const INDEX_BITS: u32 = 24;
/// The most sets whose words a [`Slot`] can address.
const MAX_SETS: usize = (1 << COUNT_BITS) / SET_WORDS;

/// The slot of a counted request: its tag and its place, in one word that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u64);

impl Slot {
    /// The slot as one word, for a worker's ledger.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The slot of [`Slot::to_bits`]; `None` for 0.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Slot(bits))
    }
}

/// A request that counts toward a limit of connections, until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The slot of the request, for [`Connections::end`].
    pub slot: Slot,
    /// The number of another client's requests that were forgotten; 0 unless the set was full.
    pub forgotten: u64,
}

/// The client has as many requests in flight as the limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload;

/// The table of limited requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct Connections<'m> {
    sets: Sets<'m, SET_WORDS>,
}

impl<'m> Connections<'m> {
    /// The counts in these words; `None` if there are too few.
    pub(super) fn new(words: &'m [AtomicU64], forgotten: &'m AtomicU64) -> Option<Self> {
        Some(Connections { sets: Sets::new(words, forgotten, MAX_SETS)? })
    }

    /// How many clients have a place.
    pub fn capacity(&self) -> usize {
        self.sets.all.len() * SET_WORDS
    }

    /// Counts a request of `key` unless `limit` are in flight. Before the request is counted, `note` receives the
    /// slot that it would have: a caller that records it lets others end the request if its worker is killed. The
    /// last slot that `note` received is the one that counts, if the request is admitted.
    #[inline]
    pub fn begin(&self, key: u64, limit: u32, note: impl Fn(Slot)) -> Result<Admitted, Overload> {
        let Some((index, set)) = self.sets.of(key, INDEX_BITS) else { return Err(Overload) };
        let (tag, limit) = (tag(key), u64::from(limit));
        for _ in 0..MAX_TRIES {
            let words = set.each_ref().map(|word| word.load(SeqCst));
            if sum(&words, tag) >= limit.min(COUNT) {
                return Err(Overload);
            }
            let (place, word, forgotten) = place_of(&words, tag);
            let Some(cell) = set.get(place) else { return Err(Overload) };
            let slot = Slot(tag << COUNT_BITS | (index * SET_WORDS + place) as u64);
            note(slot);
            let next = if word >> COUNT_BITS == tag { word + 1 } else { tag << COUNT_BITS | 1 };
            if cell.compare_exchange(word, next, SeqCst, SeqCst).is_err() {
                continue;
            }
            self.sets.forget(forgotten);
            let words = set.each_ref().map(|word| word.load(SeqCst));
            if sum(&words, tag) <= limit {
                return Ok(Admitted { slot, forgotten });
            }
            self.end(slot);
        }
        Err(Overload)
    }

    /// Ends a request, which frees its place in the count.
    #[inline]
    pub fn end(&self, slot: Slot) {
        let place = (slot.0 & COUNT) as usize;
        let Some(cell) = self.sets.word(place) else { return };
        let less = |word: u64| {
            // Not below zero, and no other key's, whatever happened.
            let is_own = word >> COUNT_BITS == slot.0 >> COUNT_BITS && word & COUNT > 0;
            is_own.then(|| if word & COUNT == 1 { 0 } else { word - 1 })
        };
        let _ = cell.fetch_update(SeqCst, SeqCst, less);
    }

    /// Requests of a key that are under way.
    pub fn under_way(&self, key: u64) -> u64 {
        let set = self.sets.of(key, INDEX_BITS);
        set.map_or(0, |(_, set)| sum(&set.each_ref().map(|word| word.load(SeqCst)), tag(key)))
    }
}

/// The place of a key: its own, else a free one, else that of the key with the fewest requests. Also returns the word
/// there, and the number of requests that are forgotten.
#[inline]
fn place_of(words: &[u64; SET_WORDS], tag: u64) -> (usize, u64, u64) {
    let rank = |word: u64| match word {
        word if word >> COUNT_BITS == tag => (0, 0),
        0 => (1, 0),
        word => (2, word & COUNT),
    };
    let least = words.iter().copied().enumerate().min_by_key(|(_, word)| rank(*word));
    let (place, word) = least.unwrap_or_default();
    (place, word, rank(word).1)
}

/// A tag of a key; never 0, which marks a free word.
#[inline]
fn tag(key: u64) -> u64 {
    (key & ((1 << (64 - INDEX_BITS)) - 1)).max(1)
}

#[inline]
fn sum(words: &[u64; SET_WORDS], tag: u64) -> u64 {
    words.iter().filter(|word| **word >> COUNT_BITS == tag).map(|word| word & COUNT).sum()
}

#[cfg(test)]
mod tests;
