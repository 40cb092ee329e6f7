//! How often and how many at once: what all workers count together, without a lock.
//!
//! Shape:   [`Counts`] is a block of words in shared memory: a header, then sets of [`Rates`], then sets of
//!          [`Connections`]. A key is 64 bits of a keyed hash; it names a set, and a tag within it.
//! Units:   nanoseconds on a clock that all processes share and nobody sets.
//! Errors:  none. Where a count cannot be kept the answer is a refusal.
//! Crash:   a process may die between any two operations: each leaves the words as somebody could have found them.
//! Source:  ngx_http_limit_req_lookup, ngx_http_limit_conn_handler.
//!
//! nginx keeps the requests above the rate and when they were counted. Here stands when they will have drained
//! away, which says the same in one word: exact for each rate, and drained or not without knowing the rate.

mod connections;
mod rates;

pub use connections::{Begun, Connections, Held, Overload};
pub use rates::{Admission, Bucket, Rates, Taken};

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Says that a block has this layout; another number for another layout.
const LAYOUT: u64 = 0x6f78_6c69_6d69_0001;

/// Words of the header: layout, words of the block, two of the key of the hash, birth, then [`Totals`].
const HEADER_WORDS: usize = 8;

/// Tries until a count that others change all the time is given up.
const MAX_TRIES: usize = 1_000;

/// What could not be counted as it should.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Clients whose requests were forgotten before they had drained away.
    pub evicted: u64,
    /// Requests that were refused since there was no place to count them in.
    pub full: u64,
}

/// What all workers count together.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'m> {
    header: &'m [AtomicU64; HEADER_WORDS],
    rates: Rates<'m>,
    connections: Connections<'m>,
}

impl<'m> Counts<'m> {
    /// Makes a block of zeroes one; `None` if it is too small. `key` is random, so that nobody can choose
    /// clients that share a set; `birth` tells this block from one before it.
    pub fn create(words: &'m [AtomicU64], key: [u64; 2], birth: u64) -> Option<Self> {
        let (header, _) = words.split_first_chunk::<HEADER_WORDS>()?;
        header[1].store(words.len() as u64, Relaxed);
        header[2].store(key[0], Relaxed);
        header[3].store(key[1], Relaxed);
        header[4].store(birth, Relaxed);
        header[0].store(LAYOUT, SeqCst);
        Counts::open(words)
    }

    /// A block that was made before; `None` if it has another layout or size.
    pub fn open(words: &'m [AtomicU64]) -> Option<Self> {
        let (header, rest) = words.split_first_chunk::<HEADER_WORDS>()?;
        let is_ours =
            header[0].load(SeqCst) == LAYOUT && header[1].load(Relaxed) == words.len() as u64;
        // A rate takes a third of a set of 32 bytes, a connection an eighth of one of 64: room for more than
        // twice as many of the former, since they stay when the request has ended.
        let (rates, connections) = rest.split_at_checked(rest.len() / 4 * 3)?;
        let (rates, connections) =
            (Rates::new(rates, &header[5])?, Connections::new(connections, &header[6])?);
        is_ours.then_some(Counts { header, rates, connections })
    }

    /// The key of the hash that makes keys.
    pub fn hash_key(&self) -> [u64; 2] {
        [self.header[2].load(Relaxed), self.header[3].load(Relaxed)]
    }

    /// Tells it from a block before it.
    #[inline]
    pub fn birth(&self) -> u64 {
        self.header[4].load(Relaxed)
    }

    /// Requests by time.
    #[inline]
    pub fn rates(&self) -> &Rates<'m> {
        &self.rates
    }

    /// Requests at once.
    #[inline]
    pub fn connections(&self) -> &Connections<'m> {
        &self.connections
    }

    /// What could not be counted as it should.
    pub fn totals(&self) -> Totals {
        Totals { evicted: self.header[5].load(Relaxed), full: self.header[6].load(Relaxed) }
    }
}

/// The set of a key: `bits` upper bits of the hash, spread over `sets`.
#[inline]
fn set_of(key: u64, sets: usize, bits: u32) -> usize {
    ((u128::from(key >> (64 - bits)) * sets as u128) >> bits) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn a_block_is_opened_with_the_layout_and_size_it_was_made_with() {
        let words = words(1024);
        assert!(Counts::open(&words).is_none(), "never made");
        let counts = Counts::create(&words, [3, 4], 5).unwrap();
        assert_eq!((counts.hash_key(), counts.birth()), ([3, 4], 5));
        assert!(Counts::open(&words).is_some());
        assert!(Counts::open(&words[..1000]).is_none(), "another size");
        words[0].store(LAYOUT + 1, Relaxed);
        assert!(Counts::open(&words).is_none(), "another layout");
        assert!(Counts::create(&words[..20], [3, 4], 5).is_none(), "too small");
    }

    #[test]
    fn keys_reach_every_set_and_none_beyond() {
        for sets in [1, 7, 1000] {
            assert_eq!(set_of(0, sets, 40), 0);
            assert_eq!(set_of(u64::MAX, sets, 40), sets - 1);
            assert_eq!(set_of(u64::MAX, sets, 24), sets - 1);
        }
    }
}
