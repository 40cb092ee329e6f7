//! What nginx reads after dlopen: the modules, their directives and their callbacks.
//!
//! Written by hand: the `ngx_modules!` macro of `ngx` 0.5.1 does not take two modules.

use super::{destinations, directives, draining, head, keepalive, limits, metrics, stream, worker};
use nginx::sys::{
    NGX_CONF_1MORE, NGX_CONF_ANY, NGX_CONF_NOARGS, NGX_CONF_TAKE1, NGX_CONF_TAKE2, NGX_CONF_TAKE3,
    NGX_CONF_TAKE4, NGX_CORE_MODULE, NGX_DIRECT_CONF, NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET,
    NGX_HTTP_MODULE, NGX_HTTP_SRV_CONF, NGX_HTTP_SRV_CONF_OFFSET, NGX_HTTP_UPS_CONF, NGX_MAIN_CONF,
    NGX_STREAM_MODULE, NGX_STREAM_SRV_CONF, NGX_STREAM_SRV_CONF_OFFSET, NGX_STREAM_UPS_CONF,
    ngx_command_t, ngx_core_module_t, ngx_http_module_t, ngx_module_t, ngx_str_t,
    ngx_stream_module_t, ngx_uint_t,
};
use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

/// A value that nginx reads and writes.
#[repr(transparent)]
pub struct Shared<T>(pub T);

// SAFETY: nginx uses its module table from one thread.
unsafe impl<T> Sync for Shared<T> {}

/// nginx compares names up to their NUL, whatever their length says.
const fn text(text: &'static CStr) -> ngx_str_t {
    ngx_str_t { len: text.count_bytes(), data: text.as_ptr().cast_mut().cast() }
}

/// The modules of this library, in the order nginx adds them.
#[unsafe(no_mangle)]
pub static mut ngx_modules: [*const ngx_module_t; 4] = [
    &raw const ngx_ingress_module,
    &raw const ngx_http_ingress_module,
    &raw const ngx_stream_ingress_module,
    null(),
];

/// Their names.
#[unsafe(no_mangle)]
pub static ngx_module_names: Shared<[*const c_char; 4]> = Shared([
    c"ngx_ingress_module".as_ptr(),
    c"ngx_http_ingress_module".as_ptr(),
    c"ngx_stream_ingress_module".as_ptr(),
    null(),
]);

/// No order is asked for: a dynamic module's phase handlers run before those of nginx's own modules.
#[unsafe(no_mangle)]
pub static ngx_module_order: Shared<[*const c_char; 1]> = Shared([null()]);

/// Owns the zone, for http and stream alike.
#[unsafe(no_mangle)]
pub static mut ngx_ingress_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const CORE).cast_mut().cast(),
    commands: (&raw const CORE_DIRECTIVES).cast_mut().cast(),
    type_: NGX_CORE_MODULE as ngx_uint_t,
    init_module: Some(worker::init_module),
    init_process: Some(worker::init_process),
    exit_process: Some(worker::exit_process),
    ..ngx_module_t::default()
};

/// Router, balancer, configuration endpoint and certificates.
#[unsafe(no_mangle)]
pub static mut ngx_http_ingress_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const HTTP).cast_mut().cast(),
    commands: (&raw const HTTP_DIRECTIVES).cast_mut().cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

/// Balancer and passthrough of TCP and UDP. Where nginx has no stream it is never asked anything.
#[unsafe(no_mangle)]
pub static mut ngx_stream_ingress_module: ngx_module_t = ngx_module_t {
    ctx: (&raw const STREAM).cast_mut().cast(),
    commands: (&raw const STREAM_DIRECTIVES).cast_mut().cast(),
    type_: NGX_STREAM_MODULE as ngx_uint_t,
    ..ngx_module_t::default()
};

static CORE: Shared<ngx_core_module_t> = Shared(ngx_core_module_t {
    name: text(c"ingress"),
    create_conf: Some(directives::create_core_conf),
    init_conf: Some(metrics::init_conf),
});

