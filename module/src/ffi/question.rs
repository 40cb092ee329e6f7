//! The question to an auth server: a subrequest that goes through a location of nginx.conf (`ingress_auth`).
//!
//! It has the client's headers in a list of its own, no body, and a backend of its own to balance to. Its answer is
//! read by the request that waits for it, and nothing of it is sent by itself; its body is dropped (`discard.rs`).

use super::access::{Answered, Progress};
use super::directives::{self, Scheme};
use super::{Names, NewRoute, Request, memory};
use crate::access::External;
use crate::route;
use nginx::sys::{
    NGX_ERROR, NGX_HTTP_SUBREQUEST_WAITED, NGX_OK, ngx_hash_key, ngx_http_post_subrequest_t,
    ngx_http_request_body_t, ngx_http_request_t, ngx_http_subrequest, ngx_http_upstream_t,
    ngx_int_t, ngx_list_init, ngx_list_part_t, ngx_list_push, ngx_list_t, ngx_str_t,
    ngx_table_elt_t,
};
use oxigress_core::http::header;
use oxigress_core::policy::auth;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, null_mut};

/// An answer of which more is sent than this is not kept, and neither is one that does not say how long it is: it
/// would fill the disk. Nobody needs its body.
const MAX_KEPT_BYTES: i64 = 64 * 1024;

/// A question, in the pool of the request.
#[repr(C)]
pub struct Question {
    external: *const External,
    subrequest: *mut ngx_http_request_t,
    host: ngx_str_t,
    /// Empty: the answer is not kept.
    cache_key: ngx_str_t,
    status: Cell<u16>,
    is_answered: Cell<bool>,
}

/// Names and values of a list of headers.
///
/// # Safety
/// The list is alive during `'r`, and does not change.
unsafe fn elements<'r>(list: *const ngx_list_t) -> impl Iterator<Item = &'r ngx_table_elt_t> {
    // SAFETY: vouched for by the caller.
    let mut part: *const ngx_list_part_t = unsafe { &raw const (*list).part };
    let mut place = 0;
    std::iter::from_fn(move || {
        // SAFETY: a part of the list; null after the last.
        while let Some(elements) = unsafe { part.as_ref() } {
            if place < elements.nelts {
                place += 1;
                // SAFETY: the part has `nelts` elements.
                return Some(unsafe { &*elements.elts.cast::<ngx_table_elt_t>().add(place - 1) });
            }
            (part, place) = (elements.next, 0);
        }
        None
    })
}

impl Question {
    fn external(&self) -> &External {
        // SAFETY: the request holds its policies as long as its pool, which has this.
        unsafe { &*self.external }
    }

    /// What came back.
    pub fn answer(&self) -> Answered {
        match self.is_answered.get() {
            true => Answered::Status(self.status.get()),
            false => Answered::Waits,
        }
    }

    /// The headers that came back; none before.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        // SAFETY: a subrequest lives as long as its main request, whose pool has this; null, or its upstream.
        let upstream = unsafe { (*self.subrequest).upstream.as_ref() };
        let is_there = self.is_answered.get() && self.status.get() != 0;
        let list =
            upstream.filter(|_| is_there).map(|upstream| &raw const upstream.headers_in.headers);
        // SAFETY: the answer is complete; its texts lie in the request's pool.
        list.into_iter().flat_map(|list| unsafe { elements(list) }).filter(|e| e.hash != 0).map(
            |e| {
                // SAFETY: as above.
                unsafe { (memory::bytes(e.key), memory::bytes(e.value)) }
            },
        )
    }

    /// Its cookies reach the client whatever the status.
    pub fn always_sets_cookie(&self) -> bool {
        self.external().source.always_sets_cookie
    }

    /// Name of the server.
    pub fn host(&self) -> &[u8] {
        // SAFETY: in the policies, which outlive this.
        unsafe { memory::bytes(self.host) }
    }

    /// What the answer is kept under; empty: it is not.
    pub fn cache_key(&self) -> &[u8] {
        // SAFETY: in the same pool.
        unsafe { memory::bytes(self.cache_key) }
    }

    /// Says how long the answer is kept.
    ///
    /// # Safety
    /// `raw` is the subrequest, alive, and its header is about to be sent.
    pub unsafe fn keep(&self, raw: *mut ngx_http_request_t) {
        // SAFETY: vouched for by the caller; null, or what nginx looks for in its cache.
        let (cache, upstream) = unsafe { ((*raw).cache.as_mut(), (*raw).upstream) };
        let Some(cache) = cache else { return };
        let flags: *mut nginx::sys::ngx_http_upstream_s = upstream.cast();
        // SAFETY: as above.
        if upstream.is_null() || unsafe { (*flags).cacheable() } == 0 {
            return;
        }
        // SAFETY: as above.
        let (status, length) =
            unsafe { ((*upstream).headers_in.status_n, (*upstream).headers_in.content_length_n) };
        let has_no_body = matches!(status, 204 | 304);
        if !has_no_body && !(0..=MAX_KEPT_BYTES).contains(&length) {
            // SAFETY: as above.
            unsafe { (*flags).set_cacheable(0) };
            return;
        }
        // Set: the auth server says it itself (Cache-Control, Expires, X-Accel-Expires).
        if cache.valid_sec == 0
            && let Some(seconds) = self.external().kept_seconds(status as u16)
        {
            // SAFETY: nginx keeps this pointer at a time that it does not change any more.
            let now = unsafe { (*nginx::sys::ngx_cached_time).sec };
            cache.valid_sec = now.saturating_add(i64::from(seconds));
        }
    }
}

