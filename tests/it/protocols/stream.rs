//! TCP, UDP and TLS passthrough through real sockets, with endpoints that change under load.

mod configuration;
mod passthrough;
mod proxy_protocol;
mod sessions;

use anyhow::{Context, Result, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Address, Connection, Request};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::session::{LineEndpoint, Session, Sessions, datagram, exchange};
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, until};
use oxigress_tests::{dist, pass};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use tokio::net::UdpSocket;

/// Of the endpoint sets, each while sessions come and go.
const UPDATES: usize = 100;

/// nginx with `servers` in stream, and what it is given to serve.
struct Trial {
    site: Site,
    tag: String,
}

impl Trial {
    fn start(
        directory: &Directory,
        workers: usize,
        servers: &str,
        snapshot: &Value,
    ) -> Result<Self> {
        let mut plan = Plan::router(workers)?;
        plan.location_config = "add_header X-Client $remote_addr:$remote_port always;
            add_header X-Proxied $proxy_protocol_addr always;"
            .into();
        plan.main_config = format!(
            "stream {{
    log_format sessions '$status $upstream_addr';
    access_log $DIR/sessions.log sessions;
    upstream ingress {{
        server 0.0.0.1:1;
        ingress_balancer;
    }}
    {servers}
}}"
        );
        let site = Site::start(&plan, directory)?;
        let mut trial = Trial { site, tag: String::new() };
        trial.put(snapshot)?;
        Ok(trial)
    }

    fn put(&mut self, snapshot: &Value) -> Result<()> {
        let whole = json!({"version": 1, "snapshot": snapshot}).to_string();
        let answer = block_on(self.site.configuration.put(whole))?;
        ensure!(answer.status == 200, "{answer}");
        self.tag = answer.header("etag").context("ETag")?.trim_matches('"').to_owned();
        Ok(())
    }

    fn endpoints(&mut self, backend: &str, endpoints: &[Value]) -> Result<()> {
        let patch = json!({"version": 1, "upsert": {"endpoints": {backend: endpoints}}});
        let answer = block_on(self.site.configuration.patch(&self.tag, patch.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        self.tag = answer.header("etag").context("ETag")?.trim_matches('"').to_owned();
        Ok(())
    }

    fn log_has(&self, text: &str, times: usize) -> Result<()> {
        until("a line in the error log", || {
            let found = self.site.nginx.error_log().matches(text).count();
            ensure!(found == times, "{text:?} stands {found} times, not {times}");
            Ok(())
        })
    }

    fn end(mut self) -> Result<()> {
        self.site.nginx.stop()?;
        self.site.nginx.check_error_log()
    }
}

fn natives(endpoints: &[&LineEndpoint]) -> Vec<Value> {
    endpoints.iter().map(|endpoint| endpoint.native()).collect()
}

/// Two of the endpoints, others with each step; those that leave serve the sessions they have.
fn pair(all: &[LineEndpoint], step: usize) -> [&LineEndpoint; 2] {
    [&all[step % all.len()], &all[(step + 1) % all.len()]]
}

fn is_of(pair: [&LineEndpoint; 2], name: &str) -> Result<()> {
    ensure!(pair.iter().any(|e| e.name == name), "{name} has left before this session");
    Ok(())
}

/// A session of three lines that one endpoint of this backend answers; its name.
async fn three_lines(port: u16, number: u64, backend: char) -> Result<String> {
    let mut session = Session::open(port, b"").await?;
    let first = session.ask(&format!("{number} first")).await?;
    ensure!(first.endpoint.starts_with(backend), "{first:?} is not of {backend}");
    for line in ["second", "third"] {
        let answer = session.ask(&format!("{number} {line}")).await?;
        ensure!(answer.endpoint == first.endpoint, "{answer:?} after {first:?}");
    }
    Ok(first.endpoint)
}

fn told(what: &str, updates: usize, done: u64, lost: &[String]) -> Result<()> {
    println!("{what}: {updates} updates of the endpoints, {done} sessions, {} lost", lost.len());
    let shown = lost.iter().take(5).collect::<Vec<_>>();
    ensure!(lost.is_empty(), "{} lost: {shown:#?}", lost.len());
    ensure!(done > 0, "no session was held");
    Ok(())
}

fn backends(
    prefix: &str,
    make: impl Fn(&str) -> Result<LineEndpoint>,
) -> Result<Vec<LineEndpoint>> {
    (0..4).map(|n| make(&format!("{prefix}{n}"))).collect()
}

/// A header of the PROXY protocol's version 2, TCP over IPv4.
fn version_2(from: [u8; 4], from_port: u16, to: [u8; 4], to_port: u16) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(from);
    header.extend(to);
    header.extend(from_port.to_be_bytes());
    header.extend(to_port.to_be_bytes());
    header
}
