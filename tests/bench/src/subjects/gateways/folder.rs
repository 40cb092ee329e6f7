//! The routes from a folder of manifests: what the product takes by itself, without an API server beside it.

use super::{
    ADDED, GATEWAYS, ROUTES, class, gateway, host, load, memory, route, started, tell_added,
};
use crate::bench::Bench;
use crate::manifests::Manifests;
use crate::product::{Oxigress, Requests, edits};
use crate::report::Table;
use crate::sample::Sample;
use anyhow::Result;
use oxigress_tests::endpoint::Endpoint;
use std::fs;
use std::time::Instant;

const OF: &str = ", from a folder";

pub fn measure(bench: &Bench, pod: &Endpoint, table: &mut Table) -> Result<()> {
    let manifests = Manifests::new(&bench.directory.join("gateways"))?;
    let gateways: String = (0..GATEWAYS).map(|number| gateway(number, pod)).collect();
    manifests.write("gateways", &(class() + &gateways))?;
    for number in 0..ROUTES {
        write(&manifests, number, 0)?;
    }
    let source = [
        format!("--manifests={}", manifests.folder().display()),
        "--gateway-api".into(),
        "--zone-size=128m".into(),
    ];
    let mut oxigress = Oxigress::start(bench, &source, "gateways-folder")?;
    let mut requests = started(table, OF, &oxigress)?;
    memory(table, OF, &oxigress)?;
    tell_added(table, OF, &additions(&manifests, &mut requests)?);
    let change = |number, turn| write(&manifests, number, turn);
    load::under_changes(&change, OF, &oxigress, &mut requests, table)?;
    oxigress.stop()
}

/// Writes the file of a route, in place as an editor does.
fn write(manifests: &Manifests, number: usize, turn: usize) -> Result<()> {
    let text = serde_json::to_string(&route(number, turn))?;
    manifests.write(&format!("app-{number}"), &text).map(drop)
}

/// Adds routes one at a time, each of which goes before the next comes.
fn additions(manifests: &Manifests, requests: &mut Requests) -> Result<Sample> {
    edits(ADDED, |turn| {
        let number = ROUTES + turn;
        // Nothing is new then but the route.
        requests.until(&host(number), "/", |answer| answer.status == 404)?;
        let start = Instant::now();
        write(manifests, number, 0)?;
        requests.until(&host(number), "/", |answer| answer.status == 200)?;
        let took = start.elapsed();
        fs::remove_file(manifests.folder().join(format!("app-{number}.yaml")))?;
        requests.until(&host(number), "/", |answer| answer.status == 404)?;
        Ok(took)
    })
}
