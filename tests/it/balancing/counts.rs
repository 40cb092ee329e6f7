//! What is counted of endpoints stays right: across workers, changed sets, kills, reloads.
//!
//! Requests in flight are looked at through `max_in_flight`: an idle backend of n endpoints with a limit of 1 takes
//! n requests at once, not one more and not one less. A count that was left behind takes less, one that was lost
//! takes more.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{self, Connection, Request, Response};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::signal_pid;
use oxigress_tests::site::{self, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const WORKERS: usize = 4;

#[test]
fn requests_in_flight_are_counted_exactly_whatever_happens() {
    pass("in-flight", count_in_flight);
}

#[test]
fn a_limit_holds_for_all_workers_together() {
    pass("limit", hold_limit);
}

#[test]
fn an_endpoint_that_fails_again_is_left_out_longer_and_comes_back() {
    pass("ejection", eject);
}

#[test]
fn the_share_of_a_new_endpoint_grows() {
    pass("slow-start", start_slowly);
}

/// nginx and the endpoints of the backend `shop`.
struct Shop {
    site: Site,
    endpoints: Vec<Endpoint>,
}

impl Shop {
    fn start(directory: &Directory, plan: &site::Plan, endpoints: usize) -> Result<Self> {
        let site = Site::start(plan, directory)?;
        let endpoints = (0..endpoints)
            .map(|n| Endpoint::with(&format!("e{n}"), Behaviour::Ok, Ipv4Addr::LOCALHOST.into()))
            .collect::<Result<Vec<_>>>()?;
        Ok(Shop { site, endpoints })
    }

    fn native(&self) -> Vec<Value> {
        self.endpoints.iter().map(Endpoint::native).collect()
    }

    fn put(&self, backend: Value, endpoints: &[Value]) -> Result<()> {
        let snapshot = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": backend}, "endpoints": {"shop": endpoints},
        }});
        let answer = block_on(self.site.configuration.put(snapshot.to_string()))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    fn patch(&self, change: Value) -> Result<()> {
        let change = json!({"version": 1, "upsert": change}).to_string();
        let tag = block_on(self.site.configuration.tag())?;
        let answer = block_on(self.site.configuration.patch(&tag, change))?;
        ensure!(answer.status == 200, "{answer}");
        Ok(())
    }

    fn behave(&self, behaviour: &Behaviour) {
        self.endpoints.iter().for_each(|endpoint| endpoint.change(behaviour.clone()));
    }

    fn arrived(&self) -> u64 {
        self.endpoints.iter().map(Endpoint::requests).sum()
    }

    /// So many requests at once, each on a connection of its own.
    fn send(&self, count: usize) -> Vec<JoinHandle<Result<Response>>> {
        let request = Request::get("shop.test", "/");
        let one = |_| {
            let (address, request) = (self.site.http(), request.clone());
            runtime().spawn(async move { client::send(&address, &request).await })
        };
        (0..count).map(one).collect()
    }

    /// So many requests at once are held by the endpoints.
    fn hold(&self, count: usize) -> Result<Vec<JoinHandle<Result<Response>>>> {
        self.behave(&Behaviour::Hold);
        let goal = self.arrived() + count as u64;
        let tasks = self.send(count);
        until("requests at the endpoints", || {
            let arrived = self.arrived();
            ensure!(arrived >= goal, "{arrived} of {goal}");
            Ok(())
        })?;
        Ok(tasks)
    }

    /// How many of `count` requests at once the endpoints take; the others are told to come back.
    fn taken(&self, count: usize) -> Result<usize> {
        self.behave(&Behaviour::Hold);
        let before = self.arrived();
        let tasks = self.send(count);
        until("a decision about each request", || {
            let taken = (self.arrived() - before) as usize;
            let refused = tasks.iter().filter(|task| task.is_finished()).count();
            ensure!(taken + refused == count, "{taken} taken and {refused} refused of {count}");
            Ok(())
        })?;
        self.behave(&Behaviour::Ok);
        let mut taken = 0;
        for task in tasks {
            let response = block_on(task)??;
            match response.status {
                200 => taken += 1,
                _ => {
                    let retry_after = response.header("retry-after");
                    let is_told = response.status == 503 && retry_after.as_deref() == Some("1");
                    ensure!(is_told, "neither served nor told to come back: {response}");
                }
            }
        }
        Ok(taken)
    }

    /// With a limit of 1: every endpoint takes exactly one request, soon.
    fn is_idle(&self, after: &str) -> Result<()> {
        self.patch(json!({"backends": {"shop": {"max_in_flight": 1}}}))?;
        let expected = self.endpoints.len();
        until("all requests to be ended", || {
            let taken = self.taken(expected + 3)?;
            ensure!(taken == expected, "{taken} at once, not {expected}");
            Ok(())
        })
        .with_context(|| after.to_owned())?;
        self.patch(json!({"backends": {"shop": {}}}))
    }
}

