//! How long an event loop runs without waiting: the longest callback cannot be longer.
//!
//! The kernel counts how often a thread gave its CPU up by itself, which an event loop does only when nothing
//! is left to do, and the CPU time it used. Looked at all the time, the CPU time between two such waits is a
//! stretch. Being preempted makes no stretch longer; two waits between two looks make one stretch of two.

use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread that watches an event loop.
pub struct Watch {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Watch {
    /// Watches a process's first thread.
    pub fn start(pid: u32) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = is_stopped.clone();
        let thread = std::thread::spawn(move || {
            let looker = Looker { folder: format!("/proc/{pid}/task/{pid}").into() };
            let (mut waits, mut at_wait) = looker.look()?;
            let (mut longest, mut last) = (Duration::ZERO, at_wait);
            while !stopped.load(Ordering::Relaxed) {
                let (now_waits, cpu) = looker.look()?;
                if now_waits != waits {
                    longest = longest.max(cpu - at_wait);
                    (waits, at_wait) = (now_waits, cpu);
                }
                last = cpu;
            }
            Ok(longest.max(last - at_wait))
        });
        Watch { is_stopped, thread }
    }

    /// Stops; answers the CPU time of the longest stretch.
    pub fn stop(self) -> Result<Duration> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the watch panicked")?
    }
}

struct Looker {
    folder: PathBuf,
}

impl Looker {
    /// Waits so far and CPU time at the last of them or later.
    fn look(&self) -> Result<(u64, Duration)> {
        loop {
            let before = self.waits()?;
            let schedstat = fs::read_to_string(self.folder.join("schedstat"))?;
            if self.waits()? == before {
                let nanos = schedstat.split_whitespace().next().context("schedstat")?.parse()?;
                return Ok((before, Duration::from_nanos(nanos)));
            }
        }
    }

    fn waits(&self) -> Result<u64> {
        let status = fs::read_to_string(self.folder.join("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(line.context("context switches")?.trim().parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_never_waits_has_one_long_stretch() {
        // The first thread of the test program waits for the others all the time.
        let idle = Watch::start(std::process::id());
        std::thread::sleep(Duration::from_millis(20));
        assert!(idle.stop().unwrap() < Duration::from_millis(20));
    }
}
