//! The header filter: the last word on a response's head, whoever made it, endpoint or nginx.
//!
//! It runs before nginx's own filters, once for a response. Interim responses (1xx) do not come here, and those of
//! subrequests are nobody's.

use super::answer::add_header;
use super::{Request, directives, discard, draining, guard};
use crate::responses;
use nginx::sys::{
    NGX_ERROR, NGX_HTTP_BAD_GATEWAY, NGX_HTTP_SERVICE_UNAVAILABLE, NGX_OK,
    ngx_http_output_header_filter_pt, ngx_http_request_t, ngx_http_top_header_filter, ngx_int_t,
};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

struct Next(UnsafeCell<ngx_http_output_header_filter_pt>);

// SAFETY: written while the configuration is read, and read on the event loop: one thread.
unsafe impl Sync for Next {}

/// The filter that ran before ours was put in front of it.
static NEXT: Next = Next(UnsafeCell::new(None));

/// Puts the filter in front of nginx's.
///
/// # Safety
/// Called while the configuration is read; nginx begins a new chain for each configuration.
pub unsafe fn install() {
    // SAFETY: vouched for by the caller.
    unsafe {
        *NEXT.0.get() = ngx_http_top_header_filter;
        ngx_http_top_header_filter = Some(header_filter);
    }
}

unsafe extern "C" fn header_filter(raw: *mut ngx_http_request_t) -> ngx_int_t {
    // A response that protects may lack a header, and is not sent without it.
    // SAFETY: nginx gives a live request, on the event loop.
    let is_done = guard::contain("header_filter", false, || unsafe { run(raw) });
    if !is_done {
        return NGX_ERROR as ngx_int_t;
    }
    // SAFETY: as above.
    guard::contain("auth_header_filter", (), || unsafe { super::access::filter_header(raw) });
    // SAFETY: written by `install`; nginx's own filter is there before any module's.
    let answer = match unsafe { *NEXT.0.get() } {
        // SAFETY: a header filter, for the request it is meant for.
        Some(next) => unsafe { next(raw) },
        None => NGX_ERROR as ngx_int_t,
    };
    // SAFETY: as above.
    if answer == NGX_OK as ngx_int_t && raw != unsafe { (*raw).main } {
        // SAFETY: as above; nginx looks at the body next.
        guard::contain("discard", (), || unsafe { discard::begin(raw) });
    }
    answer
}

/// The steps, in their order; `false`: this response cannot be sent.
///
/// # Safety
/// `raw` is alive, on the event loop, and its header was not sent.
unsafe fn run(raw: *mut ngx_http_request_t) -> bool {
    // SAFETY: vouched for by the caller.
    if raw != unsafe { (*raw).main } {
        return true;
    }
    // SAFETY: as above.
    let Some(request) = (unsafe { Request::from_callback(raw) }) else { return true };
    // SAFETY: as above.
    if unsafe { (*raw).headers_out.status } == NGX_HTTP_BAD_GATEWAY as usize && request.is_busy() {
        // SAFETY: as above.
        unsafe { answer_busy(raw) };
    }
    if let Some(policies) = request.policies()
        && !responses::finish(&request, policies)
    {
        return false;
    }
    let is_draining = request.worker().is_draining();
    if !is_draining && !request.is_https() {
        return true;
    }
    // SAFETY: as above.
    if !request.is_decided() && !unsafe { directives::is_router(raw) } {
        return true;
    }
    if is_draining {
        // SAFETY: as above.
        unsafe { draining::send_away(raw) };
    }
    !request.is_https() || responses::secure(&request)
}

/// 503 where every endpoint is busy up to its limit.
///
/// REWRITE answers so when it sees that nobody can take a request. Other workers may take the last places between
/// that and the attempt; nginx has one answer to "no endpoint", 502, which becomes the other here.
///
/// # Safety
/// `raw` is alive, on the event loop, and its header was not sent.
unsafe fn answer_busy(raw: *mut ngx_http_request_t) {
    // SAFETY: as above.
    unsafe {
        add_header(raw, "Retry-After", b"1");
        let out = &mut (*raw).headers_out;
        out.status = NGX_HTTP_SERVICE_UNAVAILABLE as usize;
        out.status_line.len = 0;
        // What logs and metrics tell.
        if (*raw).err_status != 0 {
            (*raw).err_status = NGX_HTTP_SERVICE_UNAVAILABLE as usize;
        }
        // The page at hand is that of 502: there is none.
        out.content_length_n = 0;
        if let Some(length) = out.content_length.as_mut() {
            length.hash = 0;
            out.content_length = null_mut();
        }
        (*raw).set_header_only(1);
    }
}
