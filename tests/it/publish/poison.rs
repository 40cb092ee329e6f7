//! Freed records are overwritten while workers are stopped, killed and continued: nobody reads one.
//!
//! The module is the one with the feature `poison`: a block of the store is overwritten when it is freed, and a
//! reader that finds such a block panics. What is read after that check shows as a wrong answer.

use anyhow::{Context, Result, ensure};
use oxigress_fuzz::Random;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Connection, Request, Response};
use oxigress_tests::dist;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::nginx::BAD_IN_ERROR_LOG;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::signal_pid;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: usize = 4;
/// Certificates and servers that take turns: what is looked up differs from request to request.
const HOSTS: u64 = 8;

#[test]
fn no_worker_reads_a_freed_record_while_20_are_stopped_killed_and_continued() {
    pass("poison", |directory| disturb(directory, 20));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_poison() {
    pass("poison", |directory| disturb(directory, 1_000));
}

/// Stops, kills and continues workers `times` times while deltas replace all that requests read.
fn disturb(directory: &Directory, times: u64) -> Result<()> {
    let mut plan = Plan::with_module(WORKERS, Some(dist::failpoints_module()?));
    plan.http_config = "keepalive_requests 100000000;".into();
    let mut site = Site::start(&plan, directory)?;
    let endpoints = [Endpoint::start("0")?, Endpoint::start("1")?];
    let content = Content::new(&endpoints)?;
    let applied = block_on(site.configuration.put(content.whole().to_string()))?;
    ensure!(applied.status == 200, "{applied}");

    let killed = Arc::<Mutex<BTreeSet<u32>>>::default();
    let watch = Watch::start(&site)?;
    let mut random = Random::new(times);
    let (mut number, mut written_beside) = (0, 0);
    for round in 0..times {
        let pids = site.nginx.worker_pids();
        ensure!(pids.len() == WORKERS, "workers: {pids:?}");
        let (victim, other) = two_of(&mut random, &pids);
        // Stopped in the middle of whatever it does; its slot says what it has seen, so nothing that it may
        // still read is freed.
        signal_pid(victim, Signal::STOP)?;
        let is_killed = random.below(2) == 0;
        for _ in 0..5 + random.below(20) {
            // Unless it has the writers' lock: then nothing can be written before it goes on or dies.
            if block_on(write(&site, &content, number + 1)).is_err() {
                break;
            }
            number += 1;
            written_beside += 1;
        }
        if is_killed {
            killed.lock().expect("no panic inside").insert(victim);
            // At times one that runs, while the other one is stopped.
            if random.below(4) == 0 {
                killed.lock().expect("no panic inside").insert(other);
                signal_pid(other, Signal::KILL)?;
            }
            signal_pid(victim, Signal::KILL)?;
        } else {
            signal_pid(victim, Signal::CONT)?;
        }
        until("the workers", || {
            let now = site.nginx.worker_pids();
            ensure!(now.len() == WORKERS && now.contains(&victim) != is_killed, "{now:?}");
            Ok(())
        })
        .with_context(|| format!("round {round}"))?;
        // What the stopped one held is freed now: every worker goes on with what is left.
        for _ in 0..5 {
            number += 1;
            until("a write", || block_on(write(&site, &content, number)))?;
        }
        let log = site.nginx.error_log();
        ensure!(!log.contains("panicked"), "round {round}: a worker panicked");
    }
    ensure!(written_beside >= 3 * times, "{written_beside} deltas while a worker was stopped");
    watch.stop(&killed.lock().expect("no panic inside"))?;
    site.nginx.stop()?;
    nothing_bad_is_logged(&site.nginx.error_log())
}

fn nothing_bad_is_logged(log: &str) -> Result<()> {
    let is_bad = |line: &&str| {
        // nginx's own words for a killed worker and for the lock that it held.
        !line.contains("exited on signal 9")
            && !line.contains("was locked by")
            && BAD_IN_ERROR_LOG.iter().any(|bad| line.contains(bad))
    };
    match log.lines().find(is_bad) {
        Some(line) => anyhow::bail!("in the error log: {line}"),
        None => Ok(()),
    }
}

struct Content<'e> {
    endpoints: &'e [Endpoint; 2],
    /// Two a host, which take turns.
    certificates: Vec<[Certificate; 2]>,
}

fn host(number: u64) -> String {
    format!("h{}.test", number % HOSTS)
}

impl<'e> Content<'e> {
    fn new(endpoints: &'e [Endpoint; 2]) -> Result<Self> {
        let pair = |n: u64| -> Result<[Certificate; 2]> {
            let host = host(n);
            Ok([Certificate::new(&host, &[&host])?, Certificate::new(&host, &[&host])?])
        };
        Ok(Content { endpoints, certificates: (0..HOSTS).map(pair).collect::<Result<_>>()? })
    }

    fn server(number: u64) -> Value {
        // A record of another length each time, so that blocks are split, joined and used again.
        let filler: Vec<Value> = (0..number % 17)
            .map(|n| json!({"path": {"exact": format!("/{n}")}, "backend": "shop"}))
            .chain([json!({"path": {"prefix": "/"}, "backend": "shop"})])
            .collect();
        json!({ "rules": filler })
    }

