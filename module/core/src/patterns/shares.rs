//! What the patterns of each namespace have cost a worker of late, so that none takes the worker from the others.
//!
//! Shape:   a bucket for each namespace whose patterns are dear: it fills by what they cost and empties at a quarter of
//!          the worker's time. While it is over a second's share, the patterns of that namespace have no answer.
//! Errors:  none; where more namespaces are dear than are counted, those that owe least are forgotten.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

/// What a request's patterns may cost, in steps, without being counted: less than the request itself.
const FREE: u64 = 20_000;
/// Steps that a bucket loses in a microsecond: a quarter of a worker's time, since a step is about a nanosecond.
const PER_MICROSECOND: u64 = 250;
/// Steps in a bucket above which its namespace has to wait: a second's share.
const MOST: u64 = PER_MICROSECOND * 1_000_000;
/// Namespaces that are counted at a time.
const MAX_NAMESPACES: usize = 1_024;

/// The buckets of a worker.
#[derive(Default)]
pub struct Shares(RefCell<HashMap<Box<[u8]>, Bucket>>);

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

impl Shares {
    /// Whether the patterns of a namespace may run.
    pub fn may_run(&self, namespace: &[u8]) -> bool {
        let Ok(buckets) = self.0.try_borrow() else { return true };
        // Mostly nobody is dear.
        buckets.is_empty()
            || buckets.get(namespace).is_none_or(|bucket| bucket.steps(Instant::now()) <= MOST)
    }

    /// Counts what a request's patterns have cost.
    pub fn charge(&self, namespace: &[u8], steps: u64) {
        if steps > FREE {
            self.charge_at(namespace, steps, Instant::now());
        }
    }

    fn charge_at(&self, namespace: &[u8], steps: u64, now: Instant) {
        let Ok(mut buckets) = self.0.try_borrow_mut() else { return };
        if let Some(bucket) = buckets.get_mut(namespace) {
            *bucket = Bucket { steps: bucket.steps(now).saturating_add(steps), at: now };
            return;
        }
        if buckets.len() >= MAX_NAMESPACES {
            buckets.retain(|_, bucket| bucket.steps(now) > 0);
        }
        if buckets.len() >= MAX_NAMESPACES
            && let Some(least) = buckets.iter().min_by_key(|(_, bucket)| bucket.steps(now))
        {
            let least = least.0.clone();
            buckets.remove(&least);
        }
        buckets.insert(namespace.into(), Bucket { steps, at: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_namespace_waits_for_its_share_and_no_other_does() {
        let shares = Shares::default();
        let long_ago = Instant::now() - Duration::from_secs(10);
        shares.charge_at(b"dear", 3 * MOST, long_ago);
        assert!(shares.may_run(b"dear"), "it has waited");
        shares.charge_at(b"dear", 3 * MOST, Instant::now());
        assert!(!shares.may_run(b"dear"));
        assert!(shares.may_run(b"other"));
        let bucket = shares.0.borrow()[&b"dear"[..]];
        assert_eq!(bucket.steps(bucket.at + Duration::from_secs(1)), 2 * MOST);
        assert_eq!(bucket.steps(bucket.at + Duration::from_secs(9)), 0);
    }

    #[test]
    fn cheap_patterns_are_not_counted_and_namespaces_are_bounded() {
        let shares = Shares::default();
        shares.charge(b"cheap", FREE);
        assert!(shares.0.borrow().is_empty());
        let now = Instant::now();
        shares.charge_at(b"dearest", 3 * MOST, now);
        for n in 0..2 * MAX_NAMESPACES {
            shares.charge_at(format!("n{n}").as_bytes(), MOST, now);
        }
        assert_eq!(shares.0.borrow().len(), MAX_NAMESPACES);
        assert!(!shares.may_run(b"dearest"), "who owes least is forgotten");
    }
}
