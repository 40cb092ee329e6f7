//! The directives about what clients may say: `ingress_keep_headers`, `ingress_strip_headers`, `ingress_refuse_paths`; and
//! about where they are: `ingress_proxied_client`.

use super::directives::{Answer, OK, SrvConf, arguments, refuse, refused};
use super::{Request, guard, memory};
use nginx::sys::{
    NGX_DECLINED, ngx_command_t, ngx_conf_t, ngx_http_request_t, ngx_int_t, ngx_pool_cleanup_add,
};
use oxigress_core::http::head::{Rules, may_be_kept, may_be_stripped};
use oxigress_core::http::paths::Refused;
use std::ffi::c_void;

/// `ingress_keep_headers NAME...;`
pub unsafe extern "C" fn ingress_keep_headers(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time; `conf` is of this server.
    guard::contain("ingress_keep_headers", refused(), || unsafe {
        let what = "it is Forwarded or begins with X-Forwarded-";
        add_names(cf, &mut *conf.cast::<SrvConf>(), what, may_be_kept, Rules::keep)
    })
}

/// `ingress_strip_headers NAME...;`
pub unsafe extern "C" fn ingress_strip_headers(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as above.
    guard::contain("ingress_strip_headers", refused(), || unsafe {
        let what = "it says how messages are framed or where they go";
        add_names(cf, &mut *conf.cast::<SrvConf>(), what, may_be_stripped, Rules::strip)
    })
}

/// `ingress_refuse_paths WORD...;`
pub unsafe extern "C" fn ingress_refuse_paths(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as above.
    guard::contain("ingress_refuse_paths", refused(), || unsafe {
        let conf = &mut *conf.cast::<SrvConf>();
        for word in arguments(cf).iter().skip(1) {
            let word = memory::bytes(*word);
            let is_known = str::from_utf8(word).ok().and_then(|word| conf.refused_paths.add(word));
            if is_known.is_none() {
                let (shown, all) = (word.escape_ascii(), Refused::WORDS.join(", "));
                return refuse(cf, format_args!("invalid value \"{shown}\": it is one of {all}"));
            }
        }
        OK
    })
}

/// `ingress_proxied_client HEADER FROM;`
pub unsafe extern "C" fn ingress_proxied_client(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as above.
    guard::contain("ingress_proxied_client", refused(), || unsafe {
        let conf = &mut *conf.cast::<SrvConf>();
        if conf.proxied_client[0].len > 0 {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, header, from] = arguments(cf) else { return refused() };
        for name in [header, from] {
            let name = memory::bytes(*name);
            if !str::from_utf8(name).is_ok_and(may_be_stripped) {
                let (shown, what) = (name.escape_ascii(), "it is one that clients send");
                return refuse(cf, format_args!("invalid header name \"{shown}\": {what}"));
            }
        }
        conf.proxied_client = [*header, *from];
        OK
    })
}

/// nginx's callback for each request in its POST_READ phase, where a server has `ingress_proxied_client`. It runs before
/// that of nginx's realip.
pub unsafe extern "C" fn post_read_handler(raw: *mut ngx_http_request_t) -> ngx_int_t {
    guard::contain("post_read", (), || {
        // SAFETY: nginx runs this phase for a live request, on the event loop.
        if let Some(request) = unsafe { Request::from_callback(raw) } {
            request.tell_proxied_client();
        }
    });
    NGX_DECLINED as ngx_int_t
}

/// # Safety
/// `cf` is the configuration being read, `conf` of its server.
unsafe fn add_names(
    cf: *mut ngx_conf_t,
    conf: &mut SrvConf,
    what: &str,
    is_taken: fn(&str) -> bool,
    add: fn(&mut Rules, &[u8]),
) -> Answer {
    // SAFETY: vouched for by the caller; nginx fills the array with strings.
    unsafe {
        if conf.rules.is_null() {
            let Some(cleanup) = ngx_pool_cleanup_add((*cf).pool, 0).as_mut() else {
                return refused();
            };
            conf.rules = Box::into_raw(Box::new(Rules::NONE));
            cleanup.data = conf.rules.cast();
            cleanup.handler = Some(release);
        }
        for name in arguments(cf).iter().skip(1) {
            let name = memory::bytes(*name);
            if !str::from_utf8(name).is_ok_and(is_taken) {
                let shown = name.escape_ascii();
                return refuse(cf, format_args!("invalid header name \"{shown}\": {what}"));
            }
            add(&mut *conf.rules, name);
        }
        OK
    }
}

/// nginx's callback when a configuration goes, after the last of its requests.
unsafe extern "C" fn release(rules: *mut c_void) {
    // SAFETY: what `add_names` made, released once.
    guard::contain("release_rules", (), || drop(unsafe { Box::from_raw(rules.cast::<Rules>()) }));
}
