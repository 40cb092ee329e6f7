//! The directives, and what they set up when the configuration has been read.

use super::keepalive::{self, KeptByNginx};
use super::pool::Settings;
use super::table::{self, core_index, http_index};
use super::{endpoint, guard, memory, tls, upstream, zone};
use nginx::sys::{
    NGX_ERROR, NGX_HTTP_UPSTREAM_CREATE, NGX_LOG_EMERG, NGX_LOG_WARN, NGX_OK, ngx_array_push,
    ngx_command_t, ngx_conf_full_name, ngx_conf_log_error, ngx_conf_t, ngx_cycle_t,
    ngx_http_conf_ctx_t, ngx_http_core_loc_conf_t, ngx_http_core_main_conf_t, ngx_http_core_module,
    ngx_http_core_srv_conf_t, ngx_http_get_variable_index, ngx_http_handler_pt,
    ngx_http_phases_NGX_HTTP_ACCESS_PHASE, ngx_http_phases_NGX_HTTP_LOG_PHASE,
    ngx_http_phases_NGX_HTTP_POST_READ_PHASE, ngx_http_phases_NGX_HTTP_PREACCESS_PHASE,
    ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, ngx_http_phases_NGX_HTTP_REWRITE_PHASE,
    ngx_http_request_t, ngx_http_ssl_module, ngx_http_ssl_srv_conf_t, ngx_http_upstream_init_pt,
    ngx_http_upstream_srv_conf_t, ngx_int_t, ngx_pagesize, ngx_parse_size, ngx_shared_memory_add,
    ngx_shm_zone_t, ngx_str_t, ngx_thread_pool_add, ngx_thread_pool_t, ngx_uint_t,
};
use oxigress_core::balancer::destinations;
use oxigress_core::http::head::Rules;
use oxigress_core::http::paths::Refused;
use oxigress_core::metrics::Buckets;
use oxigress_core::text::line::Escaped;
use std::ffi::{OsStr, c_char, c_void};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{self, null_mut, without_provenance_mut};

/// A body of the configuration endpoint.
pub const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Of the core module.
#[repr(C)]
pub struct CoreConf {
    pub zone: *mut ngx_shm_zone_t,
    /// Of `ingress_limits`; null without.
    pub limits: *mut ngx_shm_zone_t,
    /// Absolute; empty without `ingress_journal`.
    journal: ngx_str_t,
    /// Whose threads write the journal.
    journal_pool: *mut ngx_thread_pool_t,
    /// Absolute; empty without `ingress_draining`.
    pub draining: ngx_str_t,
    /// Of `ingress_destinations`; null without.
    pub destinations: *mut destinations::Settings,
    /// Upstreams with `ingress_balancer`.
    balancers: usize,
    /// Whose threads look at passwords.
    password_pool: *mut ngx_thread_pool_t,
    /// There is an `ingress_metrics`.
    pub has_metrics: bool,
    /// Its bounds.
    pub buckets: Buckets,
}

impl CoreConf {
    /// The bounds of the histograms, if requests are counted.
    pub fn metrics(&self) -> Option<Buckets> {
        self.has_metrics.then_some(self.buckets)
    }
}

/// Of an upstream or a server. Zeroes are "not set".
#[repr(C)]
pub struct SrvConf {
    /// Index of the variable that names the backend, plus one.
    variable: ngx_int_t,
    /// Index of the variable that says whether a peer is believed, plus one.
    trust: ngx_int_t,
    /// A location of this server has `ingress_router`.
    has_router: bool,
    /// The settings of its `ingress_target` locations; null: it has none for that protocol.
    targets: [*mut *mut c_void; Target::COUNT],
    /// The name of its `ingress_error` location; empty: it has none.
    error_location: ngx_str_t,
    /// The names of its `ingress_auth` locations; empty: it has none for that protocol.
    auth_locations: Locations,
    /// The same of its `ingress_mirror` locations.
    mirror_locations: Locations,
    /// A location of this server has `ingress_configuration`.
    has_configuration: bool,
    /// This upstream has `ingress_balancer`.
    pub has_balancer: bool,
    /// This upstream has `ingress_keepalive`.
    pub has_keepalive: bool,
    /// What nginx does about the connections of this upstream.
    pub kept_by_nginx: KeptByNginx,
    /// What the module does about them.
    pub keep: Settings,
    /// Which headers of clients are kept and removed; null: as without directives.
    pub(super) rules: *mut Rules,
    /// Which paths are refused.
    pub refused_paths: Refused,
    /// Of `ingress_proxied_client`: the header that says where the client is, and the one it is made of; empty without.
    pub proxied_client: [ngx_str_t; 2],
}

