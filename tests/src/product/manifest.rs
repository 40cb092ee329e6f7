//! Manifests of namespace `default`, for tests that write files by themselves.

use std::fmt::Write;

/// A Service with port 80, and its one endpoint on this machine.
pub fn service(name: &str, port: u16) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default }}\n\
         spec: {{ ports: [{{ name: http, port: 80 }}] }}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}-1, namespace: default, labels: {{ kubernetes.io/service-name: {name} }} }}\n\
         addressType: IPv4\nports: [{{ name: http, port: {port} }}]\n\
         endpoints: [{{ addresses: [\"127.0.0.1\"], conditions: {{ ready: true }} }}]\n"
    )
}

/// A Secret with these fields.
pub fn secret(name: &str, fields: &[(&str, String)]) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: default }}\nstringData:\n"
    );
    for (field, value) in fields {
        let _ = writeln!(text, "  {field}: {value:?}");
    }
    text
}

/// The beginning of an Ingress of ingress-nginx's class, up to its spec.
pub fn ingress_head<V: std::fmt::Debug>(
    name: &str,
    annotations: impl IntoIterator<Item = (impl std::fmt::Display, V)>,
) -> String {
    let mut text = format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  \
         namespace: default\n  annotations:\n    kubernetes.io/ingress.class: nginx\n"
    );
    for (annotation, value) in annotations {
        let _ = writeln!(text, "    nginx.ingress.kubernetes.io/{annotation}: {value:?}");
    }
    text
}
