//! nginx as a test starts it: in the foreground, with a master, stopped by its pid.

use crate::client::{self, Address, Request, Response};
use crate::place::Directory;
use crate::process::{Process, signal_pid, workers_below};
use crate::{dist, wait};
use anyhow::{Context, Result, bail, ensure};
use oxigress_core::wire::native::Status;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, net::TcpStream};

/// What stands in the error log of an nginx that is well only if something is wrong.
///
/// A sanitizer writes to stderr, which nginx points at its error log.
pub const BAD_IN_ERROR_LOG: [&str; 5] = ["[alert]", "[crit]", "[emerg]", "panicked", "Sanitizer: "];

/// A running nginx; it is stopped when the value is dropped.
pub struct Nginx {
    process: Process,
    conf: PathBuf,
    error_log: PathBuf,
    workers: usize,
}

impl Nginx {
    /// Starts nginx on the text of an nginx.conf in `directory` and waits for its workers.
    ///
    /// The text decides everything but `daemon off`, the pid file and the error log, which are put before it.
    pub fn start(directory: &Directory, text: &str, workers: usize) -> Result<Self> {
        Self::start_with(directory, text, workers, &[])
    }

    /// As [`Self::start`], with environment variables.
    pub fn start_with(
        directory: &Directory,
        text: &str,
        workers: usize,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let (conf, error_log) = (directory.join("nginx.conf"), directory.join("error.log"));
        fs::write(&conf, text)?;
        let mut command = Command::new(dist::nginx()?);
        command.arg("-p").arg(directory.path()).arg("-c").arg(&conf).arg("-e").arg(&error_log);
        command.envs(environment.iter().copied());
        let process = Process::start("nginx", &mut command, &directory.join("output"))?;
        let mut nginx = Nginx { process, conf, error_log, workers };
        nginx.wait_for_workers().with_context(|| {
            let said = fs::read_to_string(directory.join("output")).unwrap_or_default();
            format!("nginx did not start\n{said}{}", nginx.error_log_tail())
        })?;
        Ok(nginx)
    }

    fn wait_for_workers(&mut self) -> Result<()> {
        let start = std::time::Instant::now();
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("it ended with {status}");
            }
            if self.worker_pids().len() == self.workers {
                return Ok(());
            }
            ensure!(start.elapsed() < wait::DEADLINE, "{:?} of its workers", self.worker_pids());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The workers' process ids, sorted.
    pub fn worker_pids(&self) -> Vec<u32> {
        workers_below(self.pid())
    }

    /// Kills a worker and waits for the one that takes its place.
    pub fn kill_worker(&mut self, pid: u32) -> Result<()> {
        ensure!(self.worker_pids().contains(&pid), "{pid} is no worker of this nginx");
        signal_pid(pid, Signal::KILL)?;
        wait::until("the next worker", || {
            let pids = self.worker_pids();
            ensure!(pids.len() == self.workers && !pids.contains(&pid), "{pids:?}");
            Ok(())
        })
    }

    /// Reloads (`SIGHUP`) and waits until only new workers take connections.
    pub fn reload(&mut self) -> Result<()> {
        let old = self.worker_pids();
        self.process.signal(Signal::HUP)?;
        wait::until("new workers", || {
            let pids = self.worker_pids();
            ensure!(
                pids.len() == self.workers && pids.iter().all(|p| !old.contains(p)),
                "{pids:?}"
            );
            Ok(())
        })
    }

    /// Replaces nginx.conf, for the next [`Self::reload`].
    pub fn write_conf(&self, text: &str) -> Result<()> {
        Ok(fs::write(&self.conf, text)?)
    }

    /// Stops nginx at once by `SIGTERM`.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM)?;
        ensure!(status.success(), "nginx ended with {status}");
        Ok(())
    }

    /// The error log so far.
    pub fn error_log(&self) -> String {
        fs::read(&self.error_log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub fn error_log_tail(&self) -> String {
        tail(&self.error_log(), 40)
    }

    /// Fails if the error log has what a healthy nginx never writes.
    pub fn check_error_log(&self) -> Result<()> {
        let log = self.error_log();
        match log.lines().find(|line| BAD_IN_ERROR_LOG.iter().any(|bad| line.contains(bad))) {
            Some(line) => bail!("in the error log: {line}"),
            None => Ok(()),
        }
    }
}

/// The last lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

/// Waits until something listens on a loopback port.
pub fn wait_for_port(port: u16) -> Result<()> {
    wait::until("a listener", || {
        TcpStream::connect(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
        Ok(())
    })
}

/// The configuration endpoint of a running nginx.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub address: Address,
}

impl Configuration {
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Configuration { address: Address::Unix(path.into()) }
    }

    /// A request with a JSON body and nothing else set.
    pub fn request(method: &str, path: &str, body: impl Into<hyper::body::Bytes>) -> Request {
        let request = Request::new(method, "localhost", path).body(body);
        match method {
            "GET" | "HEAD" => request,
            _ => request.header("Content-Type", "application/json"),
        }
    }

    /// Sends a request of any kind.
    pub async fn send(&self, request: &Request) -> Result<Response> {
        client::send(&self.address, request).await
    }

    /// `PUT /configuration`: takes the zone over.
    pub async fn put(&self, body: impl Into<hyper::body::Bytes>) -> Result<Response> {
        self.send(&Self::request("PUT", "/configuration", body)).await
    }

    /// `PATCH /configuration` on top of `tag`, an `epoch.generation`.
    pub async fn patch(&self, tag: &str, body: impl Into<hyper::body::Bytes>) -> Result<Response> {
        let request = Self::request("PATCH", "/configuration", body);
        self.send(&request.header("If-Match", &format!("\"{tag}\""))).await
    }

    pub async fn status(&self) -> Result<Status> {
        let response = self.send(&Self::request("GET", "/configuration", "")).await?;
        ensure!(response.status == 200, "{response}");
        response.json()
    }

    pub async fn tag(&self) -> Result<String> {
        let status = self.status().await?;
        Ok(format!("{}.{}", status.epoch, status.generation))
    }
}
