//! A configuration while nginx reads it.

pub mod module;

use crate::basic::guard::contain;
use crate::basic::handle::fields;
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::basic::text::bytes;
use crate::conf::module::{CoreModule, HttpModule};
use crate::process::cycle::Cycle;
use crate::process::thread::ThreadPool;
use crate::request::{
    HeaderFilter, Lookup, PhaseHandler, Request, Value, VariableFlags, VariableIndex, install,
    phase,
};
use crate::sys;
use crate::sys::{
    ngx_array_push, ngx_conf_full_name, ngx_conf_log_error, ngx_conf_t, ngx_http_add_variable,
    ngx_http_conf_ctx_t, ngx_http_core_loc_conf_t, ngx_http_core_main_conf_t,
    ngx_http_core_srv_conf_t, ngx_http_get_variable_index, ngx_http_handler_pt, ngx_http_request_t,
    ngx_http_upstream_srv_conf_t, ngx_http_variable_value_t, ngx_int_t, ngx_str_t,
    ngx_thread_pool_add, ngx_uint_t,
};
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut, without_provenance_mut};

/// The configuration that nginx reads, at one directive or block of it.
#[repr(transparent)]
pub struct Conf(UnsafeCell<ngx_conf_t>);

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
    pub unsafe fn from_ptr<'a>(raw: *mut ngx_conf_t) -> &'a mut Conf {
        // SAFETY: alive, as the caller promises, and the same layout: transparent over a cell.
        unsafe { &mut *raw.cast() }
    }

    /// nginx's own pointer.
    #[inline]
    pub fn as_ptr(&self) -> *mut ngx_conf_t {
        self.0.get()
    }

    /// The cycle that it is for.
    pub fn cycle(&self) -> &Cycle {
        // SAFETY: nginx reads a configuration for a cycle, which outlives it.
        unsafe { Cycle::from_ptr((*self.as_ptr()).cycle) }
    }

    /// The cycle's pool.
    pub fn pool(&self) -> &Pool {
        // SAFETY: what a configuration is made in, which outlives its reading.
        unsafe { Pool::from_ptr((*self.as_ptr()).pool) }
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        // SAFETY: a configuration has a log while it is read.
        unsafe { Log::from_ptr((*self.as_ptr()).log) }
    }

    /// The directive's arguments, its name first.
    pub fn arguments(&self) -> &[Argument] {
        // SAFETY: nginx fills the array with strings, of which an argument is one; they stay as long as the cycle.
        unsafe { (*(*self.as_ptr()).args).as_slice::<Argument>() }
    }

    /// The argument of a directive that has one.
    pub fn argument(&self) -> &Argument {
        const NONE: &Argument = &Argument(ngx_str_t::empty());
        self.arguments().get(1).unwrap_or(NONE)
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
    pub fn full_path(&self, path: Argument) -> Option<Argument> {
        let mut path = path.0;
        // SAFETY: nginx makes another string in the cycle's pool, and leaves the argument as it is.
        let code = unsafe { ngx_conf_full_name((*self.as_ptr()).cycle, &raw mut path, 0) };
        (code == sys::NGX_OK as ngx_int_t).then_some(Argument(path))
    }

    /// The pool of threads named `default`, which nginx makes with 32 threads unless told otherwise; `None` when memory
    /// is out.
    pub fn default_threads(&self) -> Option<ThreadPool> {
        // SAFETY: a live configuration; null names that pool.
        NonNull::new(unsafe { ngx_thread_pool_add(self.as_ptr(), null_mut()) }).map(ThreadPool)
    }

    /// What module `M` keeps for the cycle that is read.
    pub fn core<M: CoreModule>(&mut self) -> Option<&mut M::Main> {
        // SAFETY: one pointer a module, null or what `M`'s table made. Nobody else refers to it: what is lent of it is
        // lent of this configuration, exclusively.
        unsafe {
            let all = (*(*self.as_ptr()).cycle).conf_ctx;
            (*all.add(M::index())).cast::<M::Main>().as_mut()
        }
    }

    /// What module `M` keeps for `http`.
    pub fn main<M: HttpModule>(&mut self) -> &mut M::Main {
        // SAFETY: in `http`; what `M`'s table made, and nobody else refers to it: what is lent of it is lent of this
        // configuration, exclusively.
        unsafe { &mut *(*self.http().main_conf.add(M::index())).cast() }
    }

    /// What module `M` keeps for the server or upstream that is read.
    pub fn server<M: HttpModule>(&mut self) -> &mut M::Server {
        // SAFETY: in `http`, as for `http_context`; what `M`'s table made, and nobody else refers to it: what is lent of
        // it is lent of this configuration, exclusively.
        unsafe { &mut *(*self.http().srv_conf.add(M::index())).cast() }
    }

    /// What module `M` keeps for the location that is read.
    pub fn location<M: HttpModule>(&mut self) -> &mut M::Location {
        // SAFETY: as for `Conf::server`.
        unsafe { &mut *(*self.http().loc_conf.add(M::index())).cast() }
    }

    fn http(&self) -> &ngx_http_conf_ctx_t {
        // SAFETY: a number of a live struct.
        let kind = unsafe { (*self.as_ptr()).module_type };
        assert_eq!(kind, sys::NGX_HTTP_MODULE as ngx_uint_t, "this is not in http");
        // SAFETY: in `http` the context is of this type, and nginx makes it before it reads anything there.
        unsafe { &*(*self.as_ptr()).ctx.cast() }
    }

    /// nginx's own settings of the location that is read.
    pub fn core_location(&mut self) -> &mut ngx_http_core_loc_conf_t {
        // SAFETY: in `http`; the core module's own type. What is lent of it is lent of this configuration, exclusively.
        unsafe { &mut *(*self.http().loc_conf.add(sys::ngx_http_core_module.ctx_index)).cast() }
    }

    /// nginx's settings of the upstream that is read; `None` elsewhere.
    pub fn upstream(&mut self) -> Option<&mut ngx_http_upstream_srv_conf_t> {
        // SAFETY: in `http`; null, or of the upstream module's own type. What is lent of it is lent of this
        // configuration, exclusively.
        unsafe {
            let place = self.http().srv_conf.add(sys::ngx_http_upstream_module.ctx_index);
            (*place).cast::<ngx_http_upstream_srv_conf_t>().as_mut()
        }
    }

    /// The settings of all modules for the location that is read.
    pub fn location_settings(&self) -> *mut *mut std::ffi::c_void {
        self.http().loc_conf
    }

    fn core_main(&self) -> *mut ngx_http_core_main_conf_t {
        // SAFETY: in `http`, whose core module has its configuration before any other.
        unsafe { (*self.http().main_conf.add(sys::ngx_http_core_module.ctx_index)).cast() }
    }

    /// The servers of `http`.
    pub fn servers(&self) -> Vec<Server<'_>> {
        // SAFETY: nginx fills the array with its servers.
        let all =
            unsafe { (*self.core_main()).servers.as_slice::<*mut ngx_http_core_srv_conf_t>() };
        let servers = all.iter().filter_map(|server| NonNull::new(*server));
        servers.map(|server| Server(server, PhantomData)).collect()
    }

    /// Has each request looked at in a phase; `None` when memory is out.
    pub fn add_handler<H: PhaseHandler>(&mut self, at: crate::request::Phase) -> Option<()> {
        // SAFETY: in `http`, before nginx makes its table of handlers from these arrays.
        unsafe {
            let handlers = &raw mut (*self.core_main()).phases[at as usize].handlers;
            let place: *mut ngx_http_handler_pt = ngx_array_push(handlers).cast();
            place.as_mut().map(|place| *place = Some(phase::<H>))
        }
    }

    /// Puts a filter in front of nginx's.
    pub fn add_header_filter<F: HeaderFilter>(&mut self) {
        install::<F>();
    }

    /// The number of a variable, by its lower-case name; `None`, and a line in the log, if that is no name.
    pub fn variable_index(&self, name: &[u8]) -> Option<VariableIndex> {
        let _ = self.http();
        let mut name = ngx_str_t::of(self.pool().concat(&[name])?);
        // SAFETY: in `http`; the name lies in the cycle's pool.
        let index = unsafe { ngx_http_get_variable_index(self.as_ptr(), &raw mut name) };
        ngx_uint_t::try_from(index).ok().map(VariableIndex)
    }

    /// Adds a variable, which `V` looks up; `place` is told to it. `None` when memory is out.
    pub fn add_variable<V: Variable>(
        &mut self,
        name: &[u8],
        flags: VariableFlags,
        place: usize,
    ) -> Option<()> {
        let _ = self.http();
        let mut name = ngx_str_t::of(name);
        // SAFETY: in `http`, before it is read; nginx copies the name.
        let variable =
            unsafe { ngx_http_add_variable(self.as_ptr(), &raw mut name, flags.bits()).as_mut() }?;
        variable.get_handler = Some(get_variable::<V>);
        variable.data = place;
        Some(())
    }
}