fn count_in_flight(directory: &Directory) -> Result<()> {
    let mut plan = site::Plan::router(WORKERS)?;
    plan.main_config = "worker_shutdown_timeout 300ms;".into();
    let mut shop = Shop::start(directory, &plan, 5)?;
    shop.put(json!({}), &shop.native())?;
    shop.is_idle("at the start")?;

    // Endpoints leave and join while requests to them are under way.
    shop.behave(&Behaviour::Slow(Duration::from_millis(5)));
    let mut load = Plan::new(shop.site.http(), vec![Request::get("shop.test", "/")], 16);
    load.closes = Closes::Unanswered;
    let load = Load::start(load)?;
    let all = shop.native();
    for round in 0..100 {
        let kept = (0..all.len()).filter(|n| (round + n) % 5 != 0 && (round / 5 + n) % 5 != 0);
        let kept: Vec<_> = kept.map(|n| all[n].clone()).collect();
        shop.patch(json!({"endpoints": {"shop": kept}}))?;
        load.wait_for(4)?;
    }
    shop.patch(json!({"endpoints": {"shop": all}}))?;
    let report = load.stop();
    ensure!(report.failed == 0, "{:?}", report.failures.first());
    shop.is_idle("after changes of the set under load")?;

    // Workers die with requests under way, all but one, then that one as well.
    let held = shop.hold(24)?;
    let pids = shop.site.nginx.worker_pids();
    for pid in &pids[1..] {
        signal_pid(*pid, Signal::KILL)?;
    }
    until("the next workers", || {
        let now = shop.site.nginx.worker_pids();
        ensure!(now.len() == WORKERS && !pids[1..].iter().any(|pid| now.contains(pid)), "{now:?}");
        Ok(())
    })?;
    shop.site.nginx.kill_worker(pids[0])?;
    let answered = held.into_iter().filter_map(|task| block_on(task).ok()?.ok()).count();
    ensure!(answered == 0, "{answered} held requests were answered by killed workers");
    shop.is_idle("after workers were killed")?;

    // A worker that leaves breaks off what does not end in time.
    let held = shop.hold(12)?;
    shop.site.nginx.reload()?;
    for task in held {
        let _ = block_on(task)?;
    }
    shop.is_idle("after a reload that broke requests off")?;

    // Clients that go away.
    let held = shop.hold(12)?;
    held.iter().for_each(JoinHandle::abort);
    shop.is_idle("after clients went away")?;
    let log = shop.site.nginx.error_log();
    ensure!(!log.contains("panicked") && !log.contains("[emerg]"), "in the error log");
    Ok(())
}

fn hold_limit(directory: &Directory) -> Result<()> {
    let shop = Shop::start(directory, &site::Plan::router(WORKERS)?, 3)?;
    shop.put(json!({"max_in_flight": 4}), &shop.native())?;
    for round in 0..10 {
        let taken = shop.taken(60)?;
        ensure!(taken == 12, "round {round}: 3 endpoints with a limit of 4 took {taken}");
    }
    shop.site.nginx.check_error_log()
}

fn eject(directory: &Directory) -> Result<()> {
    let shop = Shop::start(directory, &site::Plan::router(2)?, 3)?;
    let ejection = json!({"failures": 3, "connect_failures": 0, "base_ms": 500, "max_ms": 1200});
    shop.put(json!({"ejection": ejection}), &shop.native())?;
    shop.endpoints[0].change(Behaviour::Reset);
    let address = shop.site.http();
    let get = || block_on(client::send(&address, &Request::get("shop.test", "/")));
    // One that fails again as soon as it is back; the last time is cut down to the longest.
    for milliseconds in [500, 1000, 1200] {
        until("a longer time", || {
            let response = get()?;
            ensure!(response.status == 200, "{response}");
            let text = format!("left out for {milliseconds} ms");
            ensure!(shop.site.nginx.error_log().contains(&text), "no `{text}`");
            Ok(())
        })?;
    }
    shop.endpoints[0].change(Behaviour::Ok);
    until("it to be back", || {
        let endpoint = get()?.endpoint();
        ensure!(endpoint.as_deref() == Some("e0"), "{endpoint:?}");
        Ok(())
    })?;
    shop.site.nginx.check_error_log()
}

