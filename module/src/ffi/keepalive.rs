//! Who keeps upstream connections: the directive `ingress_keepalive`, and what nginx's own `keepalive` may do.
//!
//! In router mode the module does ([`super::pool`]), and nginx must not. With a variable nginx does, and knows a
//! connection by its address alone: a request could go over one that was opened with another server name,
//! certificate or trust. So TLS and nginx's `keepalive` are refused together, when the configuration is read
//! if the scheme is known then, else when a request comes. What nginx 1.29.7 and later does without being asked,
//! `local`, keeps locations apart: it is right wherever all requests of a location make the same handshake.

use super::directives::{self, Answer, OK, SrvConf, refuse, refused};
use super::{guard, log, memory};
use nginx::sys::{
    NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING, NGX_HTTP_UPSTREAM_IGN_XA_CHARSET,
    NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE, NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT, ngx_atoi,
    ngx_command_t, ngx_conf_t, ngx_cycle_t, ngx_http_conf_ctx_t, ngx_http_request_t,
    ngx_http_upstream_main_conf_t, ngx_http_upstream_srv_conf_t, ngx_msec_t, ngx_parse_time,
    ngx_str_t, ngx_uint_t,
};
use std::ffi::{CStr, c_void};

/// ingress-nginx's values of nginx's four directives.
const CONNECTIONS: u32 = 320;
const TIME_MSEC: ngx_msec_t = 3_600_000;
const TIMEOUT_MSEC: ngx_msec_t = 60_000;
const REQUESTS: ngx_uint_t = 10_000;
/// The room for them is taken with the first one: 64 bytes each.
const MAX_CONNECTIONS: u32 = 1 << 16;

/// What nginx's own `keepalive` does in an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeptByNginx {
    /// Nothing.
    Not = 0,
    /// All locations share what is kept.
    ByAddress,
    /// Each location has its own.
    ByLocation,
}

/// `ingress_keepalive CONNECTIONS [time=1h] [timeout=60s] [requests=10000];`
pub unsafe extern "C" fn ingress_keepalive(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time; `conf` is of this upstream.
    guard::contain("ingress_keepalive", refused(), || unsafe {
        let conf = &mut *conf.cast::<SrvConf>();
        if conf.has_keepalive {
            return c"is duplicate".as_ptr().cast_mut();
        }
        conf.has_keepalive = true;
        set_defaults(conf);
        let [_, connections, parameters @ ..] = directives::arguments(cf) else {
            return refused();
        };
        let count = u32::try_from(ngx_atoi(connections.data, connections.len));
        let Some(count) = count.ok().filter(|count| *count <= MAX_CONNECTIONS) else {
            let shown = memory::bytes(*connections).escape_ascii();
            let reason =
                format_args!("invalid value \"{shown}\" in \"ingress_keepalive\" directive");
            return refuse(cf, reason);
        };
        conf.keep.connections = count;
        for parameter in parameters {
            let text = memory::bytes(*parameter);
            if set(conf, text).is_none() {
                let shown = text.escape_ascii();
                return refuse(cf, format_args!("invalid parameter \"{shown}\""));
            }
        }
        OK
    })
}

fn set_defaults(conf: &mut SrvConf) {
    conf.keep.connections = CONNECTIONS;
    conf.keep.time_msec = TIME_MSEC;
    conf.keep.timeout_msec = TIMEOUT_MSEC;
    conf.keep.requests = REQUESTS;
}

/// Sets what `name=value` says; `None` if that is nothing.
fn set(conf: &mut SrvConf, parameter: &[u8]) -> Option<()> {
    let at = parameter.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (parameter.get(..at)?, parameter.get(at + 1..)?);
    let mut value = ngx_str_t { len: value.len(), data: value.as_ptr().cast_mut() };
    // SAFETY: the value is a piece of the directive's argument.
    let msec = |value: &mut ngx_str_t| unsafe { ngx_parse_time(value, 0) };
    match name {
        b"time" => conf.keep.time_msec = ngx_msec_t::try_from(msec(&mut value)).ok()?,
        b"timeout" => conf.keep.timeout_msec = ngx_msec_t::try_from(msec(&mut value)).ok()?,
        b"requests" => {
            // SAFETY: as above.
            let requests = unsafe { ngx_atoi(value.data, value.len) };
            conf.keep.requests = ngx_uint_t::try_from(requests).ok().filter(|n| *n != 0)?;
        }
        _ => return None,
    }
    Some(())
}

