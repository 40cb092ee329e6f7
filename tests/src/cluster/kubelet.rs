//! A stand-in for the scheduler and the kubelet: the Pods of a cluster run as local processes, and no container anywhere.
//!
//! Shape:   [`StandInKubelet`] assigns every Pod to its one Node, starts a process for it in a network namespace of its own
//!          ([`pod`]), writes the Pod's status, and ends the process with the Pod. [`log`] answers `kubectl logs`.
//! Limits:  all containers are one program, whatever image they name; environment, Secrets and ConfigMaps of the first container
//!          are given to it. There are no probes: a Pod is ready when its process has said its first word.
//! Addresses: 10.245.0.0/16; [`HOST`] is that of the Node, and of all who listen in the test's own namespace.

mod log;
mod pod;

use super::Cluster;
use crate::network;
use crate::place::Directory;
use crate::protocol::Listener;
use crate::wait::runtime;
use anyhow::{Context, Result};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use log::Logs;
use pod::Running;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use tokio::task::JoinHandle;

/// An address of the test's own namespace that Pods reach.
pub const HOST: &str = "10.245.0.1";

const NODE: &str = "stand-in";

/// The Node and its Pods; all end when the value is dropped.
pub struct StandInKubelet {
    task: JoinHandle<()>,
    _logs: Listener,
}

struct Kubelet {
    client: Client,
    folder: PathBuf,
    program: PathBuf,
    logs: Logs,
    /// By uid.
    pods: BTreeMap<String, Running>,
    started: u16,
}

impl StandInKubelet {
    /// Runs `program` for each Pod, with its volumes in `directory`.
    pub fn start(cluster: &Cluster, directory: &Directory, program: PathBuf) -> Result<Self> {
        network::ip(&["addr", "add", &format!("{HOST}/32"), "dev", "lo"])?;
        let logs = Logs::default();
        let listener = logs.serve()?;
        cluster.apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {NODE}}}}}"))?;
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": listener.address.ip()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": listener.address.port()}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "StandIn"}],
        }});
        cluster.patch("Node", "", NODE, &status)?;
        let (client, folder) = (cluster.client()?, directory.join("pods"));
        let kubelet = Kubelet { client, folder, program, logs, pods: BTreeMap::new(), started: 0 };
        Ok(StandInKubelet { task: runtime().spawn(kubelet.run()), _logs: listener })
    }
}

impl Drop for StandInKubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelet {
    async fn run(mut self) {
        let pods = Api::<Pod>::all(self.client.clone());
        let mut events = pin!(watcher::watcher(pods, watcher::Config::default()));
        while let Some(event) = events.next().await {
            let (pod, is_gone) = match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => (pod, false),
                Ok(Event::Delete(pod)) => (pod, true),
                _ => continue,
            };
            if let Err(why) = self.take(&pod, is_gone).await {
                eprintln!("stand-in kubelet: Pod {}: {why:#}", pod.name_any());
            }
        }
    }

    async fn take(&mut self, pod: &Pod, is_gone: bool) -> Result<()> {
        let uid = pod.uid().context("a uid")?;
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
        let pods = Api::<Pod>::namespaced(self.client.clone(), &namespace);
        if is_gone || pod.metadata.deletion_timestamp.is_some() {
            self.pods.remove(&uid);
            if !is_gone {
                let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
                let now = DeleteParams::default().grace_period(0).preconditions(preconditions);
                // It may be gone meanwhile.
                let _ = pods.delete(&name, &now).await;
            }
            return Ok(());
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if node.is_none() {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            });
            let to = PostParams::default();
            let _: Value = pods.create_subresource("binding", &name, &to, &binding).await?;
            return Ok(());
        }
        if node != Some(NODE) || self.pods.contains_key(&uid) {
            return Ok(());
        }
        self.started += 1;
        let files = pod::files(&self.client, pod).await?;
        let volumes = pod::write(&self.folder.join(&uid), files)?;
        let running =
            Running::start(&self.program, self.started, pod, &volumes, &self.logs).await?;
        let status = json!({"status": running.status(pod)});
        self.pods.insert(uid, running);
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}