fn start_slowly(directory: &Directory) -> Result<()> {
    const REQUESTS: usize = 300;
    const SLOW_START: Duration = Duration::from_secs(4);
    let mut plan = site::Plan::router(1)?;
    plan.http_config = "keepalive_requests 1000000;".into();
    let shop = Shop::start(directory, &plan, 3)?;
    let native = shop.native();
    let mut client = block_on(Connection::open(&shop.site.http()))?;
    // How many requests the last endpoint gets.
    let mut share = || -> Result<u64> {
        let before = shop.endpoints[2].requests();
        for _ in 0..REQUESTS {
            let response = block_on(client.send(&Request::get("shop.test", "/")))?;
            ensure!(response.status == 200, "{response}");
        }
        Ok(shop.endpoints[2].requests() - before)
    };
    shop.put(json!({"slow_start_ms": SLOW_START.as_millis()}), &native[..2])?;
    // Older than that, whatever else takes its time.
    std::thread::sleep(SLOW_START);
    let new = until("a look that is quick enough", || {
        shop.patch(json!({"endpoints": {"shop": native[..2]}}))?;
        let joined = Instant::now();
        shop.patch(json!({"endpoints": {"shop": native}}))?;
        let new = share()?;
        // Until then it has 28 % of its share at most: 28 requests.
        ensure!(joined.elapsed() < SLOW_START / 5, "{:?}", joined.elapsed());
        Ok(new)
    })?;
    ensure!(new < 60, "a new endpoint got {new} of {REQUESTS} requests");
    until("its full share", || {
        let share = share()?;
        ensure!(share > 95, "{share} of {REQUESTS} requests");
        Ok(())
    })
}

/// ingress-nginx's consistent hashing, written down once more.
mod reference {
    /// CRC-32 (IEEE), bit by bit.
    pub fn crc32(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            }
        }
        !crc
    }

    /// The points of a node.
    pub fn points(node: &str) -> impl Iterator<Item = u32> {
        let mut last = [0; 4];
        std::iter::repeat_with(move || {
            let point = crc32(&[node.as_bytes(), &last[..]].concat());
            last = point.to_le_bytes();
            point
        })
    }

    /// The node that a key leads to.
    pub fn node<'a>(nodes: &'a [String], key: &str) -> &'a str {
        let all = nodes.iter().flat_map(|node| points(node).take(160).map(move |p| (p, node)));
        let mut all: Vec<_> = all.collect();
        all.sort();
        let hash = crc32(key.as_bytes());
        all.iter().find(|(point, _)| *point >= hash).unwrap_or(&all[0]).1
    }
}

#[test]
fn the_reference_has_its_test_vectors() {
    let nodes: Vec<_> = (1..4).map(|n| format!("10.0.0.{n}:8080")).collect();
    let first: Vec<_> = reference::points(&nodes[0]).take(3).collect();
    assert_eq!(first, [0x4af5_10c3, 0xcde9_4f2d, 0x0902_5b75]);
    for (key, hash, node) in [
        ("/", 0x79d3_d2d4, 0),
        ("/foo", 0xaa27_dc47, 2),
        ("192.0.2.7", 0x3202_a502, 2),
        ("abc", 0x3524_41c2, 2),
        ("user-42", 0x7d06_b873, 2),
        ("/index.html", 0xea22_4b42, 0),
    ] {
        assert_eq!(reference::crc32(key.as_bytes()), hash, "{key}");
        assert_eq!(reference::node(&nodes, key), nodes[node], "{key}");
    }
    let sets = ["set1".to_owned(), "set2".to_owned()];
    let leads = ["/", "/foo", "192.0.2.7"].map(|key| reference::node(&sets, key));
    assert_eq!(leads, ["set2", "set1", "set2"]);
}

#[test]
fn keys_lead_where_the_reference_leads_them() {
    pass("hashing", hash);
}

/// By a key, and by an affinity cookie's.
fn hash(directory: &Directory) -> Result<()> {
    let shop = Shop::start(directory, &site::Plan::router(WORKERS)?, 5)?;
    let nodes: Vec<_> = shop.endpoints.iter().map(|e| e.address.to_string()).collect();
    let name = |key: &str| {
        let node = reference::node(&nodes, key);
        nodes.iter().position(|known| known == node).map(|place| format!("e{place}"))
    };
    let get = |request: Request| block_on(client::send(&shop.site.http(), &request));
    shop.put(json!({"hash_by": {"key": "${arg_user}$http_x_more"}}), &shop.native())?;
    for user in 0..100 {
        let request = Request::get("shop.test", &format!("/?user=u{user}"));
        let found = get(request.header("X-More", "-more"))?.endpoint();
        let expected = name(&format!("u{user}-more"));
        ensure!(found == expected, "user {user}: {found:?}, not {expected:?}");
    }
    let cookie = json!({"name": "route", "locations": {"shop.test": ["/"]}});
    shop.put(json!({"affinity": {"mode": "balanced", "cookie": cookie}}), &shop.native())?;
    for key in 0..50 {
        let request = Request::get("shop.test", "/");
        let found = get(request.header("Cookie", &format!("route=k{key}|tag")))?.endpoint();
        let expected = name(&format!("k{key}"));
        ensure!(found == expected, "key {key}: {found:?}, not {expected:?}");
    }
    // The key that a client gets leads back to the endpoint that answered.
    for _ in 0..50 {
        let response = get(Request::get("shop.test", "/"))?;
        let cookie = response.header("set-cookie").context("a cookie")?;
        let key = cookie.strip_prefix("route=").and_then(|rest| rest.split('|').next());
        let expected = name(key.context("a key")?);
        ensure!(response.endpoint() == expected, "{cookie}: not {expected:?}");
    }
    Ok(())
}
