//! Each process is killed under load, again and again: what is served afterwards is right, and what is lost is
//! counted for each kind of kill.
//!
//! Under plain `oxigress` a killed role is started again by its parent, nginx's master by the nginx role, a worker
//! by the master. When `oxigress` itself is killed nobody is left: there the test is the service manager. It
//! is the kubelet of the two roles apart.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::load::{Closes, Failure, Load, Plan, Report};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::{client_ports, signal_pid, stop_pid, wait_for_end};
use oxigress_tests::shop::{DEFAULT_CERTIFICATE, Shop};
use oxigress_tests::wait::{block_on, runtime, until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const WORKERS: usize = 3;

#[test]
fn a_killed_process_costs_what_it_must_and_no_more() {
    pass("kills", |directory| kill_all(directory, 3));
}

#[test]
#[ignore = "many minutes: make soak"]
fn soak_kills() {
    pass("kills", |directory| kill_all(directory, 50));
}

#[test]
fn a_role_that_cannot_come_back_takes_nothing_down() {
    pass("comes-back", refuse_to_start);
}

/// The controller is killed and finds no folder of manifests until that is back.
fn refuse_to_start(directory: &Directory) -> Result<()> {
    let controller = Controller::start(directory, 1, &[])?;
    let mut trial = Trial::new(controller)?;
    let (folder, away) = (directory.join("manifests"), directory.join("away"));
    let workers = trial.shop.controller.worker_pids();
    std::fs::rename(&folder, &away)?;
    signal_pid(trial.shop.controller.role_pid("controller")?, Signal::KILL)?;
    until("a refused start", || {
        let log = trial.shop.controller.error_log();
        ensure!(log.matches("role controller ended with exit status: 1").count() >= 2, "none yet");
        Ok(())
    })?;
    trial.shop.serves("keep.test", "/", "a")?;
    std::fs::rename(&away, &folder)?;
    trial.shop.write("later.yaml", "$SERVICE(later: b)\n$INGRESS(later: later.test/ later)")?;
    trial.shop.serves("later.test", "/", "b")?;
    ensure!(trial.shop.controller.worker_pids() == workers, "workers changed");
    trial.shop.controller.stop()
}

/// What is killed, and who starts it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The controller role; its parent.
    Controller,
    /// The nginx role; its parent.
    Supervisor,
    /// A worker process, or nginx's master.
    Worker,
    /// nginx's master; the nginx role.
    Master,
    /// nginx's master, while the controller is dead; the nginx role.
    MasterAlone,
    /// `oxigress` without a subcommand; the test.
    Parent,
}

/// What the kills of one kind cost.
#[derive(Default)]
struct Cost {
    kills: u32,
    answered: u64,
    lost: u64,
    closed_idle: u64,
    gaps: Vec<Duration>,
}

fn kill_all(directory: &Directory, times: u32) -> Result<()> {
    let mut table = format!(
        "{:<34}{:>6}{:>10}{:>7}{:>13}{:>10}{:>10}\n",
        "killed", "kills", "answered", "lost", "idle closed", "gap p50", "gap max"
    );
    let mut row = |name: &str, cost: Cost| {
        let mut gaps: Vec<_> = cost.gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
        gaps.sort_by(f64::total_cmp);
        let ms = |gap: Option<&f64>| gap.map_or("-".into(), |ms| format!("{ms:.0} ms"));
        let _ = writeln!(
            table,
            "{name:<34}{:>6}{:>10}{:>7}{:>13}{:>10}{:>10}",
            cost.kills,
            cost.answered,
            cost.lost,
            cost.closed_idle,
            ms(gaps.get(gaps.len() / 2)),
            ms(gaps.last())
        );
    };
    let controller = Controller::start(directory, WORKERS, &["--journal=on".into()])?;
    let mut trial = Trial::new(controller)?;
    for (victim, name) in [
        (Victim::Controller, "controller role"),
        (Victim::Supervisor, "nginx role"),
        (Victim::Worker, "a worker"),
        (Victim::Master, "nginx's master"),
        (Victim::MasterAlone, "nginx's master, controller dead"),
        (Victim::Parent, "oxigress itself"),
    ] {
        let cost = trial.kill(victim, times).with_context(|| format!("{victim:?}"))?;
        row(name, cost);
    }
    trial.shop.controller.stop()?;
    println!("{table}");
    Ok(())
}

struct Trial {
    shop: Shop,
    /// Of the manifests that change.
    version: u32,
}

impl Trial {
    fn new(controller: Controller) -> Result<Self> {
        let mut shop = Shop::new(controller, &["a", "b"], &[("first", "tls.test")])?;
        shop.write("keep.yaml", "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep)")?;
        shop.write(
            "tls.yaml",
            "$SECRET(tls: first)\n$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)",
        )?;
        Ok(Trial { shop, version: 0 })
    }

