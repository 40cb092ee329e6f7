//! TCP and UDP: nginx's stream part.
//!
//! Stream may be a module of its own (`ngx_stream_module.so`), loaded before this one, after it, or not at all.
//! nginx opens modules with `RTLD_NOW`, so one symbol of stream's in this library would keep it from loading there.
//! What is needed is looked up by name instead, each time a configuration with `stream {}` is read: with a reload stream
//! may come, go or move.
#![allow(unsafe_code)]

pub mod passthrough;
pub mod peer;
pub mod sessions;

use crate::module::directives;
use crate::module::directives::refuse;
use crate::module::table::stream_index;
use crate::system::guard;
use crate::system::log;
use nginx::log::Log;
use nginx::sys::{
    NGX_ERROR, NGX_OK, NGX_STREAM_UPSTREAM_CREATE, ngx_conf_t, ngx_cycle_t, ngx_hash_key,
    ngx_int_t, ngx_module_t, ngx_pcalloc, ngx_pool_t, ngx_str_t, ngx_stream_conf_ctx_t,
    ngx_stream_content_handler_pt, ngx_stream_core_main_conf_t, ngx_stream_core_srv_conf_t,
    ngx_stream_session_t, ngx_stream_upstream_srv_conf_t, ngx_stream_variable_value_t, ngx_uint_t,
};
use nginx::{Conf, Refused};
use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

const NO_ZONE: &str = "needs an \"ingress_zone NAME SIZE;\" before stream";

type GetVariableIndex = unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_str_t) -> ngx_int_t;
type GetVariable = unsafe extern "C" fn(
    *mut ngx_stream_session_t,
    *mut ngx_str_t,
    ngx_uint_t,
) -> *mut ngx_stream_variable_value_t;
type GetFlushedVariable =
    unsafe extern "C" fn(*mut ngx_stream_session_t, ngx_uint_t) -> *mut ngx_stream_variable_value_t;

/// A zeroed `T` in a pool, null when memory is out.
///
/// # Safety
/// `pool` is alive; zeroes are a value of `T`.
unsafe fn zeroed<T>(pool: *mut ngx_pool_t) -> *mut T {
    const { assert!(align_of::<T>() <= nginx::sys::NGX_ALIGNMENT) };
    // SAFETY: the pool is alive.
    unsafe { ngx_pcalloc(pool, size_of::<T>()) }.cast()
}

/// A copy of the concatenation of `parts` in a pool; `None` when memory is out.
///
/// # Safety
/// `pool` is alive, and outlives the use of the string.
unsafe fn concat(pool: *mut ngx_pool_t, parts: &[&[u8]]) -> Option<ngx_str_t> {
    // SAFETY: the pool is alive.
    unsafe { nginx::Pool::from_ptr(pool) }.text(parts)
}

/// What the module uses of stream, as it is loaded in one cycle.
#[repr(C)]
struct MainConf {
    get_variable_index: GetVariableIndex,
    get_flushed_variable: GetFlushedVariable,
    get_variable: GetVariable,
    /// Places of nginx's own stream modules.
    core: usize,
    upstream: usize,
    proxy: usize,
    /// `None`: nginx was built without it.
    preread: Option<usize>,
}

/// Of an upstream or a server. Zeroes are "not set".
#[repr(C)]
struct SrvConf {
    /// Index of the variable that names the backend, plus one.
    variable: ngx_int_t,
    /// Index of the variable with the TLS server name, plus one.
    server_name: ngx_int_t,
    /// nginx's handler for what is passed through; set where there is `ingress_passthrough`.
    proxy: ngx_stream_content_handler_pt,
    /// nginx's handler for all else.
    pass: ngx_stream_content_handler_pt,
}

/// The value of a variable, by its index plus one.
///
/// # Safety
/// `session` is alive, `index` is 0 or came from nginx, plus one, and what is returned is used before the pool goes.
unsafe fn variable(session: *mut ngx_stream_session_t, index: ngx_int_t) -> Option<ngx_str_t> {
    let index = ngx_uint_t::try_from(index - 1).ok()?;
    // SAFETY: the caller has a live session, or is inside of stream{}; flushed, since a `map` may have looked before the preread.
    unsafe { text(((*main_conf(session)).get_flushed_variable)(session, index)) }
}

/// The value of a variable, by its lower-case name.
///
/// # Safety
/// `session` is alive during `'s`.
unsafe fn variable_by_name<'s>(
    session: *mut ngx_stream_session_t,
    name: &[u8],
) -> Option<&'s [u8]> {
    let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
    // SAFETY: nginx reads the name, and keeps the value in the session's pool or the configuration.
    unsafe {
        let key = ngx_hash_key(name.data, name.len);
        let value = ((*main_conf(session)).get_variable)(session, &raw mut name, key);
        text(value).map(|text| nginx::bytes(text))
    }
}

