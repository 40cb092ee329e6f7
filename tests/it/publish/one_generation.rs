//! A request sees one generation: what removes its backend meanwhile costs it nothing.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Request, send};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{self, block_on};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// `shop.test` leads to one backend, and no other backend is there.
fn snapshot(backend: &str, endpoints: &[&Endpoint]) -> Value {
    let endpoints: Vec<_> = endpoints.iter().map(|endpoint| endpoint.native()).collect();
    let rule = json!({"path": {"prefix": "/"}, "backend": backend});
    json!({"version": 1, "snapshot": {"servers": {"shop.test": {"rules": [rule]}},
        "backends": {backend: {}}, "endpoints": {backend: endpoints}}})
}

fn put(site: &Site, snapshot: &Value) -> Result<()> {
    let answer = block_on(site.configuration.put(snapshot.to_string()))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

fn patch(site: &Site, patch: &Value) -> Result<()> {
    let tag = block_on(site.configuration.tag())?;
    let answer = block_on(site.configuration.patch(&tag, patch.to_string()))?;
    ensure!(answer.status == 200, "{answer}");
    Ok(())
}

/// A request that nginx has decided on, and whose body it waits for.
struct Waiting(TcpStream);

impl Waiting {
    fn start(site: &Site) -> Result<Self> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, site.http_port))?;
        stream.set_read_timeout(Some(wait::DEADLINE))?;
        stream.write_all(
            b"POST / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nContent-Length: 4\r\n\
              Expect: 100-continue\r\n\r\n",
        )?;
        // nginx says so when it begins to read the body, after its REWRITE phase.
        let mut line = [0; 25];
        stream.read_exact(&mut line)?;
        ensure!(line.starts_with(b"HTTP/1.1 100"), "{}", line.escape_ascii());
        Ok(Waiting(stream))
    }

    fn finish(mut self) -> Result<String> {
        self.0.write_all(b"body")?;
        let mut answer = String::new();
        self.0.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

#[test]
fn a_request_that_is_decided_reaches_the_backend_that_is_removed_meanwhile() {
    pass("removed-backend", |directory| {
        let site = Site::start(&Plan::router(2)?, directory)?;
        let (a, b) = (Endpoint::start("a")?, Endpoint::start("b")?);
        let to_b = snapshot("b", &[&b]);
        let upsert_b = &to_b["snapshot"];
        let removals: [(&str, Value); 4] = [
            ("PUT", to_b.clone()),
            (
                "PATCH",
                json!({"version": 1, "upsert": upsert_b,
                    "remove": {"backends": ["a"], "endpoints": ["a"]}}),
            ),
            ("PATCH", json!({"version": 1, "upsert": {"endpoints": {"a": []}}})),
            (
                "PATCH",
                json!({"version": 1, "remove": {"servers": ["shop.test"],
                "backends": ["a"], "endpoints": ["a"]}}),
            ),
        ];
        for (method, removal) in removals {
            put(&site, &snapshot("a", &[&a]))?;
            let waiting = Waiting::start(&site)?;
            if method == "PUT" { put(&site, &removal) } else { patch(&site, &removal) }?;
            // What comes later sees the new generation only.
            let later = block_on(send(&site.http(), &Request::get("shop.test", "/")))?;
            let is_new = later.endpoint().as_deref() == Some("b") || later.status > 400;
            ensure!(is_new, "{method} {removal}: {later}");
            patch(
                &site,
                &json!({"version": 1, "upsert": {"servers": {"other.test": {"rules": []}}}}),
            )?;
            let answer = waiting.finish()?;
            let is_served = answer.starts_with("HTTP/1.1 200") && answer.contains("ndpoint: a");
            ensure!(is_served, "{method} {removal}: {answer}");
        }
        site.nginx.check_error_log()
    });
}

#[test]
fn an_endpoint_that_has_gone_is_not_tried_where_others_are_there() {
    pass("newest-endpoints", |directory| {
        let site = Site::start(&Plan::router(2)?, directory)?;
        let (a, b) = (Endpoint::start("a")?, Endpoint::start("b")?);
        put(&site, &snapshot("shop", &[&a]))?;
        let waiting = Waiting::start(&site)?;
        patch(&site, &json!({"version": 1, "upsert": {"endpoints": {"shop": [b.native()]}}}))?;
        let answer = waiting.finish()?;
        ensure!(answer.contains("ndpoint: b") && a.connections() == 0, "{answer}");
        site.nginx.check_error_log()
    });
}

/// The backend goes while its endpoint has the request, and the endpoint goes then.
fn retry(
    site: &Site,
    begin: impl Fn(&[&Endpoint]) -> Result<()>,
    remove: impl Fn() -> Result<()>,
) -> Result<()> {
    let first = Endpoint::with("a", Behaviour::Hold, Ipv4Addr::LOCALHOST.into())?;
    let second = Endpoint::start("b")?;
    begin(&[&first, &second])?;
    // They take turns.
    let waiting = loop {
        let address = site.http();
        let request = async move { send(&address, &Request::get("shop.test", "/")).await };
        let request = wait::runtime().spawn(request);
        wait::until("a turn", || {
            ensure!(first.requests() > 0 || request.is_finished(), "nobody has the request");
            Ok(())
        })?;
        if first.requests() > 0 {
            break request;
        }
        ensure!(second.requests() < 10, "no request goes to the endpoint that holds it");
    };
    remove()?;
    drop(first);
    let answer = block_on(waiting)??;
    ensure!(answer.endpoint().as_deref() == Some("b"), "{answer}");
    Ok(())
}

#[test]
fn a_retry_finds_the_other_endpoints_of_a_backend_that_is_removed_meanwhile() {
    pass("removed-retry", |directory| {
        let site = Site::start(&Plan::router(2)?, directory)?;
        let begin = |endpoints: &[&Endpoint]| put(&site, &snapshot("shop", endpoints));
        retry(&site, begin, || put(&site, &json!({"version": 1, "snapshot": {}})))
    });
}

#[test]
fn so_does_one_of_ingress_nginxs_dialect() {
    pass("removed-retry-compatible", |directory| {
        let mut plan = Plan::router(2)?;
        plan.http_config = "upstream upstream_balancer {
            server 0.0.0.1;
            ingress_balancer $proxy_upstream_name;
        }"
        .into();
        plan.config = Some(
            "location / {
                set $proxy_upstream_name shop;
                proxy_pass http://upstream_balancer;
            }"
            .into(),
        );
        let site = Site::start(&plan, directory)?;
        let post = |backends: Value| {
            let path = "/configuration/backends";
            let request = Configuration::request("POST", path, backends.to_string());
            let answer = block_on(site.configuration.send(&request))?;
            ensure!(answer.status == 201, "{answer}");
            Ok(())
        };
        let begin = |endpoints: &[&Endpoint]| {
            let endpoints: Vec<_> =
                endpoints.iter().map(|endpoint| endpoint.compatible()).collect();
            post(json!([{"name": "shop", "endpoints": endpoints}]))
        };
        retry(&site, begin, || post(json!([])))
    });
}

