//! A client that sends requests all the time and remembers how long each took.
//!
//! Two kinds in turn: one that is served by an endpoint, as a user's, and one that nginx answers by itself.
//! The second waits for nothing but the worker's event loop (and for a CPU), so the longest of them is an
//! upper bound of the longest callback.

use crate::http::Client;
use crate::sample::Sample;
use crate::snapshot::HOST;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Probe {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Seen>>>,
}

struct Seen {
    start: Instant,
    took: Duration,
    is_proxied: bool,
}

/// What a probe saw in some spans of time.
pub struct Latencies {
    /// Requests that an endpoint answered.
    pub proxied: Sample,
    /// Requests that nginx answered itself, without an endpoint.
    pub own: Sample,
}

/// The beginning and the end of a measurement.
pub type Span = (Instant, Instant);

impl Probe {
    /// Starts; an answer is 200, or 204 where nginx answers by itself.
    pub fn start(port: u16) -> Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = is_stopped.clone();
        let mut client = Client::tcp(port)?;
        client.get_ok(HOST, "/")?;
        let thread = std::thread::spawn(move || {
            let mut seen = Vec::with_capacity(1 << 20);
            while !stopped.load(Ordering::Relaxed) {
                for (target, is_proxied) in [("/", true), ("/nginx", false)] {
                    let start = Instant::now();
                    let answer = client.get(HOST, target)?;
                    seen.push(Seen { start, took: start.elapsed(), is_proxied });
                    anyhow::ensure!(
                        answer.status == if is_proxied { 200 } else { 204 },
                        "a request for {target} is answered with {}",
                        answer.status
                    );
                    if answer.is_last {
                        client = Client::tcp(port)?;
                    }
                }
            }
            Ok(seen)
        });
        Ok(Probe { is_stopped, thread })
    }

    /// Stops; answers what was seen while one of `busy` went on, and what was seen outside of them.
    pub fn stop(self, busy: &[Span]) -> Result<(Latencies, Latencies)> {
        self.is_stopped.store(true, Ordering::Relaxed);
        let seen = self.thread.join().ok().context("the probe panicked")??;
        let is_busy = |seen: &&Seen| {
            busy.iter().any(|(from, to)| seen.start < *to && seen.start + seen.took > *from)
        };
        let (during, outside): (Vec<_>, Vec<_>) = seen.iter().partition(is_busy);
        Ok((Latencies::of(&during), Latencies::of(&outside)))
    }
}

impl Latencies {
    fn of(seen: &[&Seen]) -> Self {
        let times = |is_proxied| {
            seen.iter().filter(|s| s.is_proxied == is_proxied).map(|s| s.took).collect()
        };
        Latencies { proxied: times(true), own: times(false) }
    }
}
