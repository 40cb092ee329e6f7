//! Whatever records nginx refuses, exactly these are missing in the end.
//!
//! The publisher of the controller sends to a real nginx. Each case is a snapshot in one to four steps, in which some records
//! of each kind that nginx can refuse are bad: no such cipher, a chain that is none, a bundle that is no PEM, a buffer that is
//! too small. What nginx has in the end is compared with what it should have by a `PUT` of that: one that changes nothing
//! keeps the generation.

use anyhow::{Context, Result, bail, ensure};
use oxigress_core::model::Snapshot;
use oxigress_core::record::Kind;
use oxigress_core::record::table::{Operations, RecordRef};
use oxigress_core::wire::native::{Patch, Whole};
use oxigress_fuzz::Random;
use oxigress_publish::client::Client;
use oxigress_publish::{Next, Publisher, View};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::Address;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The numbers of records in a case.
const RECORDS: usize = 60;
/// More requests than any case takes: the rest would be a publisher that makes no progress.
const MOST_REQUESTS: usize = 400;

#[test]
fn exactly_the_refused_records_are_missing() {
    pass("refused", |directory| try_cases(directory, 40));
}

#[test]
#[ignore = "some minutes"]
fn soak_exactly_the_refused_records_are_missing() {
    pass("refused", |directory| try_cases(directory, 5_000));
}

fn try_cases(directory: &Directory, cases: usize) -> Result<()> {
    let mut site = Site::start(&Plan::router(2)?, directory)?;
    let seed = std::env::var("OXIGRESS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("OXIGRESS_SEED={seed}");
    let mut random = Random::new(seed);
    let pair = Certificate::new("a.test", &["a.test"])?;
    let mut sum = Effort::default();
    for case in 0..cases {
        let told = || format!("case {case} of OXIGRESS_SEED={seed}");
        let effort = try_case(&site, &pair, &mut random).with_context(told)?;
        sum.refused += effort.refused;
        sum.requests += effort.requests;
        sum.longest = sum.longest.max(effort.longest);
    }
    let Effort { refused, requests, longest } = sum;
    println!("{cases} cases: {refused} refused records, {requests} requests");
    println!("all other records of a change are live after {longest:.0?} at most");
    ensure!(refused > cases, "only {refused} records were refused");
    site.nginx.stop()?;
    site.nginx.check_error_log()
}

/// What a case took.
#[derive(Default)]
struct Effort {
    /// How many records were refused in the end.
    refused: usize,
    requests: usize,
    /// The longest time from a change until nothing of it was left to send.
    longest: Duration,
}

fn try_case(site: &Site, pair: &Certificate, random: &mut Random) -> Result<Effort> {
    let Address::Unix(socket) = &site.configuration.address else { bail!("no unix socket") };
    let mut client = Client::new(socket.clone());
    let mut publisher = Publisher::new(0);
    let mut old = Snapshot::default();
    let mut effort = Effort::default();
    for _ in 0..1 + random.below(4) {
        let numbers: Vec<usize> = (0..RECORDS).filter(|_| random.below(2) == 0).collect();
        let (new, refused) = snapshot(&numbers, pair, random)?;
        let begun = Instant::now();
        publisher.change(Patch::between(&old, &new));
        effort.requests += drain(&mut publisher, &mut client, &new)?;
        effort.longest = effort.longest.max(begun.elapsed());
        expect(site, &publisher, &new, &refused)?;
        effort.refused = refused.len();
        old = new;
    }
    Ok(effort)
}

/// Records of the numbers, some of them bad, and which these are.
fn snapshot(
    numbers: &[usize],
    pair: &Certificate,
    random: &mut Random,
) -> Result<(Snapshot, BTreeSet<RecordRef>)> {
    let mut tables = Map::new();
    let mut refused = BTreeSet::new();
    for number in numbers {
        let is_bad = random.below(3) == 0;
        let host = format!("h{number}.test");
        let (kind, table, key, value) = match number % 6 {
            0 => {
                let ciphers = if is_bad { "foo" } else { "ECDHE-RSA-AES128-GCM-SHA256" };
                (Kind::Tls, "tls", host, json!({ "ciphers": ciphers }))
            }
            1 => {
                let chain = if is_bad { "no PEM" } else { pair.chain.as_str() };
                let id = format!("n{}/t{number}", number % 3);
                (Kind::Certificate, "certificates", id, json!({"chain": chain, "key": pair.key}))
            }
            2 => {
                let bytes = if is_bad { 1 } else { 4096 + number };
                let value = json!({"proxy": {"buffer_bytes": bytes}});
                (Kind::Policies, "policies", format!("p{number}"), value)
            }
            3 if is_bad => (Kind::Bundle, "bundles", format!("{number:064x}"), json!("no PEM")),
            4 => {
                let rule = json!({"path": {"prefix": "/"}, "backend": format!("b{number}")});
                add(&mut tables, "servers", host, json!({ "rules": [rule] }));
                continue;
            }
            _ => {
                let port = 1 + random.below(60_000);
                let set = json!([{"address": "127.0.0.1", "port": port}]);
                add(&mut tables, "endpoints", format!("b{number}"), set);
                continue;
            }
        };
        if is_bad {
            refused.insert(RecordRef { kind, key: key.clone() });
        }
        add(&mut tables, table, key, value);
    }
    let document = json!({"version": 1, "snapshot": tables});
    let whole: Whole = serde_json::from_value(document).context("the model takes the records")?;
    Ok((whole.snapshot, refused))
}

fn add(tables: &mut Map<String, Value>, table: &str, key: String, value: Value) {
    tables.entry(table).or_insert_with(|| json!({}))[key] = value;
}

/// Sends until nothing is left to send; answers how many requests it took.
fn drain(publisher: &mut Publisher, client: &mut Client, snapshot: &Snapshot) -> Result<usize> {
    let view = View { snapshot, owner: &|_| None };
    let mut requests = 0;
    while publisher.is_behind() {
        let outgoing = publisher.outgoing(&view)?;
        let sending = client.send(outgoing.method, outgoing.if_match.as_deref(), outgoing.body);
        let next = publisher.answered(block_on(sending), Duration::ZERO, &view);
        // An nginx that is busy for a moment says when to come again.
        if let Next::After(pause) = next {
            ensure!(pause < Duration::from_secs(5), "it waits {pause:?}");
            std::thread::sleep(pause);
        }
        requests += 1;
        ensure!(requests < MOST_REQUESTS, "no end: {requests} requests");
    }
    Ok(requests)
}

/// nginx has everything, of refused records their closed forms or nothing, and the publisher says which they are.
fn expect(
    site: &Site,
    publisher: &Publisher,
    snapshot: &Snapshot,
    refused: &BTreeSet<RecordRef>,
) -> Result<()> {
    let withheld = publisher.writes().withheld;
    ensure!(withheld == refused.len() as u64, "{withheld} withheld, {} bad", refused.len());
    let mut patch = Patch::of_whole(snapshot.clone());
    for record in refused {
        let table = Operations::of_kind(record.kind).context("a kind that is no table")?;
        (table.withhold)(&mut patch, &record.key);
    }
    let live = block_on(site.configuration.tag())?;
    let whole = json!({"version": 1, "snapshot": patch.into_whole()});
    let answer = block_on(site.configuration.put(whole.to_string()))?;
    ensure!(answer.status == 200, "{answer}");
    let now = block_on(site.configuration.tag())?;
    ensure!(now == live, "what is live differs from what should be: {live} became {now}");
    Ok(())
}
