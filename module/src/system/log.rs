//! nginx's error log. Every line of the module passes [`write`], which keeps it one line.

use crate::system::memory::now_milliseconds;
use nginx::Cycle;
use nginx::log::Log;
use oxigress_core::text::line::{Escaped, escaped_line};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use std::fmt::Arguments;
use std::os::fd::BorrowedFd;
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
    nginx::log::write(level, format_args!("{}", Escaped(line)));
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

/// Keeps nginx's own lines each a line, too: they repeat what clients and endpoints sent, byte by byte.
///
/// Logs of single servers and locations, which have an `error_log` of their own, are left as they are.
pub fn escape_lines(cycle: &Cycle) {
    let here = cycle.event_loop();
    cycle.log().rewrite_lines(here, escaped_line);
    cycle.listeners().for_each(|listener| listener.log().rewrite_lines(here, escaped_line));
}

/// Undoes [`escape_lines`], before nginx unloads the library: it ends its pools after that, and an nginx with debug lines writes
/// some about it.
pub fn leave_lines(cycle: &Cycle) {
    let here = cycle.event_loop();
    cycle.log().leave_lines(here);
    cycle.listeners().for_each(|listener| listener.log().leave_lines(here));
}

/// Lets log files that are pipes or terminals lose lines, where a reader that stalls would stop the event loop.
///
/// nginx opens them by name, such as `/dev/stdout`, so no other process shares the open file. It opens them again
/// when it reopens its logs, in each worker. Standard error is left alone: its open file may be other programs'.
pub fn never_block(cycle: &Cycle) {
    for file in cycle.open_files() {
        if is_stream(file) {
            set_nonblocking(file);
        }
    }
}

fn is_stream(file: BorrowedFd<'_>) -> bool {
    let kind = fstat(file).map(|facts| FileType::from_raw_mode(facts.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice))
}

fn set_nonblocking(file: BorrowedFd<'_>) {
    if let Ok(flags) = fcntl_getfl(file)
        && !flags.contains(OFlags::NONBLOCK)
    {
        // One that cannot be set stays as it is.
        let _ = fcntl_setfl(file, flags | OFlags::NONBLOCK);
    }
}
