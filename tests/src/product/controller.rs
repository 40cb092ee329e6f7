//! A real `oxigress` on a folder of manifests or a cluster.

use crate::certificate::Certificate;
use crate::client::{self, Address, Request};
use crate::cluster::Cluster;
use crate::nginx::{Configuration, tail};
use crate::place::{Directory, free_port};
use crate::process::{Entry, Process, entries, signal_pid, workers_below};
use crate::{dist, network, wait};
use anyhow::{Context, Result, bail, ensure};
use oxigress_core::wire::native::Status;
use rustix::process::Signal;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A running controller with its nginx; both are stopped when the value is dropped.
pub struct Controller {
    /// `oxigress`; of roles apart the controller's.
    process: Process,
    /// The nginx role, of roles apart.
    nginx_role: Option<Process>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    workers: usize,
    pub http_port: u16,
    pub https_port: u16,
    /// Port of health and metrics.
    pub health_port: u16,
    manifests: PathBuf,
    runtime: PathBuf,
    output: PathBuf,
    barriers: u32,
}

/// Where a controller has its objects from.
enum Objects<'c> {
    Folder,
    Cluster(&'c Cluster),
    /// The same, as the pod of this namespace and name, which writes status and Events.
    InPod(&'c Cluster, [&'c str; 2]),
}

impl Objects<'_> {
    /// The flags that say where the objects are, and the environment of the process.
    fn arguments(
        self,
        manifests: &Path,
        flags: &[String],
    ) -> (Vec<String>, Vec<(&'static str, String)>) {
        let source = match self {
            Objects::Folder => vec![format!("--manifests={}", manifests.display())],
            Objects::Cluster(_) | Objects::InPod(..)
                if flags.iter().any(|flag| flag.starts_with("--kubeconfig")) =>
            {
                vec![]
            }
            Objects::Cluster(at) | Objects::InPod(at, _) => {
                vec![format!("--kubeconfig={}", at.kubeconfig().display())]
            }
        };
        let environment = match self {
            Objects::InPod(_, [namespace, name]) => {
                vec![("POD_NAMESPACE", namespace.into()), ("POD_NAME", name.into())]
            }
            _ => Vec::new(),
        };
        (source, environment)
    }
}

impl Controller {
    /// Starts `oxigress --manifests DIR` with so many nginx workers and waits until it serves.
    pub fn start(directory: &Directory, workers: usize, flags: &[String]) -> Result<Self> {
        Self::start_as(directory, workers, flags, Objects::Folder, false, None)
    }

    /// The same with its output in a pipe or a device.
    pub fn start_into(directory: &Directory, workers: usize, output: OwnedFd) -> Result<Self> {
        Self::start_as(directory, workers, &[], Objects::Folder, false, Some(output))
    }

    /// Starts `oxigress` on a cluster, in the network of its pods; `flags` say what it serves ([`Tenant::flags`]). Its
    /// `--kubeconfig` is the administrator's unless they name another.
    ///
    /// [`Tenant::flags`]: crate::cluster::Tenant::flags
    pub fn start_on(
        cluster: &Cluster,
        directory: &Directory,
        workers: usize,
        flags: &[String],
    ) -> Result<Self> {
        network::join()?;
        Self::start_as(directory, workers, flags, Objects::Cluster(cluster), false, None)
    }

    /// As [`Self::start_on`], as the pod of this namespace and name: it writes status and Events.
    pub fn start_in_pod(
        cluster: &Cluster,
        pod: [&str; 2],
        directory: &Directory,
        workers: usize,
        flags: &[String],
    ) -> Result<Self> {
        network::join()?;
        Self::start_as(directory, workers, flags, Objects::InPod(cluster, pod), false, None)
    }

    /// The two roles as processes that nobody starts again, as in two containers: the test is the kubelet.
    pub fn start_apart(directory: &Directory, workers: usize, flags: &[String]) -> Result<Self> {
        Self::start_as(directory, workers, flags, Objects::Folder, true, None)
    }