/// # Safety
/// `value` is null or a variable's.
unsafe fn text(value: *mut ngx_stream_variable_value_t) -> Option<ngx_str_t> {
    // SAFETY: the caller has a live session, or is inside of stream{}.
    let value = unsafe { value.as_ref() }?;
    let is_there = value.not_found() == 0 && value.valid() != 0;
    is_there.then(|| ngx_str_t { len: value.len() as usize, data: value.data })
}

/// # Safety
/// `session` is alive.
unsafe fn main_conf(session: *mut ngx_stream_session_t) -> *const MainConf {
    // SAFETY: `create_main_conf` made it for each cycle with stream.
    unsafe { (*(*session).main_conf.add(stream_index())).cast() }
}

/// The place of a module of nginx's among those of its kind.
///
/// # Safety
/// The cycle's modules are loaded and counted.
unsafe fn place(cycle: *mut ngx_cycle_t, name: &CStr) -> Option<usize> {
    // SAFETY: nginx ends the list with a null.
    unsafe {
        let mut at: *mut *mut ngx_module_t = (*cycle).modules;
        while let Some(module) = (*at).as_ref() {
            if !module.name.is_null() && CStr::from_ptr(module.name) == name {
                return Some(module.ctx_index);
            }
            at = at.add(1);
        }
    }
    None
}

/// A function of nginx's, wherever it is loaded; null: nowhere.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: looks a name up among what nginx made global: itself and its modules.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Runs when nginx comes to `stream {`.
pub unsafe extern "C" fn create_main_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: nginx gives the configuration that it reads.
    guard::contain("create_main_conf", null_mut(), || unsafe {
        let index = symbol(c"ngx_stream_get_variable_index");
        let value = symbol(c"ngx_stream_get_flushed_variable");
        let by_name = symbol(c"ngx_stream_get_variable");
        let places = [c"ngx_stream_core_module", c"ngx_stream_upstream_module"];
        let [core, upstream] = places.map(|name| place((*cf).cycle, name));
        let proxy = place((*cf).cycle, c"ngx_stream_proxy_module");
        let (false, Some(core), Some(upstream), Some(proxy)) =
            (index.is_null() || value.is_null() || by_name.is_null(), core, upstream, proxy)
        else {
            let line = format_args!("ingress: nginx's stream module lacks what the module needs");
            log::write(log::EMERG, Log::from_ptr((*cf).log), line);
            return null_mut();
        };
        let conf: *mut MainConf = ngx_pcalloc((*cf).pool, size_of::<MainConf>()).cast();
        if !conf.is_null() {
            conf.write(MainConf {
                // The types are those of the headers that the module was compiled with; nginx compares its version and
                // signature with the module's.
                get_variable_index: transmute::<*mut c_void, GetVariableIndex>(index),
                get_flushed_variable: transmute::<*mut c_void, GetFlushedVariable>(value),
                get_variable: transmute::<*mut c_void, GetVariable>(by_name),
                core,
                upstream,
                proxy,
                preread: place((*cf).cycle, c"ngx_stream_ssl_preread_module"),
            });
        }
        conf.cast()
    })
}

pub unsafe extern "C" fn create_srv_conf(cf: *mut ngx_conf_t) -> *mut c_void {
    // SAFETY: the pool is alive; zeroes are a value.
    unsafe { zeroed::<SrvConf>((*cf).pool) }.cast()
}

/// # Safety
/// `cf` is inside of stream{}; `T` is what the module at `place` keeps for a server or an upstream.
unsafe fn srv_conf<T>(cf: *mut ngx_conf_t, place: usize) -> *mut T {
    // SAFETY: nginx makes one pointer a module.
    unsafe { (*(*(*cf).ctx.cast::<ngx_stream_conf_ctx_t>()).srv_conf.add(place)).cast() }
}

/// # Safety
/// As for [`srv_conf`], for stream{}.
unsafe fn main_conf_of<'a, T>(cf: *mut ngx_conf_t, place: usize) -> &'a T {
    // SAFETY: as above, and made before any directive is read.
    unsafe { &*(*(*(*cf).ctx.cast::<ngx_stream_conf_ctx_t>()).main_conf.add(place)).cast() }
}

