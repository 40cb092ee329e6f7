//! Limits of clients over all workers: exact, also when workers are killed, nginx is reloaded, and no room is left.
//!
//! Rates are one request a minute, so that nothing drains away while a test runs.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Request, Response};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const WORKERS: usize = 4;

#[test]
fn a_rate_is_exact_over_all_workers() {
    pass("limit-rate", |directory| {
        let mut shop = Shop::start(directory, "1m")?;
        let rate = json!({"requests": 1, "burst": 99, "status": 503});
        shop.put(&json!({"owner": "x", "per_minute": rate}))?;
        shop.served(60, 60)?;
        shop.site.nginx.reload()?;
        shop.served(150, 40)?;
        shop.served(20, 0)
    });
}

#[test]
fn connections_of_a_killed_worker_have_ended() {
    pass("limit-killed", |directory| {
        let mut shop = Shop::start(directory, "1m")?;
        shop.put(&json!({"owner": "x", "connections": {"requests": 5, "status": 429}}))?;
        for _ in 0..3 {
            shop.endpoint.change(Behaviour::Hold);
            let (taken, held) = shop.hold(8)?;
            ensure!(taken == 5, "{taken} at once, not 5");
            for pid in shop.site.nginx.worker_pids() {
                shop.site.nginx.kill_worker(pid)?;
            }
            for task in held {
                let _ = block_on(task)?;
            }
            // All five places are free again, and not one more.
            until("the places of killed workers", || {
                shop.endpoint.change(Behaviour::Hold);
                let (taken, held) = shop.hold(8)?;
                shop.endpoint.change(Behaviour::Ok);
                for task in held {
                    block_on(task)??;
                }
                ensure!(taken == 5, "{taken} at once, not 5");
                Ok(())
            })?;
        }
        Ok(())
    });
}

#[test]
fn a_full_table_of_connections_keeps_nobody_out() {
    pass("limit-full", |directory| {
        let shop = Shop::start(directory, "32k")?;
        shop.put(&json!({"owner": "x", "key": "$http_x_user", "connections": {"requests": 4, "status": 429}}))?;
        shop.endpoint.change(Behaviour::Hold);
        // One client is at its limit; then a flood of others, each with one request, until the table is full.
        let mut held: Vec<_> = (0..4).map(|_| shop.send_as("heavy")).collect();
        until("the requests of the client at its limit", || {
            ensure!(shop.endpoint.requests() == 4);
            Ok(())
        })?;
        until("a full table", || {
            for _ in 0..50 {
                held.push(shop.send_as(&format!("user-{}", held.len())));
            }
            ensure!(shop.site.nginx.error_log().contains("zone \"ingress_limits\" is full"));
            Ok(())
        })?;
        let refused = block_on(shop.send_as("heavy"))??;
        ensure!(refused.status == 429, "a flood freed who was at its limit: {refused}");
        shop.endpoint.change(Behaviour::Ok);
        for task in held {
            let answer = block_on(task)??;
            ensure!(answer.status == 200, "{answer}");
        }
        let page = block_on(shop.site.configuration.send(&Request::get("localhost", "/metrics")))?;
        let line = "oxigress_limits_forgotten_total{limit=\"connections\"}";
        let text = page.text();
        let count = text.lines().find_map(|other| other.strip_prefix(line));
        let count: u64 = count.with_context(|| format!("{line} in {text}"))?.trim().parse()?;
        ensure!(count > 0, "{text}");
        Ok(())
    });
}

/// A flood of clients that have used up their rate neither keeps a new one out nor frees one that has used up more.
#[test]
fn a_full_table_of_rates_keeps_nobody_out() {
    pass("limit-full-rates", |directory| {
        let shop = Shop::start(directory, "32k")?;
        let rate = json!({"requests": 1, "burst": 9, "status": 503});
        shop.put(&json!({"owner": "x", "key": "$http_x_user", "per_minute": rate}))?;
        for _ in 0..10 {
            let answer = block_on(shop.send_as("heavy"))??;
            ensure!(answer.status == 200, "{answer}");
        }
        // 32k have room for some 2,000 clients and rates.
        let mut sent = 0;
        while sent < 6_000 {
            let tasks: Vec<_> = (sent..sent + 100).map(|n| shop.send_as(&format!("{n}"))).collect();
            sent += tasks.len();
            for task in tasks {
                let answer = block_on(task)??;
                ensure!(answer.status == 200, "a new client is kept out: {answer}");
            }
        }
        let answer = block_on(shop.send_as("heavy"))??;
        ensure!(answer.status == 503, "a flood freed who had used up its rate: {answer}");
        Ok(())
    });
}

struct Shop {
    site: Site,
    endpoint: Endpoint,
}

impl Shop {
    fn start(directory: &Directory, limits_size: &str) -> Result<Self> {
        let mut plan = Plan::router(WORKERS)?;
        plan.limits_size = limits_size.into();
        Ok(Shop { site: Site::start(&plan, directory)?, endpoint: Endpoint::start("shop")? })
    }

    fn put(&self, limits: &Value) -> Result<()> {
        let rule = json!({"path": {"prefix": "/"}, "backend": "shop", "policies": "p"});
        let snapshot = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [rule]}}, "policies": {"p": {"limits": limits}},
            "backends": {"shop": {}}, "endpoints": {"shop": [self.endpoint.native()]}}});
        let answer = block_on(self.site.configuration.put(snapshot.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    fn send_as(&self, user: &str) -> JoinHandle<Result<Response>> {
        let request = Request::get("shop.test", "/").header("X-User", user);
        let address = self.site.http();
        runtime().spawn(async move { client::send(&address, &request).await })
    }

    /// Of `count` requests, each on a connection of its own, exactly so many are served.
    fn served(&self, count: usize, expected: usize) -> Result<()> {
        let tasks: Vec<_> = (0..count).map(|_| self.send_as("ann")).collect();
        let mut served = 0;
        for task in tasks {
            let answer = block_on(task)??;
            ensure!([200, 503].contains(&answer.status), "{answer}");
            served += usize::from(answer.status == 200);
        }
        ensure!(served == expected, "{served} of {count} came in, not {expected}");
        Ok(())
    }

    /// How many of `count` requests at once are held by the endpoint; the others are refused.
    fn hold(&self, count: usize) -> Result<(usize, Vec<JoinHandle<Result<Response>>>)> {
        let before = self.endpoint.requests();
        let tasks: Vec<_> = (0..count).map(|_| self.send_as("ann")).collect();
        let taken = until("a decision about each request", || {
            let taken = (self.endpoint.requests() - before) as usize;
            let refused = tasks.iter().filter(|task| task.is_finished()).count();
            ensure!(taken + refused == count, "{taken} taken and {refused} refused of {count}");
            Ok(taken)
        })?;
        Ok((taken, tasks))
    }
}
