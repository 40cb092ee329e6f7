//! Copies of requests for another server: subrequests that nobody waits for.
//!
//! What nginx's own mirror module does, with a target of the policies' own: the body is read first unless the copy
//! has none, the copy goes through a location of nginx.conf (`ingress_mirror`), and its answer is dropped (`discard.rs`). The answer to
//! the client does not wait for it. As with nginx's module the request ends only when its copy has: until then
//! its HTTP/1.1 connection takes no other request.

use super::directives::{self, Scheme};
use super::{Names, NewRoute, Request, guard, memory};
use crate::route;
use nginx::sys::{
    NGX_DECLINED, NGX_DONE, NGX_ERROR, NGX_HTTP_SPECIAL_RESPONSE, NGX_HTTP_SUBREQUEST_BACKGROUND,
    NGX_OK, ngx_http_core_run_phases, ngx_http_finalize_request, ngx_http_post_subrequest_t,
    ngx_http_read_client_request_body, ngx_http_request_body_t, ngx_http_request_t,
    ngx_http_subrequest, ngx_int_t,
};
use oxigress_core::model::policy::{Mirror, Template};
use oxigress_core::text::template::Part;
use std::ffi::c_void;
use std::ptr::null_mut;

/// How far the copy of a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It was not thought of.
    Not,
    /// The body is being read.
    Reading,
    /// It was sent, or given up.
    Done,
}

/// nginx's callback for each request in its PRECONTENT phase, after its headers were changed.
pub unsafe extern "C" fn handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    const DECLINED: ngx_int_t = NGX_DECLINED as ngx_int_t;
    guard::contain("mirror", DECLINED, || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        let request = unsafe { Request::from_callback(raw) };
        let request = request.filter(|request| request.is_main() && !request.is_error());
        let Some(request) = request else { return DECLINED };
        let mirror = request.policies().and_then(|policies| policies.source.mirror.as_ref());
        let Some(mirror) = mirror else { return DECLINED };
        match request.copied() {
            Copied::Done => return DECLINED,
            Copied::Reading => return NGX_DONE as ngx_int_t,
            Copied::Not => {}
        }
        if mirror.without_body {
            request.set_copied(Copied::Done);
            // SAFETY: alive.
            unsafe { send(raw, &request, mirror) };
            return DECLINED;
        }
        request.set_copied(Copied::Reading);
        // SAFETY: alive, in a phase before its content.
        let rc = unsafe { ngx_http_read_client_request_body(raw, Some(body_read)) };
        if rc >= NGX_HTTP_SPECIAL_RESPONSE as ngx_int_t {
            return rc;
        }
        // SAFETY: reading has counted the request once more.
        unsafe { ngx_http_finalize_request(raw, NGX_DONE as ngx_int_t) };
        NGX_DONE as ngx_int_t
    })
}

/// nginx's callback when the body has been read: the request goes on where it was.
unsafe extern "C" fn body_read(raw: *mut ngx_http_request_t) {
    guard::contain("mirror_body", (), || {
        // SAFETY: nginx gives the live request, on the event loop.
        let Some(request) = (unsafe { Request::from_callback(raw) }) else { return };
        request.set_copied(Copied::Done);
        let mirror = request.policies().and_then(|policies| policies.source.mirror.as_ref());
        // SAFETY: alive.
        mirror.into_iter().for_each(|mirror| unsafe { send(raw, &request, mirror) });
    });
    // SAFETY: alive. The body is the copy's too: it stays when the request has sent it.
    unsafe {
        (*raw).set_preserve_body(1);
        (*raw).write_event_handler = Some(ngx_http_core_run_phases);
        ngx_http_core_run_phases(raw);
    }
}

/// # Safety
/// `raw` is alive, `request` its safe side, and holds `mirror` until it ends.
unsafe fn send(raw: *mut ngx_http_request_t, request: &Request<'_>, mirror: &Mirror) {
    // SAFETY: vouched for by the caller.
    if unsafe { try_send(raw, request, mirror) }.is_none() {
        request.log_error(format_args!("ingress: the copy of the request is not sent"));
    }
}

/// `None`: nginx.conf has no location for it, its target is none, or memory is out.
///
/// # Safety
/// As for [`send`].
unsafe fn try_send(
    raw: *mut ngx_http_request_t,
    request: &Request<'_>,
    mirror: &Mirror,
) -> Option<()> {
    let scheme = Scheme::of(mirror.to.https);
    // SAFETY: vouched for by the caller.
    let mut location = unsafe { directives::mirror_location(raw, scheme) }?;
    let target = target(request, &mirror.target)?;
    // SAFETY: vouched for by the caller; zeroes are a body of nothing, and a callback that is none.
    let (target, body, after) = unsafe {
        let pool = (*raw).pool;
        let body = memory::zeroed::<ngx_http_request_body_t>(pool);
        let after = memory::zeroed::<ngx_http_post_subrequest_t>(pool).as_mut()?;
        (memory::concat(pool, &[&target])?, body, after)
    };
    if body.is_null() {
        return None;
    }
    after.handler = Some(ended);
    let mut subrequest = null_mut();
    // SAFETY: alive; nginx keeps what it is given in the pool that it comes from.
    let rc = unsafe {
        ngx_http_subrequest(
            raw,
            &raw mut location,
            &raw mut (*raw).args,
            &raw mut subrequest,
            after,
            NGX_HTTP_SUBREQUEST_BACKGROUND as usize,
        )
    };
    if rc != NGX_OK as ngx_int_t {
        return None;
    }
    // SAFETY: new; it runs when this callback has returned.
    unsafe {
        let new = &mut *subrequest;
        (new.method, new.method_name) = ((*raw).method, (*raw).method_name);
        new.unparsed_uri = target;
        // An answer of 101 would take the client's connection.
        new.headers_in.upgrade = null_mut();
        if mirror.without_body {
            new.request_body = body;
            new.headers_in.content_length = null_mut();
            new.headers_in.content_length_n = -1;
            new.headers_in.set_chunked(0);
        }
        let flags = &mut *subrequest;
        flags.set_valid_unparsed_uri(1);
        flags.set_header_only(1);
    }
    // SAFETY: alive as long as its main request.
    let copy = unsafe { Request::from_callback(subrequest) }?;
    if !copy.set_mirror(mirror) {
        // It is answered with 404 where it arrives.
        return None;
    }
    let guard = copy.worker().reader().read();
    let id = mirror.to.backend.as_str().as_bytes();
    let found = route::find(&guard, id, request.decided());
    let names = Some(Names::of_backend(id));
    copy.set_route(NewRoute { names, found, ..NewRoute::default() }).then_some(())
}

/// nginx's callback when the copy has ended. A body that could not be read to its end would end the request too.
unsafe extern "C" fn ended(_: *mut ngx_http_request_t, _: *mut c_void, rc: ngx_int_t) -> ngx_int_t {
    if rc == NGX_ERROR as ngx_int_t { NGX_OK as ngx_int_t } else { rc }
}

/// Path and query of the copy; `None` for what is none.
fn target(request: &Request<'_>, template: &Template) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for part in template.parts() {
        match part {
            Part::Literal(literal) => text.extend_from_slice(literal),
            Part::Variable(name) => {
                let value = request.variable(&name.to_ascii_lowercase());
                text.extend_from_slice(value.unwrap_or_default());
            }
            Part::Capture(_) => {}
        }
    }
    if text.is_empty() {
        text.extend_from_slice(request.target());
    }
    let is_fine = text.first() == Some(&b'/')
        && text.iter().all(|byte| (0x21..0x7f).contains(byte) || *byte >= 0x80);
    is_fine.then_some(text)
}