    fn start_as(
        directory: &Directory,
        workers: usize,
        flags: &[String],
        objects: Objects<'_>,
        is_apart: bool,
        into: Option<OwnedFd>,
    ) -> Result<Self> {
        let (manifests, runtime) = (directory.join("manifests"), directory.join("run"));
        fs::create_dir_all(&manifests)?;
        let (source, environment) = objects.arguments(&manifests, flags);
        let (http_port, https_port) = (port(flags, "http")?, port(flags, "https")?);
        let health_port = free_port()?;
        let flags: Vec<_> = flags.iter().filter(|flag| !is_port(flag)).cloned().collect();
        let mut arguments = vec![
            format!("--runtime-dir={}", runtime.display()),
            format!("--http-port={http_port}"),
            format!("--https-port={https_port}"),
            format!("--healthz-port={health_port}"),
            format!("--worker-processes={workers}"),
            "--post-shutdown-grace-period=0".into(),
        ];
        // Its port by default can be had once on a machine.
        if !flags.iter().any(|flag| flag.starts_with("--dashboard-address")) {
            arguments.push("--dashboard-address=off".into());
        }
        arguments.extend(source);
        arguments.extend(flags);
        let output = directory.join("output");
        let (process, nginx_role) = match is_apart {
            false if into.is_some() => {
                let mut command = Command::new(dist::oxigress()?);
                let output = into.context("an output")?;
                (Process::start_into("oxigress", command.args(&arguments), output)?, None)
            }
            false => (run(&[], &arguments, &environment, &output)?, None),
            true => {
                let nginx = run(&["nginx"], &arguments, &environment, &output)?;
                (run(&["controller"], &arguments, &environment, &output)?, Some(nginx))
            }
        };
        let mut controller = Controller {
            process,
            nginx_role,
            arguments,
            environment,
            workers,
            http_port,
            https_port,
            health_port,
            manifests,
            runtime,
            output,
            barriers: 0,
        };
        controller.wait_until_it_serves()?;
        Ok(controller)
    }

    /// Starts what was killed again, with further flags for the nginx role, and waits until it serves.
    pub fn start_again(&mut self, flags: &[String]) -> Result<()> {
        // A process of several threads is a zombie a moment before it can be waited for.
        wait::until("the end of what was killed", || {
            let mut ended = self.process.ended()?.is_some();
            if let Some(nginx) = &mut self.nginx_role {
                ended |= nginx.ended()?.is_some();
            }
            ensure!(ended, "nothing has ended");
            Ok(())
        })?;
        let name = |flag: &str| flag.split('=').next().map(String::from);
        let is_replaced = |given: &&String| flags.iter().any(|flag| name(flag) == name(given));
        let kept = self.arguments.iter().filter(|given| !is_replaced(given));
        let arguments: Vec<_> = kept.chain(flags).cloned().collect();
        if let Some(nginx) = &mut self.nginx_role
            && nginx.ended()?.is_some()
        {
            *nginx = run(&["nginx"], &arguments, &self.environment, &self.output)?;
        }
        if self.process.ended()?.is_some() {
            let role: &[&str] = if self.nginx_role.is_some() { &["controller"] } else { &[] };
            self.process = run(role, &arguments, &self.environment, &self.output)?;
        }
        self.wait_until_it_serves()
    }

