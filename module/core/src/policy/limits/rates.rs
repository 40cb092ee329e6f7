//! Leaky buckets, one a key: nginx's `limit_req` with `nodelay`.
//!
//! Shape:   a set is four words. The first has the tags of its three members, 21 bits each; 0 is a free place.
//!          The others hold when each one's requests have drained away. One word decides about membership, so a key
//!          never has two places.
//! Exact:   of one key never more than `rate * time + burst + 1` requests are admitted, by any number of threads,
//!          as long as no other key replaces it. A fourth key in a set replaces one that has drained, which
//!          loses nothing; else of the one that drains first, which is counted.

use super::{MAX_TRIES, Sets};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const SET_WORDS: usize = 4;
const MEMBERS: usize = SET_WORDS - 1;
const TAG_BITS: u32 = 21;
const TAG: u64 = (1 << TAG_BITS) - 1;
/// Of the hash, that choose the set.
const INDEX_BITS: u32 = 40;

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// One request drains away in this time. Rounded up: never more than the rate.
    interval: u64,
    /// So much may be left of those before.
    tolerance: u64,
}

impl Bucket {
    /// `requests` in each `unit`, and `burst` at once above that; no requests at all if that is 0.
    pub fn new(requests: u32, unit: Duration, burst: u32) -> Self {
        let unit = u64::try_from(unit.as_nanos()).unwrap_or(u64::MAX);
        if requests == 0 {
            return Bucket { interval: 0, tolerance: 0 };
        }
        let interval = unit.div_ceil(u64::from(requests)).max(1);
        Bucket { interval, tolerance: interval.saturating_mul(u64::from(burst)) }
    }

    fn is_closed(&self) -> bool {
        self.interval == 0
    }
}

/// A request that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    place: usize,
    before: u64,
    after: u64,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request is within the rate.
    Admitted(Charge),
    /// It is above the rate and the burst by so many thousandths of a request.
    Refused {
        /// The excess over the rate in thousandths, as nginx logs it.
        excess_milli: u64,
    },
}

/// The buckets of all clients and rates.
#[derive(Clone, Copy, Debug)]
pub struct Rates<'m> {
    sets: Sets<'m, SET_WORDS>,
}

impl<'m> Rates<'m> {
    /// The buckets in these words; `None` if there are too few.
    pub(super) fn new(words: &'m [AtomicU64], forgotten: &'m AtomicU64) -> Option<Self> {
        Some(Rates { sets: Sets::new(words, forgotten, usize::MAX)? })
    }

    /// How many clients have a place.
    pub fn capacity(&self) -> usize {
        self.sets.all.len() * MEMBERS
    }

    /// Counts a request of `key` if there is room for it.
    ///
    /// The clock is read after the word that it is compared with: so no count is from later than that.
    #[inline]
    pub fn take(&self, key: u64, bucket: &Bucket, clock: impl Fn() -> u64) -> Admission {
        let refused = Admission::Refused { excess_milli: 0 };
        let set = self.sets.of(key, INDEX_BITS);
        let Some((index, set)) = set.filter(|_| !bucket.is_closed()) else {
            return refused;
        };
        let tag = tag(key);
        for _ in 0..MAX_TRIES {
            let members = set[0].load(SeqCst);
            let Some(member) = member(members, tag) else {
                self.join(set, members, tag, clock());
                continue;
            };
            let Some(cell) = set.get(1 + member) else { return refused };
            let before = cell.load(SeqCst);
            let now = clock();
            let ahead = before.saturating_sub(now);
            if ahead > bucket.tolerance {
                let most = bucket.tolerance.saturating_add(bucket.interval);
                // Counted by a slower rate, before the configuration changed: from now on by this one.
                if ahead > most && is_member(set, member, tag) {
                    let until = now.saturating_add(most);
                    let _ = cell.compare_exchange(before, until, SeqCst, SeqCst);
                }
                let above = (ahead - bucket.tolerance).min(bucket.interval);
                let excess_milli = u128::from(above) * 1_000 / u128::from(bucket.interval);
                return Admission::Refused { excess_milli: excess_milli as u64 };
            }
            let after = before.max(now).saturating_add(bucket.interval);
            if cell.compare_exchange(before, after, SeqCst, SeqCst).is_err() {
                continue;
            }
            // Another key may have replaced this one meanwhile: then it is charged, and this one counts again.
            if is_member(set, member, tag) {
                let place = index * SET_WORDS + 1 + member;
                return Admission::Admitted(Charge { place, before, after });
            }
        }
        refused
    }

    /// Refunds a request that was refused by a later check, unless the bucket has changed since.
    pub fn refund(&self, charge: &Charge) {
        let cell = self.sets.word(charge.place);
        // If another key has replaced this one, the word differs.
        let _ = cell.map(|cell| cell.compare_exchange(charge.after, charge.before, SeqCst, SeqCst));
    }

    /// Tries to make a key a member of its set; the caller looks whether it became one.
    #[cold]
    fn join(&self, set: &[AtomicU64; SET_WORDS], members: u64, new: u64, now: u64) {
        let until = |member: usize| set.get(1 + member).map_or(0, |until| until.load(SeqCst));
        let free = (0..MEMBERS).find(|member| tag_at(members, *member) == 0);
        let first = || (0..MEMBERS).min_by_key(|member| until(*member));
        let Some(member) = free.or_else(first) else { return };
        let left = until(member);
        if left > now {
            // The word is emptied before the tag changes: a request that counts in between is counted, if for another
            // key.
            let cell = set.get(1 + member);
            let emptied = cell.map(|cell| cell.compare_exchange(left, 0, SeqCst, SeqCst));
            if !matches!(emptied, Some(Ok(_))) {
                return;
            }
            self.sets.forget(1);
        }
        let place = member as u32 * TAG_BITS;
        let next = members & !(TAG << place) | new << place;
        let _ = set[0].compare_exchange(members, next, SeqCst, SeqCst);
    }
}

/// A tag of a key; never 0, which marks a free set.
#[inline]
fn tag(key: u64) -> u64 {
    (key & TAG).max(1)
}

#[inline]
fn tag_at(members: u64, member: usize) -> u64 {
    members >> (member as u32 * TAG_BITS) & TAG
}

#[inline]
fn member(members: u64, tag: u64) -> Option<usize> {
    (0..MEMBERS).find(|member| tag_at(members, *member) == tag)
}

#[inline]
fn is_member(set: &[AtomicU64; SET_WORDS], place: usize, tag: u64) -> bool {
    tag_at(set[0].load(SeqCst), place) == tag
}

#[cfg(test)]
mod tests;
