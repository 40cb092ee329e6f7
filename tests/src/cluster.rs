//! A real kube-apiserver with its etcd.
//!
//! Shape:   [`Cluster::shared`] is one a test binary, where each test has its [`Tenant`]; [`Cluster::start`] is a test's
//!          own, to be stopped and killed. Both live in the [`crate::network`] that the calling thread joins.
//! Limits:  nothing else of Kubernetes runs unless a test starts it ([`Cluster::start_controllers`], [`kubelet`]). Else Pods are
//!          local processes ([`Tenant::pod`]), EndpointSlices are written by the test, a deleted Namespace stays for ever.
//! Users:   known by certificates; RBAC decides.

mod credentials;
pub mod kubelet;
mod objects;
mod tenant;

use crate::certificate::{self, Issued};
use crate::client::{self, Address, Request};
use crate::place::{Directory, free_port};
use crate::process::Process;
use crate::wait::{self, block_on, runtime};
use crate::{dist, network, nginx};
use anyhow::{Context, Result, anyhow, ensure};
use credentials::kubeconfig;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::discovery::Discovery;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub use tenant::{Tenant, ingress, service};

/// How long an API server may take to start on a busy machine.
const START: Duration = Duration::from_secs(90);

/// Addresses of Services, both families.
const SERVICES: &str = "10.96.0.0/16,fd00:10:96::/112";

/// etcd and kube-apiserver; both are killed when the value is dropped or the test's process ends.
pub struct Cluster {
    folder: PathBuf,
    authority: Issued,
    etcd_port: u16,
    api_port: u16,
    flags: Vec<String>,
    api: Mutex<Option<Process>>,
    etcd: Mutex<Process>,
    client: OnceLock<Client>,
    kinds: Mutex<Option<Discovery>>,
}

