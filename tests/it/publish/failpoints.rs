//! A worker that dies inside an update harms nobody else and leaves nothing behind.

use anyhow::{Context, Result, ensure};
use oxigress_store::FAILPOINTS;
use oxigress_tests::client::{Address, Connection, Request};
use oxigress_tests::dist;
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::pinned::pinned;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const WORKERS: usize = 4;
/// What counts as a stall: far more than an answer takes on a busy machine.
const STALL: Duration = Duration::from_secs(5);

#[test]
fn a_worker_killed_at_each_failpoint_5_times_harms_nobody() {
    pass("failpoints", |directory| kill(directory, 5));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_failpoints() {
    pass("failpoints", |directory| kill(directory, 100));
}

fn kill(directory: &Directory, times: u64) -> Result<()> {
    let armed = directory.join("failpoint");
    let mut plan = Plan::with_module(WORKERS, Some(dist::failpoints_module()?));
    plan.main_config = "env OXIGRESS_FAILPOINTS_FILE;".into();
    plan.http_config = "keepalive_requests 100000000;".into();
    plan.environment = vec![("OXIGRESS_FAILPOINTS_FILE".into(), armed.clone())];
    // The worker that kills itself removes the file, as whatever user nginx's workers run.
    open_to_workers(directory.path())?;
    let site = Site::start(&plan, directory)?;
    let endpoints = [Endpoint::start("0")?, Endpoint::start("1")?];
    let mut trial = Trial { site, endpoints, armed, number: 0, killed: Arc::default() };

    trial.put()?;
    let free_bytes = trial.settled_free_bytes()?;
    let load = Watch::start(&trial)?;
    for name in FAILPOINTS {
        for time in 1..=times {
            trial.kill_at(name).with_context(|| format!("{name}, time {time}"))?;
        }
        trial.put()?;
        until("the memory to be free again", || {
            let status = block_on(trial.site.configuration.status())?;
            // Removed backends are kept a while for requests under way, in at most a sixteenth of the zone.
            let kept = status.capacity_bytes / 16;
            ensure!(
                (free_bytes.saturating_sub(kept)..=free_bytes).contains(&status.free_bytes),
                "{name}: {} free bytes, before {free_bytes}; {status:?}",
                status.free_bytes
            );
            Ok(())
        })?;
    }
    load.stop(&trial)?;
    let kills = trial.killed.lock().expect("no panic inside").len() as u64;
    ensure!(kills == times * FAILPOINTS.len() as u64, "{kills} workers were killed");
    trial.site.nginx.stop()?;
    let log = trial.site.nginx.error_log();
    let is_bad = |line: &&str| {
        // nginx's own words for a killed worker and for the lock that it held.
        !line.contains("exited on signal 9")
            && !line.contains("was locked by")
            && ["[emerg]", "[crit]", "[alert]", "panicked"].iter().any(|bad| line.contains(bad))
    };
    match log.lines().find(is_bad) {
        Some(line) => anyhow::bail!("in the error log: {line}"),
        None => Ok(()),
    }
}

fn open_to_workers(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}

struct Trial {
    site: Site,
    endpoints: [Endpoint; 2],
    armed: PathBuf,
    /// Of the last delta that was answered; its parity names the endpoint that serves.
    number: u64,
    killed: Arc<Mutex<BTreeSet<u32>>>,
}

impl Trial {
    fn endpoint(&self, number: u64) -> &Endpoint {
        &self.endpoints[(number % 2) as usize]
    }

    /// The same snapshot every time.
    fn put(&mut self) -> Result<()> {
        self.number = 0;
        let mut sets = serde_json::Map::new();
        for filler in 0..50 {
            sets.insert(format!("filler/{filler}/80"), json!([self.endpoint(1).native()]));
        }
        sets.insert("shop".into(), json!([self.endpoint(0).native()]));
        let whole = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": sets}});
        let response = block_on(self.site.configuration.put(whole.to_string()))?;
        ensure!(response.status == 200, "{response}");
        Ok(())
    }

    /// Free bytes when every worker has let go of what is gone.
    fn settled_free_bytes(&self) -> Result<u64> {
        let mut last = None;
        until("free bytes to settle", || {
            let status = block_on(self.site.configuration.status())?;
            ensure!(status.workers.len() == WORKERS, "{:?}", status.workers);
            let is_adopted = status.workers.iter().all(|w| w.generation == status.generation);
            let found = (is_adopted, status.free_bytes);
            let is_same = last.replace(found) == Some(found);
            std::thread::sleep(Duration::from_millis(300));
            ensure!(is_adopted && is_same, "{status:?}");
            Ok(status.free_bytes)
        })
    }

    /// Arms the failpoint, writes until a worker has died there, and looks at all workers.
    fn kill_at(&mut self, name: &str) -> Result<()> {
        let before = self.site.nginx.worker_pids();
        let fresh = self.armed.with_extension("new");
        fs::write(&fresh, name)?;
        open_to_workers(&fresh)?;
        fs::rename(&fresh, &self.armed)?;

        let mut number = self.number;
        until("a worker to die", || {
            number += 1;
            // Fails when it is the writer that dies.
            let _ = block_on(write(&self.site.configuration, self.endpoint(number), number));
            ensure!(!self.armed.exists(), "the failpoint was not reached");
            Ok(())
        })?;
        let after = until("the next worker", || {
            let pids = self.site.nginx.worker_pids();
            ensure!(pids.len() == WORKERS && pids != before, "{before:?}, now {pids:?}");
            Ok(pids)
        })?;
        let killed: Vec<u32> = before.iter().filter(|p| !after.contains(p)).copied().collect();
        ensure!(killed.len() == 1, "killed: {killed:?}");
        self.killed.lock().expect("no panic inside").extend(&killed);

        self.number = number + 1;
        until("a write to be answered", || {
            let configuration = &self.site.configuration;
            block_on(write(configuration, self.endpoint(self.number), self.number))
        })?;
        let request = Request::get("shop.test", "/");
        let all = block_on(pinned(&self.site.http(), &request, &after, 1))?;
        for (pid, mut connections) in all {
            for connection in &mut connections {
                let response = block_on(connection.send(&request))?;
                ensure!(
                    response.endpoint().as_ref() == Some(&self.endpoint(self.number).name),
                    "worker {pid} serves an older generation: {response}"
                );
            }
        }
        Ok(())
    }
}

async fn write(configuration: &Configuration, endpoint: &Endpoint, number: u64) -> Result<()> {
    let tag = configuration.tag().await?;
    let more: Value = json!([endpoint.native()]);
    let delta = json!({"version": 1, "upsert": {"endpoints": {
        "shop": more, format!("filler/{}/80", number % 50): []}}});
    let response = configuration.patch(&tag, delta.to_string()).await?;
    ensure!(response.status == 200, "{response}");
    Ok(())
}

/// Requests all the time on kept-alive connections: only those of a killed worker may fail, and none stalls.
struct Watch {
    is_stopped: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<Vec<(u32, String)>>>,
}

impl Watch {
    fn start(trial: &Trial) -> Result<Self> {
        const CONNECTIONS: usize = 12;
        let (is_stopped, answered) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let address = trial.site.http();
        let tasks = (0..CONNECTIONS)
            .map(|_| {
                runtime().spawn(watch(address.clone(), is_stopped.clone(), Arc::clone(&answered)))
            })
            .collect();
        let watch = Watch { is_stopped, answered, tasks };
        until("the load's first answers", || {
            ensure!(watch.answered.load(Ordering::SeqCst) > 100, "no answers");
            Ok(())
        })?;
        Ok(watch)
    }

    fn stop(self, trial: &Trial) -> Result<()> {
        self.is_stopped.store(true, Ordering::SeqCst);
        let killed = trial.killed.lock().expect("no panic inside").clone();
        for task in self.tasks {
            for (pid, error) in block_on(task)? {
                ensure!(killed.contains(&pid), "worker {pid}, which was not killed: {error}");
                ensure!(!error.contains("no answer in"), "worker {pid} stalled: {error}");
            }
        }
        Ok(())
    }
}

async fn watch(
    address: Address,
    is_stopped: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
) -> Vec<(u32, String)> {
    let request = Request::get("shop.test", "/watch");
    let mut failures = Vec::new();
    while !is_stopped.load(Ordering::SeqCst) {
        // The connection, and its first request, may go to a worker that is just being replaced.
        let Ok(mut connection) = Connection::open(&address).await else { continue };
        let Ok(first) = connection.send(&request).await else { continue };
        let pid = first.header("x-worker").and_then(|pid| pid.parse().ok()).unwrap_or(0);
        while !is_stopped.load(Ordering::SeqCst) {
            match connection.send_within(&request, STALL).await {
                Ok(response) if response.status == 200 => {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                Ok(response) => failures.push((0, response.to_string())),
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
