//! When a reload is over: until then workers of before take connections under the nginx.conf of before.

use crate::process::table;
use rustix::process::Pid;
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two looks at the processes during a reload.
const LOOK: Duration = Duration::from_millis(5);
/// A master that has not begun a reload by then does not take it: nobody waits for it any longer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What nginx calls a worker that has closed its listeners.
const LEAVING: &[u8] = b"nginx: worker process is shutting down";

/// The workers that a reload replaces.
pub struct Reload {
    old: Vec<Pid>,
    until: Instant,
}

impl Reload {
    /// To be made before `master` gets the signal.
    pub fn of(master: i32) -> Self {
        let old = table::all().filter(|process| process.parent == master);
        Reload { old: old.map(|worker| worker.pid).collect(), until: Instant::now() + TIMEOUT }
    }

    /// Waits until none of them takes connections.
    pub async fn over(&self) {
        while self.old.iter().any(|worker| takes_connections(*worker)) {
            if Instant::now() > self.until {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn takes_connections(worker: Pid) -> bool {
    let title = fs::read(format!("/proc/{}/cmdline", worker.as_raw_nonzero())).unwrap_or_default();
    title.starts_with(b"nginx: worker process") && !title.starts_with(LEAVING)
}
