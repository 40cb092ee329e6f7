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
    let bytes = count.checked_mul(size_of::<AtomicU64>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new mapping, at an address of the kernel's choice; where there is one it has so many words, page-aligned, and is
    // never unmapped. Zeroes are a value of an atomic.
    unsafe {
        let start = libc::mmap(null_mut(), bytes, access, flags, -1, 0);
        match NonNull::new(start).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(std::slice::from_raw_parts(start.as_ptr().cast(), count)),
            None => Err(std::io::Error::last_os_error()),
        }
    }
}
