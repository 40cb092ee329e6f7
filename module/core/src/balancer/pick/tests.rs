use super::*;
use crate::balancer::latency;
use oxigress_fuzz::Random;
use proptest::prelude::*;
use std::collections::BinaryHeap;

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::new(seed);
    move || random.number()
}

#[derive(Clone, Debug)]
struct One {
    weight: u32,
    is_open: bool,
    in_flight: u32,
    latency: f32,
}

const OPEN: One = One { weight: 1, is_open: true, in_flight: 0, latency: 0.0 };

impl Candidates for Vec<One> {
    fn count(&self) -> usize {
        self.len()
    }
    fn is_open(&self, index: usize) -> bool {
        self[index].is_open
    }
    fn weight(&self, index: usize) -> u32 {
        self[index].weight
    }
    fn in_flight(&self, index: usize) -> u32 {
        self[index].in_flight
    }
    fn latency(&self, index: usize) -> f32 {
        self[index].latency
    }
    fn total_weight(&self) -> u64 {
        self.iter().map(|one| u64::from(one.weight)).sum()
    }
}

fn weights(weights: &[u32]) -> Vec<One> {
    weights.iter().map(|&weight| One { weight, ..OPEN }).collect()
}

fn shares(count: usize, picks: impl IntoIterator<Item = Option<usize>>) -> Vec<u64> {
    let mut shares = vec![0; count];
    picks.into_iter().flatten().for_each(|index| shares[index] += 1);
    shares
}

