//! A thousand changes of endpoints a second for a minute, at 10,000 backends, under load.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::nginx::Nginx;
use crate::probe::Probe;
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::snapshot;
use crate::stretch::Watch;
use crate::usage;
use anyhow::Result;
use oxigress_tests::place::free_port;
use std::time::{Duration, Instant};

const HOSTS: usize = 10_000;
const ENDPOINTS: usize = 10;
const RATE: u32 = 1_000;
const SECONDS: u32 = 60;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.directory.join("churn");
    let ports = Ports { http: free_port()?, https: 0 };
    let text = Route::Router.text(bench, &folder, ports, "user root;")?;
    let mut nginx = Nginx::start(&bench.nginx, &folder, &text)?;
    nginx.wait_for_port(ports.http)?;
    let worker = nginx.worker()?;
    let mut configuration = Configuration::open(&folder.join("configuration.sock"))?;
    configuration.put(&snapshot::whole(snapshot::hosts(
        HOSTS,
        ENDPOINTS,
        &bench.endpoints,
        0,
    )?)?)?;
    let deltas = deltas(bench)?;
    // Every set is replaced once, so that the next rounds replace like by like.
    for body in deltas.iter().take(HOSTS) {
        configuration.patch(body)?;
    }
    let used = configuration.used_bytes()?;

    let probe = Probe::start(ports.http)?;
    let cpu = usage::cpu(worker)?;
    let watch = Watch::start(worker);
    let start = Instant::now();
    let times = send(&mut configuration, &deltas, start)?;
    let took = start.elapsed();
    let longest = watch.stop()?;
    let cpu = usage::cpu(worker)? - cpu;
    // An answer that is lost or wrong is an error here.
    let (during, _) = probe.stop(&[(start, start + took)])?;
    // Where the minute began, so that the same records stand there.
    for body in deltas.iter().take(HOSTS) {
        configuration.patch(body)?;
    }
    let after = configuration.used_bytes()?;
    let times: Sample = times.into_iter().collect();
    rows(table, &times, took);
    table
        .row("requests meanwhile; lost", format!("{}; 0", during.proxied.len() + during.own.len()))
        .peer(format!(
            "p50 {}, p99.9 {}",
            show(during.proxied.p50()),
            show(during.proxied.quantile(0.999))
        ));
    table
        .row("longest stretch without a wait, CPU: no callback is longer", show(longest))
        .budget("≤ 1 ms", longest <= Duration::from_millis(1));
    table.row(
        "CPU of the worker, the requests included",
        format!("{:.0} % of one", 100.0 * cpu.as_secs_f64() / took.as_secs_f64()),
    );
    table
        .row("zone in use before and after", format!("{used} B, {after} B"))
        .budget("flat", used == after);
    nginx.stop()
}

/// What is said of the deltas themselves.
fn rows(table: &mut Table, times: &Sample, took: Duration) {
    table.row(
        "deltas, one endpoint set each",
        format!(
            "{} in {}: {:.0}/s",
            times.len(),
            show(took),
            f64::from(RATE * SECONDS) / took.as_secs_f64()
        ),
    );
    table.row(
        "a delta until it is live: p50, p99",
        format!("{}, {}", show(times.p50()), show(times.quantile(0.99))),
    );
}

/// Sends deltas at their rate, and says how long each took.
fn send(
    configuration: &mut Configuration,
    deltas: &[Vec<u8>],
    start: Instant,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let pause = Duration::from_secs(1) / RATE;
    for (turn, body) in (0..RATE * SECONDS).zip(deltas.iter().cycle()) {
        if let Some(early) = (pause * turn).checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
        let begun = Instant::now();
        configuration.patch(body)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Two rounds of deltas that differ; the host that is asked has real endpoints in both, in another order.
fn deltas(bench: &Bench) -> Result<Vec<Vec<u8>>> {
    let [a, b] = bench.endpoints;
    let mut all = Vec::with_capacity(2 * HOSTS);
    for round in [1, 2] {
        for turn in 0..HOSTS {
            let number = turn * 7_919 % HOSTS;
            let set = match number {
                0 if round == 1 => snapshot::real(&[b, a])?,
                0 => snapshot::real(&[a, b])?,
                _ => snapshot::imagined(number, ENDPOINTS, round)?,
            };
            all.push(snapshot::delta(number, set)?);
        }
    }
    Ok(all)
}
