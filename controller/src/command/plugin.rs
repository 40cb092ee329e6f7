//! `kubectl oxigress COMMAND`: the same commands, in a pod of the controller, through kubectl.
//!
//! A link named `kubectl-oxigress` on the PATH is all that there is to install. kubectl finds the cluster and the
//! credentials; this process becomes `kubectl exec` in the end.

use super::dashboard;
use crate::flags::DASHBOARD;
use anyhow::{Context, bail, ensure};
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Labels of the chart's and of ingress-nginx's pods.
const SELECTOR: &str =
    "app.kubernetes.io/component=controller,app.kubernetes.io/name in (oxigress,ingress-nginx)";

/// Runs a command of oxigress in a pod of the controller: backends, certs, conf, general, explain
#[derive(Debug, Parser)]
#[command(name = "kubectl oxigress", disable_version_flag = true)]
struct Plugin {
    /// Namespace of the controller; all are searched without it
    #[arg(short, long)]
    namespace: Option<String>,
    /// The pod; without it the first that runs and has the labels
    #[arg(long)]
    pod: Option<String>,
    /// Labels of the controller's pods
    #[arg(short = 'l', long, default_value = SELECTOR)]
    selector: String,
    /// Container of the pod
    #[arg(short, long, default_value = "controller")]
    container: String,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// kubeconfig
    #[arg(long)]
    kubeconfig: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Plugin {
    /// kubectl with what chooses the cluster.
    fn kubectl(&self) -> Command {
        let mut kubectl = Command::new("kubectl");
        for (name, value) in [("kubeconfig", &self.kubeconfig), ("context", &self.context)] {
            if let Some(value) = value {
                kubectl.arg(format!("--{name}={value}"));
            }
        }
        kubectl
    }

    fn find(&self) -> Command {
        let mut kubectl = self.kubectl();
        kubectl.args([
            "get",
            "pods",
            "--field-selector=status.phase=Running",
            "-l",
            &self.selector,
        ]);
        match &self.namespace {
            Some(namespace) => kubectl.arg(format!("--namespace={namespace}")),
            None => kubectl.arg("--all-namespaces"),
        };
        let each =
            "-o=jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
        kubectl.arg(each);
        kubectl
    }

    /// kubectl with a way from a port of this machine to the dashboard of the pod.
    fn forward(&self, pod: &str, namespace: Option<&str>) -> Command {
        let mut kubectl = self.kubectl();
        kubectl.arg("port-forward");
        if let Some(namespace) = namespace {
            kubectl.arg(format!("--namespace={namespace}"));
        }
        let ports = self.command.get(1).cloned().unwrap_or_else(|| dashboard::PORT.into());
        kubectl.arg(pod).arg(ports);
        kubectl
    }

    fn exec(&self, pod: &str, namespace: Option<&str>) -> Command {
        let mut kubectl = self.kubectl();
        kubectl.arg("exec").arg(format!("--container={}", self.container));
        if let Some(namespace) = namespace {
            kubectl.arg(format!("--namespace={namespace}"));
        }
        kubectl.arg(pod).args(["--", "oxigress"]).args(&self.command);
        kubectl
    }
}

/// Becomes kubectl; comes back with an error only.
pub fn run(arguments: Vec<OsString>) -> anyhow::Result<ExitCode> {
    let name = std::iter::once(OsString::from("kubectl oxigress"));
    let plugin = Plugin::parse_from(name.chain(arguments));
    let found = match &plugin.pod {
        Some(pod) => (plugin.namespace.clone(), pod.clone()),
        None => {
            let found = plugin.find().output().context("kubectl: is it on the PATH?")?;
            ensure!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr).trim());
            let pods = String::from_utf8_lossy(&found.stdout).into_owned();
            match pods.lines().next().and_then(|pod| pod.split_once('/')) {
                Some((namespace, pod)) => (Some(namespace.to_owned()), pod.to_owned()),
                None => bail!(
                    "no pod runs with the labels {}: name it with --pod, or other labels with --selector",
                    plugin.selector
                ),
            }
        }
    };
    let (namespace, pod) = found;
    if plugin.command.first().is_some_and(|command| command == "dashboard") {
        eprintln!("the dashboard of pod {pod}: http://{DASHBOARD}/ (until Ctrl-C)");
        let kubectl = plugin.forward(&pod, namespace.as_deref()).exec();
        return Err(kubectl).context("kubectl: is it on the PATH?");
    }
    Err(plugin.exec(&pod, namespace.as_deref()).exec()).context("kubectl: is it on the PATH?")
}