impl Cluster {
    /// The one that tests share; the calling thread joins its network.
    pub fn shared() -> Result<&'static Cluster> {
        static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
        network::join()?;
        let start = || {
            Directory::sweep("cluster");
            let folder = Directory::new("cluster")?.keep();
            Self::start_in(folder, &[])
        };
        let shared = SHARED.get_or_init(|| start().map_err(|error| format!("{error:#}")));
        shared.as_ref().map_err(|error| anyhow!("{error}"))
    }

    /// One of the test's own in `directory`; the calling thread joins its network.
    pub fn start(directory: &Directory) -> Result<Self> {
        Self::start_with(directory, &[])
    }

    /// As [`Self::start`], with further flags for kube-apiserver.
    pub fn start_with(directory: &Directory, flags: &[String]) -> Result<Self> {
        network::join()?;
        Self::start_in(directory.join("cluster"), flags)
    }

    fn start_in(folder: PathBuf, flags: &[String]) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        let authority = Issued::new(certificate::authority("authority", 0..2)?, None)?;
        let (etcd_port, api_port) = (free_port()?, free_port()?);
        let etcd = start_etcd(&folder, etcd_port)?;
        let cluster = Cluster {
            folder,
            authority,
            etcd_port,
            api_port,
            flags: flags.into(),
            api: Mutex::new(None),
            etcd: Mutex::new(etcd),
            client: OnceLock::new(),
            kinds: Mutex::new(None),
        };
        cluster.write_credentials()?;
        cluster.start_api()?;
        Ok(cluster)
    }

    fn write_credentials(&self) -> Result<()> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        let server = certificate::params("kube-apiserver", &names, 0..2)?;
        let server = Issued::new(server, Some(&self.authority))?;
        let tokens = Issued::new(certificate::authority("service-accounts", 0..2)?, None)?;
        for (name, bytes) in [
            ("authority.crt", self.authority.pem.clone()),
            ("server.key", server.key.pem()?),
            ("server.crt", server.pem),
            ("tokens.key", tokens.key.pem()?),
            ("tokens.crt", tokens.pem),
        ] {
            fs::write(self.folder.join(name), bytes)?;
        }
        self.write_kubeconfig("administrator", &["system:masters"])?;
        Ok(())
    }

    fn write_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let user_of = credentials::user(user, groups, &self.authority)?;
        let config = kubeconfig(&self.url(), &self.authority, &user_of)?;
        let path = self.folder.join(format!("{}.kubeconfig", user.replace([':', '/'], "-")));
        fs::write(&path, serde_json::to_vec_pretty(&config)?)?;
        Ok(path)
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.api_port)
    }

    pub fn port(&self) -> u16 {
        self.api_port
    }

    /// File of the certificate that signs the API server's.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("administrator.kubeconfig")
    }

    /// The kubeconfig of a user, which RBAC knows by these names: a ServiceAccount is
    /// `system:serviceaccount:NAMESPACE:NAME` of the groups `system:serviceaccounts` and
    /// `system:serviceaccounts:NAMESPACE`. The API server adds `system:authenticated` by itself; a user has two groups at
    /// most besides.
    pub fn kubeconfig_of(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.write_kubeconfig(user, groups)
    }

    /// The administrator's client. Its tasks live on [`wait::runtime`].
    pub fn client(&self) -> Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = self.client_of(&self.kubeconfig())?;
        Ok(self.client.get_or_init(|| client).clone())
    }

    /// A client with the credentials of a kubeconfig.
    pub fn client_of(&self, kubeconfig: &Path) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = block_on(Config::from_custom_kubeconfig(kubeconfig, &options))?;
        // The client has a task, which needs a runtime.
        let _inside = runtime().enter();
        Ok(Client::try_from(config)?)
    }

    /// Starts the API server, unless it runs, and waits until it is ready.
    pub fn start_api(&self) -> Result<()> {
        let mut api = self.api();
        if let Some(process) = api.as_mut()
            && process.ended()?.is_none()
        {
            return Ok(());
        }
        let process = api.insert(self.run_api()?);
        let address = Address::https(self.api_port, "localhost");
        let request = Request::get("localhost", "/readyz");
        let start = Instant::now();
        loop {
            let log = || nginx::tail(&fs::read_to_string(self.api_log()).unwrap_or_default(), 20);
            if let Some(status) = process.ended()? {
                return Err(anyhow!("kube-apiserver ended with {status}\n{}", log()));
            }
            let answer = block_on(client::send(&address, &request));
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            ensure!(start.elapsed() < START, "kube-apiserver is not ready: {answer:?}\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn run_api(&self) -> Result<Process> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.api_port),
            // No other address is there, and none is told to anybody.
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            format!("--service-cluster-ip-range={SERVICES}"),
            format!("--tls-cert-file={}", file("server.crt")),
            format!("--tls-private-key-file={}", file("server.key")),
            format!("--client-ca-file={}", file("authority.crt")),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file("tokens.crt")),
            format!("--service-account-signing-key-file={}", file("tokens.key")),
            // It waits for ServiceAccounts that nobody makes here.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--allow-privileged=true".into(),
            "--enable-priority-and-fairness=false".into(),
            "--profiling=false".into(),
            // When it ends it waits so long for connections of watches, which their clients keep.
            "--request-timeout=10s".into(),
        ];
        arguments.extend_from_slice(&self.flags);
        start_kept("kube-apiserver", dist::kubernetes("kube-apiserver")?, arguments, self.api_log())
    }

    fn api_log(&self) -> PathBuf {
        self.folder.join("kube-apiserver.log")
    }

    fn api(&self) -> MutexGuard<'_, Option<Process>> {
        self.api.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the API server as a node's shutdown does: it closes its watches properly.
    pub fn stop_api(&self) -> Result<()> {
        self.end_api(Signal::TERM)
    }

    /// Ends it without a word.
    pub fn kill_api(&self) -> Result<()> {
        self.end_api(Signal::KILL)
    }

    fn end_api(&self, signal: Signal) -> Result<()> {
        let mut process = self.api().take().context("kube-apiserver does not run")?;
        process.stop(signal)?;
        Ok(())
    }

    /// Stops it where it stands, so that connections stay open and say nothing, until [`Self::resume_api`].
    pub fn pause_api(&self) -> Result<()> {
        self.api().as_mut().context("kube-apiserver does not run")?.signal(Signal::STOP)
    }

    /// Lets the API server run again after [`Self::pause_api`].
    pub fn resume_api(&self) -> Result<()> {
        self.api().as_mut().context("kube-apiserver does not run")?.signal(Signal::CONT)
    }

    /// Starts kube-controller-manager with what makes Pods of Deployments, EndpointSlices of Services, and cleans up.
    pub fn start_controllers(&self) -> Result<Process> {
        const RUNNING: [&str; 5] = [
            "deployment-controller",
            "replicaset-controller",
            "endpointslice-controller",
            "garbage-collector-controller",
            "namespace-controller",
        ];
        let arguments = vec![
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--controllers={}", RUNNING.join(",")),
            format!("--cert-dir={}", self.folder.join("controllers").display()),
            format!("--secure-port={}", free_port()?),
            "--leader-elect=false".into(),
            "--authentication-skip-lookup=true".into(),
        ];
        let log = self.folder.join("kube-controller-manager.log");
        let program = dist::conformance("kube-controller-manager")?;
        start_kept("kube-controller-manager", program, arguments, log)
    }

    /// Drops etcd's past. The API server keeps a part of it in its memory: a watch from the past gets 410 Gone when that
    /// is gone, too, by [`Self::kill_api`], or when there is none (`--watch-cache=false` of [`Self::start_with`]).
    pub fn compact(&self) -> Result<()> {
        let now = self.etcd_call("range", &json!({"key": "AA=="}))?;
        let now = now.pointer("/header/revision").and_then(Value::as_str).context("a revision")?;
        self.etcd_call("compaction", &json!({"revision": now, "physical": true}))?;
        Ok(())
    }

    /// Where etcd listens: programs that keep something there may share it.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd_port)
    }

    /// etcd's JSON gateway; a key is base64.
    pub fn etcd_call(&self, name: &str, body: &Value) -> Result<Value> {
        let request = Request::new("POST", "localhost", &format!("/v3/kv/{name}"));
        let answer = block_on(client::send(
            &Address::http(self.etcd_port),
            &request.body(serde_json::to_vec(body)?),
        ))?;
        ensure!(answer.status == 200, "etcd's {name}: {answer}");
        answer.json()
    }

    /// The processes, for a test that measures them.
    pub fn pids(&self) -> Vec<u32> {
        let etcd = self.etcd.lock().unwrap_or_else(PoisonError::into_inner).pid();
        self.api().iter().map(Process::pid).chain([etcd]).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.kill_api();
        let _ = self.etcd.lock().unwrap_or_else(PoisonError::into_inner).stop(Signal::KILL);
    }
}

fn start_etcd(folder: &Path, port: u16) -> Result<Process> {
    let (url, peers) =
        (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()?));
    let arguments = vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        // What it keeps need not live longer than the machine.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    let mut etcd =
        start_kept("etcd", dist::kubernetes("etcd")?, arguments, folder.join("etcd.log"))?;
    wait::until("etcd", || {
        // An error of `ended` would be waited for; that it has ended shows as no answer.
        let ended = etcd.ended()?;
        let answer =
            block_on(client::send(&Address::http(port), &Request::get("localhost", "/health")));
        ensure!(answer.is_ok_and(|answer| answer.status == 200), "no health; ended: {ended:?}");
        Ok(())
    })?;
    Ok(etcd)
}

/// Starts a program that ends with the test's process, even when that is killed.
fn start_kept(
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
) -> Result<Process> {
    network::keep(move || {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL").arg(program).args(arguments);
        // Go collects garbage at five times what lives instead of twice: there is more memory than processor.
        command.env("GOGC", "400");
        Process::start(name, &mut command, &log)
    })?
}

#[cfg(test)]
mod tests;
