//! nginx with nothing left: a configuration write still gets through, and what is served is right.

use anyhow::{Context, Result, ensure};
use oxigress_tests::client::{Connection, Request, Response, TIMEOUT, send};
use oxigress_tests::crowd::{Crowd, Rush};
use oxigress_tests::endpoint::{Behaviour, Endpoint};
use oxigress_tests::load::{Load, Plan as LoadPlan};
use oxigress_tests::nginx::Configuration;
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::site::{Plan, Site};
use oxigress_tests::wait::{block_on, runtime, until};
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The promise: a write is applied within a second while nothing is left. The one time that decides a test.
const PROMISED: Duration = Duration::from_secs(1);
/// More writes than connections are kept back, so that each must come back after its use.
const WRITES: u64 = 40;
/// Between two bytes of a slow client; nothing waits on it.
const PACE: Duration = Duration::from_millis(10);

#[test]
fn a_write_is_applied_within_a_second_with_all_connections_in_use() {
    pass("connections", |directory| use_up_connections(directory, 1, WRITES));
}

#[test]
fn a_write_is_applied_within_a_second_with_all_connections_of_three_workers_in_use() {
    pass("connections", |directory| use_up_connections(directory, 3, WRITES));
}

#[test]
fn a_write_is_applied_within_a_second_with_all_descriptors_in_use() {
    pass("descriptors", |directory| use_up_descriptors(directory, 1, WRITES));
}

#[test]
fn a_write_is_applied_within_a_second_with_all_descriptors_of_three_workers_in_use() {
    pass("descriptors", |directory| use_up_descriptors(directory, 3, WRITES));
}

#[test]
#[ignore = "minutes: make soak"]
fn soak_pressure() {
    for workers in [1, 2, 4] {
        pass("connections", |directory| use_up_connections(directory, workers, 2_000));
        pass("descriptors", |directory| use_up_descriptors(directory, workers, 2_000));
    }
}

fn use_up_connections(directory: &Directory, workers: usize, writes: u64) -> Result<()> {
    let mut plan = plan(workers)?;
    plan.worker_connections = 64;
    let mut trial = Trial::start(&plan, directory)?;
    let port = trial.site.http_port;
    let mut crowd = Crowd::new(port, "shop.test");
    // Which worker gets a client is the kernel's choice: so many refusals in a row mean all are full.
    block_on(crowd.fill(64 * workers))?;
    trial.wait_for_log("worker_connections are not enough", workers)?;
    // From now on whatever a client gives back is taken at once.
    let rush = Rush::start(port, "shop.test", 4);
    // These say nothing yet. nginx would close them to make room for others.
    let mut quiet = Vec::new();
    for _ in 0..3 {
        quiet.push(block_on(Connection::open(&trial.site.configuration.address))?);
    }
    trial.write_often(writes)?;
    let tried = rush.tried();
    until("the rush to go on", || {
        ensure!(rush.tried() > tried + 20, "{} tries", rush.tried() - tried);
        Ok(())
    })?;
    for connection in &mut quiet {
        let request = Configuration::request("GET", "/configuration", "");
        let status = block_on(connection.send(&request)).context("a quiet client")?;
        ensure!(status.status == 200, "{status}");
    }
    ensure!(!crowd.is_empty(), "nobody was held");
    drop((crowd, rush, quiet));
    trial.end(workers)
}

fn use_up_descriptors(directory: &Directory, workers: usize, writes: u64) -> Result<()> {
    let mut plan = plan(workers)?;
    plan.main_config = "worker_rlimit_nofile 128;".into();
    let mut trial = Trial::start(&plan, directory)?;
    let mut crowd = Crowd::new(trial.site.http_port, "shop.test");
    until("all descriptors to be in use", || {
        ensure!(crowd.len() < 400 * workers, "there is no end of descriptors");
        block_on(crowd.queue(16))?;
        trial.look_for_log("Too many open files", workers)
    })?;
    // Many more wait at the door: nginx asks for them, in vain, all the time.
    block_on(crowd.queue(32 * workers))?;
    let quiet = block_on(Connection::open(&trial.site.configuration.address))?;
    trial.write_often(writes)?;
    ensure!(!quiet.is_closed(), "a quiet client was closed");
    drop((crowd, quiet));
    trial.end(workers)
}

