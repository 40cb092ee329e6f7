//! All endpoints of a busy backend are replaced, again and again, under constant load of GETs and POSTs.
//!
//! Two kinds of servers: those that serve on for 2 s after the configuration said that they leave, as a Pod does
//! between the change of its EndpointSlice and its end, and those that die at once, where the configuration follows.
//! The first lose nothing; of the second no GET is lost, since it may be sent to another endpoint. No server
//! waits before it is told to end (preStop).

use anyhow::{Result, ensure};
use oxigress_tests::client::Request;
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{self, Site};
use oxigress_tests::wait::{block_on, runtime};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::task::JoinHandle;

const ENDPOINTS: usize = 4;
/// So long a server that drains serves on.
const DRAIN: Duration = Duration::from_secs(2);
/// What an answer takes, so that requests are under way when servers end.
const ANSWER: Duration = Duration::from_millis(10);
/// Between the death of a server and the configuration without it, so many GETs are answered.
const UNNOTICED: u64 = 50;

#[test]
fn endpoints_that_drain_are_replaced_without_a_failed_request() {
    pass("rolling-drain", |directory| drain(directory, 3));
}

#[test]
fn endpoints_that_die_are_replaced_without_a_failed_get() {
    pass("rolling-die", |directory| die(directory, 3));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_drain() {
    pass("rolling-drain", |directory| drain(directory, 50));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_die() {
    pass("rolling-die", |directory| die(directory, 50));
}

/// nginx, the servers of one backend and clients that never rest.
struct Rollout {
    site: Site,
    servers: Vec<Endpoint>,
    started: usize,
    gets: Load,
    posts: Load,
}

impl Rollout {
    fn start(directory: &Directory) -> Result<Self> {
        let mut plan = site::Plan::router(2)?;
        // Nginx is to close no connection of the clients.
        plan.http_config = "keepalive_requests 1000000000;".into();
        let site = Site::start(&plan, directory)?;
        let servers = (0..ENDPOINTS).map(server).collect::<Result<Vec<_>>>()?;
        let snapshot = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}},
            "endpoints": {"shop": servers.iter().map(Endpoint::native).collect::<Vec<_>>()},
        }});
        let answer = block_on(site.configuration.put(snapshot.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        let post = Request::new("POST", "shop.test", "/order").body("pay");
        let gets = Plan::new(site.http(), vec![Request::get("shop.test", "/")], 8);
        let posts = Plan::new(site.http(), vec![post], 4);
        let (gets, posts) = (Load::start(gets)?, Load::start(posts)?);
        Ok(Rollout { site, servers, started: ENDPOINTS, gets, posts })
    }

    fn next_server(&mut self) -> Result<Endpoint> {
        self.started += 1;
        server(self.started)
    }

    /// The servers, and what stands beside them.
    fn publish(&self, more: &[Value]) -> Result<()> {
        let mut endpoints: Vec<_> = self.servers.iter().map(Endpoint::native).collect();
        endpoints.extend_from_slice(more);
        let change = json!({"version": 1, "upsert": {"endpoints": {"shop": endpoints}}});
        let tag = block_on(self.site.configuration.tag())?;
        let answer = block_on(self.site.configuration.patch(&tag, change.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    /// Ends the load, tells what became of it and answers how many GETs and POSTs failed.
    fn finish(self, kind: &str, rounds: usize) -> Result<(u64, u64)> {
        let (gets, posts) = (self.gets.stop(), self.posts.stop());
        println!(
            "{kind}: {ENDPOINTS} endpoints replaced {rounds} times; {} GETs, {} failed; {} POSTs, {} failed",
            gets.answered + gets.failed - refused(&gets),
            gets.failed,
            posts.answered + posts.failed - refused(&posts),
            posts.failed,
        );
        for failure in gets.failures.iter().chain(&posts.failures).take(5) {
            println!("    {failure:?}");
        }
        self.site.nginx.check_error_log()?;
        Ok((gets.failed, posts.failed))
    }
}

/// Wrong answers count as answered and as failed.
fn refused(report: &oxigress_tests::load::Report) -> u64 {
    report.statuses.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum()
}

fn server(number: usize) -> Result<Endpoint> {
    let behaviour = Behaviour::Slow(ANSWER);
    Endpoint::with(&format!("server-{number}"), behaviour, Ipv4Addr::LOCALHOST.into())
}

/// The configuration says first that a server leaves: in half of the rounds as `draining`, else by leaving it out.
fn drain(directory: &Directory, rounds: usize) -> Result<()> {
    let mut rollout = Rollout::start(directory)?;
    for round in 0..rounds {
        let (mut draining, mut ends) = (Vec::new(), Vec::<JoinHandle<()>>::new());
        for _ in 0..ENDPOINTS {
            let new = rollout.next_server()?;
            rollout.servers.push(new);
            let old = rollout.servers.remove(0);
            if round % 2 == 0 {
                let mut native = old.native();
                native["draining"] = true.into();
                draining.push(native);
            }
            rollout.publish(&draining)?;
            ends.push(runtime().spawn(async move {
                tokio::time::sleep(DRAIN).await;
                drop(old);
            }));
            rollout.gets.wait_for(20)?;
        }
        for end in ends {
            block_on(end)?;
        }
        rollout.publish(&[])?;
    }
    let failed = rollout.finish("drain for 2 s", rounds)?;
    ensure!(failed == (0, 0), "{} GETs and {} POSTs failed", failed.0, failed.1);
    Ok(())
}

/// A server is dead before the configuration says so.
fn die(directory: &Directory, rounds: usize) -> Result<()> {
    let mut rollout = Rollout::start(directory)?;
    for _ in 0..rounds {
        for _ in 0..ENDPOINTS {
            let new = rollout.next_server()?;
            drop(rollout.servers.remove(0));
            rollout.gets.wait_for(UNNOTICED)?;
            rollout.servers.push(new);
            rollout.publish(&[])?;
            rollout.gets.wait_for(20)?;
        }
    }
    let (gets, _) = rollout.finish("die at once", rounds)?;
    ensure!(gets == 0, "{gets} GETs failed");
    Ok(())
}
