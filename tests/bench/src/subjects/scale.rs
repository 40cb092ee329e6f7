//! Whether a request and a change cost the same at any number of backends.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::instructions::{REQUESTS, WARM_UP, start_text};
use crate::report::{Table, percent, thousands};
use crate::snapshot::{self, HOST};
use anyhow::Result;
use oxigress_core::wire::native::{Patch, Upsert};
use oxigress_tests::place::free_port;
use std::time::Instant;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const STEP: usize = 500;
const ENDPOINTS: usize = 2;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let mut first = None;
    for size in SIZES {
        let name = format!("scale-{size}");
        let folder = bench.directory.join(&name);
        let ports = Ports { http: free_port()?, https: 0 };
        let text = Route::Router
            .text(bench, &folder, ports, "master_process off;")?
            .replace("ingress_zone ingress 128m;", "ingress_zone ingress 512m;");
        let mut callgrind = start_text(bench, &folder, &text, ports)?;
        let mut configuration = Configuration::open(&folder.join("configuration.sock"))?;
        let snapshot = snapshot::hosts(1, ENDPOINTS, &bench.endpoints, 0)?;
        configuration.put(&snapshot::whole(snapshot)?)?;
        let begun = Instant::now();
        let mut longest = begun.elapsed();
        for from in (1..size).step_by(STEP) {
            let body = hosts(from, size.min(from + STEP))?;
            let start = Instant::now();
            configuration.patch(&body)?;
            longest = longest.max(start.elapsed());
        }
        let used = configuration.used_bytes()?;
        let mut client = Client::tcp(ports.http)?;
        let mut send = |count: usize| -> Result<()> {
            (0..count).try_for_each(|_| client.get_ok(HOST, "/some/path?and=query").map(drop))
        };
        callgrind.begin()?;
        send(WARM_UP)?;
        let request = callgrind
            .count(&bench.profiles.join(format!("{name}.callgrind")), || send(REQUESTS))?
            as f64
            / REQUESTS as f64;
        let deltas = (0..DELTAS)
            .map(|n| {
                snapshot::delta(1 + n * 7_919 % (size - 1), snapshot::imagined(n, ENDPOINTS, 3)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let profile = bench.profiles.join(format!("{name}-delta.callgrind"));
        let delta = callgrind
            .count(&profile, || deltas.iter().try_for_each(|body| configuration.patch(body)))?
            as f64
            / DELTAS as f64;
        callgrind.stop()?;
        let first = *first.get_or_insert((request, delta));
        rows(table, size, used, (request, delta), first);
        eprintln!("scale: {size} {}", thousands(request));
    }
    table.note(format!(
        "all but the first host arrive as deltas of {STEP}; an index node holds up to 32 entries, so a delta \
         copies one more small node for 32 times the backends"
    ));
    Ok(())
}

/// The rows of a size, whose counts are compared with those of the first one.
fn rows(
    table: &mut Table,
    size: usize,
    used: u64,
    (request, delta): (f64, f64),
    (request_1, delta_1): (f64, f64),
) {
    table
        .row(
            &format!("{} backends: instructions per request", thousands(size as f64)),
            thousands(request),
        )
        .peer(format!("at {}: {}", SIZES[0], percent(request / request_1)))
        .budget("flat: + 1 %", request <= 1.01 * request_1);
    table
        .row(
            &format!("{} backends: instructions per delta of one", thousands(size as f64)),
            thousands(delta),
        )
        .peer(format!(
            "at {}: {}; shared memory {:.1} MB",
            SIZES[0],
            percent(delta / delta_1),
            used as f64 / 1e6
        ));
}

const DELTAS: usize = 100;

/// A delta that adds some hosts.
fn hosts(from: usize, to: usize) -> Result<Vec<u8>> {
    let mut upsert = Upsert { servers: snapshot::servers_of(from..to)?, ..Upsert::default() };
    for number in from..to {
        let id = snapshot::backend(number)?;
        upsert.backends.insert(id.clone(), Default::default());
        upsert.endpoints.insert(id, snapshot::imagined(number, ENDPOINTS, 0)?);
    }
    Ok(serde_json::to_vec(&Patch { upsert, ..Patch::default() })?)
}
