//! What nginx reads after dlopen: the modules, their directives and their callbacks.
#![allow(unsafe_code)]

use crate::balancer::destinations;
use crate::balancer::keepalive;
use crate::conf::{Core, CoreConf, Http, LocConf, SrvConf};
use crate::headers::compression;
use crate::headers::directives as head;
use crate::logging::observe as metrics;
use crate::logging::texts as text;
use crate::logging::texts::Texts;
use crate::logging::variables;
use crate::module::directives;
use crate::module::process;
use crate::stream::{self, Stream};
use crate::system::log;
use crate::worker;
use nginx::module::{
    Arguments, Context, CoreModule, Directive, HttpModule, Shared, core_context, core_module,
    http_context, http_module, names,
};
use nginx::stream::{StreamModule, stream_context, stream_module};
use nginx::sys::{ngx_core_module_t, ngx_http_module_t, ngx_module_t, ngx_stream_module_t};
use nginx::{Conf, Cycle, Refused, filter_context, filter_module};
use std::ffi::c_char;
use std::ptr::null;

/// The modules of this library, in the order nginx adds them.
#[unsafe(no_mangle)]
pub static mut ngx_modules: [*const ngx_module_t; 5] = [
    &raw const ngx_http_ingress_brotli_filter_module,
    &raw const ngx_ingress_module,
    &raw const ngx_http_ingress_module,
    &raw const ngx_stream_ingress_module,
    null(),
];

/// Their names.
#[unsafe(no_mangle)]
pub static ngx_module_names: Shared<[*const c_char; 5]> = names([
    BROTLI_NAME,
    Some(c"ngx_ingress_module"),
    Some(c"ngx_http_ingress_module"),
    Some(c"ngx_stream_ingress_module"),
    None,
]);

/// The filter of bodies stands where ngx_brotli's does: its name is followed by the modules that it comes before, and so runs
/// after. For the others no order is asked for: a dynamic module's phase handlers run before those of nginx's own modules.
#[unsafe(no_mangle)]
pub static ngx_module_order: Shared<[*const c_char; 16]> = names([
    BROTLI_NAME,
    Some(c"ngx_http_postpone_filter_module"),
    Some(c"ngx_http_ssi_filter_module"),
    Some(c"ngx_http_charset_filter_module"),
    Some(c"ngx_http_xslt_filter_module"),
    Some(c"ngx_http_image_filter_module"),
    Some(c"ngx_http_sub_filter_module"),
    Some(c"ngx_http_addition_filter_module"),
    Some(c"ngx_http_gunzip_filter_module"),
    Some(c"ngx_http_userid_filter_module"),
    Some(c"ngx_http_headers_filter_module"),
    Some(c"ngx_http_copy_filter_module"),
    Some(c"ngx_http_range_body_filter_module"),
    Some(c"ngx_http_not_modified_filter_module"),
    Some(c"ngx_http_slice_filter_module"),
    None,
]);

const BROTLI_NAME: Option<Name> = Some(c"ngx_http_ingress_brotli_filter_module");

/// The filter of bodies. It keeps nothing of its own: the module of `http` reads its directive.
#[unsafe(no_mangle)]
pub static mut ngx_http_ingress_brotli_filter_module: ngx_module_t = filter_module(&BROTLI);

static BROTLI: Shared<ngx_http_module_t> = filter_context::<compression::Filter>();

/// Owns the zone, for http and stream alike.
#[unsafe(no_mangle)]
pub static mut ngx_ingress_module: ngx_module_t = core_module::<Core>(&CORE, CORE_DIRECTIVES);

/// Router, balancer, configuration endpoint and certificates.
#[unsafe(no_mangle)]
pub static mut ngx_http_ingress_module: ngx_module_t = http_module::<Http>(&HTTP, HTTP_DIRECTIVES);

/// Balancer and passthrough of TCP and UDP. Where nginx has no stream it is never asked anything.
#[unsafe(no_mangle)]
pub static mut ngx_stream_ingress_module: ngx_module_t =
    stream_module::<Stream>(&STREAM, STREAM_DIRECTIVES);

// SAFETY: the index of the table above, whose context is this type's.
unsafe impl CoreModule for Core {
    type Main = CoreConf;

    fn index() -> usize {
        // SAFETY: nginx writes it once, when it loads the module.
        unsafe { ngx_ingress_module.index }
    }

    fn init(cycle: &Cycle, main: &CoreConf) -> Result<(), Refused> {
        directives::init_core(cycle, main)
    }

    fn init_module(cycle: &Cycle) {
        process::take_over(cycle);
    }

    fn init_process(cycle: &Cycle) {
        process::begin(cycle);
    }

    fn exit_process(cycle: &Cycle) {
        // Whatever becomes of one of them, what follows frees what callbacks would use.
        nginx::contain("exit_process", (), || log::leave_lines(cycle));
        nginx::contain("exit_process", (), || process::end(cycle.event_loop()));
        // SAFETY: no callback of a request follows; nginx's thread pools, which come first, begin no task any more, and have ended theirs.
        unsafe { worker::stop(cycle.event_loop()) };
    }
}

static CORE: Shared<ngx_core_module_t> = core_context::<Core>(c"ingress");