    /// Kept and fresh connections, plain and with TLS, all of which endpoint `a` has to answer.
    fn loads(&self, closes: Closes) -> Result<Vec<Load>> {
        let controller = &self.shop.controller;
        let plain = (Address::http(controller.http_port), Request::get("keep.test", "/"));
        let tls =
            (Address::https(controller.https_port, "tls.test"), Request::get("tls.test", "/"));
        let kinds =
            [(plain.clone(), false, 4), (tls.clone(), false, 2), (plain, true, 2), (tls, true, 1)];
        let loads = kinds.into_iter().map(|((address, request), is_fresh, connections)| {
            Load::start(Plan {
                is_fresh,
                closes,
                requests_per_connection: 1_000,
                pace: Duration::from_millis(15),
                check: Some(Arc::new(|_, response| {
                    let found = (response.status, response.endpoint());
                    ensure!(found == (200, Some("a".into())), "{found:?}");
                    Ok(())
                })),
                ..Plan::new(address, vec![request], connections)
            })
        });
        loads.collect()
    }

    fn kill(&mut self, victim: Victim, times: u32) -> Result<Cost> {
        let closes = match victim {
            Victim::Controller | Victim::Supervisor => Closes::Never,
            _ => Closes::Idle,
        };
        let mut cost = Cost { kills: times, ..Cost::default() };
        let loads = self.loads(closes)?;
        for time in 0..times {
            let gap = self.once(victim, &loads).with_context(|| format!("kill {time}"))?;
            cost.gaps.extend(gap);
            for load in &loads {
                load.wait_for(5)?;
            }
        }
        for report in loads.into_iter().map(Load::stop) {
            if matches!(victim, Victim::Controller | Victim::Supervisor) {
                ensure!(report.failed == 0, "lost {}: {:?}", report.failed, report.failures);
            }
            cost.answered += report.answered;
            cost.lost += report.failed;
            cost.closed_idle += report.closed_idle;
        }
        Ok(cost)
    }

    /// One kill, with a change on its way; returns when all is served right again. Answers how long new connections
    /// were not, where that is expected at all.
    fn once(&mut self, victim: Victim, loads: &[Load]) -> Result<Option<Duration>> {
        let workers = self.shop.controller.worker_pids();
        let master = self.shop.controller.master_pid()?;
        let old = self.version;
        self.version += 1;
        let now = self.version;
        let host = format!("changing-{now}.test");
        let endpoint = if now.is_multiple_of(2) { "a" } else { "b" };
        // Nobody waits for it: the kill comes before, while or after it is sent.
        self.shop.write_only(
            "changing.yaml",
            &format!("$SERVICE(changing: {endpoint})\n$INGRESS(changing: {host}/ changing)"),
        )?;
        let gap = match victim {
            Victim::Controller => self.kill_role("controller", loads)?,
            Victim::Supervisor => self.kill_role("nginx", loads)?,
            Victim::Worker => self.kill_worker(&workers, loads)?,
            Victim::Master => self.kill_master(loads)?,
            Victim::MasterAlone => self.kill_master_alone(loads)?,
            Victim::Parent => self.kill_parent(loads)?,
        };

        self.shop.controller.catch_up()?;
        self.shop.controller.is_ready()?;
        self.shop.serves("keep.test", "/", "a")?;
        self.shop.serves(&host, "/", endpoint)?;
        self.shop.answers(&format!("changing-{old}.test"), "/", 404)?;
        self.shop.presents("tls.test", "first")?;
        self.shop.presents("unknown.test", DEFAULT_CERTIFICATE)?;
        // A change made after the kill.
        let after = "$SERVICE(after: b)\n$INGRESS(after: after.test/ after)";
        self.shop.write("after.yaml", after)?;
        self.shop.serves("after.test", "/", "b")?;
        self.shop.remove("after.yaml")?;
        self.shop.answers("after.test", "/", 404)?;

        let workers_now = self.shop.controller.worker_pids();
        let kept = workers.iter().filter(|pid| workers_now.contains(pid)).count();
        let expected = match victim {
            Victim::Controller | Victim::Supervisor => WORKERS,
            Victim::Worker => WORKERS - 1,
            _ => 0,
        };
        ensure!(
            (workers_now.len(), kept) == (WORKERS, expected),
            "workers {workers:?}, now {workers_now:?}"
        );
        let is_same_master = self.shop.controller.master_pid()? == master;
        ensure!(is_same_master == (expected > 0), "master {master}");
        Ok(gap)
    }

