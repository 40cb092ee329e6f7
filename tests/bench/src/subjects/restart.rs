//! From the start of nginx to its first right answer, out of the journal.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::nginx::Nginx;
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::snapshot::{self, HOST};
use anyhow::{Result, ensure};
use oxigress_tests::place::free_port;
use oxigress_tests::wait;
use std::fs;
use std::time::{Duration, Instant};

const HOSTS: usize = 10_000;
const ENDPOINTS: usize = 10;
const STARTS: usize = 5;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.directory.join("restart");
    let ports = Ports { http: free_port()?, https: 0 };
    let journal = folder.join("journal");
    let without = Route::Router.text(bench, &folder, ports, "user root;")?;
    let with =
        without.replace("events {", &format!("ingress_journal {};\nevents {{", journal.display()));

    let empty: Sample =
        (0..STARTS).map(|_| start(bench, &without, ports, 503)).collect::<Result<_>>()?;
    let mut nginx = Nginx::start(&bench.nginx, &folder, &with)?;
    nginx.wait_for_port(ports.http)?;
    let mut configuration = Configuration::open(&folder.join("configuration.sock"))?;
    let whole = snapshot::hosts(HOSTS, ENDPOINTS, &bench.endpoints, 0)?;
    configuration.put(&snapshot::whole(whole)?)?;
    let asked = Instant::now();
    wait::until("the journal", || {
        let status = configuration.status()?;
        ensure!(status.journal_generation == Some(status.generation), "{status:?}");
        Ok(())
    })?;
    let behind = asked.elapsed();
    nginx.stop()?;

    let bytes = fs::metadata(&journal)?.len();
    let times: Sample =
        (0..STARTS).map(|_| start(bench, &with, ports, 200)).collect::<Result<_>>()?;
    table
        .row(
            "start of nginx to its first answer, 10,000 backends × 10 in the journal: p50, max",
            format!("{}, {}", show(times.p50()), show(times.max())),
        )
        .peer(format!("empty, without a journal {}", show(empty.p50())))
        .budget("≤ 1 s", times.max() <= Duration::from_secs(1));
    table
        .row("the journal is written after a whole PUT was answered", show(behind))
        .peer(format!("{:.1} MB", bytes as f64 / 1e6))
        .budget("≤ 1 s", behind <= Duration::from_secs(1));
    Ok(())
}

/// Starts nginx and stops it; answers how long it took until a request got an answer, which has this status.
fn start(bench: &Bench, text: &str, ports: Ports, status: u16) -> Result<Duration> {
    let begin = Instant::now();
    let mut nginx = Nginx::start(&bench.nginx, &bench.directory.join("restart"), text)?;
    let answer = wait::until("an answer", || Client::tcp(ports.http)?.get(HOST, "/"))?;
    let took = begin.elapsed();
    ensure!(answer.status == status, "the first answer is {}", answer.status);
    nginx.stop()?;
    Ok(took)
}
