//! PRECONTENT: a request is let in, and about to be passed on.

use super::{Request, guard};
use crate::requests;
use nginx::sys::{NGX_DECLINED, ngx_http_request_t, ngx_int_t};

/// nginx's callback for each request in its PRECONTENT phase.
pub unsafe extern "C" fn handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    const ERROR: ngx_int_t = nginx::sys::NGX_HTTP_INTERNAL_SERVER_ERROR as ngx_int_t;
    guard::contain("precontent", ERROR, || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        let request = unsafe { Request::from_callback(raw) };
        // SAFETY: as above. Subrequests have the headers that their location gives them.
        let request = request.filter(|_| unsafe { (*raw).main } == raw);
        if let Some(request) = request
            && let Some(policies) = request.policies()
            && !request.is_error()
        {
            request.let_in();
            requests::prepare(&request, &policies.source);
        }
        NGX_DECLINED as ngx_int_t
    })
}
