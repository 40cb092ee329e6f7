//! The text of private keys is in the zone, which no core file has, and nowhere else in nginx's memory: what a write brings
//! with it is overwritten when it is freed. And no process of the product writes a core file at all.

use anyhow::{Context, Result, bail, ensure};
use oxigress_tests::certificate::Certificate;
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::process::{entries, is_alive};
use oxigress_tests::shipped::Shipped;
use oxigress_tests::wait::{block_on, until};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

#[test]
fn no_key_stays_in_freed_memory() {
    pass("secrets-memory", freed_memory);
}

#[test]
fn no_process_writes_a_core_file() {
    pass("secrets-core", |directory| {
        let shipped = Shipped::start(directory, 2)?;
        let processes = processes(directory)?;
        ensure!(processes.len() >= 4, "the role, a master and two workers: {processes:?}");
        for pid in processes {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
            let cores = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
            let cores: Vec<_> =
                cores.context("no limit of core files")?.split_whitespace().collect();
            ensure!(cores.starts_with(&["0", "0"]), "process {pid}: {cores:?}");
        }
        shipped.check()
    });
}

fn freed_memory(directory: &Directory) -> Result<()> {
    let shipped = Shipped::start(directory, 2)?;
    let endpoint = &shipped.configuration;
    // A key for each way of a write.
    let keys: Vec<Certificate> = ["small", "large", "invalid", "cut-off", "patched"]
        .into_iter()
        .map(|name| Certificate::new(name, &["shop.test"]))
        .collect::<Result<_>>()?;
    let [small, large, invalid, cut_off, patched] = keys.as_slice() else {
        bail!("five keys");
    };

    // On the event loop.
    let applied = block_on(endpoint.put(whole(&[small], 0).to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    // On a thread, in several reads.
    let applied = block_on(endpoint.put(whole(&[small, large], 300_000).to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    let delta = json!({"version": 1, "upsert": {"certificates": {"patched": pair(patched)}}});
    let tag = block_on(endpoint.tag())?;
    let applied = block_on(endpoint.patch(&tag, delta.to_string()))?;
    ensure!(applied.status == 200, "{applied}");
    // The key of another certificate: parsed, and refused.
    let mut wrong = whole(&[invalid], 0);
    wrong["snapshot"]["certificates"]["invalid"]["chain"] = json!(small.chain);
    let refused = block_on(endpoint.send(&Configuration::request(
        "PUT",
        "/configuration",
        wrong.to_string(),
    )))?;
    ensure!(refused.status == 400, "{refused}");
    // One that never comes to its end.
    let socket = directory.join("run/configuration.sock");
    let body = whole(&[cut_off], 100_000).to_string();
    let mut client = UnixStream::connect(&socket)?;
    write!(client, "{}Content-Length: {}\r\n\r\n{body}", head(), body.len() + 1)?;
    drop(client);

    let zone = until("the last writes to be over", || {
        let mut zones = 0;
        for pid in processes(directory)? {
            match look(pid, &keys) {
                Ok(more) => zones += more,
                // nginx's cache loader ends by itself.
                Err(_) if !is_alive(pid) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(zones)
    })?;
    ensure!(zone > 0, "the live key is in no shared memory: nothing is proved");
    shipped.check()
}

/// Fails if private memory of a process has a key; counts the shared mappings that do, which core files leave out.
fn look(pid: u32, keys: &[Certificate]) -> Result<usize> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut zones = 0;
    let starts: Vec<_> = maps.match_indices("VmFlags:").map(|(at, _)| at).collect();
    let mut rest = 0;
    for end in starts {
        let entry = &maps[rest..end];
        let flags = maps[end..].lines().next().unwrap_or_default();
        rest = end + flags.len() + 1;
        let mut words = entry.lines().next().unwrap_or_default().split_whitespace();
        let (range, rights) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (Some((from, to)), true) = (range.split_once('-'), rights.starts_with("rw")) else {
            continue;
        };
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        let mut bytes = vec![0; usize::try_from(to - from)?];
        // Some of the kernel's own cannot be read.
        if memory.read_exact_at(&mut bytes, from).is_err() {
            continue;
        }
        if rights.ends_with('s') {
            // This one is live.
            let [.., live] = keys else { bail!("no key") };
            if contains(&bytes, secret(live)?) {
                let is_left_out = flags.split(' ').any(|flag| flag == "dd");
                ensure!(is_left_out, "{range} would be in a core file: {flags}");
                zones += 1;
            }
            continue;
        }
        for key in keys {
            let mapping = entry.lines().next().unwrap_or_default();
            let is_there = contains(&bytes, secret(key)?);
            ensure!(!is_there, "process {pid} has the key of {} in {mapping}", key.name);
        }
    }
    Ok(zones)
}

/// What only somebody who had the key has: a whole line of its PEM text. What OpenSSL makes of it, decoded, is OpenSSL's
/// to clear, and version 3.0 does not.
fn secret(key: &Certificate) -> Result<&[u8]> {
    let mut lines = key.key.lines().filter(|line| !line.starts_with('-'));
    Ok(lines.nth(1).context("a key has more than a line")?.as_bytes())
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    let first = wanted[0];
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(wanted) {
            return true;
        }
        from += at + 1;
    }
    false
}

fn pair(certificate: &Certificate) -> Value {
    json!({"chain": certificate.chain, "key": certificate.key})
}

/// A document with these certificates, and longer by about `more` bytes.
fn whole(certificates: &[&Certificate], more: usize) -> Value {
    let certificates: serde_json::Map<_, _> =
        certificates.iter().map(|c| (c.name.clone(), pair(c))).collect();
    let backends: serde_json::Map<_, _> =
        (0..more / 20).map(|n| (format!("backend-{n:06}"), json!({}))).collect();
    json!({"version": 1, "snapshot": {"certificates": certificates, "backends": backends}})
}

fn head() -> &'static str {
    "PUT /configuration HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
}

/// The nginx role, its master and the workers.
fn processes(directory: &Directory) -> Result<Vec<u32>> {
    let all = entries();
    let master: u32 = fs::read_to_string(directory.join("run/nginx.pid"))?.trim().parse()?;
    let role = all.iter().find(|entry| entry.pid == master).context("no master")?.parent;
    let workers = all.iter().filter(|entry| entry.parent == master).map(|entry| entry.pid);
    Ok([role, master].into_iter().chain(workers).collect())
}
