use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MS: u64 = 1_000_000;
const THREADS: usize = 4;

/// The words of some sets, and how many were evicted.
struct Block(Vec<AtomicU64>, AtomicU64);

fn block(sets: usize) -> Block {
    Block((0..sets * SET_WORDS).map(|_| AtomicU64::new(0)).collect(), AtomicU64::new(0))
}

impl Block {
    fn rates(&self) -> Rates<'_> {
        Rates::new(&self.0, &self.1).unwrap()
    }

    fn evicted(&self) -> u64 {
        self.1.load(SeqCst)
    }
}

fn is_admitted(admission: Admission) -> bool {
    matches!(admission, Admission::Admitted(_))
}

/// ngx_http_limit_req_lookup with `nodelay`, in its own units.
#[derive(Default)]
struct Nginx(Option<(i64, i64)>);

impl Nginx {
    fn take(&mut self, requests_a_second: i64, burst: i64, now_ms: i64) -> bool {
        let excess = match self.0 {
            None => 0,
            Some((excess, last)) => {
                (excess - requests_a_second * 1000 * (now_ms - last) / 1000 + 1000).max(0)
            }
        };
        if excess > burst * 1000 {
            return false;
        }
        self.0 = Some((excess, now_ms));
        true
    }
}

proptest! {
    #[test]
    fn it_decides_as_nginx_does(
        rate in prop::sample::select(vec![1_i64, 2, 5, 10, 100, 1000]),
        burst in 0_i64..8,
        pauses in prop::collection::vec(0_i64..700, 1..200),
    ) {
        let block = block(8);
        let (rates, bucket) = (block.rates(), Bucket::new(rate as u32, SECOND, burst as u32));
        let (mut nginx, mut now_ms) = (Nginx::default(), 1_000_000_i64);
        for pause in pauses {
            now_ms += pause;
            let ours = is_admitted(rates.take(77, &bucket, || now_ms as u64 * MS));
            prop_assert_eq!(ours, nginx.take(rate, burst, now_ms));
        }
    }

    #[test]
    fn never_more_than_the_rate_the_burst_and_one(
        rate in 1_u32..5_000_000,
        burst in 0_u32..50,
        times in prop::collection::vec(0_u64..20 * MS, 1..300),
    ) {
        let block = block(8);
        let (rates, bucket) = (block.rates(), Bucket::new(rate, SECOND, burst));
        let (mut now, mut admitted) = (5, 0_u128);
        for time in times {
            now += time;
            admitted += u128::from(is_admitted(rates.take(9, &bucket, || now)));
            let most = u128::from(now - 5) * u128::from(rate) / 1_000_000_000;
            prop_assert!(admitted <= most + u128::from(burst) + 1);
        }
    }
}

#[test]
fn a_minute_s_rate_is_exact() {
    let block = block(8);
    let (rates, bucket) = (block.rates(), Bucket::new(7, MINUTE, 0));
    let admitted = (0..60_000).filter(|ms| is_admitted(rates.take(1, &bucket, || ms * MS)));
    assert_eq!(admitted.count(), 7);
}

#[test]
fn a_rate_of_nothing_lets_nobody_in() {
    let block = block(8);
    let (rates, bucket) = (block.rates(), Bucket::new(0, SECOND, 5));
    assert!(!is_admitted(rates.take(1, &bucket, || 1)));
}

#[test]
fn a_refusal_says_by_how_much() {
    let block = block(8);
    let (rates, bucket) = (block.rates(), Bucket::new(1, SECOND, 1));
    let take = |now_ms: u64| rates.take(1, &bucket, || now_ms * MS);
    assert!(is_admitted(take(1000)) && is_admitted(take(1000)));
    assert_eq!(take(1250), Admission::Refused { excess_milli: 750 });
    assert_eq!(take(1999), Admission::Refused { excess_milli: 1 });
    assert!(is_admitted(take(2000)));
}

#[test]
fn a_request_that_was_given_back_does_not_count() {
    let block = block(8);
    let (rates, bucket) = (block.rates(), Bucket::new(1, MINUTE, 0));
    let take = || rates.take(1, &bucket, || 1000);
    let Admission::Admitted(taken) = take() else { panic!("the first is refused") };
    assert!(!is_admitted(take()));
    rates.refund(&taken);
    assert!(is_admitted(take()));
    rates.refund(&Charge { before: 0, ..taken });
    assert!(is_admitted(take()), "the same word once more");
    rates.refund(&taken);
    assert!(is_admitted(take()));
}

#[test]
fn another_rate_holds_at_once() {
    let block = block(8);
    let rates = block.rates();
    let slow = Bucket::new(1, MINUTE, 5);
    let fast = Bucket::new(100, SECOND, 5);
    for _ in 0..6 {
        assert!(is_admitted(rates.take(1, &slow, || 1000 * MS)));
    }
    assert!(!is_admitted(rates.take(1, &fast, || 1000 * MS)), "full is full");
    assert!(is_admitted(rates.take(1, &fast, || 1010 * MS)), "by the new rate");
    assert!(!is_admitted(rates.take(1, &fast, || 1010 * MS)));
}

