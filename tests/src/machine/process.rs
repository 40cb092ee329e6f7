//! Processes that a test starts and, whatever happens, ends.

use crate::wait::{self, until};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A child that is ended when the value is dropped, also by a panic.
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts `command` with its output in `output`.
    pub fn start(name: &str, command: &mut Command, output: &Path) -> Result<Self> {
        let file = fs::OpenOptions::new().create(true).append(true).open(output)?;
        Self::start_into(name, command, file.into())
    }

    /// Starts `command` with its output in a file, a pipe or a device.
    pub fn start_into(name: &str, command: &mut Command, output: OwnedFd) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Process { name: name.into(), child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends `signal`, unless it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            signal_pid(self.pid(), signal)?;
        }
        Ok(())
    }

    /// Sends `signal` and waits for the end; kills it after the deadline, which is an error.
    pub fn stop(&mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > wait::DEADLINE {
                self.child.kill()?;
                self.child.wait()?;
                bail!("{} did not end {:?} after {signal:?}: killed", self.name, wait::DEADLINE);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.stop(Signal::TERM);
    }
}

/// Sends a signal to a process that the test, or a child of it, started.
pub fn signal_pid(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
    kill_process(pid, signal).with_context(|| format!("send {signal:?} to {pid:?}"))
}

/// Stops a process, and waits until none of its threads runs: the signal takes effect after a moment.
pub fn stop_pid(pid: u32) -> Result<()> {
    signal_pid(pid, Signal::STOP)?;
    until("a stopped process", || {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let stat = fs::read_to_string(task?.path().join("stat"))?;
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            ensure!(state == Some('T'), "{state:?}");
        }
        Ok(())
    })
}

/// A process of the machine: its parent and the title it gave itself.
#[derive(Clone, Debug)]
pub struct Entry {
    pub pid: u32,
    pub parent: u32,
    pub title: String,
}

/// Lists the processes that live.
pub fn entries() -> Vec<Entry> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may hold anything, so read from the last one.
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut rest = rest.split(' ');
        let state = rest.next()?;
        let parent = rest.next()?.parse().ok()?;
        let title = fs::read(entry.path().join("cmdline")).ok()?;
        let title = String::from_utf8_lossy(&title).replace('\0', " ");
        (state != "Z").then(|| Entry { pid, parent, title: title.trim().into() })
    })
    .collect()
}

pub fn is_alive(pid: u32) -> bool {
    entries().iter().any(|entry| entry.pid == pid)
}

/// Waits until a process is gone.
pub fn wait_for_end(pid: u32) -> Result<()> {
    wait::until("the end of a process", || {
        ensure!(!is_alive(pid), "process {pid}");
        Ok(())
    })
}

/// A process and those below it, at any depth.
pub fn family(root: u32) -> Vec<u32> {
    family_among(&entries(), root)
}

fn family_among(all: &[Entry], root: u32) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(all.iter().filter(|e| e.parent == parent).map(|e| e.pid));
        next += 1;
    }
    family
}

/// nginx's worker processes below `root`, at any depth, sorted; those that are shutting down are left out.
pub fn workers_below(root: u32) -> Vec<u32> {
    let all = entries();
    let family = family_among(&all, root);
    let is_worker = |e: &&Entry| {
        family.contains(&e.pid)
            && e.title.starts_with("nginx: worker process")
            && !e.title.contains("shutting down")
    };
    let mut workers: Vec<u32> = all.iter().filter(is_worker).map(|e| e.pid).collect();
    workers.sort_unstable();
    workers
}

/// The clients' ports of the IPv4 connections that a process holds on these ports of its own.
pub fn client_ports(pid: u32, own: &[u16]) -> Result<BTreeSet<u16>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).context("needs the worker's user")? {
        // One that is closed meanwhile is not there.
        let Ok(to) = fs::read_link(entry?.path()) else { continue };
        let to = to.to_string_lossy().into_owned();
        let inode = to.strip_prefix("socket:[").and_then(|to| to.strip_suffix(']'));
        sockets.extend(inode.map(String::from));
    }
    let table = fs::read_to_string("/proc/net/tcp")?;
    // Addresses and ports are hexadecimal; the tenth column is the inode.
    let port = |column: Option<&&str>| {
        column.and_then(|c| u16::from_str_radix(c.rsplit(':').next()?, 16).ok())
    };
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let held = rows.filter(|row| {
        port(row.get(1)).is_some_and(|local| own.contains(&local))
            && row.get(9).is_some_and(|inode| sockets.contains(*inode))
    });
    // A listening socket has no other side.
    Ok(held.filter_map(|row| port(row.get(2))).filter(|port| *port != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_are_known_by_the_process_that_holds_them() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let own = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", own)).unwrap();
        let port = client.local_addr().unwrap().port();
        let ports = || client_ports(std::process::id(), &[own]).unwrap();
        // In the listener's queue it is nobody's yet.
        assert!(ports().is_empty());
        let accepted = listener.accept().unwrap();
        assert_eq!(ports(), BTreeSet::from([port]));
        drop(accepted);
        assert!(ports().is_empty());
    }
}
