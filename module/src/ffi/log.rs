//! nginx's error log.

use nginx_sys::{ngx_cycle, ngx_log_t, ngx_uint_t};
use std::fmt::Arguments;
use std::mem::MaybeUninit;

pub const EMERG: ngx_uint_t = nginx_sys::NGX_LOG_EMERG as ngx_uint_t;
pub const ALERT: ngx_uint_t = nginx_sys::NGX_LOG_ALERT as ngx_uint_t;
pub const ERROR: ngx_uint_t = nginx_sys::NGX_LOG_ERR as ngx_uint_t;
pub const WARN: ngx_uint_t = nginx_sys::NGX_LOG_WARN as ngx_uint_t;
pub const NOTICE: ngx_uint_t = nginx_sys::NGX_LOG_NOTICE as ngx_uint_t;

/// Writes a line to `log` if its level asks for it.
///
/// # Safety
/// `log` is a log of nginx.
pub unsafe fn write(level: ngx_uint_t, log: *mut ngx_log_t, line: Arguments<'_>) {
    // SAFETY: the caller gives a valid log.
    if unsafe { (*log).log_level } < level {
        return;
    }
    let mut buffer = [MaybeUninit::uninit(); ngx::log::LOG_BUFFER_SIZE];
    let line = ngx::log::write_fmt(&mut buffer, line);
    // SAFETY: as above; the line is a slice.
    unsafe { ngx::log::log_error(level, log, 0, line) };
}

/// Writes a line to the cycle's log, outside of any request.
pub fn cycle(level: ngx_uint_t, line: Arguments<'_>) {
    // SAFETY: nginx sets ngx_cycle before it loads a module, and gives it a log.
    unsafe { write(level, (*ngx_cycle).log, line) };
}

/// Warns the operator, outside of any request.
pub fn warn(line: Arguments<'_>) {
    cycle(WARN, line);
}
