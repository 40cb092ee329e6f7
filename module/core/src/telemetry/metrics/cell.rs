//! One rule's cell.
//!
//! Shape:   [`WORDS`] 64-bit words, zero at first, which all workers add to; the first is the store's. [`ENTRIES`] words count
//!          requests by status and method: the upper 15 bits identify the pair, the lower 49 count. A pair
//!          occupies a free word when it is first seen. When none is left, the request counts in one of six
//!          words by the status's class, so that it is never lost and clients cannot make series without
//!          end. Then the histograms: one word a bucket, one for the sum.
//! Units:   milliseconds and bytes.
//! Errors:  none. A shorter cell counts as much as it has room for.
//! Rejected: histograms by status and method, as the reference has them: 700 bytes for each pair that is seen.
//!           Buckets of 32 bits: a busy rule would overflow one within days, and Prometheus would read that
//!           as a restart.

use super::buckets::{Buckets, MAX_LENGTH_BOUNDS, MAX_SIZE_BOUNDS, MAX_TIME_BOUNDS};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The most pairs of status and method that are counted separately.
pub(super) const ENTRIES: usize = 32;
/// By class of the status; 0: none of the five.
const CLASSES: usize = 6;
/// The first word belongs to the store, which numbers the cells.
const ENTRIES_AT: usize = 1;
const CLASSES_AT: usize = ENTRIES_AT + ENTRIES;
const TIMES_AT: usize = CLASSES_AT + CLASSES;
/// Buckets, the last without a bound, and the sum.
const TIME_WORDS: usize = MAX_TIME_BOUNDS + 2;
const LENGTHS_AT: usize = TIMES_AT + 4 * TIME_WORDS;
const LENGTH_WORDS: usize = MAX_LENGTH_BOUNDS + 2;
const SIZE_AT: usize = LENGTHS_AT + 2 * LENGTH_WORDS;
/// The sum is that of the response's size.
const SIZE_WORDS: usize = MAX_SIZE_BOUNDS + 1;

/// Words of a cell: 984 bytes.
pub const WORDS: usize = SIZE_AT + SIZE_WORDS;

/// Lower bits of an entry: its count. 2^49 requests are 17 years at a million a second.
const COUNT_BITS: u32 = 49;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Of an entry's upper bits, those of the method.
const METHOD_BITS: u32 = 5;

/// A method: the number of its bit in nginx's `NGX_HTTP_GET` and so on; 0 is one that nginx does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Method(u8);

impl Method {
    const NAMES: [&'static str; 17] = [
        "OTHER",
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "MKCOL",
        "COPY",
        "MOVE",
        "OPTIONS",
        "PROPFIND",
        "PROPPATCH",
        "LOCK",
        "UNLOCK",
        "PATCH",
        "TRACE",
        "CONNECT",
    ];

    /// The method of nginx's `r->method`.
    #[inline]
    pub fn from_mask(mask: usize) -> Method {
        let bit = mask.trailing_zeros();
        Method(if bit < 17 { bit as u8 } else { 0 })
    }

    /// Its name; `OTHER` for those that nginx does not know.
    pub fn name(self) -> &'static str {
        Method::NAMES.get(usize::from(self.0)).copied().unwrap_or("OTHER")
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// The method as nginx's bit in `r->method`.
    pub method_mask: usize,
    /// The status that was logged.
    pub status: u16,
    /// From its first byte to its end.
    pub request_ms: u64,
    /// Head and body as they arrived.
    pub request_bytes: u64,
    /// Head and body as they were sent.
    pub response_bytes: u64,
    /// The attempts to reach an endpoint, added up.
    pub attempts: Attempts,
}

/// Times of all attempts of a request, added up; `None`: nothing was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// To the last byte of the answer.
    pub response_ms: Option<u64>,
    /// The time until the connection was made.
    pub connect_ms: Option<u64>,
    /// The time until the response head was read.
    pub header_ms: Option<u64>,
}

/// The histograms of times, in the order of their words.
pub(super) const REQUEST: usize = 0;
pub(super) const RESPONSE: usize = 1;
pub(super) const CONNECT: usize = 2;
pub(super) const HEADER: usize = 3;
pub(super) const REQUEST_SIZE: usize = 0;
pub(super) const RESPONSE_SIZE: usize = 1;

