//! Locations that no nginx.conf has: nginx's own settings for the requests of one set of policies.
//!
//! nginx.conf has a location for each protocol toward endpoints, its *target* (`ingress_target`). A routed request
//! goes on with the settings of that location, as if nginx had matched it, without a redirect. Where policies say
//! something else, it gets a copy of the target's settings in which that is changed: made once for a worker, target
//! and set of policies, and shared by all of its requests, which hold the policies.
//!
//! Rejected: copies a request, which cost 530 instructions each.
#![allow(unsafe_code)]

mod errors;

use crate::conf::Declared;
use crate::conf::Target;
use crate::route::policy::Compiled;
use crate::tls::upstream::Upstream;
use crate::worker;
use errors::ErrorPages;
use nginx::sys::{
    NGX_HTTP_UPSTREAM_FT_ERROR, NGX_HTTP_UPSTREAM_FT_HTTP_403, NGX_HTTP_UPSTREAM_FT_HTTP_404,
    NGX_HTTP_UPSTREAM_FT_HTTP_429, NGX_HTTP_UPSTREAM_FT_HTTP_500, NGX_HTTP_UPSTREAM_FT_HTTP_502,
    NGX_HTTP_UPSTREAM_FT_HTTP_503, NGX_HTTP_UPSTREAM_FT_HTTP_504,
    NGX_HTTP_UPSTREAM_FT_INVALID_HEADER, NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT,
    NGX_HTTP_UPSTREAM_FT_OFF, NGX_HTTP_UPSTREAM_FT_TIMEOUT, ngx_http_core_module,
    ngx_http_max_module, ngx_str_t,
};
use nginx::{Cycle, EventLoop, Request};
use oxigress_core::model::policy::{Condition, HttpVersion, Policies, Protocol, Proxy};
use std::cell::RefCell;
use std::ffi::{CStr, c_void};

/// `NGX_HTTP_VERSION_10`, `NGX_HTTP_VERSION_11`
const HTTP_10: usize = 1000;
const HTTP_11: usize = 1001;

/// The locations of one set of policies, by target.
#[derive(Default)]
pub struct Locations(RefCell<Vec<Location>>);

impl Locations {
    /// What one takes, about.
    pub const BYTES: usize = 4096;

    /// The settings for `base`, made when first asked for.
    ///
    /// # Safety
    /// `base` are the settings of a target of the running cycle, on the event loop's thread.
    unsafe fn get(
        &self,
        base: Settings,
        purpose: Purpose,
        policies: &Policies,
    ) -> Option<Settings> {
        let mut all = self.0.try_borrow_mut().ok()?;
        let cycle = worker::cycle_number();
        if let Some(known) = all.iter().find(|l| l.base == base && l.cycle == cycle) {
            return Some(known.settings());
        }
        // SAFETY: the caller has the settings of a location of the running cycle.
        let location = unsafe { Location::new(base, purpose, policies) }?;
        let settings = location.settings();
        all.push(location);
        Some(settings)
    }
}

/// What a location is for.
#[derive(Clone, Copy)]
enum Purpose {
    /// Endpoints of this protocol. Statuses that policies name go to the second.
    Target(Target, Option<ngx_str_t>),
    /// The backend that answers in the place of a status.
    Error,
}

/// What every http module keeps for a location: nginx's array, by the modules' places.
type Settings = *mut *mut c_void;

/// A target's settings with some of them changed.
struct Location {
    base: Settings,
    /// The configuration that `base` is of: after a reload of one process another's may stand there.
    cycle: u64,
    /// One for each module; the core module's and the protocol's are `core` and `proxy`, all others the target's.
    modules: Box<[*mut c_void]>,
    /// Kept for `modules`.
    _core: Box<nginx::sys::ngx_http_core_loc_conf_s>,
    _proxy: Option<Changed>,
    _tls: Option<Upstream>,
    _errors: Option<Box<ErrorPages>>,
    _log: Option<Box<nginx::sys::ngx_http_log_loc_conf_t>>,
}

