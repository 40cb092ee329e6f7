//! What nginx has, by `GET` on the configuration endpoint, as ingress-nginx's `dbg` prints it.

use super::Which;
use anyhow::{Context, anyhow, bail};
use oxigress_net::socket;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How long nginx may take to answer: a large configuration takes some hundred milliseconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The body of an answer with status 200.
pub async fn get(socket: &Path, target: &str) -> anyhow::Result<Vec<u8>> {
    let answer = tokio::time::timeout(TIMEOUT, socket::get(socket, target)).await;
    let answer = answer.with_context(|| format!("nginx does not answer within {TIMEOUT:?}"))?;
    let body = answer.map_err(|error| match error.is::<socket::Refusal>() {
        // It runs.
        true => error,
        false => anyhow!(
            "cannot connect to nginx at {}: {error:#}: check that oxigress runs with this --runtime-dir, as this user",
            socket.display()
        ),
    })?;
    Ok(body.to_vec())
}

async fn get_json(socket: &Path, target: &str) -> anyhow::Result<Value> {
    serde_json::from_slice(&get(socket, target).await?).context("nginx's answer is no JSON")
}

fn pretty(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn name(backend: &Value) -> &str {
    backend.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Reads the backends in ingress-nginx's format from nginx.
pub async fn backends(socket: &Path, which: Which) -> anyhow::Result<String> {
    let all = get_json(socket, "/configuration/backends").await?;
    let list = all.as_array().map(Vec::as_slice).unwrap_or_default();
    match which {
        Which::List => Ok(list.iter().map(|backend| format!("{}\n", name(backend))).collect()),
        Which::All => pretty(&all),
        Which::Get { name: wanted } => match list.iter().find(|backend| name(backend) == wanted) {
            Some(backend) => pretty(backend),
            None => bail!("no backend {wanted:?}: `backends list` prints the names"),
        },
    }
}

/// Facts about the certificate that stands under exactly this name.
pub async fn certificate(socket: &Path, host: &str) -> anyhow::Result<String> {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._*".contains(&b);
    if host.is_empty() || !host.bytes().all(is_name) {
        bail!("{host:?} is no host: write a name, or a wildcard such as *.example.com");
    }
    let target = format!("/configuration/certs?hostname={host}");
    let found = get_json(socket, &target).await.map_err(|error| {
        let refusal = error.downcast_ref::<socket::Refusal>();
        match refusal.is_some_and(|refusal| refusal.0 == http::StatusCode::NOT_FOUND) {
            true => anyhow::anyhow!(
                "{host} has no certificate of its own: clients get that of a wildcard or the default one"
            ),
            false => error,
        }
    })?;
    pretty(&found)
}

/// What was posted, byte for byte.
pub async fn general(socket: &Path) -> anyhow::Result<String> {
    let body = get(socket, "/configuration/general").await?;
    Ok(String::from_utf8_lossy(&body).into_owned() + "\n")
}

/// nginx.conf as the nginx role wrote it last.
pub fn conf(runtime_dir: &Path) -> anyhow::Result<String> {
    let file = runtime_dir.join("nginx.conf");
    std::fs::read_to_string(&file).map_err(|error| {
        anyhow!(
            "cannot read {}: {error}: check that oxigress runs with this --runtime-dir, as this user",
            file.display()
        )
    })
}
