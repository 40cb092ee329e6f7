//! Kubeconfigs: users are known to the API server by certificates of one authority.

use crate::certificate::{Issued, add_groups, params};
use anyhow::Result;
use openssl::base64::encode_block;
use serde_json::{Value, json};

/// A user of these groups: Kubernetes reads the common name and the organisations.
pub fn user(name: &str, groups: &[&str], authority: &Issued) -> Result<Issued> {
    let mut params = params(name, &[], 0..2)?;
    add_groups(&mut params, groups)?;
    Issued::new(params, Some(authority))
}

/// A kubeconfig of this user; JSON is YAML, too.
pub fn kubeconfig(server: &str, authority: &Issued, user: &Issued) -> Result<Value> {
    let named = |key: &str, value: Value| json!([{"name": "test", key: value}]);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", json!({
            "server": server,
            "certificate-authority-data": encode_block(authority.pem.as_bytes()),
        })),
        "users": named("user", json!({
            "client-certificate-data": encode_block(user.pem.as_bytes()),
            "client-key-data": encode_block(user.key.pem()?.as_bytes()),
        })),
        "contexts": named("context", json!({"cluster": "test", "user": "test"})),
        "current-context": "test",
    }))
}
