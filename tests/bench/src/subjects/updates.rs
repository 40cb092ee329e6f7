//! Writes to the configuration endpoint, and what they cost those who are served meanwhile.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::nginx::Nginx;
use crate::probe::{Probe, Span};
use crate::report::{Table, thousands};
use crate::sample::{Sample, show};
use crate::snapshot::{self, HOST};
use crate::stretch::Watch;
use crate::usage;
use anyhow::{Result, ensure};
use oxigress_core::model;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::place::free_port;
use std::time::{Duration, Instant};

const HOSTS: usize = 10_000;
const ENDPOINTS: usize = 10;
/// Whole snapshots: enough seconds of them that a p99.9 is not one request.
const WHOLES: usize = 20;
const DELTAS: usize = 500;
const MIB: f64 = (1 << 20) as f64;

/// Of them 1,000 take about a second.
const CERTIFICATES: usize = 1_000;

struct Cost {
    time: Duration,
    /// CPU time of the first thread.
    event_loop: Duration,
    /// CPU time of all threads.
    cpu: Duration,
}

fn sample(times: Vec<Duration>) -> Sample {
    times.into_iter().collect()
}

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.directory.join("updates");
    let ports = Ports { http: free_port()?, https: 0 };
    let text = Route::Router.text(bench, &folder, ports, "user root;")?;
    let mut nginx = Nginx::start(&bench.nginx, &folder, &text)?;
    nginx.wait_for_port(ports.http)?;
    let mut test = Updates {
        worker: nginx.worker()?,
        configuration: Configuration::open(&folder.join("configuration.sock"))?,
        port: ports.http,
        endpoints: bench.endpoints,
    };
    let before = usage::memory(test.worker)?;
    test.sizes(table)?;
    test.wholes(table)?;
    test.event_loop(table)?;
    test.certificates(table)?;
    test.deltas(table)?;
    test.freshness(table)?;
    // Replaced records are freed, and so are the bodies.
    test.configuration.used_bytes()?;
    let after = usage::memory(test.worker)?;
    let growth = after.anonymous as f64 - before.anonymous as f64;
    table
        .row(
            "growth of the worker's own memory by all of these",
            format!("{:.1} MiB", growth / MIB),
        )
        .budget("≤ 2 MB", growth <= 2e6);
    table.note(format!(
        "the worker: {:.1} MiB resident, shared memory included; bodies of whole snapshots: {:.1} MB",
        after.resident as f64 / MIB,
        test.whole(0)?.len() as f64 / 1e6
    ));
    nginx.stop()
}

struct Updates {
    worker: u32,
    configuration: Configuration,
    port: u16,
    endpoints: [u16; 2],
}

impl Updates {
    /// Two rounds differ in every endpoint set but the one that is asked.
    fn whole(&self, round: u16) -> Result<Vec<u8>> {
        snapshot::whole(snapshot::hosts(HOSTS, ENDPOINTS, &self.endpoints, round)?)
    }

    /// Adds rows about shared memory.
    fn sizes(&mut self, table: &mut Table) -> Result<()> {
        let empty = self.configuration.used_bytes()?;
        self.configuration.put(&snapshot::whole(snapshot::servers(HOSTS)?)?)?;
        let routes = self.configuration.used_bytes()?;
        let per_route = (routes - empty) as f64 / HOSTS as f64;
        table
            .row("shared memory, a route (host, rule, origin)", format!("{per_route:.0} B"))
            .budget("≤ 2 KiB", per_route <= 2048.0);
        self.configuration.put(&snapshot::whole(snapshot::servers(0)?)?)?;
        self.configuration.used_bytes()?;
        let body = self.whole(0)?;
        let start = Instant::now();
        self.configuration.put(&body)?;
        let took = start.elapsed();
        let used = self.configuration.used_bytes()? as f64;
        table
            .row("shared memory, 10,000 hosts and backends × 10", format!("{:.1} MB", used / 1e6))
            .peer(format!("{} B a host", thousands(used / HOSTS as f64)))
            .budget("≤ 30 MB", used <= 30e6);
        table.row("whole PUT into an empty store, live when answered", show(took));
        Ok(())
    }

    /// Whole snapshots while a probe sends requests.
    fn wholes(&mut self, table: &mut Table) -> Result<()> {
        let bodies = [self.whole(1)?, self.whole(0)?];
        let probe = Probe::start(self.port)?;
        let mut spans: Vec<Span> = Vec::new();
        for body in bodies.iter().cycle().take(WHOLES) {
            // As long outside as inside, so that both samples are of one size.
            let pause = spans.last().map_or(Duration::from_millis(200), |(a, b)| *b - *a);
            std::thread::sleep(pause);
            let start = Instant::now();
            self.configuration.put(body)?;
            spans.push((start, Instant::now()));
        }
        let (during, outside) = probe.stop(&spans)?;
        let times = sample(spans.iter().map(|(from, to)| *to - *from).collect());
        table.row(
            "whole PUT, every endpoint set replaced, under load: p50, max",
            format!("{}, {}", show(times.p50()), show(times.max())),
        );
        let (p999, base) = (during.proxied.quantile(0.999), outside.proxied.quantile(0.999));
        table
            .row("other requests' p99.9 meanwhile", show(p999))
            .peer(format!("without a PUT {}", show(base)))
            .budget("baseline + 5 ms", p999 <= base + Duration::from_millis(5));
        table
            .row("longest wait for the event loop meanwhile", show(during.own.max()))
            .peer(format!("without a PUT {}", show(outside.own.max())));
        table.note(format!(
            "{} requests were sent during {WHOLES} PUTs and {} outside of them; a wait for the event loop \
             includes waiting for a CPU",
            during.proxied.len() + during.own.len(),
            outside.proxied.len() + outside.own.len()
        ));
        Ok(())
    }