    /// Waits until nginx says that it is ready, with all its workers.
    pub fn wait_until_it_serves(&mut self) -> Result<()> {
        let address = Address::http(self.http_port);
        let request = Request::get("localhost", "/healthz");
        let start = std::time::Instant::now();
        loop {
            for process in self.nginx_role.iter_mut().chain([&mut self.process]) {
                if let Some(status) = process.ended()? {
                    bail!("oxigress ended with {status}");
                }
            }
            let answer = wait::block_on(client::send(&address, &request));
            let is_served = matches!(&answer, Ok(response) if response.status == 200);
            if is_served && self.worker_pids().len() == self.workers {
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

    pub fn configuration_socket(&self) -> PathBuf {
        self.runtime.join("configuration.sock")
    }

    /// Waits until the controller's own health port says so too.
    pub fn is_ready(&self) -> Result<()> {
        let address = Address::http(self.health_port);
        wait::until("readiness", || {
            let answer = wait::block_on(client::send(&address, &Request::get("x", "/healthz")))?;
            ensure!(answer.status == 200, "{answer}");
            Ok(())
        })
    }

    /// What nginx says of its configuration.
    pub fn status(&self) -> Result<Status> {
        wait::block_on(Configuration::unix(self.configuration_socket()).status())
    }

    /// Waits until all that is served stands in the journal.
    pub fn journaled(&self) -> Result<Status> {
        wait::until("the journal", || {
            let status = self.status()?;
            ensure!(status.journal_generation == Some(status.generation), "{status:?}");
            Ok(status)
        })
    }

    /// The pid of `oxigress`; of roles apart the controller's.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The pid of a role; it must run.
    pub fn role_pid(&self, role: &str) -> Result<u32> {
        if let Some(nginx) = &self.nginx_role {
            return Ok(if role == "nginx" { nginx.pid() } else { self.process.pid() });
        }
        let all = entries();
        let mut children = all.iter().filter(|entry| entry.parent == self.process.pid());
        let is_role = |entry: &&Entry| entry.title.split(' ').nth(1) == Some(role);
        Ok(children.find(is_role).with_context(|| format!("no role {role} runs"))?.pid)
    }

    /// The pid of nginx's master; it must run.
    pub fn master_pid(&self) -> Result<u32> {
        let text = fs::read_to_string(self.runtime.join("nginx.pid")).context("nginx.pid")?;
        let pid: u32 = text.trim().parse()?;
        let conf = self.runtime.join("nginx.conf").display().to_string();
        let is_master = |e: &Entry| e.title.starts_with("nginx: master") && e.title.contains(&conf);
        let all = entries();
        let found = all.iter().find(|entry| entry.pid == pid && is_master(entry));
        Ok(found.with_context(|| format!("no nginx {pid} runs"))?.pid)
    }

    /// An upgrade is under way.
    pub fn has_old_master(&self) -> bool {
        self.runtime.join("nginx.pid.oldbin").exists()
    }

    /// Pids of nginx's workers, sorted; none while there is no master.
    pub fn worker_pids(&self) -> Vec<u32> {
        self.master_pid().map(workers_below).unwrap_or_default()
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

    /// Writes nothing and returns when nginx serves the manifests as they are now: whoever had been killed has
    /// caught up.
    pub fn catch_up(&mut self) -> Result<()> {
        self.write_barrier("zz-barrier.yaml")?;
        self.wait_for_barrier(503)
    }

    /// Asks for the end as the kubelet does, each container by itself, and does not wait.
    pub fn ask_to_end(&mut self) -> Result<()> {
        let mut all = self.nginx_role.iter_mut().chain([&mut self.process]);
        all.try_for_each(|process| process.signal(Signal::TERM))
    }

    /// Waits for the end that it was asked for.
    pub fn wait_for_end(&mut self) -> Result<()> {
        for process in self.nginx_role.iter_mut().chain([&mut self.process]) {
            let status =
                wait::until("the end of oxigress", || process.ended()?.context("it still runs"))?;
            ensure!(status.success(), "oxigress ended with {status}");
        }
        Ok(())
    }

    /// Stops both roles, also those that would serve on for a while: asked again, they end.
    pub fn stop_at_once(&mut self) -> Result<()> {
        // Signals that come closer count as one.
        const APART: Duration = Duration::from_millis(400);
        for _ in 0..2 {
            self.ask_to_end()?;
            std::thread::sleep(APART);
        }
        self.wait_for_end()
    }

    pub fn stop(&mut self) -> Result<()> {
        for process in self.nginx_role.iter_mut().chain([&mut self.process]) {
            let status = process.stop(Signal::TERM)?;
            ensure!(status.success(), "oxigress ended with {status}");
        }
        Ok(())
    }
}

/// Flags of a webhook at `address` with this certificate, whose files are written.
pub fn webhook_flags(
    directory: &Directory,
    pair: &Certificate,
    address: &str,
) -> Result<Vec<String>> {
    let (chain, key) = (directory.join("webhook.crt"), directory.join("webhook.key"));
    fs::write(&chain, &pair.chain)?;
    fs::write(&key, &pair.key)?;
    Ok(vec![
        format!("--validating-webhook={address}"),
        format!("--validating-webhook-certificate={}", chain.display()),
        format!("--validating-webhook-key={}", key.display()),
    ])
}

impl Drop for Controller {
    /// A test that failed may leave an nginx whose role it had killed.
    fn drop(&mut self) {
        let has_ended = |process: &mut Process| matches!(process.ended(), Ok(Some(_)));
        if !self.nginx_role.iter_mut().chain([&mut self.process]).all(has_ended) {
            let _ = self.stop_at_once();
        }
        for process in self.nginx_role.iter_mut().chain([&mut self.process]) {
            let _ = process.stop(Signal::TERM);
        }
        if let Ok(master) = self.master_pid() {
            let _ = signal_pid(master, Signal::TERM);
        }
    }
}

fn is_port(flag: &str) -> bool {
    flag.starts_with("--http-port=") || flag.starts_with("--https-port=")
}

/// The port that the flags name, or a free one.
fn port(flags: &[String], scheme: &str) -> Result<u16> {
    let name = format!("--{scheme}-port=");
    let given = flags.iter().find_map(|flag| flag.strip_prefix(&name));
    given.map_or_else(free_port, |given| Ok(given.parse()?))
}

fn run(
    role: &[&str],
    arguments: &[String],
    environment: &[(&'static str, String)],
    output: &Path,
) -> Result<Process> {
    let mut command = Command::new(dist::oxigress()?);
    command.args(role).args(arguments).envs(environment.iter().cloned());
    Process::start("oxigress", &mut command, output)
}
