//! nginx's clocks, as the current turn of the event loop has read them.

use crate::basic::event_loop::EventLoop;
use crate::basic::text::bytes;
use crate::sys::global;

/// Milliseconds on a clock that nobody sets and all processes of the machine share.
#[inline]
pub fn now_milliseconds() -> u64 {
    global!(ngx_current_msec) as u64
}

/// Seconds and milliseconds since 1970.
#[inline]
pub fn wall_clock() -> (i64, u64) {
    let now = global!(ngx_cached_time);
    // SAFETY: one of nginx's 64 times, none of which goes. Another thread may see the milliseconds of a later turn; the seconds
    // of one are written again after a minute.
    let (seconds, milliseconds) = unsafe {
        ((&raw const (*now).sec).read_volatile(), (&raw const (*now).msec).read_volatile())
    };
    (seconds, milliseconds as u64)
}

/// Looks at the local time as nginx's access logs write it.
#[inline]
pub fn with_log_time<T>(_: EventLoop, look: impl FnOnce(&[u8]) -> T) -> T {
    // SAFETY: nginx keeps this string at one of many places, and changes none of them before the callback is over.
    look(unsafe { bytes(global!(ngx_cached_http_log_time)) })
}
