//! Modules: what nginx reads of a library, made of typed parts.
//!
//! nginx keeps a `void *` a module for each server, location and request. [`HttpModule`] says what those are, once; the
//! tables are made from it, and whoever asks a [`crate::Request`] or a [`Conf`] for them gets that type.

use crate::basic::callback::{alone, alone_with, one, with};
use crate::basic::code::Code;
use crate::basic::guard::contain;
use crate::basic::pool::Pool;
use crate::conf::{Conf, Refused};
use crate::cycle::Cycle;
use crate::sys;
use crate::sys::{
    ngx_command_t, ngx_conf_t, ngx_core_module_t, ngx_http_module_t, ngx_int_t, ngx_module_t,
    ngx_str_t, ngx_uint_t,
};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

/// A table that nginx reads: this crate makes it, and nobody changes it.
#[repr(transparent)]
pub struct Shared<T>(pub(crate) T);

// SAFETY: what this crate puts there are structs of numbers and pointers, which nobody writes.
unsafe impl<T> Sync for Shared<T> {}

/// nginx compares names up to their NUL, whatever their length says.
pub const fn name(text: &'static CStr) -> ngx_str_t {
    ngx_str_t { len: text.count_bytes(), data: text.as_ptr().cast_mut().cast() }
}

/// A module outside of `http`, with a configuration for the cycle.
///
/// # Safety
/// `index` is `index` of a module table whose context is [`core_context`] of this very type.
pub unsafe trait CoreModule: 'static {
    /// What it keeps for a cycle.
    type Main: Default;
    /// Its place in the cycle's array of configurations.
    fn index() -> usize;
    /// When all outside of `http` and the like has been read.
    fn init(_cycle: &Cycle, _main: &Self::Main) -> Result<(), Refused> {
        Ok(())
    }
    /// When a configuration has been taken over, in the process that read it, which is about to go on with `cycle`: the
    /// master, or the process that does everything.
    fn init_module(_cycle: &Cycle) {}
    /// When a process starts that runs `cycle`.
    fn init_process(_cycle: &Cycle) {}
    /// When such a process ends, after the last callback of a request.
    fn exit_process(_cycle: &Cycle) {}
}

/// A module of `http`.
///
/// # Safety
/// `index` is `ctx_index` of a module table whose context is [`http_context`] of this very type.
pub unsafe trait HttpModule: 'static {
    /// What it keeps for `http`.
    type Main: Default;
    /// What it keeps for a server, and for an upstream.
    type Server: Default;
    /// What it keeps for a location.
    type Location: Default;
    /// What it keeps with a request.
    type Request;
    /// Its place in the arrays of contexts and configurations.
    fn index() -> usize;
    /// Before `http` is read: the place for variables.
    fn preconfiguration(_conf: &mut Conf) -> Result<(), Refused> {
        Ok(())
    }
    /// When `http` has been read and merged: the place for handlers of phases.
    fn postconfiguration(_conf: &mut Conf) -> Result<(), Refused> {
        Ok(())
    }
    /// When a location has been read, [`Conf::location`]: what it takes from what it is in. Modules of nginx's own have
    /// merged before.
    fn merge_location(_conf: &mut Conf, _outer: &Self::Location) -> Result<(), Refused> {
        Ok(())
    }
}

/// A directive in a table.
#[repr(transparent)]
pub struct Directive(pub(crate) ngx_command_t);

// SAFETY: nginx uses its tables of modules from one thread.
unsafe impl Sync for Directive {}

/// What a directive does when nginx comes to it.
pub type SetDirective = fn(&mut Conf) -> Result<(), Refused>;

/// Where directives may stand.
#[derive(Clone, Copy, Debug)]
pub struct Context(u32, usize);

impl Context {
    /// Outside of all blocks.
    pub const MAIN: Context = Context(sys::NGX_MAIN_CONF | sys::NGX_DIRECT_CONF, 0);
    /// In `http`, outside of servers.
    pub const HTTP: Context = Context(sys::NGX_HTTP_MAIN_CONF, 0);
    /// In `server` of `http`.
    pub const SERVER: Context = Context(sys::NGX_HTTP_SRV_CONF, sys::NGX_HTTP_SRV_CONF_OFFSET);
    /// In `location`.
    pub const LOCATION: Context = Context(sys::NGX_HTTP_LOC_CONF, sys::NGX_HTTP_LOC_CONF_OFFSET);
    /// In `upstream` of `http`.
    pub const UPSTREAM: Context = Context(sys::NGX_HTTP_UPS_CONF, sys::NGX_HTTP_SRV_CONF_OFFSET);
    /// In `server` of `stream`.
    pub const STREAM_SERVER: Context =
        Context(sys::NGX_STREAM_SRV_CONF, sys::NGX_STREAM_SRV_CONF_OFFSET);
    /// In `upstream` of `stream`.
    pub const STREAM_UPSTREAM: Context =
        Context(sys::NGX_STREAM_UPS_CONF, sys::NGX_STREAM_SRV_CONF_OFFSET);
}

