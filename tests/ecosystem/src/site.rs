//! Oxigress on the API server that all programs share: a namespace, an IngressClass and a controller a program, which listens
//! where a browser looks, on ports 80 and 443.

use anyhow::{Context, Result};
use openssl::base64::encode_block;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::cluster::{Cluster, Tenant};
use oxigress_tests::controller::Controller;
use oxigress_tests::place::Directory;
use std::net::SocketAddr;

pub struct Site {
    pub tenant: Tenant<'static>,
    pub controller: Controller,
}

impl Site {
    /// Starts Oxigress for a tenant of this name, with further flags.
    pub fn start(name: &str, directory: &Directory, flags: &[&str]) -> Result<Self> {
        let cluster = Cluster::shared()?;
        let tenant = cluster.tenant(name)?;
        let mut all = tenant.flags();
        all.extend(["--http-port=80".into(), "--https-port=443".into()]);
        all.extend(flags.iter().map(|flag| tenant.text(flag)));
        let pod = [tenant.namespace.as_str(), "oxigress"];
        let controller = Controller::start_in_pod(cluster, pod, directory, 2, &all)?;
        Ok(Site { tenant, controller })
    }

    /// A Service `name` with port 80 and the EndpointSlice that Kubernetes would make of a Pod at this address.
    pub fn service(&self, name: &str, at: SocketAddr) -> Result<()> {
        let (ip, port) = (at.ip(), at.port());
        self.tenant.apply(&format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{ports: [{{port: 80, targetPort: {port}}}]}}}}\n---\n\
             {{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, \
             metadata: {{name: {name}-pods, labels: {{kubernetes.io/service-name: {name}}}}}, \
             endpoints: [{{addresses: ['{ip}'], conditions: {{ready: true}}}}], ports: [{{name: '', port: {port}}}]}}\n"
        ))
    }

    /// A Secret `name` with a certificate of this host.
    pub fn secret(&self, name: &str, host: &str) -> Result<()> {
        let made = Certificate::new(name, &[host]).context("a certificate")?;
        let (chain, key) = (encode_block(made.chain.as_bytes()), encode_block(made.key.as_bytes()));
        self.tenant.apply(&format!(
            "{{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {{name: {name}}}, \
             data: {{tls.crt: '{chain}', tls.key: '{key}'}}}}\n"
        ))
    }
}
