//! Keep-alive connections that send requests all the time and remember whatever went wrong.

use crate::client::{Address, Connection, Request, Response};
use crate::wait::{self, runtime};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Says what is wrong with an answer.
pub type Check = Arc<dyn Fn(&Request, &Response) -> Result<()> + Send + Sync>;

/// What to send.
#[derive(Clone)]
pub struct Plan {
    /// Where to.
    pub address: Address,
    /// Sent in turn on each connection.
    pub requests: Vec<Request>,
    /// Connections at once.
    pub connections: usize,
    /// Between two requests of one connection; it bounds the rate, nothing waits on it.
    pub pace: Duration,
    /// The server closes a connection, with `Connection: close`, after this many requests
    /// (`keepalive_requests`). Any other close is a failure.
    pub requests_per_connection: u64,
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
            check: None,
        }
    }
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Requests that were answered.
    pub answered: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers by endpoint.
    pub endpoints: BTreeMap<String, u64>,
    /// The longest time to an answer.
    pub slowest: Duration,
    /// Everything that went wrong: unanswered requests, closed connections, wrong answers.
    pub failures: Vec<String>,
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

    /// Answers so far.
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

    /// What happened so far.
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
                shared.fail(format!("connection {index}: {error:#}"));
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        shared.note(|report| report.connections += 1);
        for request in turn.by_ref() {
            if shared.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            let start = Instant::now();
            let response = match connection.send(request).await {
                Ok(response) => response,
                Err(error) => {
                    let number = connection.answered + 1;
                    shared.fail(format!("connection {index}, request {number}: {error:#}"));
                    break;
                }
            };
            shared.look_at(request, &response, start.elapsed());
            if std::mem::take(&mut is_first) {
                shared.connected.fetch_add(1, Ordering::SeqCst);
            }
            let says_close = response.header("connection").is_some_and(|v| v == "close");
            if says_close {
                if connection.answered != plan.requests_per_connection {
                    shared.fail(format!(
                        "connection {index} closed after {} requests",
                        connection.answered
                    ));
                }
                break;
            }
            tokio::time::sleep(plan.pace).await;
        }
    }
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.report.lock().expect("no panic inside"));
    }

    fn fail(&self, what: String) {
        self.note(|report| {
            if report.failures.len() < 1_000 {
                report.failures.push(what);
            }
        });
    }

    fn look_at(&self, request: &Request, response: &Response, took: Duration) {
        let verdict = match &self.plan.check {
            Some(check) => check(request, response),
            None if response.status == 200 => Ok(()),
            None => Err(anyhow::anyhow!("status {}", response.status)),
        };
        if let Err(error) = verdict {
            let host = request.headers.first().map_or("", |(_, value)| value);
            self.fail(format!("{} {host}{}: {error:#}", request.method, request.target));
        }
        self.note(|report| {
            report.answered += 1;
            *report.statuses.entry(response.status).or_default() += 1;
            if let Some(endpoint) = response.endpoint() {
                *report.endpoints.entry(endpoint).or_default() += 1;
            }
            report.slowest = report.slowest.max(took);
        });
        self.answered.fetch_add(1, Ordering::SeqCst);
    }
}
