//! nginx's processes.

pub mod event;
pub mod shared;
pub mod thread;
pub mod zone;

use crate::basic::event_loop::EventLoop;
use crate::sys::{self, global};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use std::os::unix::process::parent_id;

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves requests, as a child of a master.
    Worker,
    /// It looks after caches, as a child of a master, and serves nobody.
    Helper,
    /// The master, or a process that does everything.
    Other,
}

/// What this process is for.
pub fn role() -> Role {
    match global!(ngx_process) as u32 {
        sys::NGX_PROCESS_WORKER => Role::Worker,
        sys::NGX_PROCESS_HELPER => Role::Helper,
        _ => Role::Other,
    }
}

/// nginx has made the queues and timers that this process handles: a master has none, and nobody while a configuration is read.
pub(crate) fn handles_events() -> bool {
    !global!(ngx_event_timer_rbtree.sentinel).is_null()
}

/// The slot of this process in nginx's table: no two that live have the same, and a process that is started again has
/// that of the one before.
pub fn slot() -> usize {
    usize::try_from(global!(ngx_process_slot)).unwrap_or(0)
}

/// The id of this process.
pub fn id() -> u32 {
    global!(ngx_pid) as u32
}

/// Has the kernel end this process when its master dies: it would keep the listening sockets and answer for ever with what
/// it has. Nothing happens in a process without a master.
pub fn end_with_master() {
    if role() == Role::Other {
        return;
    }
    // It fails for no signal that exists.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    // The master may have died before the attribute was set.
    if i64::from(global!(ngx_parent)) != i64::from(parent_id()) {
        // It ends this process as the signal would have.
        let _ = kill_process(getpid(), Signal::TERM);
    }
}

/// Lets nginx take USR2 while the process that started it lives, which it takes for the old binary of an upgrade. With
/// `daemon off` that is a supervisor, so the signal would never be heard. A new binary keeps the rule: its parent is the
/// old one.
pub fn allow_upgrade(_: EventLoop) {
    const NOBODY: sys::ngx_pid_t = -1;
    // SAFETY: plain numbers of this process, read by nginx's signal handler on this thread; no worker runs on the value,
    // since nginx sets it anew in each process that it forks.
    unsafe {
        if sys::ngx_inherited == 0 {
            sys::ngx_parent = NOBODY;
        }
    }
}

/// Has the allocator give large blocks back at once, and all threads share what it keeps: a large piece of work takes tens
/// of megabytes for a moment, and glibc would answer that by keeping such blocks on the heap from then on, and by an arena
/// for each thread. Called before a process has threads.
pub fn keep_memory_small() {
    // SAFETY: sets two numbers of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1024 * 1024);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Gives pages to the system that the allocator keeps free.
pub fn give_memory_back() {
    // SAFETY: gives free pages back, on any thread.
    unsafe { libc::malloc_trim(0) };
}