/// The settings of the module that talks to endpoints.
enum Changed {
    Http(Box<nginx::sys::ngx_http_proxy_loc_conf_t>),
    Grpc(Box<nginx::sys::ngx_http_grpc_loc_conf_t>),
    Fastcgi(Box<nginx::sys::ngx_http_fastcgi_loc_conf_t>),
}

impl Location {
    /// `None`: TLS toward endpoints cannot be as the policies want it.
    ///
    /// # Safety
    /// As for [`Locations::get`].
    unsafe fn new(base: Settings, purpose: Purpose, policies: &Policies) -> Option<Self> {
        // SAFETY: a number that nginx counts before it reads http{}.
        let count = unsafe { ngx_http_max_module };
        // SAFETY: nginx's array has that many places.
        let mut modules: Box<[*mut c_void]> =
            unsafe { std::slice::from_raw_parts(base, count) }.into();
        // SAFETY: the core module's settings for this location; a C struct of numbers and pointers.
        let mut core = unsafe { Box::new(std::ptr::read(core_of(base))) };
        core.loc_conf = modules.as_mut_ptr();
        let (mut proxy, mut errors, mut tls) = (None, None, None);
        if let Purpose::Target(target, errors_to) = purpose {
            change_core(&mut core, policies);
            let pages = policies.errors.as_ref().zip(errors_to);
            errors = pages.map(|(errors, to)| ErrorPages::new(errors, to));
            if let Some(pages) = &errors {
                core.error_pages = pages.as_ptr().cast();
            }
            // SAFETY: the caller has the settings of a location of the running cycle.
            proxy = unsafe { Changed::copy(&modules, target, policies) };
            let wanted = policies.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
            if let Some(wanted) = wanted.filter(|_| target.is_tls()) {
                tls = Some(Upstream::new(wanted)?);
                tls.as_ref().zip(proxy.as_mut()).map(|(tls, conf)| tls.change(conf.upstream()))?;
            }
        }
        put(&mut modules, core_index(), &raw mut *core);
        if let Some((index, settings)) = proxy.as_ref().and_then(Changed::place) {
            put(&mut modules, index, settings);
        }
        // SAFETY: the caller has the settings of a location of the running cycle.
        let log = unsafe { silent(&modules, policies) };
        if let Some((index, settings)) = &log {
            put(&mut modules, *index, (&raw const **settings).cast_mut());
        }
        Some(Location {
            base,
            cycle: worker::cycle_number(),
            modules,
            _core: core,
            _proxy: proxy,
            _tls: tls,
            _errors: errors,
            _log: log.map(|(_, settings)| settings),
        })
    }

    fn settings(&self) -> Settings {
        self.modules.as_ptr().cast_mut()
    }
}

fn put<T>(modules: &mut [*mut c_void], index: usize, settings: *mut T) {
    if let Some(place) = modules.get_mut(index) {
        *place = settings.cast();
    }
}

fn core_index() -> usize {
    // SAFETY: nginx writes it once, when it loads the module.
    unsafe { ngx_http_core_module.ctx_index }
}

/// # Safety
/// `settings` are those of a location.
unsafe fn core_of(settings: Settings) -> *mut nginx::sys::ngx_http_core_loc_conf_s {
    // SAFETY: the caller has the settings of a location of the running cycle.
    unsafe { (*settings.add(core_index())).cast() }
}

