//! Connections to known workers.

use crate::client::{Address, Connection, Request};
use crate::wait::DEADLINE;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::Instant;

/// Opens connections until each worker has `each`, and drops the surplus. The answers to `request` name their
/// worker in `X-Worker`, as the nginx.conf of [`crate::site`] has it.
pub async fn pinned(
    address: &Address,
    request: &Request,
    workers: &[u32],
    each: usize,
) -> Result<BTreeMap<u32, Vec<Connection>>> {
    let mut found: BTreeMap<u32, Vec<Connection>> =
        workers.iter().map(|pid| (*pid, Vec::new())).collect();
    let start = Instant::now();
    while found.values().any(|connections| connections.len() < each) {
        if start.elapsed() > DEADLINE {
            let counts: Vec<_> = found.iter().map(|(pid, all)| (pid, all.len())).collect();
            bail!("no connection to some workers in {DEADLINE:?}: {counts:?}");
        }
        let mut connection = Connection::open(address).await?;
        let response = connection.send(request).await?;
        let pid = response.header("x-worker").context("no X-Worker")?.parse()?;
        // A worker that has just died or come is not asked for.
        if let Some(connections) = found.get_mut(&pid)
            && connections.len() < each
        {
            connections.push(connection);
        }
    }
    Ok(found)
}
