//! Cycles: a configuration and what runs on it.

use crate::basic::address::Address;
use crate::basic::event_loop::EventLoop;
use crate::basic::handle::{Array, fields, handle, on_event_loop};
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::connection::Connection;
use crate::sys::{NGX_HTTP_MODULE, NGX_STREAM_MODULE, global, ngx_module_t, ngx_uint_t};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

handle! {
    /// A cycle: nginx makes one for each configuration that it reads.
    Cycle of ngx_cycle_t
}

on_event_loop!(Cycle);

fields! { Cycle {
    /// Its log.
    link log: Log = log;
    /// Its pool, which goes with it; `None` for what stands in the place of a cycle while a process ends.
    option pool: Pool = pool;
    /// Connections that nobody uses.
    get free_connections: usize = free_connection_n;
    /// `worker_connections`.
    get connections: usize = connection_n;
    /// It has read a configuration.
    has is_configured = conf_ctx;
    /// The files that it has opened, its logs among them.
    list files: OpenFile = open_files;
}}

handle! {
    /// A file that a cycle has opened.
    OpenFile of ngx_open_file_t
}

fields! { OpenFile {
    /// Its descriptor.
    get descriptor: i32 = fd;
}}

handle! {
    /// An address that nginx listens at.
    Listener of ngx_listening_t
}

fields! { Listener {
    /// The connection that its clients come by; none when it is closed.
    option connection: Connection = connection;
    /// The log that its clients' connections begin with.
    within log: Log = log;
}}

impl Listener {
    /// The address.
    pub fn address(&self) -> Option<Address> {
        // SAFETY: a listener has an address, as long as its family says.
        unsafe { Address::read(self.peek(|raw| raw.sockaddr)) }
    }
}

impl Cycle {
    /// Looks at the running cycle. While a configuration is read it is the last one, or an empty one.
    #[inline]
    pub fn with_current<T>(here: EventLoop, look: impl FnOnce(&Cycle) -> T) -> T {
        look(Cycle::current(here))
    }

    /// The running cycle, which nobody keeps for longer than a callback.
    #[inline]
    pub(crate) fn current<'c>(_: EventLoop) -> &'c Cycle {
        // SAFETY: nginx sets it before it loads a module, and lets it go between two callbacks, after the next one has come.
        unsafe { Cycle::from_ptr(global!(ngx_cycle).cast()) }
    }

    /// The place of a module among those of its kind; `None` where nginx has none of that name. The empty cycle that nginx
    /// begins with has none at all.
    pub fn module_index(&self, name: &CStr) -> Option<usize> {
        let mut modules = self.modules();
        modules.find_map(|(module, its_name)| (its_name? == name).then_some(module.ctx_index))
    }

    /// How many places http modules have in what a location keeps. nginx's own number is that of the configuration that was read
    /// last, which it may have refused.
    pub(crate) fn http_module_count(&self) -> usize {
        let http = |module: &&ngx_module_t| module.type_ == NGX_HTTP_MODULE as ngx_uint_t;
        let modules = self.modules().map(|(module, _)| module).filter(http);
        modules.map(|module| module.ctx_index + 1).max().unwrap_or(0)
    }

    /// How many places modules of stream have in what a server keeps.
    pub(crate) fn stream_module_count(&self) -> usize {
        let stream = |module: &&ngx_module_t| module.type_ == NGX_STREAM_MODULE as ngx_uint_t;
        let modules = self.modules().map(|(module, _)| module).filter(stream);
        modules.map(|module| module.ctx_index + 1).max().unwrap_or(0)
    }

    /// Its modules, with the name of each.
    fn modules(&self) -> impl Iterator<Item = (&ngx_module_t, Option<&CStr>)> {
        let mut at: *mut *mut ngx_module_t = self.peek(|raw| raw.modules);
        std::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            // SAFETY: nginx's list of modules, which ends with null, where the iterator stays; a module's name is null, or a C
            // string of its library.
            unsafe {
                let module = (*at).as_ref()?;
                at = at.wrapping_add(1);
                let name = (!module.name.is_null()).then(|| CStr::from_ptr(module.name));
                Some((module, name))
            }
        })
    }

    /// What it listens at.
    pub fn listeners(&self) -> Array<'_, Listener> {
        // SAFETY: an array of listeners, which nginx has made before it loads a module's callbacks.
        unsafe { Array::of(&raw const (*self.as_ptr()).listening) }
    }

    /// The addresses that it listens on.
    pub fn listening(&self) -> impl Iterator<Item = Address> {
        self.listeners().filter_map(Listener::address)
    }

    /// The descriptors of the files that it has opened, its logs among them, but standard error.
    pub fn open_files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let opened = self.files().map(OpenFile::descriptor).filter(|fd| *fd > libc::STDERR_FILENO);
        // SAFETY: a cycle closes its files when it goes, or when it opens others in their place: between two callbacks.
        opened.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }
}
