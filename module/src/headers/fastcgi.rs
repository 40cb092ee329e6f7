//! A FastCGI request that nginx has written, and the parameters that its route has for it.
#![allow(unsafe_code)]

use crate::headers::requests;
use crate::request::Request;
use crate::system::memory;
use nginx::sys::{ngx_http_request_t, ngx_str_t};
use oxigress_core::http::fastcgi;

/// What nginx's module calls such a request.
const SCHEMA: &[u8] = b"fastcgi://";

/// Puts the route's parameters in, if this goes to a FastCGI endpoint and the route has any. `None`: it cannot be
/// done, and the request must not be sent as it is.
///
/// # Safety
/// nginx has written the request and not begun to send it; `seen` is the request.
#[inline]
pub unsafe fn complete(raw: *mut ngx_http_request_t, seen: &Request<'_>) -> Option<()> {
    let Some(policies) = seen.policies().map(|policies| &policies.source) else {
        return Some(());
    };
    if policies.proxy.as_ref().is_none_or(|proxy| proxy.fastcgi_params.is_empty()) {
        return Some(());
    }
    // SAFETY: the caller has a live request with an upstream: there is an upstream.
    let upstream = unsafe { &*(*raw).upstream };
    let schema = ngx_str_t { len: upstream.schema.len, data: upstream.schema.data };
    // SAFETY: a text of nginx's module.
    if unsafe { memory::bytes(schema) } != SCHEMA {
        return Some(());
    }
    // SAFETY: nginx's chain, in the request's pool; all of the parameters are in its first buffer, and the head of the
    // body's first record.
    let buffer = unsafe { upstream.request_bufs.as_ref()?.buf.as_mut() }?;
    let length = buffer.last.addr().checked_sub(buffer.pos.addr())?;
    // SAFETY: what is written of a buffer lies between these two.
    let written = unsafe { memory::bytes(ngx_str_t { len: length, data: buffer.pos }) };
    let changed = fastcgi::with_parameters(written, &requests::fastcgi_parameters(seen, policies))?;
    // SAFETY: the request's pool is alive, and outlives its buffers.
    let copy = unsafe { memory::concat((*raw).pool, &[&changed]) }?;
    // nginx goes back to `start` for another attempt.
    (buffer.start, buffer.pos) = (copy.data, copy.data);
    // SAFETY: one past the copy.
    buffer.last = unsafe { copy.data.add(copy.len) };
    buffer.end = buffer.last;
    Some(())
}