/// How many arguments a directive has.
#[derive(Clone, Copy, Debug)]
pub struct Arguments(u32);

impl Arguments {
    /// None.
    pub const NONE: Arguments = Arguments(sys::NGX_CONF_NOARGS);
    /// Any number.
    pub const ANY: Arguments = Arguments(sys::NGX_CONF_ANY);
    /// One or more.
    pub const SOME: Arguments = Arguments(sys::NGX_CONF_1MORE);

    /// From `least` to `most`, which is 7 at most.
    pub const fn between(least: u32, most: u32) -> Self {
        let (mut bits, mut count) = (0, least);
        assert!(most < sys::NGX_CONF_MAX_ARGS);
        while count <= most {
            // NGX_CONF_NOARGS, NGX_CONF_TAKE1 and so on are one bit each.
            bits |= 1 << count;
            count += 1;
        }
        Arguments(bits)
    }

    /// Exactly so many.
    pub const fn exactly(count: u32) -> Self {
        Self::between(count, count)
    }
}

impl Directive {
    /// A directive of this name.
    pub const fn new(
        text: &'static CStr,
        at: Context,
        takes: Arguments,
        set: SetDirective,
    ) -> Self {
        Directive(ngx_command_t {
            name: name(text),
            type_: (at.0 | takes.0) as ngx_uint_t,
            set: Some(set_directive),
            conf: at.1,
            offset: 0,
            // Where `set_directive` finds it.
            post: set as *mut c_void,
        })
    }

    /// What a table ends with.
    pub const END: Directive = Directive(ngx_command_t::empty());
}

/// nginx's callback when it comes to a directive.
unsafe extern "C" fn set_directive(
    cf: *mut ngx_conf_t,
    command: *mut ngx_command_t,
    _: *mut c_void,
) -> *mut c_char {
    // SAFETY: nginx gives the directive's entry of the table, which `Directive::new` made with a function of this type.
    let set = unsafe { std::mem::transmute::<*mut c_void, SetDirective>((*command).post) };
    contain("directive", Err(Refused::Told), || {
        // SAFETY: nginx runs one directive at a time, with the configuration that it reads.
        set(unsafe { Conf::reading(cf) })
    })
    .map_or_else(Refused::answer, |()| null_mut())
}

/// The table of a module of `http` that is made of `M`.
pub const fn http_module<M: HttpModule>(
    context: &'static Shared<ngx_http_module_t>,
    directives: &'static [Directive],
) -> ngx_module_t {
    table(std::ptr::from_ref(context).cast(), directives, sys::NGX_HTTP_MODULE)
}

/// The table of a module outside of `http` that is made of `M`.
pub const fn core_module<M: CoreModule>(
    context: &'static Shared<ngx_core_module_t>,
    directives: &'static [Directive],
) -> ngx_module_t {
    ngx_module_t {
        init_module: Some(one(init_module::<M>)),
        init_process: Some(one(init_process::<M>)),
        exit_process: Some(one(exit_process::<M>)),
        ..table(std::ptr::from_ref(context).cast(), directives, sys::NGX_CORE_MODULE)
    }
}

/// The table of any module: nginx reads as many directives as there are up to [`Directive::END`].
pub(crate) const fn table(
    context: *const c_void,
    directives: &'static [Directive],
    kind: u32,
) -> ngx_module_t {
    assert!(matches!(directives, [.., last] if last.0.name.len == 0), "Directive::END is missing");
    ngx_module_t {
        ctx: context.cast_mut(),
        commands: directives.as_ptr().cast_mut().cast(),
        type_: kind as ngx_uint_t,
        ..ngx_module_t::default()
    }
}

