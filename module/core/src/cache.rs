//! What a worker has made of records and patterns, up to a number of bytes.
//!
//! Shape:   entries by key, each with the version of what it was made from. The oldest entry makes room, unless it was used
//!          since it came: then it stays for one more round.
//! Cost:    constant for each use and, since at most [`MAX_SPARED`] entries stay for another round at a time, for each
//!          insertion; nothing is moved or linked on use, so a hit writes one flag.
//! Rejected: `quick_cache`, whose shards, locks and background estimates serve threads that a worker does not have; `lru`,
//!          which counts entries and not bytes.

pub mod recent;

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::rc::Rc;

/// A cache bounded by bytes. A single entry may exceed the bound: then it is alone.
pub struct Cache<V, K = Rc<[u8]>, S = RandomState> {
    entries: HashMap<K, Entry<V>, S>,
    /// The keys of all entries, the next to go first.
    queue: VecDeque<K>,
    max_bytes: usize,
    bytes: usize,
}

struct Entry<V> {
    version: u64,
    value: V,
    bytes: usize,
    was_used: bool,
}

/// The most entries that stay for another round when a new one comes, some tens of microseconds' worth. Each must have been
/// used since the last time.
const MAX_SPARED: usize = 1_000;

impl<V, K: Hash + Eq + Clone, S: BuildHasher + Default> Cache<V, K, S> {
    /// An empty cache with room for `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        let entries = HashMap::with_hasher(S::default());
        Cache { entries, queue: VecDeque::new(), max_bytes, bytes: 0 }
    }

    /// The value of a key if it was made from this version.
    pub fn find<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, version: u64) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.get_mut(key).filter(|entry| entry.version == version)?;
        entry.was_used = true;
        Some(&entry.value)
    }

    /// The value of a key, made with its bytes if the cache has none of this version; `None` if it cannot be made.
    pub fn get<'q, Q: Hash + Eq + ?Sized>(
        &mut self,
        key: &'q Q,
        version: u64,
        make: impl FnOnce() -> Option<(V, usize)>,
    ) -> Option<&V>
    where
        K: Borrow<Q> + From<&'q Q>,
    {
        if self.entries.get(key).is_none_or(|entry| entry.version != version) {
            let (value, bytes) = make()?;
            self.insert(key.into(), version, value, bytes);
            // This is no use of it yet: what is asked for once makes no room for itself.
            return self.entries.get(key).map(|entry| &entry.value);
        }
        self.find(key, version)
    }

    /// Adds a value and its size, in place of the key's former one.
    pub fn insert(&mut self, key: K, version: u64, value: V, bytes: usize) {
        self.insert_and(key, version, value, bytes, drop);
    }

    /// Does what [`Self::insert`] does, and gives away the values that leave the cache.
    pub fn insert_and(
        &mut self,
        key: K,
        version: u64,
        value: V,
        bytes: usize,
        mut leaves: impl FnMut(V),
    ) {
        self.bytes += bytes;
        let entry = Entry { version, value, bytes, was_used: false };
        match self.entries.insert(key.clone(), entry) {
            Some(old) => {
                self.bytes -= old.bytes;
                leaves(old.value);
            }
            None => self.queue.push_back(key.clone()),
        }
        let mut spared = 0;
        while self.bytes > self.max_bytes && self.queue.len() > 1 {
            let Some(oldest) = self.queue.pop_front() else { return };
            match self.entries.get_mut(&oldest) {
                _ if oldest == key => self.queue.push_back(oldest),
                Some(entry) if entry.was_used && spared < MAX_SPARED => {
                    (entry.was_used, spared) = (false, spared + 1);
                    self.queue.push_back(oldest);
                }
                _ => {
                    let Some(entry) = self.entries.remove(&oldest) else { continue };
                    self.bytes -= entry.bytes;
                    leaves(entry.value);
                }
            }
        }
    }

    /// How many entries are kept now, whatever their bytes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all entries together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(cache: &mut Cache<usize>, key: &str, version: u64, bytes: usize) -> bool {
        let mut is_made = false;
        let value = cache.get(key.as_bytes(), version, || {
            is_made = true;
            Some((bytes, bytes))
        });
        assert_eq!(value, Some(&bytes));
        is_made
    }

    fn check(cache: &Cache<usize>) {
        assert_eq!(cache.entries.len(), cache.queue.len());
        assert_eq!(cache.entries.values().map(|entry| entry.bytes).sum::<usize>(), cache.bytes());
        assert!(cache.bytes() <= cache.max_bytes || cache.len() == 1);
    }

    #[test]
    fn an_entry_that_is_used_outlives_those_that_are_not() {
        let mut cache = Cache::new(1_000);
        let mut often = 0;
        for n in 0..500 {
            assert!(made(&mut cache, &n.to_string(), 0, 10 + n % 7));
            often += usize::from(made(&mut cache, "often", 0, 50));
            check(&cache);
        }
        assert_eq!(often, 1, "made once");
        assert!(cache.len() > 10);
        assert!(made(&mut cache, "0", 0, 10), "it went long ago");
    }

    #[test]
    fn each_value_that_leaves_is_given_away() {
        let (mut cache, mut left) = (Cache::<_, u8>::new(100), Vec::new());
        for (key, version, value) in [(1, 0, "a"), (2, 0, "b"), (1, 1, "c"), (3, 0, "d")] {
            cache.insert_and(key, version, value, 40, |value| left.push(value));
        }
        assert_eq!((left, cache.bytes()), (vec!["a", "c"], 80));
    }

    #[test]
    fn another_version_takes_the_place_of_the_former_one() {
        let mut cache = Cache::new(100);
        assert!(made(&mut cache, "a", 1, 30) && !made(&mut cache, "a", 1, 30));
        assert!(made(&mut cache, "b", 1, 30) && made(&mut cache, "a", 2, 60));
        check(&cache);
        assert_eq!((cache.len(), cache.bytes()), (2, 90));
        assert!(cache.find(&b"a"[..], 1).is_none() && cache.find(&b"a"[..], 2).is_some());
    }

    #[test]
    fn an_entry_above_the_bound_is_alone_and_one_that_cannot_be_made_changes_nothing() {
        let mut cache = Cache::new(100);
        assert!(made(&mut cache, "a", 0, 40) && made(&mut cache, "b", 0, 40));
        assert_eq!(cache.get(&b"c"[..], 0, || None), None);
        assert_eq!(cache.len(), 2);
        assert!(made(&mut cache, "large", 0, 400));
        check(&cache);
        assert!(made(&mut cache, "large", 1, 400) && !made(&mut cache, "large", 1, 400));
        assert!(made(&mut cache, "a", 0, 40));
        assert!(!cache.is_empty() && cache.find(&b"large"[..], 1).is_none());
    }

    #[test]
    fn few_entries_are_spared_at_a_time() {
        let many = 2 * MAX_SPARED;
        let mut cache = Cache::new(10 * many);
        for n in 0..many {
            made(&mut cache, &n.to_string(), 0, 10);
            made(&mut cache, &n.to_string(), 0, 10);
        }
        made(&mut cache, "new", 0, 10);
        let unused = cache.entries.values().filter(|entry| !entry.was_used).count();
        assert_eq!((cache.len(), unused), (many, MAX_SPARED + 1), "those and the new one");
        check(&cache);
    }

    #[test]
    fn what_is_asked_for_once_goes_before_what_is_used() {
        let mut cache = Cache::new(1_000);
        made(&mut cache, "used", 0, 10);
        for n in 0..1_000 {
            assert!(!made(&mut cache, "used", 0, 10), "made again at {n}");
            made(&mut cache, &n.to_string(), 0, 10);
        }
        check(&cache);
    }
}
