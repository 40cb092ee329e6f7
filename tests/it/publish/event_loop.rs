//! A write that is too long for the event loop is worked on by a thread, however short its body is.
//!
//! Work is measured, not time: the kernel counts how often each thread of nginx's pool got a processor.

use anyhow::{Context, Result, ensure};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use serde_json::{Map, Value, json};
use std::fs;

#[test]
fn a_write_that_looks_at_much_is_done_by_a_thread() {
    pass("event-loop-writes", |directory| {
        let mut site = site(directory, "32m")?;
        let backends: Map<_, _> = (0..1_100).map(|n| (format!("b{n}"), json!({}))).collect();
        let large: Vec<_> = (0..5_000).map(endpoint).collect();
        let whole = json!({"version": 1, "snapshot": {"backends": backends,
            "endpoints": {"large": large, "small": [endpoint(1)]}}});
        let applied = block_on(site.configuration.put(whole.to_string()))?;
        ensure!(applied.status == 200, "{applied}");

        let keys: Vec<_> = backends.keys().collect();
        let retain = json!({"retain": {"backends": keys, "endpoints": ["large", "small"]}});
        let many: Map<_, _> =
            (0..300).map(|n| (format!("b{n}"), json!({"slow_start_ms": n + 1}))).collect();
        // Expressions are compiled where the delta is read.
        let rules = |count: usize| -> Vec<_> {
            let pattern =
                |n: usize| json!({"path": {"regex": format!("/{n}/([a-z]+)")}, "backend": "b0"});
            (0..count).map(pattern).collect()
        };
        let expressions =
            |count| json!({"upsert": {"servers": {"a.test": {"rules": rules(count)}}}});
        let removed: Vec<_> = (0..300).map(|n| format!("absent{n}")).collect();
        let patches = [
            ("one endpoint", false, json!({"upsert": {"endpoints": {"small": [endpoint(2)]}}})),
            ("a backend of one endpoint", false, algorithm("small")),
            ("a backend of 5,000 endpoints", true, algorithm("large")),
            ("20 expressions", true, expressions(20)),
            ("300 backends", true, json!({"upsert": {"backends": many}})),
            ("300 removals", true, json!({"remove": {"backends": removed}})),
            ("the end of a snapshot in parts", true, retain),
            (
                "one endpoint again",
                false,
                json!({"upsert": {"endpoints": {"small": [endpoint(3)]}}}),
            ),
        ];
        for (what, is_long, patch) in patches {
            ensure!(
                patch.to_string().len() < 64 * 1024,
                "{what}: {} bytes",
                patch.to_string().len()
            );
            let turns = turns_of(&site, patch)?;
            ensure!((turns > 0) == is_long, "{what}: threads got {turns} turns");
        }
        finish(&mut site)
    });
}

/// A write that finds no room is undone, for which every record is looked at.
#[test]
fn a_write_that_may_find_no_room_is_done_by_a_thread() {
    pass("event-loop-full", |directory| {
        let mut site = site(directory, "2m")?;
        let free = |site: &Site| anyhow::Ok(block_on(site.configuration.status())?.free_bytes);
        let set = |n: usize| json!({"upsert": {"endpoints": {format!("s{n}"): [endpoint(n)]}}});
        ensure!(turns_of(&site, set(0))? == 0, "a thread was at work while there was room");
        let mut large = 0;
        while free(&site)? > 200 * 1024 {
            large += 1;
            let endpoints: Vec<_> = (0..200).map(endpoint).collect();
            turns_of(
                &site,
                json!({"upsert": {"endpoints": {format!("large{large}"): endpoints}}}),
            )?;
        }
        ensure!(turns_of(&site, set(1))? > 0, "{} bytes are free", free(&site)?);
        finish(&mut site)
    });
}

fn site(directory: &Directory, zone_size: &str) -> Result<Site> {
    let mut plan = Plan::router(1)?;
    plan.zone_size = zone_size.into();
    Site::start(&plan, directory)
}

fn finish(site: &mut Site) -> Result<()> {
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

fn endpoint(n: usize) -> Value {
    json!({"address": format!("10.1.{}.{}", n / 250, n % 250 + 1), "port": 80})
}

fn algorithm(id: &str) -> Value {
    json!({"upsert": {"backends": {id: {"algorithm": "ewma"}}}})
}

/// How often threads of the worker's pool got a processor for a delta.
fn turns_of(site: &Site, mut patch: Value) -> Result<u64> {
    patch["version"] = json!(1);
    let tag = block_on(site.configuration.tag())?;
    let before = turns_at_rest(site)?;
    let applied = block_on(site.configuration.patch(&tag, patch.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    Ok(turns_at_rest(site)? - before)
}

/// The turns of all threads once they wait for work: a thread that has handed its result over may need another turn to
/// get there, which belongs to the write before.
fn turns_at_rest(site: &Site) -> Result<u64> {
    let mut last = None;
    until("threads that wait for work", || {
        let now = turns(site)?;
        ensure!(last.replace(now) == Some(now), "{now} turns, and another one since");
        Ok(now)
    })
}

/// The turns of all threads, if none of them runs or waits for a processor.
fn turns(site: &Site) -> Result<u64> {
    let pid = *site.nginx.worker_pids().first().context("no worker")?;
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        if task.file_name() == pid.to_string().as_str() {
            continue;
        }
        let stat = fs::read_to_string(task.path().join("stat"))?;
        let (_, state) = stat.rsplit_once(") ").context("no state")?;
        ensure!(state.starts_with('S'), "a thread is at work: {state}");
        let text = fs::read_to_string(task.path().join("schedstat"))?;
        sum += text.split_whitespace().nth(2).context("no schedstat")?.parse::<u64>()?;
    }
    Ok(sum)
}
