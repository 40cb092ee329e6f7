//! Documents with random damage: each is applied whole or refused, and nginx serves on.
//!
//! The damage is pseudo-random: a failure names its seed, and `OXIGRESS_SEED=N` repeats it.

use anyhow::{Context, Result, ensure};
use oxigress_fuzz::Random;
use oxigress_tests::certificate::Certificate;
use oxigress_tests::client::{Request, send};
use oxigress_tests::endpoint::Endpoint;
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::block_on;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn damaged_documents_are_applied_whole_or_refused() {
    pass("fuzz", |directory| fuzz(directory, |count, _| count < 400));
}

#[test]
#[ignore = "five minutes"]
fn soak_damaged_documents_are_applied_whole_or_refused() {
    pass("fuzz", |directory| fuzz(directory, |_, time| time < Duration::from_secs(300)));
}

/// What JSON, host names, paths, addresses and PEM make of it is up to the module.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b",",
    b":",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"65536",
    b"1e999",
    b"18446744073709551616",
    b"\\u0000",
    b"\\ud800",
    b"\xff",
    b"\x00",
    b"\r\n",
    b"..",
    b"//",
    b"%2f",
    b"*.",
    b"*",
    b"::1",
    b"0.0.0.0",
    b"256.1.1.1",
    b"-----BEGIN CERTIFICATE-----",
    b"\"\":",
    b"{}",
    b"\"version\":2,",
    b"[[[[[[[[",
    b"          ",
];

/// One to five places of a document are cut, doubled, exchanged or filled with something else.
fn damage(random: &mut Random, document: &[u8]) -> Vec<u8> {
    let mut bytes = document.to_vec();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(40)).min(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => drop(bytes.splice(at..at, random.of(PIECES).iter().copied())),
            4 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {
                let from = random.below(bytes.len() + 1);
                let to = (from + random.below(60)).min(bytes.len());
                let part = bytes[from..to].to_vec();
                bytes.splice(at..end, part);
            }
        }
    }
    bytes
}

/// One value of a document is exchanged for something else; it stays JSON.
fn exchange(random: &mut Random, document: &[u8]) -> Result<Vec<u8>> {
    let mut value = serde_json::from_slice(document)?;
    exchange_in(random, &mut value);
    Ok(serde_json::to_vec(&value)?)
}

fn exchange_in(random: &mut Random, value: &mut Value) {
    let goes_down = random.below(4) > 0;
    match value {
        Value::Object(object) if goes_down && !object.is_empty() => {
            let place = random.below(object.len());
            object.values_mut().nth(place).into_iter().for_each(|v| exchange_in(random, v));
        }
        Value::Array(array) if goes_down && !array.is_empty() => {
            let place = random.below(array.len());
            array.get_mut(place).into_iter().for_each(|v| exchange_in(random, v));
        }
        Value::Object(object) => drop(object.insert("extra".into(), odd(random))),
        Value::Array(array) => array.push(odd(random)),
        other => *other = odd(random),
    }
}

fn odd(random: &mut Random) -> Value {
    match random.below(9) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(random.number()),
        3 => json!(-1),
        4 => json!([]),
        5 => json!({}),
        6 => json!("a".repeat(random.below(70_000))),
        7 => json!(String::from_utf8_lossy(random.of::<&[u8]>(PIECES))),
        _ => json!({"shop": [{"address": "127.0.0.1", "port": random.below(70_000)}]}),
    }
}

struct Document {
    method: &'static str,
    path: &'static str,
    body: Vec<u8>,
}

