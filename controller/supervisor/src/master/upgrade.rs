//! The binary upgrade: another nginx and module take over, and no request is lost.
//!
//! Source:  nginx's own procedure. USR2 makes the master start the new binary, which inherits the listening
//!          sockets; both serve until QUIT ends the old one. Here QUIT is sent when every new worker has
//!          started, and an upgrade that does not get that far is taken back.

use super::{Master, Masters};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::Instant;

/// How long the new nginx may take: the largest journal is loaded in about a second, on a busy machine in a few.
const MAY_TAKE: Duration = Duration::from_secs(60);
/// The pause between two looks at the processes during an upgrade.
pub const LOOK: Duration = Duration::from_millis(10);

/// An upgrade of the binary that has begun and is not complete.
pub struct Upgrade {
    deadline: Instant,
    /// nginx has put the old pid file aside.
    has_begun: bool,
}

/// How far an upgrade has come.
pub enum Step {
    /// The new nginx does not serve with all its workers yet.
    Waiting,
    /// It does.
    Ready(Master),
    /// It never will, and the old one serves on.
    Failed(&'static str),
}

impl Upgrade {
    /// Asks `old` for it; `None` if that is not possible now, which the log tells.
    pub fn start(masters: &Masters, old: &Master) -> Option<Self> {
        if let Some(oldest) = masters.old() {
            let oldest = oldest.pid();
            tracing::warn!(
                "upgrade refused: nginx {oldest} of the previous upgrade still has requests: try again when it \
                 has ended"
            );
            return None;
        }
        // Left behind by an old nginx that was killed.
        let _ = std::fs::remove_file(masters.old_pid_file());
        tracing::info!("nginx {}: starting the new binary beside it", old.pid());
        old.signal(Signal::USR2);
        Some(Upgrade { deadline: Instant::now() + MAY_TAKE, has_begun: false })
    }

    /// One that a former run of this role, or the operator, has begun.
    pub fn found() -> Self {
        Upgrade { deadline: Instant::now() + MAY_TAKE, has_begun: true }
    }

    /// How far it is. `workers` is how many the new nginx is to have.
    pub fn step(&mut self, masters: &Masters, old: &Master, workers: usize) -> Step {
        let new = masters.current().filter(|new| new.pid() != old.pid());
        let is_late = Instant::now() > self.deadline;
        match new {
            Some(new) if new.started_workers() >= workers => Step::Ready(new),
            Some(new) if is_late => {
                new.signal(Signal::TERM);
                Step::Failed("its workers did not start in time")
            }
            Some(_) => Step::Waiting,
            None if is_late => Step::Failed("it did not start in time"),
            None => {
                let is_aside = masters.old().is_some();
                if self.has_begun && !is_aside {
                    return Step::Failed("it ended: see its messages above");
                }
                self.has_begun |= is_aside;
                Step::Waiting
            }
        }
    }
}