/// Looks variables up.
pub trait Variable {
    /// The value for a request. What is borrowed lies in the request's memory or the program.
    fn get<'r>(request: &'r Request, place: usize) -> Lookup<'r>;
}

/// nginx's callback when somebody asks for a variable.
unsafe extern "C" fn get_variable<V: Variable>(
    raw: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    place: usize,
) -> ngx_int_t {
    contain("variable", sys::NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives a live request, and the value to fill.
        let (request, value) = unsafe { (Request::from_ptr(raw), Value::from_ptr(value)) };
        let text = match V::get(request, place) {
            Some(std::borrow::Cow::Borrowed(text)) => Some(text),
            Some(std::borrow::Cow::Owned(text)) => request.pool().concat(&[&text]),
            None => None,
        };
        // SAFETY: of the request, for any lifetime that the handle may have: its pool or buffers, or the program.
        unsafe { value.set(text) };
        sys::NGX_OK as ngx_int_t
    })
}

/// An argument of a directive, or another text of the configuration. It stays as long as the cycle.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Argument(ngx_str_t);

impl Argument {
    /// The text. Whoever keeps an argument keeps it with the cycle that it is of.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: an argument lies in the pool of its cycle, and nginx does not change it; it is kept in a configuration
        // of that cycle, which goes with the pool.
        unsafe { bytes(self.0) }
    }

    /// There is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// nginx's own string.
    #[inline]
    pub fn raw(self) -> ngx_str_t {
        self.0
    }

    /// A string of the configuration.
    ///
    /// # Safety
    /// It lies in the pool of the cycle whose configuration keeps it.
    pub unsafe fn from_raw(text: ngx_str_t) -> Self {
        Argument(text)
    }

    /// A size such as `16m`.
    pub fn size(&self) -> Option<usize> {
        let mut text = self.0;
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

/// A number of digits.
pub fn parse_number(text: &[u8]) -> Option<usize> {
    // SAFETY: nginx reads the text.
    usize::try_from(unsafe { sys::ngx_atoi(text.as_ptr().cast_mut(), text.len()) }).ok()
}

/// A server of `http`.
#[derive(Clone, Copy)]
pub struct Server<'c>(NonNull<ngx_http_core_srv_conf_t>, PhantomData<&'c Conf>);

