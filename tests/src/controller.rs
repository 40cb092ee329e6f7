//! A real `oxigress` on a folder of manifests.

use crate::client::{self, Address, Request};
use crate::nginx::tail;
use crate::place::{Directory, free_port};
use crate::process::{Process, workers_below};
use crate::{dist, wait};
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A running controller with its nginx; both are stopped when the value is dropped.
pub struct Controller {
    process: Process,
    /// Port of plain HTTP.
    pub http_port: u16,
    /// Port of HTTPS.
    pub https_port: u16,
    /// Port of health and metrics.
    pub health_port: u16,
    manifests: PathBuf,
    runtime: PathBuf,
    output: PathBuf,
    barriers: u32,
}

impl Controller {
    /// Starts `oxigress --manifests DIR` with so many nginx workers and waits until it serves.
    pub fn start(directory: &Directory, workers: usize, flags: &[String]) -> Result<Self> {
        let (manifests, runtime) = (directory.join("manifests"), directory.join("run"));
        fs::create_dir_all(&manifests)?;
        let (http_port, https_port, health_port) = (free_port()?, free_port()?, free_port()?);
        let mut command = Command::new(dist::oxigress()?);
        command.arg("--manifests").arg(&manifests).arg("--runtime-dir").arg(&runtime);
        for (flag, port) in [
            ("--http-port", http_port),
            ("--https-port", https_port),
            ("--healthz-port", health_port),
        ] {
            command.arg(format!("{flag}={port}"));
        }
        command.arg(format!("--worker-processes={workers}"));
        command.arg("--post-shutdown-grace-period=0").args(flags);
        let output = directory.join("output");
        let process = Process::start("oxigress", &mut command, &output)?;
        let mut controller = Controller {
            process,
            http_port,
            https_port,
            health_port,
            manifests,
            runtime,
            output,
            barriers: 0,
        };
        controller.wait_until_it_serves(workers)?;
        Ok(controller)
    }

    fn wait_until_it_serves(&mut self, workers: usize) -> Result<()> {
        let address = Address::http(self.http_port);
        let request = Request::get("localhost", "/healthz");
        let start = std::time::Instant::now();
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("oxigress ended with {status}\n{}", self.output_tail());
            }
            let answer = wait::block_on(client::send(&address, &request));
            let is_served = matches!(&answer, Ok(response) if response.status == 200);
            if is_served && self.worker_pids().len() == workers {
                return Ok(());
            }
            ensure!(
                start.elapsed() < wait::DEADLINE,
                "oxigress does not serve: {answer:?}\n{}",
                self.output_tail()
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// nginx's configuration endpoint.
    pub fn configuration_socket(&self) -> PathBuf {
        self.runtime.join("configuration.sock")
    }

    /// Pids of nginx's workers, sorted.
    pub fn worker_pids(&self) -> Vec<u32> {
        workers_below(self.process.pid())
    }

    /// Writes a manifest by renaming it into place, as an editor or `git` would.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        // A name that the source does not take for a manifest.
        let fresh = self.manifests.join(format!(".{name}.new"));
        fs::write(&fresh, text)?;
        Ok(fs::rename(fresh, self.manifests.join(name))?)
    }

    /// Writes a manifest and returns when it is served.
    pub fn serve(&mut self, name: &str, text: &str) -> Result<()> {
        self.write(name, text)?;
        // The folder is taken up in order: what is written next is served next.
        self.write_barrier("zz-barrier.yaml")?;
        self.wait_for_barrier(503)
    }

    /// Removes a manifest and returns when it is no longer served.
    ///
    /// A file that is taken away counts a little longer, since editors replace files so: only a second removal
    /// tells that the first one has come to an end.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        const LEAVING: &str = "zz-leaving.yaml";
        self.write_barrier(LEAVING)?;
        self.wait_for_barrier(503)?;
        fs::remove_file(self.manifests.join(name))?;
        fs::remove_file(self.manifests.join(LEAVING))?;
        self.wait_for_barrier(404)
    }

    /// An Ingress whose Service is missing: its host answers 404 before it is taken up, and 503 then.
    fn write_barrier(&mut self, file: &str) -> Result<()> {
        self.barriers += 1;
        let number = self.barriers;
        let text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
             metadata:\n  name: barrier-{number}\n  namespace: barrier\n\
             \x20 annotations: {{ kubernetes.io/ingress.class: nginx }}\nspec:\n  rules:\n\
             \x20 - host: barrier-{number}.test\n    http:\n      paths:\n\
             \x20     - path: /\n        pathType: Prefix\n\
             \x20       backend: {{ service: {{ name: none, port: {{ number: 80 }} }} }}\n"
        );
        self.write(file, &text)
    }

    fn wait_for_barrier(&mut self, status: u16) -> Result<()> {
        let address = Address::http(self.http_port);
        let request = Request::get(&format!("barrier-{}.test", self.barriers), "/");
        wait::until("the manifests to be taken up", || {
            if let Some(status) = self.process.ended()? {
                bail!("oxigress ended with {status}");
            }
            let response = wait::block_on(client::send(&address, &request))?;
            ensure!(response.status == status, "{} instead of {status}", response.status);
            Ok(())
        })
    }

    /// What nginx wrote to its error log; the controller may hand it on in its own output.
    pub fn error_log(&self) -> String {
        let mut text = fs::read_to_string(&self.output).unwrap_or_default();
        for name in ["error.log", "nginx/error.log", "logs/error.log"] {
            text += &fs::read_to_string(self.runtime.join(name)).unwrap_or_default();
        }
        text
    }

    /// The last lines of the output.
    pub fn output_tail(&self) -> String {
        tail(&self.error_log(), 60)
    }

    /// Stops both roles.
    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM)?;
        ensure!(status.success(), "oxigress ended with {status}\n{}", self.output_tail());
        Ok(())
    }
}