fn plan(workers: usize) -> Result<Plan> {
    let mut plan = Plan::router(workers)?;
    // The crowd stays.
    plan.http_config =
        "client_body_timeout 1h; client_header_timeout 1h; keepalive_requests 1000000;".into();
    Ok(plan)
}

struct Trial {
    site: Site,
    endpoints: [Endpoint; 2],
    written: u64,
}

impl Trial {
    fn start(plan: &Plan, directory: &Directory) -> Result<Self> {
        let site = Site::start(plan, directory)?;
        let endpoints = [Endpoint::start("0")?, Endpoint::start("1")?];
        let whole = json!({"version": 1, "snapshot": {
            "servers": {"shop.test": {"rules": [{"path": {"prefix": "/"}, "backend": "shop"}]}},
            "backends": {"shop": {}}, "endpoints": {"shop": [endpoints[0].native()]}}});
        let response = block_on(site.configuration.put(whole.to_string()))?;
        ensure!(response.status == 200, "{response}");
        Ok(Trial { site, endpoints, written: 0 })
    }

    /// The endpoint that the last write made the only one.
    fn endpoint(&self) -> &Endpoint {
        &self.endpoints[(self.written % 2) as usize]
    }

    /// Changes the endpoint; how long that took.
    fn write(&mut self) -> Result<Duration> {
        self.written += 1;
        let delta = json!({"version": 1, "upsert": {"endpoints": {
            "shop": [self.endpoint().native()]}}});
        let request = Configuration::request("PATCH", "/configuration", delta.to_string());
        let request = request.header("If-Match", "*");
        let start = Instant::now();
        let response = block_on(self.site.configuration.send(&request))?;
        let took = start.elapsed();
        ensure!(response.status == 200, "{response}");
        Ok(took)
    }

    fn write_often(&mut self, writes: u64) -> Result<()> {
        let before = block_on(self.site.configuration.status())?.generation;
        let mut slowest = Duration::ZERO;
        for number in 0..writes {
            let took = self.write().with_context(|| format!("write {number}"))?;
            ensure!(took < PROMISED, "write {number} took {took:?}");
            slowest = slowest.max(took);
        }
        let after = block_on(self.site.configuration.status())?.generation;
        ensure!(after == before + writes, "{writes} writes: generation {before} became {after}");
        println!("{writes} writes, the slowest took {slowest:?}");
        Ok(())
    }

    /// Each worker has logged `text`.
    fn look_for_log(&self, text: &str, workers: usize) -> Result<()> {
        let log = self.site.nginx.error_log();
        let pids = self.site.nginx.worker_pids();
        let has = |pid: &&u32| {
            let name = format!(" {pid}#");
            log.lines().any(|line| line.contains(text) && line.contains(&name))
        };
        let found = pids.iter().filter(has).count();
        ensure!(found == workers, "{found} of {workers} workers logged {text:?}");
        Ok(())
    }

    fn wait_for_log(&self, text: &str, workers: usize) -> Result<()> {
        until("the error log", || self.look_for_log(text, workers))
    }

    fn get(&self) -> Result<Response> {
        block_on(send(&self.site.http(), &Request::get("shop.test", "/")))
    }

