//! A fake for the kubelet, and for the controller of EndpointSlices, of cert-manager's solver Pods: acmesolver runs as a process
//! while its Pod is there.

use crate::program::Start;
use crate::site::Site;
use anyhow::{Context, Result};
use oxigress_tests::network::pod_address;
use oxigress_tests::place::Directory;
use oxigress_tests::process::Process;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a solver's Pod and Service have.
const LABEL: &str = "/metadata/labels/acme.cert-manager.io~1http01-solver";
/// Where acmesolver listens, on every address.
const PORT: u16 = 8089;

pub struct FakeKubelet<'s> {
    pub site: &'s Site,
    directory: &'s Directory,
    running: BTreeMap<String, Process>,
    pub started: usize,
}

impl<'s> FakeKubelet<'s> {
    pub fn new(site: &'s Site, directory: &'s Directory) -> Self {
        FakeKubelet { site, directory, running: BTreeMap::new(), started: 0 }
    }

    /// Looks at the Pods: starts what is new, ends what is gone.
    pub fn tend(&mut self) -> Result<()> {
        let tenant = &self.site.tenant;
        let (cluster, namespace) = (tenant.cluster, &tenant.namespace);
        let pods = solvers(cluster.list("Pod", namespace)?);
        let services = solvers(cluster.list("Service", namespace)?);
        let gone: Vec<_> =
            self.running.keys().filter(|name| !pods.contains_key(*name)).cloned().collect();
        for name in gone {
            self.running.remove(&name);
            // It has no owner here, and nobody who collects garbage.
            let _ = tenant.delete("EndpointSlice", &name);
        }
        for (name, pod) in &pods {
            // The first challenge's port is taken until its Pod is gone.
            let is_new = self.running.is_empty() && pod["metadata"]["deletionTimestamp"].is_null();
            let Some(service) = services.keys().next().filter(|_| is_new) else { continue };
            self.start(name, pod, service)?;
        }
        Ok(())
    }

    fn start(&mut self, name: &str, pod: &Value, service: &str) -> Result<()> {
        let arguments = pod["spec"]["containers"][0]["args"].as_array().context("arguments")?;
        let arguments = arguments.iter().filter_map(Value::as_str);
        let process = Start::new("acmesolver")?.args(arguments).run(self.directory)?;
        self.running.insert(name.into(), process);
        self.started += 1;
        let (tenant, address) = (&self.site.tenant, pod_address());
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        tenant.cluster.patch("Pod", &tenant.namespace, name, &status)?;
        tenant.apply(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: {name}, labels: {{kubernetes.io/service-name: {service}}}}}, \
             endpoints: [{{addresses: ['{address}'], conditions: {{ready: true}}}}], ports: [{{name: http, port: {PORT}}}]}}\n"
        ))
    }
}

fn solvers(all: Vec<Value>) -> BTreeMap<String, Value> {
    let is_solver = |object: &Value| object.pointer(LABEL).is_some_and(|value| value == "true");
    let named =
        |object: Value| (object["metadata"]["name"].as_str().unwrap_or_default().into(), object);
    all.into_iter().filter(is_solver).map(named).collect()
}