#[test]
fn what_is_kept_of_removed_backends_takes_a_part_of_the_zone() {
    pass("removed-bounded", |directory| {
        let site = Site::start(&Plan::router(1)?, directory)?;
        let of = |backend: &str| {
            let mut snapshot = snapshot(backend, &[]);
            let endpoints =
                (1..=50).map(|n| json!({"address": format!("127.0.1.{n}"), "port": 80}));
            snapshot["snapshot"]["endpoints"][backend] = endpoints.collect();
            snapshot
        };
        put(&site, &of("first"))?;
        let before = block_on(site.configuration.status())?;
        for round in 0..400 {
            put(&site, &of(&format!("backend-{round}")))?;
        }
        // What was replaced is free when the workers have moved on.
        let most = before.capacity_bytes / 8;
        wait::until("room", || {
            let now = block_on(site.configuration.status())?;
            let taken = before.free_bytes.saturating_sub(now.free_bytes);
            ensure!(taken < most, "{taken} bytes are taken, {most} at most");
            Ok(())
        })?;
        site.nginx.check_error_log()
    });
}

#[test]
fn a_host_that_moves_between_backends_under_load_costs_no_request() {
    pass("moving-host", |directory| moves(directory, 200));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_a_host_that_moves() {
    pass("moving-host-soak", |directory| moves(directory, 20_000));
}

/// One of two attempts fails, so half of the requests are under way for longer than a moment when the other backend
/// takes the place of theirs.
fn moves(directory: &Directory, rounds: usize) -> Result<()> {
    let site = Site::start(&Plan::router(2)?, directory)?;
    let closes = Endpoint::with("closes", Behaviour::Close, Ipv4Addr::LOCALHOST.into())?;
    let endpoints = [Endpoint::start("a")?, Endpoint::start("b")?];
    put(&site, &snapshot("a", &[&closes, &endpoints[0]]))?;
    let requests = vec![Request::get("shop.test", "/")];
    let plan = LoadPlan {
        pace: Duration::ZERO,
        requests_per_connection: 1_000,
        ..LoadPlan::new(site.http(), requests, 16)
    };
    let load = Load::start(plan)?;
    for round in 1..=rounds {
        let [from, to] = [["a", "b"], ["b", "a"]][(round + 1) % 2];
        let to_other = snapshot(to, &[&closes, &endpoints[round % 2]]);
        let change = json!({"version": 1, "upsert": to_other["snapshot"],
            "remove": {"backends": [from], "endpoints": [from]}});
        patch(&site, &change).with_context(|| format!("round {round}"))?;
        load.wait_for(1)?;
    }
    let report = load.stop();
    println!("{} requests, {rounds} moves", report.answered);
    let (failed, first) = (report.failed, report.failures.first());
    ensure!(failed == 0, "{failed} of {}: {first:?}", report.answered);
    site.nginx.check_error_log()
}
