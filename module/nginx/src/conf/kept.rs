//! What modules keep: nginx's arrays of one pointer a module, for a cycle, `http`, a server, a location, a request.

use crate::basic::handle::Handle;
use crate::conf::module::{CoreModule, HttpModule};
use crate::cycle::Cycle;
use crate::sys::{self, global};
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

/// What one module keeps at one level, and where.
///
/// # Safety
/// In every array of that level the pointer at `index` is null or leads to such a value, which stays as long as the array.
pub unsafe trait Slot {
    /// Which arrays: a marker.
    type Level;
    /// What is kept.
    type Value;
    /// The module's place in them.
    fn index() -> usize;
}

/// What has such an array.
///
/// # Safety
/// `array` is nginx's array for that level, or null where that is said, with a place for every module, and stays as long as this; what it leads
/// to is only read once the configuration has been.
pub unsafe trait Keeper<Level> {
    /// It may be missing.
    const MAY_BE_NULL: bool = false;

    /// nginx's array.
    fn array(&self) -> *mut *mut c_void;

    /// What a module keeps there; `None`: nothing.
    #[inline]
    fn kept<S: Slot<Level = Level>>(&self) -> Option<&S::Value> {
        let array = self.array();
        if Self::MAY_BE_NULL && array.is_null() {
            return None;
        }
        // SAFETY: nginx's array has a place for every module; null there, or of the slot's type, for as long as this.
        unsafe { (*array.add(S::index())).cast::<S::Value>().as_ref() }
    }
}

/// Markers of levels.
pub enum OfCycle {}
/// As [`OfCycle`], for `http`.
pub enum OfHttp {}
/// As [`OfCycle`], for a server or upstream.
pub enum OfServer {}
/// As [`OfCycle`], for a location.
pub enum OfLocation {}
/// As [`OfCycle`], for a request.
pub enum OfRequest {}

/// Says that a module of one kind keeps something at a level.
macro_rules! slot {
    ($name:ident, $level:ty, $module:ident, $kept:ident) => {
        /// What a module keeps there.
        pub struct $name<M>(PhantomData<M>);

        // SAFETY: nginx makes it by the module's table, as whoever implements the module's trait has promised.
        unsafe impl<M: $module> Slot for $name<M> {
            type Level = $level;
            type Value = M::$kept;
            #[inline]
            fn index() -> usize {
                M::index()
            }
        }
    };
}

slot!(Core, OfCycle, CoreModule, Main);
slot!(Main, OfHttp, HttpModule, Main);
slot!(Server, OfServer, HttpModule, Server);
slot!(Location, OfLocation, HttpModule, Location);
slot!(Context, OfRequest, HttpModule, Request);

/// A module of nginx's own, whose types are in its headers.
macro_rules! stock {
    ($(#[$doc:meta])* $name:ident = $symbol:ident, $main:ty, $server:ty, $location:ty) => {
        $(#[$doc])*
        pub(crate) struct $name;

        // SAFETY: the module's own index and types.
        unsafe impl HttpModule for $name {
            type Main = $main;
            type Server = $server;
            type Location = $location;
            type Request = ();
            #[inline]
            fn index() -> usize {
                global!($symbol.ctx_index)
            }
        }
    };
}

stock! {
    /// nginx's `ngx_http_core_module`.
    HttpCore = ngx_http_core_module, sys::ngx_http_core_main_conf_t, sys::ngx_http_core_srv_conf_t,
    sys::ngx_http_core_loc_conf_t
}
stock! {
    /// nginx's `ngx_http_upstream_module`.
    HttpUpstream = ngx_http_upstream_module, sys::ngx_http_upstream_main_conf_t,
    sys::ngx_http_upstream_srv_conf_t, ()
}
stock! {
    /// nginx's `ngx_http_ssl_module`.
    HttpSsl = ngx_http_ssl_module, (), sys::ngx_http_ssl_srv_conf_t, ()
}

/// A module of nginx's own that keeps its types, and its symbol, to itself: it is found by name, and may not be there.
///
/// # Safety
/// What the module of that name keeps for a location, and for a server or upstream, is what these are handles of.
pub unsafe trait NamedModule: 'static {
    /// Its name.
    const NAME: &'static CStr;
    /// What it keeps for a location.
    type Location: Handle<Raw: Copy>;
    /// What it keeps for a server or upstream.
    type Server: Handle<Raw: Copy>;
}

impl Cycle {
    /// What module `M` keeps for it; `None` for the empty cycle that nginx begins with. It is only read when the
    /// configuration has been.
    #[inline]
    pub fn core<M: CoreModule>(&self) -> Option<&M::Main> {
        self.kept::<Core<M>>()
    }

    /// `worker_processes`, or 1 for a process that serves by itself.
    pub fn worker_processes(&self) -> usize {
        // nginx makes the core module's configuration before it starts a process.
        let core = self.kept::<Core<NginxCore>>();
        match core {
            Some(core) if core.master != 0 => usize::try_from(core.worker_processes).unwrap_or(0),
            _ => 1,
        }
    }
}

// SAFETY: null, or nginx's array for all modules, which stays as long as the cycle.
unsafe impl Keeper<OfCycle> for Cycle {
    const MAY_BE_NULL: bool = true;

    #[inline]
    fn array(&self) -> *mut *mut c_void {
        self.peek(|raw| raw.conf_ctx).cast()
    }
}

/// nginx's `ngx_core_module`.
struct NginxCore;

// SAFETY: the module's own index and type.
unsafe impl CoreModule for NginxCore {
    type Main = sys::ngx_core_conf_t;

    fn index() -> usize {
        global!(ngx_core_module.index)
    }
}
