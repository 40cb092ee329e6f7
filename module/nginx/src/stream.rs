//! TCP and UDP: nginx's stream part, for modules that are there whether stream is or not.
//!
//! Stream may be a module of its own (`ngx_stream_module.so`), loaded before a library, after it, or not at all.
//! nginx opens modules with `RTLD_NOW`, so one symbol of stream's in a library would keep it from loading there.
//! What is needed is looked up by name instead, each time a configuration with `stream {}` is read: with a reload stream
//! may come, go or move.

pub mod balancer;
mod decrypt;
pub mod divide;
pub mod tls;

use crate::basic::callback::{alone, one};
use crate::basic::guard::contain;
use crate::basic::handle::{Handle, fields, handle, on_event_loop};
use crate::basic::log::Level;
use crate::basic::pool::Pool;
use crate::basic::text::Text;
use crate::conf::kept::{Keeper, NamedModule, Slot};
use crate::conf::module::{Directive, Shared, create, step, table};
use crate::conf::{Conf, Refused};
use crate::connection::Connection;
use crate::cycle::Cycle;
use crate::request::Value;
use crate::stock::Nothing;
use crate::sys;
use crate::sys::{
    ngx_conf_t, ngx_hash_key, ngx_int_t, ngx_module_t, ngx_msec_t, ngx_str_t,
    ngx_stream_conf_ctx_t, ngx_stream_core_main_conf_t, ngx_stream_core_srv_conf_t,
    ngx_stream_module_t, ngx_stream_session_t, ngx_stream_upstream_state_t,
    ngx_stream_variable_value_t, ngx_uint_t,
};
use divide::Handlers;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::{NonNull, null_mut};

/// A module of `stream`.
///
/// # Safety
/// `index` is `ctx_index` of a module table whose context is [`stream_context`] of this very type.
pub unsafe trait StreamModule: 'static {
    /// What it keeps for a server, and for an upstream.
    type Server: Default;
    /// What it keeps with a session.
    type Session: 'static;
    /// Its place in the arrays of contexts and configurations.
    fn index() -> usize;
    /// When `stream` has been read and merged.
    fn postconfiguration(_conf: &mut Conf) -> Result<(), Refused> {
        Ok(())
    }
}

/// What nginx calls of a module of `stream`.
pub const fn stream_context<M: StreamModule>() -> Shared<ngx_stream_module_t> {
    Shared(ngx_stream_module_t {
        preconfiguration: None,
        postconfiguration: Some(alone(postconfiguration::<M>)),
        create_main_conf: Some(one(create_main_conf)),
        init_main_conf: None,
        create_srv_conf: Some(one(create::<ForServer<M::Server>>)),
        merge_srv_conf: None,
    })
}

/// The table of a module of `stream` that is made of `M`. Where nginx has no stream it is never asked anything.
pub const fn stream_module<M: StreamModule>(
    context: &'static Shared<ngx_stream_module_t>,
    directives: &'static [Directive],
) -> ngx_module_t {
    table(std::ptr::from_ref(context).cast(), directives, sys::NGX_STREAM_MODULE)
}

type GetVariableIndex = unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_str_t) -> ngx_int_t;
type GetVariable = unsafe extern "C" fn(
    *mut ngx_stream_session_t,
    *mut ngx_str_t,
    ngx_uint_t,
) -> *mut ngx_stream_variable_value_t;
type GetFlushedVariable =
    unsafe extern "C" fn(*mut ngx_stream_session_t, ngx_uint_t) -> *mut ngx_stream_variable_value_t;

/// What is used of stream, as it is loaded in one cycle.
#[derive(Clone, Copy)]
struct Functions {
    get_variable_index: GetVariableIndex,
    get_flushed_variable: GetFlushedVariable,
    get_variable: GetVariable,
    /// The place of stream's core module.
    core: usize,
    /// The place of its proxy module.
    proxy: usize,
    /// How many places what a server keeps has.
    count: usize,
}

impl Functions {
    /// `None`: stream is not there, or lacks one of them.
    fn find(cycle: &Cycle) -> Option<Self> {
        let core = cycle.module_index(Core::NAME)?;
        let proxy = cycle.module_index(Proxy::NAME)?;
        cycle.module_index(UpstreamOfStream::NAME)?;
        // SAFETY: looks names up among what nginx made global: itself and its modules. They are nginx's functions, of the types in
        // the headers that this was compiled with; nginx compares its version and signature with the module's.
        unsafe {
            let symbol = |name: &CStr| NonNull::new(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()));
            let index = symbol(c"ngx_stream_get_variable_index")?;
            let flushed = symbol(c"ngx_stream_get_flushed_variable")?;
            let by_name = symbol(c"ngx_stream_get_variable")?;
            Some(Functions {
                get_variable_index: transmute::<NonNull<c_void>, GetVariableIndex>(index),
                get_flushed_variable: transmute::<NonNull<c_void>, GetFlushedVariable>(flushed),
                get_variable: transmute::<NonNull<c_void>, GetVariable>(by_name),
                core,
                proxy,
                count: cycle.stream_module_count(),
            })
        }
    }
}

