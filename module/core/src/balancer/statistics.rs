//! The statistics of an endpoint: a cell of words in shared memory that every worker changes.
//!
//! Shape:   [`WORDS`] words. A cell belongs to an endpoint of a backend and outlives changes of the set.
//! Units:   milliseconds on the monotonic clock, which all processes share.
//! Errors:  none: an overflow is not counted.
//!
//! | word | what |
//! |---|---|
//! | 0 | the cell's number (upper half, given by the store), requests in flight (lower half) |
//! | 1 | moving average of the latency ([`latency`]) |
//! | 2 | attempts |
//! | 3 | failed attempts |
//! | 4 | failed connections one after the other (upper half), failed attempts one after the other (lower half) |
//! | 5 | how often it was ejected (upper 16 bits), the end of the ejection (lower 48 bits) |
//! | 6 | when it joined the set; 0: not known |

use crate::balancer::latency;
use crate::model::Ejection;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of words of a cell.
pub const WORDS: usize = 7;

const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;

const TICKS_A_SECOND: u32 = 100;

/// The part of its share that a new endpoint begins with.
const FIRST_SHARE: f32 = 0.1;

/// The stage at which an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection could not be established.
    Connect,
    /// The connection broke, timed out, or the answer was one that counts as a failure.
    Answer,
}

/// The counters of one endpoint, shared by all workers.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'g>(&'g [AtomicU64; WORDS]);

impl<'g> Cell<'g> {
    /// The cell of these words; `None` if there are too few.
    #[inline]
    pub fn new(words: &'g [AtomicU64]) -> Option<Self> {
        words.first_chunk().map(Cell)
    }

    /// Tells it from every other cell there was.
    #[inline]
    pub fn number(&self) -> u32 {
        (self.0[0].load(Relaxed) >> 32) as u32
    }

