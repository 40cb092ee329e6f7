//! The whole product as a process, and requests to it.

use crate::bench::Bench;
use crate::http::{Answer, Client};
use crate::sample::Sample;
use crate::sample::show;
use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::nginx::tail;
use oxigress_tests::place::free_port;
use oxigress_tests::process::Process;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Between two looks whether a change is served: the resolution of the times.
pub const PAUSE: Duration = Duration::from_micros(200);
/// After this a change counts as lost.
const DEADLINE: Duration = Duration::from_secs(60);

/// Times of so many changes.
pub fn edits(count: usize, edit: impl FnMut(usize) -> Result<Duration>) -> Result<Sample> {
    Ok((0..count).map(edit).collect::<Result<Vec<_>>>()?.into_iter().collect())
}

/// Waits for a condition that it tests every [`PAUSE`].
pub fn until(what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_true()? {
        ensure!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// What a table says of [`until`].
pub fn resolution() -> String {
    format!(
        "served: asked for every {} on a kept connection; an added host was asked for before, so that \
         nothing is new but the state",
        show(PAUSE)
    )
}

/// A connection to nginx, opened again when nginx ends it after its thousand requests.
pub struct Requests {
    client: Client,
    port: u16,
}

impl Requests {
    /// To a port on loopback.
    pub fn new(port: u16) -> Result<Self> {
        Ok(Requests { client: Client::tcp(port)?, port })
    }

    /// Asks until the answer is what is waited for.
    pub fn until(
        &mut self,
        host: &str,
        target: &str,
        is_it: impl Fn(&Answer) -> bool,
    ) -> Result<()> {
        until(&format!("{host}{target}"), || {
            let answer = self.client.get(host, target)?;
            if answer.is_last {
                self.client = Client::tcp(self.port)?;
            }
            Ok(is_it(&answer))
        })
    }
}

pub struct Oxigress {
    pub process: Process,
    output: PathBuf,
    pub http_port: u16,
    pub https_port: u16,
    /// From its start to its readiness.
    pub ready_after: Duration,
    /// nginx's and its own files.
    pub runtime: PathBuf,
}

impl Oxigress {
    /// Starts it with one worker and waits until it is ready; `source` are the flags that say what it serves.
    pub fn start(bench: &Bench, source: &[String], name: &str) -> Result<Self> {
        let program = bench.oxigress.as_ref().context("oxigress")?;
        let (http_port, https_port, health_port) = (free_port()?, free_port()?, free_port()?);
        let output = bench.directory.join(format!("{name}.output"));
        let runtime = bench.directory.join(format!("{name}-run"));
        let mut command = Command::new(program);
        command
            // Who writes status and Events is a pod.
            .env("POD_NAMESPACE", "default")
            .env("POD_NAME", "bench")
            .args(source)
            .arg("--runtime-dir")
            .arg(&runtime)
            .arg(format!("--http-port={http_port}"))
            .arg(format!("--https-port={https_port}"))
            .arg(format!("--healthz-port={health_port}"))
            .args(["--worker-processes=1", "--post-shutdown-grace-period=0"])
            // Its endpoints are on this machine, whatever names them.
            .arg("--allow-loopback-destinations");
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
        Ok(Oxigress { process, output, http_port, https_port, ready_after, runtime })
    }

    /// Ends it, which must go well.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM)?;
        ensure!(status.success(), "oxigress ended with {status}\n{}", said(&self.output));
        Ok(())
    }
}

fn said(output: &PathBuf) -> String {
    tail(&fs::read_to_string(output).unwrap_or_default(), 20)
}