impl SrvConf {
    /// The index of the variable that names the backend, if there is one.
    #[inline]
    pub fn backend_variable(&self) -> Option<ngx_uint_t> {
        ngx_uint_t::try_from(self.variable - 1).ok()
    }

    /// Which headers of clients are kept and removed, where directives say so.
    #[inline]
    pub fn head_rules(&self) -> Option<&Rules> {
        // SAFETY: null, or made by a directive, and only read since.
        unsafe { self.rules.as_ref() }
    }

    /// The index of the variable that says whether a peer is believed, if there is one.
    #[inline]
    pub fn trust_variable(&self) -> Option<ngx_uint_t> {
        ngx_uint_t::try_from(self.trust - 1).ok()
    }
}

/// Of a location. Zeroes are "not set".
#[repr(C)]
struct LocConf {
    is_router: bool,
    is_error: bool,
    is_auth: bool,
    is_mirror: bool,
    pool: *mut ngx_thread_pool_t,
}

/// What servers of URLs speak: they are asked through a location for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of protocols")]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    const COUNT: usize = 2;

    /// With or without TLS.
    pub fn of(https: bool) -> Self {
        if https { Scheme::Https } else { Scheme::Http }
    }
}

/// The names of such locations of a server; empty: it has none for that scheme.
type Locations = [ngx_str_t; Scheme::COUNT];

/// What endpoints speak: each has a location of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of protocols")]
pub enum Target {
    Http,
    Https,
    Grpc,
    Grpcs,
    Fastcgi,
}

impl Target {
    /// It is spoken over TLS.
    pub fn is_tls(self) -> bool {
        matches!(self, Target::Https | Target::Grpcs)
    }

    const COUNT: usize = 5;
    const ALL: [(&[u8], Target); Self::COUNT] = [
        (b"http", Target::Http),
        (b"https", Target::Https),
        (b"grpc", Target::Grpc),
        (b"grpcs", Target::Grpcs),
        (b"fastcgi", Target::Fastcgi),
    ];
}

type InitUpstream =
    unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_http_upstream_srv_conf_t) -> ngx_int_t;

/// What a directive's function answers.
pub type Answer = *mut c_char;

pub const OK: Answer = null_mut();

/// `(char *) NGX_CONF_ERROR`
pub fn refused() -> Answer {
    without_provenance_mut(usize::MAX)
}

/// Says why, with file and line, and refuses the directive.
///
/// # Safety
/// `cf` is the configuration being read.
pub unsafe fn refuse(cf: *mut ngx_conf_t, reason: impl Display) -> Answer {
    // SAFETY: vouched for by the caller.
    unsafe { say(cf, NGX_LOG_EMERG, &Escaped(reason).to_string()) };
    refused()
}

/// Logs a line with file and line.
///
/// # Safety
/// `cf` is the configuration being read.
unsafe fn say(cf: *mut ngx_conf_t, level: u32, line: &str) {
    let (length, line) = (line.len(), line.as_ptr());
    // SAFETY: vouched for by the caller; `%*s` takes a length and a pointer.
    unsafe { ngx_conf_log_error(level as ngx_uint_t, cf, 0, c"%*s".as_ptr(), length, line) };
}

/// The directive's arguments, its name first.
///
/// # Safety
/// `cf` is the configuration being read.
pub unsafe fn arguments<'a>(cf: *mut ngx_conf_t) -> &'a [ngx_str_t] {
    // SAFETY: nginx fills the array with strings.
    unsafe { (*(*cf).args).as_slice() }
}

/// The name of the variable that an argument is.
///
/// # Safety
/// `cf` is the configuration being read, `argument` one of its directive's.
pub unsafe fn variable_name(cf: *mut ngx_conf_t, argument: ngx_str_t) -> Result<ngx_str_t, Answer> {
    // SAFETY: vouched for by the caller.
    let text = unsafe { memory::bytes(argument) };
    match text.strip_prefix(b"$").filter(|name| !name.is_empty()) {
        Some(name) => Ok(ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() }),
        None => {
            let shown = text.escape_ascii();
            let reason = format_args!("invalid variable name \"{shown}\": it begins with \"$\"");
            // SAFETY: vouched for by the caller.
            Err(unsafe { refuse(cf, reason) })
        }
    }
}