    fn certificate(&self, number: u64, turn: u64) -> Value {
        let certificate = &self.certificates[(number % HOSTS) as usize][(turn % 2) as usize];
        json!({"chain": certificate.chain, "key": certificate.key})
    }

    fn whole(&self) -> Value {
        let mut servers = serde_json::Map::new();
        let mut certificates = serde_json::Map::new();
        let mut names = serde_json::Map::new();
        for n in 0..HOSTS {
            names.insert(host(n), json!(format!("c{n}")));
            servers.insert(host(n), Self::server(n));
            certificates.insert(format!("c{n}"), self.certificate(n, 0));
        }
        let both: Vec<Value> = self.endpoints.iter().map(Endpoint::native).collect();
        json!({"version": 1, "snapshot": {"servers": servers, "backends": {"shop": {}},
            "endpoints": {"shop": both}, "certificates": certificates, "names": names}})
    }

    fn delta(&self, number: u64) -> Value {
        let endpoint = self.endpoints[(number % 2) as usize].native();
        json!({"version": 1, "upsert": {
            "servers": {host(number): Self::server(number)},
            "endpoints": {"shop": [endpoint], format!("filler/{}", number % 5): []},
            "certificates": {format!("c{}", number % HOSTS): self.certificate(number, number / HOSTS)}}})
    }
}

/// Fails when the connection goes to a worker that is stopped or dies.
async fn write(site: &Site, content: &Content<'_>, number: u64) -> Result<()> {
    let attempt = async {
        let tag = site.configuration.tag().await?;
        site.configuration.patch(&tag, content.delta(number).to_string()).await
    };
    let answer = tokio::time::timeout(Duration::from_secs(3), attempt).await;
    let response = answer.context("no answer")??;
    ensure!(response.status == 200, "{response}");
    Ok(())
}

fn two_of(random: &mut Random, pids: &[u32]) -> (u32, u32) {
    let first = random.below(pids.len());
    let step = 1 + random.below(pids.len() - 1);
    (pids[first], pids[(first + step) % pids.len()])
}

/// Requests on kept and on fresh connections, over HTTP and HTTPS. An answer must be right; only a connection
/// to a worker that was killed may end without one.
struct Watch {
    is_stopped: Arc<AtomicBool>,
    answered: [Arc<AtomicU64>; 2],
    tasks: Vec<tokio::task::JoinHandle<Vec<(u32, String)>>>,
}

impl Watch {
    fn start(site: &Site) -> Result<Self> {
        let is_stopped = Arc::<AtomicBool>::default();
        let answered: [Arc<AtomicU64>; 2] = Default::default();
        let mut tasks = Vec::new();
        for n in 0..HOSTS {
            let addresses = [site.http(), Address::https(site.https_port, host(n))];
            for (address, answered) in addresses.into_iter().zip(&answered) {
                let visitor = Visitor { address, host: host(n), answered: answered.clone() };
                tasks.push(runtime().spawn(visitor.visit(is_stopped.clone())));
            }
        }
        let watch = Watch { is_stopped, answered, tasks };
        until("the load's first answers", || {
            let counts = watch.counts();
            ensure!(counts.iter().all(|count| *count > 100), "{counts:?}");
            Ok(())
        })?;
        Ok(watch)
    }

    fn counts(&self) -> [u64; 2] {
        self.answered.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    fn stop(self, killed: &BTreeSet<u32>) -> Result<()> {
        self.is_stopped.store(true, Ordering::SeqCst);
        let [http, https] = self.counts();
        let mut lost = 0;
        for task in self.tasks {
            for (pid, error) in block_on(task)? {
                ensure!(killed.contains(&pid), "worker {pid}, which was not killed: {error}");
                lost += 1;
            }
        }
        println!(
            "{http} answers over HTTP, {https} over HTTPS; {lost} lost with {} workers",
            killed.len()
        );
        Ok(())
    }
}

struct Visitor {
    address: Address,
    host: String,
    answered: Arc<AtomicU64>,
}

impl Visitor {
    async fn visit(self, is_stopped: Arc<AtomicBool>) -> Vec<(u32, String)> {
        /// On one connection; then the next one, which makes a handshake.
        const REQUESTS: u32 = 30;
        let request = Request::get(&self.host, "/watch");
        let mut failures = Vec::new();
        while !is_stopped.load(Ordering::SeqCst) {
            // The connection, and its first request, may be a worker's that is just being replaced.
            let Ok(mut connection) = Connection::open(&self.address).await else { continue };
            if let Some(name) = connection.certificate()
                && name != self.host
            {
                failures.push((0, format!("{} got the certificate {name}", self.host)));
            }
            let mut pid = 0;
            for _ in 0..REQUESTS {
                match connection.send(&request).await {
                    Ok(response) if is_right(&response) => {
                        pid = response.header("x-worker").and_then(|p| p.parse().ok()).unwrap_or(0);
                        self.answered.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(response) => failures.push((0, response.to_string())),
                    Err(_) if pid == 0 => break,
                    Err(error) => {
                        failures.push((pid, format!("{error:#}")));
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        failures
    }
}

fn is_right(response: &Response) -> bool {
    let endpoint = response.endpoint();
    response.status == 200 && ["0", "1"].iter().any(|name| endpoint.as_deref() == Some(name))
}
