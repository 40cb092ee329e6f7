//! Random numbers, clocks, and where files lie.

use rustix::fs::statfs;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use nginx::now_milliseconds;

/// A random number from the kernel.
pub fn random() -> u64 {
    let mut number = [0_u8; 8];
    let got = getrandom(&mut number, GetRandomFlags::empty());
    // Fails only before the kernel's pool is filled at boot, and never short for 8 bytes.
    assert!(got == Ok(8), "the kernel gives no random numbers");
    u64::from_ne_bytes(number)
}

/// Nanoseconds on a clock that all processes of the machine share and nobody sets.
pub fn monotonic_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The clock of the statistics, nginx's own, in seconds.
pub fn now_seconds() -> u64 {
    now_milliseconds() / 1_000
}

/// The same clock in milliseconds, on any thread.
pub fn monotonic_milliseconds() -> u64 {
    monotonic_nanoseconds() / 1_000_000
}

/// Whether the folder of a file is on a file system that keeps files in memory; also if nobody can say.
pub fn is_memory_backed(path: &[u8]) -> bool {
    let Some(folder) = Path::new(OsStr::from_bytes(path)).parent() else { return true };
    statfs(folder).map_or(true, |facts| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&facts.f_type))
}

/// linux/magic.h
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
const RAMFS_MAGIC: rustix::fs::FsWord = 0x8584_58f6;

/// Milliseconds since 1970, as this turn of the event loop read them.
pub fn wall_clock_milliseconds() -> u64 {
    let (seconds, milliseconds) = nginx::wall_clock();
    seconds as u64 * 1_000 + milliseconds
}
