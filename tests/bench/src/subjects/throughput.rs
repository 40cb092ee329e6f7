//! Requests per second of one saturated worker, its CPU time a request, and latency, by `wrk`.
//!
//! Configurations take turns, so that other load hits them alike; the spread is told. Requests per second of
//! the worker's own CPU time are what it reaches when it has a CPU for itself, whether or not it had one.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::haproxy::Haproxy;
use crate::nginx::Nginx;
use crate::report::Table;
use crate::sample::show;
use crate::snapshot::{self, HOST};
use crate::usage;
use crate::wrk::Wrk;
use anyhow::{Context, Result};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::place::free_port;
use std::fs;
use std::time::Duration;

const ROUNDS: usize = 3;
const SECONDS: u32 = 5;
const CONNECTIONS: usize = 32;
const HOSTS: usize = 1_000;

const SIDES: [(&str, Route); 5] = [
    ("stock nginx, static upstream", Route::Static),
    ("stock nginx, least_conn", Route::StaticLeastConn),
    ("router", Route::Router),
    ("stock nginx, same headers and log", Route::Twin { has_log: true }),
    ("default Ingress", Route::Default { has_log: true }),
];

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    let mut sides = Vec::new();
    for (place, (name, route)) in SIDES.into_iter().enumerate() {
        sides.push(Side::start(bench, place, name, route)?);
    }
    sides.push(Side::haproxy(bench)?);
    for round in 0..=ROUNDS {
        for side in &mut sides {
            // The first opens connections and warms the caches.
            side.load(if round == 0 { 1 } else { SECONDS }, round > 0)?;
        }
    }
    let [bare, _, router, twin, default, haproxy] = &sides[..] else { unreachable!("six sides") };
    for side in &sides {
        side.tell(table);
    }
    let compare = |side: &Side, peer: &Side| {
        let (rate, cpu) = (side.rate() / peer.rate(), peer.cpu() / side.cpu());
        (format!("{cpu:.2} by CPU, {rate:.2} by rate"), cpu)
    };
    table.row("router / stock", compare(router, bare).0);
    table.row("router / HAProxy", compare(router, haproxy).0);
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
         that the worker got. HAProxy {}, one thread. With less than 0.9 it was not saturated, so budgets are held against \
         requests per second of its CPU time",
        Haproxy::version()?
    ));
    sides.into_iter().try_for_each(|side| side.program.stop())
}

enum Program {
    Nginx(Nginx),
    Haproxy(Haproxy),
}

impl Program {
    fn stop(self) -> Result<()> {
        match self {
            Program::Nginx(mut nginx) => nginx.stop(),
            Program::Haproxy(haproxy) => haproxy.stop(),
        }
    }
}

struct Side {
    name: &'static str,
    program: Program,
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
        let (program, port) = (Program::Nginx(nginx), ports.http);
        Ok(Side { name, program, worker, port, rounds: Vec::new() })
    }

    /// HAProxy by round robin, one thread.
    fn haproxy(bench: &Bench) -> Result<Self> {
        let port = free_port()?;
        let haproxy = Haproxy::start(&bench.directory.join("haproxy"), port, bench.endpoints)?;
        let worker = haproxy.pid();
        let program = Program::Haproxy(haproxy);
        Ok(Side { name: "HAProxy, round robin", program, worker, port, rounds: Vec::new() })
    }

    fn load(&mut self, seconds: u32, is_counted: bool) -> Result<()> {
        let before = usage::cpu(self.worker)?;
        let wrk = Wrk::run(self.port, CONNECTIONS, seconds).context(self.name)?;
        let cpu = usage::cpu(self.worker)? - before;
        if is_counted {
            self.rounds.push(Round {
                rate: wrk.rate,
                cpu: cpu.div_f64(wrk.count.max(1.0)),
                busy: cpu.as_secs_f64() / f64::from(seconds),
                p50: wrk.p50,
                p99: wrk.p99,
            });
        }
        Ok(())
    }

    fn mean(&self, of: impl Fn(&Round) -> f64) -> f64 {
        self.rounds.iter().map(of).sum::<f64>() / self.rounds.len() as f64
    }

    fn rate(&self) -> f64 {
        self.mean(|round| round.rate)
    }

    /// CPU time of a request in seconds.
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