    /// Its parent starts it again.
    fn kill_role(&self, role: &str, loads: &[Load]) -> Result<Option<Duration>> {
        let pid = self.shop.controller.role_pid(role)?;
        signal_pid(pid, Signal::KILL)?;
        until("the role's next process", || {
            let next = self.shop.controller.role_pid(role)?;
            ensure!(next != pid, "{role} {pid} runs");
            Ok(())
        })?;
        // Nobody noticed.
        for load in loads {
            load.wait_for(5)?;
            ensure!(load.report().failed == 0, "{:?}", load.report().failures);
        }
        Ok(None)
    }

    /// Every request that is lost was on a connection of this worker.
    fn kill_worker(&self, workers: &[u32], loads: &[Load]) -> Result<Option<Duration>> {
        let victim = workers[self.version as usize % workers.len()];
        let before: Vec<_> = loads.iter().map(|load| load.report().failures.len()).collect();
        // A stopped worker accepts nothing, so this list of its connections is complete.
        stop_pid(victim)?;
        let controller = &self.shop.controller;
        let own = client_ports(victim, &[controller.http_port, controller.https_port]);
        signal_pid(victim, Signal::KILL)?;
        let own = own?;
        until("the next worker", || {
            let now = controller.worker_pids();
            ensure!(now.len() == WORKERS && !now.contains(&victim), "{now:?}");
            Ok(())
        })?;
        for (load, before) in loads.iter().zip(before) {
            load.wait_for(5)?;
            check_losses(&load.report(), before, &own)?;
        }
        Ok(None)
    }

    fn kill_master(&mut self, loads: &[Load]) -> Result<Option<Duration>> {
        let probe = Probe::start(&self.shop.controller);
        let master = self.shop.controller.master_pid()?;
        let killed = Instant::now();
        signal_pid(master, Signal::KILL)?;
        wait_for_end(master)?;
        self.gap(probe, killed, loads)
    }

    /// What is served comes from the journal alone.
    fn kill_master_alone(&mut self, loads: &[Load]) -> Result<Option<Duration>> {
        // The journal is at most a moment behind what is served.
        self.shop.controller.catch_up()?;
        let before = self.shop.controller.journaled()?;
        let controller = self.shop.controller.role_pid("controller")?;
        // Stopped rather than killed: its parent would start it again.
        signal_pid(controller, Signal::STOP)?;
        let gap = self.kill_master(loads);
        let now = self.shop.controller.status();
        signal_pid(controller, Signal::CONT)?;
        let (gap, now) = (gap?, now?);
        ensure!(now.counts == before.counts, "{now:?}, before {before:?}");
        Ok(gap)
    }

    /// The roles end as after TERM; the test starts all again.
    fn kill_parent(&mut self, loads: &[Load]) -> Result<Option<Duration>> {
        let controller = &self.shop.controller;
        let roles = [controller.role_pid("nginx")?, controller.role_pid("controller")?];
        let probe = Probe::start(controller);
        let killed = Instant::now();
        signal_pid(controller.pid(), Signal::KILL)?;
        for pid in roles {
            wait_for_end(pid)?;
        }
        self.shop.controller.start_again(&[])?;
        self.gap(probe, killed, loads)
    }

    fn gap(&mut self, probe: Probe, killed: Instant, loads: &[Load]) -> Result<Option<Duration>> {
        self.shop.controller.wait_until_it_serves()?;
        for load in loads {
            load.wait_for(5)?;
        }
        Ok(Some(probe.gap(killed)))
    }
}

/// A request on a new connection every 2 ms.
struct Probe {
    is_stopped: Arc<AtomicBool>,
    task: JoinHandle<Vec<(Instant, bool)>>,
}

impl Probe {
    fn start(controller: &Controller) -> Self {
        let address = Address::http(controller.http_port);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        let task = runtime().spawn(async move {
            let mut answers = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let answer = send(&address, &Request::get("keep.test", "/")).await;
                answers.push((Instant::now(), answer.is_ok_and(|answer| answer.status == 200)));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            answers
        });
        Probe { is_stopped, task }
    }

    /// From `killed` to the first right answer after the last failure.
    fn gap(self, killed: Instant) -> Duration {
        self.is_stopped.store(true, Ordering::SeqCst);
        let answers = block_on(self.task).unwrap_or_default();
        let failed = answers.iter().rposition(|(_, is_right)| !is_right);
        let end = failed.and_then(|last| answers.get(last + 1)).map_or(killed, |(at, _)| *at);
        end.saturating_duration_since(killed)
    }
}

fn check_losses(report: &Report, before: usize, own: &BTreeSet<u16>) -> Result<()> {
    let new: Vec<&Failure> = report.failures.iter().skip(before).collect();
    let strange = new.iter().find(|failure| failure.port.is_none_or(|port| !own.contains(&port)));
    match strange {
        Some(failure) => {
            anyhow::bail!(
                "lost on a connection of another worker: {failure:?} (port {:?})",
                failure.port
            )
        }
        None => Ok(()),
    }
}
