//! The recent cost of each namespace's patterns for a worker, so that no namespace starves the others.
//!
//! Shape:   a leaky bucket for each namespace whose patterns are expensive: it fills by their cost and drains at a quarter of
//!          the worker's time. While it is over a second's share, a request's patterns of that namespace have [`FREE`] steps
//!          together and none is compiled: cheap patterns still match.
//! Errors:  none; if more namespaces are expensive than are counted, those with the least in their bucket are forgotten.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// What a namespace's patterns may cost a request, in steps, without being counted: less than the request itself.
pub const FREE: u64 = 20_000;
/// Steps that a bucket loses in a microsecond: a quarter of a worker's time, since a step is about a nanosecond.
const PER_MICROSECOND: u64 = 250;
/// Steps in a bucket above which its namespace has little: a second's share.
const MOST: u64 = PER_MICROSECOND * 1_000_000;
/// Namespaces that are counted at a time.
const MAX_NAMESPACES: usize = 1_024;

/// Stands for a namespace: a keyed hash of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Payer(u64);

/// The buckets of a worker.
#[derive(Default)]
pub struct Shares {
    buckets: RefCell<HashMap<Payer, Bucket>>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Bucket {
    steps: u64,
    at: Instant,
}

impl Bucket {
    fn steps(self, now: Instant) -> u64 {
        let micros = now.saturating_duration_since(self.at).as_micros();
        let lost = u64::try_from(micros).unwrap_or(u64::MAX).saturating_mul(PER_MICROSECOND);
        self.steps.saturating_sub(lost)
    }
}

/// What a request's patterns have cost so far, by namespace. Most requests meet one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bill([(Payer, u64); 4]);

impl Bill {
    /// Begins a bill that no pattern has added to.
    pub const fn empty() -> Self {
        Bill([(Payer(0), 0); 4])
    }

    /// Adds to it. What is to be counted now: all of it once it is over [`FREE`], and what makes room for another
    /// namespace.
    fn add(&mut self, payer: Payer, steps: u64) -> [(Payer, u64); 2] {
        let Bill(items) = self;
        if let Some((_, sum)) = items.iter_mut().find(|(one, sum)| *one == payer && *sum > 0) {
            let before = *sum;
            *sum = before.saturating_add(steps);
            let due = match (before > FREE, *sum > FREE) {
                (true, _) => steps,
                (false, true) => *sum,
                (false, false) => 0,
            };
            return [(payer, due), Default::default()];
        }
        let Some(item) = items.iter_mut().min_by_key(|(_, sum)| *sum) else {
            return Default::default();
        };
        let (other, sum) = std::mem::replace(item, (payer, steps));
        let due = |sum: u64, is_over: bool| if is_over { sum } else { 0 };
        [(payer, due(steps, steps > FREE)), (other, due(sum, sum <= FREE))]
    }
}

impl Shares {
    /// The payer for the patterns of a namespace.
    pub fn payer(&self, namespace: &[u8]) -> Payer {
        Payer(self.hasher.hash_one(namespace))
    }

    /// Whether the payer has not exhausted its share.
    pub fn has_more(&self, payer: Payer) -> bool {
        let Ok(buckets) = self.buckets.try_borrow() else { return true };
        // Usually there are no buckets.
        buckets.is_empty()
            || buckets.get(&payer).is_none_or(|bucket| bucket.steps(Instant::now()) <= MOST)
    }

    /// Adds what patterns have cost to the bill of the request, and counts what is due.
    pub fn charge(&self, payer: Payer, steps: u64, bill: &mut Bill) {
        for (payer, due) in bill.add(payer, steps) {
            if due > 0 {
                self.count(payer, due, Instant::now());
            }
        }
    }

    fn count(&self, payer: Payer, steps: u64, now: Instant) {
        let Ok(mut buckets) = self.buckets.try_borrow_mut() else { return };
        if let Some(bucket) = buckets.get_mut(&payer) {
            *bucket = Bucket { steps: bucket.steps(now).saturating_add(steps), at: now };
            return;
        }
        if buckets.len() >= MAX_NAMESPACES {
            buckets.retain(|_, bucket| bucket.steps(now) > 0);
        }
        if buckets.len() >= MAX_NAMESPACES
            && let Some(least) = buckets.iter().min_by_key(|(_, bucket)| bucket.steps(now))
        {
            let least = *least.0;
            buckets.remove(&least);
        }
        buckets.insert(payer, Bucket { steps, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_namespace_waits_for_its_share_and_no_other_does() {
        let shares = Shares::default();
        let (dear, other) = (shares.payer(b"dear"), shares.payer(b"other"));
        let long_ago = Instant::now() - Duration::from_secs(10);
        shares.count(dear, 3 * MOST, long_ago);
        assert!(shares.has_more(dear), "it has waited");
        shares.count(dear, 3 * MOST, Instant::now());
        assert!(!shares.has_more(dear));
        assert!(shares.has_more(other));
        let bucket = shares.buckets.borrow()[&dear];
        assert_eq!(bucket.steps(bucket.at + Duration::from_secs(1)), 2 * MOST);
        assert_eq!(bucket.steps(bucket.at + Duration::from_secs(9)), 0);
    }

    #[test]
    fn what_is_cheap_is_not_counted_and_namespaces_are_bounded() {
        let shares = Shares::default();
        shares.charge(shares.payer(b"cheap"), FREE, &mut Bill::default());
        assert!(shares.buckets.borrow().is_empty());
        let now = Instant::now();
        let dearest = shares.payer(b"dearest");
        shares.count(dearest, 3 * MOST, now);
        for n in 0..2 * MAX_NAMESPACES {
            shares.count(shares.payer(format!("n{n}").as_bytes()), MOST, now);
        }
        assert_eq!(shares.buckets.borrow().len(), MAX_NAMESPACES);
        assert!(!shares.has_more(dearest), "the payer with the least is forgotten");
    }

    /// Many patterns just under what is free, of one namespace or of several in turn.
    #[test]
    fn many_cheap_patterns_of_a_request_are_dear_together() {
        for namespaces in [1, 2, 4, 7] {
            let shares = Shares::default();
            let payers: Vec<_> = (0..namespaces).map(|n| shares.payer(&[n])).collect();
            let mut bill = Bill::default();
            let (start, each) = (Instant::now(), 150);
            for _ in 0..each {
                payers.iter().for_each(|payer| shares.charge(*payer, FREE - 1, &mut bill));
            }
            let buckets = shares.buckets.borrow();
            let counted: u64 = buckets.values().map(|b| b.steps(b.at)).sum();
            let all = each * u64::from(namespaces) * (FREE - 1);
            // What buckets lose while this test runs, which others may hold up, is lost to it.
            let lost = u64::try_from(start.elapsed().as_micros()).unwrap() + 2_000;
            assert!(counted + 4 * FREE + lost * PER_MICROSECOND * 8 >= all, "{counted} of {all}");
        }
    }
}
