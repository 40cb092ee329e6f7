//! Requests at the same time, by key: nginx's `limit_conn`.
//!
//! Shape:   a set is eight words, a cache line; each is free (0), or a key's tag (upper 40 bits) and its requests
//!          under way (lower 24 bits). A place is given up with the last of them.
//! Exact:   two workers may give the same new key two places at the same moment: the requests of a key are the
//!          sum over its set, looked at once more after counting. So there are never more than the limit, while
//!          the set has room for all of its keys.
//! Full:    a new key in a full set takes the place of the key with the fewest requests, whose requests are
//!          forgotten. A refusal would let a flood from many addresses lock all others out, and no count at all
//!          would let a few addresses hide behind the flood; a key near its limit has many requests, and keeps
//!          its place. A forgotten key may have at most as many requests above its limit as were forgotten.

use super::{MAX_TRIES, set_of};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const SET_WORDS: usize = 8;
const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Of the hash, that choose the set; the others are the tag.
const INDEX_BITS: u32 = 24;
/// Places that fit into what a [`Held`] says.
const MAX_SETS: usize = (1 << COUNT_BITS) / SET_WORDS;

/// A request that is counted as under way: its tag and its place, in one word that is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(u64);

impl Held {
    /// As one word.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From [`Held::to_bits`]; `None`: 0 stands for nothing.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Held(bits))
    }
}

/// A request that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its count, for [`Connections::end`].
    pub held: Held,
    /// Requests of another client whose count was given up for it; 0 unless the set was full.
    pub forgotten: u64,
}

/// As many requests as the limit allows are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload;

/// All requests under way that are limited.
#[derive(Clone, Copy, Debug)]
pub struct Connections<'m> {
    sets: &'m [[AtomicU64; SET_WORDS]],
    forgotten: &'m AtomicU64,
}

impl<'m> Connections<'m> {
    /// The counts in these words; `None` if there are too few.
    pub(super) fn new(words: &'m [AtomicU64], forgotten: &'m AtomicU64) -> Option<Self> {
        let (sets, _) = words.as_chunks::<SET_WORDS>();
        let sets = sets.get(..sets.len().min(MAX_SETS))?;
        (!sets.is_empty()).then_some(Connections { sets, forgotten })
    }

    /// How many clients have a place.
    pub fn capacity(&self) -> usize {
        self.sets.len() * SET_WORDS
    }

    /// Counts a request of `key` as under way unless `limit` are. `note` is told what it would be, before it is
    /// counted: who notes that down can be ended by others when its worker was killed. The last word it is told
    /// holds, if the answer is not a refusal.
    #[inline]
    pub fn begin(&self, key: u64, limit: u32, note: impl Fn(Held)) -> Result<Begun, Overload> {
        let index = set_of(key, self.sets.len(), INDEX_BITS);
        let Some(set) = self.sets.get(index) else { return Err(Overload) };
        let (tag, limit) = (tag(key), u64::from(limit));
        for _ in 0..MAX_TRIES {
            let words = set.each_ref().map(|word| word.load(SeqCst));
            if sum(&words, tag) >= limit.min(COUNT) {
                return Err(Overload);
            }
            let (place, word, forgotten) = place_of(&words, tag);
            let Some(cell) = set.get(place) else { return Err(Overload) };
            let held = Held(tag << COUNT_BITS | (index * SET_WORDS + place) as u64);
            note(held);
            let next = if word >> COUNT_BITS == tag { word + 1 } else { tag << COUNT_BITS | 1 };
            if cell.compare_exchange(word, next, SeqCst, SeqCst).is_err() {
                continue;
            }
            self.forget(forgotten);
            let words = set.each_ref().map(|word| word.load(SeqCst));
            if sum(&words, tag) <= limit {
                return Ok(Begun { held, forgotten });
            }
            self.end(held);
        }
        Err(Overload)
    }

    /// A request has ended.
    #[inline]
    pub fn end(&self, held: Held) {
        let place = (held.0 & COUNT) as usize;
        let Some(cell) = self.sets.as_flattened().get(place) else { return };
        let less = |word: u64| {
            // Not below zero, and no other key's, whatever happened.
            let is_own = word >> COUNT_BITS == held.0 >> COUNT_BITS && word & COUNT > 0;
            is_own.then(|| if word & COUNT == 1 { 0 } else { word - 1 })
        };
        let _ = cell.fetch_update(SeqCst, SeqCst, less);
    }

    /// Requests of a key that are under way.
    pub fn under_way(&self, key: u64) -> u64 {
        let set = self.sets.get(set_of(key, self.sets.len(), INDEX_BITS));
        set.map_or(0, |set| sum(&set.each_ref().map(|word| word.load(SeqCst)), tag(key)))
    }

    #[inline]
    fn forget(&self, requests: u64) {
        if requests > 0 {
            self.forgotten.fetch_add(requests, Relaxed);
        }
    }
}

/// Where a key is counted: its own place, else a free one, else that of the key with the fewest requests. Says the
/// word that stands there, and how many requests are forgotten.
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

/// Never 0.
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
