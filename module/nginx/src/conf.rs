//! A configuration while nginx reads it.

pub mod kept;
pub mod module;

use crate::basic::handle::{Array, Handle, fields, handle};
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::basic::text::{Text, bytes};
use crate::conf::kept::{HttpCore, HttpSsl, HttpUpstream, Keeper, NamedModule, OfServer, Slot};
use crate::conf::module::{CoreModule, HttpModule};
use crate::cycle::Cycle;
use crate::sys;
use crate::sys::{
    ngx_conf_full_name, ngx_conf_log_error, ngx_conf_t, ngx_http_conf_ctx_t,
    ngx_http_core_main_conf_t, ngx_http_core_srv_conf_t, ngx_http_upstream_srv_conf_t, ngx_int_t,
    ngx_str_t, ngx_uint_t,
};
use std::ffi::{c_char, c_void};
use std::fmt::Display;
use std::ptr::without_provenance_mut;

handle! {
    /// The configuration that nginx reads, at one directive or block of it.
    Conf of ngx_conf_t
}

fields! { Conf {
    /// The cycle that it is for.
    link cycle: Cycle = cycle;
    /// The cycle's pool.
    link pool: Pool = pool;
    /// Its log.
    link log: Log = log;
}}

/// Why something is there without which nginx reads nothing in `http`.
pub(crate) const IN_HTTP: &str = "nginx makes what modules keep before it reads a block of http";

/// Why a directive is refused.
#[derive(Debug)]
pub enum Refused {
    /// The log says it already.
    Told,
    /// nginx says this, after the directive's name.
    Because(&'static std::ffi::CStr),
}

impl Refused {
    /// It stands there twice.
    pub const DUPLICATE: Refused = Refused::Because(c"is duplicate");

    /// nginx's form of it.
    pub fn answer(self) -> *mut c_char {
        match self {
            // (char *) NGX_CONF_ERROR
            Refused::Told => without_provenance_mut(usize::MAX),
            Refused::Because(reason) => reason.as_ptr().cast_mut(),
        }
    }
}

impl Conf {
    /// # Safety
    /// nginx reads this configuration, and nobody else refers to it during `'a`.
    #[inline]
    pub(crate) unsafe fn reading<'a>(raw: *mut ngx_conf_t) -> &'a mut Conf {
        // SAFETY: alive, as the caller promises, and the same layout: transparent over a cell.
        unsafe { &mut *raw.cast() }
    }

    /// The directive's arguments, its name first.
    pub fn arguments(&self) -> Vec<Argument> {
        // SAFETY: nginx fills the array with strings, which lie in the cycle's pool.
        let all: Array<'_, Text> = unsafe { Array::of(self.peek(|raw| raw.args)) };
        all.map(|text| Argument(text.bytes().into())).collect()
    }

    /// The argument of a directive that has one.
    pub fn argument(&self) -> Argument {
        self.arguments().into_iter().nth(1).unwrap_or_default()
    }

    /// Says why, with file and line, and refuses the directive. The reason is written as it is.
    pub fn refuse(&self, reason: impl Display) -> Refused {
        self.say(sys::NGX_LOG_EMERG, &reason.to_string());
        Refused::Told
    }

    /// Warns, with file and line. The line is written as it is.
    pub fn warn(&self, line: impl Display) {
        self.say(sys::NGX_LOG_WARN, &line.to_string());
    }

    fn say(&self, level: u32, line: &str) {
        let (length, text) = (line.len(), line.as_ptr());
        // SAFETY: a live configuration; `%*s` takes a length and a pointer to so many bytes.
        unsafe {
            ngx_conf_log_error(
                level as ngx_uint_t,
                self.as_ptr(),
                0,
                c"%*s".as_ptr(),
                length,
                text,
            );
        }
    }

    /// An argument as a path, which begins where nginx's own relative paths do; `None` when memory is out.
    pub fn full_path(&self, path: &Argument) -> Option<Argument> {
        // nginx looks at the first letter, also of an empty one.
        let text = self.pool().concat(&[path.bytes(), b"\0"])?;
        let mut path = ngx_str_t::of(text.strip_suffix(b"\0")?);
        // SAFETY: nginx makes another string in the cycle's pool, or leaves this one, which lies there too, as it is.
        let full = unsafe {
            let code = ngx_conf_full_name(self.cycle().as_ptr(), &raw mut path, 0);
            (code == sys::NGX_OK as ngx_int_t).then(|| bytes(path))
        };
        full.map(|path| Argument(path.into()))
    }

    /// What module `M` keeps for the cycle that is read.
    pub fn core<M: CoreModule>(&mut self) -> Option<&mut M::Main> {
        let array = self.cycle().array();
        self.exclusive::<kept::Core<M>>(array)
    }

