//! Idle upstream connections: which to use again, which to give up.
//!
//! Shape:   one [`Idle`] a worker and upstream. Entries are in one array; indexes link them by age, and those
//!          whose keys have the same hash by age too. The newest connection of a key is reused first (its endpoint is the
//!          least likely to have closed it), and the oldest of all goes when there is no room.
//! Cost:    a constant for each call, apart from entries of other keys in the same chain; no allocation
//!          after `new`. With twice as many chains as entries, a chain has half a foreign entry on average.
//! Errors:  none. A place without an entry has no value.
//! Source:  nginx's keepalive module, which looks at every connection of every endpoint.

use crate::balancer::Identity;
use std::num::NonZeroU32;

/// After so long a connection is looked at before it is used again. Endpoints close what waits for several seconds, and
/// nginx has mostly noticed that by then.
const LOOK_AFTER_MSEC: u64 = 1_000;

/// Whether a connection that has waited so long is to be looked at before it is used: its endpoint may have closed it.
/// `is_repeated`: nginx sends the request again where it finds the connection closed.
#[inline]
pub fn needs_look(waited_msec: u64, is_repeated: bool) -> bool {
    !is_repeated || waited_msec >= LOOK_AFTER_MSEC
}

/// What two requests have in common that may use one connection after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleKey {
    /// The hash of the backend's id in this zone; it is keyed, so that ids cannot be chosen to collide.
    pub backend: u64,
    /// A number for HTTP, gRPC, FastCGI and so on, which must not share connections.
    pub protocol: u64,
    /// A keyed hash of what decided its TLS handshake and its local address; 0 for plain connections that
    /// the kernel gave an address.
    pub identity: u64,
    /// The endpoint it leads to.
    pub endpoint: Identity,
}

