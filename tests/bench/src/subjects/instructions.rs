//! Instructions per request, and per TLS handshake.
//!
//! One nginx process under callgrind, one keep-alive connection, one request at a time; the endpoint is
//! another nginx, not counted. The kernel is not counted either.

pub mod handshakes;
pub mod policies;

use crate::bench::Bench;
use crate::callgrind::Callgrind;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::report::{Table, percent, thousands};
use crate::snapshot::{self, HOST};
use anyhow::Result;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::place::free_port;
use std::fs;
use std::path::{Path, PathBuf};

/// Requests before the count: connections to the endpoints are open and caches are filled.
pub const WARM_UP: usize = 40;
/// Fewer than `keepalive_requests`, 1000, less the warm-up: no connection is opened while counting.
pub const REQUESTS: usize = 900;

/// Each of these is one nginx.
const RUNS: [(&str, Route, usize); 11] = [
    ("static", Route::Static, 0),
    ("static-threads", Route::StaticThreads, 0),
    ("balancer", Route::Balancer, 1),
    ("balancer-10000", Route::Balancer, 10_000),
    ("router", Route::Router, 1),
    ("router-10000", Route::Router, 10_000),
    ("headers", Route::Default { has_log: false }, 1),
    ("headers-twin", Route::Twin { has_log: false }, 0),
    ("default", Route::Default { has_log: true }, 1),
    ("default-metrics", Route::Metrics { has_log: true }, 1),
    ("default-twin", Route::Twin { has_log: true }, 0),
];

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let mut counts = Vec::new();
    for (name, route, hosts) in RUNS {
        counts.push(requests(bench, name, route, hosts)?);
        eprintln!("instructions: {name} {}", thousands(counts[counts.len() - 1]));
    }
    let [
        fixed,
        threads,
        balancer,
        balancer_many,
        router,
        router_many,
        headers,
        headers_twin,
        full,
        full_metrics,
        full_twin,
    ] = counts[..]
    else {
        unreachable!("one count a run")
    };
    table.row("stock nginx, static upstream", thousands(fixed));
    table
        .row("stock nginx, static upstream, with a thread pool", thousands(threads))
        .peer(against(threads, fixed));
    table
        .row("balancer only", thousands(balancer))
        .peer(against(balancer, fixed))
        .budget("stock + 3 %", balancer <= 1.03 * fixed);
    table
        .row("balancer only, 10,000 backends in the store", thousands(balancer_many))
        .peer(against(balancer_many, balancer))
        .budget("flat: + 1 %", balancer_many <= 1.01 * balancer);
    table
        .row("router", thousands(router))
        .peer(against(router, fixed))
        .budget("≤ 19,500", router <= 19_500.0);
    table
        .row("router, 10,000 hosts in the store", thousands(router_many))
        .peer(against(router_many, router))
        .budget("flat: + 1 %", router_many <= 1.01 * router);
    table
        .row("default Ingress, access log off", thousands(headers))
        .peer(against(headers, headers_twin));
    table
        .row("default Ingress", thousands(full))
        .peer(against(full, full_twin))
        .budget("≤ 25,000 with metrics", full <= 25_000.0);
    table
        .row("default Ingress, metrics on", thousands(full_metrics))
        .peer(against(full_metrics, full))
        .budget("≤ 25,000", full_metrics <= 25_000.0);
    table.note(
        "peers: stock nginx; for the default Ingress stock nginx with the same headers and log format; \
         for 10,000 the same with 1",
    );
    handshakes::run(bench, table)
}

fn against(count: f64, peer: f64) -> String {
    format!("{}: {} ({})", thousands(peer), percent(count / peer), thousands(count - peer))
}

fn requests(bench: &Bench, name: &str, route: Route, hosts: usize) -> Result<f64> {
    let (callgrind, ports, folder) = start(bench, name, route, false)?;
    if route.has_store() {
        let snapshot = snapshot::hosts(hosts, 10, &bench.endpoints, 0)?;
        fill(&folder, &snapshot::whole(snapshot)?)?;
    }
    let mut client = Client::tcp(ports.http)?;
    let send = |count: usize| -> Result<()> {
        (0..count).try_for_each(|_| client.get_ok(HOST, "/some/path?and=query").map(drop))
    };
    per_request(bench, callgrind, name, send)
}

/// Instructions of one of the requests that `send` sends, after some that warm nginx up.
pub fn per_request(
    bench: &Bench,
    mut callgrind: Callgrind,
    name: &str,
    mut send: impl FnMut(usize) -> Result<()>,
) -> Result<f64> {
    callgrind.begin()?;
    send(WARM_UP)?;
    let profile = bench.profiles.join(format!("{name}.callgrind"));
    let count = callgrind.count(&profile, || send(REQUESTS))?;
    callgrind.stop()?;
    Ok(count as f64 / REQUESTS as f64)
}

/// Starts nginx under callgrind with a static certificate at hand.
pub fn start(
    bench: &Bench,
    name: &str,
    route: Route,
    has_tls: bool,
) -> Result<(Callgrind, Ports, PathBuf)> {
    let folder = bench.directory.join(name);
    fs::create_dir_all(&folder)?;
    let certificate = Certificate::new("static", &[HOST])?;
    fs::write(folder.join("default.crt"), &certificate.chain)?;
    fs::write(folder.join("default.key"), &certificate.key)?;
    let needs_tls = has_tls
        || matches!(route, Route::Default { .. } | Route::Metrics { .. } | Route::Twin { .. });
    let https = if needs_tls { free_port()? } else { 0 };
    let ports = Ports { http: free_port()?, https };
    let text = route.text(bench, &folder, ports, "master_process off;")?;
    Ok((start_text(bench, &folder, &text, ports)?, ports, folder))
}

/// Starts nginx under callgrind with this text.
pub fn start_text(bench: &Bench, folder: &Path, text: &str, ports: Ports) -> Result<Callgrind> {
    let mut callgrind = Callgrind::start(&bench.nginx, folder, text)?;
    callgrind.nginx.wait_for_port(ports.http)?;
    Ok(callgrind)
}

/// Puts the whole snapshot into the store of the nginx in `folder`.
pub fn fill(folder: &Path, whole: &[u8]) -> Result<()> {
    Configuration::open(&folder.join("configuration.sock"))?.put(whole)
}
