//! Replicas of the controller role, what surrounds them, and the judge of what they write.

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use oxigress_tests::client::{Address, Request, send};
use oxigress_tests::cluster::{Cluster, Tenant};
use oxigress_tests::dist;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::Process;
use oxigress_tests::prometheus::Page;
use oxigress_tests::wait::{block_on, runtime, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long the Lease is valid, which is `--election-ttl`.
pub const TTL: Duration = Duration::from_secs(8);

/// What a replica may do anywhere: apiGroup, resources, verbs.
pub const RULES: [&str; 7] = [
    "{apiGroups: [''], resources: [configmaps, secrets, services], verbs: [get, list, watch]}",
    "{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}",
    "{apiGroups: [networking.k8s.io], resources: [ingresses, ingressclasses], verbs: [list, watch]}",
    "{apiGroups: [networking.k8s.io], resources: [ingresses/status], verbs: [patch]}",
    "{apiGroups: [''], resources: [events], verbs: [create, patch]}",
    "{apiGroups: [''], resources: [nodes], verbs: [get]}",
    "{apiGroups: [''], resources: [namespaces], verbs: [list, watch]}",
];
/// And in its own namespace.
pub const OWN_RULES: [&str; 3] = [
    "{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}",
    "{apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [ingress-controller-leader], verbs: [get, update]}",
    "{apiGroups: [''], resources: [pods], verbs: [get, list, watch]}",
];

/// A tenant with rights for its replicas.
pub struct Site<'c> {
    pub tenant: Tenant<'c>,
    user: String,
}

/// The controller role of one pod.
pub struct Replica {
    pub name: String,
    pub process: Process,
    health_port: u16,
}

impl<'c> Site<'c> {
    pub fn new(cluster: &'c Cluster, name: &str) -> Result<Self> {
        let tenant = cluster.tenant(name)?;
        let user = format!("system:serviceaccount:{}:oxigress", tenant.namespace);
        let binding = |kind: &str| {
            format!(
                "{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}Binding, metadata: {{name: status-$NAMESPACE}}, \
                 roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: status-$NAMESPACE}}, \
                 subjects: [{{kind: ServiceAccount, name: oxigress, namespace: $NAMESPACE}}]}}\n---\n"
            )
        };
        for (kind, rules) in [("ClusterRole", &RULES[..]), ("Role", &OWN_RULES)] {
            tenant.apply(&format!(
                "{}{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: status-$NAMESPACE}}, \
                 rules: [{}]}}\n",
                binding(kind),
                rules.join(", ")
            ))?;
        }
        Ok(Site { tenant, user })
    }

    pub fn replica(&self, directory: &Directory, name: &str, flags: &[&str]) -> Result<Replica> {
        let health_port = free_port()?;
        let groups = ["system:serviceaccounts"];
        let kubeconfig = self.tenant.cluster.kubeconfig_of(&self.user, &groups)?;
        let mut command = Command::new(dist::oxigress()?);
        command
            .arg("controller")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--runtime-dir={}", directory.join(format!("run-{name}")).display()))
            .arg(format!("--healthz-port={health_port}"))
            .arg(format!("--election-ttl={}s", TTL.as_secs()))
            .arg("--enable-metrics")
            .args(self.tenant.flags())
            .args(flags.iter().map(|flag| self.tenant.text(flag)))
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", &self.tenant.namespace);
        let output = directory.join(format!("output-{name}"));
        let process = Process::start("oxigress", &mut command, &output)?;
        Ok(Replica { name: name.into(), process, health_port })
    }

    pub fn holder(&self) -> Result<String> {
        let name = "ingress-controller-leader";
        let lease = self.tenant.cluster.get("Lease", &self.tenant.namespace, name)?;
        Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    /// The one of them that holds it.
    pub fn leader<'r>(&self, replicas: &'r mut [Replica]) -> Result<&'r mut Replica> {
        let index = until("a leader", || {
            let holder = self.holder()?;
            let mut all = replicas.iter();
            all.position(|replica| replica.name == holder)
                .with_context(|| format!("held by {holder:?}"))
        })?;
        replicas.get_mut(index).context("a leader")
    }

    /// Reads the addresses in an Ingress's status, each as `hostname|ip`.
    pub fn status(&self, name: &str) -> Result<Vec<String>> {
        let ingress = self.tenant.cluster.get("Ingress", &self.tenant.namespace, name)?;
        Ok(texts(&ingress))
    }

    /// Waits until every Ingress of the class has these, in this order.
    pub fn statuses(&self, expected: &[&str]) -> Result<()> {
        until("the status of every Ingress", || {
            for ingress in self.tenant.cluster.list("Ingress", &self.tenant.namespace)? {
                let is_ours = ingress["spec"]["ingressClassName"] == self.tenant.class.as_str();
                let name = ingress["metadata"]["name"].as_str().unwrap_or_default();
                ensure!(!is_ours || texts(&ingress) == expected, "{name}: {:?}", texts(&ingress));
            }
            Ok(())
        })
    }

    /// A Service of type LoadBalancer with this address.
    pub fn load_balancer(&self, ip: &str) -> Result<()> {
        let (cluster, namespace) = (self.tenant.cluster, &self.tenant.namespace);
        if cluster.get("Service", namespace, "lb")?.is_null() {
            self.tenant.apply(
                "{apiVersion: v1, kind: Service, metadata: {name: lb}, \
                 spec: {type: LoadBalancer, ports: [{port: 80}]}}",
            )?;
        }
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
        cluster.patch("Service", namespace, "lb", &status)
    }

    /// A Node as a kubelet would write it.
    pub fn node(&self, name: &str, addresses: &[(&str, &str)]) -> Result<()> {
        let name = format!("{}-{name}", self.tenant.namespace);
        self.tenant
            .apply(&format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}"))?;
        let addresses: Vec<_> = addresses
            .iter()
            .map(|(kind, address)| json!({"type": kind, "address": address}))
            .collect();
        self.tenant.cluster.patch("Node", "", &name, &json!({"status": {"addresses": addresses}}))
    }

    /// A Pod of this program on such a Node.
    pub fn pod(&self, name: &str, node: &str, is_ready: bool) -> Result<()> {
        // As a Deployment labels them while one version replaces another.
        self.tenant.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: oxigress, pod-template-hash: h-{name}}}}}, \
             spec: {{nodeName: $NAMESPACE-{node}, containers: [{{name: oxigress, image: oxigress}}]}}}}"
        ))?;
        self.set_ready(name, is_ready)
    }

    pub fn set_ready(&self, pod: &str, is_ready: bool) -> Result<()> {
        let ready = if is_ready { "True" } else { "False" };
        let status =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        let status = json!({"status": status});
        self.tenant.cluster.patch("Pod", &self.tenant.namespace, pod, &status)
    }
}

