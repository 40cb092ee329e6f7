//! nginx with the conf/nginx.conf that is shipped, as the nginx role renders it; the test is the controller.

use crate::client::Address;
use crate::nginx::{BAD_IN_ERROR_LOG, Configuration, tail};
use crate::place::{Directory, free_port};
use crate::process::{Process, workers_below};
use crate::{dist, wait};
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// A running nginx; it is stopped when the value is dropped.
pub struct Shipped {
    process: Process,
    runtime: PathBuf,
    output: PathBuf,
    workers: Vec<u32>,
    pub configuration: Configuration,
    pub http: SocketAddr,
    pub https: SocketAddr,
}

impl Shipped {
    /// Starts `oxigress nginx` and waits until it can be configured.
    pub fn start(directory: &Directory, workers: usize) -> Result<Self> {
        let (runtime, output) = (directory.join("run"), directory.join("output"));
        let (http, https, health) = (free_port()?, free_port()?, free_port()?);
        let mut command = Command::new(dist::oxigress()?);
        command
            .arg("nginx")
            .arg(format!("--runtime-dir={}", runtime.display()))
            .arg(format!("--http-port={http}"))
            .arg(format!("--https-port={https}"))
            .arg(format!("--healthz-port={health}"))
            .arg(format!("--worker-processes={workers}"))
            .arg("--allow-loopback-destinations")
            .arg("--post-shutdown-grace-period=0");
        let process = Process::start("oxigress nginx", &mut command, &output)?;
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let configuration = Configuration::unix(runtime.join("configuration.sock"));
        let mut shipped = Shipped {
            process,
            runtime,
            output,
            workers: Vec::new(),
            configuration,
            http: loopback(http),
            https: loopback(https),
        };
        let start = Instant::now();
        while wait::block_on(shipped.configuration.status()).is_err()
            || shipped.worker_pids().len() != workers
        {
            if let Some(status) = shipped.process.ended()? {
                bail!("oxigress ended with {status}\n{}", shipped.log_tail());
            }
            ensure!(start.elapsed() < wait::DEADLINE, "nginx is not there\n{}", shipped.log_tail());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        shipped.workers = shipped.worker_pids();
        Ok(shipped)
    }

    pub fn address(&self) -> Address {
        Address::Tcp(self.http)
    }

    /// HTTPS with this server name.
    pub fn tls_address(&self, name: &str) -> Address {
        Address::Tls(self.https, Some(name.into()))
    }

    /// Serves these routes, and no others.
    pub fn serve(&self, routes: &[Route]) -> Result<()> {
        let response = wait::block_on(self.configuration.put(snapshot(routes).to_string()))?;
        ensure!(response.status == 200, "{response}");
        Ok(())
    }

    fn worker_pids(&self) -> Vec<u32> {
        let pid = fs::read_to_string(self.runtime.join("nginx.pid")).ok();
        pid.and_then(|pid| pid.trim().parse().ok()).map(workers_below).unwrap_or_default()
    }

    /// What it wrote, nginx's error log too.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        tail(&self.log(), 40)
    }

    /// The workers are those that it began with, and nothing in the log is bad.
    pub fn check(&self) -> Result<()> {
        let workers = self.worker_pids();
        ensure!(workers == self.workers, "workers {workers:?}, were {:?}", self.workers);
        let log = self.log();
        match log.lines().find(|line| BAD_IN_ERROR_LOG.iter().any(|bad| line.contains(bad))) {
            Some(line) => bail!("in the log: {line}"),
            None => Ok(()),
        }
    }

    /// Bytes that the workers keep in temporary files of this folder. They have no name any more, but are open.
    pub fn kept(&self, folder: &str) -> Result<u64> {
        let inside = self.runtime.join("worker").join(folder);
        let mut bytes = 0;
        for worker in self.worker_pids() {
            for file in fs::read_dir(format!("/proc/{worker}/fd"))? {
                let file = file?.path();
                // It may be closed meanwhile.
                if fs::read_link(&file).is_ok_and(|path| path.starts_with(&inside)) {
                    bytes += fs::metadata(&file).map_or(0, |file| file.len());
                }
            }
        }
        Ok(bytes)
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        let _ = self.process.stop(Signal::TERM);
    }
}

/// All paths of a host.
pub struct Route<'a> {
    pub host: &'a str,
    pub endpoints: Vec<SocketAddr>,
    /// Its policies, as the native dialect writes them; null: it has none.
    pub policies: Value,
}

impl<'a> Route<'a> {
    /// One with an endpoint that speaks this, and nothing else said.
    pub fn new(host: &'a str, endpoint: SocketAddr, protocol: &str) -> Self {
        Self::with(host, endpoint, json!({"protocol": protocol}))
    }

    /// One with these proxy settings.
    pub fn with(host: &'a str, endpoint: SocketAddr, proxy: Value) -> Self {
        Route { host, endpoints: vec![endpoint], policies: json!({"proxy": proxy}) }
    }
}

fn snapshot(routes: &[Route]) -> Value {
    let mut snapshot = json!({"servers": {}, "backends": {}, "endpoints": {}, "policies": {}});
    for Route { host, endpoints, policies } in routes {
        let mut rule = json!({"path": {"prefix": "/"}, "backend": host});
        if !policies.is_null() {
            rule["policies"] = json!(host);
            snapshot["policies"][host] = policies.clone();
        }
        snapshot["servers"][host] = json!({"rules": [rule]});
        snapshot["backends"][host] = json!({});
        let endpoints: Vec<_> =
            endpoints.iter().map(|a| json!({"address": a.ip(), "port": a.port()})).collect();
        snapshot["endpoints"][host] = json!(endpoints);
    }
    json!({"version": 1, "snapshot": snapshot})
}
