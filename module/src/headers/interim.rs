//! Interim responses of endpoints, such as 103 Early Hints, are read over: nginx would take them for the response.
//!
//! nginx's proxy module reads the head of a response by a callback that changes as it goes on. This one stands before it
//! until the response itself begins, for each attempt anew. nginx's gRPC module refuses interim responses, and so
//! does this one for FastCGI, which has none.
#![allow(unsafe_code)]

use crate::request::Request;
use crate::system::guard;
use nginx::sys::{
    NGX_AGAIN, NGX_ERROR, NGX_HTTP_UPSTREAM_INVALID_HEADER, NGX_OK, ngx_http_request_t, ngx_int_t,
};
use oxigress_core::http::interim::{First, first};
use std::slice;

/// An endpoint that sends more of them than this in one attempt is broken.
const MAX: u8 = 16;

type Callback = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// nginx's callbacks that ours stand before. Zeroes are none.
/// The longest interim head, in bytes: each read looks at it from its beginning.
const MAX_HEAD: usize = 16 * 1024;

#[derive(Clone, Copy, Default)]
pub struct Callbacks {
    process: Option<Callback>,
    reinit: Option<Callback>,
    /// Interim responses of this attempt.
    count: u8,
}

/// Reads over what comes before the response of an HTTP endpoint.
///
/// # Safety
/// `raw` is alive and has an upstream that was not asked yet; `request` is its safe side.
pub unsafe fn install(raw: *mut ngx_http_request_t, request: &Request<'_>) -> Option<()> {
    // SAFETY: the caller has a live request with an upstream.
    let upstream = unsafe { &mut *(*raw).upstream };
    // SAFETY: a text of nginx's module.
    let schema = unsafe { crate::system::memory::bytes(upstream.schema) };
    let (process, reinit) = (upstream.process_header, upstream.reinit_request);
    let ours: Callback = match schema {
        b"http://" | b"https://" => process_header,
        b"fastcgi://" => refuse_interim,
        _ => return Some(()),
    };
    request.set_interim(Callbacks { process, reinit, count: 0 })?;
    upstream.process_header = Some(ours);
    if schema != b"fastcgi://" {
        upstream.reinit_request = Some(reinit_request);
    }
    Some(())
}

/// The callback for FastCGI, which nginx leaves in place for all attempts: after a head with such a status no other
/// comes, and a client would wait for one.
unsafe extern "C" fn refuse_interim(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("process_header", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return NGX_ERROR as ngx_int_t;
        };
        let Some(process) = request.interim().process else { return NGX_ERROR as ngx_int_t };
        // SAFETY: nginx's own callback for this request, which has an upstream.
        let (answer, status) = unsafe { (process(raw), (*(*raw).upstream).headers_in.status_n) };
        if answer != NGX_OK as ngx_int_t || !(100..200).contains(&status) {
            return answer;
        }
        let line = format_args!("ingress: status {status} is no response of a FastCGI endpoint");
        request.log_error(line);
        NGX_HTTP_UPSTREAM_INVALID_HEADER as ngx_int_t
    })
}

/// nginx's callback before an attempt after the first.
unsafe extern "C" fn reinit_request(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("reinit_request", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return NGX_ERROR as ngx_int_t;
        };
        let callbacks = request.interim();
        let Some(reinit) = callbacks.reinit else { return NGX_ERROR as ngx_int_t };
        // SAFETY: nginx's own callback for this request, which has an upstream.
        let (answer, upstream) = unsafe { (reinit(raw), &mut *(*raw).upstream) };
        // nginx's HTTP/2 callback stays in place for all attempts: then ours may still stand there.
        let is_ours = |it: &Callback| std::ptr::fn_addr_eq(*it, process_header as Callback);
        let process = upstream.process_header.filter(|it| !is_ours(it)).or(callbacks.process);
        match request.set_interim(Callbacks { process, count: 0, ..callbacks }) {
            Some(()) => upstream.process_header = Some(process_header),
            None => return NGX_ERROR as ngx_int_t,
        }
        answer
    })
}

/// nginx's callback when more of an answer has come.
unsafe extern "C" fn process_header(raw: *mut ngx_http_request_t) -> ngx_int_t {
    let process = guard::contain("process_header", Err(NGX_ERROR as ngx_int_t), || {
        // SAFETY: nginx gives the live request, on the event loop.
        let request = unsafe { Request::from_callback(raw) }.ok_or(NGX_ERROR as ngx_int_t)?;
        // SAFETY: as above: it has an upstream.
        unsafe { read_over(raw, &request) }
    });
    match process {
        // SAFETY: nginx's own callback, for the response from its first byte on.
        Ok(process) => unsafe { process(raw) },
        Err(answer) => answer,
    }
}

/// Answers nginx's callback when the response begins.
///
/// # Safety
/// `raw` is alive with an upstream whose buffer was read into, `request` its safe side.
unsafe fn read_over(
    raw: *mut ngx_http_request_t,
    request: &Request<'_>,
) -> Result<Callback, ngx_int_t> {
    // SAFETY: the caller has a live request with an upstream.
    let upstream = unsafe { &mut *(*raw).upstream };
    let buffer = &mut upstream.buffer;
    let mut callbacks = request.interim();
    loop {
        let length = buffer.last.addr().saturating_sub(buffer.pos.addr());
        // SAFETY: what was read lies between these two.
        let bytes = unsafe { slice::from_raw_parts_mut(buffer.pos, length) };
        let seen = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        match first(seen) {
            First::Unknown if seen.len() == MAX_HEAD => {
                let line =
                    format_args!("ingress: an interim response is longer than {MAX_HEAD} bytes");
                request.log_error(line);
                return Err(NGX_HTTP_UPSTREAM_INVALID_HEADER as ngx_int_t);
            }
            First::Unknown => return Err(NGX_AGAIN as ngx_int_t),
            First::Response => break,
            First::Interim(head) => {
                callbacks.count += 1;
                let _ = request.set_interim(callbacks);
                if callbacks.count > MAX {
                    let line = format_args!("ingress: more than {MAX} interim responses");
                    request.log_error(line);
                    return Err(NGX_HTTP_UPSTREAM_INVALID_HEADER as ngx_int_t);
                }
                // What follows takes its place: the buffer stays as large as it was.
                bytes.copy_within(head.., 0);
                // SAFETY: `head` is within the bytes.
                buffer.last = unsafe { buffer.last.sub(head) };
            }
        }
    }
    upstream.process_header = callbacks.process;
    callbacks.process.ok_or(NGX_ERROR as ngx_int_t)
}
