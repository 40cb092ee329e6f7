//! Objects of the Gateway API as values, and as text.

use anyhow::Context;
use oxigress_objects::Key;
use oxigress_objects::gateway::{GROUP, POLICY_GROUP};
use serde_json::{Map, Value, json};

fn object(version: &str, kind: &str, key: &Key, spec: Value) -> Value {
    let mut metadata = json!({"name": key.name.as_str()});
    if !key.namespace.is_empty() {
        metadata["namespace"] = json!(key.namespace.as_str());
    }
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// An object of the Gateway API.
pub fn of_api(kind: &str, key: &Key, spec: Value) -> Value {
    object(&format!("{GROUP}/v1"), kind, key, spec)
}

/// A ReferenceGrant, which is older than the others.
pub fn grant(key: &Key, spec: Value) -> Value {
    object(&format!("{GROUP}/v1beta1"), "ReferenceGrant", key, spec)
}

/// A Policy of these fields.
pub fn policy(key: &Key, fields: Map<String, Value>) -> Value {
    object(&format!("{POLICY_GROUP}/v1alpha1"), "Policy", key, fields.into())
}

/// The filter that names a Policy.
pub fn policy_filter(name: &str) -> Value {
    json!({"type": "ExtensionRef",
        "extensionRef": {"group": POLICY_GROUP, "kind": "Policy", "name": name}})
}

/// One document for each.
pub fn yaml(objects: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        let one = serde_saphyr::to_string(object);
        text.push_str(&one.with_context(|| format!("YAML of {}", object["kind"]))?);
    }
    Ok(text)
}
