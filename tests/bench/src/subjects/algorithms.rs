//! What each algorithm costs, and what it spares when one endpoint is slow.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::instructions::{fill, per_request, start};
use crate::nginx::Nginx;
use crate::report::{Table, percent, thousands};
use crate::slow::SlowEndpoints;
use crate::snapshot::{self, HOST};
use crate::wrk::Wrk;
use anyhow::{Context, Result};
use oxigress_core::model::{Affinity, AffinityMode, Algorithm, Backend, Ejection, HashBy};
use oxigress_tests::place::free_port;
use std::time::Duration;

/// A backend that differs from the default in one thing.
struct Kind {
    name: &'static str,
    backend: fn() -> Backend,
}

const KINDS: [Kind; 9] = [
    Kind { name: "round_robin", backend: Backend::default },
    Kind { name: "least_conn", backend: || by(Algorithm::LeastConn) },
    Kind { name: "ewma", backend: || by(Algorithm::Ewma) },
    Kind { name: "p2c", backend: || by(Algorithm::P2c) },
    Kind { name: "chash by $request_uri", backend: || hash(0) },
    Kind { name: "chashsubset by $request_uri", backend: || hash(1) },
    Kind {
        name: "sticky_balanced, client with cookie",
        backend: || sticky(AffinityMode::Balanced),
    },
    Kind {
        name: "sticky_persistent, client with cookie",
        backend: || sticky(AffinityMode::Persistent),
    },
    Kind { name: "round_robin, ejection and a limit on", backend: guarded },
];

fn by(algorithm: Algorithm) -> Backend {
    Backend { algorithm, ..Backend::default() }
}

fn hash(subset_size: u32) -> Backend {
    let key = "$request_uri".into();
    Backend { hash_by: Some(HashBy { key, subset_size }), ..Backend::default() }
}

fn sticky(mode: AffinityMode) -> Backend {
    let mut affinity = Affinity { mode, ..Affinity::default() };
    affinity.cookie.locations.insert(HOST.into(), vec!["/".into()]);
    Backend { affinity: Some(affinity.into()), ..Backend::default() }
}

fn guarded() -> Backend {
    Backend { ejection: Some(Ejection::default()), max_in_flight: 1_000, ..Backend::default() }
}

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    costs(bench, table)?;
    one_slow_of_ten(bench, table)
}

fn costs(bench: &Bench, table: &mut Table) -> Result<()> {
    let stock = count(bench, "algorithm-stock", Route::Static, None)?;
    let least = count(bench, "algorithm-stock-least-conn", Route::StaticLeastConn, None)?;
    table.row("stock nginx, round robin", thousands(stock));
    table
        .row("stock nginx, least_conn", thousands(least))
        .peer(format!("stock: {}", percent(least / stock)));
    for (place, Kind { name, backend }) in KINDS.into_iter().enumerate() {
        let name_of_run = format!("algorithm-{place}");
        let count = count(bench, &name_of_run, Route::Balancer, Some(backend()))?;
        let row = table.row(&format!("balancer only, {name}"), thousands(count));
        row.peer(format!("stock: {}", percent(count / stock)));
        match name.starts_with("sticky") {
            true => row.budget("stock + 6 %", count <= 1.06 * stock),
            false => row.budget("stock + 3 %", count <= 1.03 * stock),
        };
        eprintln!("algorithms: {name} {}", thousands(count));
    }
    Ok(())
}

fn count(bench: &Bench, name: &str, route: Route, backend: Option<Backend>) -> Result<f64> {
    let (callgrind, ports, folder) = start(bench, name, route, false)?;
    if let Some(backend) = backend {
        let mut snapshot = snapshot::hosts(1, 2, &bench.endpoints, 0)?;
        snapshot.backends.insert(snapshot::backend(0)?, backend);
        fill(&folder, &snapshot::whole(snapshot)?)?;
    }
    let mut client = Client::tcp(ports.http)?;
    let first = client.get_ok(HOST, "/some/path?and=query")?;
    let cookie = first.cookie.map(|c| format!("Cookie: {c}\r\n")).unwrap_or_default();
    let send = |count: usize| -> Result<()> {
        (0..count).try_for_each(|_| {
            client.get_with(HOST, "/some/path?and=query", &cookie)?.ok().map(drop)
        })
    };
    per_request(bench, callgrind, name, send)
}

const WORKERS: usize = 4;
const FAST: Duration = Duration::from_millis(5);
const SLOW: Duration = Duration::from_millis(50);

/// Four workers, ten endpoints, one of them ten times slower than the others.
fn one_slow_of_ten(bench: &Bench, table: &mut Table) -> Result<()> {
    let mut delays = [FAST; 10];
    delays[0] = SLOW;
    let endpoints = SlowEndpoints::start(&delays)?;
    let folder = bench.directory.join("one-slow");
    let ports = Ports { http: free_port()?, https: 0 };
    let text = Route::Router.text(bench, &folder, ports, "user root;")?;
    let text = text.replace("worker_processes 1;", &format!("worker_processes {WORKERS};"));
    let mut nginx = Nginx::start(&bench.nginx, &folder, &text)?;
    nginx.wait_for_port(ports.http)?;
    let mut configuration = Configuration::open(&folder.join("configuration.sock"))?;
    for algorithm in [Algorithm::RoundRobin, Algorithm::LeastConn, Algorithm::P2c, Algorithm::Ewma]
    {
        let mut snapshot = snapshot::hosts(1, 0, endpoints.ports(), 0)?;
        snapshot.backends.insert(snapshot::backend(0)?, by(algorithm));
        configuration.put(&snapshot::whole(snapshot)?)?;
        // The averages settle.
        Wrk::run(ports.http, 64, 2).with_context(|| nginx.said())?;
        let before = endpoints.served();
        let wrk = Wrk::run(ports.http, 64, 10).with_context(|| nginx.said())?;
        let served: Vec<_> =
            endpoints.served().iter().zip(&before).map(|(after, before)| after - before).collect();
        let all: u64 = served.iter().sum();
        table
            .row(
                &format!("one of ten endpoints slow, {algorithm:?}: p99"),
                format!("{} (p90 {}, p50 {})", wrk.p99, wrk.p90, wrk.p50),
            )
            .peer(format!(
                "{:.0} requests/s; the slow one had {:.1} % of them",
                wrk.rate,
                served.first().map_or(0.0, |slow| 100.0 * *slow as f64 / all.max(1) as f64)
            ));
    }
    table.note(format!(
        "one of ten: {WORKERS} workers, 64 connections, endpoints that answer after {} ms, one after {} ms",
        FAST.as_millis(),
        SLOW.as_millis()
    ));
    nginx.stop()
}