fn texts(ingress: &Value) -> Vec<String> {
    let entries = ingress["status"]["loadBalancer"]["ingress"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |entry: &Value| format!("{}|{}", text(&entry["hostname"]), text(&entry["ip"]));
    entries.into_iter().flatten().map(entry).collect()
}

impl Replica {
    pub fn kill(&mut self) -> Result<()> {
        self.process.stop(Signal::KILL)?;
        Ok(())
    }

    pub fn stop(&mut self) -> Result<()> {
        let status = self.process.stop(Signal::TERM)?;
        ensure!(status.success(), "{} ended with {status}", self.name);
        Ok(())
    }

    /// Reads the replica's metric of leadership: 1 for the leader.
    pub fn leads(&self) -> Result<f64> {
        let address = Address::http(self.health_port);
        let answer = block_on(send(&address, &Request::get("localhost", "/metrics")))?;
        let page = Page::parse(&String::from_utf8_lossy(&answer.body))?;
        let name = "nginx_ingress_controller_leader_election_status";
        let labels =
            [("name", "ingress-controller-leader"), ("controller_pod", self.name.as_str())];
        match page.sum(name, &labels) {
            (value, 1) => Ok(value),
            (_, series) => bail!("{series} series of {name}"),
        }
    }
}

type Versions = Arc<Mutex<BTreeMap<String, Vec<Vec<String>>>>>;

/// Watches every version of every Ingress and says whether its status was ever wrong: what nobody wanted, or what was
/// wanted before what it said already.
pub struct Judge {
    versions: Versions,
    /// In order; the first is no address.
    wanted: Mutex<Vec<Vec<String>>>,
    watch: JoinHandle<Result<()>>,
}

impl Judge {
    pub fn watch(site: &Site, first: &[&str]) -> Result<Self> {
        let api: Api<Ingress> =
            Api::namespaced(site.tenant.cluster.client()?, &site.tenant.namespace);
        let list = block_on(api.list(&ListParams::default()))?;
        ensure!(list.items.is_empty(), "there are Ingresses that nobody watched");
        let start = list.metadata.resource_version.unwrap_or_default();
        let versions = Versions::default();
        let watch = runtime().spawn(follow(api, start, versions.clone()));
        let judge = Judge { versions, wanted: Mutex::new(vec![Vec::new()]), watch };
        judge.expect(first);
        Ok(judge)
    }

    /// From now on this is wanted.
    pub fn expect(&self, addresses: &[&str]) {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).push(addresses);
    }

    /// How many versions there were, if none was wrong.
    pub fn verdict(&self) -> Result<usize> {
        ensure!(!self.watch.is_finished(), "the watch ended: versions were missed");
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, versions) in all.iter() {
            let mut last = 0;
            for version in versions {
                let index = wanted.iter().position(|wanted| wanted == version);
                let index = index.with_context(|| format!("{name}: {version:?}: {versions:?}"))?;
                ensure!(index >= last, "{name} went back to {version:?}: {versions:?}");
                last = index;
            }
        }
        let count = all.values().map(Vec::len).sum();
        ensure!(count > 0, "no version was seen");
        Ok(count)
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Ends when the watch does not tell every version any more.
async fn follow(api: Api<Ingress>, mut version: String, versions: Versions) -> Result<()> {
    loop {
        let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
        while let Some(event) = events.next().await {
            let ingress = match event? {
                WatchEvent::Added(ingress) | WatchEvent::Modified(ingress) => ingress,
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Deleted(_) => continue,
                WatchEvent::Error(error) => bail!("{error:?}"),
            };
            version = ingress.metadata.resource_version.clone().unwrap_or_default();
            let name = ingress.metadata.name.clone().unwrap_or_default();
            let status = texts(&serde_json::to_value(&ingress)?);
            versions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(name)
                .or_default()
                .push(status);
        }
    }
}
