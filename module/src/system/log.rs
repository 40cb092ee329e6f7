//! nginx's error log. Every line of the module passes [`write`], which keeps it one line.
#![allow(unsafe_code)]

use crate::system::memory::now_milliseconds;
use nginx::Cycle;
use nginx::log::Log;
use oxigress_core::text::line::Escaped;
use std::fmt::Arguments;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub use nginx::log::Level;

pub const EMERG: Level = Level::Emerg;
pub const ALERT: Level = Level::Alert;
pub const ERROR: Level = Level::Error;
pub const WARN: Level = Level::Warn;
pub const NOTICE: Level = Level::Notice;

/// Writes a line to `log` if its level asks for it.
pub fn write(level: Level, log: &Log, line: Arguments<'_>) {
    log.write(level, format_args!("{}", Escaped(line)));
}

/// Writes a line to the cycle's log, outside of any request.
pub fn cycle(level: Level, line: Arguments<'_>) {
    Log::of_cycle().write(level, format_args!("{}", Escaped(line)));
}

/// Lets one line through every ten seconds, whatever clients do: one for each cause.
pub struct Seldom(AtomicU64);

impl Seldom {
    /// The next line is let through.
    pub const fn new() -> Self {
        Seldom(AtomicU64::new(0))
    }

    /// A line is let through now.
    pub fn is_due(&self) -> bool {
        let now = now_milliseconds();
        let is_due = now >= self.0.load(Relaxed);
        if is_due {
            self.0.store(now + 10_000, Relaxed);
        }
        is_due
    }
}

/// Warns the operator, outside of any request.
pub fn warn(line: Arguments<'_>) {
    cycle(WARN, line);
}

/// Lets log files that are pipes or terminals lose lines, where a reader that stalls would stop the event loop.
///
/// nginx opens them by name, such as `/dev/stdout`, so no other process shares the open file. It opens them again
/// when it reopens its logs, in each worker.
pub fn never_block(cycle: &Cycle) {
    for fd in cycle.open_files() {
        // Standard error is in the list too, and its open file may be other programs'.
        if fd > libc::STDERR_FILENO && is_stream(fd) {
            set_nonblocking(fd);
        }
    }
}

fn is_stream(fd: i32) -> bool {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes the struct, or answers that it did not.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call above.
    let mode = unsafe { stat.assume_init() }.st_mode;
    matches!(mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFCHR)
}

fn set_nonblocking(fd: i32) {
    // SAFETY: asks for the flags of a descriptor, which may be closed: then it fails.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags >= 0 && flags & libc::O_NONBLOCK == 0 {
        // SAFETY: sets them.
        unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    }
}
