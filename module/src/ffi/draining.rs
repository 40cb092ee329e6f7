//! `ingress_draining FILE`: nginx is about to end. While the file is there clients are told to use their connections no
//! more, so that few are idle when nginx closes them: a request that meets the close on its way is lost.
//!
//! A file, because its writer, the nginx role, speaks to no endpoint, and stock nginx sees it too (`if (-f FILE)`). Each
//! worker looks on its timer, not for each request.

use super::directives::{Answer, OK, arguments, core_conf, refuse, refused};
use super::{guard, memory};
use nginx::sys::{
    NGX_OK, ngx_command_t, ngx_conf_full_name, ngx_conf_t, ngx_cycle_t, ngx_http_conf_ctx_t,
    ngx_http_core_module, ngx_http_request_t, ngx_int_t,
};
use std::ffi::{OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `ingress_draining FILE;`
pub unsafe extern "C" fn ingress_draining(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    _: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time, with the configuration it reads.
    guard::contain("ingress_draining", refused(), || unsafe {
        let conf = core_conf((*cf).cycle);
        if (*conf).draining.len > 0 {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, path] = arguments(cf) else { return refused() };
        let mut path = *path;
        if path.len == 0 {
            return refuse(cf, "\"ingress_draining\" needs the path of a file");
        }
        if ngx_conf_full_name((*cf).cycle, &raw mut path, 0) != NGX_OK as ngx_int_t {
            return refused();
        }
        (*conf).draining = path;
        OK
    })
}

/// The file of a cycle; `None` without the directive.
///
/// # Safety
/// The cycle has this module.
pub unsafe fn file_of(cycle: *mut ngx_cycle_t) -> Option<PathBuf> {
    // SAFETY: vouched for by the caller; nginx made the string, in the cycle's pool.
    let path = unsafe { core_conf(cycle).as_ref().map(|conf| memory::bytes(conf.draining)) }?;
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// The answer to this request is the last one of its connection: `Connection: close`. One of HTTP/2 gets a GOAWAY
/// with the next request, which is answered too.
///
/// # Safety
/// `request` is alive, on the event loop, and its header was not sent.
pub unsafe fn send_away(request: *mut ngx_http_request_t) {
    // SAFETY: vouched for by the caller.
    let is_http2 = unsafe {
        let request = &mut *request;
        request.set_keepalive(0);
        !request.stream.is_null()
    };
    if !is_http2 {
        return;
    }
    // nginx compares the requests of a connection with this setting of its server, and says GOAWAY above it. The
    // worker's own copy, of a configuration that has nothing before it but its end.
    // SAFETY: nginx gives each HTTP connection the context of its server, whose settings live as long as the cycle.
    unsafe {
        let context: *mut ngx_http_conf_ctx_t = (*(*request).http_connection).conf_ctx;
        let settings = *(*context).loc_conf.add(ngx_http_core_module.ctx_index);
        (*settings.cast::<nginx::sys::ngx_http_core_loc_conf_s>()).keepalive_requests = 0;
    }
}
