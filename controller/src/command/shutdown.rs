//! `wait-shutdown`: what ingress-nginx's pods call before they end (preStop).
//!
//! Who runs is known by the locks of the runtime folder: whoever holds one has its file open. A role that a parent
//! started ends with it, and would be started again if it were asked alone.

use anyhow::Context;
use oxigress_supervisor::process::table;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Asks whoever works in this folder to end, once, and waits until all of them have. The nginx role ends after nginx.
pub async fn wait(runtime_dir: &Path) -> anyhow::Result<()> {
    let folder = runtime_dir.to_owned();
    tokio::task::spawn_blocking(move || wait_here(&folder)).await?
}

fn wait_here(runtime_dir: &Path) -> anyhow::Result<()> {
    let folder = fs::metadata(runtime_dir).map(|_| runtime_dir);
    let folder = folder.with_context(|| {
        format!("{}: name the folder of the program with --runtime-dir", runtime_dir.display())
    })?;
    let mut handles = Vec::new();
    for pid in whom_to_ask(folder) {
        // Gone meanwhile is what is wanted.
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) {
            handles.push((pid, handle));
        }
    }
    if handles.is_empty() {
        tracing::info!("no oxigress process uses {}; nothing to stop", folder.display());
    }
    for (pid, handle) in &handles {
        tracing::info!("sent SIGTERM to process {}", pid.as_raw_nonzero());
        match pidfd_send_signal(handle, Signal::TERM) {
            Err(Errno::SRCH) | Ok(()) => {}
            Err(error) => anyhow::bail!("process {}: {error}", pid.as_raw_nonzero()),
        }
    }
    handles.iter().for_each(|(_, handle)| wait_for(handle));
    Ok(())
}

fn wait_for(handle: &OwnedFd) {
    // Readable when the process has ended.
    while poll(&mut [PollFd::new(handle, PollFlags::IN)], None) == Err(Errno::INTR) {}
}

/// The roles of this folder, or the parents that started them.
fn whom_to_ask(folder: &Path) -> Vec<Pid> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let locks: Vec<_> = ["nginx.lock", "controller.lock"]
        .iter()
        .filter_map(|name| identity(&folder.join(name)))
        .collect();
    let holds_one = |process: &table::Process| {
        let files = fs::read_dir(format!("/proc/{}/fd", process.pid.as_raw_nonzero()));
        // Of other users and of processes that end meanwhile nothing is seen.
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| identity(&file.path()).is_some_and(|file| locks.contains(&file)))
    };
    let own = rustix::process::getpid();
    let roles = table::all().filter(|process| process.pid != own && holds_one(process));
    let mut asked: Vec<Pid> = roles.map(|role| parent_of(&role).unwrap_or(role.pid)).collect();
    asked.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
    asked.dedup();
    asked
}

/// The process that started a role and looks after it.
fn parent_of(role: &table::Process) -> Option<Pid> {
    let environment = fs::read(format!("/proc/{}/environ", role.pid.as_raw_nonzero())).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let said = variables.find_map(|variable| {
        let value = variable
            .strip_prefix(oxigress_supervisor::process::signals::PARENT.as_bytes())?
            .strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()?.parse::<i32>().ok()
    });
    said.filter(|parent| *parent == role.parent).and_then(Pid::from_raw)
}