/// `ingress_forwarded_headers $variable;`
pub unsafe extern "C" fn ingress_forwarded_headers(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time, with the configuration it reads; `conf` is of this server.
    guard::contain("ingress_forwarded_headers", refused(), || unsafe {
        let conf = &mut *conf.cast::<SrvConf>();
        if conf.trust != 0 {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, name] = arguments(cf) else { return refused() };
        let mut variable = match variable_name(cf, *name) {
            Ok(variable) => variable,
            Err(answer) => return answer,
        };
        let index = ngx_http_get_variable_index(cf, &raw mut variable);
        if index == NGX_ERROR as ngx_int_t {
            return refused();
        }
        conf.trust = index + 1;
        OK
    })
}

pub unsafe extern "C" fn create_core_conf(cycle: *mut ngx_cycle_t) -> *mut c_void {
    // SAFETY: the cycle's pool is alive; zeroes are a value.
    unsafe { memory::zeroed::<CoreConf>((*cycle).pool) }.cast()
}

pub unsafe extern "C" fn create_srv_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: as above.
    unsafe { memory::zeroed::<SrvConf>((*cf).pool) }.cast()
}

pub unsafe extern "C" fn create_loc_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: as above.
    unsafe { memory::zeroed::<LocConf>((*cf).pool) }.cast()
}

/// nginx runs an `if` or a `limit_except` inside of a location as a location of its own, with the outer one's
/// handler: it gets the outer one's settings too.
pub unsafe extern "C" fn merge_loc_conf(
    cf: *mut ngx_conf_t,
    outer: *mut c_void,
    inner: *mut c_void,
) -> Answer {
    // SAFETY: nginx gives two of this module's configurations, and the inner location's context.
    unsafe {
        let core: *mut ngx_http_core_loc_conf_t = loc_conf(cf, ngx_http_core_module.ctx_index);
        let flags = &*core.cast::<nginx::sys::ngx_http_core_loc_conf_s>();
        if flags.noname() != 0 || flags.lmt_excpt() != 0 {
            let (outer, inner) = (&*outer.cast::<LocConf>(), &mut *inner.cast::<LocConf>());
            inner.is_router = outer.is_router;
            inner.is_error = outer.is_error;
            inner.pool = outer.pool;
            if flags.lmt_excpt() != 0 && (*core).handler.is_none() && !outer.pool.is_null() {
                (*core).handler = Some(endpoint::content_handler);
            }
        }
        // Modules of this library come last, so all others have merged this location.
        let inner = inner.cast::<LocConf>();
        if (*inner).is_auth || (*inner).is_mirror {
            keepalive::ignore_accelerators(cf);
        }
        if keepalive::check_location(cf).is_err() {
            return refused();
        }
    }
    OK
}

/// # Safety
/// The cycle has this module.
pub unsafe fn core_conf(cycle: *mut ngx_cycle_t) -> *mut CoreConf {
    // SAFETY: one pointer a module; null before `create_core_conf`.
    unsafe { (*(*cycle).conf_ctx.add(core_index())).cast() }
}

/// The zone of a cycle; null without `ingress_zone`.
///
/// # Safety
/// The cycle has this module.
pub unsafe fn zone_of(cycle: *mut ngx_cycle_t) -> *mut ngx_shm_zone_t {
    // SAFETY: vouched for by the caller.
    unsafe { core_conf(cycle).as_ref() }.map_or(null_mut(), |conf| conf.zone)
}

/// The zone of `ingress_limits` of a cycle; null without.
///
/// # Safety
/// The cycle has this module.
pub unsafe fn limits_zone_of(cycle: *mut ngx_cycle_t) -> *mut ngx_shm_zone_t {
    // SAFETY: vouched for by the caller.
    unsafe { core_conf(cycle).as_ref() }.map_or(null_mut(), |conf| conf.limits)
}

/// The bounds of the histograms, if requests are counted.
///
/// # Safety
/// The cycle has this module.
pub unsafe fn metrics_of(cycle: *mut ngx_cycle_t) -> Option<Buckets> {
    // SAFETY: vouched for by the caller.
    unsafe { core_conf(cycle).as_ref() }.and_then(CoreConf::metrics)
}

/// Requests are counted in a zone that is being made or taken over.
///
/// # Safety
/// `data` is what `ingress_zone` left in the zone, in a cycle that is being initialised.
pub unsafe fn counts_requests(data: *mut c_void) -> bool {
    // SAFETY: vouched for by the caller.
    unsafe { data.cast::<CoreConf>().as_ref() }.is_some_and(|conf| conf.has_metrics)
}

