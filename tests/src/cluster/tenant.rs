//! A test's own part of a cluster that others use as well.

use super::Cluster;
use crate::certificate::Certificate;
use crate::client::{self, Address, Request};
use crate::controller::Controller;
use crate::endpoint::{Behaviour, Endpoint};
use crate::network::{pod_address, pod_address_v6};
use crate::wait::{self, block_on};
use anyhow::{Result, ensure};
use openssl::base64;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// A namespace and an IngressClass.
pub struct Tenant<'c> {
    pub cluster: &'c Cluster,
    pub namespace: String,
    /// Its IngressClass, whose controller is `oxigress.test/CLASS`.
    pub class: String,
    settled: Cell<u32>,
}

impl Cluster {
    /// A namespace `NAME-n` and an IngressClass of the same name.
    pub fn tenant(&self, name: &str) -> Result<Tenant<'_>> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let tenant =
            Tenant { cluster: self, namespace: name.clone(), class: name, settled: Cell::new(0) };
        tenant.apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: $NAMESPACE}}\n---\n\
             {apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: $CLASS}, \
             spec: {controller: oxigress.test/$CLASS}}\n",
        )?;
        Ok(tenant)
    }
}

impl Tenant<'_> {
    /// Flags of a controller that serves this class and no other.
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--ingress-class={}", self.class),
            format!("--controller-class=oxigress.test/{}", self.class),
        ]
    }

    /// Has the API server ask a webhook at this port of the machine about Ingresses of the own namespace, and of no other;
    /// without its answer they are not stored.
    pub fn have_reviewed(&self, pair: &Certificate, port: u16) -> Result<()> {
        let authority = base64::encode_block(pair.chain.as_bytes());
        self.apply(&format!(
            "{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {{name: $NAMESPACE}}, \
             webhooks: [{{name: ingresses.oxigress.test, failurePolicy: Fail, sideEffects: None, admissionReviewVersions: [v1], \
             matchPolicy: Equivalent, timeoutSeconds: 10, \
             namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: $NAMESPACE}}}}, \
             clientConfig: {{url: 'https://localhost:{port}/networking/v1/ingresses', caBundle: {authority}}}, \
             rules: [{{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}}]}}]}}\n"
        ))
    }

    /// As [`Cluster::apply`], in the own namespace; `$NAMESPACE` and `$CLASS` stand for their names.
    pub fn apply(&self, yaml: &str) -> Result<()> {
        self.cluster.apply_in(&self.namespace, &self.text(yaml))
    }

    /// Manifests with the tenant's names in them.
    pub fn text(&self, yaml: &str) -> String {
        yaml.replace("$NAMESPACE", &self.namespace).replace("$CLASS", &self.class)
    }

    /// Deletes an object of the own namespace.
    pub fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.cluster.delete(kind, &self.namespace, name)
    }

    /// A local process at an address of a pod, on any port.
    pub fn pod(&self, name: &str) -> Result<Endpoint> {
        Endpoint::with(name, Behaviour::Ok, pod_address().into())
    }

    /// The same at an IPv6 address.
    pub fn pod_v6(&self, name: &str) -> Result<Endpoint> {
        Endpoint::with(name, Behaviour::Ok, pod_address_v6().into())
    }

    /// A Service `name` with port 80, and the EndpointSlice that Kubernetes would make of these pods.
    pub fn service(&self, name: &str, pods: &[&Endpoint]) -> Result<()> {
        self.apply(&service(name, pods))
    }

    /// Returns when the controller serves the Ingresses, Services and EndpointSlices as they are now. It reads each kind in the
    /// order of its changes: an Ingress that answers from its new endpoint says that it has read all before.
    pub fn settle(&self, controller: &Controller) -> Result<()> {
        let number = self.settled.get() + 1;
        self.settled.set(number);
        let (host, pod) = (format!("settled-{number}.test"), self.pod("settled")?);
        self.service("settled", &[&pod])?;
        self.apply(&ingress("settled", &host, "settled"))?;
        let address = Address::http(controller.http_port);
        wait::until("the objects to be served", || {
            let answer = block_on(client::send(&address, &Request::get(&host, "/")))?;
            ensure!(answer.endpoint().is_some() && pod.requests() > 0, "{host}: {}", answer.status);
            Ok(())
        })
    }
}

/// An Ingress of the tenant's class: all of a host to a Service's port 80.
pub fn ingress(name: &str, host: &str, service: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}}}, \
         spec: {{ingressClassName: $CLASS, rules: [{{host: '{host}', http: {{paths: [{{path: /, pathType: Prefix, \
         backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}]}}}}]}}}}\n"
    )
}

/// The manifests of [`Tenant::service`]; a slice a family and port.
pub fn service(name: &str, pods: &[&Endpoint]) -> String {
    let mut text = format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80, targetPort: 80}}]}}}}\n"
    );
    for (index, pod) in pods.iter().enumerate() {
        let family = if pod.address.is_ipv6() { "IPv6" } else { "IPv4" };
        let (ip, port) = (pod.address.ip(), pod.address.port());
        text += &format!(
            "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: {family}, \
             metadata: {{name: {name}-{index}, labels: {{kubernetes.io/service-name: {name}}}}}, \
             endpoints: [{{addresses: ['{ip}'], conditions: {{ready: true}}}}], ports: [{{name: '', port: {port}}}]}}\n"
        );
    }
    text
}