/// nginx's callback when it comes to `stream {`.
extern "C" fn create_main_conf(conf: &Conf) -> *mut c_void {
    contain("create_main_conf", null_mut(), || {
        let Some(functions) = Functions::find(conf.cycle()) else {
            let line = format_args!("nginx's stream module lacks what a module needs");
            conf.log().write(Level::Emerg, line);
            return null_mut();
        };
        let place = conf.pool().alloc(functions).map(std::ptr::from_mut);
        place.map_or(null_mut(), |place| place.cast())
    })
}

extern "C" fn postconfiguration<M: StreamModule>(conf: &mut Conf) -> ngx_int_t {
    step("stream postconfiguration", || M::postconfiguration(conf))
}

/// What a module keeps for a server or an upstream, with what this layer keeps.
#[derive(Default)]
struct ForServer<S> {
    ours: S,
    handlers: Handlers,
}

/// Markers of levels.
enum OfStream {}
enum OfServer {}
enum OfSession {}

struct Main<M>(PhantomData<M>);
struct Server<M>(PhantomData<M>);
struct Context<M>(PhantomData<M>);

// SAFETY: `create_main_conf` makes it, as whoever implements the module's trait has promised.
unsafe impl<M: StreamModule> Slot for Main<M> {
    type Level = OfStream;
    type Value = Functions;
    fn index() -> usize {
        M::index()
    }
}

// SAFETY: `create` of this type makes it, as whoever implements the module's trait has promised.
unsafe impl<M: StreamModule> Slot for Server<M> {
    type Level = OfServer;
    type Value = ForServer<M::Server>;
    fn index() -> usize {
        M::index()
    }
}

// SAFETY: null, or what `Session::put` has put there.
unsafe impl<M: StreamModule> Slot for Context<M> {
    type Level = OfSession;
    type Value = M::Session;
    fn index() -> usize {
        M::index()
    }
}

/// Why something is there without which nginx reads nothing in `stream`.
const IN_STREAM: &str = "nginx makes what modules keep before it reads a block of stream";

// SAFETY: nginx's array for `stream`, which is made before anything in it is read.
unsafe impl Keeper<OfStream> for Conf {
    fn array(&self) -> *mut *mut c_void {
        self.stream().main_conf
    }
}

// SAFETY: nginx's array for the server or upstream that is read.
unsafe impl Keeper<OfServer> for Conf {
    fn array(&self) -> *mut *mut c_void {
        self.stream().srv_conf
    }
}

/// What modules of nginx's own keep.
trait Stock: Keeper<OfServer> {
    /// What one keeps there for a server or upstream; `None` where nginx was built without it.
    fn stock<N: NamedModule>(&self, cycle: &Cycle) -> Option<&N::Server> {
        let place = self.array().wrapping_add(cycle.module_index(N::NAME)?);
        // SAFETY: nginx's array has a place for every module; null there, or of this type, for as long as this.
        unsafe { N::Server::nullable((*place).cast()) }
    }
}

impl<T: Keeper<OfServer>> Stock for T {}

impl Conf {
    fn stream(&self) -> &ngx_stream_conf_ctx_t {
        let (kind, context) = self.peek(|raw| (raw.module_type, raw.ctx));
        assert_eq!(kind, sys::NGX_STREAM_MODULE as ngx_uint_t, "this is not in stream");
        // SAFETY: in `stream` the context is of this type, and nginx makes it before it reads anything there.
        unsafe { &*context.cast() }
    }

    /// What module `M` keeps for the server or upstream of `stream` that is read.
    pub fn stream_server<M: StreamModule>(&mut self) -> &mut M::Server {
        let array = self.stream().srv_conf;
        &mut self.exclusive::<Server<M>>(array).expect(IN_STREAM).ours
    }

    /// The number of a variable of sessions, by its lower-case name; `None`, and a line in the log, if that is no name.
    pub fn session_variable<M: StreamModule>(&self, name: &[u8]) -> Option<SessionVariable> {
        let functions = self.kept::<Main<M>>().expect(IN_STREAM);
        let mut name = self.pool().text(&[name])?;
        // SAFETY: nginx's own function, in `stream`; the name lies in the cycle's pool.
        let index = unsafe { (functions.get_variable_index)(self.as_ptr(), &raw mut name) };
        ngx_uint_t::try_from(index).ok().map(SessionVariable)
    }