    /// Requests that are under way.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.0[0].load(Relaxed) as u32
    }

    /// Counts a request as under way unless `limit` are; 0: no limit. Answers the cell's number.
    #[inline]
    pub fn begin(&self, limit: u32) -> Option<u32> {
        let more = |word: u64| ((word as u32) < limit).then_some(word + 1);
        let word = match limit {
            // The lower half cannot overflow, because each request needs more memory than the number.
            0 => self.0[0].fetch_add(1, Relaxed),
            _ => self.0[0].fetch_update(Relaxed, Relaxed, more).ok()?,
        };
        self.0[2].fetch_add(1, Relaxed);
        Some((word >> 32) as u32)
    }

    /// A request that [`Cell::begin`] counted in cell `number` has ended; answers whether this is that cell.
    #[inline]
    pub fn end(&self, number: u32) -> bool {
        let word = self.0[0].load(Relaxed);
        if (word >> 32) as u32 != number {
            return false;
        }
        // Not below zero, whatever happened: that would look like four thousand million requests.
        let less = |word: u64| (word as u32 > 0).then(|| word - 1);
        let _ = self.0[0].fetch_update(Relaxed, Relaxed, less);
        true
    }

    /// The moving average of its latency in seconds, decayed to `now`; 0: not known.
    #[inline]
    pub fn latency(&self, now: u64) -> f32 {
        latency::average(self.0[1].load(Relaxed), tick(now))
    }

    /// Records the latency of an attempt, in seconds.
    pub fn observe(&self, now: u64, seconds: f32) {
        let update = |bits| Some(latency::update(bits, tick(now), seconds));
        let _ = self.0[1].fetch_update(Relaxed, Relaxed, update);
    }

    /// As [`Cell::observe`], where no algorithm uses latencies: one sample a second is enough for statistics.
    #[inline]
    pub fn observe_now_and_then(&self, now: u64, seconds: f32) {
        let last = self.0[1].load(Relaxed);
        if last == 0 || tick(now).wrapping_sub(last as u32) >= TICKS_A_SECOND {
            self.observe(now, seconds);
        }
    }

    /// Initialises a new endpoint: it joins at `now`, with the mean latency of the others.
    pub fn initialise(&self, now: u64, mean_seconds: f32) {
        if self.0[6].load(Relaxed) == 0 {
            self.0[6].store(now.max(1), Relaxed);
            self.0[1].store(latency::seed(mean_seconds, tick(now)), Relaxed);
        }
    }

    /// Marks the endpoint as one that joined before those that join now: its cell was loaded from a journal, without
    /// a time.
    pub fn mark_older(&self) {
        let _ = self.0[6].compare_exchange(0, 1, Relaxed, Relaxed);
    }

    /// Whether the cell has been initialised for its endpoint.
    pub fn is_initialised(&self) -> bool {
        self.0[6].load(Relaxed) != 0
    }

    /// The numbers of attempts and of failed attempts.
    pub fn totals(&self) -> (u64, u64) {
        (self.0[2].load(Relaxed), self.0[3].load(Relaxed))
    }

    /// The number of failed attempts since the last success.
    pub fn failures_in_a_row(&self) -> u32 {
        self.0[4].load(Relaxed) as u32
    }

    /// The number of recent ejections, and the milliseconds from `now` until the last one ends.
    pub fn ejections(&self, now: u64) -> (u32, u64) {
        let word = self.0[5].load(Relaxed);
        ((word >> TIME_BITS) as u32, (word & TIME).saturating_sub(now))
    }

    /// Whether the endpoint is ejected at this time.
    #[inline]
    pub fn is_ejected(&self, now: u64) -> bool {
        self.0[5].load(Relaxed) & TIME > now
    }

    /// Counts an attempt that succeeded and ends a row of failures.
    #[inline]
    pub fn succeeded(&self) {
        // Usually there is nothing to reset: a load leaves the cache line with the other workers.
        if self.0[4].load(Relaxed) != 0 {
            self.0[4].store(0, Relaxed);
        }
    }

    /// An attempt failed; answers for how many milliseconds the endpoint is left out, if it is from now on.
    pub fn failed(&self, failure: Failure, ejection: Option<&Ejection>, now: u64) -> Option<u64> {
        self.0[3].fetch_add(1, Relaxed);
        let count = |word: u64| {
            let (connects, all) = ((word >> 32) as u32, word as u32);
            let connects = match failure {
                Failure::Connect => connects.saturating_add(1),
                Failure::Answer => 0,
            };
            Some(u64::from(connects) << 32 | u64::from(all.saturating_add(1)))
        };
        let before = self.0[4].fetch_update(Relaxed, Relaxed, count).unwrap_or_default();
        let ejection = ejection?;
        let after = count(before).unwrap_or_default();
        let (connects, all) = ((after >> 32) as u32, after as u32);
        let is_over = |count: u32, limit: u32| limit != 0 && count >= limit;
        if !is_over(connects, ejection.connect_failures) && !is_over(all, ejection.failures) {
            return None;
        }
        self.eject(ejection, now)
    }

    fn eject(&self, ejection: &Ejection, now: u64) -> Option<u64> {
        let word = self.0[5].load(Relaxed);
        let (times, until) = (word >> TIME_BITS, word & TIME);
        if until > now {
            return None;
        }
        // Forgiven one for each such time in service.
        let base = u64::from(ejection.base_ms.max(1));
        let forgiven = if until == 0 { times } else { (now - until) / base };
        let times = (times.saturating_sub(forgiven) + 1).min(0xffff);
        let length = (base * times).min(u64::from(ejection.max_ms).max(base));
        let new = times << TIME_BITS | (now + length) & TIME;
        let is_first = self.0[5].compare_exchange(word, new, Relaxed, Relaxed).is_ok();
        self.0[4].store(0, Relaxed);
        is_first.then_some(length)
    }

    /// The part of its share that an endpoint has while it is new, `slow_start_ms` long: 0.1 to 1. One that comes
    /// back after it was left out is new again.
    #[inline]
    pub fn share(&self, now: u64, slow_start_ms: u32) -> f32 {
        if slow_start_ms == 0 {
            return 1.0;
        }
        let since = self.0[6].load(Relaxed).max(self.0[5].load(Relaxed) & TIME);
        let age = now.saturating_sub(since);
        if since == 0 || age >= u64::from(slow_start_ms) {
            return 1.0;
        }
        FIRST_SHARE + (1.0 - FIRST_SHARE) * age as f32 / slow_start_ms as f32
    }
}

