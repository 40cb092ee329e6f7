//! Ingresses, paths, endpoints and certificates change in a folder while requests run: nothing is noticed.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Address, Request};
use oxigress_tests::controller::Controller;
use oxigress_tests::load::{Load, Plan, Report};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::{DEFAULT_CERTIFICATE, Shop};
use std::time::Duration;

const CONNECTIONS: usize = 8;
/// nginx's `keepalive_requests` as the skeleton has it.
const REQUESTS_PER_CONNECTION: u64 = 1_000;

#[test]
fn edits_of_the_folder_cost_no_request_no_worker_and_no_connection() {
    pass("no-reload", |directory| edit(directory, 4));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_no_reload() {
    pass("no-reload", |directory| edit(directory, 200));
}

fn edit(directory: &Directory, rounds: u32) -> Result<()> {
    let mut shop = Shop::new(
        Controller::start(directory, 2, &[])?,
        &["a", "b", "c"],
        &[("first", "tls.test"), ("second", "tls.test"), ("third", "added.test")],
    )?;
    shop.write(
        "keep.yaml",
        "$SERVICE(keep: a)\n$INGRESS(keep: keep.test/ keep, edited.test/keep keep)",
    )?;
    shop.write("moving.yaml", "$SERVICE(moving: a b)\n$INGRESS(moving: moving.test/ moving)")?;
    shop.write("secret.yaml", "$SECRET(tls: first)")?;
    shop.write("tls.yaml", "$SERVICE(tls: a)\n$INGRESS(tls: tls.test/ tls tls=tls)")?;
    shop.presents("tls.test", "first")?;

    let workers = shop.controller.worker_pids();
    ensure!(!workers.is_empty(), "no workers");
    let http = vec![
        Request::get("keep.test", "/"),
        Request::get("edited.test", "/keep/1"),
        Request::get("moving.test", "/"),
    ];
    let plan = |address, requests| Plan {
        pace: Duration::from_millis(10),
        requests_per_connection: REQUESTS_PER_CONNECTION,
        ..Plan::new(address, requests, CONNECTIONS)
    };
    let loads = [
        Load::start(plan(Address::http(shop.controller.http_port), http))?,
        Load::start(plan(
            Address::https(shop.controller.https_port, "tls.test"),
            vec![Request::get("tls.test", "/")],
        ))?,
    ];

    for round in 0..rounds {
        change_everything(&mut shop).with_context(|| format!("round {round}"))?;
        for load in &loads {
            load.wait_for(20)?;
        }
        ensure!(shop.controller.worker_pids() == workers, "workers changed in round {round}");
    }

    for load in loads {
        check(&load.stop())?;
    }
    ensure!(shop.controller.worker_pids() == workers, "workers changed");
    shop.controller.stop()?;
    let log = shop.controller.error_log();
    match log
        .lines()
        .find(|l| ["[alert]", "[emerg]", "[crit]", "panicked"].iter().any(|b| l.contains(b)))
    {
        Some(line) => anyhow::bail!("in the log: {line}"),
        None => Ok(()),
    }
}

/// Adds, edits and removes one thing of each kind, and looks that each is served.
fn change_everything(shop: &mut Shop) -> Result<()> {
    // An Ingress with its Service.
    shop.answers("new.test", "/", 404)?;
    shop.write("new.yaml", "$SERVICE(new: a)\n$INGRESS(new: new.test/ new)")?;
    shop.serves("new.test", "/", "a")?;
    shop.write("new.yaml", "$SERVICE(new: b)\n$INGRESS(new: new.test/ new, more.test/ new)")?;
    shop.serves("new.test", "/", "b")?;
    shop.serves("more.test", "/", "b")?;
    shop.remove("new.yaml")?;
    shop.answers("new.test", "/", 404)?;
    shop.answers("more.test", "/", 404)?;

    // A path.
    shop.write("edited.yaml", "$SERVICE(edited: b)\n$INGRESS(edited: edited.test/path edited)")?;
    shop.serves("edited.test", "/path", "b")?;
    shop.write("edited.yaml", "$SERVICE(edited: b)\n$INGRESS(edited: edited.test/other edited)")?;
    shop.answers("edited.test", "/path", 404)?;
    shop.serves("edited.test", "/other", "b")?;
    shop.remove("edited.yaml")?;
    shop.answers("edited.test", "/other", 404)?;
    shop.serves("edited.test", "/keep", "a")?;

    // Endpoints.
    for (set, one) in [("c", "c"), ("b", "b"), ("a", "a"), ("a b", "")] {
        let text = format!("$SERVICE(moving: {set})\n$INGRESS(moving: moving.test/ moving)");
        shop.write("moving.yaml", &text)?;
        if one.is_empty() {
            shop.answers("moving.test", "/", 200)?;
        } else {
            shop.serves("moving.test", "/", one)?;
            shop.serves("moving.test", "/", one)?;
        }
    }

    // A certificate.
    shop.write("secret.yaml", "$SECRET(tls: second)")?;
    shop.presents("tls.test", "second")?;
    shop.write("secret.yaml", "$SECRET(tls: first)")?;
    shop.presents("tls.test", "first")?;
    shop.write(
        "added.yaml",
        "$SECRET(added: third)\n$SERVICE(added: c)\n$INGRESS(added: added.test/ added tls=added)",
    )?;
    shop.presents("added.test", "third")?;
    shop.remove("added.yaml")?;
    shop.presents("added.test", DEFAULT_CERTIFICATE)?;
    shop.presents("tls.test", "first")
}

fn check(report: &Report) -> Result<()> {
    ensure!(
        report.failures.is_empty(),
        "{} of {} requests: {:?}",
        report.failures.len(),
        report.answered,
        report.failures.iter().take(5).collect::<Vec<_>>()
    );
    // A connection ends where nginx's own limit ends it, and nowhere else.
    let most = CONNECTIONS as u64 + report.answered / REQUESTS_PER_CONNECTION;
    ensure!(
        report.connections <= most,
        "{} connections for {}",
        report.connections,
        report.answered
    );
    println!(
        "{} answers on {} connections, the slowest after {:?}",
        report.answered, report.connections, report.slowest
    );
    Ok(())
}