/// Counts a request. Any number of workers at once; nothing is allocated.
#[inline]
pub fn observe(cell: &[AtomicU64], buckets: &Buckets, seen: &Observation) {
    let Some(cell) = cell.first_chunk::<WORDS>() else { return };
    count(cell, seen);
    let attempts = &seen.attempts;
    let times = [
        (REQUEST, Some(seen.request_ms)),
        (RESPONSE, attempts.response_ms),
        (CONNECT, attempts.connect_ms),
        (HEADER, attempts.header_ms),
    ];
    for (histogram, time) in times {
        let Some(time) = time else { continue };
        let first = TIMES_AT + histogram * TIME_WORDS;
        add(cell, first + buckets.time.bucket_from_below(time), 1);
        // An addition that all workers see costs as much as 20 others: none for nothing.
        if time > 0 {
            add(cell, first + TIME_WORDS - 1, time);
        }
    }
    for (histogram, bytes) in
        [(REQUEST_SIZE, seen.request_bytes), (RESPONSE_SIZE, seen.response_bytes)]
    {
        let first = LENGTHS_AT + histogram * LENGTH_WORDS;
        let bucket = buckets.length.bucket_from_above(bytes).min(MAX_LENGTH_BOUNDS);
        add(cell, first + bucket, 1);
        add(cell, first + LENGTH_WORDS - 1, bytes);
    }
    let bucket = buckets.size.bucket_from_below(seen.response_bytes).min(MAX_SIZE_BOUNDS);
    add(cell, SIZE_AT + bucket, 1);
}

#[inline]
fn add(cell: &[AtomicU64; WORDS], word: usize, value: u64) {
    if let Some(word) = cell.get(word) {
        word.fetch_add(value, Relaxed);
    }
}

#[inline]
fn count(cell: &[AtomicU64; WORDS], seen: &Observation) {
    let method = Method::from_mask(seen.method_mask);
    let status = u64::from(seen.status.min(999));
    // Never 0, which is a free word.
    let key = (status + 1) << METHOD_BITS | u64::from(method.0);
    // One status mostly, and few methods.
    let first = usize::from(seen.status) + 5 * usize::from(method.0);
    for step in 0..ENTRIES {
        let Some(word) = cell.get(ENTRIES_AT + (first + step) % ENTRIES) else { return };
        let mut now = word.load(Relaxed);
        if now == 0 {
            match word.compare_exchange(0, key << COUNT_BITS | 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(taken) => now = taken,
            }
        }
        if now >> COUNT_BITS == key {
            word.fetch_add(1, Relaxed);
            return;
        }
    }
    add(cell, CLASSES_AT + class(status), 1);
}

fn class(status: u64) -> usize {
    match status {
        100..600 => (status / 100) as usize,
        _ => 0,
    }
}

/// What a cell has counted, or several together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Totals {
    /// By status and method; a status below 6 is a class, of all methods that found no word.
    pub(super) requests: std::collections::BTreeMap<(u16, Method), u64>,
    /// Buckets and sum of each.
    pub(super) times: [[u64; TIME_WORDS]; 4],
    pub(super) lengths: [[u64; LENGTH_WORDS]; 2],
    pub(super) size: [u64; SIZE_WORDS],
}

impl Default for Totals {
    fn default() -> Self {
        Totals {
            requests: Default::default(),
            times: [[0; TIME_WORDS]; 4],
            lengths: [[0; LENGTH_WORDS]; 2],
            size: [0; SIZE_WORDS],
        }
    }
}

impl Totals {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds what others have counted.
    pub(super) fn merge(&mut self, other: &Totals) {
        for (key, count) in &other.requests {
            *self.requests.entry(*key).or_default() += count;
        }
        for (total, count) in self.words().zip(other.clone().words()) {
            *total = total.saturating_add(*count);
        }
    }

