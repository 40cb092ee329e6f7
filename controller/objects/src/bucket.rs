//! What somebody may ask for over time.
//!
//! Shape:   a bucket is full at first, is drawn from, and fills steadily. It has no clock: the caller says what time it is.
//! Units:   the caller's own. What is left is a whole number of them, so a unit is chosen small beside what is drawn.

use std::time::{Duration, Instant};

/// How much a bucket holds, and how long it takes to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What a full bucket holds.
    pub full: u64,
    /// The time in which an empty bucket becomes full.
    pub period: Duration,
}

/// What is left of a [`Rate`], or owed.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    left: u64,
    /// What was drawn beyond that, which comes back first.
    owed: u64,
    at: Instant,
}

impl Bucket {
    /// Makes a bucket that is full now.
    pub fn full(rate: Rate, now: Instant) -> Self {
        Bucket { rate, left: rate.full, owed: 0, at: now }
    }

    /// How much it holds, and how long it takes to fill.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// What can be drawn now.
    pub fn left(&self, now: Instant) -> u64 {
        self.settled(now).0
    }

    /// What has to come back before anything can be drawn.
    pub fn owed(&self, now: Instant) -> u64 {
        self.settled(now).1
    }

    /// Whether nothing was drawn lately.
    pub fn is_full(&self, now: Instant) -> bool {
        self.left(now) == self.rate.full
    }

    /// Draws so much; `false`: there is less, and nothing was drawn.
    pub fn draw(&mut self, amount: u64, now: Instant) -> bool {
        let (left, owed) = self.settled(now);
        let Some(left) = left.checked_sub(amount) else { return false };
        (self.left, self.owed, self.at) = (left, owed, now);
        true
    }

    /// Draws so much, whatever there is; no more is owed than fills it twice.
    pub fn owe(&mut self, amount: u64, now: Instant) {
        let (left, owed) = self.settled(now);
        let owed = owed.saturating_add(amount.saturating_sub(left));
        let owed = owed.min(self.rate.full.saturating_mul(2));
        (self.left, self.owed, self.at) = (left.saturating_sub(amount), owed, now);
    }

    /// How long until so much can be drawn; of more than a full bucket, until it is full.
    pub fn wait(&self, amount: u64, now: Instant) -> Duration {
        let (left, owed) = self.settled(now);
        self.time_of(owed.saturating_add(amount.min(self.rate.full)).saturating_sub(left))
    }

    /// How long until no more is owed than so much.
    pub fn wait_to_owe(&self, most: u64, now: Instant) -> Duration {
        self.time_of(self.owed(now).saturating_sub(most))
    }

    fn time_of(&self, amount: u64) -> Duration {
        let nanoseconds = u128::from(amount) * self.rate.period.as_nanos();
        let nanoseconds = nanoseconds.div_ceil(u128::from(self.rate.full.max(1)));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// What is left, and what is owed.
    fn settled(&self, now: Instant) -> (u64, u64) {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let period = self.rate.period.as_nanos().max(1);
        let regained = passed.saturating_mul(u128::from(self.rate.full)) / period;
        let regained = u64::try_from(regained).unwrap_or(u64::MAX);
        let left = regained.saturating_add(self.left).saturating_sub(self.owed);
        (left.min(self.rate.full), self.owed.saturating_sub(regained.saturating_add(self.left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_drawn_from_and_fills_steadily() {
        let rate = Rate { full: 1_000, period: Duration::from_secs(10) };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::full(rate, start);
        assert!(bucket.draw(900, start) && !bucket.draw(101, start) && bucket.draw(100, start));
        assert_eq!((bucket.left(start), bucket.left(at(50)), bucket.left(at(5_000))), (0, 5, 500));
        assert_eq!(bucket.wait(500, at(1_000)), Duration::from_secs(4));
        assert!(!bucket.draw(500, at(4_999)) && bucket.draw(500, at(5_000)));
        assert_eq!(bucket.wait(9_999, at(5_000)), Duration::from_secs(10), "of more than it holds");
        assert!(!bucket.is_full(at(14_999)) && bucket.is_full(at(15_000)));
        assert_eq!(bucket.left(start), 0, "a time before the last one");
        assert_eq!(bucket.wait(0, start), Duration::ZERO);
    }

    #[test]
    fn what_is_owed_comes_back_first() {
        let rate = Rate { full: 1_000, period: Duration::from_secs(10) };
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::full(rate, start);
        bucket.owe(400, start);
        assert_eq!((bucket.left(start), bucket.owed(start)), (600, 0));
        bucket.owe(1_600, start);
        assert_eq!((bucket.left(start), bucket.owed(start)), (0, 1_000));
        assert!(!bucket.draw(1, at(10_000)) && bucket.draw(0, start));
        assert_eq!(bucket.wait(100, start), Duration::from_secs(11));
        assert_eq!(bucket.wait_to_owe(300, start), Duration::from_secs(7));
        assert_eq!(bucket.wait_to_owe(300, at(8_000)), Duration::ZERO);
        assert_eq!((bucket.left(at(11_000)), bucket.owed(at(4_000))), (100, 600));
        assert!(bucket.draw(100, at(11_000)) && bucket.is_full(at(21_000)));
        bucket.owe(u64::MAX, at(21_000));
        assert_eq!(bucket.owed(at(21_000)), 2_000);
    }
}