#[inline]
fn tick(now: u64) -> u32 {
    (now / 10) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; WORDS] {
        let words: [AtomicU64; WORDS] = Default::default();
        words[0].store(7 << 32, Relaxed);
        words
    }

    fn cell(words: &[AtomicU64]) -> Cell<'_> {
        Cell::new(words).unwrap()
    }

    const EJECTION: Ejection =
        Ejection { failures: 3, connect_failures: 2, base_ms: 100, max_ms: 250, panic_percent: 50 };

    #[test]
    fn a_request_is_ended_in_the_cell_it_began_in_only() {
        let words = words();
        let cell = cell(&words);
        assert_eq!(cell.begin(0), Some(7));
        assert!(!cell.end(6));
        assert_eq!(cell.in_flight(), 1);
        assert!(cell.end(7));
        assert!(cell.end(7));
        assert_eq!((cell.in_flight(), cell.number()), (0, 7));
    }

    #[test]
    fn the_limit_holds() {
        let words = words();
        let cell = cell(&words);
        assert_eq!([cell.begin(2), cell.begin(2), cell.begin(2)], [Some(7), Some(7), None]);
        assert_eq!((cell.in_flight(), cell.totals().0), (2, 2));
    }

    #[test]
    fn it_is_left_out_after_so_many_failures_in_a_row_and_longer_each_time() {
        let words = words();
        let cell = cell(&words);
        let fail = |now| cell.failed(Failure::Answer, Some(&EJECTION), now);
        assert_eq!([fail(10), fail(10)], [None, None]);
        cell.succeeded();
        assert_eq!([fail(20), fail(20), fail(20)], [None, None, Some(100)]);
        assert!(cell.is_ejected(119) && !cell.is_ejected(120));
        assert_eq!(fail(60), None, "an attempt from before ends late");
        assert_eq!([fail(120), fail(120)], [None, Some(200)]);
        assert_eq!(
            [fail(320), fail(320), fail(320)],
            [None, None, Some(250)],
            "not over the longest"
        );
        let later = 570 + 300;
        assert_eq!([fail(later), fail(later), fail(later)], [None, None, Some(100)], "forgiven");
    }

    #[test]
    fn failed_connections_count_apart() {
        let words = words();
        let cell = cell(&words);
        let fail = |failure| cell.failed(failure, Some(&EJECTION), 5);
        assert_eq!(fail(Failure::Connect), None);
        assert_eq!(fail(Failure::Answer), None);
        assert_eq!(fail(Failure::Connect), Some(100), "three in a row of any kind");
        assert_eq!(cell.failed(Failure::Connect, None, 500), None, "without a rule never");
    }

    #[test]
    fn an_endpoint_that_was_loaded_is_not_new() {
        let words = words();
        let cell = cell(&words);
        cell.observe(10_000, 0.25);
        cell.mark_older();
        cell.initialise(10_000, 0.5);
        assert_eq!(cell.share(10_000, 1_000), 1.0);
        assert!((cell.latency(10_000) - 0.25).abs() < 0.001);
    }

    #[test]
    fn a_new_endpoint_s_share_grows() {
        let words = words();
        let cell = cell(&words);
        assert_eq!(cell.share(50, 1_000), 1.0, "the time is unknown");
        cell.initialise(1_000, 0.5);
        cell.initialise(9_000, 0.7);
        assert_eq!(cell.share(1_000, 1_000), 0.1);
        assert_eq!(cell.share(1_500, 1_000), 0.55);
        assert_eq!(cell.share(2_000, 1_000), 1.0);
        assert_eq!(cell.share(1_000, 0), 1.0);
        assert!((cell.latency(1_000) - 0.5).abs() < 0.001);
    }
}
