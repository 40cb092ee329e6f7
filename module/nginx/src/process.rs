//! nginx's processes.

pub mod cycle;
pub mod event;
pub mod event_loop;
pub mod shared;
pub mod thread;
pub mod zone;

use crate::sys;

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
    // SAFETY: a number that nginx sets before it forks.
    match unsafe { sys::ngx_process } as u32 {
        sys::NGX_PROCESS_WORKER => Role::Worker,
        sys::NGX_PROCESS_HELPER => Role::Helper,
        _ => Role::Other,
    }
}

/// The slot of this process in nginx's table: no two that live have the same, and a process that is started again has
/// that of the one before.
pub fn slot() -> usize {
    // SAFETY: a number that nginx sets before it forks.
    usize::try_from(unsafe { sys::ngx_process_slot }).unwrap_or(0)
}

/// The id of this process.
pub fn id() -> u32 {
    // SAFETY: a number that nginx sets when the process starts.
    unsafe { sys::ngx_pid as u32 }
}

/// Has the kernel end this process when its master dies: it would keep the listening sockets and answer for ever with what
/// it has. Nothing happens in a process without a master.
pub fn end_with_master() {
    if role() == Role::Other {
        return;
    }
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    // SAFETY: a number that nginx sets before it forks, and a question. The master may have died before the attribute was
    // set.
    if unsafe { sys::ngx_parent != libc::getppid() } {
        // SAFETY: ends this process as the signal would have.
        unsafe { libc::raise(libc::SIGTERM) };
    }
}

/// Lets nginx take USR2 while the process that started it lives, which it takes for the old binary of an upgrade. With
/// `daemon off` that is a supervisor, so the signal would never be heard. A new binary keeps the rule: its parent is the
/// old one.
pub fn allow_upgrade() {
    const NOBODY: sys::ngx_pid_t = -1;
    // SAFETY: plain numbers of this process, read by nginx's signal handler on this thread; no worker runs on the value,
    // since nginx sets it anew in each process that it forks.
    unsafe {
        if sys::ngx_inherited == 0 {
            sys::ngx_parent = NOBODY;
        }
    }
}