#[test]
fn a_fourth_key_takes_the_place_of_one_that_has_drained() {
    let block = block(1);
    let (rates, bucket) = (block.rates(), Bucket::new(1, SECOND, 0));
    let take = |key: u64, now_ms: u64| is_admitted(rates.take(key, &bucket, || now_ms * MS));
    let all = [take(1, 1000), take(2, 1500), take(3, 1600)];
    assert_eq!(all, [true; 3]);
    // The first has drained, the others have not.
    assert!(take(4, 2000));
    assert_eq!(block.evicted(), 0);
    assert_eq!([take(2, 2001), take(3, 2001), take(4, 2001)], [false; 3]);
    // None has: the one that drains first.
    assert!(take(5, 2002));
    assert_eq!(block.evicted(), 1);
    assert_eq!([take(3, 2003), take(4, 2003), take(5, 2003)], [false; 3]);
}

/// With any number of threads, exactly the burst and one more are admitted while the clock does not move.
#[test]
fn threads_let_in_exactly_the_burst_and_one() {
    for round in 0..200_u64 {
        let block = block(8);
        let (rates, bucket) = (block.rates(), Bucket::new(1, MINUTE, 100));
        let admitted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..60 {
                        let admission = rates.take(round, &bucket, || 1000);
                        admitted.fetch_add(usize::from(is_admitted(admission)), Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 101, "round {round}");
    }
}

/// The same while the clock runs, and other keys join the same sets: none is evicted, since they fit.
#[test]
fn threads_never_let_in_more_than_the_rate_while_time_passes() {
    let block = block(64);
    let (rates, bucket) = (block.rates(), Bucket::new(1_000, SECOND, 20));
    let (clock, admitted) = (AtomicU64::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (clock, admitted, rates, bucket) = (&clock, &admitted, &rates, &bucket);
            scope.spawn(move || {
                for turn in 0..100_000_u64 {
                    let now = || clock.fetch_add(1_000, Relaxed);
                    let admission = rates.take(5, bucket, now);
                    admitted.fetch_add(usize::from(is_admitted(admission)), Relaxed);
                    if turn % 1000 == 0 {
                        rates.take((thread + 1) << 60, bucket, now);
                    }
                }
            });
        }
    });
    let (time, admitted) = (clock.into_inner(), admitted.into_inner() as u64);
    let most = time / MS + 20 + 1;
    assert_eq!(block.evicted(), 0);
    assert!(admitted <= most, "{admitted} of {most}");
    // The threads try all the time, so almost nothing is left over.
    assert!(admitted + 1 >= time / MS, "{admitted} of {most}");
}

/// More keys than places: what is counted for one stays with it, or its eviction is counted.
#[test]
fn threads_that_evict_each_other_s_keys_count_that() {
    let block = block(4);
    let (rates, bucket) = (block.rates(), Bucket::new(1, MINUTE, 0));
    let admitted: Vec<HashMap<u64, u64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|thread| {
                let (rates, bucket) = (&rates, &bucket);
                scope.spawn(move || {
                    let mut admitted = HashMap::new();
                    for turn in 0..20_000_u64 {
                        let key = (turn * 7 + thread) % 24;
                        let key = key << 59 | key;
                        let admission = rates.take(key, bucket, || 1000);
                        *admitted.entry(key).or_default() += u64::from(is_admitted(admission));
                    }
                    admitted
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: u64 = admitted.iter().flat_map(HashMap::values).sum();
    let evicted = block.evicted();
    // Each place was used once when it was assigned, and once when it was taken from another key.
    assert!(all <= evicted + rates.capacity() as u64, "{all} with {evicted} evicted");
    assert!(evicted > 0);
}

/// What the threads above do now and then, in one order: another worker counts between the look and the count.
#[test]
fn a_request_counted_meanwhile_is_not_forgotten() {
    let block = block(1);
    let (rates, bucket) = (block.rates(), Bucket::new(1, MINUTE, 0));
    let is_first = AtomicUsize::new(0);
    let meanwhile = || {
        // The first reading is the joining one's.
        if is_first.fetch_add(1, Relaxed) == 1 {
            assert!(is_admitted(rates.take(1, &bucket, || 1000)));
        }
        1000
    };
    assert!(!is_admitted(rates.take(1, &bucket, meanwhile)));
}

/// Another worker gives the place away between the look and the count.
#[test]
fn a_request_is_not_counted_for_another_key() {
    let block = block(1);
    let (rates, bucket) = (block.rates(), Bucket::new(1, MINUTE, 0));
    for key in [1, 2, 3] {
        assert!(is_admitted(rates.take(key, &bucket, || 1000 + key)));
    }
    // All have drained; the first one's place is given away while it is counted again.
    let now = || 200 * 1000 * MS;
    let readings = AtomicUsize::new(0);
    let meanwhile = || {
        if readings.fetch_add(1, Relaxed) == 0 {
            rates.join(&rates.sets.all[0], rates.sets.all[0][0].load(SeqCst), 4, now());
        }
        now()
    };
    assert!(is_admitted(rates.take(1, &bucket, meanwhile)));
    assert!(!is_admitted(rates.take(1, &bucket, now)), "it was counted where it is now");
}
