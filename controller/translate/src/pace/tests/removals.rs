//! What removals cost, which never wait.

use super::*;

/// A host of namespace `a` with 5,000 paths of one Ingress, and one path of each of so many others.
fn large_host(others: usize) -> Bench {
    let mut bench = Bench::new();
    bench.apply([plain("a", "large", "x", 5_000)]);
    bench.apply((0..others).map(|n| plain("a", &format!("i{n}"), &format!("{n}"), 1)));
    bench
}

#[test]
fn an_ingress_that_goes_costs_the_merging_of_its_hosts_and_later_changes_wait_for_it() {
    let mut bench = large_host(200);
    let gone = |n: usize| id("a", &format!("i{n}"));
    let price = bench.prices().of_removal(&gone(0));
    assert!((25_000_000..28_000_000).contains(&price.own), "{price:?}: a host of 5,200 rules");
    assert!((0..60).all(|n| bench.see(&gone(n), None, 0)), "a second and a half");
    let (edited, object) = plain("a", "i199", "y", 1);
    assert!(bench.see(&edited, object, 0), "there is some left");
    assert!((60..199).all(|n| bench.see(&gone(n), None, 0)), "removals never wait");
    let (edited, object) = plain("a", "i199", "z", 1);
    assert!(!bench.see(&edited, object, 0));
    let (other, object) = plain("b", "other", "y", 1);
    assert!(bench.see(&other, object, 0), "another namespace");
    // Nothing is owed: it waits for what it costs itself.
    assert!(bench.due(0).is_empty());
    assert_eq!(bench.due(1), ["i199"]);
}

#[test]
fn a_secret_that_goes_and_comes_costs_twice_what_reading_its_ingresses_costs() {
    let mut bench = Bench::new();
    bench.apply(readers(1_000).chain([users(0, "a")]));
    let (secret, object) = users(0, "b");
    let changed = bench.price(&secret, &object.unwrap());
    assert_eq!(bench.prices().of_removal(&secret).total(), changed);
    let edits = (0..100).take_while(|n| {
        assert!(bench.see(&secret, None, 0));
        let (secret, object) = users(0, &format!("u{n}"));
        bench.see(&secret, object, 0)
    });
    let count = edits.count();
    assert!((4..8).contains(&count), "{count} of some 170 milliseconds, twice each");
}

#[test]
fn what_nobody_reads_goes_for_nothing() {
    let mut bench = Bench::new();
    let (secret, object) = users(0, "a");
    bench.apply([(secret.clone(), object), (id("a", "i"), one(Ingress::default()))]);
    for gone in [secret, id("a", "i"), id("a", "unknown")] {
        assert_eq!(bench.prices().of_removal(&gone), Price::default(), "{gone}");
    }
    // Of a Service the endpoints that go are not read.
    bench.apply(readers(1).chain([service(80)]));
    let (service, _) = service(80);
    let price = bench.prices().of_removal(&service);
    assert!((60_000..400_000).contains(&price.own), "{price:?}");
}
