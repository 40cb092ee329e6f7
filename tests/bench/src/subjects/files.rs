//! The whole product: from the close of an edited file to the first request that the new state serves.

use crate::bench::Bench;
use crate::handshakes;
use crate::manifests::{self, Manifests, host};
use crate::product::{Oxigress, Requests, edits, resolution, until};
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::usage;
use anyhow::Result;
use oxigress_tests::certificate::Certificate;
use std::time::Duration;

/// Times each kind of edit is made.
const EDITS: usize = 20;
/// Edits at [`MANY`] Ingresses: enough for a p99.
const MANY_EDITS: usize = 100;
const MANY: usize = 10_000;
/// The app whose files are edited.
const APP: usize = 0;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    if bench.oxigress.is_none() {
        table.row("file to served", "not measured: target/dist/bin/oxigress is missing");
        return Ok(());
    }
    few(bench, table)?;
    many(bench, table)
}

/// Each kind of edit, with ten apps.
fn few(bench: &Bench, table: &mut Table) -> Result<()> {
    let manifests = Manifests::new(&bench.directory.join("few"))?;
    let [a, b] = bench.endpoints;
    for number in 0..10 {
        manifests.app(number, a, &["/"])?;
    }
    let name = "tls-app";
    let tls_host = "tls.bench.test";
    let text = [manifests::ingress(name, tls_host, &["/"], Some("pair")), manifests::service(name)];
    manifests.write(name, &text.join("---\n"))?;
    manifests
        .write("pair", &manifests::secret("pair", &Certificate::new("first", &[tls_host])?))?;
    let mut oxigress = Oxigress::start(bench, &source(&manifests), "few")?;
    let mut requests = Requests::new(oxigress.http_port)?;

    let endpoints = edits(EDITS, |turn| {
        let (port, name) = [(b, b'B'), (a, b'A')][turn % 2];
        let closed = manifests.app(APP, port, &["/"])?;
        requests.until(&host(APP), "/", |answer| {
            answer.status == 200 && answer.body.first() == Some(&name)
        })?;
        Ok(closed.elapsed())
    });
    tell(table, "endpoints edited", endpoints?);

    let added = edits(EDITS, |turn| {
        let number = 1000 + turn;
        requests.until(&host(number), "/", |answer| answer.status == 404)?;
        let closed = manifests.app(number, a, &["/"])?;
        requests.until(&host(number), "/", |answer| answer.status == 200)?;
        Ok(closed.elapsed())
    });
    tell(table, "Ingress, Service and endpoints added", added?);

    let mut paths = vec!["/first".to_owned()];
    manifests.app(APP, a, &["/first"])?;
    let added = edits(EDITS, |turn| {
        let path = format!("/path-{turn}");
        requests.until(&host(APP), &path, |answer| answer.status == 404)?;
        paths.push(path.clone());
        let all: Vec<_> = paths.iter().map(String::as_str).collect();
        let closed = manifests.app(APP, a, &all)?;
        requests.until(&host(APP), &path, |answer| answer.status == 200)?;
        Ok(closed.elapsed())
    });
    tell(table, "path added", added?);

    let client = handshakes::Client::new(oxigress.https_port)?;
    let replaced = edits(EDITS, |turn| {
        let name = format!("certificate-{turn}");
        let secret = manifests::secret("pair", &Certificate::new(&name, &[tls_host])?);
        let closed = manifests.write("pair", &secret)?;
        until("the new certificate", || Ok(client.shake(tls_host)? == name))?;
        Ok(closed.elapsed())
    });
    tell(table, "certificate replaced", replaced?);
    oxigress.stop()
}

fn source(manifests: &Manifests) -> Vec<String> {
    vec![format!("--manifests={}", manifests.folder().display())]
}

fn tell(table: &mut Table, what: &str, times: Sample) {
    table
        .row(
            &format!("{what}: p50, max of {}", times.len()),
            format!("{}, {}", show(times.p50()), show(times.max())),
        )
        .budget("≤ 50 ms", times.max() <= Duration::from_millis(50));
}

/// A large folder: start, memory, and one small change at a time.
fn many(bench: &Bench, table: &mut Table) -> Result<()> {
    let manifests = Manifests::new(&bench.directory.join("many"))?;
    let [a, b] = bench.endpoints;
    for number in 0..MANY {
        manifests.app(number, a, &["/"])?;
    }
    let mut oxigress = Oxigress::start(bench, &source(&manifests), "many")?;
    table
        .row("start to ready, 10,000 Ingresses", show(oxigress.ready_after))
        .budget("≤ 3 s", oxigress.ready_after <= Duration::from_secs(3));
    let mut requests = Requests::new(oxigress.http_port)?;
    for number in [0, MANY / 2, MANY - 1] {
        requests.until(&host(number), "/", |answer| answer.status == 200)?;
    }
    let controller = usage::child_with_argument(oxigress.process.pid(), "controller")?;
    let resident = usage::memory(controller)?.resident as f64 / 1e6;
    table
        .row("controller's resident memory, 10,000 Ingresses", format!("{resident:.0} MB"))
        .budget("≤ 150 MB", resident <= 150.0);

    // What nginx logged and the kernel wrote back belongs to the start.
    std::thread::sleep(Duration::from_secs(1));
    let before = usage::cpu(controller)?;
    let times = edits(MANY_EDITS, |turn| {
        let (port, name) = [(b, b'B'), (a, b'A')][turn % 2];
        let closed = manifests.app(APP, port, &["/"])?;
        requests.until(&host(APP), "/", |answer| answer.body.first() == Some(&name))?;
        Ok(closed.elapsed())
    })?;
    let cpu = (usage::cpu(controller)? - before) / u32::try_from(MANY_EDITS)?;
    let p99 = times.quantile(0.99);
    table
        .row(
            "endpoints edited among 10,000 Ingresses: p50, p99",
            format!("{}, {}", show(times.p50()), show(p99)),
        )
        .budget("≤ 20 ms", p99 <= Duration::from_millis(20));
    table
        .row("the same, CPU of the controller", show(cpu))
        .budget("≤ 1 ms", cpu <= Duration::from_millis(1));
    table.note(resolution());
    oxigress.stop()
}