    /// What module `M` keeps for `http`.
    pub fn main<M: HttpModule>(&mut self) -> &mut M::Main {
        let array = self.http().main_conf;
        self.exclusive::<kept::Main<M>>(array).expect(IN_HTTP)
    }

    /// What module `M` keeps for the server or upstream that is read.
    pub fn server<M: HttpModule>(&mut self) -> &mut M::Server {
        let array = self.http().srv_conf;
        self.exclusive::<kept::Server<M>>(array).expect(IN_HTTP)
    }

    /// What module `M` keeps for the location that is read.
    pub fn location<M: HttpModule>(&mut self) -> &mut M::Location {
        let array = self.http().loc_conf;
        self.exclusive::<kept::Location<M>>(array).expect(IN_HTTP)
    }

    /// nginx's own settings of the location that is read.
    pub fn core_location(&self) -> &CoreLocation {
        let place = self.http().loc_conf.wrapping_add(HttpCore::index());
        // SAFETY: in `http`, whose core module has its settings of a location before any other.
        unsafe { CoreLocation::from_ptr((*place).cast()) }
    }

    /// The name of the location that is read.
    pub fn location_name(&self) -> Argument {
        Argument(self.core_location().name().into())
    }

    /// nginx's settings of the upstream that is read; `None` elsewhere.
    pub(crate) fn upstream(&mut self) -> Option<&mut ngx_http_upstream_srv_conf_t> {
        let array = self.http().srv_conf;
        self.exclusive::<kept::Server<HttpUpstream>>(array)
    }

    /// What a module of nginx's own keeps for the location that is read; `None` where nginx was built without it.
    pub fn location_of<N: NamedModule>(&self) -> Option<&N::Location> {
        let (index, array) = (self.cycle().module_index(N::NAME)?, self.http().loc_conf);
        // SAFETY: in `http`; a place for every module, null or of this type, which stays as long as the cycle.
        unsafe { N::Location::nullable((*array.add(index)).cast()) }
    }

    /// What is kept in one of this configuration's own arrays.
    pub(crate) fn exclusive<S: Slot>(&mut self, array: *mut *mut c_void) -> Option<&mut S::Value> {
        if array.is_null() {
            return None;
        }
        // SAFETY: nginx's array has a place for every module; null there, or of the slot's type. Nobody else refers to it:
        // what is lent of it is lent of this configuration, exclusively.
        unsafe { (*array.add(S::index())).cast::<S::Value>().as_mut() }
    }

    pub(crate) fn http(&self) -> &ngx_http_conf_ctx_t {
        let (kind, context) = self.peek(|raw| (raw.module_type, raw.ctx));
        assert_eq!(kind, sys::NGX_HTTP_MODULE as ngx_uint_t, "this is not in http");
        // SAFETY: in `http` the context is of this type, and nginx makes it before it reads anything there.
        unsafe { &*context.cast() }
    }

    pub(crate) fn core_main(&self) -> *mut ngx_http_core_main_conf_t {
        let place = self.http().main_conf.wrapping_add(HttpCore::index());
        // SAFETY: in `http`, whose core module has its configuration before any other.
        unsafe { (*place).cast() }
    }

    /// The servers of `http`.
    pub fn servers(&self) -> Vec<&Server> {
        // SAFETY: nginx fills the array with its servers, which stay as long as the cycle.
        unsafe {
            let all = (*self.core_main()).servers.as_slice::<*mut ngx_http_core_srv_conf_t>();
            all.iter().filter_map(|server| Server::from_nullable(*server)).collect()
        }
    }
}

/// An argument of a directive, or another text of the configuration: a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argument(Box<[u8]>);

impl Argument {
    /// The text.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A size such as `16m`.
    pub fn size(&self) -> Option<usize> {
        let mut text = ngx_str_t::of(&self.0);
        // SAFETY: nginx reads the text.
        usize::try_from(unsafe { sys::ngx_parse_size(&raw mut text) }).ok()
    }