    /// The pressure is gone: the last write is served, and nothing is left behind.
    fn end(mut self, workers: usize) -> Result<()> {
        let expected = self.endpoint().name.clone();
        until("requests to be answered again", || {
            // Several, so that each worker has a part in it.
            for _ in 0..8 * workers {
                let response = self.get()?;
                ensure!(response.endpoint().as_ref() == Some(&expected), "{response}");
            }
            Ok(())
        })?;
        // A worker that ends gently looks for connections that were forgotten.
        let pids = self.site.nginx.worker_pids();
        self.site.nginx.reload()?;
        for pid in pids {
            let exited = format!(" {pid}#{pid}: exit");
            until("the old workers to end", || {
                ensure!(self.site.nginx.error_log().contains(&exited), "worker {pid} goes on");
                Ok(())
            })?;
        }
        ensure!(self.get()?.status == 200, "after a reload");
        self.site.nginx.stop()?;
        let log = self.site.nginx.error_log();
        let is_bad = |line: &&str| {
            ["[alert]", "[crit]", "[emerg]", "panicked"].iter().any(|bad| line.contains(bad))
                && !line.contains("worker_connections are not enough")
                && !line.contains("Too many open files")
        };
        match log.lines().find(is_bad) {
            Some(line) => anyhow::bail!("in the error log: {line}"),
            None => Ok(()),
        }
    }
}

#[test]
fn slow_clients_hold_nobody_up() {
    pass("slow", |directory| be_slow(directory, 20, 100));
}

/// Heads and bodies that come a byte at a time, and answers that are read so.
fn be_slow(directory: &Directory, each: usize, writes: u64) -> Result<()> {
    let mut trial = Trial::start(&plan(2)?, directory)?;
    let behaviour = Behaviour::Large(4 << 20);
    let large = Endpoint::with("large", behaviour, Ipv4Addr::LOCALHOST.into())?;
    let delta = json!({"version": 1, "upsert": {"backends": {"large": {}},
        "servers": {"large.test": {"rules": [{"path": {"prefix": "/"}, "backend": "large"}]}},
        "endpoints": {"large": [large.native()]}}});
    let response = block_on(
        trial
            .site
            .configuration
            .patch(&block_on(trial.site.configuration.tag())?, delta.to_string()),
    )?;
    ensure!(response.status == 200, "{response}");
    let slow = block_on(Slow::start(trial.site.http_port, each))?;
    let requests = vec![Request::get("shop.test", "/")];
    let load = Load::start(LoadPlan::new(trial.site.http(), requests, 8))?;
    slow.wait_for(20)?;
    trial.write_often(writes)?;
    load.wait_for(500)?;
    slow.wait_for(20)?;
    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    // Whoever is slow is served in the end, from what is live then.
    let expected = format!("x-endpoint: {}\r\n", trial.endpoint().name);
    for text in block_on(slow.finish())? {
        ensure!(text.contains(" 200 OK") && text.contains(&expected), "{text}");
    }
    trial.end(2)
}

/// Slow clients, each with a task of its own that sends or reads one byte now and then.
struct Slow {
    steps: Arc<AtomicU64>,
    is_enough: Arc<AtomicBool>,
    senders: Vec<JoinHandle<Result<String>>>,
    readers: Vec<JoinHandle<Result<()>>>,
}

