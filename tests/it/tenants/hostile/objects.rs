//! Manifests, as values.

use openssl::base64;
use serde_json::{Value, json};
use std::net::SocketAddr;

use crate::kubernetes::gateway::GROUP;

const PREFIX: &str = "nginx.ingress.kubernetes.io";

/// An Ingress that is put together.
#[derive(Clone)]
pub struct Ingress(Value);

impl Ingress {
    /// Makes an Ingress without rules.
    pub fn new(class: &str, name: &str) -> Self {
        Ingress(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "annotations": {}},
            "spec": {"ingressClassName": class},
        }))
    }

    /// A rule of this host, without paths yet; "" is every host.
    pub fn host(mut self, host: &str) -> Self {
        let mut rule = json!({"http": {"paths": []}});
        if !host.is_empty() {
            rule["host"] = json!(host);
        }
        push(&mut self.0["spec"]["rules"], rule);
        self
    }

    /// A path of the last rule, to a Service's port 80.
    pub fn path(mut self, path: &str, kind: &str, service: &str) -> Self {
        let path = json!({"path": path, "pathType": kind, "backend": backend(service)});
        if let Some(rule) =
            self.0["spec"]["rules"].as_array_mut().and_then(|rules| rules.last_mut())
        {
            push(&mut rule["http"]["paths"], path);
        }
        self
    }

    /// An annotation, without its prefix.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][format!("{PREFIX}/{name}")] = json!(value);
        self
    }

    pub fn tls(mut self, hosts: &[&str], secret: &str) -> Self {
        push(&mut self.0["spec"]["tls"], json!({"hosts": hosts, "secretName": secret}));
        self
    }

    /// Sets the backend of requests that no rule matches.
    pub fn default_backend(mut self, service: &str) -> Self {
        self.0["spec"]["defaultBackend"] = backend(service);
        self
    }

    pub fn object(self) -> Value {
        self.0
    }
}

fn backend(service: &str) -> Value {
    json!({"service": {"name": service, "port": {"number": 80}}})
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

/// An HTTPRoute of these hosts on the Gateway `web` of a namespace.
pub fn route(name: &str, gateway: &str, hosts: &[&str], rules: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HTTPRoute", "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "web", "namespace": gateway}], "hostnames": hosts, "rules": rules,
        },
    })
}

/// A rule of a route, to a Service's port 80.
pub fn rule(matches: Value, service: &str) -> Value {
    json!({"matches": matches, "backendRefs": [{"name": service, "port": 80}]})
}

/// A Service with port 80.
pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80, "targetPort": 80}]},
    })
}

/// A Service that is another name.
pub fn external(name: &str, to: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "ExternalName", "externalName": to, "ports": [{"port": 80, "targetPort": port}]},
    })
}

/// An EndpointSlice of a Service; its endpoints are of one family and port.
pub fn slice(name: &str, service: &str, endpoints: &[SocketAddr]) -> Value {
    let first = endpoints.first();
    let endpoints: Vec<_> = endpoints
        .iter()
        .map(|at| json!({"addresses": [at.ip()], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "addressType": if first.is_some_and(SocketAddr::is_ipv6) { "IPv6" } else { "IPv4" },
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints,
        "ports": [{"name": "", "port": first.map(SocketAddr::port)}],
    })
}

/// A Service with one endpoint.
pub fn served(name: &str, at: SocketAddr) -> [Value; 2] {
    [service(name), slice(&format!("{name}-0"), name, &[at])]
}

/// A Secret of these fields; one of type `kubernetes.io/tls` if they are a certificate and a key.
pub fn secret(name: &str, fields: &[(&str, &str)]) -> Value {
    let is_pair = ["tls.crt", "tls.key"].iter().all(|n| fields.iter().any(|(field, _)| field == n));
    let data: serde_json::Map<_, _> = fields
        .iter()
        .map(|(name, text)| ((*name).to_owned(), json!(base64::encode_block(text.as_bytes()))))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "type": if is_pair { "kubernetes.io/tls" } else { "Opaque" }, "data": data,
    })
}

pub fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}
