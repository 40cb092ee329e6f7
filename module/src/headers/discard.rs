//! Bodies of answers that nobody needs: those of auth servers and mirrors. Short ones are read and dropped, so that the
//! connection can be used again.
//!
//! nginx ends the exchange of a subrequest whose body is not wanted (`header_only`) with the head of its answer, and then
//! closes the connection, since the body would be taken for the next answer. Here nginx reads the body after all, unbuffered,
//! through the filter of its protocol, behind which ours drops what comes out.
//!
//! Bounds:  [`MAX_BYTES`] and [`MAX_MSEC`]. What is longer or slower ends as before: the answer counts, the connection is
//!          closed. The body of a mirror's answer is dropped only if its length is told and all of it came with the head:
//!          else nginx would go on to the client's connection, whose timers and turn are the main request's.
//! Source:  ngx_http_upstream_send_response, ngx_http_upstream_process_non_buffered_request.
#![allow(unsafe_code)]

use crate::request::Request;
use crate::system::guard;
use crate::system::memory;
use nginx::sys::{NGX_ERROR, NGX_OK, ngx_current_msec, ngx_http_request_t, ngx_int_t, ngx_msec_t};
use std::ffi::c_void;

/// Longest body.
const MAX_BYTES: usize = 64 * 1024;
/// Longest wait for it: short bodies come with their head, or right behind it.
const MAX_MSEC: ngx_msec_t = 100;

type Init = unsafe extern "C" fn(*mut c_void) -> ngx_int_t;
type Filter = unsafe extern "C" fn(*mut c_void, isize) -> ngx_int_t;

/// A body that is being dropped, in the pool of the request.
#[repr(C)]
struct Discard {
    request: *mut ngx_http_request_t,
    upstream: *mut nginx::sys::ngx_http_upstream_s,
    /// nginx's callbacks for the protocol, which ours stand before.
    init: Init,
    filter: Option<Filter>,
    context: *mut c_void,
    bytes: usize,
    until_msec: ngx_msec_t,
}

/// Has the body of an answer dropped, if it is a short one that nobody needs.
///
/// # Safety
/// `raw` is a live subrequest, on the event loop; its header was sent a moment ago, and nginx has not looked at the body.
pub unsafe fn begin(raw: *mut ngx_http_request_t) {
    // SAFETY: the caller has a live subrequest with an upstream.
    let Some(request) = (unsafe { Request::from_callback(raw) }) else { return };
    let is_copy = request.mirror().is_some();
    if !is_copy && request.question().is_none() {
        return;
    }
    // SAFETY: the caller has a live subrequest with an upstream.
    unsafe {
        let upstream: *mut nginx::sys::ngx_http_upstream_s = (*raw).upstream.cast();
        let flags: *mut nginx::sys::ngx_http_request_s = raw.cast();
        if upstream.is_null() || (*flags).header_only() == 0 || (*flags).cached() != 0 {
            return;
        }
        // Without a connection the answer comes from nginx's cache, too.
        if (*upstream).peer.connection.is_null() || is_kept(raw, upstream) {
            return;
        }
        let (head, buffer) = (&(*upstream).headers_in, &(*upstream).buffer);
        let is_short = usize::try_from(head.content_length_n).is_ok_and(|bytes| bytes <= MAX_BYTES);
        let read = buffer.last.offset_from(buffer.pos);
        // For more nginx would go on to the timers of the client's connection, which are the main request's.
        let is_all_here = i64::try_from(read).is_ok_and(|read| read >= head.content_length_n);
        let is_taken = match is_copy {
            true => is_short && is_all_here,
            false => is_short || head.chunked() != 0,
        };
        // Without a body nginx keeps the connection by itself.
        let is_over = (*upstream).keepalive() != 0 || head.connection_close() != 0;
        let Some(init) = (*upstream).input_filter_init.filter(|_| is_taken && !is_over) else {
            return;
        };
        let discard: *mut Discard = memory::array((*raw).pool, 1);
        if discard.is_null() {
            return;
        }
        discard.write(Discard {
            request: raw,
            upstream,
            init,
            filter: None,
            context: (*upstream).input_filter_ctx,
            bytes: 0,
            until_msec: ngx_current_msec + MAX_MSEC,
        });
        (*upstream).input_filter_init = Some(begin_body);
        (*upstream).input_filter_ctx = discard.cast();
        (*upstream).set_buffering(0);
        // Until nginx has looked, a few lines on.
        (*flags).set_header_only(0);
    }
}

