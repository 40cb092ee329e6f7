//! Memory that a master shares with its workers, outside of zones.

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// Maps words that every process forked from now on shares with this one, for as long as any of them runs. They are zeroes,
/// and take no memory until they are touched.
///
/// # Errors
/// What the system says when it refuses.
pub fn map_words(count: usize) -> std::io::Result<&'static [AtomicU64]> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let bytes = count * size_of::<AtomicU64>();
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    match NonNull::new(start).filter(|_| start != libc::MAP_FAILED) {
        // SAFETY: mapped for so many words, page-aligned, never unmapped; zeroes are a value of an atomic.
        Some(start) => Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) }),
        None => Err(std::io::Error::last_os_error()),
    }
}