/// What the module keeps for the last cycle; null if there was none.
///
/// # Safety
/// `cycle` runs, or is the empty one that nginx begins with.
pub unsafe fn conf_of_last_cycle(cycle: *mut ngx_cycle_t) -> *mut CoreConf {
    // SAFETY: vouched for by the caller. Without configurations nothing ran.
    unsafe { if (*cycle).conf_ctx.is_null() { null_mut() } else { core_conf(cycle) } }
}

/// `ingress_zone NAME SIZE;`
pub unsafe extern "C" fn ingress_zone(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    _: *mut c_void,
) -> Answer {
    // SAFETY: nginx runs one directive at a time, with the configuration it reads.
    guard::contain("ingress_zone", refused(), || unsafe {
        let conf = core_conf((*cf).cycle);
        if !(*conf).zone.is_null() {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, name, size] = arguments(cf) else { return refused() };
        let (mut name, mut size_text) = (*name, *size);
        let size = ngx_parse_size(&raw mut size_text);
        let shown = memory::bytes(size_text).escape_ascii();
        // The header of a zone takes 70 KiB; less than 1m serves nobody.
        let Some(size) =
            usize::try_from(size).ok().filter(|size| *size >= 8 * ngx_pagesize.max(32768))
        else {
            return refuse(
                cf,
                format_args!("invalid zone size \"{shown}\": it is a number of at least 256k"),
            );
        };
        let zone = ngx_shared_memory_add(
            cf,
            &raw mut name,
            size,
            &raw mut table::ngx_ingress_module as *mut c_void,
        );
        if zone.is_null() {
            return refused();
        }
        (*zone).init = Some(zone::init_zone);
        (*zone).data = conf.cast();
        (*conf).zone = zone;
        OK
    })
}

