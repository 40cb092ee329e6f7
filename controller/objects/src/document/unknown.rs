//! What a manifest says that no field takes: misspelt fields, and versions of an API that are gone.
//!
//! Source:  Kubernetes' deprecation guide: Ingress and IngressClass of v1beta1 ended with 1.22, EndpointSlice of
//!          v1beta1 with 1.25.

use serde_ignored::Path;

/// Fields that manifests misspell, and the likely ones that they are mistaken for.
const KNOWN: [&str; 30] = [
    "annotations",
    "apiVersion",
    "backend",
    "controller",
    "data",
    "defaultBackend",
    "externalName",
    "host",
    "hosts",
    "http",
    "ingressClassName",
    "kind",
    "labels",
    "metadata",
    "name",
    "namespace",
    "number",
    "parameters",
    "path",
    "paths",
    "pathType",
    "port",
    "ports",
    "rules",
    "secretName",
    "selector",
    "service",
    "spec",
    "stringData",
    "targetPort",
];

/// What there is to say about a field that the object's type does not have.
pub fn describe(path: &Path<'_>) -> String {
    let mut text = String::new();
    write_path(path, &mut text);
    let name = text.rsplit('.').next().unwrap_or_default().to_owned();
    let remedy = match (&*name, nearest(&name)) {
        ("serviceName" | "servicePort", _) => {
            "it is of v1beta1: write backend.service.name and backend.service.port".into()
        }
        (_, Some(nearest)) => format!("did you mean {nearest}?"),
        (_, None) => "remove it".into(),
    };
    format!("{text}: the field is unknown and ignored: {remedy}")
}

fn nearest(name: &str) -> Option<&'static str> {
    // As clap does for words of the command line.
    const ALIKE: f64 = 0.85;
    let near = KNOWN.iter().map(|known| (strsim::jaro_winkler(known, name), *known));
    let (alike, nearest) = near.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (alike > ALIKE).then_some(nearest)
}

/// As Kubernetes writes it: `spec.rules[0].http`.
fn write_path(path: &Path<'_>, text: &mut String) {
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            write_path(parent, text);
            text.push_str(&format!("[{index}]"));
        }
        Path::Map { parent, key } => {
            write_path(parent, text);
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(key);
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => write_path(parent, text),
    }
}

/// What to do about an object of a version that API servers no longer have; none: it is of another kind.
pub fn gone(version: &str, kind: &str) -> Option<&'static str> {
    match (version, kind) {
        ("extensions/v1beta1" | "networking.k8s.io/v1beta1", "Ingress") => Some(
            "is gone since Kubernetes 1.22: write apiVersion networking.k8s.io/v1, a pathType for each path, and \
             service.name and service.port.number in place of serviceName and servicePort",
        ),
        ("networking.k8s.io/v1beta1", "IngressClass") => {
            Some("is gone since Kubernetes 1.22: write apiVersion networking.k8s.io/v1")
        }
        ("discovery.k8s.io/v1beta1", "EndpointSlice") => {
            Some("is gone since Kubernetes 1.25: write apiVersion discovery.k8s.io/v1")
        }
        _ => None,
    }
}
