//! The signals that ask a role to end, and its tie to the process that started it.

use rustix::process::{Signal, getpid, kill_process};
use std::io;
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

/// Tells a role which process started it.
pub const PARENT: &str = "OXIGRESS_PARENT";
/// What a role writes to its standard input, a socket of its parent, once it can be asked to end.
pub const LISTENS: u8 = b'\n';
/// Signals that come closer are one.
pub const SAME: Duration = Duration::from_millis(300);
/// The signals that ask for an end.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    /// From here on they no longer end the process by themselves. A signal that arrives within this call may be lost: tokio
    /// installs the handler before there is a receiver. So a parent waits for [`LISTENS`] before it asks a role to end.
    pub fn new() -> io::Result<Self> {
        let parent = std::env::var(PARENT).ok();
        if parent.is_some() {
            ask_for_death_signal();
        }
        let signals = Signals {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        };
        if is_started_by(parent.as_deref()) {
            // The parent may be gone; the next lines see that.
            let _ = rustix::io::write(rustix::stdio::stdin(), &[LISTENS]);
        }
        if parent.is_some() && !is_started_by(parent.as_deref()) {
            tracing::info!("the parent has exited; stopping");
            let _ = kill_process(getpid(), Signal::TERM);
        }
        Ok(signals)
    }

    /// Waits for the next one.
    pub async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for one that is meant as another: a terminal and the script in it tell of the same Ctrl-C.
    pub async fn stop_again(&mut self) {
        let end = Instant::now() + SAME;
        while tokio::time::timeout_at(end, self.stop()).await.is_ok() {}
        self.stop().await;
    }
}

/// A role that was started by a parent gets SIGTERM when the parent dies, also by SIGKILL.
fn ask_for_death_signal() {
    if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err() {
        tracing::warn!(
            "cannot set the parent-death signal; this role keeps running if its parent is killed"
        );
    }
}

/// Whether the process that started this one is the parent of both roles, rather than an operator's own supervisor.
pub fn has_parent() -> bool {
    is_started_by(std::env::var(PARENT).ok().as_deref())
}

/// Whether the process that started this one is `parent`.
fn is_started_by(parent: Option<&str>) -> bool {
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    parent.is_some() && now.as_deref() == parent
}
