//! nginx's master process: ours, or one that a former run of this role left behind.

use crate::processes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitOptions};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long workers may take to notice that their master is gone, before they are killed.
const WORKERS_MAY_TAKE: Duration = Duration::from_secs(2);

/// A running master and its process group, in which its workers are.
pub struct Master {
    pid: Pid,
    group: Pid,
    handle: Handle,
}

enum Handle {
    Child(Child),
    /// Told when it has ended.
    Adopted(oneshot::Receiver<()>),
}

impl Master {
    /// Starts nginx in a process group of its own: what a terminal sends to ours does not reach it.
    pub fn start(binary: &Path, conf: &Path, folder: &Path) -> io::Result<Self> {
        let child = Command::new(binary)
            .args(["-e", "stderr", "-p", ".", "-c"])
            .arg(conf)
            .current_dir(folder)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("nginx ended while it was started"))?;
        Ok(Master { pid, group: pid, handle: Handle::Child(child) })
    }

    /// Takes over the master that `pid_file` names, if it runs with `conf`.
    pub fn adopt(pid_file: &Path, conf: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(pid_file).ok()?;
        let pid = Pid::from_raw(text.trim().parse().ok()?)?;
        // First the handle, then the look: the number cannot go to another process in between.
        let handle = process::pidfd_open(pid, PidfdFlags::NONBLOCK).ok()?;
        let command = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
        let command = String::from_utf8_lossy(&command);
        let is_ours = command.starts_with("nginx: master") && command.contains(conf.to_str()?);
        let group = process::getpgid(Some(pid)).ok().filter(|_| is_ours)?;
        let (sender, ended) = oneshot::channel();
        // Readable when the process has ended. A thread, because tokio takes foreign descriptors with
        // unsafe code only.
        std::thread::spawn(move || {
            while poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) == Err(Errno::INTR) {}
            let _ = sender.send(());
        });
        Some(Master { pid, group, handle: Handle::Adopted(ended) })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until it has ended. How is not known of an adopted one.
    pub async fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.handle {
            Handle::Child(child) => child.wait().await.map(Some),
            Handle::Adopted(ended) => {
                // An error says that the thread is gone, which only its end can cause.
                let _ = ended.await;
                Ok(None)
            }
        }
    }

    /// Sends a signal to the master alone.
    pub fn signal(&self, signal: Signal) {
        // Gone already is what every signal here wants.
        let _ = process::kill_process(self.pid, signal);
    }

    /// After the master has ended: waits for its workers, which still hold the listening sockets, and
    /// kills those that stay.
    pub async fn clear_workers(&self) {
        let deadline = Instant::now() + WORKERS_MAY_TAKE;
        while self.has_processes() {
            if Instant::now() > deadline {
                tracing::warn!("workers of nginx {} outlive it: killing them", self.pid());
                let _ = process::kill_process_group(self.group, Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn has_processes(&self) -> bool {
        // Workers become children of this role when their master dies ([`adopt_orphans`]).
        while let Ok(Some(_)) = process::waitpgid(self.group, WaitOptions::NOHANG) {}
        let group = self.group.as_raw_nonzero().get();
        process::test_kill_process_group(self.group).is_ok()
            && processes::all().any(|other| other.group == group && !other.is_zombie)
    }
}

/// From here on, children of a child that dies become ours: then they are waited for.
pub fn adopt_orphans() {
    if let Err(error) = process::set_child_subreaper(Some(process::getpid())) {
        tracing::warn!("workers of a dead nginx are left to init: {error}");
    }
}