impl IdleKey {
    /// Cheap: the backend's hash is random already, and no attacker chooses the rest freely.
    #[inline]
    fn hash(&self) -> u32 {
        let mut hash = self.backend ^ self.protocol.rotate_left(32) ^ self.identity.rotate_left(17);
        // 8 + 8 + 3 bytes of the endpoint.
        let (words, rest) = self.endpoint.as_chunks::<8>();
        let rest = rest.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        for word in words.iter().map(|word| u64::from_le_bytes(*word)).chain([rest]) {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        (hash >> 32) as u32
    }
}

/// The place of an entry, from [`Idle::put`] until it is reused, removed or evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleSlot(pub u32);

/// No place: the array is never that long.
const NONE: u32 = u32::MAX;

/// A neighbour on either side.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

const ALONE: Link = Link { newer: NONE, older: NONE };

#[derive(Debug)]
struct Entry<V> {
    key: IdleKey,
    /// `None` in a free entry, whose `age.older` is then the next free one.
    value: Option<V>,
    age: Link,
    chain: Link,
    head: u32,
}

/// A pool of idle connections; `V` identifies one.
#[derive(Debug)]
pub struct Idle<V> {
    entries: Vec<Entry<V>>,
    capacity: u32,
    /// The newest of each chain; a power of two of them.
    heads: Vec<u32>,
    newest: u32,
    oldest: u32,
    free: u32,
    count: u32,
}

impl<V> Idle<V> {
    /// A pool without entries, with memory for `capacity` of them.
    pub fn new(capacity: NonZeroU32) -> Self {
        let capacity = capacity.get().min(1 << 30);
        Idle {
            entries: Vec::with_capacity(capacity as usize),
            capacity,
            heads: vec![NONE; (capacity * 2).next_power_of_two() as usize],
            newest: NONE,
            oldest: NONE,
            free: NONE,
            count: 0,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the pool has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the newest entry of a key out.
    #[inline]
    pub fn take(&mut self, key: &IdleKey) -> Option<V> {
        let mut place = *self.heads.get(self.head_of(key))?;
        while let Some(entry) = self.entries.get(place as usize) {
            if entry.key == *key {
                return self.remove(IdleSlot(place));
            }
            place = entry.chain.older;
        }
        None
    }

    /// Adds an entry as the newest; answers its place, and the oldest one's value if that had to give way.
    #[inline]
    pub fn put(&mut self, key: IdleKey, value: V) -> (IdleSlot, Option<V>) {
        let given_up = if self.count == self.capacity { self.pop_oldest() } else { None };
        let head = self.head_of(&key);
        let chain_newest = self.heads.get(head).copied().unwrap_or(NONE);
        let entry = Entry {
            key,
            value: Some(value),
            age: Link { older: self.newest, ..ALONE },
            chain: Link { older: chain_newest, ..ALONE },
            head: head as u32,
        };
        let place = if let Some(free) = self.entries.get_mut(self.free as usize) {
            let place = std::mem::replace(&mut self.free, free.age.older);
            *free = entry;
            place
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        match self.entries.get_mut(self.newest as usize) {
            Some(newest) => newest.age.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        if let Some(newest) = self.entries.get_mut(chain_newest as usize) {
            newest.chain.newer = place;
        }
        if let Some(first) = self.heads.get_mut(head) {
            *first = place;
        }
        self.count += 1;
        (IdleSlot(place), given_up)
    }

    /// Removes the entry at a place and returns its connection.
    #[inline]
    pub fn remove(&mut self, place: IdleSlot) -> Option<V> {
        let entry = self.entries.get_mut(place.0 as usize)?;
        let value = entry.value.take()?;
        let (age, chain, head) = (entry.age, entry.chain, entry.head);
        entry.age.older = std::mem::replace(&mut self.free, place.0);
        self.count -= 1;
        match self.entries.get_mut(age.newer as usize) {
            Some(newer) => newer.age.older = age.older,
            None => self.newest = age.older,
        }
        match self.entries.get_mut(age.older as usize) {
            Some(older) => older.age.newer = age.newer,
            None => self.oldest = age.newer,
        }
        if let Some(newer) = self.entries.get_mut(chain.newer as usize) {
            newer.chain.older = chain.older;
        } else if let Some(first) = self.heads.get_mut(head as usize) {
            *first = chain.older;
        }
        if let Some(older) = self.entries.get_mut(chain.older as usize) {
            older.chain.newer = chain.newer;
        }
        Some(value)
    }

    /// The value of the entry that waits longest.
    pub fn oldest(&self) -> Option<&V> {
        self.entries.get(self.oldest as usize)?.value.as_ref()
    }

    /// Takes the entry out that waits longest.
    pub fn pop_oldest(&mut self) -> Option<V> {
        self.remove(IdleSlot(self.oldest))
    }

    /// The entry at a place, if there is one.
    pub fn at(&self, place: IdleSlot) -> Option<(&IdleKey, &V)> {
        let entry = self.entries.get(place.0 as usize)?;
        Some((&entry.key, entry.value.as_ref()?))
    }

    /// All places that were ever used are below this one.
    pub fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline]
    fn head_of(&self, key: &IdleKey) -> usize {
        key.hash() as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(backend: u64, port: u8) -> IdleKey {
        let mut endpoint = [0; 19];
        endpoint[16] = port;
        IdleKey { backend, protocol: 1, identity: 0, endpoint }
    }

    fn idle(capacity: u32) -> Idle<u32> {
        Idle::new(capacity.try_into().unwrap())
    }

    #[test]
    fn only_a_request_that_is_repeated_uses_what_became_idle_lately_without_a_look() {
        assert!(!needs_look(0, true) && !needs_look(999, true));
        assert!(needs_look(1_000, true) && needs_look(u64::MAX, true));
        assert!(needs_look(0, false) && needs_look(60_000, false));
    }

    #[test]
    fn the_newest_of_a_key_is_taken_first() {
        let mut idle = idle(8);
        for value in 0..3 {
            idle.put(key(1, 1), value);
            idle.put(key(1, 2), 10 + value);
        }
        assert_eq!([idle.take(&key(1, 1)), idle.take(&key(1, 1))], [Some(2), Some(1)]);
        assert_eq!(idle.take(&key(1, 2)), Some(12));
        assert_eq!([idle.take(&key(1, 1)), idle.take(&key(1, 1))], [Some(0), None]);
    }

    #[test]
    fn keys_that_differ_in_any_field_are_strangers() {
        let one = key(1, 1);
        let others = [
            IdleKey { backend: 2, ..one },
            IdleKey { protocol: 2, ..one },
            IdleKey { identity: 2, ..one },
            IdleKey { endpoint: [9; 19], ..one },
        ];
        let mut idle = idle(8);
        idle.put(one, 7);
        assert!(others.iter().all(|other| idle.take(other).is_none()));
        assert_eq!(idle.take(&one), Some(7));
    }

    #[test]
    fn the_oldest_gives_way_when_there_is_no_room() {
        let mut idle = idle(2);
        assert_eq!(idle.put(key(1, 1), 1).1, None);
        assert_eq!(idle.put(key(1, 2), 2).1, None);
        assert_eq!(idle.put(key(1, 3), 3).1, Some(1));
        assert_eq!((idle.len(), idle.oldest()), (2, Some(&2)));
        assert_eq!(idle.take(&key(1, 1)), None);
    }

    #[test]
    fn a_place_that_is_nobodys_is_nothing() {
        let mut idle = idle(2);
        let (place, _) = idle.put(key(1, 1), 1);
        assert_eq!(idle.remove(place), Some(1));
        assert_eq!(idle.remove(place), None);
        assert_eq!(idle.remove(IdleSlot(NONE)), None);
        assert!(idle.at(place).is_none());
        assert_eq!(idle.pop_oldest(), None);
    }

    #[test]
    fn nothing_is_allocated_after_the_start() {
        let mut idle = idle(16);
        let before = (idle.entries.capacity(), idle.heads.len());
        for round in 0..1000 {
            idle.put(key(round % 5, (round % 7) as u8), round as u32);
            if round % 3 == 0 {
                idle.take(&key(round % 5, 0));
            }
        }
        assert_eq!((idle.entries.capacity(), idle.heads.len()), before);
        assert!(idle.places() <= 16);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u8),
        Take(u64, u8),
        Remove(usize),
        PopOldest,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3_u64, 0..3_u8).prop_map(|(b, e)| Step::Put(b, e)),
            3 => (0..3_u64, 0..3_u8).prop_map(|(b, e)| Step::Take(b, e)),
            2 => (0..16_usize).prop_map(Step::Remove),
            1 => Just(Step::PopOldest),
        ]
    }

    proptest! {
        /// The model: a list, the newest last, searched from the end.
        #[test]
        fn it_does_what_a_plain_list_does(
            capacity in 1..6_u32,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut idle = idle(capacity);
            let mut list: Vec<(IdleKey, u32, IdleSlot)> = Vec::new();
            for (value, step) in (0..).zip(steps) {
                match step {
                    Step::Put(backend, endpoint) => {
                        let full = list.len() == capacity as usize;
                        let oldest = full.then(|| list.remove(0).1);
                        let (place, given_up) = idle.put(key(backend, endpoint), value);
                        prop_assert_eq!(given_up, oldest);
                        list.push((key(backend, endpoint), value, place));
                    }
                    Step::Take(backend, endpoint) => {
                        let key = key(backend, endpoint);
                        let found = list.iter().rposition(|(known, ..)| *known == key);
                        let expected = found.map(|index| list.remove(index).1);
                        prop_assert_eq!(idle.take(&key), expected);
                    }
                    Step::Remove(index) if index < list.len() => {
                        let (_, value, place) = list.remove(index);
                        prop_assert_eq!(idle.remove(place), Some(value));
                    }
                    Step::Remove(_) => {}
                    Step::PopOldest => {
                        let expected = (!list.is_empty()).then(|| list.remove(0).1);
                        prop_assert_eq!(idle.pop_oldest(), expected);
                    }
                }
                prop_assert_eq!(idle.len(), list.len());
                prop_assert_eq!(idle.oldest(), list.first().map(|(_, value, _)| value));
                let mut seen: Vec<_> =
                    (0..idle.places()).filter_map(|n| idle.at(IdleSlot(n)).map(|(_, v)| *v)).collect();
                let mut expected: Vec<_> = list.iter().map(|(_, value, _)| *value).collect();
                seen.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(seen, expected);
            }
        }
    }
}
