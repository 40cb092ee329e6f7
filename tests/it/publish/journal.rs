//! The journal: nginx starts with the last state, whole and without a controller.

use anyhow::{Context, Result, ensure};
use oxigress_fuzz::Random;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Request, handshake, send};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::place::Directory;
use oxigress_tests::process::stop_pid;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use serde_json::{Map, Value, json};
use std::fs;

/// Deltas of a journal that is cut, each a frame.
const DELTAS: usize = 12;

#[test]
fn a_killed_nginx_starts_with_what_it_served() {
    pass("journal", start_again);
}

#[test]
fn a_cut_journal_is_used_up_to_its_last_whole_frame() {
    pass("journal-cut", |directory| cut(directory, 12));
}

#[test]
#[ignore = "200 starts of nginx"]
fn soak_a_cut_journal_is_used_up_to_its_last_whole_frame() {
    pass("journal-cut", |directory| cut(directory, 200));
}

#[test]
fn ten_thousand_backends_are_there_at_the_first_request() {
    pass("journal-many", start_with_many);
}

#[test]
fn what_the_journal_holds_back_does_not_fill_the_zone() {
    pass("journal-full", replace_all_again_and_again);
}

#[test]
fn a_journal_that_cannot_be_written_harms_nobody_and_is_written_later() {
    pass("journal-away", write_later);
}

/// Several workers; they run as the user of the test, so that they may write in its directory.
fn plan(workers: usize, zone_size: &str) -> Result<Plan> {
    let mut plan = Plan::router(workers)?;
    plan.zone_size = zone_size.into();
    plan.main_config = "user root;\ningress_journal $DIR/journal/journal;\n".into();
    Ok(plan)
}

fn start(plan: &Plan, directory: &Directory) -> Result<Site> {
    fs::create_dir_all(directory.join("journal"))?;
    Site::start(plan, directory)
}

fn rules(backend: &str) -> Value {
    json!({"rules": [{"path": {"prefix": "/"}, "backend": backend}]})
}

fn endpoint_of(site: &Site, host: &str) -> Result<Option<String>> {
    let response = block_on(send(&site.http(), &Request::get(host, "/")))?;
    // 503: nothing at all is served.
    ensure!([200, 404, 503].contains(&response.status), "{host}: {response}");
    Ok(response.endpoint())
}