impl Changed {
    /// The protocol's settings with what the policies say; `None`: they say nothing, or nginx was built without it.
    ///
    /// # Safety
    /// `modules` are the settings of a location of this protocol.
    unsafe fn copy(modules: &[*mut c_void], target: Target, policies: &Policies) -> Option<Self> {
        // SAFETY: a struct of the module of that very name, which nginx made; numbers and pointers.
        unsafe {
            let place = |name| modules.get(index_of(name)?).copied().filter(|p| !p.is_null());
            Some(match target {
                Target::Http | Target::Https => {
                    let from = place(PROXY)?.cast::<nginx::sys::ngx_http_proxy_loc_conf_t>();
                    let mut copy = Box::new(std::ptr::read(from));
                    change_upstream(&mut copy.upstream, policies);
                    match policies.proxy.as_ref().and_then(|proxy| proxy.http_version) {
                        Some(HttpVersion::V10) => copy.http_version = HTTP_10,
                        Some(HttpVersion::V11) => copy.http_version = HTTP_11,
                        None => {}
                    }
                    Changed::Http(copy)
                }
                Target::Grpc | Target::Grpcs => {
                    let from = place(GRPC)?.cast::<nginx::sys::ngx_http_grpc_loc_conf_t>();
                    let mut copy = Box::new(std::ptr::read(from));
                    change_upstream(&mut copy.upstream, policies);
                    Changed::Grpc(copy)
                }
                Target::Fastcgi => {
                    let from = place(FASTCGI)?.cast::<nginx::sys::ngx_http_fastcgi_loc_conf_t>();
                    let mut copy = Box::new(std::ptr::read(from));
                    change_upstream(&mut copy.upstream, policies);
                    let proxy = policies.proxy.as_ref();
                    if let Some(index) = proxy.and_then(|proxy| proxy.fastcgi_index.as_ref()) {
                        // Of the policies, which have this copy: nginx reads it, and never as a template.
                        let index = index.as_str();
                        copy.index.len = index.len();
                        copy.index.data = index.as_ptr().cast_mut();
                    }
                    Changed::Fastcgi(copy)
                }
            })
        }
    }

    /// What is the same for all protocols.
    fn upstream(&mut self) -> &mut nginx::sys::ngx_http_upstream_conf_t {
        match self {
            Changed::Http(conf) => &mut conf.upstream,
            Changed::Grpc(conf) => &mut conf.upstream,
            Changed::Fastcgi(conf) => &mut conf.upstream,
        }
    }

    /// Where it belongs.
    fn place(&self) -> Option<(usize, *mut c_void)> {
        // SAFETY: the modules of the running cycle.
        unsafe {
            match self {
                Changed::Http(conf) => {
                    Some((index_of(PROXY)?, (&raw const **conf).cast_mut().cast()))
                }
                Changed::Grpc(conf) => {
                    Some((index_of(GRPC)?, (&raw const **conf).cast_mut().cast()))
                }
                Changed::Fastcgi(conf) => {
                    Some((index_of(FASTCGI)?, (&raw const **conf).cast_mut().cast()))
                }
            }
        }
    }
}

/// The log module's settings with `access_log off`, where policies say so.
///
/// # Safety
/// `modules` are the settings of a location.
unsafe fn silent(
    modules: &[*mut c_void],
    policies: &Policies,
) -> Option<(usize, Box<nginx::sys::ngx_http_log_loc_conf_t>)> {
    if !policies.is_unlogged {
        return None;
    }
    // SAFETY: a struct of the module of that very name, which nginx made; numbers and pointers.
    unsafe {
        let index = index_of(c"ngx_http_log_module")?;
        let from = modules.get(index).filter(|place| !place.is_null())?;
        let mut copy = Box::new(std::ptr::read(from.cast::<nginx::sys::ngx_http_log_loc_conf_t>()));
        copy.off = 1;
        Some((index, copy))
    }
}

const PROXY: &CStr = c"ngx_http_proxy_module";
const GRPC: &CStr = c"ngx_http_grpc_module";
const FASTCGI: &CStr = c"ngx_http_fastcgi_module";

/// # Safety
/// On the event loop of a worker.
unsafe fn index_of(name: &CStr) -> Option<usize> {
    // SAFETY: nginx's pointer to the running cycle.
    Cycle::current(unsafe { EventLoop::here() }).module_index(name)
}

