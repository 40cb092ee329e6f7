//! Requests per second of one saturated worker, its CPU time a request, and latency, by `wrk`.
//!
//! Configurations take turns, so that other load hits them alike; the spread is told. Requests per second of
//! the worker's own CPU time are what it reaches when it has a CPU for itself, whether or not it had one.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::nginx::Nginx;
use crate::report::Table;
use crate::sample::show;
use crate::snapshot::{self, HOST};
use crate::usage;
use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::place::free_port;
use std::fs;
use std::process::Command;
use std::time::Duration;

const ROUNDS: usize = 3;
const SECONDS: u32 = 5;
const CONNECTIONS: usize = 32;
const HOSTS: usize = 1_000;

const SIDES: [(&str, Route); 4] = [
    ("stock nginx, static upstream", Route::Static),
    ("router", Route::Router),
    ("stock nginx, same headers and log", Route::Twin { has_log: true }),
    ("default Ingress", Route::Default { has_log: true }),
];

/// Fills the table.
pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let mut sides = Vec::new();
    for (place, (name, route)) in SIDES.into_iter().enumerate() {
        sides.push(Side::start(bench, place, name, route)?);
    }
    for round in 0..=ROUNDS {
        for side in &mut sides {
            // The first opens connections and warms the caches.
            side.load(if round == 0 { 1 } else { SECONDS }, round > 0)?;
        }
    }
    let [bare, router, twin, default] = &sides[..] else { unreachable!("four sides") };
    for side in &sides {
        side.tell(table);
    }
    let compare = |side: &Side, peer: &Side| {
        let (rate, cpu) = (side.rate() / peer.rate(), peer.cpu() / side.cpu());
        (format!("{cpu:.2} by CPU, {rate:.2} by rate"), cpu)
    };
    table.row("router / stock", compare(router, bare).0);
    let (text, ratio) = compare(default, twin);
    table
        .row("default Ingress / stock with the same headers and log", text)
        .budget("≥ 0.95", ratio >= 0.95);
    let (text, ratio) = compare(default, bare);
    table
        .row("default Ingress / stock", text)
        .peer("the reference: 0.42")
        .budget("≥ 0.85", ratio >= 0.85);
    table.note(format!(
        "wrk, {CONNECTIONS} connections, {ROUNDS} rounds of {SECONDS} s in turn, 100 B answers, \
         {HOSTS} hosts in the store; in brackets the slowest and the fastest round; busy: share of one CPU \
         that the worker got. With less than 0.9 it was not saturated, so budgets are held against \
         requests per second of its CPU time"
    ));
    sides.into_iter().try_for_each(|mut side| side.nginx.stop())
}

struct Side {
    name: &'static str,
    nginx: Nginx,
    worker: u32,
    port: u16,
    rounds: Vec<Round>,
}

struct Round {
    rate: f64,
    cpu: Duration,
    busy: f64,
    p50: String,
    p99: String,
}

impl Side {
    fn start(bench: &Bench, place: usize, name: &'static str, route: Route) -> Result<Self> {
        let folder = bench.directory.join(format!("side-{place}"));
        fs::create_dir_all(&folder)?;
        let certificate = Certificate::new("static", &[HOST])?;
        fs::write(folder.join("default.crt"), &certificate.chain)?;
        fs::write(folder.join("default.key"), &certificate.key)?;
        let https = matches!(route, Route::Default { .. } | Route::Twin { .. });
        let ports = Ports { http: free_port()?, https: if https { free_port()? } else { 0 } };
        let text = route.text(bench, &folder, ports, "user root;")?;
        let mut nginx = Nginx::start(&bench.nginx, &folder, &text)?;
        nginx.wait_for_port(ports.http)?;
        if route.has_store() {
            let snapshot = snapshot::hosts(HOSTS, 10, &bench.endpoints, 0)?;
            Configuration::open(&folder.join("configuration.sock"))?
                .put(&snapshot::whole(snapshot)?)?;
        }
        let worker = nginx.worker()?;
        Ok(Side { name, nginx, worker, port: ports.http, rounds: Vec::new() })
    }

    fn load(&mut self, seconds: u32, is_counted: bool) -> Result<()> {
        let before = usage::cpu(self.worker)?;
        let output = Command::new("wrk")
            .args(["-t1", "--latency"])
            .arg(format!("-c{CONNECTIONS}"))
            .arg(format!("-d{seconds}s"))
            .args(["-H", &format!("Host: {HOST}")])
            .arg(format!("http://127.0.0.1:{}/", self.port))
            .output()
            .context("wrk (Debian's package wrk)")?;
        let cpu = usage::cpu(self.worker)? - before;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "wrk: {}", String::from_utf8_lossy(&output.stderr));
        for bad in ["Non-2xx", "Socket errors"] {
            ensure!(!text.contains(bad), "{}: {text}", self.name);
        }
        if is_counted {
            self.rounds.push(Round::parse(&text, cpu, seconds)?);
        }
        Ok(())
    }

    fn mean(&self, of: impl Fn(&Round) -> f64) -> f64 {
        self.rounds.iter().map(of).sum::<f64>() / self.rounds.len() as f64
    }

    fn rate(&self) -> f64 {
        self.mean(|round| round.rate)
    }

    /// Seconds a request.
    fn cpu(&self) -> f64 {
        self.mean(|round| round.cpu.as_secs_f64())
    }

    fn tell(&self, table: &mut Table) {
        let rates = || self.rounds.iter().map(|round| round.rate);
        let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
        let last = self.rounds.last();
        table
            .row(self.name, format!("{:.0} requests/s [{least:.0}, {most:.0}]", self.rate()))
            .peer(format!(
                "CPU {} a request, busy {:.2}, p50 {}, p99 {}",
                show_fine(self.cpu()),
                self.mean(|round| round.busy),
                last.map_or("", |round| &round.p50),
                last.map_or("", |round| &round.p99),
            ));
    }
}

fn show_fine(seconds: f64) -> String {
    match seconds {
        s if s < 1e-4 => format!("{:.1} µs", s * 1e6),
        s => show(Duration::from_secs_f64(s)),
    }
}

impl Round {
    fn parse(wrk: &str, cpu: Duration, seconds: u32) -> Result<Self> {
        let after = |name: &str| {
            let line = wrk.lines().find_map(|line| line.trim().strip_prefix(name));
            line.map(|rest| rest.trim().to_owned()).with_context(|| format!("{name} in: {wrk}"))
        };
        let count = wrk.lines().find_map(|line| line.trim().split_once(" requests in "));
        let count: f64 = count.with_context(|| format!("requests in: {wrk}"))?.0.parse()?;
        Ok(Round {
            rate: after("Requests/sec:")?.parse()?,
            cpu: cpu.div_f64(count.max(1.0)),
            busy: cpu.as_secs_f64() / f64::from(seconds),
            p50: after("50%")?,
            p99: after("99%")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_is_understood() {
        let text = "Running 1s test @ http://127.0.0.1:1/\n  Latency Distribution\n     50%    1.20ms\n     \
                    75%    1.30ms\n     90%    1.40ms\n     99%    2.50ms\n  \
                    20000 requests in 1.00s, 4MB read\nRequests/sec:  20000.10\nTransfer/sec: 4MB\n";
        let round = Round::parse(text, Duration::from_millis(400), 1).unwrap();
        assert_eq!((round.rate, round.cpu), (20_000.1, Duration::from_micros(20)));
        assert_eq!((round.p50.as_str(), round.p99.as_str()), ("1.20ms", "2.50ms"));
    }
}