    /// The servers of `stream`, when all has been read.
    pub fn stream_servers(&self) -> Vec<&StreamServer> {
        let Some(index) = self.cycle().module_index(Core::NAME) else { return Vec::new() };
        let place = self.stream().main_conf.wrapping_add(index);
        // SAFETY: what stream's core module keeps for `stream`; nginx fills the array with its servers, which stay as long as the
        // cycle.
        unsafe {
            let core: *const ngx_stream_core_main_conf_t = (*place).cast();
            let all = (*core).servers.as_slice::<*mut ngx_stream_core_srv_conf_t>();
            all.iter().filter_map(|server| StreamServer::from_nullable(*server)).collect()
        }
    }
}

/// The number of a variable of sessions in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionVariable(ngx_uint_t);

handle! {
    /// A server of `stream`.
    StreamServer of ngx_stream_core_srv_conf_t
}

fields! { StreamServer {
    /// The line of the configuration that it begins in.
    get line: usize = line;
}}

impl StreamServer {
    /// What module `M` keeps for it.
    pub fn conf<M: StreamModule>(&self) -> Option<&M::Server> {
        self.kept::<Server<M>>().map(|kept| &kept.ours)
    }

    /// The file of the configuration that it is in.
    pub fn file(&self) -> String {
        // SAFETY: nginx sets it with the server: a C string of the configuration.
        let name = unsafe { CStr::from_ptr(self.peek(|raw| raw.file_name).cast()) };
        name.to_string_lossy().into_owned()
    }
}

// SAFETY: nginx makes a server with its context, whose array stays as long as the cycle.
unsafe impl Keeper<OfServer> for StreamServer {
    fn array(&self) -> *mut *mut c_void {
        // SAFETY: nginx makes a server with its context.
        unsafe { (*self.peek(|raw| raw.ctx)).srv_conf }
    }
}

handle! {
    /// A session: what a client sends over one connection, or from one address.
    Session of ngx_stream_session_t
}

on_event_loop!(Session);

fields! { Session {
    /// The client's connection, whose pool goes with the session.
    link connection: Connection = connection;
    /// Its way to an endpoint, once it goes to one.
    option upstream: SessionUpstream = upstream;
}}

// SAFETY: nginx's array for `stream`, which stays as long as the session.
unsafe impl Keeper<OfStream> for Session {
    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.main_conf)
    }
}

// SAFETY: nginx's array for the session's server, or `Session::speak_tls`'s copy of it; both stay as long as the session.
unsafe impl Keeper<OfServer> for Session {
    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.srv_conf)
    }
}

// SAFETY: nginx's array of what modules keep with the session.
unsafe impl Keeper<OfSession> for Session {
    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.ctx)
    }
}

impl Session {
    /// The pool of its connection, which goes with it.
    pub fn pool(&self) -> &Pool {
        self.connection().pool().expect("nginx gives a session's connection a pool")
    }

    /// What module `M` keeps for its server.
    pub fn server_conf<M: StreamModule>(&self) -> &M::Server {
        &self.kept::<Server<M>>().expect(IN_STREAM).ours
    }

    /// What module `M` keeps with it; `None`: nothing yet.
    pub fn context<M: StreamModule>(&self) -> Option<&M::Session> {
        self.kept::<Context<M>>()
    }

    /// Keeps a value with it, until its pool goes; `None` when memory is out.
    pub fn new_context<M: StreamModule>(&self, value: M::Session) -> Option<&M::Session> {
        let value = self.pool().keep(value)?;
        self.put::<M>(value);
        Some(value)
    }

    /// Keeps a value with it that is always there.
    pub fn set_context<M: StreamModule>(&self, value: &'static M::Session) {
        self.put::<M>(value);
    }

    /// A value of its pool, or one that is always there.
    fn put<M: StreamModule>(&self, value: &M::Session) {
        let place = Keeper::<OfSession>::array(self).wrapping_add(M::index());
        // SAFETY: nginx makes one pointer a module for each session.
        unsafe { *place = std::ptr::from_ref(value).cast_mut().cast() };
    }

