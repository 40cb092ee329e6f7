//! nginx's master processes: ours, or ones that a former run of this role left behind.
//!
//! There may be two: during a binary upgrade the new one is a child of the old one, in its process group, and
//! nginx keeps the old one's id in `nginx.pid.oldbin`.

mod output;
pub mod reload;
pub mod upgrade;
pub mod user;

use crate::process::table::{self, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitOptions};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long workers may take to notice that their master is gone, before they are killed.
const WORKERS_MAY_TAKE: Duration = Duration::from_secs(2);
/// Between two looks where the kernel cannot tell.
const LOOK: Duration = Duration::from_millis(20);
const WORKER: &str = "nginx: worker process";

/// Where nginx says which masters there are.
pub struct Masters {
    pid_file: PathBuf,
    conf: PathBuf,
}

impl Masters {
    /// Those that run with `conf`, which names `pid_file`.
    pub fn new(pid_file: PathBuf, conf: PathBuf) -> Self {
        Masters { pid_file, conf }
    }

    /// The one that serves, or the new one of an upgrade.
    pub fn current(&self) -> Option<Master> {
        self.named_in(&self.pid_file)
    }

    /// The old one of an upgrade.
    pub fn old(&self) -> Option<Master> {
        self.named_in(&self.old_pid_file())
    }

    /// nginx renames its pid file to this while a new binary runs beside it.
    pub fn old_pid_file(&self) -> PathBuf {
        let mut name = self.pid_file.clone().into_os_string();
        name.push(".oldbin");
        name.into()
    }

    fn named_in(&self, pid_file: &Path) -> Option<Master> {
        let text = std::fs::read_to_string(pid_file).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        // First the handle, then the look: the number cannot go to another process in between.
        let handle = process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
        let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
        let command = String::from_utf8_lossy(&command);
        let is_ours = command.starts_with("nginx: master") && command.contains(self.conf.to_str()?);
        let group = process::getpgid(Some(pid)).ok().filter(|_| is_ours)?;
        Some(Master { pid, group, handle, end: OnceLock::new() })
    }

    /// After `dead` has ended: waits for its workers, which still hold the listening sockets, and kills those
    /// that stay. Another master of the group keeps its own.
    pub async fn clear_workers(&self, dead: &Master) {
        let deadline = Instant::now() + WORKERS_MAY_TAKE;
        loop {
            let left = self.orphans(dead.group);
            if left.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                tracing::warn!("nginx master {} died; killing its workers", dead.pid());
                for orphan in left {
                    let _ = process::kill_process(orphan.pid, Signal::KILL);
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn orphans(&self, group: Pid) -> Vec<Process> {
        let own = process::getpid().as_raw_nonzero().get();
        let group = group.as_raw_nonzero().get();
        let all: Vec<_> = table::all().filter(|other| other.group == group).collect();
        // Only now: one that has just become a master is then among the living.
        let living: Vec<i32> =
            [self.current(), self.old()].iter().flatten().map(Master::pid).collect();
        let mut left = Vec::new();
        for other in all {
            let pid = other.pid.as_raw_nonzero().get();
            match other.is_zombie {
                // Workers become children of this role when their master dies ([`adopt_orphans`]).
                true if other.parent == own && !living.contains(&pid) => {
                    let _ = process::waitpid(Some(other.pid), WaitOptions::NOHANG);
                }
                true => {}
                false if living.contains(&pid) || living.contains(&other.parent) => {}
                false => left.push(other),
            }
        }
        left
    }
}

/// A running master and its process group, in which its workers are.
pub struct Master {
    pid: Pid,
    group: Pid,
    handle: OwnedFd,
    /// Closed when it has ended, or when nobody watches it.
    end: OnceLock<watch::Receiver<()>>,
}

impl Master {
    /// Starts nginx in a process group of its own: what a terminal sends to ours does not reach it.
    pub fn start(binary: &Path, conf: &Path, folder: &Path) -> io::Result<Self> {
        let mut child = Command::new(binary)
            .args(["-e", "stderr", "-p", ".", "-c"])
            .arg(conf)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output::for_nginx(rustix::stdio::stdout()))
            .stderr(output::for_nginx(rustix::stdio::stderr()))
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        // A child that nobody has waited for keeps its number.
        match process::pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(handle) => Ok(Master { pid, group: pid, handle, end: OnceLock::new() }),
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                Err(error.into())
            }
        }
    }

    /// The process id of the master.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until it has ended. How is known only of a child, which it then is no more.
    pub async fn ended(&self) -> Option<ExitStatus> {
        let mut end = self.end.get_or_init(|| watch(&self.handle)).clone();
        while !self.has_ended() {
            if end.changed().await.is_err() {
                tokio::time::sleep(LOOK).await;
            }
        }
        let waited = process::waitpid(Some(self.pid), WaitOptions::NOHANG).ok().flatten();
        waited.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))
    }

    fn has_ended(&self) -> bool {
        let now = Timespec::default();
        poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    /// Sends a signal to the master alone.
    pub fn signal(&self, signal: Signal) {
        // Gone already is what every signal here wants.
        let _ = process::pidfd_send_signal(&self.handle, signal);
    }

    /// Its workers that have started: nginx gives a worker its title once every module is ready in it.
    pub fn started_workers(&self) -> usize {
        let is_worker = |other: &Process| {
            let file = format!("/proc/{}/cmdline", other.pid.as_raw_nonzero());
            std::fs::read(file).is_ok_and(|title| title.starts_with(WORKER.as_bytes()))
        };
        let own = table::all().filter(|other| other.parent == self.pid());
        own.filter(is_worker).count()
    }
}

/// Closes the channel when the process has ended. A thread, because tokio takes foreign descriptors with
/// unsafe code only.
fn watch(handle: &OwnedFd) -> watch::Receiver<()> {
    let (sender, end) = watch::channel(());
    if let Ok(handle) = handle.try_clone() {
        let wait = move || {
            // Readable when the process has ended.
            while poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) == Err(Errno::INTR) {}
            drop(sender);
        };
        // Without a thread the channel is closed now, and the process is looked at again and again.
        let _ = std::thread::Builder::new().spawn(wait);
    }
    end
}

/// From here on, children of a child that dies become ours: then they are waited for.
pub fn adopt_orphans() {
    if let Err(error) = process::set_child_subreaper(Some(process::getpid())) {
        tracing::warn!(
            "cannot become a child subreaper: {error}; workers of a dead nginx are reparented to PID 1"
        );
    }
}