    /// The name of the variable that it is: what follows a `$`.
    pub fn variable_name(&self) -> Option<&[u8]> {
        self.bytes().strip_prefix(b"$").filter(|name| !name.is_empty())
    }
}

/// A time such as `30s`, in milliseconds.
pub fn parse_milliseconds(text: &[u8]) -> Option<usize> {
    let mut text = ngx_str_t::of(text);
    // SAFETY: nginx reads the text.
    usize::try_from(unsafe { sys::ngx_parse_time(&raw mut text, 0) }).ok()
}

/// A number of digits; `None` also for one that nginx's own numbers have no room for.
pub fn parse_number(text: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(text).ok().filter(|text| !text.starts_with('+'))?;
    digits.parse().ok().filter(|number| ngx_int_t::try_from(*number).is_ok())
}

handle! {
    /// What nginx's core module says of a location.
    CoreLocation of ngx_http_core_loc_conf_t
}

fields! { CoreLocation {
    /// Its name.
    text name = name;
    /// It is a `location = NAME`.
    flag is_exact = exact_match;
    /// It is an `if`.
    flag is_unnamed = noname;
    /// It is a `limit_except`.
    flag is_limit_except = lmt_excpt;
    /// Only nginx itself leads requests there.
    set set_internal: isize = internal;
    /// `absolute_redirect`
    set set_absolute_redirect: isize = absolute_redirect;
    /// `port_in_redirect`
    set set_port_in_redirect: isize = port_in_redirect;
    /// `client_max_body_size`, in bytes.
    set set_max_body_bytes: i64 = client_max_body_size;
    /// `client_body_buffer_size`, in bytes.
    set set_body_buffer_bytes: usize = client_body_buffer_size;
    /// `client_body_timeout`, in milliseconds.
    set set_body_timeout: usize = client_body_timeout;
}}

impl CoreLocation {
    /// Something else than the module that sends files makes its responses.
    pub fn has_content(&self) -> bool {
        self.peek(|raw| raw.handler.is_some())
    }
}

handle! {
    /// A server of `http`.
    Server of ngx_http_core_srv_conf_t
}

// SAFETY: nginx gives each server a context with such an array, which stays as long as the cycle.
unsafe impl Keeper<OfServer> for Server {
    #[inline]
    fn array(&self) -> *mut *mut c_void {
        // SAFETY: nginx makes a server with its context.
        unsafe { (*self.peek(|raw| raw.ctx)).srv_conf }
    }
}

impl Server {
    /// What module `M` keeps for it.
    pub fn conf<M: HttpModule>(&self) -> &M::Server {
        self.kept::<kept::Server<M>>().expect(IN_HTTP)
    }

    /// Its TLS settings; `None` without a context.
    pub(crate) fn tls(&self) -> Option<&sys::ngx_http_ssl_srv_conf_t> {
        self.kept::<kept::Server<HttpSsl>>().filter(|conf| !conf.ssl.ctx.is_null())
    }

    /// TLS is spoken, with a certificate that a variable names for each handshake.
    pub fn has_variable_certificate(&self) -> bool {
        self.tls().is_some_and(|tls| !tls.certificate_values.is_null())
    }
}

handle! {
    /// An `upstream` block, or the one that nginx makes of a name in `proxy_pass`.
    UpstreamBlock of ngx_http_upstream_srv_conf_t
}

fields! { UpstreamBlock {
    /// Its name.
    text name = host;
    /// It has a zone of nginx's, with peers of nginx's.
    has has_zone = shm_zone;
    /// It is a block of the configuration: what only `proxy_pass` names has no configurations of modules.
    has is_explicit = srv_conf;
}}

// SAFETY: null, or nginx's array for an upstream block, which stays as long as the cycle.
unsafe impl Keeper<OfServer> for UpstreamBlock {
    const MAY_BE_NULL: bool = true;

    #[inline]
    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.srv_conf)
    }
}

impl UpstreamBlock {
    /// What a module of nginx's own keeps for it, while its cycle is read; `None` where nginx was built without it.
    pub(crate) fn conf_of<N: NamedModule>(&self, cycle: &Cycle) -> Option<&N::Server> {
        // SAFETY: null or of this type, which stays as long as the cycle.
        unsafe { N::Server::nullable(self.place(cycle.module_index(N::NAME)?)?.cast()) }
    }

    fn place(&self, index: usize) -> Option<*mut c_void> {
        let array = Keeper::array(self);
        // SAFETY: null, or nginx's array, which has a place for every module.
        (!array.is_null()).then(|| unsafe { *array.add(index) })
    }

    /// What module `M` keeps for it.
    ///
    /// # Panics
    /// It is not [`UpstreamBlock::is_explicit`].
    #[inline]
    pub fn conf<M: HttpModule>(&self) -> &M::Server {
        self.kept::<kept::Server<M>>()
            .expect("modules keep nothing for an upstream that has no block")
    }
}

impl Conf {
    /// The `upstream` blocks that have been read.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamBlock> {
        let place = self.http().main_conf.wrapping_add(HttpUpstream::index());
        // SAFETY: in `http`; nginx keeps its upstreams in the main configuration of their module, and all stay as long as the
        // cycle.
        let blocks = unsafe {
            let main: *mut sys::ngx_http_upstream_main_conf_t = (*place).cast();
            let all = (*main).upstreams.as_slice::<*mut ngx_http_upstream_srv_conf_t>();
            all.iter().filter_map(|block| UpstreamBlock::from_nullable(*block))
        };
        blocks.filter(|block| block.is_explicit())
    }
}
