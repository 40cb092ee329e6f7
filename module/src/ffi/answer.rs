//! Answers: the REWRITE phase's, and whole responses of the configuration endpoint.

use super::{Request, directives, guard, log, memory};
use crate::configuration;
use crate::{errors, route};
use nginx::sys::{
    NGX_DECLINED, NGX_DONE, NGX_ERROR, NGX_HTTP_INTERNAL_SERVER_ERROR, NGX_HTTP_NOT_FOUND, NGX_OK,
    ngx_buf_t, ngx_chain_t, ngx_http_finalize_request, ngx_http_internal_redirect,
    ngx_http_output_filter, ngx_http_request_t, ngx_http_send_header, ngx_int_t, ngx_list_push,
    ngx_str_t, ngx_table_elt_t,
};
use oxigress_core::gateway::Answer;
use std::ptr::null_mut;

const INTERNAL_ERROR: ngx_int_t = NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;

/// nginx's callback for each request in its REWRITE phase.
pub unsafe extern "C" fn rewrite_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: nginx runs this phase for a live request.
    if !unsafe { directives::is_router(raw) } {
        // SAFETY: as above.
        return match unsafe { directives::is_error(raw) } {
            true => error_handler(raw),
            // SAFETY: as above.
            false => unsafe { not_routed(raw) },
        };
    }
    guard::contain("rewrite", INTERNAL_ERROR, || {
        // SAFETY: alive, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return INTERNAL_ERROR;
        };
        // SAFETY: as above, in its REWRITE phase.
        unsafe { carry_out(raw, &route::decide(&request)) }
    })
}

/// A request that nginx has sent to the `ingress_error` location, in its REWRITE phase.
fn error_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("error", INTERNAL_ERROR, || {
        // SAFETY: alive, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else {
            return INTERNAL_ERROR;
        };
        // SAFETY: as above, in its REWRITE phase.
        unsafe { carry_out(raw, &errors::decide(&request)) }
    })
}

/// Answers what a phase's handler answers.
///
/// # Safety
/// `raw` is alive, in its REWRITE phase, and its handler returns the answer.
unsafe fn carry_out(raw: *mut ngx_http_request_t, answer: &Answer) -> ngx_int_t {
    match answer {
        Answer::Forward => NGX_DECLINED as ngx_int_t,
        Answer::Respond(status) => ngx_int_t::from(*status as i16),
        // SAFETY: vouched for by the caller.
        Answer::Internal(path) => unsafe { redirect_internally(raw, path) },
        Answer::Redirect { code, location } => {
            // SAFETY: as above.
            let header = unsafe { add_header(raw, "Location", location) };
            if header.is_null() {
                return INTERNAL_ERROR;
            }
            // SAFETY: alive; nginx sends the header and writes the page for the status.
            unsafe {
                if location.starts_with(b"/") {
                    // nginx would put its own host and port before a path, which is meant as it is. Without a
                    // location of its own it has no page for `msie_refresh`.
                    (*raw).headers_in.set_msie(0);
                } else {
                    (*raw).headers_out.location = header;
                }
            }
            ngx_int_t::from(*code as i16)
        }
    }
}

/// The phase elsewhere: questions to auth servers and copies, and nobody else, go through their locations.
///
/// # Safety
/// `raw` is alive.
unsafe fn not_routed(raw: *mut ngx_http_request_t) -> ngx_int_t {
    // SAFETY: vouched for by the caller.
    let (is_auth, is_mirror) =
        unsafe { (directives::is_auth_location(raw), directives::is_mirror_location(raw)) };
    if !is_auth && !is_mirror {
        return NGX_DECLINED as ngx_int_t;
    }
    guard::contain("rewrite", INTERNAL_ERROR, || {
        // SAFETY: alive, on the event loop.
        let request = unsafe { Request::from_callback(raw) };
        let is_ours = |request: Request<'_>| {
            is_auth && request.question().is_some() || is_mirror && request.mirror().is_some()
        };
        match request.is_some_and(is_ours) {
            true => NGX_DECLINED as ngx_int_t,
            false => NGX_HTTP_NOT_FOUND as ngx_int_t,
        }
    })
}