/// `ingress_journal PATH;`
pub unsafe extern "C" fn ingress_journal(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    _: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`.
    guard::contain("ingress_journal", refused(), || unsafe {
        let conf = core_conf((*cf).cycle);
        if (*conf).journal.len > 0 {
            return c"is duplicate".as_ptr().cast_mut();
        }
        let [_, path] = arguments(cf) else { return refused() };
        let mut path = *path;
        if path.len == 0 {
            return refuse(cf, "\"ingress_journal\" needs the path of a file");
        }
        if ngx_conf_full_name((*cf).cycle, &raw mut path, 0) != NGX_OK as ngx_int_t {
            return refused();
        }
        let pool = ngx_thread_pool_add(cf, null_mut());
        if pool.is_null() {
            return refused();
        }
        let shown = memory::bytes(path).escape_ascii();
        if !memory::is_memory_backed(memory::bytes(path)) {
            let line = format!(
                "\"ingress_journal\" {shown} holds private keys, and its folder is not memory-backed: use a tmpfs"
            );
            say(cf, NGX_LOG_WARN, &line);
        }
        ((*conf).journal, (*conf).journal_pool) = (path, pool);
        OK
    })
}

/// The journal of a cycle and whose threads write it; `None` without `ingress_journal`.
///
/// # Safety
/// The cycle has this module.
pub unsafe fn journal_of(cycle: *mut ngx_cycle_t) -> Option<(PathBuf, *mut ngx_thread_pool_t)> {
    // SAFETY: vouched for by the caller.
    let conf = unsafe { core_conf(cycle).as_ref() }?;
    // SAFETY: this cycle's.
    let path = unsafe { journal_of_zone(ptr::from_ref(conf).cast_mut().cast()) }?;
    Some((path, conf.journal_pool))
}

/// The journal of a zone that is being made; `None` without `ingress_journal`.
///
/// # Safety
/// `data` is what `ingress_zone` left in the zone, in a cycle that is being initialised.
pub unsafe fn journal_of_zone(data: *mut c_void) -> Option<PathBuf> {
    // SAFETY: vouched for by the caller.
    let conf = unsafe { data.cast::<CoreConf>().as_ref() }?;
    // SAFETY: nginx made the string, in the cycle's pool.
    let path = unsafe { memory::bytes(conf.journal) };
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// # Safety
/// `cf` is inside of http{}; `T` is what the module at `index` keeps for a location.
unsafe fn loc_conf<T>(cf: *mut ngx_conf_t, index: usize) -> *mut T {
    // SAFETY: nginx makes one pointer a module.
    unsafe { (*(*(*cf).ctx.cast::<ngx_http_conf_ctx_t>()).loc_conf.add(index)).cast() }
}

/// # Safety
/// As for [`loc_conf`], for a server or an upstream.
unsafe fn srv_conf<T>(cf: *mut ngx_conf_t, index: usize) -> *mut T {
    // SAFETY: as above.
    unsafe { (*(*(*cf).ctx.cast::<ngx_http_conf_ctx_t>()).srv_conf.add(index)).cast() }
}

/// # Safety
/// As for [`loc_conf`], for http{}.
pub unsafe fn main_conf<T>(cf: *mut ngx_conf_t, index: usize) -> *mut T {
    // SAFETY: as above.
    unsafe { (*(*(*cf).ctx.cast::<ngx_http_conf_ctx_t>()).main_conf.add(index)).cast() }
}

const NO_ZONE: &str = "needs an \"ingress_zone NAME SIZE;\" before http";

/// `ingress_configuration;`
pub unsafe extern "C" fn ingress_configuration(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this location.
    guard::contain("ingress_configuration", refused(), || unsafe {
        if zone_of((*cf).cycle).is_null() {
            return refuse(cf, format_args!("\"ingress_configuration\" {NO_ZONE}"));
        }
        let core: *mut ngx_http_core_loc_conf_t = loc_conf(cf, ngx_http_core_module.ctx_index);
        (*core).handler = Some(endpoint::content_handler);
        // A body holds private keys: it stays in memory, in one piece, however large. The handler itself
        // refuses one that is too large, with a reason.
        (*core).client_body_buffer_size = MAX_BODY_BYTES + 1;
        (*core).client_max_body_size = 0;
        (*core).client_body_timeout = 30_000;
        // Null names the pool "default", which nginx makes with 32 threads unless told otherwise.
        let pool = ngx_thread_pool_add(cf, null_mut());
        if pool.is_null() {
            return refused();
        }
        (*conf.cast::<LocConf>()).pool = pool;
        (*srv_conf::<SrvConf>(cf, http_index())).has_configuration = true;
        OK
    })
}

/// `ingress_router;`
pub unsafe extern "C" fn ingress_router(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this location.
    guard::contain("ingress_router", refused(), || unsafe {
        if zone_of((*cf).cycle).is_null() {
            return refuse(cf, format_args!("\"ingress_router\" {NO_ZONE}"));
        }
        // Null names the pool "default".
        let pool = ngx_thread_pool_add(cf, null_mut());
        if pool.is_null() {
            return refused();
        }
        (*core_conf((*cf).cycle)).password_pool = pool;
        (*conf.cast::<LocConf>()).is_router = true;
        (*srv_conf::<SrvConf>(cf, http_index())).has_router = true;
        OK
    })
}

/// `ingress_target PROTOCOL;`
pub unsafe extern "C" fn ingress_target(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    _: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`, inside of a location.
    guard::contain("ingress_target", refused(), || unsafe {
        let [_, name] = arguments(cf) else { return refused() };
        let name = memory::bytes(*name);
        let Some((_, target)) = Target::ALL.iter().find(|(known, _)| *known == name) else {
            let shown = name.escape_ascii();
            return refuse(
                cf,
                format_args!(
                    "invalid protocol \"{shown}\": it is http, https, grpc, grpcs or fastcgi"
                ),
            );
        };
        let conf = srv_conf::<SrvConf>(cf, http_index());
        let Some(place) = (*conf).targets.get_mut(*target as usize) else { return refused() };
        if !place.is_null() {
            return c"is duplicate in this server".as_ptr().cast_mut();
        }
        *place = (*(*cf).ctx.cast::<ngx_http_conf_ctx_t>()).loc_conf;
        OK
    })
}

/// `ingress_error;`
pub unsafe extern "C" fn ingress_error(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this location.
    guard::contain("ingress_error", refused(), || unsafe {
        if zone_of((*cf).cycle).is_null() {
            return refuse(cf, format_args!("\"ingress_error\" {NO_ZONE}"));
        }
        let core: *mut ngx_http_core_loc_conf_t = loc_conf(cf, ngx_http_core_module.ctx_index);
        let name = (*core).name;
        if !memory::bytes(name).starts_with(b"@") {
            return refuse(cf, "\"ingress_error\" stands in a named location");
        }
        let server = srv_conf::<SrvConf>(cf, http_index());
        if (*server).error_location.len > 0 {
            return c"is duplicate in this server".as_ptr().cast_mut();
        }
        (*server).error_location = name;
        (*conf.cast::<LocConf>()).is_error = true;
        OK
    })
}

