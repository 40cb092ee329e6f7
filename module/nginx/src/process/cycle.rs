//! Cycles: a configuration and what runs on it.

use crate::basic::address::Address;
use crate::basic::handle::{fields, handle};
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::process::event_loop::EventLoop;
use crate::sys;
use crate::sys::{ngx_list_part_t, ngx_listening_t, ngx_module_t, ngx_open_file_t};
use std::ffi::CStr;

handle! {
    /// A cycle: nginx makes one for each configuration that it reads.
    Cycle of ngx_cycle_t
}

fields! { Cycle {
    /// Its log.
    link log: Log = log;
    /// Its pool, which goes with it.
    link pool: Pool = pool;
    /// Connections that nobody uses.
    get free_connections: usize = free_connection_n;
    /// `worker_connections`.
    get connections: usize = connection_n;
}}

impl Cycle {
    /// The running cycle. While a configuration is read it is the last one, or an empty one.
    #[inline]
    pub fn current(_: EventLoop) -> &'static Cycle {
        // SAFETY: nginx sets it before it loads a module; it goes half a minute after the next one has come, and nobody
        // holds it for longer than a callback.
        unsafe { Cycle::from_ptr(sys::ngx_cycle.cast()) }
    }

    /// What a cycle says of the thread that it is seen on.
    #[inline]
    pub fn event_loop(&self) -> EventLoop {
        // SAFETY: handles exist on the event loop's thread only.
        unsafe { EventLoop::here() }
    }

    /// What module `M` keeps for it; `None` for the empty cycle that nginx begins with. It is only read when the
    /// configuration has been.
    #[inline]
    pub fn core<M: crate::conf::module::CoreModule>(&self) -> Option<&M::Main> {
        // SAFETY: one pointer a module, null or what `M`'s table made, which lives as long as the cycle.
        unsafe {
            let all = (*self.as_ptr()).conf_ctx;
            if all.is_null() {
                return None;
            }
            (*all.add(M::index())).cast::<M::Main>().as_ref()
        }
    }

    /// Whether it has read a configuration.
    pub fn is_configured(&self) -> bool {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { !(*self.as_ptr()).conf_ctx.is_null() }
    }

    /// The place of a module among those of its kind; `None` where nginx has none of that name.
    pub fn module_index(&self, name: &CStr) -> Option<usize> {
        // SAFETY: nginx's list of modules, which ends with null.
        unsafe {
            let mut at: *mut *mut ngx_module_t = (*self.as_ptr()).modules;
            while let Some(module) = (*at).as_ref() {
                if !module.name.is_null() && CStr::from_ptr(module.name) == name {
                    return Some(module.ctx_index);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// The addresses that it listens on.
    pub fn listening(&self) -> impl Iterator<Item = Address> {
        // SAFETY: an array of listeners, which nginx has made before it loads a module's callbacks.
        let all = unsafe { (*self.as_ptr()).listening.as_slice::<ngx_listening_t>() };
        // SAFETY: a listener has an address, as long as its family says.
        all.iter().filter_map(|listening| unsafe { Address::read(listening.sockaddr) })
    }

    /// The descriptors of the files that it has opened, its logs among them.
    pub fn open_files(&self) -> Vec<i32> {
        let mut all = Vec::new();
        // SAFETY: a cycle has its list of files.
        let mut part: *const ngx_list_part_t =
            unsafe { &raw const (*self.as_ptr()).open_files.part };
        // SAFETY: a part of that list; null after the last.
        while let Some(files) = unsafe { part.as_ref() } {
            for place in 0..files.nelts {
                // SAFETY: the part has `nelts` files.
                all.push(unsafe { (*files.elts.cast::<ngx_open_file_t>().add(place)).fd });
            }
            part = files.next;
        }
        all
    }

    /// `worker_processes`, or 1 for a process that serves by itself.
    pub fn worker_processes(&self) -> usize {
        // SAFETY: nginx makes the core module's configuration before it starts a process.
        let core = unsafe {
            let all = (*self.as_ptr()).conf_ctx;
            (*all.add(sys::ngx_core_module.index)).cast::<sys::ngx_core_conf_t>().as_ref()
        };
        match core {
            Some(core) if core.master != 0 => usize::try_from(core.worker_processes).unwrap_or(0),
            _ => 1,
        }
    }
}