/// Goes on at another path, query included; answers what a phase's handler answers.
///
/// # Safety
/// `raw` is alive, and its handler returns the answer.
unsafe fn redirect_internally(raw: *mut ngx_http_request_t, target: &[u8]) -> ngx_int_t {
    let (path, query) = match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, &b""[..]),
    };
    // SAFETY: the request's pool is alive.
    let copies = unsafe {
        let pool = (*raw).pool;
        memory::concat(pool, &[path]).zip(memory::concat(pool, &[query]))
    };
    let Some((mut path, mut query)) = copies else { return INTERNAL_ERROR };
    // SAFETY: alive; nginx counts the request up for what follows and down again here.
    unsafe {
        ngx_http_internal_redirect(raw, &raw mut path, &raw mut query);
        ngx_http_finalize_request(raw, NGX_DONE as ngx_int_t);
    }
    NGX_DONE as ngx_int_t
}

/// Adds a response header; null when memory is out.
///
/// # Safety
/// `raw` is alive and its header was not sent.
pub unsafe fn add_header(
    raw: *mut ngx_http_request_t,
    name: &'static str,
    value: &[u8],
) -> *mut ngx_table_elt_t {
    // SAFETY: the request's pool is alive.
    let Some(value) = (unsafe { memory::concat((*raw).pool, &[value]) }) else { return null_mut() };
    // SAFETY: the list was initialised with the request.
    let header: *mut ngx_table_elt_t =
        unsafe { ngx_list_push(&raw mut (*raw).headers_out.headers) }.cast();
    if header.is_null() {
        return header;
    }
    // Zeroes are the value of the rest: of `next` too, which nginx has since 1.23.
    // SAFETY: a new element, a C struct of numbers and pointers.
    unsafe { header.write_bytes(0, 1) };
    // SAFETY: as above, and written now.
    let element = unsafe { &mut *header };
    element.hash = 1;
    element.key = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
    element.value = value;
    header
}

/// Sends a whole response; answers what a content handler answers.
///
/// # Safety
/// `raw` is alive and its header was not sent.
pub unsafe fn send(raw: *mut ngx_http_request_t, answer: configuration::Answer) -> ngx_int_t {
    // SAFETY: a request has a connection with a log.
    let request_log = unsafe { (*(*raw).connection).log };
    for line in &answer.log {
        // SAFETY: as above.
        unsafe {
            log::write(log::WARN, request_log, format_args!("ingress_configuration: {line}"))
        };
    }
    let body = answer.body.as_slice();
    // SAFETY: alive.
    unsafe {
        (*raw).headers_out.status = usize::from(answer.status);
        (*raw).headers_out.content_length_n = body.len() as _;
        let kind = answer.content_type;
        (*raw).headers_out.content_type =
            ngx_str_t { len: kind.len(), data: kind.as_ptr().cast_mut() };
        (*raw).headers_out.content_type_len = kind.len();
        (*raw).headers_out.content_type_lowcase = null_mut();
    }
    for (name, value) in &answer.headers {
        // SAFETY: alive.
        if unsafe { add_header(raw, name, value.as_bytes()) }.is_null() {
            return INTERNAL_ERROR;
        }
    }
    if answer.is_last {
        // SAFETY: nginx gives a live struct.
        unsafe { (*raw).set_keepalive(0) };
    }
    // nginx would compare If-Match with the ETag of this answer, which is already the next one.
    // SAFETY: nginx gives a live struct.
    unsafe { (*raw).set_disable_not_modified(1) };
    // SAFETY: alive.
    let sent = unsafe { ngx_http_send_header(raw) };
    // SAFETY: as above.
    let is_header_only = unsafe { (*raw).header_only() != 0 };
    if sent == NGX_ERROR as ngx_int_t || sent > NGX_OK as ngx_int_t || is_header_only {
        return sent;
    }
    // SAFETY: the request's pool is alive.
    let Some(copy) = (unsafe { memory::concat((*raw).pool, &[body]) }) else {
        return NGX_ERROR as ngx_int_t;
    };
    // SAFETY: as above; zeroes are a value of both.
    let (buffer, chain): (*mut ngx_buf_t, *mut ngx_chain_t) =
        unsafe { (memory::zeroed((*raw).pool), memory::zeroed((*raw).pool)) };
    if buffer.is_null() || chain.is_null() {
        return NGX_ERROR as ngx_int_t;
    }
    // SAFETY: allocated above; an empty body is sent as a buffer that only ends the response.
    unsafe {
        (*buffer).pos = copy.data;
        (*buffer).last = copy.data.add(copy.len);
        let flags = &mut *buffer;
        flags.set_memory(u32::from(copy.len > 0));
        flags.set_last_buf(1);
        flags.set_last_in_chain(1);
        (*chain).buf = buffer;
        ngx_http_output_filter(raw, chain)
    }
}