/// What the core module does about requests.
fn change_core(core: &mut nginx::sys::ngx_http_core_loc_conf_s, policies: &Policies) {
    if policies.relative_redirects {
        core.absolute_redirect = 0;
    }
    if policies.redirect_port.is_some() {
        core.port_in_redirect = 1;
    }
    let Some(proxy) = &policies.proxy else { return };
    if let Some(bytes) = proxy.max_body_bytes {
        core.client_max_body_size = i64::try_from(bytes).unwrap_or(i64::MAX);
    }
    if let Some(bytes) = proxy.body_buffer_bytes {
        core.client_body_buffer_size = bytes as usize;
    }
}

/// What nginx does about endpoints, whatever their protocol.
fn change_upstream(conf: &mut nginx::sys::ngx_http_upstream_conf_t, policies: &Policies) {
    if let Some(errors) = &policies.errors {
        // Without pages for statuses it has no effect.
        conf.intercept_errors = isize::from(!errors.own_only);
    }
    let Some(proxy) = &policies.proxy else { return };
    let seconds = |seconds: u32| seconds as usize * 1_000;
    let timeout = |from: Option<u32>, into: &mut usize| {
        if let Some(n) = from {
            *into = seconds(n);
        }
    };
    timeout(proxy.connect_timeout_seconds, &mut conf.connect_timeout);
    timeout(proxy.send_timeout_seconds, &mut conf.send_timeout);
    timeout(proxy.read_timeout_seconds, &mut conf.read_timeout);
    timeout(proxy.next_upstream_timeout_seconds, &mut conf.next_upstream_timeout);
    if let Some(is_on) = proxy.buffering {
        conf.buffering = is_on.into();
    }
    if let Some(is_on) = proxy.request_buffering {
        conf.request_buffering = is_on.into();
    }
    if let Some(tries) = proxy.next_upstream_tries {
        conf.next_upstream_tries = tries as usize;
    }
    if let Some(conditions) = &proxy.next_upstream {
        conf.next_upstream = conditions.iter().fold(0, |all, one| all | flag(*one)) as usize;
        if conditions.is_empty() {
            conf.next_upstream = NGX_HTTP_UPSTREAM_FT_OFF as usize;
        }
    }
    change_buffers(conf, proxy);
}

/// nginx refuses some of these together when it reads them; here the smaller one gives way.
fn change_buffers(conf: &mut nginx::sys::ngx_http_upstream_conf_t, proxy: &Proxy) {
    if let Some(bytes) = proxy.buffer_bytes {
        conf.buffer_size = bytes as usize;
        conf.bufs.size = bytes as usize;
    }
    if let Some(count) = proxy.buffer_count {
        // nginx's own least.
        conf.bufs.num = (count as isize).max(2);
    }
    if proxy.buffer_bytes.is_none()
        && proxy.buffer_count.is_none()
        && proxy.busy_buffers_bytes.is_none()
        && proxy.max_temp_file_bytes.is_none()
    {
        return;
    }
    let one = conf.buffer_size.max(conf.bufs.size);
    let all_but_one = (conf.bufs.num as usize).saturating_sub(1) * conf.bufs.size;
    let busy = proxy.busy_buffers_bytes.map_or(2 * one, |bytes| bytes as usize);
    conf.busy_buffers_size = busy.min(all_but_one).max(one);
    conf.temp_file_write_size = conf.temp_file_write_size.max(2 * one);
    if let Some(bytes) = proxy.max_temp_file_bytes {
        conf.max_temp_file_size = match usize::try_from(bytes).unwrap_or(usize::MAX) {
            0 => 0,
            // nginx.conf knows how much room there is for all of them.
            bytes => bytes.max(one).min(conf.max_temp_file_size),
        };
    }
}