/// Chi-square against the expected shares, and the bound that a right implementation exceeds once in
/// far more than 10⁹ runs: mean + 10 standard deviations, in a distribution with a light tail.
fn assert_spread(shares: &[u64], weights: &[u32]) {
    let picks: u64 = shares.iter().sum();
    let total: u32 = weights.iter().sum();
    let chi: f64 = shares
        .iter()
        .zip(weights)
        .map(|(&share, &weight)| {
            let expected = picks as f64 * f64::from(weight) / f64::from(total);
            if expected == 0.0 {
                assert_eq!(share, 0);
                return 0.0;
            }
            (share as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = weights.iter().filter(|weight| **weight > 0).count() as f64 - 1.0;
    let bound = freedom + 10.0 * (2.0 * freedom).sqrt() + 30.0;
    assert!(chi <= bound, "chi-square {chi:.1} over {bound:.1}: {shares:?}");
}

#[test]
fn with_equal_weights_each_turn_is_the_next_endpoint() {
    let c = vec![OPEN; 3];
    let picks: Vec<_> = (5..9).map(|turn| round_robin(&c, turn).unwrap()).collect();
    assert_eq!(picks, [2, 0, 1, 2]);
    assert_eq!(round_robin(&c, u64::MAX), Some((u64::MAX % 3) as usize));
}

#[test]
fn a_closed_endpoints_turns_are_dealt_to_all_others() {
    let mut c = vec![OPEN; 5];
    c[1].is_open = false;
    c[2].is_open = false;
    let picks = (0..15).map(|turn| round_robin(&c, turn));
    assert_eq!(shares(5, picks), [5, 0, 0, 5, 5]);
}

#[test]
fn weighted_turns_are_interleaved() {
    let c = weights(&[3, 3, 2]);
    let picks: Vec<_> = (0..80).map(|turn| round_robin(&c, turn).unwrap()).collect();
    assert!(picks.windows(3).all(|w| w[0] != w[1] || w[1] != w[2]), "{picks:?}");
    // The heavy one never waits for all of the light ones.
    let c = weights(&[10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    let picks: Vec<_> = (0..200).map(|turn| round_robin(&c, turn).unwrap()).collect();
    assert!(picks.windows(4).all(|w| w.contains(&0)), "{picks:?}");
}

#[test]
fn least_conn_takes_the_least_busy_and_equals_in_turn() {
    let mut c = vec![OPEN; 4];
    c[0].in_flight = 1;
    let picks = (0..9).map(|turn| least_conn(&c, turn));
    assert_eq!(shares(4, picks), [0, 3, 3, 3]);
    c[2].is_open = false;
    c[1].in_flight = 7;
    assert_eq!(least_conn(&c, 0), Some(3));
}

#[test]
fn least_conn_keeps_to_the_weights_idle_and_busy() {
    let c = weights(&[1, 2, 5]);
    assert_eq!(shares(3, (0..80).map(|turn| least_conn(&c, turn))), [10, 20, 50]);
    let mut c = c;
    for turn in 0..800 {
        let index = least_conn(&c, turn).unwrap();
        c[index].in_flight += 1;
    }
    assert_eq!(c.iter().map(|one| one.in_flight).collect::<Vec<_>>(), [100, 200, 500]);
}

#[test]
fn the_faster_of_two_is_taken() {
    let mut c = vec![OPEN; 2];
    c[0].latency = 0.5;
    c[1].latency = 0.1;
    let mut random = random(1);
    for _ in 0..100 {
        assert_eq!(ewma(&c, &mut random), Some(1));
        assert_eq!(p2c(&c, &mut random), Some(1));
    }
    c[1].in_flight = 5; // 6 requests of 0.1 s end after one of 0.5 s.
    for _ in 0..100 {
        assert_eq!(ewma(&c, &mut random), Some(1));
        assert_eq!(p2c(&c, &mut random), Some(0));
    }
}

#[test]
fn p2c_neither_floods_nor_starves_an_endpoint_it_knows_nothing_of() {
    for latency in [0.000_1, 0.01, 5.0] {
        let mut c = vec![One { latency, in_flight: 3, ..OPEN }; 10];
        c[4].latency = 0.0;
        let mut random = random(2);
        let mut given = 0;
        // It accepts and never answers.
        for _ in 0..10_000 {
            if p2c(&c, &mut random) == Some(4) {
                given += 1;
                c[4].in_flight = given;
            }
        }
        assert!((3..=5).contains(&given), "{given} at {latency}");
    }
}

#[test]
fn latencies_below_the_clock_are_one() {
    let mut c = vec![One { latency: f32::MIN_POSITIVE, in_flight: 1, ..OPEN }; 2];
    c[1].latency = 0.000_9;
    c[1].in_flight = 0;
    let mut random = random(3);
    assert!((0..100).all(|_| p2c(&c, &mut random) == Some(1)));
}

#[test]
fn draws_are_spread_by_weight_over_what_is_open() {
    for (case, given) in
        [vec![1; 10], vec![1; 2], vec![1, 2, 3, 4], vec![1, 1000], vec![10; 7]].iter().enumerate()
    {
        for closed in [None, Some(0)] {
            let mut c = weights(given);
            let mut expected = given.clone();
            if let Some(closed) = closed {
                c[closed].is_open = false;
                expected[closed] = 0;
            }
            let mut random = random(case as u64);
            let picks = (0..50_000).map(|_| ewma(&c, &mut random)).collect::<Vec<_>>();
            assert_spread(&shares(c.len(), picks), &expected);
            let picks = (0..50_000).map(|_| p2c(&c, &mut random)).collect::<Vec<_>>();
            assert_spread(&shares(c.len(), picks), &expected);
        }
    }
}

#[test]
fn draws_are_fair_where_nearly_all_are_closed() {
    let mut c = vec![One { is_open: false, ..OPEN }; 1_000];
    let mut expected = vec![0; 1_000];
    for index in [3, 4, 900] {
        c[index].is_open = true;
        expected[index] = 1;
    }
    let mut random = random(4);
    let picks = (0..10_000).map(|_| ewma(&c, &mut random)).collect::<Vec<_>>();
    assert_spread(&shares(c.len(), picks), &expected);
}

/// What one endpoint of ten, ten times slower, gets of the fair share: requests arrive at random and end
/// after their endpoint's latency, which the moving average learns. Time in units of 10 ms.
fn share_of_the_slow(
    per_tick: u32,
    pick: impl Fn(&Vec<One>, u64, &mut dyn FnMut() -> u64) -> Option<usize>,
) -> f64 {
    const TICKS: u32 = 12_000;
    let mut c = vec![OPEN; 10];
    let mut averages = [0u64; 10];
    let mut ends = BinaryHeap::<std::cmp::Reverse<(u32, usize, u32)>>::new();
    let mut random = random(5);
    let mut picks = [0u64; 10];
    let mut turn = 0;
    for now in 1..TICKS {
        while let Some(&std::cmp::Reverse((end, index, took))) = ends.peek()
            && end <= now
        {
            ends.pop();
            c[index].in_flight -= 1;
            averages[index] = latency::update(averages[index], now, took as f32 / 100.0);
        }
        for (one, average) in c.iter_mut().zip(averages) {
            one.latency = latency::average(average, now);
        }
        for _ in 0..below(u64::from(2 * per_tick + 1), random()) {
            turn += 1;
            let index = pick(&c, turn, &mut random).unwrap();
            let mean: u32 = if index == 0 { 100 } else { 10 };
            let took = mean / 2 + below(u64::from(mean), random()) as u32;
            c[index].in_flight += 1;
            ends.push(std::cmp::Reverse((now + took, index, took)));
            // The first ten seconds are for learning.
            picks[index] += u64::from(now > 1_000);
        }
    }
    picks[0] as f64 * 10.0 / picks.iter().sum::<u64>() as f64
}

#[test]
fn an_endpoint_ten_times_slower_gets_at_most_a_third_of_the_fair_share() {
    for per_tick in [1, 5, 20] {
        let shares = [
            ("ewma", share_of_the_slow(per_tick, |c, _, mut random| ewma(c, &mut random))),
            ("p2c", share_of_the_slow(per_tick, |c, _, mut random| p2c(c, &mut random))),
        ];
        for (name, share) in shares {
            println!("{name}, {per_tick} requests per 10 ms: {share:.3} of the fair share");
            assert!(share <= 1.0 / 3.0, "{name}: {share}");
        }
        // The measure itself: round robin gives the whole share, least_conn less.
        let fair = share_of_the_slow(per_tick, |c, turn, _| round_robin(c, turn));
        assert!((0.95..1.05).contains(&fair), "{fair}");
        let least = share_of_the_slow(per_tick, |c, turn, _| least_conn(c, turn));
        println!("least_conn, {per_tick} requests per 10 ms: {least:.3} of the fair share");
    }
}

fn any_candidates() -> impl Strategy<Value = Vec<One>> {
    let one = (1..=1_000u32, any::<bool>(), any::<u32>(), any::<f32>()).prop_map(
        |(weight, is_open, in_flight, latency)| One { weight, is_open, in_flight, latency },
    );
    prop::collection::vec(one, 0..40)
}

proptest! {
    #[test]
    fn weighted_turns_give_exact_shares(given in prop::collection::vec(1..60u32, 1..12), start: u32) {
        let c = weights(&given);
        let total = c.total_weight();
        let turns = u64::from(start)..u64::from(start) + total;
        let picks = turns.map(|turn| round_robin(&c, turn));
        let expected: Vec<_> = given.iter().map(|w| u64::from(*w)).collect();
        prop_assert_eq!(shares(c.len(), picks), expected);
    }

    #[test]
    fn weighted_shares_stay_exact_with_closed_endpoints(
        given in prop::collection::vec((1..10u32, any::<bool>()), 1..8),
    ) {
        let c: Vec<_> =
            given.iter().map(|&(weight, is_open)| One { weight, is_open, ..OPEN }).collect();
        let open = open_weight(&c);
        let picks = (0..c.total_weight() * open).map(|turn| round_robin(&c, turn));
        let share = |one: &One| if one.is_open { c.total_weight() * u64::from(one.weight) } else { 0 };
        prop_assert_eq!(shares(c.len(), picks), c.iter().map(share).collect::<Vec<_>>());
    }

    #[test]
    fn a_pick_is_open_and_there_is_one_if_any_is_open(c in any_candidates(), turn: u64) {
        let mut random = random(turn);
        let picks =
            [round_robin(&c, turn), least_conn(&c, turn), ewma(&c, &mut random), p2c(&c, &mut random)];
        for pick in picks {
            prop_assert_eq!(pick.is_some(), c.iter().any(|one| one.is_open));
            prop_assert!(pick.is_none_or(|index| c[index].is_open));
        }
    }

    #[test]
    fn wrong_totals_do_not_panic(given in any_candidates(), total: u64, turn: u64) {
        struct Wrong(Vec<One>, u64);
        impl Candidates for Wrong {
            fn count(&self) -> usize { self.0.len() }
            fn is_open(&self, index: usize) -> bool { self.0[index].is_open }
            fn weight(&self, index: usize) -> u32 { self.0[index].weight }
            fn in_flight(&self, index: usize) -> u32 { self.0[index].in_flight }
            fn latency(&self, index: usize) -> f32 { self.0[index].latency }
            fn total_weight(&self) -> u64 { self.1 }
        }
        let c = Wrong(given, total);
        let mut random = random(turn);
        let picks =
            [round_robin(&c, turn), least_conn(&c, turn), ewma(&c, &mut random), p2c(&c, &mut random)];
        for pick in picks.into_iter().flatten() {
            prop_assert!(c.is_open(pick));
        }
    }
}

/// Other workers begin a request at each look.
struct Moving(std::cell::Cell<u32>);

impl Candidates for Moving {
    fn count(&self) -> usize {
        3
    }
    fn is_open(&self, _: usize) -> bool {
        true
    }
    fn weight(&self, _: usize) -> u32 {
        1
    }
    fn in_flight(&self, _: usize) -> u32 {
        self.0.replace(self.0.get() + 1)
    }
    fn latency(&self, _: usize) -> f32 {
        0.0
    }
    fn total_weight(&self) -> u64 {
        3
    }
}

#[test]
fn somebody_is_found_while_others_count() {
    assert_eq!(least_conn(&Moving(0.into()), 0), Some(0));
}