    /// The value of a variable, by what [`Conf::session_variable`] has answered for this configuration. It is looked up
    /// again: a `map` may have looked before the preread.
    pub fn variable<M: StreamModule>(&self, index: SessionVariable) -> Option<&[u8]> {
        let functions = self.kept::<Main<M>>()?;
        let core = Keeper::<OfStream>::array(self).wrapping_add(functions.core);
        // SAFETY: nginx's own function, for a live session, which has a value for each variable of its configuration. How many
        // there are is what stream's core module keeps for it, in its place of the array: an index of another configuration may
        // be beyond. Null, or a value of the session or the configuration.
        let value = unsafe {
            let core: *const ngx_stream_core_main_conf_t = (*core).cast();
            let is_known = index.0 < (*core).variables.nelts;
            let look_up = functions.get_flushed_variable;
            is_known.then(|| Value::from_nullable(look_up(self.as_ptr(), index.0)))
        };
        value??.text()
    }

    /// The value of a variable, by its lower-case name.
    pub fn variable_by_name<M: StreamModule>(&self, name: &[u8]) -> Option<&[u8]> {
        let functions = self.kept::<Main<M>>()?;
        let mut name = ngx_str_t::of(name);
        // SAFETY: nginx reads the name, and keeps the value, where there is one, in the session's pool or the configuration.
        let value = unsafe {
            let key = ngx_hash_key(name.data, name.len);
            Value::from_nullable((functions.get_variable)(self.as_ptr(), &raw mut name, key))
        };
        value?.text()
    }
}

handle! {
    /// A session's way to an endpoint.
    SessionUpstream of ngx_stream_upstream_t
}

fields! { SessionUpstream {
    /// The attempt that is under way.
    option state: SessionState = state;
}}

handle! {
    /// What is known of one attempt.
    SessionState of ngx_stream_upstream_state_t
}

impl SessionState {
    fn time(&self, of: impl FnOnce(&ngx_stream_upstream_state_t) -> ngx_msec_t) -> Option<u64> {
        // nginx's -1: it did not come to that.
        Some(self.peek(of)).filter(|time| *time != ngx_msec_t::MAX).map(|time| time as u64)
    }

    /// Milliseconds until it was connected.
    pub fn connect_milliseconds(&self) -> Option<u64> {
        self.time(|raw| raw.connect_time)
    }

    /// Milliseconds until the first byte of the endpoint.
    pub fn first_byte_milliseconds(&self) -> Option<u64> {
        self.time(|raw| raw.first_byte_time)
    }
}

handle! {
    /// An `upstream` block of `stream`, or the one that nginx makes of a name in `proxy_pass`.
    StreamBlock of ngx_stream_upstream_srv_conf_t
}

fields! { StreamBlock {
    /// Its name.
    within name: Text = host;
    /// It has a zone of nginx's, with peers of nginx's.
    has has_zone = shm_zone;
}}

// SAFETY: null, or nginx's array for an upstream block, which stays as long as the cycle.
unsafe impl Keeper<OfServer> for StreamBlock {
    const MAY_BE_NULL: bool = true;

    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.srv_conf)
    }
}

impl StreamBlock {
    /// What module `M` keeps for it; `None` for one that nginx has made of a name.
    pub fn conf<M: StreamModule>(&self) -> Option<&M::Server> {
        self.kept::<Server<M>>().map(|kept| &kept.ours)
    }
}

/// Says what a module of stream's own keeps.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $server:ty;)*) => {$(
        $(#[$doc])*
        enum $name {}

        // SAFETY: types of the very file that this module is compiled from, for the nginx at hand.
        unsafe impl NamedModule for $name {
            const NAME: &'static CStr = $text;
            type Server = $server;
            type Location = Nothing;
        }
    )*};
}

named! {
    /// `server`
    Core = c"ngx_stream_core_module", StreamServer;
    /// `upstream`
    UpstreamOfStream = c"ngx_stream_upstream_module", StreamBlock;
    /// `proxy_pass`
    Proxy = c"ngx_stream_proxy_module", ProxyServer;
    /// `ssl_preread`
    Preread = c"ngx_stream_ssl_preread_module", PrereadServer;
    /// `ssl_certificate`
    Ssl = c"ngx_stream_ssl_module", SslServer;
}

handle! {
    /// What `proxy_pass` and its like say of a server.
    ProxyServer of ngx_stream_proxy_srv_conf_t
}

fields! { ProxyServer {
    /// `proxy_pass` with an upstream or an address.
    has has_upstream = upstream;
    /// `proxy_pass` with a variable.
    has has_variable = upstream_value;
}}

handle! {
    /// What `ssl_preread` says of a server.
    PrereadServer of ngx_stream_ssl_preread_srv_conf_t
}

fields! { PrereadServer {
    /// 1: it is on.
    get enabled: isize = enabled;
}}

handle! {
    /// What `ssl_certificate` and its like say of a server.
    SslServer of ngx_stream_ssl_srv_conf_t
}
