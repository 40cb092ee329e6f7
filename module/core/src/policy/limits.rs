//! Rates and concurrent requests of clients, counted by all workers together, without a lock.
//!
//! Shape:   [`Counts`] is a block of words in shared memory: a header, then sets of [`Rates`], then sets of
//!          [`Connections`]. A key is 64 bits of a keyed hash; it names a set, and a tag within it.
//! Units:   nanoseconds on the monotonic clock, which all processes share.
//! Errors:  none. A full table forgets the client that has used the least, so that a flood from many
//!          addresses neither locks others out nor frees those that are at their limit.
//! Crash:   a process may die between any two operations: each leaves the words in a valid state.
//! Source:  ngx_http_limit_req_lookup, ngx_http_limit_conn_handler.
//!
//! nginx keeps the requests above the rate and when they were counted. Here a word holds when they will have drained
//! away, which has the same information: exact for each rate, and drained or not without knowing the rate.

mod connections;
pub mod limiter;
mod rates;

pub use connections::{Admitted, Connections, Overload, Slot};
pub use rates::{Admission, Bucket, Charge, Rates};

use crate::model::policy::Ipv6Prefix;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Says that a block has this layout; another number for another layout.
const LAYOUT: u64 = 0x6f78_6c69_6d69_0001;

/// Words of the header: layout, words of the block, two of the key of the hash, birth, then [`Forgotten`].
const HEADER_WORDS: usize = 8;

/// The most attempts at a count that other workers change at the same time.
const MAX_TRIES: usize = 1_000;

/// The counts that were lost because the table was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The number of forgotten clients whose requests had not drained away.
    pub rates: u64,
    /// The number of forgotten requests that were in flight.
    pub connections: u64,
}

/// The network of a client that one limit holds for: its IPv4 address, or the first `prefix` bits of its IPv6
/// address. A site gets at least a /64 (RFC 6177), so whole addresses would give one client 2^64 limits.
pub fn client_network(address: IpAddr, prefix: Ipv6Prefix) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let ignored = 128 - u32::from(prefix.get());
            let mask = u128::MAX.checked_shl(ignored).unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address => address,
    }
}

/// What all workers count together.
#[derive(Clone, Copy, Debug)]
pub struct Counts<'m> {
    header: &'m [AtomicU64; HEADER_WORDS],
    rates: Rates<'m>,
    connections: Connections<'m>,
}

impl<'m> Counts<'m> {
    /// Initialises a block of zeroes; `None` if it is too small. `key` is random, so that clients cannot be chosen to
    /// share a set; `birth` distinguishes this block from earlier ones.
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
        // A rate needs a third of a set of 32 bytes, a connection an eighth of one of 64: there is room for more than
        // twice as many rates, since they stay after the request has ended.
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

    /// The table of rates.
    #[inline]
    pub fn rates(&self) -> &Rates<'m> {
        &self.rates
    }

    /// The table of concurrent requests.
    #[inline]
    pub fn connections(&self) -> &Connections<'m> {
        &self.connections
    }

    /// What was forgotten because the table was full.
    pub fn forgotten(&self) -> Forgotten {
        let [.., rates, connections, _] = self.header;
        Forgotten { rates: rates.load(Relaxed), connections: connections.load(Relaxed) }
    }
}

/// The sets of one table.
#[derive(Clone, Copy, Debug)]
struct Sets<'m, const WORDS: usize> {
    all: &'m [[AtomicU64; WORDS]],
    /// What was forgotten, since a set was full.
    forgotten: &'m AtomicU64,
}

impl<'m, const WORDS: usize> Sets<'m, WORDS> {
    /// At most `most` sets in these words; `None` if there are too few words for one.
    fn new(words: &'m [AtomicU64], forgotten: &'m AtomicU64, most: usize) -> Option<Self> {
        let (all, _) = words.as_chunks::<WORDS>();
        let all = all.get(..all.len().min(most))?;
        (!all.is_empty()).then_some(Sets { all, forgotten })
    }

    /// The index and the words of a key's set.
    #[inline]
    fn of(&self, key: u64, bits: u32) -> Option<(usize, &'m [AtomicU64; WORDS])> {
        let index = set_of(key, self.all.len(), bits);
        self.all.get(index).map(|set| (index, set))
    }

    /// The word at a place, counted over all sets.
    #[inline]
    fn word(&self, place: usize) -> Option<&'m AtomicU64> {
        self.all.as_flattened().get(place)
    }

    /// Adds to the number of entries that were forgotten for lack of room.
    #[inline]
    fn forget(&self, count: u64) {
        if count > 0 {
            self.forgotten.fetch_add(count, Relaxed);
        }
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
    fn a_network_of_ipv6_is_one_client_and_ipv4_is_not() {
        let network = |address: &str, prefix| {
            let prefix = Ipv6Prefix::try_from(prefix).unwrap();
            client_network(address.parse().unwrap(), prefix).to_string()
        };
        assert_eq!(network("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2:3:4:5:6", 56), "2001:db8:1::");
        assert_eq!(network("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(network("8001:db8::1", 1), "8000::");
        assert_eq!(network("192.0.2.9", 1), "192.0.2.9");
        assert_eq!(network("::ffff:192.0.2.9", 64), "192.0.2.9");
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
