//! The API server goes away under load, in every way, and etcd forgets: no request notices, and what is served in the end is
//! what the API server has.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request};
use oxigress_tests::cluster::{Cluster, Tenant, ingress};
use oxigress_tests::controller::Controller;
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::signal_pid;
use oxigress_tests::shop::Shop;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// nginx's `keepalive_requests` as the skeleton has it.
const REQUESTS_PER_CONNECTION: u64 = 1_000;
/// Answers of the load while the API server is away: about a second.
const AWAY: u64 = 1_000;

/// How the API server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// With a word to its watches.
    Stopped,
    /// The API server is killed, so that connections break.
    Killed,
    /// It says nothing for a while.
    Paused,
    /// Killed again before the controller has heard of it, and what happened meanwhile is in nobody's memory.
    Forgotten,
    /// Killed four times on end.
    Flapping,
}

const ENDS: [End; 5] = [End::Killed, End::Forgotten, End::Paused, End::Stopped, End::Flapping];

#[test]
fn an_api_server_that_goes_and_comes_costs_no_request() {
    pass("outage", |directory| go_and_come(directory, &ENDS[..3], Duration::ZERO));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_outage() {
    // Four times each end, which are 28 kills, and as many more as five minutes take.
    pass("outage", |directory| go_and_come(directory, &ENDS.repeat(4), Duration::from_secs(300)));
}

fn go_and_come(directory: &Directory, ends: &[End], at_least: Duration) -> Result<()> {
    let cluster = Cluster::start(directory)?;
    let tenant = cluster.tenant("outage")?;
    let (a, b) = (tenant.pod("a")?, tenant.pod("b")?);
    tenant.service("keep", &[&a])?;
    tenant.service("moving", &[&a])?;
    tenant.apply(&ingress("keep", "keep.test", "keep"))?;
    tenant.apply(&ingress("moving", "moving.test", "moving"))?;
    let controller = Controller::start_on(&cluster, directory, 2, &tenant.flags())?;
    tenant.settle(&controller)?;
    let shop = Shop::new(controller, &[], &[])?;
    let workers = shop.controller.worker_pids();
    let requests = vec![Request::get("keep.test", "/"), Request::get("moving.test", "/")];
    let load = Load::start(Plan {
        requests_per_connection: REQUESTS_PER_CONNECTION,
        ..Plan::new(Address::http(shop.controller.http_port), requests, 4)
    })?;

    let start = Instant::now();
    let mut synchronised: BTreeMap<End, Vec<Duration>> = BTreeMap::new();
    let mut rounds = 0;
    while rounds < ends.len() || start.elapsed() < at_least {
        let end = ends[rounds % ends.len()];
        rounds += 1;
        let pod = if rounds % 2 == 0 { &a } else { &b };
        let gone = format!("gone-{rounds}.test");
        tenant.apply(&ingress("gone", &gone, "keep"))?;
        tenant.settle(&shop.controller)?;
        shop.serves(&gone, "/", "a")?;
        let edit = |tenant: &Tenant<'_>| -> Result<()> {
            tenant.service("moving", &[pod])?;
            tenant.delete("Ingress", "gone")?;
            tenant.apply(&ingress(
                &format!("stay-{rounds}"),
                &format!("stay-{rounds}.test"),
                "keep",
            ))
        };
        let back = go(&cluster, &shop, &load, end, || edit(&tenant));
        let back = back.with_context(|| format!("{end:?}"))?;
        tenant.settle(&shop.controller).with_context(|| format!("after {end:?}"))?;
        synchronised.entry(end).or_default().push(back.elapsed());
        shop.serves("moving.test", "/", &pod.name)?;
        shop.answers(&gone, "/", 404)?;
        for round in 1..=rounds {
            shop.serves(&format!("stay-{round}.test"), "/", "a")?;
        }
    }
    let report = load.stop();
    for (end, times) in &synchronised {
        let count = times.len();
        println!("{end:?}: {count} times, edited and synchronised {times:.1?} after it was back");
    }
    println!("{} requests answered meanwhile, {} failed", report.answered, report.failed);
    ensure!(report.failed == 0, "{report:?}");
    let now = shop.controller.worker_pids();
    ensure!(now == workers, "worker processes were {workers:?} and are {now:?}");
    Ok(())
}

/// The API server goes and comes back; what is edited is edited while the controller does not hear of it, or right after.
/// When it was back, ready for everybody.
fn go(
    cluster: &Cluster,
    shop: &Shop,
    load: &Load,
    end: End,
    edit: impl FnOnce() -> Result<()>,
) -> Result<Instant> {
    match end {
        End::Stopped => cluster.stop_api()?,
        End::Killed | End::Flapping => cluster.kill_api()?,
        End::Paused => {
            cluster.pause_api()?;
            load.wait_for(AWAY)?;
            cluster.resume_api()?;
            let back = Instant::now();
            return edit().map(|()| back);
        }
        End::Forgotten => {
            // What was sent before it was killed would wait in the controller's socket.
            cluster.kill_api()?;
            let controller = shop.controller.role_pid("controller")?;
            signal_pid(controller, Signal::STOP)?;
            cluster.start_api()?;
            edit()?;
            cluster.compact()?;
            cluster.kill_api()?;
            cluster.start_api()?;
            signal_pid(controller, Signal::CONT)?;
            return Ok(Instant::now());
        }
    }
    load.wait_for(AWAY)?;
    for _ in 0..if end == End::Flapping { 3 } else { 0 } {
        cluster.start_api()?;
        cluster.kill_api()?;
    }
    cluster.start_api()?;
    let back = Instant::now();
    edit().map(|()| back)
}
