//! Pools, strings and random numbers.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nginx::sys::{ngx_palloc, ngx_pcalloc, ngx_pnalloc, ngx_pool_t, ngx_str_t};

/// The bytes of an nginx string; empty for a null one.
///
/// # Safety
/// Unless its length is 0, the string points at that many bytes, unchanged for `'a`.
pub unsafe fn bytes<'a>(text: ngx_str_t) -> &'a [u8] {
    if text.len == 0 || text.data.is_null() {
        return &[];
    }
    // SAFETY: the caller promises that so many bytes are there, and stay.
    unsafe { std::slice::from_raw_parts(text.data, text.len) }
}

/// A zeroed `T` in a pool, null when memory is out.
///
/// # Safety
/// `pool` is alive; zeroes are a value of `T`.
pub unsafe fn zeroed<T>(pool: *mut ngx_pool_t) -> *mut T {
    const { assert!(align_of::<T>() <= nginx::sys::NGX_ALIGNMENT) };
    // SAFETY: the pool is alive.
    unsafe { ngx_pcalloc(pool, size_of::<T>()) }.cast()
}

/// An uninitialised array of `T` in a pool, null when memory is out.
///
/// # Safety
/// `pool` is alive.
pub unsafe fn array<T>(pool: *mut ngx_pool_t, count: usize) -> *mut T {
    const { assert!(align_of::<T>() <= nginx::sys::NGX_ALIGNMENT) };
    match count.checked_mul(size_of::<T>()) {
        // SAFETY: the pool is alive.
        Some(bytes) => unsafe { ngx_palloc(pool, bytes) }.cast(),
        None => std::ptr::null_mut(),
    }
}

/// A copy of the concatenation of `parts` in a pool; `None` when memory is out.
///
/// # Safety
/// `pool` is alive, and outlives the use of the string.
pub unsafe fn concat(pool: *mut ngx_pool_t, parts: &[&[u8]]) -> Option<ngx_str_t> {
    let len = parts.iter().map(|part| part.len()).sum();
    // SAFETY: the pool is alive.
    let data: *mut u8 = unsafe { ngx_pnalloc(pool, len) }.cast();
    if data.is_null() {
        return None;
    }
    let mut at = data;
    for part in parts {
        // SAFETY: the parts fill the allocation one after the other.
        unsafe { at.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
        // SAFETY: at most one past the allocation.
        at = unsafe { at.add(part.len()) };
    }
    #[cfg(feature = "planted-faults")]
    if oxigress_store::is_planted("pool-overrun") {
        // SAFETY: none, that is the fault.
        unsafe { at.write(0) };
    }
    #[cfg(feature = "planted-faults")]
    let len = len + usize::from(oxigress_store::is_planted("long-string"));
    Some(ngx_str_t { len, data })
}

/// A random number from the kernel.
pub fn random() -> u64 {
    let mut number = [0_u8; 8];
    // SAFETY: the buffer has 8 bytes.
    let got = unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) };
    // Fails only before the kernel's pool is filled at boot, and never short for 8 bytes.
    assert!(got == 8, "the kernel gives no random numbers");
    u64::from_ne_bytes(number)
}

/// Nanoseconds on a clock that all processes of the machine share and nobody sets.
pub fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the struct it is given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// The clock of the statistics: nginx's own, which all of its processes share, as this turn of the event loop
/// read it.
#[inline]
pub fn now_milliseconds() -> u64 {
    // SAFETY: a number that nginx writes on the event loop's thread.
    unsafe { nginx::sys::ngx_current_msec as u64 }
}

/// The same clock in seconds.
pub fn now_seconds() -> u64 {
    now_milliseconds() / 1_000
}

/// The same clock, on any thread.
pub fn monotonic_milliseconds() -> u64 {
    monotonic_nanoseconds() / 1_000_000
}

/// Whether the folder of a file is on a file system that keeps files in memory; also if nobody can say.
pub fn is_memory_backed(path: &[u8]) -> bool {
    let folder = Path::new(OsStr::from_bytes(path)).parent();
    let folder = folder.and_then(|folder| CString::new(folder.as_os_str().as_bytes()).ok());
    let Some(folder) = folder else { return true };
    // SAFETY: a C struct of numbers.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a NUL and the struct is written by the kernel.
    let answer = unsafe { libc::statfs(folder.as_ptr(), &raw mut facts) };
    answer != 0 || [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&facts.f_type)
}

/// linux/magic.h
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Milliseconds since 1970, as this turn of the event loop read them.
pub fn wall_clock_milliseconds() -> u64 {
    let (seconds, milliseconds) = nginx::wall_clock();
    seconds as u64 * 1_000 + milliseconds
}
