//! Connections, kept or fresh ones, that send requests all the time and remember whatever went wrong.

use crate::client::{Address, Connection, Handshake, Request, Response};
use crate::wait::{self, runtime};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Says what is wrong with an answer.
pub type Check = Arc<dyn Fn(&Request, &Response) -> Result<()> + Send + Sync>;

/// What a server may do to a connection that has been used, beside its limit of requests. Everything else is a
/// failure, and so is whatever happens to the first request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closes {
    /// Close no connection at all.
    Never,
    /// Close it while it is idle, or with `Connection: close`.
    Idle,
    /// Close it also before the first byte of an answer, as when the request and the close of an idle
    /// connection meet on their way: the client sends again (RFC 9112 §9.3.1), on a new connection.
    Unanswered,
}

#[derive(Clone)]
pub struct Plan {
    pub address: Address,
    /// Sent in turn on each connection.
    pub requests: Vec<Request>,
    pub connections: usize,
    /// Between two requests of one connection; it bounds the rate, nothing waits on it.
    pub pace: Duration,
    /// The server closes a connection, with `Connection: close`, after this many requests
    /// (`keepalive_requests`).
    pub requests_per_connection: u64,
    /// How else it may close one.
    pub closes: Closes,
    /// Each request goes on a connection of its own.
    pub is_fresh: bool,
    /// What an answer must be; status 200 when absent.
    pub check: Option<Check>,
}

impl Plan {
    /// `connections` connections with one request each at a time, every 5 ms.
    pub fn new(address: Address, requests: Vec<Request>, connections: usize) -> Self {
        Plan {
            address,
            requests,
            connections,
            pace: Duration::from_millis(5),
            requests_per_connection: u64::MAX,
            closes: Closes::Never,
            is_fresh: false,
            check: None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub answered: u64,
    pub connections: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub endpoints: BTreeMap<String, u64>,
    /// The longest time to an answer.
    pub slowest: Duration,
    /// The time to each answer, in the order of answers.
    pub times: Vec<Duration>,
    /// Connections that were closed while idle, as far as the plan allows it.
    pub closed_idle: u64,
    /// Requests that were sent again, as far as the plan allows it.
    pub sent_again: u64,
    /// How many times something went wrong.
    pub failed: u64,
    /// What went wrong, the first thousand: unanswered requests, closed connections, wrong answers.
    pub failures: Vec<Failure>,
    /// When something went wrong last.
    pub last_failure: Option<Instant>,
}

#[derive(Clone)]
pub struct Failure {
    pub what: String,
    /// The client's port, where there was a connection.
    pub port: Option<u16>,
}

impl Debug for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// A load that runs until [`Load::stop`].
pub struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

struct Shared {
    plan: Plan,
    is_stopped: AtomicBool,
    answered: AtomicU64,
    connected: AtomicU64,
    report: Mutex<Report>,
}

impl Load {
    /// Starts and waits until every connection has had an answer.
    pub fn start(plan: Plan) -> Result<Self> {
        let shared = Arc::new(Shared {
            plan,
            is_stopped: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            report: Mutex::default(),
        });
        let tasks = (0..shared.plan.connections)
            .map(|index| runtime().spawn(run(shared.clone(), index)))
            .collect();
        let load = Load { shared, tasks };
        wait::until("the load's first answers", || {
            let connected = load.shared.connected.load(Ordering::SeqCst);
            ensure!(
                connected >= load.shared.plan.connections as u64,
                "{connected} connections; {:?}",
                load.report().failures.first()
            );
            Ok(())
        })?;
        Ok(load)
    }

    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Waits for `count` more answers.
    pub fn wait_for(&self, count: u64) -> Result<()> {
        let goal = self.answered() + count;
        wait::until("answers to the load", || {
            ensure!(self.answered() >= goal, "{} of {goal}", self.answered());
            Ok(())
        })
    }

    pub fn report(&self) -> Report {
        self.shared.report.lock().expect("no panic inside").clone()
    }

    /// Lets requests in flight finish and says what happened.
    pub fn stop(mut self) -> Report {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        for task in self.tasks.drain(..) {
            let _ = wait::block_on(task);
        }
        self.report()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn run(shared: Arc<Shared>, index: usize) {
    let plan = &shared.plan;
    let mut turn = plan.requests.iter().cycle().skip(index % plan.requests.len());
    let mut is_first = true;
    while !shared.is_stopped.load(Ordering::SeqCst) {
        let mut connection = match Connection::open(&plan.address).await {
            Ok(connection) => connection,
            Err(error) => {
                let port = error.downcast_ref::<Handshake>().and_then(|h| h.local_port);
                shared.fail(port, format!("connection {index}: {error:#}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        shared.note(|report| report.connections += 1);
        for request in turn.by_ref() {
            if shared.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            if !exchange(&shared, index, &mut connection, request).await {
                break;
            }
            if std::mem::take(&mut is_first) {
                shared.connected.fetch_add(1, Ordering::SeqCst);
            }
            tokio::time::sleep(plan.pace).await;
            if plan.is_fresh {
                break;
            }
        }
    }
}

/// One request and its answer; false if the connection is of no more use.
async fn exchange(
    shared: &Shared,
    index: usize,
    connection: &mut Connection,
    request: &Request,
) -> bool {
    let plan = &shared.plan;
    let (is_used, port) = (connection.answered > 0, connection.local_port);
    if is_used && plan.closes >= Closes::Idle && connection.is_closed() {
        shared.note(|report| report.closed_idle += 1);
        return false;
    }
    let (start, received) = (Instant::now(), connection.received());
    let response = match connection.send(request).await {
        Ok(response) => response,
        Err(error) => {
            let is_silent = connection.received() == received;
            if is_used && is_silent && plan.closes == Closes::Unanswered {
                shared.note(|report| report.sent_again += 1);
            } else {
                let number = connection.answered + 1;
                shared.fail(port, format!("connection {index}, request {number}: {error:#}"));
            }
            return false;
        }
    };
    shared.look_at(request, &response, port, start.elapsed());
    let says_close = response.header("connection").is_some_and(|v| v == "close");
    let is_due = connection.answered == plan.requests_per_connection;
    if says_close && !is_due && plan.closes == Closes::Never {
        let what = format!("connection {index} closed after {} requests", connection.answered);
        shared.fail(port, what);
    }
    !says_close
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.lock().expect("no panic inside"));
    }

    fn fail(&self, port: Option<u16>, what: String) {
        self.note(|report| {
            report.failed += 1;
            report.last_failure = Some(Instant::now());
            if report.failures.len() < 1_000 {
                report.failures.push(Failure { what, port });
            }
        });
    }

    fn look_at(&self, request: &Request, response: &Response, port: Option<u16>, took: Duration) {
        let verdict = match &self.plan.check {
            Some(check) => check(request, response),
            None if response.status == 200 => Ok(()),
            None => Err(anyhow::anyhow!("status {}", response.status)),
        };
        if let Err(error) = verdict {
            let host = request.headers.first().map_or("", |(_, value)| value);
            self.fail(port, format!("{} {host}{}: {error:#}", request.method, request.target));
        }
        self.note(|report| {
            report.answered += 1;
            *report.statuses.entry(response.status).or_default() += 1;
            if let Some(endpoint) = response.endpoint() {
                *report.endpoints.entry(endpoint).or_default() += 1;
            }
            report.slowest = report.slowest.max(took);
            report.times.push(took);
        });
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
}