/// Asks; `None`: nginx.conf has no location for it, the server has no backend, or memory is out.
///
/// # Safety
/// `raw` is alive, in its ACCESS phase, and holds `external` until it ends; `progress` is its own, `request` its safe
/// side.
pub unsafe fn ask<'r>(
    raw: *mut ngx_http_request_t,
    request: &Request<'r>,
    progress: &'r Progress,
    external: &'r External,
) -> Option<()> {
    let source = &external.source;
    let scheme = Scheme::of(source.to.https);
    // SAFETY: vouched for by the caller.
    let mut location = unsafe { directives::auth_location(raw, scheme) }?;
    let target = external.target(request);
    let cache_key = external.cache_key(request, &target).unwrap_or_default();
    let method = source.method.as_deref().unwrap_or("GET").as_bytes();
    // SAFETY: vouched for by the caller.
    let pool = unsafe { (*raw).pool };
    // SAFETY: the pool is alive; zeroes are a value of all of them.
    let (question, after, body) = unsafe {
        let question = memory::zeroed::<Question>(pool).as_mut()?;
        let after = memory::zeroed::<ngx_http_post_subrequest_t>(pool).as_mut()?;
        (question, after, memory::zeroed::<ngx_http_request_body_t>(pool).as_mut()?)
    };
    // SAFETY: as above.
    let (target, cache_key, method) = unsafe {
        (
            memory::concat(pool, &[&target])?,
            memory::concat(pool, &[&cache_key])?,
            memory::concat(pool, &[method])?,
        )
    };
    question.external = external;
    let host = source.to.host.as_str();
    question.host = ngx_str_t { len: host.len(), data: host.as_ptr().cast_mut() };
    question.cache_key = cache_key;
    after.handler = Some(answered);
    after.data = (&raw mut *question).cast();
    let mut subrequest = null_mut();
    // SAFETY: alive; nginx keeps what it is given in the pool that it comes from.
    let rc = unsafe {
        ngx_http_subrequest(
            raw,
            &raw mut location,
            null_mut(),
            &raw mut subrequest,
            after,
            NGX_HTTP_SUBREQUEST_WAITED as usize,
        )
    };
    if rc != NGX_OK as ngx_int_t {
        return None;
    }
    question.subrequest = subrequest;
    progress.set_question(question);
    // SAFETY: new; it runs when this callback has returned.
    unsafe {
        let new = &mut *subrequest;
        new.method_name = method;
        new.unparsed_uri = target;
        new.headers_in.content_length = null_mut();
        new.headers_in.content_length_n = -1;
        // Nothing is read, and the client's own body stays the client's.
        new.request_body = body;
        new.headers_in.set_chunked(0);
        let flags = &mut *subrequest;
        flags.set_valid_unparsed_uri(1);
        flags.set_header_only(1);
    }
    // SAFETY: alive as long as its main request.
    let asking = unsafe { Request::from_callback(subrequest) }?;
    // SAFETY: as above; nobody has looked at the list, which is a copy of the main request's.
    let is_complete =
        unsafe { write_headers(raw, request, external, &raw mut (*subrequest).headers_in.headers) };
    if is_complete.is_none() || !asking.set_question(question) {
        // It is answered with 404 where it arrives, which is no yes.
        return Some(());
    }
    let worker = asking.worker();
    let guard = worker.reader().read();
    let id = source.to.backend.as_str().as_bytes();
    let found = route::find(&guard, id, request.decided());
    let names = Some(Names::of_backend(id));
    // Without a route nobody serves it, which is no yes.
    asking.set_route(NewRoute { names, found, ..NewRoute::default() });
    Some(())
}