/// `ingress_balancer [$variable];`
pub fn ingress_balancer(conf: &mut Conf) -> Result<(), Refused> {
    if !directives::has_zone(conf) {
        return Err(refuse(conf, format_args!("\"ingress_balancer\" {NO_ZONE}")));
    }
    let cf = conf.as_ptr();
    // SAFETY: nginx runs one directive at a time, with the configuration it reads, here inside of stream{}.
    unsafe {
        let main: &MainConf = main_conf_of(cf, stream_index());
        let upstream: *mut ngx_stream_upstream_srv_conf_t = srv_conf(cf, main.upstream);
        if (*upstream).peer.init_upstream.is_some() {
            let reason = "\"ingress_balancer\" must stand before any other balancing directive";
            return Err(refuse(conf, reason));
        }
        if conf.arguments().len() > 1 {
            let mut name = ngx_str_t::of(directives::variable_name(conf)?);
            let index = (main.get_variable_index)(cf, &raw mut name);
            if index == NGX_ERROR as ngx_int_t {
                return Err(Refused::Told);
            }
            (*srv_conf::<SrvConf>(cf, stream_index())).variable = index + 1;
        }
        (*upstream).peer.init_upstream = Some(peer::init_upstream);
        (*upstream).flags = NGX_STREAM_UPSTREAM_CREATE as ngx_uint_t;
    }
    Ok(())
}

/// `ingress_passthrough;`
pub fn ingress_passthrough(conf: &mut Conf) -> Result<(), Refused> {
    if !directives::has_zone(conf) {
        return Err(refuse(conf, format_args!("\"ingress_passthrough\" {NO_ZONE}")));
    }
    if !cfg!(nginx_has_pass) {
        let version = nginx::sys::NGINX_VERSION.to_string_lossy();
        return Err(refuse(
            conf,
            format_args!(
                "\"ingress_passthrough\" needs nginx 1.25.5 or later, which has \"pass\"; this one is \
                 {version}: use a port of its own for passthrough"
            ),
        ));
    }
    let cf = conf.as_ptr();
    // SAFETY: nginx runs one directive at a time, with the configuration it reads, here inside of stream{}.
    unsafe {
        let main: &MainConf = main_conf_of(cf, stream_index());
        let ours = &mut *srv_conf::<SrvConf>(cf, stream_index());
        if ours.proxy.is_some() {
            return Err(Refused::DUPLICATE);
        }
        let core: *mut ngx_stream_core_srv_conf_t = srv_conf(cf, main.core);
        let proxy: *mut nginx::sys::ngx_stream_proxy_srv_conf_t = srv_conf(cf, main.proxy);
        // Of two that set the server's handler the later one wins.
        if (*core).handler.is_none()
            || ((*proxy).upstream.is_null() && (*proxy).upstream_value.is_null())
        {
            let reason = "\"ingress_passthrough\" stands behind the \"proxy_pass\" of its server";
            return Err(refuse(conf, reason));
        }
        let mut name = ngx_str_t::of(b"ssl_preread_server_name");
        let index = (main.get_variable_index)(cf, &raw mut name);
        if index == NGX_ERROR as ngx_int_t {
            return Err(Refused::Told);
        }
        (ours.server_name, ours.proxy) = (index + 1, (*core).handler);
    }
    Ok(())
}

/// Runs when stream{} has been read and merged: what stands behind `ingress_passthrough` is known now.
pub unsafe extern "C" fn postconfiguration(cf: *mut ngx_conf_t) -> ngx_int_t {
    // SAFETY: nginx calls it inside of stream{}.
    guard::contain("stream postconfiguration", NGX_ERROR as ngx_int_t, || unsafe {
        let main: &MainConf = main_conf_of(cf, stream_index());
        let all: &ngx_stream_core_main_conf_t = main_conf_of(cf, main.core);
        for server in all.servers.as_slice::<*mut ngx_stream_core_srv_conf_t>() {
            let server = &mut **server;
            let confs = (*server.ctx).srv_conf;
            let ours = &mut *(*confs.add(stream_index())).cast::<SrvConf>();
            let Some(proxy) = ours.proxy else { continue };
            let pass = server.handler.filter(|handler| !std::ptr::fn_addr_eq(*handler, proxy));
            let is_preread = main.preread.is_some_and(|place| {
                let conf: *mut nginx::sys::ngx_stream_ssl_preread_srv_conf_t =
                    (*confs.add(place)).cast();
                (*conf).enabled == 1
            });
            let missing = match (pass, is_preread) {
                (None, _) => "a \"pass\" behind it",
                (_, false) => "\"ssl_preread on\"",
                (Some(pass), true) => {
                    ours.pass = Some(pass);
                    server.handler = Some(passthrough::handler);
                    continue;
                }
            };
            let file = CStr::from_ptr(server.file_name.cast()).to_string_lossy();
            let line =
                format_args!("\"ingress_passthrough\" in {file}:{} needs {missing}", server.line);
            log::write(log::EMERG, Log::from_ptr((*cf).log), line);
            return NGX_ERROR as ngx_int_t;
        }
        NGX_OK as ngx_int_t
    })
}
