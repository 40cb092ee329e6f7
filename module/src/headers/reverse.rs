//! What endpoints say of themselves, as clients are to see it: nginx's two callbacks for that.
#![allow(unsafe_code)]

use crate::headers::requests;
use crate::request::Request;
use crate::system::guard;
use crate::system::memory;
use nginx::sys::{NGX_DECLINED, NGX_ERROR, NGX_OK, ngx_http_request_t, ngx_int_t, ngx_table_elt_t};
use oxigress_core::model::policy::ProxyRedirect;

/// Puts the policies' replacements in the place of nginx.conf's.
///
/// # Safety
/// `raw` is alive and has an upstream that was not asked yet.
pub unsafe fn install(raw: *mut ngx_http_request_t, request: &Request<'_>) {
    let Some(proxy) = request.policies().and_then(|policies| policies.source.proxy.as_ref()) else {
        return;
    };
    // SAFETY: the caller has a live request with an upstream.
    let upstream = unsafe { &mut *(*raw).upstream };
    if proxy.cookie_domain.is_some() || proxy.cookie_path.is_some() {
        upstream.rewrite_cookie = Some(rewrite_cookie);
    }
    match proxy.redirect {
        None => {}
        Some(ProxyRedirect::Off) => upstream.rewrite_redirect = None,
        Some(_) => upstream.rewrite_redirect = Some(rewrite_redirect),
    }
}

/// nginx's callback for each `Set-Cookie` of an endpoint.
unsafe extern "C" fn rewrite_cookie(
    raw: *mut ngx_http_request_t,
    header: *mut ngx_table_elt_t,
) -> ngx_int_t {
    // SAFETY: nginx gives a live request and a header of its response, on the event loop.
    guard::contain("rewrite_cookie", NGX_ERROR as ngx_int_t, || unsafe {
        let Some(request) = Request::from_callback(raw) else { return NGX_DECLINED as ngx_int_t };
        let Some(policies) = request.policies() else { return NGX_DECLINED as ngx_int_t };
        let value = memory::bytes((*header).value);
        replace(raw, header, &[], requests::cookie(&policies.source, value))
    })
}

/// nginx's callback for `Location`, and for the URL in `Refresh`, which begins at `start`.
unsafe extern "C" fn rewrite_redirect(
    raw: *mut ngx_http_request_t,
    header: *mut ngx_table_elt_t,
    start: usize,
) -> ngx_int_t {
    // SAFETY: as above; a request with an answer has an upstream, and its peer a name.
    guard::contain("rewrite_redirect", NGX_ERROR as ngx_int_t, || unsafe {
        let Some(request) = Request::from_callback(raw) else { return NGX_DECLINED as ngx_int_t };
        let Some(policies) = request.policies() else { return NGX_DECLINED as ngx_int_t };
        let value = memory::bytes((*header).value);
        let Some((before, url)) = value.split_at_checked(start) else {
            return NGX_DECLINED as ngx_int_t;
        };
        let peer = (*(*raw).upstream).peer.name.as_ref().copied();
        let endpoint = peer.map_or(&[][..], |name| memory::bytes(name));
        let url = requests::location(&request, &policies.source, url, endpoint);
        replace(raw, header, before, url)
    })
}

/// # Safety
/// `raw` is alive, `header` is of its response.
unsafe fn replace(
    raw: *mut ngx_http_request_t,
    header: *mut ngx_table_elt_t,
    before: &[u8],
    value: Option<Vec<u8>>,
) -> ngx_int_t {
    let Some(value) = value else { return NGX_DECLINED as ngx_int_t };
    // SAFETY: the caller has a live request with an upstream. nginx ends values with a NUL.
    let Some(mut copy) = (unsafe { memory::concat((*raw).pool, &[before, &value, b"\0"]) }) else {
        return NGX_ERROR as ngx_int_t;
    };
    copy.len -= 1;
    // SAFETY: as above.
    unsafe { (*header).value = copy };
    NGX_OK as ngx_int_t
}