/// Settles who keeps the connections of an upstream with `ingress_balancer`; nginx's own directives have been
/// read. Says why it cannot be.
///
/// # Safety
/// nginx initialises `upstream`, of the configuration `cf`.
pub unsafe fn settle(
    cf: *mut ngx_conf_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> Result<(), ()> {
    // SAFETY: vouched for by the caller.
    unsafe {
        let conf = &mut *directives::upstream_conf(upstream);
        let name = memory::bytes((*upstream).host).escape_ascii();
        let stock = of_upstream::<nginx::sys::ngx_http_upstream_keepalive_srv_conf_t>(
            (*cf).cycle,
            upstream,
            c"ngx_http_upstream_keepalive_module",
        );
        if conf.backend_variable().is_some() {
            if conf.has_keepalive {
                refuse(
                    cf,
                    format_args!(
                        "\"ingress_keepalive\" in upstream \"{name}\" goes with \"ingress_balancer\" without a \
                         variable: with one, nginx's \"keepalive\" keeps connections"
                    ),
                );
                return Err(());
            }
            conf.kept_by_nginx = stock.as_ref().map_or(KeptByNginx::Not, |stock| {
                match (stock.max_cached, nginx::sys::keeps_by_location(stock)) {
                    (0, _) => KeptByNginx::Not,
                    (_, true) => KeptByNginx::ByLocation,
                    (_, false) => KeptByNginx::ByAddress,
                }
            });
            return Ok(());
        }
        if !conf.has_keepalive {
            set_defaults(conf);
        }
        let Some(stock) = stock.as_mut() else { return Ok(()) };
        let unset = ngx_uint_t::MAX;
        let is_set = [stock.time, stock.timeout, stock.requests].iter().any(|v| *v != unset)
            || !matches!(stock.max_cached, 0 | ngx_uint_t::MAX);
        if is_set {
            refuse(
                cf,
                format_args!(
                    "\"ingress_balancer\" without a variable keeps connections itself: in upstream \"{name}\" \
                     write \"ingress_keepalive CONNECTIONS [time=1h] [timeout=60s] [requests=10000]\" in place of \
                     \"keepalive\" and what begins with \"keepalive_\""
                ),
            );
            return Err(());
        }
        // From nginx 1.29.7 on it would keep them without being asked, around ours. This is what
        // "keepalive 0" writes; before, it is 0 already.
        stock.max_cached = 0;
        Ok(())
    }
}

/// Refuses `ingress_keepalive` where there is no balancer to heed it.
///
/// # Safety
/// All of http{} has been read.
pub unsafe fn check_upstreams(cf: *mut ngx_conf_t) -> Result<(), ()> {
    // SAFETY: nginx keeps its upstreams in the main configuration of their module; those that only
    // `proxy_pass` names have none of ours.
    unsafe {
        let main: *mut ngx_http_upstream_main_conf_t =
            directives::main_conf(cf, nginx::sys::ngx_http_upstream_module.ctx_index);
        for upstream in (*main).upstreams.as_slice::<*mut ngx_http_upstream_srv_conf_t>() {
            if (**upstream).srv_conf.is_null() {
                continue;
            }
            let conf = &*directives::upstream_conf(*upstream);
            if conf.has_keepalive && !conf.has_balancer {
                let name = memory::bytes((**upstream).host).escape_ascii();
                refuse(
                    cf,
                    format_args!(
                        "\"ingress_keepalive\" in upstream \"{name}\" needs \"ingress_balancer\""
                    ),
                );
                return Err(());
            }
        }
    }
    Ok(())
}

/// A location's way to its endpoints, from whichever module it uses.
struct Pass {
    directive: &'static str,
    upstream: *const nginx::sys::ngx_http_upstream_conf_t,
}

/// Refuses a location that speaks TLS through connections that nginx keeps by address.
///
/// # Safety
/// `cf` is at a location whose settings all other modules have merged.
pub unsafe fn check_location(cf: *mut ngx_conf_t) -> Result<(), ()> {
    macro_rules! pass {
        ($module:literal, $conf:ident, $directive:literal) => {{
            // SAFETY: what that very module keeps for a location.
            let conf = unsafe { of_location::<nginx::sys::$conf>(cf, $module).as_ref() };
            conf.filter(|conf| conf.ssl != 0)
                .map(|conf| Pass { directive: $directive, upstream: &raw const conf.upstream })
        }};
    }
    let passes = [
        pass!(c"ngx_http_proxy_module", ngx_http_proxy_loc_conf_t, "proxy_pass https://"),
        pass!(c"ngx_http_grpc_module", ngx_http_grpc_loc_conf_t, "grpc_pass grpcs://"),
        pass!(c"ngx_http_uwsgi_module", ngx_http_uwsgi_loc_conf_t, "uwsgi_pass suwsgi://"),
    ];
    for pass in passes.into_iter().flatten() {
        // SAFETY: of the location; null without an upstream of a fixed name.
        unsafe {
            let upstream: *mut ngx_http_upstream_srv_conf_t = (*pass.upstream).upstream.cast();
            if upstream.is_null() || (*upstream).srv_conf.is_null() {
                continue;
            }
            let kept = (*directives::upstream_conf(upstream)).kept_by_nginx;
            if !is_separate(kept, &*pass.upstream) {
                let (directive, remedy) = (pass.directive, REMEDY);
                let name = memory::bytes((*upstream).host).escape_ascii();
                refuse(
                    cf,
                    format_args!(
                        "\"{directive}\" does not go with \"keepalive\" in upstream \"{name}\", {REASON}: {remedy}"
                    ),
                );
                return Err(());
            }
        }
    }
    Ok(())
}

const REASON: &str = "which knows connections by their address alone: a request could go over one that was opened with another \
                      server name, certificate or trust";
const REMEDY: &str = "remove \"keepalive\" (write \"keepalive 0\" from nginx 1.29.7 on), or use \"ingress_router\" and \
                      \"ingress_balancer\" without a variable";

/// What an answer says in `X-Accel-` headers about where its request goes on and how fast has no effect at a location,
/// whatever its `proxy_ignore_headers`: nobody but the module asks through it.
///
/// # Safety
/// `cf` is at a location whose settings all other modules have merged.
pub unsafe fn ignore_accelerators(cf: *mut ngx_conf_t) {
    const IGNORED: u32 = NGX_HTTP_UPSTREAM_IGN_XA_REDIRECT
        | NGX_HTTP_UPSTREAM_IGN_XA_LIMIT_RATE
        | NGX_HTTP_UPSTREAM_IGN_XA_BUFFERING
        | NGX_HTTP_UPSTREAM_IGN_XA_CHARSET;
    // SAFETY: vouched for by the caller; what that very module keeps for a location.
    let conf = unsafe {
        of_location::<nginx::sys::ngx_http_proxy_loc_conf_t>(cf, c"ngx_http_proxy_module").as_mut()
    };
    if let Some(conf) = conf {
        conf.upstream.ignore_headers |= IGNORED as ngx_uint_t;
    }
}

/// Whether nginx gives a request only connections that were opened with its own handshake.
fn is_separate(kept: KeptByNginx, conf: &nginx::sys::ngx_http_upstream_conf_t) -> bool {
    match kept {
        KeptByNginx::Not => true,
        KeptByNginx::ByAddress => false,
        KeptByNginx::ByLocation => {
            let values = [conf.ssl_name, conf.ssl_certificate, conf.ssl_certificate_key];
            // SAFETY: null, or a value of the configuration; one without variables has no lengths.
            values.iter().all(|v| unsafe { v.as_ref() }.is_none_or(|v| v.lengths.is_null()))
        }
    }
}

/// Whether a request would mix its TLS connections with others'. Says so in the log.
///
/// # Safety
/// The request is alive and has an upstream with a configuration.
#[inline]
pub unsafe fn mixes_handshakes(request: *mut ngx_http_request_t, kept: KeptByNginx) -> bool {
    if kept == KeptByNginx::Not {
        return false;
    }
    // SAFETY: vouched for by the caller.
    let upstream = unsafe { &*(*request).upstream };
    if upstream.ssl() == 0 {
        return false;
    }
    // SAFETY: an upstream has a configuration from its location.
    let conf = unsafe { &*upstream.conf };
    // With a variable in `proxy_pass` the server name is the variable's unless it is written out.
    let is_fixed = upstream.resolved.is_null() || !conf.ssl_name.is_null();
    if is_fixed && is_separate(kept, conf) {
        return false;
    }
    let line =
        format_args!("TLS does not go with \"keepalive\" in this upstream, {REASON}: {REMEDY}");
    // SAFETY: a request has a connection with a log.
    unsafe { log::write(log::ERROR, (*(*request).connection).log, line) };
    true
}

/// The place of a module of nginx, which may not be built in.
///
/// # Safety
/// The cycle's modules have been counted.
pub unsafe fn index_of(cycle: *mut ngx_cycle_t, name: &CStr) -> Option<usize> {
    // SAFETY: a list that ends with null; modules have names.
    unsafe {
        let mut module = (*cycle).modules;
        while !(*module).is_null() {
            if !(**module).name.is_null() && CStr::from_ptr((**module).name) == name {
                return Some((**module).ctx_index);
            }
            module = module.add(1);
        }
    }
    None
}

/// # Safety
/// `T` is what the module of this name keeps for an upstream.
unsafe fn of_upstream<T>(
    cycle: *mut ngx_cycle_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
    name: &CStr,
) -> *mut T {
    // SAFETY: vouched for by the caller; an upstream block has a place for every http module.
    unsafe {
        let index = index_of(cycle, name);
        index.map_or(std::ptr::null_mut(), |index| (*(*upstream).srv_conf.add(index)).cast())
    }
}

/// # Safety
/// `T` is what the module of this name keeps for a location.
unsafe fn of_location<T>(cf: *mut ngx_conf_t, name: &CStr) -> *mut T {
    // SAFETY: as above.
    unsafe {
        let context = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let index = index_of((*cf).cycle, name);
        index.map_or(std::ptr::null_mut(), |index| (*(*context).loc_conf.add(index)).cast())
    }
}
