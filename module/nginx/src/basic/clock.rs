//! nginx's clocks, as the current turn of the event loop has read them.

use crate::basic::text::bytes;
use crate::sys::{global, ngx_cached_time};

/// Milliseconds on a clock that nobody sets and all processes of the machine share.
#[inline]
pub fn now_milliseconds() -> u64 {
    global!(ngx_current_msec) as u64
}

/// Seconds and milliseconds since 1970.
#[inline]
pub fn wall_clock() -> (i64, u64) {
    // SAFETY: nginx keeps this pointer at one of its times, and changes that on the thread of the event loop, which this is.
    let now = unsafe { &*ngx_cached_time };
    (now.sec, now.msec as u64)
}

/// The local time as nginx's access logs write it.
#[inline]
pub fn log_time() -> &'static [u8] {
    // SAFETY: nginx keeps this string at one of many places, which it does not change for a minute.
    unsafe { bytes(global!(ngx_cached_http_log_time)) }
}