fn flag(condition: Condition) -> u32 {
    match condition {
        Condition::Error => NGX_HTTP_UPSTREAM_FT_ERROR,
        Condition::Timeout => NGX_HTTP_UPSTREAM_FT_TIMEOUT,
        Condition::InvalidHeader => NGX_HTTP_UPSTREAM_FT_INVALID_HEADER,
        Condition::Http500 => NGX_HTTP_UPSTREAM_FT_HTTP_500,
        Condition::Http502 => NGX_HTTP_UPSTREAM_FT_HTTP_502,
        Condition::Http503 => NGX_HTTP_UPSTREAM_FT_HTTP_503,
        Condition::Http504 => NGX_HTTP_UPSTREAM_FT_HTTP_504,
        Condition::Http403 => NGX_HTTP_UPSTREAM_FT_HTTP_403,
        Condition::Http404 => NGX_HTTP_UPSTREAM_FT_HTTP_404,
        Condition::Http429 => NGX_HTTP_UPSTREAM_FT_HTTP_429,
        Condition::NonIdempotent => NGX_HTTP_UPSTREAM_FT_NON_IDEMPOTENT,
    }
}

/// Whether a location of their own is needed.
fn has_own(policies: &Policies) -> bool {
    let Policies { proxy, relative_redirects, redirect_port, errors, is_unlogged, .. } = policies;
    proxy.is_some()
        || *relative_redirects
        || redirect_port.is_some()
        || errors.is_some()
        || *is_unlogged
}

/// Where a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// In the location of its protocol.
    Target,
    /// Nowhere: nginx.conf has no location for the protocol.
    NoTarget,
    /// Nowhere: its body is larger than the location takes.
    TooLarge,
}

/// Gives a routed request, in its REWRITE phase, the settings of its protocol and its policies, which it holds.
pub fn enter(request: &Request, policies: Option<&Compiled>) -> Entered {
    let source = policies.map(|policies| &policies.source);
    let protocol = source.and_then(|p| p.proxy.as_ref()?.protocol).unwrap_or_default();
    let target = match protocol {
        Protocol::Http => Target::Http,
        Protocol::AutoHttp if !request.is_https() => Target::Http,
        Protocol::AutoHttp | Protocol::Https => Target::Https,
        Protocol::Grpc => Target::Grpc,
        Protocol::Grpcs => Target::Grpcs,
        Protocol::Fastcgi => Target::Fastcgi,
    };
    let has_body = has_body(request);
    let own = policies.filter(|policies| has_own(&policies.source));
    if target == Target::Http && own.is_none() && !has_body {
        return Entered::Target;
    }
    let base = match request.target_settings(target) {
        Some(base) => base.as_ptr(),
        // The router's own location, which nginx has matched.
        None if target == Target::Http => request.location_settings(),
        None => return Entered::NoTarget,
    };
    let settings = match own {
        // SAFETY: a target of the request's cycle.
        Some(own) => unsafe {
            let errors_to = request.error_location().map(nginx::sys::ngx_str_t::of);
            own.locations.get(base, Purpose::Target(target, errors_to), &own.source)
        },
        None => Some(base),
    };
    let Some(settings) = settings else { return Entered::NoTarget };
    // SAFETY: settings of all modules, which live as long as the request: they are of its cycle, or of its policies.
    unsafe { request.enter_location(settings) };
    let (limit, length) = (request.max_body_bytes(), request.content_length_n());
    // A request that was redirected internally has come in with its body.
    if !request.is_internal() && limit != 0 && length > limit {
        // As nginx does where it finds a location: the client may send what it has announced.
        request.set_expect_tested(true);
        request.discard_body();
        return Entered::TooLarge;
    }
    Entered::Target
}

/// Gives a request that nginx has sent to the `ingress_error` location, in its REWRITE phase there, what its policies,
/// which it holds, say of every answer.
pub fn enter_error(request: &Request, policies: &Compiled) {
    if !policies.source.is_unlogged {
        return;
    }
    let base = request.location_settings();
    // SAFETY: settings of a location that nginx found.
    let own = unsafe { policies.locations.get(base, Purpose::Error, &policies.source) };
    if let Some(own) = own {
        // SAFETY: settings of all modules, which live as long as the policies.
        unsafe { request.set_location_settings(own) };
    }
}

/// A body may follow: nginx takes its limits from the location.
fn has_body(request: &Request) -> bool {
    let length = request.content_length_n();
    // HTTP/2 and 3 need not say it.
    length > 0 || request.is_chunked() || length < 0 && request.is_http2()
}