impl<'c> Server<'c> {
    /// What module `M` keeps for it.
    pub fn conf<M: HttpModule>(&self) -> &'c M::Server {
        // SAFETY: nginx makes one for each server, by `M`'s table; it lives as long as the cycle.
        unsafe { &*(*(*self.0.as_ref().ctx).srv_conf.add(M::index())).cast() }
    }

    /// Its TLS settings; `None` without a context.
    pub fn tls(&self) -> Option<NonNull<sys::ngx_http_ssl_srv_conf_t>> {
        // SAFETY: nginx makes one for each server, of the TLS module's own type.
        let conf: *mut sys::ngx_http_ssl_srv_conf_t = unsafe {
            (*(*self.0.as_ref().ctx).srv_conf.add(sys::ngx_http_ssl_module.ctx_index)).cast()
        };
        // SAFETY: null where nginx was built without TLS, else a live struct.
        NonNull::new(conf).filter(|conf| unsafe { !conf.as_ref().ssl.ctx.is_null() })
    }
}

crate::basic::handle::handle! {
    /// An `upstream` block, or the one that nginx makes of a name in `proxy_pass`.
    UpstreamBlock of ngx_http_upstream_srv_conf_t
}

fields! { UpstreamBlock {
    /// Its name.
    text name = host;
}}

impl UpstreamBlock {
    /// It is a block of the configuration: what only `proxy_pass` names has no configurations of modules.
    pub fn is_explicit(&self) -> bool {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { !(*self.as_ptr()).srv_conf.is_null() }
    }

    /// What module `M` keeps for it.
    ///
    /// # Panics
    /// It is not [`UpstreamBlock::is_explicit`].
    pub fn conf<M: HttpModule>(&self) -> &M::Server {
        assert!(self.is_explicit(), "modules keep nothing for an upstream that has no block");
        // SAFETY: nginx makes one for each block, by `M`'s table; it lives as long as the cycle.
        unsafe { &*(*(*self.as_ptr()).srv_conf.add(M::index())).cast() }
    }
}

impl Conf {
    /// The `upstream` blocks that have been read.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamBlock> {
        // SAFETY: in `http`; nginx keeps its upstreams in the main configuration of their module.
        let all = unsafe {
            let index = sys::ngx_http_upstream_module.ctx_index;
            let main: *mut sys::ngx_http_upstream_main_conf_t =
                (*self.http().main_conf.add(index)).cast();
            (*main).upstreams.as_slice::<*mut ngx_http_upstream_srv_conf_t>()
        };
        // SAFETY: of that array.
        let blocks = all.iter().map(|block| unsafe { UpstreamBlock::from_ptr(*block) });
        blocks.filter(|block| block.is_explicit())
    }

    /// What the module of this name keeps for the location that is read; `None` where nginx was built without it.
    ///
    /// # Safety
    /// `T` is what that module keeps.
    pub unsafe fn location_of<T>(&mut self, module: &std::ffi::CStr) -> Option<&mut T> {
        let index = self.cycle().module_index(module)?;
        // SAFETY: in `http`; a place for every module, null or of this type, as the caller promises. What is lent of it is
        // lent of this configuration, exclusively.
        unsafe { (*self.http().loc_conf.add(index)).cast::<T>().as_mut() }
    }
}