    /// Whole snapshots alone: CPU times, which other load on the machine does not change much.
    fn event_loop(&mut self, table: &mut Table) -> Result<()> {
        let (body, other) = (self.whole(1)?, self.whole(0)?);
        let (mut own, mut all, mut times, mut stretches) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..WHOLES / 2 {
            let cost = self.cost_of(|test| test.configuration.put(&body))?;
            times.push(cost.time);
            own.push(cost.event_loop);
            all.push(cost.cpu);
            let watch = Watch::start(self.worker);
            self.cost_of(|test| test.configuration.put_slowly(&other))?;
            stretches.push(watch.stop()?);
        }
        table.row(
            "the same without load: time p50; CPU of all threads p50",
            format!("{}; {}", show(sample(times).p50()), show(sample(all).p50())),
        );
        let (own, stretches) = (sample(own), sample(stretches));
        table
            .row(
                "longest callback of a whole PUT, CPU: p50, max",
                format!("{}, {}", show(stretches.p50()), show(stretches.max())),
            )
            .peer(format!("at most; all callbacks {}", show(own.p50())))
            .budget("≤ 2 ms", stretches.p50() <= Duration::from_millis(2));
        Ok(())
    }

    /// Certificates are checked before they are published.
    fn certificates(&mut self, table: &mut Table) -> Result<()> {
        let pair = Certificate::new("pair", &["*.bench.test"])?;
        let pair = model::Certificate { chain: pair.chain, key: pair.key };
        let mut snapshot = snapshot::hosts(HOSTS, ENDPOINTS, &self.endpoints, 0)?;
        snapshot::certify(&mut snapshot, CERTIFICATES, CERTIFICATES, &[pair])?;
        let body = snapshot::whole(snapshot)?;
        let added = self.cost_of(|test| test.configuration.put(&body))?;
        let again = self.cost_of(|test| test.configuration.put(&body))?;
        table
            .row(
                "whole PUT that adds 1,000 certificates: time; CPU",
                format!("{}; {}", show(added.time), show(added.cpu)),
            )
            .peer(format!(
                "nothing new {}; {} a certificate",
                show(again.cpu),
                show(added.cpu.saturating_sub(again.cpu) / u32::try_from(CERTIFICATES)?)
            ));
        self.configuration.put(&self.whole(0)?)
    }

    fn cost_of(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<Cost> {
        let (own, all) = (usage::event_loop_cpu(self.worker)?, usage::cpu(self.worker)?);
        let start = Instant::now();
        work(self)?;
        let time = start.elapsed();
        // Until what was replaced is freed, and the worker waits again: only then its clock is exact.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Cost {
            time,
            event_loop: usage::event_loop_cpu(self.worker)? - own,
            cpu: usage::cpu(self.worker)? - all,
        })
    }

    /// Deltas one after the other, each to another backend.
    fn deltas(&mut self, table: &mut Table) -> Result<()> {
        let bodies: Vec<_> = (0..DELTAS)
            .map(|turn| {
                // A prime stride: neighbours in time are no neighbours in the index.
                let number = 1 + (turn * 7919) % (HOSTS - 1);
                snapshot::delta(number, snapshot::imagined(number, ENDPOINTS, 2)?)
            })
            .collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_millis(500));
        let (mut times, mut costs) = (Vec::new(), Vec::new());
        let (all_before, mut before) =
            (usage::cpu(self.worker)?, usage::event_loop_cpu(self.worker)?);
        for body in &bodies {
            let start = Instant::now();
            self.configuration.patch(body)?;
            times.push(start.elapsed());
            let now = usage::event_loop_cpu(self.worker)?;
            costs.push(now - before);
            before = now;
        }
        std::thread::sleep(Duration::from_millis(500));
        let cpu = (usage::cpu(self.worker)? - all_before) / u32::try_from(DELTAS)?;
        let (times, costs) = (sample(times), sample(costs));
        table.row(
            "one endpoint by PATCH, until answered: p50, p99",
            format!("{}, {}", show(times.p50()), show(times.quantile(0.99))),
        );
        table
            .row("the same, CPU of the worker, freeing included", show(cpu))
            .budget("≤ 100 µs", cpu <= Duration::from_micros(100));
        table
            .row("the same, longest: CPU of one delta's callbacks", show(costs.max()))
            .budget("≤ 1 ms", costs.max() <= Duration::from_millis(1));
        Ok(())
    }

    /// A request after each answer sees what was written.
    fn freshness(&mut self, table: &mut Table) -> Result<()> {
        let bodies = [
            (snapshot::delta(0, snapshot::real(&[self.endpoints[1]])?)?, b'B'),
            (snapshot::delta(0, snapshot::real(&[self.endpoints[0]])?)?, b'A'),
        ];
        let mut client = Client::tcp(self.port)?;
        let mut stale = 0;
        for (body, name) in bodies.iter().cycle().take(DELTAS) {
            self.configuration.patch(body)?;
            let answer = client.get_ok(HOST, "/")?;
            ensure!(!answer.is_last, "the connection ends after {DELTAS} requests already");
            stale += usize::from(answer.body.first() != Some(name));
        }
        table
            .row("stale answers after an answered delta", format!("{stale} of {DELTAS}"))
            .budget("none", stale == 0);
        Ok(())
    }
}