/// The headers of the question, in a list of its own.
///
/// # Safety
/// `raw` is alive, `request` is its safe side, and nobody uses `list`.
unsafe fn write_headers(
    raw: *mut ngx_http_request_t,
    request: &Request<'_>,
    external: &External,
    list: *mut ngx_list_t,
) -> Option<()> {
    let own = external.headers(request);
    // SAFETY: the request's pool is alive.
    let (pool, rc) = unsafe {
        let pool = (*raw).pool;
        (pool, ngx_list_init(list, pool, 32, size_of::<ngx_table_elt_t>()))
    };
    if rc != NGX_OK as ngx_int_t {
        return None;
    }
    // SAFETY: the request's own list.
    for element in unsafe { elements(&raw const (*raw).headers_in.headers) } {
        // SAFETY: the request's own text.
        let name = unsafe { memory::bytes(element.key) };
        if !auth::is_passed(name) || own.iter().any(|(own, _)| header::is_alike(own, name)) {
            continue;
        }
        // SAFETY: initialised above.
        let new: *mut ngx_table_elt_t = unsafe { ngx_list_push(list) }.cast();
        if new.is_null() {
            return None;
        }
        // SAFETY: a new element; texts stay where they are.
        unsafe { new.write(ngx_table_elt_t { next: null_mut(), ..*element }) };
    }
    for (name, value) in &own {
        if value.is_empty() || header::is_reserved(name) {
            continue;
        }
        // A value that would end its line is no value: the question is not asked.
        if !header::is_value(value) {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        // SAFETY: the pool is alive.
        let copy = unsafe { memory::concat(pool, &[name, &lower, value, b"\0"]) }?;
        // SAFETY: the copy has these parts one after the other; the list was initialised.
        unsafe {
            let new: *mut ngx_table_elt_t = ngx_list_push(list).cast();
            if new.is_null() {
                return None;
            }
            let lower_at = copy.data.add(name.len());
            new.write(ngx_table_elt_t {
                hash: ngx_hash_key(lower_at, name.len()),
                key: ngx_str_t { len: name.len(), data: copy.data },
                value: ngx_str_t { len: value.len(), data: lower_at.add(name.len()) },
                lowcase_key: lower_at,
                next: null_mut(),
            });
        }
    }
    Some(())
}

/// nginx's callback when the subrequest has ended.
unsafe extern "C" fn answered(
    raw: *mut ngx_http_request_t,
    data: *mut c_void,
    rc: ngx_int_t,
) -> ngx_int_t {
    super::guard::contain("auth_answered", (), || {
        // SAFETY: what `ask` left, in the pool of the main request.
        let question = unsafe { &*data.cast::<Question>() };
        // SAFETY: nginx gives the subrequest; null, or its upstream.
        let upstream = unsafe { (*raw).upstream.as_ref() };
        // An auth server may send nginx elsewhere (X-Accel-Redirect), unless nginx.conf ignores that.
        // SAFETY: alive.
        let is_here = unsafe { directives::is_auth_location(raw) };
        // Only what a server said counts, and not what nginx says where none did. It has said it, whatever becomes of the
        // body.
        let has_said = |upstream: &ngx_http_upstream_t| {
            let flags = ptr::from_ref(upstream);
            // SAFETY: alive.
            let is_head_there = unsafe { (*flags).header_sent() } != 0;
            rc == NGX_OK as ngx_int_t || rc == NGX_ERROR as ngx_int_t && is_head_there
        };
        let status = match upstream {
            Some(upstream) if is_here && has_said(upstream) => upstream.headers_in.status_n,
            _ => 0,
        };
        question.status.set(u16::try_from(status).unwrap_or(0));
        question.is_answered.set(true);
    });
    // No page of nginx's, and no end of the main request.
    NGX_OK as ngx_int_t
}
