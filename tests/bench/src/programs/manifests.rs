//! A folder of manifests: one Ingress, Service and EndpointSlice a file.

use anyhow::Result;
use oxigress_tests::certificate::Certificate;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The folder that a controller watches.
pub struct Manifests {
    folder: PathBuf,
}

impl Manifests {
    /// A new folder with a class.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let manifests = Manifests { folder: folder.into() };
        manifests.write(
            "class",
            "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: { name: nginx }\n\
             spec: { controller: k8s.io/ingress-nginx }\n",
        )?;
        Ok(manifests)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file in place, as an editor does; answers when it was closed.
    pub fn write(&self, name: &str, text: &str) -> Result<Instant> {
        let mut file = File::create(self.folder.join(format!("{name}.yaml")))?;
        file.write_all(text.as_bytes())?;
        drop(file);
        Ok(Instant::now())
    }

    /// App `number` as one file, served under `paths` of its host by an endpoint on this port.
    pub fn app(&self, number: usize, port: u16, paths: &[&str]) -> Result<Instant> {
        let name = format!("app-{number}");
        let text = [ingress(&name, &host(number), paths, None), service(&name), slice(&name, port)];
        self.write(&name, &text.join("---\n"))
    }
}

/// The host of app `number`.
pub fn host(number: usize) -> String {
    format!("app-{number}.bench.test")
}

/// An Ingress of a Service of the same name.
pub fn ingress(name: &str, host: &str, paths: &[&str], secret: Option<&str>) -> String {
    let paths: String = paths
        .iter()
        .map(|path| {
            format!(
                "      - path: {path}\n        pathType: Prefix\n        \
                 backend: {{ service: {{ name: {name}, port: {{ number: 80 }} }} }}\n"
            )
        })
        .collect();
    let tls = secret
        .map(|secret| format!("  tls:\n  - {{ hosts: [{host}], secretName: {secret} }}\n"))
        .unwrap_or_default();
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: {name}, namespace: bench }}\nspec:\n  ingressClassName: nginx\n{tls}  rules:\n  \
         - host: {host}\n    http:\n      paths:\n{paths}"
    )
}

/// A Service with one port.
pub fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: bench }}\n\
         spec: {{ ports: [ {{ name: http, port: 80 }} ] }}\n"
    )
}

/// The endpoint of a Service.
pub fn slice(name: &str, port: u16) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata:\n  name: {name}-1\n  namespace: bench\n  labels: {{ kubernetes.io/service-name: {name} }}\n\
         addressType: IPv4\nports: [ {{ name: http, port: {port} }} ]\n\
         endpoints: [ {{ addresses: [127.0.0.1], conditions: {{ ready: true }} }} ]\n"
    )
}

pub fn secret(name: &str, certificate: &Certificate) -> String {
    let indent = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: bench }}\n\
         type: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indent(&certificate.chain),
        indent(&certificate.key)
    )
}