fn documents(whole: &Value, certificate: &Certificate) -> Vec<Document> {
    let delta = json!({"version": 1, "upsert": {
        "settings": {"default_backend": "shop", "http_redirect_code": 307},
        "servers": {"*.wild.test": {"rules": [{"path": {"exact": "/a/b"}, "backend": "shop"}]}},
        "endpoints": {"shop": [{"address": "127.0.0.1", "port": 9}, {"address": "::1", "port": 9}]}},
        "remove": {"servers": ["gone.test"], "names": ["gone.test"]}});
    let backends = json!([{"name": "a-b-80", "service": {"spec": {}}, "port": 80,
        "sessionAffinityConfig": {"name": "cookie", "cookieSessionAffinity": {"name": "c"}},
        "endpoints": [{"address": "127.0.0.1", "port": "9"}], "trafficShapingPolicy": {"weight": 3}}]);
    let pem = format!("{}{}", certificate.chain, certificate.key);
    let servers = json!({"servers": {"shop.test": "u"}, "certificates": {"u": pem}});
    let document =
        |method, path, body: &Value| Document { method, path, body: body.to_string().into() };
    vec![
        document("PUT", "/configuration", whole),
        document("PATCH", "/configuration", &delta),
        document("POST", "/configuration/backends", &backends),
        document("POST", "/configuration/servers", &servers),
        document("POST", "/configuration/general", &json!({"bad_nodes": ["a", {"b": null}]})),
    ]
}

fn fuzz(directory: &Directory, goes_on: impl Fn(usize, Duration) -> bool) -> Result<()> {
    let seed = match std::env::var("OXIGRESS_SEED") {
        Ok(seed) => seed.parse().context("OXIGRESS_SEED is a number")?,
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64 | 1,
    };
    let mut random = Random::new(seed);
    let mut site = Site::start(&Plan::router(2)?, directory)?;
    let workers = site.nginx.worker_pids();
    let endpoint = Endpoint::start("shop")?;
    let certificate = Certificate::new("shop", &["shop.test"])?;
    let whole = json!({"version": 1, "snapshot": {
        "settings": {}, "servers": {"shop.test": {"rules": [
            {"path": {"prefix": "/"}, "backend": "shop"}, {"path": {"exact": "/x"}, "backend": "shop"}]}},
        "backends": {"shop": {}}, "endpoints": {"shop": [endpoint.native()]},
        "certificates": {"c": {"chain": certificate.chain, "key": certificate.key}},
        "names": {"shop.test": "c"}}});
    let documents = documents(&whole, &certificate);
    let (start, mut count, mut statuses) = (Instant::now(), 0, BTreeMap::<u16, usize>::new());
    while goes_on(count, start.elapsed()) {
        let document = &documents[random.below(documents.len())];
        let body = match random.below(2) {
            0 => damage(&mut random, &document.body),
            _ => exchange(&mut random, &document.body)?,
        };
        let number = count;
        let about = || {
            let text = String::from_utf8_lossy(&body).into_owned();
            format!("OXIGRESS_SEED={seed}, document {number}: {} {text}", document.path)
        };
        let before = block_on(site.configuration.status())?;
        let mut request = Configuration::request(document.method, document.path, body.clone());
        if document.method == "PATCH" {
            request = request.header("If-Match", "*");
        }
        let answer = block_on(site.configuration.send(&request)).with_context(about)?;
        *statuses.entry(answer.status).or_default() += 1;
        let after = block_on(site.configuration.status()).with_context(about)?;
        let is_applied = [200, 201].contains(&answer.status);
        ensure!(is_applied || (400..430).contains(&answer.status), "{}\n{answer}", about());
        let is_unchanged = (&before.epoch, before.generation, &before.counts)
            == (&after.epoch, after.generation, &after.counts);
        ensure!(is_applied || is_unchanged, "refused and changed: {}\n{after:?}", about());
        count += 1;
        if usize::is_multiple_of(count, 20) {
            // Whatever was applied, the next whole is served.
            let applied = block_on(site.configuration.put(whole.to_string()))?;
            ensure!(applied.status == 200, "{applied}\n{}", about());
            let served = block_on(send(&site.http(), &Request::get("shop.test", "/")))?;
            ensure!(served.endpoint().as_deref() == Some("shop"), "{served}\n{}", about());
            ensure!(site.nginx.worker_pids() == workers, "a worker ended: {}", about());
            site.nginx.check_error_log().with_context(about)?;
        }
    }
    println!("{count} damaged documents, answers by status: {statuses:?}");
    ensure!(statuses.keys().any(|status| *status == 400), "nothing was refused: {statuses:?}");
    ensure!(statuses.keys().any(|status| *status < 300), "nothing was applied: {statuses:?}");
    site.nginx.stop()?;
    site.nginx.check_error_log()
}
