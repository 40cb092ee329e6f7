//! The whole product: from the close of an edited file to the first request that the new state serves.

use crate::bench::Bench;
use crate::handshakes;
use crate::http::Client;
use crate::manifests::{self, Manifests, host};
use crate::report::Table;
use crate::sample::{Sample, show};
use crate::usage;
use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::nginx::tail;
use oxigress_tests::place::free_port;
use oxigress_tests::process::Process;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Times each kind of edit is made.
const EDITS: usize = 20;
/// Edits at [`MANY`] Ingresses: enough for a p99.
const MANY_EDITS: usize = 100;
const MANY: usize = 10_000;
/// Between two looks whether an edit is served: the resolution of the times.
const PAUSE: Duration = Duration::from_micros(200);
/// After this a change counts as lost.
const DEADLINE: Duration = Duration::from_secs(60);
/// The app whose files are edited.
const APP: usize = 0;

/// Fills the table.
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
    let mut oxigress = Oxigress::start(bench, &manifests, "few")?;
    let mut requests = Requests::new(oxigress.http_port)?;

    let endpoints = edits(EDITS, |turn| {
        let (port, name) = [(b, b'B'), (a, b'A')][turn % 2];
        let closed = manifests.app(APP, port, &["/"])?;
        requests
            .until(&host(APP), "/", |status, body| status == 200 && body.first() == Some(&name))?;
        Ok(closed.elapsed())
    });
    tell(table, "endpoints edited", endpoints?);

    let added = edits(EDITS, |turn| {
        let number = 1000 + turn;
        requests.until(&host(number), "/", |status, _| status == 404)?;
        let closed = manifests.app(number, a, &["/"])?;
        requests.until(&host(number), "/", |status, _| status == 200)?;
        Ok(closed.elapsed())
    });
    tell(table, "Ingress, Service and endpoints added", added?);

    let mut paths = vec!["/first".to_owned()];
    manifests.app(APP, a, &["/first"])?;
    let added = edits(EDITS, |turn| {
        let path = format!("/path-{turn}");
        requests.until(&host(APP), &path, |status, _| status == 404)?;
        paths.push(path.clone());
        let all: Vec<_> = paths.iter().map(String::as_str).collect();
        let closed = manifests.app(APP, a, &all)?;
        requests.until(&host(APP), &path, |status, _| status == 200)?;
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
    let mut oxigress = Oxigress::start(bench, &manifests, "many")?;
    table
        .row("start to ready, 10,000 Ingresses", show(oxigress.ready_after))
        .budget("≤ 3 s", oxigress.ready_after <= Duration::from_secs(3));
    let mut requests = Requests::new(oxigress.http_port)?;
    for number in [0, MANY / 2, MANY - 1] {
        requests.until(&host(number), "/", |status, _| status == 200)?;
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
        requests.until(&host(APP), "/", |_, body| body.first() == Some(&name))?;
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
    table.note(format!(
        "served: asked for every {} on a kept connection; an added host was asked for before, so that \
         nothing is new but the state",
        show(PAUSE)
    ));
    oxigress.stop()
}

fn edits(count: usize, edit: impl FnMut(usize) -> Result<Duration>) -> Result<Sample> {
    Ok((0..count).map(edit).collect::<Result<Vec<_>>>()?.into_iter().collect())
}

fn until(what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_true()? {
        ensure!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// A connection to nginx, opened again when nginx ends it after its thousand requests.
struct Requests {
    client: Client,
    port: u16,
}

impl Requests {
    fn new(port: u16) -> Result<Self> {
        Ok(Requests { client: Client::tcp(port)?, port })
    }

    fn until(
        &mut self,
        host: &str,
        target: &str,
        is_it: impl Fn(u16, &[u8]) -> bool,
    ) -> Result<()> {
        until(&format!("{host}{target}"), || {
            let answer = self.client.get(host, target)?;
            if answer.is_last {
                self.client = Client::tcp(self.port)?;
            }
            Ok(is_it(answer.status, &answer.body))
        })
    }
}

/// The product, both roles.
struct Oxigress {
    process: Process,
    output: PathBuf,
    http_port: u16,
    https_port: u16,
    ready_after: Duration,
}

impl Oxigress {
    fn start(bench: &Bench, manifests: &Manifests, name: &str) -> Result<Self> {
        let program = bench.oxigress.as_ref().context("oxigress")?;
        let (http_port, https_port, health_port) = (free_port()?, free_port()?, free_port()?);
        let output = bench.directory.join(format!("{name}.output"));
        let mut command = Command::new(program);
        command
            .arg("--manifests")
            .arg(manifests.folder())
            .arg("--runtime-dir")
            .arg(bench.directory.join(format!("{name}-run")))
            .arg(format!("--http-port={http_port}"))
            .arg(format!("--https-port={https_port}"))
            .arg(format!("--healthz-port={health_port}"))
            .args(["--worker-processes=1", "--post-shutdown-grace-period=0"]);
        let start = Instant::now();
        let mut process = Process::start("oxigress", &mut command, &output)?;
        loop {
            if let Some(status) = process.ended()? {
                bail!("oxigress ended with {status}\n{}", said(&output));
            }
            let health = Client::tcp(health_port).and_then(|mut c| c.get("localhost", "/healthz"));
            if health.is_ok_and(|answer| answer.status == 200) {
                break;
            }
            ensure!(start.elapsed() < DEADLINE, "oxigress is not ready\n{}", said(&output));
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready_after = start.elapsed();
        Ok(Oxigress { process, output, http_port, https_port, ready_after })
    }

    fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM)?;
        ensure!(status.success(), "oxigress ended with {status}\n{}", said(&self.output));
        Ok(())
    }
}

fn said(output: &PathBuf) -> String {
    tail(&fs::read_to_string(output).unwrap_or_default(), 20)
}