static CORE_DIRECTIVES: Shared<[ngx_command_t; 7]> = Shared([
    ngx_command_t {
        name: text(c"ingress_destinations"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_ANY) as ngx_uint_t,
        set: Some(destinations::ingress_destinations),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_zone"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_TAKE2) as ngx_uint_t,
        set: Some(directives::ingress_zone),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_journal"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_journal),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_draining"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(draining::ingress_draining),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_limits"),
        type_: (NGX_MAIN_CONF | NGX_DIRECT_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(limits::ingress_limits),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_metrics"),
        type_: (NGX_MAIN_CONF
            | NGX_DIRECT_CONF
            | NGX_CONF_NOARGS
            | NGX_CONF_TAKE1
            | NGX_CONF_TAKE2
            | NGX_CONF_TAKE3) as ngx_uint_t,
        set: Some(metrics::ingress_metrics),
        conf: 0,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t::empty(),
]);

static HTTP: Shared<ngx_http_module_t> = Shared(ngx_http_module_t {
    preconfiguration: Some(super::variables::add),
    postconfiguration: Some(directives::postconfiguration),
    create_main_conf: None,
    init_main_conf: None,
    create_srv_conf: Some(directives::create_srv_conf),
    merge_srv_conf: None,
    create_loc_conf: Some(directives::create_loc_conf),
    merge_loc_conf: Some(directives::merge_loc_conf),
});

static HTTP_DIRECTIVES: Shared<[ngx_command_t; 14]> = Shared([
    ngx_command_t {
        name: text(c"ingress_keep_headers"),
        type_: (NGX_HTTP_SRV_CONF | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(head::ingress_keep_headers),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_strip_headers"),
        type_: (NGX_HTTP_SRV_CONF | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(head::ingress_strip_headers),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_refuse_paths"),
        type_: (NGX_HTTP_SRV_CONF | NGX_CONF_1MORE) as ngx_uint_t,
        set: Some(head::ingress_refuse_paths),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_proxied_client"),
        type_: (NGX_HTTP_SRV_CONF | NGX_CONF_TAKE2) as ngx_uint_t,
        set: Some(head::ingress_proxied_client),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_error"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(directives::ingress_error),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_auth"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_auth),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_forwarded_headers"),
        type_: (NGX_HTTP_SRV_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_forwarded_headers),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_mirror"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_mirror),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_target"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_target),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_configuration"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(directives::ingress_configuration),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_router"),
        type_: (NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(directives::ingress_router),
        conf: NGX_HTTP_LOC_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_balancer"),
        type_: (NGX_HTTP_UPS_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(directives::ingress_balancer),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_keepalive"),
        type_: (NGX_HTTP_UPS_CONF
            | NGX_CONF_TAKE1
            | NGX_CONF_TAKE2
            | NGX_CONF_TAKE3
            | NGX_CONF_TAKE4) as ngx_uint_t,
        set: Some(keepalive::ingress_keepalive),
        conf: NGX_HTTP_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t::empty(),
]);

static STREAM: Shared<ngx_stream_module_t> = Shared(ngx_stream_module_t {
    preconfiguration: None,
    postconfiguration: Some(stream::postconfiguration),
    create_main_conf: Some(stream::create_main_conf),
    init_main_conf: None,
    create_srv_conf: Some(stream::create_srv_conf),
    merge_srv_conf: None,
});

static STREAM_DIRECTIVES: Shared<[ngx_command_t; 3]> = Shared([
    ngx_command_t {
        name: text(c"ingress_balancer"),
        type_: (NGX_STREAM_UPS_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1) as ngx_uint_t,
        set: Some(stream::ingress_balancer),
        conf: NGX_STREAM_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t {
        name: text(c"ingress_passthrough"),
        type_: (NGX_STREAM_SRV_CONF | NGX_CONF_NOARGS) as ngx_uint_t,
        set: Some(stream::ingress_passthrough),
        conf: NGX_STREAM_SRV_CONF_OFFSET,
        offset: 0,
        post: null_mut(),
    },
    ngx_command_t::empty(),
]);

/// The place of the stream module, as [`http_index`].
#[inline]
pub fn stream_index() -> usize {
    // SAFETY: as below.
    unsafe { ngx_stream_ingress_module.ctx_index }
}

/// The place of the http module in the arrays of contexts and configurations.
#[inline]
pub fn http_index() -> usize {
    // SAFETY: nginx writes it once, when it loads the module.
    unsafe { ngx_http_ingress_module.ctx_index }
}

/// The place of the core module in the cycle's array of configurations.
pub fn core_index() -> usize {
    // SAFETY: as above.
    unsafe { ngx_ingress_module.index }
}
