//! Objects of the Gateway API as values, and as text.

use anyhow::Context;
use oxigress_objects::Key;
use oxigress_objects::gateway::{GROUP, POLICY_GROUP};
use serde_json::{Map, Value, json};

/// Stands above the first route of another namespace than the owner of its hosts.
const GUESTS: &str = "# Routes of other namespaces than the owners of their hosts\n";

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

/// A Policy of these fields.
pub fn policy(key: &Key, fields: Map<String, Value>) -> Value {
    object(&format!("{POLICY_GROUP}/v1alpha1"), "Policy", key, fields.into())
}

/// The filter that names a Policy.
pub fn policy_filter(name: &str) -> Value {
    json!({"type": "ExtensionRef",
        "extensionRef": {"group": POLICY_GROUP, "kind": "Policy", "name": name}})
}

/// What is printed, in this order.
#[derive(Debug)]
pub struct Objects {
    /// All but these:
    pub all: Vec<Value>,
    /// Routes of other namespaces than those that own their hosts, which must not be older than the owners'.
    pub guests: Vec<Value>,
}

impl Objects {
    /// One document for each.
    pub fn yaml(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        for (place, object) in self.all.iter().chain(&self.guests).enumerate() {
            if !text.is_empty() {
                text.push_str("---\n");
            }
            if place == self.all.len() {
                text.push_str(GUESTS);
            }
            let one = serde_saphyr::to_string(object);
            text.push_str(&one.with_context(|| format!("YAML of {}", object["kind"]))?);
        }
        Ok(text)
    }
}
