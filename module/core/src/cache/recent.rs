//! What was found lately in one generation of records, under short keys: a look-up that costs no keyed hash.
//!
//! Shape:   a table of a fixed size, made with the first entry. Each key has one place in it, which another key with the same
//!          place takes over. An entry holds for the generation that it was found in: after a write nothing is known.
//! Cost:    a comparison of the key. Whoever chooses keys that share a place makes others look up what they would have looked up
//!          without the table, and no more: so the place is no keyed hash.
//! Errors:  none; a key that is too long is never known.
//! Rejected: a hash map, which has to be emptied after each write, and lets clients choose how many names it holds.

use std::cell::RefCell;
use std::fmt;

/// Longer keys are not kept; nearly all hosts and ids of backends are shorter.
const MAX_KEY: usize = 63;
const PLACES: usize = 256;

/// Values of type `V` by key.
pub struct Recent<V>(RefCell<Vec<Entry<V>>>);

#[derive(Clone, Copy)]
struct Entry<V> {
    generation: u64,
    length: u8,
    key: [u8; MAX_KEY],
    value: Option<V>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Recent(RefCell::default())
    }
}

impl<V> fmt::Debug for Recent<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

impl<V: Copy> Recent<V> {
    /// What was found under a key in this generation, or what `find` finds now.
    #[inline]
    pub fn find(&self, generation: u64, key: &[u8], find: impl FnOnce() -> V) -> V {
        if let Some(value) = self.get(generation, key) {
            return value;
        }
        let value = find();
        self.put(generation, key, value);
        value
    }

    #[inline]
    fn get(&self, generation: u64, key: &[u8]) -> Option<V> {
        let entries = self.0.try_borrow().ok()?;
        let entry = entries.get(place(key))?;
        let is_it = entry.generation == generation
            && usize::from(entry.length) == key.len()
            && entry.key.get(..key.len()) == Some(key);
        if is_it { entry.value } else { None }
    }

    #[cold]
    fn put(&self, generation: u64, key: &[u8], value: V) {
        let Ok(mut entries) = self.0.try_borrow_mut() else { return };
        if key.len() > MAX_KEY {
            return;
        }
        if entries.is_empty() {
            let none = Entry { generation: 0, length: 0, key: [0; MAX_KEY], value: None };
            entries.resize(PLACES, none);
        }
        let Some(entry) = entries.get_mut(place(key)) else { return };
        let Some(kept) = entry.key.get_mut(..key.len()) else { return };
        kept.copy_from_slice(key);
        (entry.generation, entry.length, entry.value) = (generation, key.len() as u8, Some(value));
    }
}

/// The place of a key: of its first and last bytes, in which hosts and ids differ, and its length.
#[inline]
fn place(key: &[u8]) -> usize {
    let ends = match (key.first_chunk(), key.last_chunk()) {
        (Some(first), Some(last)) => [u64::from_le_bytes(*first), u64::from_le_bytes(*last)],
        _ => [key.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)), 0],
    };
    let [first, last] = ends;
    let mixed = (first ^ last.rotate_left(29)).wrapping_add(key.len() as u64);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_found_before_a_write_is_not_known_after_it() {
        let recent = Recent::default();
        assert_eq!(recent.find(1, b"a.test", || 7), 7);
        assert_eq!(recent.find(1, b"a.test", || 0), 7);
        assert_eq!([recent.get(2, b"a.test"), recent.get(0, b"a.test")], [None, None]);
        assert_eq!(recent.find(2, b"a.test", || 8), 8);
        assert_eq!([recent.get(2, b"a.test"), recent.get(1, b"a.test")], [Some(8), None]);
    }

    #[test]
    fn a_key_has_what_was_found_under_it_and_not_under_another_one_of_its_place() {
        let recent = Recent::default();
        // They differ where the place does not look.
        let (one, other) = (b"abcdefgh-one-12345678", b"abcdefgh-two-12345678");
        assert_eq!(place(one), place(other));
        recent.put(1, one, 1);
        assert_eq!([recent.get(1, one), recent.get(1, other)], [Some(1), None]);
        recent.put(1, other, 2);
        assert_eq!([recent.get(1, one), recent.get(1, other)], [None, Some(2)]);
        assert_eq!(recent.get(1, b"abcdefgh"), None);
    }

    #[test]
    fn an_empty_key_is_a_key_and_one_that_is_too_long_is_found_each_time() {
        let recent = Recent::default();
        recent.put(0, b"a", 1);
        assert_eq!(recent.get(0, b""), None, "nothing is known of a place that was never used");
        recent.put(0, b"", 2);
        recent.put(0, &[b'a'; 63], 3);
        assert_eq!([recent.get(0, b""), recent.get(0, &[b'a'; 63])], [Some(2), Some(3)]);
        assert_eq!([4, 5].map(|found| recent.find(0, &[b'a'; 64], || found)), [4, 5]);
    }

    #[test]
    fn what_is_looked_up_may_look_something_up() {
        let recent = Recent::default();
        assert_eq!(recent.find(1, b"a", || recent.find(1, b"b", || 1) + 1), 2);
        assert_eq!([recent.get(1, b"a"), recent.get(1, b"b")], [Some(2), Some(1)]);
    }

    proptest! {
        /// The model: the last value of each key and generation, or nothing.
        #[test]
        fn it_never_says_what_is_not_so(
            steps in prop::collection::vec((0..3_u64, "[ab]{0,9}", any::<u32>()), 0..200),
        ) {
            let (recent, mut known) = (Recent::default(), std::collections::HashMap::new());
            for (generation, key, value) in steps {
                if let Some(found) = recent.get(generation, key.as_bytes()) {
                    prop_assert_eq!(known.get(&(generation, key.clone())), Some(&found));
                }
                recent.put(generation, key.as_bytes(), value);
                known.insert((generation, key.clone()), value);
                prop_assert_eq!(recent.get(generation, key.as_bytes()), Some(value));
            }
        }
    }
}