/// The name of the `ingress_error` location in the server of a request, if it has one.
///
/// # Safety
/// The request is alive.
pub unsafe fn error_location(request: *mut ngx_http_request_t) -> Option<ngx_str_t> {
    // SAFETY: nginx gives a request the configurations of its server; `create_srv_conf` made it for every server.
    let name =
        unsafe { (*(*(*request).srv_conf.add(http_index())).cast::<SrvConf>()).error_location };
    (name.len > 0).then_some(name)
}

/// The settings of a target in the server of a request.
///
/// # Safety
/// The request is alive.
#[inline]
pub unsafe fn target(request: *mut ngx_http_request_t, target: Target) -> Option<*mut *mut c_void> {
    // SAFETY: nginx gives a request the configurations of its server.
    let conf = unsafe { (*(*request).srv_conf.add(http_index())).cast::<SrvConf>() };
    // SAFETY: `create_srv_conf` made it for every server.
    let place = unsafe { (&raw const (*conf).targets).cast::<*mut *mut c_void>() };
    // SAFETY: a place for each of them.
    Some(unsafe { *place.add(target as usize) }).filter(|settings| !settings.is_null())
}

/// `ingress_auth PROTOCOL;`
pub unsafe extern "C" fn ingress_auth(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this location.
    guard::contain("ingress_auth", refused(), || unsafe {
        let locations = &raw mut (*srv_conf::<SrvConf>(cf, http_index())).auth_locations;
        if let Err(answer) = take_location(cf, "ingress_auth", locations) {
            return answer;
        }
        (*conf.cast::<LocConf>()).is_auth = true;
        OK
    })
}

/// `ingress_mirror PROTOCOL;`
pub unsafe extern "C" fn ingress_mirror(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this location.
    guard::contain("ingress_mirror", refused(), || unsafe {
        let locations = &raw mut (*srv_conf::<SrvConf>(cf, http_index())).mirror_locations;
        match take_location(cf, "ingress_mirror", locations) {
            // The request itself was measured.
            Ok(core) => (*core).client_max_body_size = 0,
            Err(answer) => return answer,
        }
        (*conf.cast::<LocConf>()).is_mirror = true;
        OK
    })
}

/// Makes the location of a directive `NAME PROTOCOL;` that of requests which the module makes itself.
///
/// # Safety
/// `cf` is inside of a location, `locations` are of its server.
unsafe fn take_location(
    cf: *mut ngx_conf_t,
    directive: &str,
    locations: *mut Locations,
) -> Result<*mut ngx_http_core_loc_conf_t, Answer> {
    // SAFETY: vouched for by the caller; nginx runs one directive at a time.
    unsafe {
        let [_, name] = arguments(cf) else { return Err(refused()) };
        let scheme = match memory::bytes(*name) {
            b"http" => Scheme::Http,
            b"https" => Scheme::Https,
            other => {
                let shown = other.escape_ascii();
                let reason = format_args!("invalid protocol \"{shown}\": it is http or https");
                return Err(refuse(cf, reason));
            }
        };
        let core: *mut ngx_http_core_loc_conf_t = loc_conf(cf, ngx_http_core_module.ctx_index);
        if (*core.cast::<nginx::sys::ngx_http_core_loc_conf_s>()).exact_match() == 0 {
            let reason = format_args!("\"{directive}\" stands in a \"location = NAME\"");
            return Err(refuse(cf, reason));
        }
        let Some(place) = (*locations).get_mut(scheme as usize) else { return Err(refused()) };
        if place.len != 0 {
            return Err(c"is duplicate in this server".as_ptr().cast_mut());
        }
        *place = (*core).name;
        // Nobody comes here from outside.
        (*core).internal = 1;
        Ok(core)
    }
}

/// The name of the location through which auth servers are asked, in the server of a request.
///
/// # Safety
/// The request is alive.
pub unsafe fn auth_location(request: *mut ngx_http_request_t, scheme: Scheme) -> Option<ngx_str_t> {
    // SAFETY: vouched for by the caller.
    unsafe { location_name(request, |conf| &conf.auth_locations, scheme) }
}