const CORE_DIRECTIVES: &[Directive] = &[
    at_top(c"ingress_destinations", Arguments::ANY, destinations::ingress_destinations),
    at_top(c"ingress_zone", Arguments::exactly(2), directives::ingress_zone),
    at_top(c"ingress_journal", Arguments::exactly(1), directives::ingress_journal),
    at_top(c"ingress_draining", Arguments::exactly(1), directives::ingress_draining),
    at_top(c"ingress_limits", Arguments::exactly(1), directives::ingress_limits),
    at_top(c"ingress_buffers", Arguments::exactly(1), directives::ingress_buffers),
    at_top(c"ingress_metrics", Arguments::between(0, 3), metrics::ingress_metrics),
    Directive::END,
];

// SAFETY: the index of the table above, whose context is this type's.
unsafe impl HttpModule for Http {
    type Main = Texts;
    type Server = SrvConf;
    type Location = LocConf;
    type Request = crate::request::Context;

    #[inline]
    fn index() -> usize {
        // SAFETY: nginx writes it once, when it loads the module.
        unsafe { ngx_http_ingress_module.ctx_index }
    }

    fn preconfiguration(conf: &mut Conf) -> Result<(), Refused> {
        variables::add(conf).ok_or(Refused::Told)
    }

    fn postconfiguration(conf: &mut Conf) -> Result<(), Refused> {
        directives::postconfiguration(conf)
    }

    fn merge_location(conf: &mut Conf, outer: &LocConf) -> Result<(), Refused> {
        directives::merge_location(conf, outer)
    }
}

static HTTP: Shared<ngx_http_module_t> = http_context::<Http>();

const HTTP_DIRECTIVES: &[Directive] = &[
    in_http(c"ingress_log_line", Arguments::SOME, text::ingress_log_line),
    in_http(c"ingress_header_lines", Arguments::SOME, text::ingress_header_lines),
    in_server(c"ingress_keep_headers", Arguments::SOME, head::ingress_keep_headers),
    in_server(c"ingress_strip_headers", Arguments::SOME, head::ingress_strip_headers),
    in_server(c"ingress_refuse_paths", Arguments::SOME, head::ingress_refuse_paths),
    in_server(c"ingress_hide_server", Arguments::NONE, head::ingress_hide_server),
    in_server(c"ingress_brotli", Arguments::SOME, compression::ingress_brotli),
    in_server(c"ingress_proxied_client", Arguments::exactly(2), head::ingress_proxied_client),
    in_server(
        c"ingress_forwarded_headers",
        Arguments::exactly(1),
        directives::ingress_forwarded_headers,
    ),
    in_location(c"ingress_error", Arguments::NONE, directives::ingress_error),
    in_location(c"ingress_auth", Arguments::exactly(1), directives::ingress_auth),
    in_location(c"ingress_mirror", Arguments::exactly(1), directives::ingress_mirror),
    in_location(c"ingress_target", Arguments::exactly(1), directives::ingress_target),
    in_location(c"ingress_configuration", Arguments::NONE, directives::ingress_configuration),
    in_location(c"ingress_router", Arguments::NONE, directives::ingress_router),
    in_upstream(c"ingress_balancer", Arguments::between(0, 1), directives::ingress_balancer),
    in_upstream(c"ingress_keepalive", Arguments::between(1, 4), keepalive::ingress_keepalive),
    Directive::END,
];

// SAFETY: the index of the table above, whose context is this type's.
unsafe impl StreamModule for Stream {
    type Server = stream::SrvConf;
    type Session = stream::passthrough::SessionBackend;

    #[inline]
    fn index() -> usize {
        // SAFETY: nginx writes it once, when it loads the module.
        unsafe { ngx_stream_ingress_module.ctx_index }
    }

    fn postconfiguration(conf: &mut Conf) -> Result<(), Refused> {
        stream::postconfiguration(conf)
    }
}

static STREAM: Shared<ngx_stream_module_t> = stream_context::<Stream>();

const STREAM_DIRECTIVES: &[Directive] = &[
    Directive::new(
        c"ingress_balancer",
        Context::STREAM_UPSTREAM,
        Arguments::between(0, 1),
        stream::ingress_balancer,
    ),
    Directive::new(
        c"ingress_passthrough",
        Context::STREAM_SERVER,
        Arguments::NONE,
        stream::ingress_passthrough,
    ),
    Directive::new(
        c"ingress_decrypt",
        Context::STREAM_SERVER,
        Arguments::NONE,
        stream::ingress_decrypt,
    ),
    Directive::END,
];

type Set = nginx::module::SetDirective;
type Name = &'static std::ffi::CStr;

const fn at_top(name: Name, takes: Arguments, set: Set) -> Directive {
    Directive::new(name, Context::MAIN, takes, set)
}

const fn in_http(name: Name, takes: Arguments, set: Set) -> Directive {
    Directive::new(name, Context::HTTP, takes, set)
}

const fn in_server(name: Name, takes: Arguments, set: Set) -> Directive {
    Directive::new(name, Context::SERVER, takes, set)
}

const fn in_location(name: Name, takes: Arguments, set: Set) -> Directive {
    Directive::new(name, Context::LOCATION, takes, set)
}

const fn in_upstream(name: Name, takes: Arguments, set: Set) -> Directive {
    Directive::new(name, Context::UPSTREAM, takes, set)
}
