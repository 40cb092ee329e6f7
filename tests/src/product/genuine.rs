//! The genuine ingress-nginx, in a root folder and process namespace of its own.

use crate::client::{self, Address, Request};
use crate::cluster::Tenant;
use crate::place::{Directory, free_port};
use crate::process::{Process, workers_below};
use crate::{dist, nginx, wait};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// It ends with the value, or with this process.
pub struct Genuine {
    process: Process,
    output: PathBuf,
    pub http_port: u16,
    pub https_port: u16,
}

impl Genuine {
    /// Starts it for the tenant's class and waits until its nginx answers. `configmap` is `namespace/name`; `flags` are
    /// added to those that every test needs.
    pub fn start(
        tenant: &Tenant<'_>,
        directory: &Directory,
        configmap: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let (http_port, https_port) = (free_port()?, free_port()?);
        let root = dist::ingress_nginx()?.join("root");
        let at = directory.join("ingress-nginx");
        fs::create_dir(&at)?;
        fs::copy(tenant.cluster.kubeconfig(), at.with_extension("kubeconfig"))?;
        // It writes as another user, through /dev/stdout.
        let output = directory.join("ingress-nginx.log");
        fs::write(&output, "")?;
        fs::set_permissions(&output, fs::Permissions::from_mode(0o666))?;
        tenant.apply(
            "{apiVersion: v1, kind: Pod, metadata: {name: ingress-nginx, labels: {app: ingress-nginx}}, \
             spec: {containers: [{name: controller, image: none}]}}",
        )?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation=private"]);
        command.arg(dist::repository().join("tests/parity/enter")).arg(root).arg(at);
        command.args([
            "--kubeconfig=/kubeconfig".into(),
            format!("--ingress-class={}", tenant.class),
            format!("--controller-class=oxigress.test/{}", tenant.class),
            format!("--configmap={configmap}"),
            format!("--http-port={http_port}"),
            format!("--https-port={https_port}"),
            "--update-status=false".into(),
            "--disable-leader-election".into(),
            "--disable-sync-events".into(),
            "--enable-metrics=false".into(),
            "--profiling=false".into(),
            "--post-shutdown-grace-period=0".into(),
            // As in 1.12 and newer.
            "--enable-annotation-validation=true".into(),
        ]);
        command.args(flags);
        for flag in ["default-server-port", "healthz-port", "status-port", "stream-port"] {
            command.arg(format!("--{flag}={}", free_port()?));
        }
        command.env("POD_NAME", "ingress-nginx").env("POD_NAMESPACE", &tenant.namespace);
        let process = Process::start("ingress-nginx", &mut command, &output)?;
        let mut genuine = Genuine { process, output, http_port, https_port };
        wait::until("ingress-nginx", || {
            if let Some(status) = genuine.process.ended()? {
                return Ok(Err(anyhow::anyhow!("it ended with {status}\n{}", genuine.log_tail())));
            }
            let request = Request::get("none.invalid", "/");
            wait::block_on(client::send(&Address::http(http_port), &request)).map(|_| Ok(()))
        })
        .with_context(|| genuine.log_tail())??;
        Ok(genuine)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Fails while workers of an earlier configuration accept connections beside the newest ones.
    pub fn has_settled(&self) -> Result<()> {
        let workers = workers_below(self.process.pid());
        ensure!(workers.len() == 1, "{} workers", workers.len());
        Ok(())
    }

    /// The end of what it and its nginx wrote.
    pub fn log_tail(&self) -> String {
        nginx::tail(&self.log(), 30)
    }

    /// What it and its nginx wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }
}

impl Drop for Genuine {
    fn drop(&mut self) {
        let _ = self.process.stop(Signal::KILL);
    }
}