/// The name of the location through which copies go, in the server of a request.
///
/// # Safety
/// The request is alive.
pub unsafe fn mirror_location(
    request: *mut ngx_http_request_t,
    scheme: Scheme,
) -> Option<ngx_str_t> {
    // SAFETY: vouched for by the caller.
    unsafe { location_name(request, |conf| &conf.mirror_locations, scheme) }
}

/// # Safety
/// The request is alive.
unsafe fn location_name(
    request: *mut ngx_http_request_t,
    locations: fn(&SrvConf) -> &Locations,
    scheme: Scheme,
) -> Option<ngx_str_t> {
    // SAFETY: nginx gives a request the configurations of its server; `create_srv_conf` made it for every server,
    // and it is only read since.
    let conf = unsafe { &*(*(*request).srv_conf.add(http_index())).cast::<SrvConf>() };
    locations(conf).get(scheme as usize).copied().filter(|name| name.len > 0)
}

/// The request's location has `ingress_auth`.
///
/// # Safety
/// `request` is alive.
#[inline]
pub unsafe fn is_auth_location(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: vouched for by the caller.
    unsafe { (*request_conf(request)).is_auth }
}

/// The request's location has `ingress_mirror`.
///
/// # Safety
/// `request` is alive.
#[inline]
pub unsafe fn is_mirror_location(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: vouched for by the caller.
    unsafe { (*request_conf(request)).is_mirror }
}

/// Whose threads look at passwords; null without an `ingress_router`.
///
/// # Safety
/// On the event loop of a worker.
pub unsafe fn password_pool() -> *mut ngx_thread_pool_t {
    // SAFETY: nginx's pointer to the running cycle.
    unsafe { core_conf(nginx::sys::ngx_cycle).as_ref() }
        .map_or(null_mut(), |conf| conf.password_pool)
}

/// `ingress_balancer [$variable];`
pub unsafe extern "C" fn ingress_balancer(
    cf: *mut ngx_conf_t,
    _: *mut ngx_command_t,
    conf: *mut c_void,
) -> Answer {
    // SAFETY: as for `ingress_zone`; `conf` is of this upstream.
    guard::contain("ingress_balancer", refused(), || unsafe {
        if zone_of((*cf).cycle).is_null() {
            return refuse(cf, format_args!("\"ingress_balancer\" {NO_ZONE}"));
        }
        let upstream: *mut ngx_http_upstream_srv_conf_t =
            srv_conf(cf, nginx::sys::ngx_http_upstream_module.ctx_index);
        let is_ours = |init: ngx_http_upstream_init_pt| {
            init.is_some_and(|init| {
                std::ptr::fn_addr_eq(init, upstream::init_upstream as InitUpstream)
            })
        };
        if is_ours((*upstream).peer.init_upstream) {
            return c"is duplicate".as_ptr().cast_mut();
        }
        if (*upstream).peer.init_upstream.is_some() {
            // Up to nginx 1.29.6 `keepalive` wraps what stands before it: the other way round it would be
            // lost without a word.
            return refuse(
                cf,
                "\"ingress_balancer\" must stand before \"keepalive\" and any other balancing directive",
            );
        }
        if let [_, name] = arguments(cf) {
            let mut variable = match variable_name(cf, *name) {
                Ok(variable) => variable,
                Err(answer) => return answer,
            };
            let index = ngx_http_get_variable_index(cf, &raw mut variable);
            if index == NGX_ERROR as ngx_int_t {
                return refused();
            }
            (*conf.cast::<SrvConf>()).variable = index + 1;
        }
        let (conf, core) = (&mut *conf.cast::<SrvConf>(), core_conf((*cf).cycle));
        conf.has_balancer = true;
        conf.keep.number = (*core).balancers;
        (*core).balancers += 1;
        (*upstream).peer.init_upstream = Some(upstream::init_upstream);
        (*upstream).flags = NGX_HTTP_UPSTREAM_CREATE as ngx_uint_t;
        OK
    })
}

type PhaseHandler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// What runs in which phase.
const HANDLERS: [(u32, PhaseHandler); 6] = [
    (ngx_http_phases_NGX_HTTP_REWRITE_PHASE, super::answer::rewrite_handler),
    (ngx_http_phases_NGX_HTTP_PREACCESS_PHASE, super::limits::preaccess_handler),
    (ngx_http_phases_NGX_HTTP_ACCESS_PHASE, super::access::access_handler),
    // nginx runs the later ones of a phase first: a copy has the headers that its request goes on with.
    (ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, super::mirror::handler),
    (ngx_http_phases_NGX_HTTP_PRECONTENT_PHASE, super::precontent::handler),
    (ngx_http_phases_NGX_HTTP_LOG_PHASE, super::metrics::log_handler),
];