    /// All words of the histograms, in the cell's order.
    fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        let words = self.times.as_flattened_mut().iter_mut();
        words.chain(self.lengths.as_flattened_mut()).chain(&mut self.size)
    }

    /// Adds what a cell has counted.
    pub(super) fn add(&mut self, cell: &[AtomicU64]) {
        let Some(cell) = cell.first_chunk::<WORDS>() else { return };
        for (place, word) in cell.iter().take(TIMES_AT).enumerate().skip(ENTRIES_AT) {
            let word = word.load(Relaxed);
            let (key, count) = match place.checked_sub(CLASSES_AT) {
                None => {
                    let key = word >> COUNT_BITS;
                    let method = Method((key & ((1 << METHOD_BITS) - 1)) as u8);
                    (((key >> METHOD_BITS).saturating_sub(1) as u16, method), word & COUNT)
                }
                Some(class) => ((class as u16, Method(0)), word),
            };
            if count > 0 {
                *self.requests.entry(key).or_default() += count;
            }
        }
        for (total, word) in self.words().zip(cell.iter().skip(TIMES_AT)) {
            *total = total.saturating_add(word.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: usize = 2;

    fn cell() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn totals(cell: &[AtomicU64]) -> Totals {
        let mut totals = Totals::default();
        totals.add(cell);
        totals
    }

    fn seen(method_mask: usize, status: u16) -> Observation {
        Observation { method_mask, status, ..Observation::default() }
    }

    #[test]
    fn methods_are_nginx_s_bits() {
        for (mask, name) in [(2, "GET"), (4, "HEAD"), (8, "POST"), (0x4000, "PATCH"), (1, "OTHER")]
        {
            assert_eq!(Method::from_mask(mask).name(), name);
        }
        assert_eq!(Method::from_mask(0).name(), "OTHER");
        assert_eq!(Method::from_mask(1 << 40).name(), "OTHER");
    }

    #[test]
    fn a_request_is_in_the_bucket_of_each_of_its_values() {
        let cell = cell();
        let attempts = Attempts { response_ms: Some(6), connect_ms: Some(0), header_ms: None };
        let one = Observation {
            method_mask: GET,
            status: 200,
            request_ms: 12_000,
            request_bytes: 100,
            response_bytes: 2_000,
            attempts,
        };
        observe(&cell, &Buckets::default(), &one);
        observe(&cell, &Buckets::default(), &one);
        let totals = totals(&cell);
        assert_eq!(totals.requests.into_iter().collect::<Vec<_>>(), [((200, Method(1)), 2)]);
        let at = |place: usize, sum: u64| {
            let mut words = [0; TIME_WORDS];
            (words[place], words[TIME_WORDS - 1]) = (2, sum);
            words
        };
        assert_eq!(totals.times, [at(11, 24_000), at(1, 12), at(0, 0), [0; TIME_WORDS]]);
        assert_eq!(totals.lengths[REQUEST_SIZE][9..], [2, 0, 200]);
        assert_eq!(totals.lengths[RESPONSE_SIZE][9..], [0, 2, 4_000]);
        assert_eq!(totals.size, [0, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn a_thousand_kinds_of_requests_take_38_series_and_none_is_lost() {
        let cell = cell();
        for status in 0..1_000 {
            observe(&cell, &Buckets::default(), &seen(1 << (status % 23), status));
        }
        let totals = totals(&cell);
        assert_eq!(totals.requests.values().sum::<u64>(), 1_000);
        assert!(totals.requests.len() <= ENTRIES + CLASSES, "{}", totals.requests.len());
        assert_eq!(totals.times[REQUEST][0], 1_000);
    }

    #[test]
    fn threads_that_count_at_once_lose_nothing_and_take_no_word_twice() {
        let cell = cell();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cell = &cell;
                scope.spawn(move || {
                    for turn in 0..2_000_u16 {
                        // All four begin with words that are free, each in another order.
                        let status = 200 + (turn + 3 * thread) % 12;
                        observe(cell, &Buckets::default(), &seen(GET, status));
                    }
                });
            }
        });
        let totals = totals(&cell);
        assert_eq!(totals.requests.len(), 12, "{:?}", totals.requests);
        assert_eq!(totals.requests.values().sum::<u64>(), 8_000);
        let words: Vec<u64> =
            cell[ENTRIES_AT..CLASSES_AT].iter().map(|w| w.load(Relaxed)).collect();
        assert_eq!(words.iter().filter(|word| **word != 0).count(), 12);
    }

    #[test]
    fn a_cell_that_is_too_short_counts_nothing() {
        observe(&cell()[..WORDS - 1], &Buckets::default(), &seen(GET, 200));
        observe(&[], &Buckets::default(), &seen(GET, 200));
    }
}
