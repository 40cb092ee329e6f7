//! Memory of nginx by hosts and workers, beside stock nginx with the same hosts in its configuration.

use crate::bench::Bench;
use crate::conf::{Ports, Route};
use crate::configuration::Configuration;
use crate::http::Client;
use crate::nginx::Nginx;
use crate::report::{Table, percent};
use crate::snapshot::{self, HOST};
use crate::usage::{self, Proportional};
use anyhow::{Context, Result, ensure};
use oxigress_tests::place::free_port;
use oxigress_tests::process::workers_below;
use oxigress_tests::wait;
use std::fmt::Write;

const HOSTS: [usize; 3] = [100, 1_000, 10_000];
const WORKERS: [usize; 3] = [1, 2, 4];
const ENDPOINTS: usize = 10;
/// Connections one after the other: enough that each worker has served some.
const REQUESTS: usize = 400;
const MIB: f64 = (1 << 20) as f64;

pub fn run(bench: &Bench, table: &mut Table) -> Result<()> {
    for hosts in HOSTS {
        for workers in WORKERS {
            let stock = measure(bench, hosts, workers, false)
                .with_context(|| format!("stock nginx, {hosts} hosts, {workers} workers"))?;
            let ours = measure(bench, hosts, workers, true)
                .with_context(|| format!("{hosts} hosts, {workers} workers"))?;
            let show = |memory: &Proportional| {
                let (all, shared) = (memory.all as f64 / MIB, memory.shared as f64 / MIB);
                format!("{all:.1} MiB, of it shared memory {shared:.1}")
            };
            table
                .row(&format!("{hosts} hosts × {ENDPOINTS}, {workers} workers"), show(&ours))
                .peer(format!(
                    "stock {}, {}",
                    show(&stock),
                    percent(ours.all as f64 / stock.all as f64)
                ));
        }
    }
    table.note(format!(
        "PSS of master and workers together, after {REQUESTS} requests on as many connections; stock nginx \
         has a server and an upstream a host in its configuration"
    ));
    Ok(())
}

fn measure(bench: &Bench, hosts: usize, workers: usize, is_ours: bool) -> Result<Proportional> {
    let folder = bench.directory.join(format!("memory-{hosts}-{workers}-{is_ours}"));
    let ports = Ports { http: free_port()?, https: 0 };
    let text = match is_ours {
        true => Route::Router.text(bench, &folder, ports, "user root;")?,
        false => stock(bench, &folder.display().to_string(), ports.http, hosts)?,
    };
    let text = text.replace("worker_processes 1;", &format!("worker_processes {workers};"));
    let mut nginx = Nginx::start(&bench.nginx, &folder, &text)?;
    nginx.wait_for_port(ports.http)?;
    if is_ours {
        let whole = snapshot::hosts(hosts, ENDPOINTS, &bench.endpoints, 0)?;
        let mut configuration = Configuration::open(&folder.join("configuration.sock"))?;
        configuration.put(&snapshot::whole(whole)?)?;
        // Until the replaced generation is freed.
        configuration.used_bytes()?;
    }
    let pids = wait::until("the workers", || {
        let pids = workers_below(nginx.pid());
        ensure!(pids.len() == workers, "{pids:?}");
        Ok(pids)
    })?;
    for _ in 0..REQUESTS {
        Client::tcp(ports.http)?.get_ok(HOST, "/")?;
    }
    let mut sum = Proportional::default();
    for pid in pids.into_iter().chain([nginx.pid()]) {
        let one = usage::proportional(pid)?;
        sum = Proportional { all: sum.all + one.all, shared: sum.shared + one.shared };
    }
    nginx.stop()?;
    std::fs::remove_dir_all(folder)?;
    Ok(sum)
}

/// What an operator would write by hand for the same hosts.
fn stock(bench: &Bench, folder: &str, port: u16, hosts: usize) -> Result<String> {
    let mut text = format!(
        "user root;
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
access_log off;
server_names_hash_max_size 65536;
"
    );
    for number in 0..hosts {
        let host = snapshot::host(number);
        let set = match number {
            0 => snapshot::real(&bench.endpoints)?,
            number => snapshot::imagined(number, ENDPOINTS, 0)?,
        };
        write!(text, "upstream u{number} {{ ")?;
        for endpoint in set.as_slice() {
            write!(text, "server {}:{}; ", endpoint.address, endpoint.port)?;
        }
        writeln!(
            text,
            "keepalive 32; }}\nserver {{ listen 127.0.0.1:{port}; server_name {host}; location / {{ \
             proxy_pass http://u{number}; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}"
        )?;
    }
    text.push_str("}\n");
    Ok(text)
}