/// What runs before nginx's realip looks where a client is, where a server has `ingress_proxied_client`.
const POST_READ: (u32, PhaseHandler) =
    (ngx_http_phases_NGX_HTTP_POST_READ_PHASE, super::head::post_read_handler);

/// Runs when http{} has been read and merged.
pub unsafe extern "C" fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: nginx calls it inside of http{}.
    guard::contain("postconfiguration", NGX_ERROR as ngx_int_t, || unsafe {
        if keepalive::check_upstreams(cf).is_err() {
            return NGX_ERROR as ngx_int_t;
        }
        let main: *mut ngx_http_core_main_conf_t = main_conf(cf, ngx_http_core_module.ctx_index);
        let servers = (*main).servers.as_slice::<*mut ngx_http_core_srv_conf_t>();
        let is_proxied = servers.iter().any(|server| {
            let ours = *(*(**server).ctx).srv_conf.add(http_index());
            (*ours.cast::<SrvConf>()).proxied_client[0].len > 0
        });
        let post_read = is_proxied.then_some(POST_READ);
        for (phase, handler) in HANDLERS.into_iter().chain(post_read) {
            let handlers = &raw mut (*main).phases[phase as usize].handlers;
            let place: *mut ngx_http_handler_pt = ngx_array_push(handlers).cast();
            if place.is_null() {
                return NGX_ERROR as ngx_int_t;
            }
            *place = Some(handler);
        }
        super::header_filter::install();
        for server in servers {
            let confs = (*(**server).ctx).srv_conf;
            let ours: *mut SrvConf = (*confs.add(http_index())).cast();
            let ssl: *mut ngx_http_ssl_srv_conf_t =
                (*confs.add(ngx_http_ssl_module.ctx_index)).cast();
            if !(*ours).has_router || (*ssl).ssl.ctx.is_null() {
                continue;
            }
            if !(*ssl).certificate_values.is_null() {
                let reason =
                    "\"ssl_certificate\" with a variable does not go with \"ingress_router\"";
                refuse(cf, reason);
                return NGX_ERROR as ngx_int_t;
            }
            tls::choose_certificates(&raw mut (*ssl).ssl);
            tls::begin_handshakes(&raw mut (*ssl).ssl);
        }
        NGX_OK as ngx_int_t
    })
}

/// A location of the server has `ingress_configuration`.
///
/// # Safety
/// `server` is a server of the running cycle.
pub unsafe fn has_configuration(server: *mut ngx_http_core_srv_conf_t) -> bool {
    // SAFETY: `create_srv_conf` made it for every server.
    unsafe { (*(*(*(*server).ctx).srv_conf.add(http_index())).cast::<SrvConf>()).has_configuration }
}

/// # Safety
/// `request` is alive.
unsafe fn request_conf(request: *mut ngx_http_request_t) -> *mut LocConf {
    // SAFETY: nginx gives a request the configurations of its location.
    unsafe { (*(*request).loc_conf.add(http_index())).cast() }
}

/// The request's location has `ingress_router`.
///
/// # Safety
/// `request` is alive.
#[inline]
pub unsafe fn is_router(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: vouched for by the caller.
    unsafe { (*request_conf(request)).is_router }
}

/// The request's location has `ingress_error`.
///
/// # Safety
/// `request` is alive.
#[inline]
pub unsafe fn is_error(request: *mut ngx_http_request_t) -> bool {
    // SAFETY: vouched for by the caller.
    unsafe { (*request_conf(request)).is_error }
}

/// The thread pool of the request's `ingress_configuration`; null elsewhere.
///
/// # Safety
/// `request` is alive.
pub unsafe fn thread_pool(request: *mut ngx_http_request_t) -> *mut ngx_thread_pool_t {
    // SAFETY: vouched for by the caller.
    unsafe { (*request_conf(request)).pool }
}

/// What the module keeps for an upstream. Written while the configuration is read, only read afterwards.
///
/// # Safety
/// `upstream` is an upstream block.
#[inline]
pub unsafe fn upstream_conf(upstream: *mut ngx_http_upstream_srv_conf_t) -> *mut SrvConf {
    // SAFETY: vouched for by the caller; `create_srv_conf` made it, and zeroes are a value.
    unsafe { (*(*upstream).srv_conf.add(http_index())).cast() }
}