fn start_again(directory: &Directory) -> Result<()> {
    let workers = 2;
    let mut site = start(&plan(workers, "8m")?, directory)?;
    let (one, other) = (Endpoint::start("one")?, Endpoint::start("other")?);
    let certificate = Certificate::new("shop", &["shop.test"])?;
    let whole = json!({"version": 1, "snapshot": {
        "servers": {"shop.test": rules("shop"), "gone.test": rules("shop")},
        "backends": {"shop": {}}, "endpoints": {"shop": [one.native()]},
        "certificates": {"c": {"chain": certificate.chain, "key": certificate.key}},
        "names": {"shop.test": "c"}}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    site.wait_for_journal()?;
    let delta = json!({"version": 1, "upsert": {"endpoints": {"shop": [other.native()]}},
        "remove": {"servers": ["gone.test"]}});
    let tag = block_on(site.configuration.tag())?;
    let applied = block_on(site.configuration.patch(&tag, delta.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    site.wait_for_journal()?;

    for round in 0..3 {
        site.kill_and_start(directory, workers)?;
        ensure!(endpoint_of(&site, "shop.test")?.as_deref() == Some("other"), "round {round}");
        ensure!(endpoint_of(&site, "gone.test")?.is_none(), "what was removed is back");
        let name = block_on(handshake(&Address::https(site.https_port, "shop.test")))?;
        ensure!(name == "shop", "the certificate of {name}");
        // A write that was made for the nginx before does not fit this one.
        let stale = block_on(site.configuration.patch(&tag, delta.to_string()))?;
        ensure!(stale.status == 409, "{stale}");
        site.wait_for_journal()?;
    }
    site.nginx.check_error_log()
}

/// Delta n brings host n, and moves `moving.test` to endpoint n modulo 3.
fn cut(directory: &Directory, cuts: usize) -> Result<()> {
    let mut site = start(&plan(1, "4m")?, directory)?;
    let endpoints = ["a", "b", "c"].map(Endpoint::start).into_iter().collect::<Result<Vec<_>>>()?;
    let sets: Map<_, _> = ["a", "b", "c"]
        .iter()
        .zip(&endpoints)
        .map(|(name, endpoint)| ((*name).to_owned(), json!([endpoint.native()])))
        .collect();
    let backends = json!({"a": {}, "b": {}, "c": {}});
    let moving = |n: usize| ["a", "b", "c"][n % 3];
    let whole = json!({"version": 1, "snapshot": {"servers": {"moving.test": rules(moving(0))},
        "backends": backends, "endpoints": sets}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    let file = directory.join("journal/journal");
    site.wait_for_journal()?;
    // The bytes up to which each delta is whole.
    let mut lengths = vec![fs::metadata(&file)?.len()];
    for n in 1..=DELTAS {
        let delta = json!({"version": 1, "upsert": {"servers": {
            "moving.test": rules(moving(n)), format!("host{n}.test"): rules("a")}}});
        let tag = block_on(site.configuration.tag())?;
        let applied = block_on(site.configuration.patch(&tag, delta.to_string()))?;
        ensure!(applied.status == 200, "{applied}");
        site.wait_for_journal()?;
        lengths.push(fs::metadata(&file)?.len());
    }
    ensure!(lengths.is_sorted_by(|a, b| a < b), "a frame a delta: {lengths:?}");
    let whole = fs::read(&file)?;

    let mut random = Random::new(1);
    for _ in 0..cuts {
        let length = random.below(whole.len() + 1) as u64;
        // The nginx that is killed keeps its journal; the next one finds this.
        let fresh = directory.join("journal/cut");
        fs::write(&fresh, whole.get(..length as usize).context("within the file")?)?;
        let pids = site.nginx.worker_pids();
        // One that still ran could put its own journal in the place of this one.
        pids.into_iter().try_for_each(stop_pid)?;
        fs::rename(&fresh, &file)?;
        site.kill_and_start(directory, 1)?;

        let last = lengths.iter().rposition(|whole| *whole <= length);
        let expected = last.map(|n| moving(n).to_owned());
        let found = endpoint_of(&site, "moving.test")?;
        ensure!(found == expected, "cut at {length} of {lengths:?}: {found:?}");
        if last.is_none() {
            // Whatever it is worth: nothing better is there to replace it.
            ensure!(fs::metadata(&file)?.len() == length, "an empty nginx wrote over it");
        }
        for n in 1..=DELTAS {
            let is_there = endpoint_of(&site, &format!("host{n}.test"))?.is_some();
            ensure!(is_there == last.is_some_and(|last| n <= last), "host {n}, cut at {length}");
        }
    }
    println!("{cuts} cuts of {} bytes", whole.len());
    site.nginx.check_error_log()
}

fn start_with_many(directory: &Directory) -> Result<()> {
    const BACKENDS: usize = 10_000;
    let workers = 2;
    let mut site = start(&plan(workers, "64m")?, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let named = |value: &dyn Fn(usize) -> Value, name: &dyn Fn(usize) -> String| -> Value {
        (0..BACKENDS).map(|n| (name(n), value(n))).collect::<Map<_, _>>().into()
    };
    let id = |n: usize| format!("ns/shop-{n}/80");
    let set: Vec<_> = std::iter::once(endpoint.native())
        .chain((1..10).map(|n| json!({"address": format!("127.0.9.{n}"), "port": 9})))
        .collect();
    // Of those that are asked for, one endpoint, the one that answers.
    let set = |n: usize| if n.is_multiple_of(100) { json!([set[0]]) } else { json!(set) };
    let whole = json!({"version": 1, "snapshot": {
        "servers": named(&|n| rules(&id(n)), &|n| format!("host{n}.test")),
        "backends": named(&|_| json!({}), &id),
        "endpoints": named(&set, &id)}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    site.wait_for_journal()?;
    let before = block_on(site.configuration.status())?;
    site.kill_and_start(directory, workers)?;
    for n in (0..BACKENDS).step_by(1_000) {
        let found = endpoint_of(&site, &format!("host{n}.test"))?;
        ensure!(found.as_deref() == Some("shop"), "host {n}: {found:?}");
    }
    let after = block_on(site.configuration.status())?;
    ensure!(after.counts == before.counts, "{after:?}");

    // The time is told, not tested: `make bench` measures it.
    let started = site.kill_and_start(directory, workers)?;
    endpoint_of(&site, "host0.test")?;
    println!("started and served within {:?}", started.elapsed());
    site.nginx.check_error_log()
}

/// Two snapshots of which the zone holds one beside the live one, and not three.
fn replace_all_again_and_again(directory: &Directory) -> Result<()> {
    let mut site = start(&plan(1, "4m")?, directory)?;
    let certificate = Certificate::new("x", &["x.test"])?;
    let all = |marker: usize| -> Value {
        let sets: Map<_, _> = (0..720)
            .map(|n| {
                let set: Vec<_> = (0..20)
                    .map(|e| json!({"address": format!("127.{marker}.{e}.1"), "port": 80}))
                    .collect();
                (format!("b{n}"), json!(set))
            })
            .collect();
        let backends: Map<_, _> = sets.keys().map(|id| (id.clone(), json!({}))).collect();
        json!({"version": 1, "snapshot": {"backends": backends, "endpoints": sets}})
    };
    let snapshots = [all(1), all(2)].map(|snapshot| snapshot.to_string());
    let mut free = Vec::new();
    for round in 0..20 {
        let applied = block_on(site.configuration.put(snapshots[round % 2].clone()))?;
        ensure!(applied.status == 200, "round {round}: {applied}");
        free.push(block_on(site.configuration.status())?.free_bytes);
    }
    let status = block_on(site.configuration.status())?;
    let used = status.capacity_bytes - free[0];
    ensure!(3 * used > status.capacity_bytes, "three fit, so nothing was tried: {used}");
    // What never fits is refused as before, with or without a journal.
    let huge = json!({"version": 1, "snapshot": {"certificates": (0..3_000)
        .map(|n| (format!("c{n}"), json!({"chain": certificate.chain, "key": certificate.key})))
        .collect::<Map<_, _>>()}});
    let refused = block_on(site.configuration.put(huge.to_string()))?;
    ensure!(refused.status == 507, "{refused}");
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

fn write_later(directory: &Directory) -> Result<()> {
    let workers = 2;
    let mut site = start(&plan(workers, "4m")?, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let folder = directory.join("journal");
    site.wait_for_journal()?;
    fs::rename(&folder, directory.join("away"))?;
    let whole = json!({"version": 1, "snapshot": {"servers": {"shop.test": rules("shop")},
        "backends": {"shop": {}}, "endpoints": {"shop": [endpoint.native()]}}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    until("a line in the error log", || {
        let log = site.nginx.error_log();
        ensure!(log.contains("ingress_journal: ") && log.contains("No such file"), "{log}");
        Ok(())
    })?;
    ensure!(endpoint_of(&site, "shop.test")?.as_deref() == Some("shop"));
    fs::create_dir(&folder)?;
    site.wait_for_journal()?;
    site.kill_and_start(directory, workers)?;
    ensure!(endpoint_of(&site, "shop.test")?.as_deref() == Some("shop"));
    ensure!(dist::module()?.exists());
    site.nginx.check_error_log()
}