/// What nginx calls of a module of `http`.
pub const fn http_context<M: HttpModule>() -> Shared<ngx_http_module_t> {
    Shared(ngx_http_module_t {
        preconfiguration: Some(alone(preconfiguration::<M>)),
        postconfiguration: Some(alone(postconfiguration::<M>)),
        create_main_conf: Some(one(create::<M::Main>)),
        init_main_conf: None,
        create_srv_conf: Some(one(create::<M::Server>)),
        merge_srv_conf: None,
        create_loc_conf: Some(one(create::<M::Location>)),
        merge_loc_conf: Some(alone_with(merge_location::<M>)),
    })
}

/// What nginx calls of a module outside of `http`.
pub const fn core_context<M: CoreModule>(text: &'static CStr) -> Shared<ngx_core_module_t> {
    Shared(ngx_core_module_t {
        name: name(text),
        create_conf: Some(one(create_core::<M>)),
        init_conf: Some(with(init_core::<M>)),
    })
}

/// Makes a configuration in a pool; null when memory is out.
fn make<T: Default>(pool: &Pool) -> *mut c_void {
    // It lives as long as the cycle. Types with something to drop would need a clean-up, which is what `Pool::keep` is
    // for; a configuration is written until it is merged, so it is not lent from there.
    struct Drops<T>(*mut T);
    impl<T> Drop for Drops<T> {
        fn drop(&mut self) {
            // SAFETY: made below, and dropped once, with the cycle.
            unsafe { self.0.drop_in_place() };
        }
    }
    let place = contain("create_conf", None, || pool.alloc(T::default()).map(std::ptr::from_mut));
    let Some(place) = place else { return null_mut() };
    if std::mem::needs_drop::<T>() && !pool.on_end(Drops(place)) {
        return null_mut();
    }
    place.cast()
}

/// nginx's callback for a configuration of a module of `http`.
pub(crate) extern "C" fn create<T: Default>(conf: &Conf) -> *mut c_void {
    make::<T>(conf.pool())
}

/// nginx's callback for the configuration of a cycle that it makes.
extern "C" fn create_core<M: CoreModule>(cycle: &Cycle) -> *mut c_void {
    cycle.pool().map_or(null_mut(), make::<M::Main>)
}

/// nginx's callback for a cycle, with what `create_core` has made for it.
extern "C" fn init_core<M: CoreModule>(cycle: &Cycle, main: &M::Main) -> *mut c_char {
    contain("init_conf", Err(Refused::Told), || M::init(cycle, main))
        .map_or_else(Refused::answer, |()| null_mut())
}

/// Never fails: nginx would give the configuration up.
extern "C" fn init_module<M: CoreModule>(cycle: &Cycle) -> ngx_int_t {
    contain("init_module", (), || M::init_module(cycle));
    Code::OK.0
}

/// Never fails: nginx would not start the process again.
extern "C" fn init_process<M: CoreModule>(cycle: &Cycle) -> ngx_int_t {
    contain("init_process", (), || M::init_process(cycle));
    Code::OK.0
}

extern "C" fn exit_process<M: CoreModule>(cycle: &Cycle) {
    contain("exit_process", (), || M::exit_process(cycle));
}

extern "C" fn preconfiguration<M: HttpModule>(conf: &mut Conf) -> ngx_int_t {
    // nginx says so when it reads the first directive, right after this.
    conf.poke(|raw| raw.module_type = sys::NGX_HTTP_MODULE as ngx_uint_t);
    step("preconfiguration", || M::preconfiguration(conf))
}

extern "C" fn postconfiguration<M: HttpModule>(conf: &mut Conf) -> ngx_int_t {
    step("postconfiguration", || M::postconfiguration(conf))
}

pub(crate) fn step(name: &str, step: impl FnOnce() -> Result<(), Refused>) -> ngx_int_t {
    match contain(name, Err(Refused::Told), step) {
        Ok(()) => Code::OK.0,
        Err(_) => Code::ERROR.0,
    }
}

/// nginx gives what `create` made for the outer block, and never the location's own, which is in its context.
extern "C" fn merge_location<M: HttpModule>(
    conf: &mut Conf,
    outer: &M::Location,
    _: *mut c_void,
) -> *mut c_char {
    contain("merge_location", Err(Refused::Told), || M::merge_location(conf, outer))
        .map_or_else(Refused::answer, |()| null_mut())
}

/// The names of a library's modules, as nginx looks for them.
pub const fn names<const N: usize>(
    names: [Option<&'static CStr>; N],
) -> Shared<[*const c_char; N]> {
    let mut all = [null(); N];
    let mut at = 0;
    while at < N {
        if let Some(name) = names[at] {
            all[at] = name.as_ptr();
        }
        at += 1;
    }
    Shared(all)
}
