//! After a write is answered, no worker serves an older generation.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Connection, Request};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::pass;
use oxigress_tests::pinned::pinned;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const WORKERS: usize = 4;
/// A generation is known by its number modulo this: more than can pass while one request is answered.
const NAMES: u64 = 32;

#[test]
fn no_worker_serves_an_older_generation_after_1000_answered_deltas() {
    pass("freshness", |directory| updates(directory, 1_000));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_freshness() {
    pass("freshness", |directory| updates(directory, 30_000));
}

fn updates(directory: &Directory, count: u64) -> Result<()> {
    let mut plan = Plan::router(WORKERS)?;
    plan.http_config = "keepalive_requests 100000000;".into();
    let mut site = Site::start(&plan, directory)?;
    let endpoints: Vec<_> =
        (0..NAMES).map(|n| Endpoint::start(&n.to_string())).collect::<Result<_>>()?;
    let set = |n: u64| json!([endpoints[(n % NAMES) as usize].native()]);

    let whole = json!({"version": 1, "snapshot": {
        "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
        "backends": {"shop": {}}, "endpoints": {"shop": set(0)}}});
    let applied = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    let mut tag = applied.header("etag").context("ETag")?.trim_matches('"').to_owned();

    // Written by this thread, read by the load: what was answered, and what was sent at most.
    let (answered, sent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let load = background(&site.http(), &answered, &sent)?;

    let request = Request::get("shop.test", "/");
    let pids = site.nginx.worker_pids();
    let mut connections = block_on(pinned(&site.http(), &request, &pids, 2))?;
    for number in 1..=count {
        sent.store(number, Ordering::SeqCst);
        let delta = json!({"version": 1, "upsert": {"endpoints": {"shop": set(number)}}});
        let applied = block_on(site.configuration.patch(&tag, delta.to_string()))?;
        ensure!(applied.status == 200, "update {number}: {applied}");
        answered.store(number, Ordering::SeqCst);
        tag = applied.header("etag").context("ETag")?.trim_matches('"').to_owned();
        for (pid, connections) in &mut connections {
            for connection in connections {
                let response = block_on(connection.send(&request))
                    .with_context(|| format!("worker {pid}, update {number}"))?;
                let expected = (number % NAMES).to_string();
                ensure!(
                    response.endpoint().as_ref() == Some(&expected),
                    "worker {pid} serves another generation after update {number}: {response}"
                );
                ensure!(
                    response.header("x-worker") == Some(pid.to_string()),
                    "the connection moved from worker {pid}"
                );
            }
        }
    }
    let seen = load.stop();
    ensure!(seen.is_empty(), "under load: {:?}", seen.iter().take(5).collect::<Vec<_>>());
    ensure!(site.nginx.worker_pids() == pids, "workers changed");
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

/// Requests all the time: each must be served by a generation that was live between its start and its end.
struct Background {
    is_stopped: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<Result<u64>>>,
}

fn background(
    address: &Address,
    answered: &Arc<AtomicU64>,
    sent: &Arc<AtomicU64>,
) -> Result<Background> {
    const CONNECTIONS: usize = 8;
    let is_stopped = Arc::new(AtomicU64::new(0));
    let tasks = (0..CONNECTIONS)
        .map(|_| {
            let (address, answered, sent, is_stopped) =
                (address.clone(), answered.clone(), sent.clone(), is_stopped.clone());
            oxigress_tests::wait::runtime().spawn(async move {
                let request = Request::get("shop.test", "/load");
                let mut connection = Connection::open(&address).await?;
                let mut count = 0;
                while is_stopped.load(Ordering::SeqCst) == 0 {
                    let oldest = answered.load(Ordering::SeqCst);
                    let response = connection.send(&request).await?;
                    let newest = sent.load(Ordering::SeqCst);
                    let name: u64 = response.endpoint().context("an endpoint")?.parse()?;
                    let possible: BTreeSet<u64> = (oldest..=newest).map(|n| n % NAMES).collect();
                    ensure!(
                        possible.contains(&name),
                        "endpoint {name} served, live were {oldest} to {newest}"
                    );
                    count += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(count)
            })
        })
        .collect();
    Ok(Background { is_stopped, tasks })
}

impl Background {
    fn stop(self) -> Vec<String> {
        self.is_stopped.store(1, Ordering::SeqCst);
        let ends = self.tasks.into_iter().map(block_on);
        ends.filter_map(|end| match end {
            Ok(Ok(0)) => Some("a connection without an answer".to_owned()),
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(error) => Some(error.to_string()),
        })
        .collect()
    }
}

#[test]
fn whole_snapshots_and_routes_are_fresh_as_well() {
    pass("freshness-routes", |directory| routes(directory, 50));
}

/// Hosts come and go by `PUT` and `PATCH` in turn; every worker agrees after each answer.
fn routes(directory: &Directory, count: u64) -> Result<()> {
    let mut plan = Plan::router(WORKERS)?;
    plan.http_config = "keepalive_requests 100000000;".into();
    let mut site = Site::start(&plan, directory)?;
    let endpoint = Endpoint::start("shop")?;
    let server = json!({"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]});
    let whole = |hosts: &[String]| {
        let mut servers = serde_json::Map::from_iter([("load.test".to_owned(), server.clone())]);
        servers.extend(hosts.iter().map(|host| (host.clone(), server.clone())));
        json!({"version": 1, "snapshot": {"servers": servers, "backends": {"shop": {}},
            "endpoints": {"shop": [endpoint.native()]}}})
        .to_string()
    };
    let applied = block_on(site.configuration.put(whole(&[])))?;
    ensure!(applied.status == 200, "{applied}");
    let load = Load::start(LoadPlan::new(site.http(), vec![Request::get("load.test", "/")], 8))?;
    let pids = site.nginx.worker_pids();
    let probe = Request::get("load.test", "/");
    let mut connections = block_on(pinned(&site.http(), &probe, &pids, 1))?;
    for number in 1..=count {
        let host = format!("host-{number}.test");
        let last = format!("host-{}.test", number - 1);
        let applied = if number % 2 == 0 {
            block_on(site.configuration.put(whole(std::slice::from_ref(&host))))?
        } else {
            let tag = block_on(site.configuration.tag())?;
            let delta = json!({"version": 1, "upsert": {"servers": {&host: server}},
                "remove": {"servers": [last]}});
            block_on(site.configuration.patch(&tag, delta.to_string()))?
        };
        ensure!(applied.status == 200, "{applied}");
        for (pid, connections) in &mut connections {
            for connection in connections {
                for (host, status) in [(&host, 200), (&last, 404)] {
                    let response = block_on(connection.send(&Request::get(host, "/")))?;
                    ensure!(response.status == status, "worker {pid}, {host}: {response}");
                }
            }
        }
    }
    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    site.nginx.stop()?;
    site.nginx.check_error_log()
}
