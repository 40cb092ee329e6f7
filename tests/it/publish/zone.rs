//! A zone that is exactly full, and what is free of it after many updates.

use anyhow::{Context, Result, ensure};
use oxigress_fuzz::Random;
use oxigress_tests::client::{Connection, Request, Response, send};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use serde_json::{Map, Value, json};
use std::time::Duration;

const WORKERS: usize = 2;

#[test]
fn a_zone_that_is_exactly_full_serves_on_and_takes_what_fits() {
    pass("full-zone", fill);
}

#[test]
fn free_bytes_after_4_000_updates_are_those_after_1_000() {
    pass("updates", |directory| update(directory, 4_000));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_zone() {
    pass("updates", |directory| update(directory, 100_000));
}

fn fill(directory: &Directory) -> Result<()> {
    let mut plan = Plan::router(WORKERS)?;
    plan.zone_size = "1m".into();
    plan.http_config = "keepalive_requests 100000000;".into();
    let trial = Trial::start(&plan, directory)?;
    let requests = vec![Request::get("shop.test", "/")];
    let load = Load::start(LoadPlan::new(trial.site.http(), requests, 4))?;

    // Sets of a thousand endpoints until one does not fit, then of half as many, and so on to none.
    let (mut keys, mut fitted_after_refusal) = (Vec::new(), 0);
    for count in [1_000, 500, 250, 125, 60, 30, 15, 8, 4, 2, 1, 0] {
        loop {
            let key = format!("filler-{}", keys.len());
            if !trial.fits(&trial.set(&key, count))? {
                break;
            }
            keys.push(key);
            fitted_after_refusal += u32::from(count < 1_000);
        }
    }
    ensure!(fitted_after_refusal > 0, "no smaller write succeeded after a refusal");
    let full = trial.settled_status()?;
    println!("full: {} records, {} bytes free", keys.len(), full.free_bytes);

    // What is refused is refused again, and says the truth; what is live stays so.
    for count in [1_000, 1, 0] {
        ensure!(!trial.fits(&trial.set("one-more", count))?, "{count} endpoints fitted after all");
    }
    let after = trial.settled_status()?;
    ensure!(
        (after.generation, after.free_bytes) == (full.generation, full.free_bytes),
        "refused writes changed something: {full:?}, then {after:?}"
    );
    trial.expect_served()?;

    // A removal fits into a full zone, and makes room for what was refused.
    let removal = json!({"version": 1, "remove": {"endpoints": [keys[0]]}});
    let removed = trial.patch(&removal)?;
    ensure!(removed.status == 200, "a removal from a full zone: {removed}");
    ensure!(trial.fits(&trial.set("in-its-place", 900))?, "no room after a removal");
    let all = json!({"version": 1, "remove": {"endpoints": keys}});
    let removed = trial.patch(&all)?;
    ensure!(removed.status == 200, "a removal of all of it: {removed}");
    trial.expect_served()?;
    load.wait_for(100)?;
    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    trial.end()
}

/// Random deltas over some hundred records of random size. After a thousand and at the end the same
/// snapshot is put: as much must be free.
fn update(directory: &Directory, updates: u64) -> Result<()> {
    const FIRST: u64 = 1_000;
    // The records of what was removed last have other keys, and so other places in the index.
    const OF_INDEX: u64 = 4_096;
    let mut plan = Plan::router(WORKERS)?;
    plan.zone_size = "8m".into();
    plan.http_config = "keepalive_requests 100000000;".into();
    let trial = Trial::start(&plan, directory)?;
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let address = &trial.site.configuration.address;
    let mut connection = block_on(Connection::open(address))?;
    let mut expected = None;
    for number in 1..=updates {
        let request =
            Configuration::request("PATCH", "/configuration", delta(&mut random).to_string());
        let response = block_on(connection.send(&request.header("If-Match", "*")))?;
        ensure!(response.status == 200, "seed {seed}, update {number}: {response}");
        if number == FIRST {
            trial.put()?;
            trial.forget_removed()?;
            expected = Some(trial.settled_status()?.free_bytes);
        }
    }
    let expected = expected.context("too few updates")?;
    trial.put()?;
    trial.forget_removed()?;
    until("as much to be free as after the first updates", || {
        let free = block_on(trial.site.configuration.status())?.free_bytes;
        let is_same = free.abs_diff(expected) <= OF_INDEX;
        ensure!(is_same, "{free} bytes are free, {expected} after {FIRST}; seed {seed}");
        Ok(())
    })?;
    println!("{expected} bytes free after {FIRST} and after {updates} updates");
    trial.expect_served()?;
    trial.end()
}

/// One to three records that come, change or go.
fn delta(random: &mut Random) -> Value {
    let (mut sets, mut servers) = (Map::new(), Map::new());
    let (mut gone_sets, mut gone_servers) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(3) {
        let (set, host) = (format!("set-{}", random.below(300)), random.below(300));
        let host = format!("host-{host}.test");
        match random.below(4) {
            0 if !sets.contains_key(&set) => gone_sets.push(set),
            1 if !servers.contains_key(&host) => gone_servers.push(host),
            2 if !gone_servers.contains(&host) => {
                let rules = (0..1 + random.below(20)).map(
                    |number| json!({"path": {"prefix": format!("/{number}")}, "backend": "shop"}),
                );
                servers.insert(host, json!({"rules": rules.collect::<Vec<_>>()}));
            }
            _ if !gone_sets.contains(&set) => {
                sets.insert(set, endpoints(random.below(60)));
            }
            _ => {}
        }
    }
    json!({"version": 1, "upsert": {"endpoints": sets, "servers": servers},
        "remove": {"endpoints": gone_sets, "servers": gone_servers}})
}

fn endpoints(count: usize) -> Value {
    (0..count)
        .map(|n| json!({"address": format!("10.0.{}.{}", n >> 8, n & 255), "port": 80}))
        .collect()
}

struct Trial {
    site: Site,
    endpoint: Endpoint,
}

impl Trial {
    /// A set is removed so often that it is all that the module keeps of removed backends.
    fn forget_removed(&self) -> Result<()> {
        let removal = json!({"version": 1, "remove": {"endpoints": ["removed"]}});
        for _ in 0..12 {
            ensure!(self.fits(&self.set("removed", 1_000))?, "the set does not fit");
            let removed = self.patch(&removal)?;
            ensure!(removed.status == 200, "{removed}");
        }
        Ok(())
    }

    fn start(plan: &Plan, directory: &Directory) -> Result<Self> {
        let (site, endpoint) = (Site::start(plan, directory)?, Endpoint::start("shop")?);
        let trial = Trial { site, endpoint };
        trial.put()?;
        Ok(trial)
    }

    fn put(&self) -> Result<()> {
        let whole = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [self.endpoint.native()]}}});
        let response = block_on(self.site.configuration.put(whole.to_string()))?;
        ensure!(response.status == 200, "{response}");
        Ok(())
    }

    fn set(&self, key: &str, count: usize) -> Value {
        json!({"version": 1, "upsert": {"endpoints": {key: endpoints(count)}}})
    }

    fn patch(&self, delta: &Value) -> Result<Response> {
        let request = Configuration::request("PATCH", "/configuration", delta.to_string());
        block_on(self.site.configuration.send(&request.header("If-Match", "*")))
    }

    /// Whether a write is applied. It is refused only once nothing waits to be freed any more, with 507 and
    /// figures that are true.
    fn fits(&self, delta: &Value) -> Result<bool> {
        let first = self.patch(delta)?;
        if first.status == 200 {
            return Ok(true);
        }
        ensure!(first.status == 507, "{first}");
        let before = self.settled_status()?;
        let response = self.patch(delta)?;
        if response.status == 200 {
            return Ok(true);
        }
        ensure!(response.status == 507, "{response}");
        let said: Value = response.json()?;
        let (needed, free) = (said["needed_bytes"].as_u64(), said["free_bytes"].as_u64());
        ensure!(free == Some(before.free_bytes), "{} were free: {response}", before.free_bytes);
        let text = said["error"].as_str().unwrap_or_default();
        ensure!(
            needed > free || text.contains("in one piece"),
            "refused although there is room: {response}"
        );
        Ok(false)
    }

    /// The status when every worker has let go of what is gone and it is freed.
    fn settled_status(&self) -> Result<oxigress_core::wire::native::Status> {
        let mut last = None;
        until("free bytes to settle", || {
            let status = block_on(self.site.configuration.status())?;
            ensure!(status.workers.len() == WORKERS, "{:?}", status.workers);
            let is_adopted = status.workers.iter().all(|w| w.generation == status.generation);
            let is_same = last.replace(status.free_bytes) == Some(status.free_bytes);
            // Longer than a worker's tick.
            std::thread::sleep(Duration::from_millis(300));
            ensure!(is_adopted && is_same, "{status:?}");
            Ok(status)
        })
    }

    fn expect_served(&self) -> Result<()> {
        let response = block_on(send(&self.site.http(), &Request::get("shop.test", "/")))?;
        ensure!(response.endpoint().as_deref() == Some("shop"), "{response}");
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.site.nginx.stop()?;
        self.site.nginx.check_error_log()
    }
}