/// nginx reads the body itself, to keep the answer.
///
/// # Safety
/// `raw` is alive, `upstream` its upstream.
unsafe fn is_kept(
    raw: *mut ngx_http_request_t,
    upstream: *mut nginx::sys::ngx_http_upstream_s,
) -> bool {
    // SAFETY: the caller has a live subrequest with an upstream.
    unsafe {
        if (*upstream).store() != 0 || (*upstream).upgrade() != 0 {
            return true;
        }
        if (*upstream).cacheable() == 0 {
            return false;
        }
        let lasts = (*raw).cache.as_ref().is_some_and(|cache| cache.valid_sec != 0);
        if !lasts && (*(*upstream).conf).cache_valid.is_null() {
            // As nginx would find out, after it has looked whether there is a body to read.
            (*upstream).set_cacheable(0);
        }
        (*upstream).cacheable() != 0
    }
}

/// nginx's callback before the body.
unsafe extern "C" fn begin_body(data: *mut c_void) -> ngx_int_t {
    guard::contain("begin_body", NGX_ERROR as ngx_int_t, || {
        // SAFETY: what `begin` made, in the pool of the live request.
        let discard = unsafe { &mut *data.cast::<Discard>() };
        // SAFETY: alive.
        unsafe {
            // Nothing is sent, also not at the end.
            (*discard.request).set_header_only(1);
            let answer = (discard.init)(discard.context);
            let upstream = &mut *discard.upstream;
            discard.filter = upstream.input_filter;
            upstream.input_filter = Some(drop_part);
            if answer == NGX_OK as ngx_int_t && upstream.buffer.pos == upstream.buffer.last {
                return wait_shortly(discard);
            }
            answer
        }
    })
}

/// nginx's callback for a part of the body, which stands behind the end of its buffer.
unsafe extern "C" fn drop_part(data: *mut c_void, bytes: isize) -> ngx_int_t {
    guard::contain("drop_part", NGX_ERROR as ngx_int_t, || {
        // SAFETY: as above.
        let discard = unsafe { &mut *data.cast::<Discard>() };
        let Some(filter) = discard.filter else { return NGX_ERROR as ngx_int_t };
        // SAFETY: nginx's own callback, with what it expects.
        let answer = unsafe { filter(discard.context, bytes) };
        if answer != NGX_OK as ngx_int_t {
            return answer;
        }
        // SAFETY: alive; the chains are the upstream's, and end with null.
        unsafe {
            let upstream = &mut *discard.upstream;
            while let Some(part) = upstream.out_bufs.as_mut() {
                upstream.out_bufs = part.next;
                part.next = upstream.free_bufs;
                upstream.free_bufs = part;
            }
            if upstream.length == 0 {
                return NGX_OK as ngx_int_t;
            }
            discard.bytes = discard.bytes.saturating_add(bytes.unsigned_abs());
            if discard.bytes > MAX_BYTES || ngx_current_msec >= discard.until_msec {
                return NGX_ERROR as ngx_int_t;
            }
            wait_shortly(discard)
        }
    })
}

/// Has nginx wait for what is still to come, but not as long as for an answer. NGX_ERROR when memory is out.
///
/// # Safety
/// The request is alive and has its upstream.
unsafe fn wait_shortly(discard: &Discard) -> ngx_int_t {
    // SAFETY: the caller has a live subrequest with an upstream; a configuration is numbers and pointers, which all outlive the request.
    unsafe {
        let upstream = &mut *discard.upstream;
        if (*upstream.conf).read_timeout <= MAX_MSEC {
            return NGX_OK as ngx_int_t;
        }
        let own = memory::array::<nginx::sys::ngx_http_upstream_conf_t>((*discard.request).pool, 1);
        if own.is_null() {
            return NGX_ERROR as ngx_int_t;
        }
        own.copy_from_nonoverlapping(upstream.conf, 1);
        (*own).read_timeout = MAX_MSEC;
        upstream.conf = own;
        NGX_OK as ngx_int_t
    }
}
