//! The end of the product itself: a rolling update behind a Service that notices late loses no request, and clients on
//! kept connections are told to go.
//!
//! The Service is a fake, [`Forwarder`]; the kubelet is the test, which sends SIGTERM.

use anyhow::{Result, ensure};
use oxigress_tests::client::{Address, Connection, Request, send};
use oxigress_tests::controller::Controller;
use oxigress_tests::endpoint::Behaviour;
use oxigress_tests::forwarder::Forwarder;
use oxigress_tests::load::{Closes, Load, Plan};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::signal_pid;
use oxigress_tests::protocol::http2;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::{block_on, runtime, until};
use rustix::process::Signal;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// How late the Service notices.
const LATE: Duration = Duration::from_millis(700);
/// Longer than that by far, so that a busy machine decides nothing.
const GRACE: &str = "--shutdown-grace-period=6";
/// Nothing ends by itself within a test.
const LONG_GRACE: &str = "--shutdown-grace-period=3600";

#[test]
fn a_rolling_update_of_the_product_loses_no_request() {
    pass("update", |directory| update(directory, 1));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_rolling_update() {
    pass("update", |directory| update(directory, 20));
}

#[test]
fn clients_are_told_to_go_while_all_is_served_as_before() {
    pass("drain", |directory| tell(directory, false));
}

#[test]
fn clients_are_told_to_go_by_roles_apart() {
    pass("drain-apart", |directory| tell(directory, true));
}

#[test]
fn a_role_that_comes_back_takes_the_end_back() {
    pass("drain-back", come_back);
}

struct Replica {
    shop: Shop,
    number: usize,
}

/// `name` is short: sockets have a limit.
fn start(directory: &Directory, name: &str, is_apart: bool, grace: &str) -> Result<Shop> {
    let own = directory.within(name)?;
    let flags = [grace.to_owned()];
    let controller = match is_apart {
        true => Controller::start_apart(&own, 2, &flags)?,
        false => Controller::start(&own, 2, &flags)?,
    };
    let mut shop = Shop::new(controller, &["a"], &[("first", "tls.test")])?;
    shop.write("keep.yaml", "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep)")?;
    shop.write(
        "tls.yaml",
        "$SECRET(tls: first)\n$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)",
    )?;
    Ok(shop)
}

fn replica(
    directory: &Directory,
    name: &str,
    is_apart: bool,
    service: &mut Forwarder,
) -> Result<Replica> {
    let shop = start(directory, name, is_apart, GRACE)?;
    let controller = &shop.controller;
    // Readiness of nginx itself, and of the controller where it is one process.
    let health = if is_apart { controller.http_port } else { controller.health_port };
    let number = service.add(vec![controller.http_port, controller.https_port], health);
    Ok(Replica { shop, number })
}

/// Two replicas, replaced one after the other, as a Deployment does with `maxSurge: 1`.
fn update(directory: &Directory, rounds: usize) -> Result<()> {
    let mut service = Forwarder::start(2, LATE)?;
    let mut replicas = Vec::new();
    for is_apart in [false, true] {
        let name = format!("{}", replicas.len());
        replicas.push(replica(directory, &name, is_apart, &mut service)?);
    }
    for old in &replicas {
        service.wait_for(old.number, true)?;
    }
    let loads = loads(&service)?;
    let mut replaced = 0;
    for _ in 0..rounds {
        for is_apart in [false, true] {
            let mut old = replicas.remove(0);
            old.shop.controller.ask_to_end()?;
            let name = format!("{}", replaced + 2);
            let new = replica(directory, &name, is_apart, &mut service)?;
            service.wait_for(old.number, false)?;
            old.shop.controller.wait_for_end()?;
            service.wait_for(new.number, true)?;
            for load in &loads {
                load.wait_for(20)?;
            }
            replicas.push(new);
            replaced += 1;
        }
    }
    let (mut answered, mut connections) = (0, 0);
    for report in loads.into_iter().map(Load::stop) {
        ensure!(report.failed == 0, "{} lost: {:?}", report.failed, report.failures);
        ensure!(report.closed_idle == 0, "{} closed while idle", report.closed_idle);
        answered += report.answered;
        connections += report.connections;
    }
    println!(
        "{replaced} replicas replaced: {answered} answers on {connections} connections, 0 lost"
    );
    for replica in &mut replicas {
        // Twice: the second one ends the wait.
        replica.shop.controller.stop_at_once()?;
    }
    Ok(())
}

/// Kept and fresh connections, plain and with TLS. A connection may end with `Connection: close` and in no other way.
fn loads(service: &Forwarder) -> Result<Vec<Load>> {
    let [http, https] = service.addresses[..] else { anyhow::bail!("two ports") };
    let plain = (Address::Tcp(http), Request::get("keep.test", "/"));
    let tls = (Address::Tls(https, Some("tls.test".into())), Request::get("tls.test", "/"));
    let kinds =
        [(plain.clone(), false, 4), (tls.clone(), false, 2), (plain, true, 2), (tls, true, 1)];
    let loads = kinds.into_iter().map(|((address, request), is_fresh, connections)| {
        Load::start(Plan {
            is_fresh,
            closes: Closes::Idle,
            check: Some(Arc::new(|_, response| {
                let found = (response.status, response.endpoint());
                ensure!(found == (200, Some("a".into())), "{found:?}");
                Ok(())
            })),
            pace: Duration::from_millis(10),
            ..Plan::new(address, vec![request], connections)
        })
    });
    loads.collect()
}

fn health(port: u16) -> Result<u16> {
    let answer = block_on(send(&Address::http(port), &Request::get("localhost", "/healthz")));
    answer.map(|answer| answer.status)
}

/// What a client sees of one replica before and after SIGTERM, and what a second one does.
fn tell(directory: &Directory, is_apart: bool) -> Result<()> {
    let mut shop = start(directory, "one", is_apart, LONG_GRACE)?;
    let (http, https) = (shop.controller.http_port, shop.controller.https_port);
    shop.controller.is_ready()?;
    ensure!(health(http)? == 200, "nginx's health before");
    let mut kept = block_on(Connection::open(&Address::http(http)))?;
    let request = Request::get("keep.test", "/");
    let answer = block_on(kept.send(&request))?;
    ensure!(answer.header("connection").as_deref() == Some("keep-alive"), "before: {answer}");
    let tls = (Ipv4Addr::LOCALHOST, https).into();
    let http2 = block_on(http2::Client::connect(tls, Some("tls.test")))?;
    let get = || block_on(http2.send(hyper::Method::GET, "tls.test", "/", &[], ""));
    for _ in 0..3 {
        ensure!(get()?.status == 200, "HTTP/2 before");
    }

    shop.controller.ask_to_end()?;
    until("health to say it", || {
        let found = (health(http)?, health(shop.controller.health_port)?);
        ensure!(found == (503, 500), "{found:?}");
        Ok(())
    })?;
    // New connections are served as before; each worker says close within a fifth of a second.
    until("Connection: close", || {
        let answer = block_on(send(&Address::http(http), &request))?;
        ensure!(answer.status == 200, "new connection: {answer}");
        ensure!(answer.header("connection").as_deref() == Some("close"), "{answer}");
        Ok(())
    })?;
    until("Connection: close on a kept connection", || {
        let answer = block_on(kept.send(&request))?;
        ensure!(answer.status == 200, "kept connection: {answer}");
        ensure!(answer.header("connection").as_deref() == Some("close"), "{answer}");
        Ok(())
    })?;
    // h2 opens no stream after a GOAWAY.
    let mut answered = 0;
    while let Ok(answer) = get() {
        ensure!(answer.status == 200, "HTTP/2: {answer:?}");
        answered += 1;
        ensure!(answered < 10_000, "no GOAWAY after {answered} requests");
    }
    ensure!(answered > 0, "no request of HTTP/2 was answered");
    // What changes meanwhile is served.
    shop.write("later.yaml", "$SERVICE(later: a)\n$INGRESS(later: later.test/ later)")?;
    shop.serves("later.test", "/", "a")?;
    what_is_under_way_is_answered(&mut shop)?;
    shop.controller.wait_for_end()
}

/// A request that is under way when the wait ends.
fn what_is_under_way_is_answered(shop: &mut Shop) -> Result<()> {
    let http = shop.controller.http_port;
    shop.behave("a", Behaviour::Hold)?;
    let before = shop.requests("a")?;
    let held = runtime().spawn(async move {
        send(&Address::http(http), &Request::get("keep.test", "/held")).await
    });
    until("the request to be under way", || {
        ensure!(shop.requests("a")? > before, "the endpoint has no more than {before}");
        Ok(())
    })?;
    // A signal that comes at once is taken for the first one, told twice.
    std::thread::sleep(Duration::from_millis(400));
    shop.controller.ask_to_end()?;
    until("nginx to listen no more", || {
        ensure!(health(http).is_err(), "it does");
        Ok(())
    })?;
    shop.behave("a", Behaviour::Ok)?;
    let answer = block_on(held)??;
    ensure!(answer.status == 200, "under way: {answer}");
    Ok(())
}

/// The nginx role is killed while it waits; its next run finds an nginx that says it is about to end.
fn come_back(directory: &Directory) -> Result<()> {
    let mut shop = start(directory, "one", true, LONG_GRACE)?;
    let http = Address::http(shop.controller.http_port);
    let connection = |request: Request| -> Result<(u16, Option<String>)> {
        let answer = block_on(send(&http, &request))?;
        Ok((answer.status, answer.header("connection")))
    };
    let role = shop.controller.role_pid("nginx")?;
    signal_pid(role, Signal::TERM)?;
    until("the wait", || {
        let found = connection(Request::get("keep.test", "/"))?;
        ensure!(found == (200, Some("close".into())), "{found:?}");
        Ok(())
    })?;
    signal_pid(role, Signal::KILL)?;
    shop.controller.start_again(&[])?;
    until("keep-alive again", || {
        let found = connection(Request::get("keep.test", "/"))?;
        ensure!(found == (200, Some("keep-alive".into())), "{found:?}");
        Ok(())
    })?;
    shop.controller.stop_at_once()
}