impl Slow {
    async fn start(port: u16, each: usize) -> Result<Self> {
        let (steps, is_enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (mut senders, mut readers) = (Vec::new(), Vec::new());
        let head = "GET / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\nX: ";
        let body = "POST / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\
            Transfer-Encoding: chunked\r\n\r\n";
        for number in 0..2 * each {
            let (steps, is_enough) = (steps.clone(), is_enough.clone());
            // A header's value grows, or chunks of one byte come.
            let (first, piece, last) = match number % 2 {
                0 => (head, "x", "\r\n\r\n"),
                _ => (body, "1\r\nx\r\n", "0\r\n\r\n"),
            };
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            stream.set_nodelay(true)?;
            stream.write_all(first.as_bytes()).await?;
            senders.push(runtime().spawn(async move {
                while !is_enough.load(SeqCst) {
                    stream.write_all(piece.as_bytes()).await.context("a slow client was closed")?;
                    steps.fetch_add(1, SeqCst);
                    tokio::time::sleep(PACE).await;
                }
                stream.write_all(last.as_bytes()).await?;
                let mut answer = String::new();
                timeout(TIMEOUT, stream.read_to_string(&mut answer)).await??;
                Ok(answer)
            }));
        }
        for _ in 0..each {
            let (steps, is_enough) = (steps.clone(), is_enough.clone());
            let socket = TcpSocket::new_v4()?;
            socket.set_recv_buffer_size(4096)?;
            let mut stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: large.test\r\n\r\n").await?;
            readers.push(runtime().spawn(async move {
                while !is_enough.load(SeqCst) {
                    ensure!(stream.read(&mut [0]).await? == 1, "a slow reader was closed");
                    steps.fetch_add(1, SeqCst);
                    tokio::time::sleep(PACE).await;
                }
                Ok(())
            }));
        }
        Ok(Slow { steps, is_enough, senders, readers })
    }

    /// Waits until each has gone on by so many bytes, on average.
    fn wait_for(&self, bytes: u64) -> Result<()> {
        let clients = (self.senders.len() + self.readers.len()) as u64;
        let goal = self.steps.load(SeqCst) + bytes * clients;
        until("slow clients to go on", || {
            let steps = self.steps.load(SeqCst);
            ensure!(steps >= goal, "{steps} of {goal} bytes");
            Ok(())
        })
    }

    /// Lets them finish; the answers of those that sent.
    async fn finish(self) -> Result<Vec<String>> {
        self.is_enough.store(true, SeqCst);
        let mut answers = Vec::new();
        for sender in self.senders {
            answers.push(sender.await??);
        }
        for reader in self.readers {
            reader.await??;
        }
        Ok(answers)
    }
}

#[test]
fn huge_headers_are_refused_and_harm_nobody() {
    pass("headers", |directory| send_huge_headers(directory, 20));
}

fn send_huge_headers(directory: &Directory, rounds: usize) -> Result<()> {
    let mut trial = Trial::start(&plan(2)?, directory)?;
    let requests = vec![Request::get("shop.test", "/")];
    let load = Load::start(LoadPlan::new(trial.site.http(), requests, 4))?;
    let lines = |count: usize, length: usize| {
        let line = |number| format!("X-{number}: {}\r\n", "x".repeat(length));
        (0..count).map(line).collect::<String>()
    };
    // nginx's buffers: one of 1k, then four of 8k. A line fits into one buffer.
    let cases = [
        ("a path that fits", format!("/{}", "x".repeat(7_000)), String::new(), 200),
        ("a path that does not", format!("/{}", "x".repeat(9_000)), String::new(), 414),
        ("a line that fits", "/".into(), lines(1, 7_000), 200),
        ("a line that does not", "/".into(), lines(1, 9_000), 400),
        ("a line without end", "/".into(), lines(1, 1 << 20), 400),
        ("lines that fit together", "/".into(), lines(3, 7_000), 200),
        ("lines that do not", "/".into(), lines(6, 7_000), 400),
        // With Host there are 100, then 101.
        ("as many lines as may be", "/".into(), lines(99, 5), 200),
        ("one line more", "/".into(), lines(100, 5), 400),
        ("a thousand lines", "/".into(), lines(1_000, 5), 400),
    ];
    for _ in 0..rounds {
        for (name, path, lines, expected) in &cases {
            let text = format!("GET {path} HTTP/1.1\r\nHost: shop.test\r\n{lines}\r\n");
            let status = block_on(status_of(trial.site.http_port, text)).context(*name)?;
            ensure!(status == *expected, "{name}: {status}");
        }
        trial.write()?;
    }
    load.wait_for(100)?;
    let report = load.stop();
    ensure!(report.failures.is_empty(), "under load: {:?}", report.failures);
    trial.end(2)
}

/// The answer's status, also when nginx answers and closes before all is sent.
async fn status_of(port: u16, text: String) -> Result<u16> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (mut reader, mut writer) = stream.into_split();
    let sending = runtime().spawn(async move {
        let _ = writer.write_all(text.as_bytes()).await;
        writer
    });
    let mut answer = vec![0; 4096];
    let count = timeout(TIMEOUT, reader.read(&mut answer)).await.context("no answer")??;
    sending.abort();
    let text = String::from_utf8_lossy(&answer[..count]).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.with_context(|| format!("not an answer: {text}"))
}
