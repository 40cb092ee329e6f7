//! Several writers at once: each write is applied whole or refused, none is lost.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Request, send};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until_async};
use serde_json::{Value, json};
use std::time::Duration;

const WRITERS: usize = 4;
const WRITES: usize = 25;

#[test]
fn concurrent_writers_are_told_to_try_again_and_lose_nothing() {
    pass("writers", write_at_once);
}

fn write_at_once(directory: &Directory) -> Result<()> {
    let mut plan = Plan::router(2)?;
    plan.zone_size = "16m".into();
    let mut site = Site::start(&plan, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let server = json!({"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]});
    let whole = json!({"version": 1, "snapshot": {"servers": {"load.test": server},
        "backends": {"shop": {}}, "endpoints": {"shop": [endpoint.native()]}}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    let before = block_on(site.configuration.status())?;
    let load = Load::start(LoadPlan::new(site.http(), vec![Request::get("load.test", "/")], 4))?;

    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (configuration, server) = (site.configuration.clone(), server.clone());
            runtime().spawn(async move {
                for number in 0..WRITES {
                    write(&configuration, writer, number, &server).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in tasks {
        block_on(task)??;
    }

    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    let after = block_on(site.configuration.status())?;
    ensure!(after.epoch == before.epoch, "{} became {}", before.epoch, after.epoch);
    let writes = (WRITERS * WRITES) as u64;
    ensure!(
        after.generation == before.generation + writes,
        "{writes} writes were answered with 200 and {} generations were made",
        after.generation - before.generation
    );
    for writer in 0..WRITERS {
        for number in 0..WRITES {
            let host = format!("w{writer}-{number}.test");
            let response = block_on(send(&site.http(), &Request::get(&host, "/")))?;
            ensure!(response.status == 200, "{host}: {response}");
        }
    }
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

#[test]
fn a_long_post_holds_no_request_up() {
    pass("long-post", post_much);
}

/// One worker reads and works on nearly as much as is taken, while it serves.
fn post_much(directory: &Directory) -> Result<()> {
    // Far more than an answer takes on a busy machine, far less than it takes to copy the body hundreds of times.
    const STALL: Duration = Duration::from_secs(5);
    let mut site = Site::start(&Plan::router(1)?, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let server = json!({"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]});
    let snapshot = json!({"servers": {"load.test": server}, "backends": {"shop": {}},
        "endpoints": {"shop": [endpoint.native()]}});
    let short = json!({"version": 1, "snapshot": snapshot}).to_string();
    let applied = block_on(site.configuration.put(short))?;
    ensure!(applied.status == 200, "{applied}");
    let load = Load::start(LoadPlan::new(site.http(), vec![Request::get("load.test", "/")], 4))?;

    let long = json!({"version": 1, "future": " ".repeat(60 << 20), "snapshot": snapshot});
    let applied = block_on(site.configuration.put(long.to_string()))?;
    ensure!(applied.status == 200, "{applied}");

    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    ensure!(report.slowest < STALL, "an answer took {:?}", report.slowest);
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

/// One host more; every second write is long enough to be worked on by a thread.
async fn write(
    configuration: &Configuration,
    writer: usize,
    number: usize,
    server: &Value,
) -> Result<()> {
    let long = if number.is_multiple_of(2) { " ".repeat(200_000) } else { String::new() };
    let body = json!({"version": 1, "future": long,
        "upsert": {"servers": {format!("w{writer}-{number}.test"): server}}})
    .to_string();
    let (configuration, body) = (configuration, body.as_str());
    until_async("a write to be applied", || async move {
        let tag = configuration.tag().await?;
        let response = configuration.patch(&tag, body.to_owned()).await?;
        if response.status == 503 {
            ensure!(response.header("retry-after").is_some(), "no Retry-After: {response}");
        }
        let is_refused = [409, 503].contains(&response.status);
        ensure!(response.status == 200 || is_refused, "neither applied nor refused: {response}");
        ensure!(!is_refused, "refused: {}", response.status);
        Ok(())
    })
    .await
    .with_context(|| format!("writer {writer}, write {number}"))
}
