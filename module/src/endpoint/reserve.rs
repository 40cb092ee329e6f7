//! Connections and file descriptors kept back for the configuration endpoint.
//!
//! nginx gives a client a connection of its table, and a descriptor, when it accepts it, whether the client
//! ever says anything or not. So clients can use up `worker_connections` or the limit of open files, and then
//! nginx drops a configuration write at the door, or does not come to the door. Here a few of both are put
//! aside at the start of a worker, and lent for the moment in which nginx accepts on the endpoint's listener.
//!
//! Shape:     one [`Reserve`] a worker, if a listener's default server has `ingress_configuration`. The
//!            listener's two handlers lead here and on to nginx's own.
//! Invariant: a connection in the reserve is a free one: it has no descriptor, no event and no timer, just as
//!            in nginx's list of free ones.
//! Refilled:  when nginx has accepted, when a connection of the endpoint ends (its pool is destroyed after it
//!            was put on the list, so no client can be faster), and with the worker's tick.
//! Rejected:  a margin within the router: a client that sends no request never comes to it.
#![allow(unsafe_code)]

use crate::module::table::Http;
use crate::system::guard;
use nginx::sys::{
    AF_INET6, ngx_connection_t, ngx_cycle, ngx_cycle_t, ngx_event_accept, ngx_event_actions,
    ngx_event_t, ngx_http_in_addr_t, ngx_http_in6_addr_t, ngx_http_init_connection,
    ngx_http_port_t, ngx_int_t, ngx_listening_t, ngx_pool_cleanup_add, ngx_reusable_connection,
    ngx_uint_t, ngx_use_accept_mutex, ngx_use_exclusive_accept,
};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};

/// Writes that get through at once to a worker that has nothing left: the controller has one under way, and
/// somebody may look at the status.
const KEPT: usize = 8;
/// And at most this part of the connections that are free at the start: nginx takes one more after it, and ends
/// the worker if there is none.
const PART: ngx_uint_t = 8;
/// `NGX_READ_EVENT` where nginx has epoll, for every event method.
const READ_EVENT: ngx_int_t = (libc::EPOLLIN | libc::EPOLLRDHUP) as ngx_int_t;
/// `NGX_EXCLUSIVE_EVENT`
const EXCLUSIVE_EVENT: ngx_uint_t = 1 << 28;

/// `NGX_DISABLE_EVENT`
const DISABLE_EVENT: ngx_uint_t = 2;

struct Reserve {
    cycle: *mut ngx_cycle_t,
    connections: Vec<*mut ngx_connection_t>,
    /// As many connections are kept: fewer than [`KEPT`] when there are few at all.
    wanted: usize,
    descriptors: Vec<OwnedFd>,
    /// nginx is accepting on the endpoint's listener: what comes free now is for that.
    is_lent: bool,
    /// Writes are welcome here: not while another nginx is to have them.
    is_welcome: bool,
}

struct Slot(UnsafeCell<Option<Reserve>>);

// SAFETY: used on the event loop's thread only.
unsafe impl Sync for Slot {}

static RESERVE: Slot = Slot(UnsafeCell::new(None));

/// Runs `change` on the reserve, if there is one and its cycle is the one that runs.
///
/// # Safety
/// On the event loop's thread; `change` calls nothing that comes back here.
unsafe fn with(change: impl FnOnce(&mut Reserve)) {
    // SAFETY: one thread, and no second reference, as the caller vouches.
    if let Some(reserve) = unsafe { &mut *RESERVE.0.get() } {
        // SAFETY: reads a pointer.
        if std::ptr::eq(reserve.cycle, unsafe { ngx_cycle }) {
            change(reserve);
        }
    }
}

impl Reserve {
    /// Puts what is kept back to where nginx looks for it.
    fn lend(&mut self) {
        self.is_lent = true;
        // One is enough: a second client that waits is accepted with the next one.
        drop(self.descriptors.pop());
        for connection in self.connections.drain(..) {
            // SAFETY: the inverse of `refill`, on the thread of the list.
            unsafe {
                (*connection).data = (*self.cycle).free_connections.cast();
                (*self.cycle).free_connections = connection;
                (*self.cycle).free_connection_n += 1;
            }
        }
    }

    /// Takes what is missing, as far as there is any.
    fn refill(&mut self) {
        while self.connections.len() < self.wanted {
            // SAFETY: the cycle runs; its list of free connections is linked by `data`.
            unsafe {
                let connection = (*self.cycle).free_connections;
                if connection.is_null() {
                    break;
                }
                (*self.cycle).free_connections = (*connection).data.cast();
                (*self.cycle).free_connection_n -= 1;
                self.connections.push(connection);
            }
        }
        while self.descriptors.len() < KEPT {
            // SAFETY: makes a descriptor; no file is needed for it.
            let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            if descriptor < 0 {
                break;
            }
            // SAFETY: just made, and nobody else's.
            self.descriptors.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
}

/// Begins to keep, in a worker whose listeners are open.
///
/// # Safety
/// On the event loop's thread; `cycle` is the one that runs from now on.
pub unsafe fn start(cycle: *mut ngx_cycle_t) {
    let mut is_wanted = false;
    // SAFETY: the caller is on the event loop's thread, and the cycle runs; `of_configuration` answers for http's listeners.
    unsafe {
        for listening in listenings(cycle) {
            if of_configuration(listening) {
                (*listening).handler = Some(init_connection);
                (*(*(*listening).connection).read).handler = Some(accept);
                is_wanted = true;
            }
        }
    }
    if !is_wanted {
        return;
    }
    // SAFETY: the caller is on the event loop's thread, and the cycle runs.
    let wanted = unsafe { (*cycle).free_connection_n / PART }.min(KEPT);
    let (connections, descriptors) = (Vec::with_capacity(KEPT), Vec::with_capacity(KEPT));
    let mut reserve =
        Reserve { cycle, connections, wanted, descriptors, is_lent: false, is_welcome: true };
    reserve.refill();
    // SAFETY: one thread, and no reference to what was there.
    unsafe { *RESERVE.0.get() = Some(reserve) };
}

/// Gives everything back.
///
/// # Safety
/// On the event loop's thread.
pub unsafe fn stop() {
    // SAFETY: the caller is on the event loop's thread, and the cycle runs.
    unsafe {
        with(Reserve::lend);
        *RESERVE.0.get() = None;
    }
}

/// What the worker does now and then: takes what came free, and looks after the listener. `is_welcome`: this
/// nginx takes writes; else they wait at the listener for the one that does.
///
/// # Safety
/// On the event loop's thread, in no callback of this file.
pub unsafe fn tick(is_welcome: bool) {
    // SAFETY: the caller is on the event loop's thread, and the cycle runs.
    unsafe {
        with(Reserve::refill);
        with(|reserve| {
            reserve.is_welcome = is_welcome;
            listen(reserve);
        });
    }
}

/// Listens at the endpoint's listeners, or does not.
///
/// When descriptors run out nginx stops listening for half a second, and tries all listeners together
/// again: as long as clients wait at any of them, it would not come to the endpoint's.
///
/// # Safety
/// On the event loop's thread; the reserve's cycle is the running one.
unsafe fn listen(reserve: &Reserve) {
    // SAFETY: a plain number. With the mutex, whoever holds it listens.
    if unsafe { ngx_use_accept_mutex } != 0 {
        return;
    }
    // A worker that shuts down has no listeners any more.
    // SAFETY: the caller is on the event loop's thread, and the cycle runs.
    for listening in unsafe { listenings(reserve.cycle) } {
        // SAFETY: nginx's structs; an open listener has a connection with its events.
        unsafe {
            let connection = (*listening).connection;
            if connection.is_null() || !is_ours(listening) {
                continue;
            }
            let event = (*connection).read;
            let is_active = (*event).active() != 0;
            // nginx logs what fails; the next tick tries again.
            match (is_active, reserve.is_welcome) {
                (false, true) => {
                    let is_shared = ngx_use_exclusive_accept != 0;
                    let flags = if is_shared { EXCLUSIVE_EVENT } else { 0 };
                    ngx_event_actions.add.map(|add| add(event, READ_EVENT, flags));
                }
                (true, false) => {
                    ngx_event_actions.del.map(|del| del(event, READ_EVENT, DISABLE_EVENT));
                }
                _ => {}
            }
        }
    }
}

/// # Safety
/// `cycle` is alive.
unsafe fn listenings(cycle: *mut ngx_cycle_t) -> impl Iterator<Item = *mut ngx_listening_t> {
    // SAFETY: the caller is on the event loop's thread, and the cycle runs; nginx fills the array with listeners.
    let (first, count) = unsafe { ((*cycle).listening.elts, (*cycle).listening.nelts) };
    (0..count).map(move |place| first.cast::<ngx_listening_t>().wrapping_add(place))
}

type Connected = unsafe extern "C" fn(*mut ngx_connection_t);
type Happened = unsafe extern "C" fn(*mut ngx_event_t);

/// # Safety
/// `listening` is alive.
unsafe fn is_ours(listening: *mut ngx_listening_t) -> bool {
    // SAFETY: the caller is on the event loop's thread, and the cycle runs.
    let handler = unsafe { (*listening).handler };
    handler.is_some_and(|handler| std::ptr::fn_addr_eq(handler, init_connection as Connected))
}

/// An open http listener all of whose addresses lead to servers with `ingress_configuration`.
///
/// # Safety
/// `listening` is of the running cycle.
unsafe fn of_configuration(listening: *mut ngx_listening_t) -> bool {
    // SAFETY: the caller is on the event loop's thread, and the cycle runs; what nginx's http module hangs on its own listeners.
    unsafe {
        let connection = (*listening).connection;
        let is_http = (*listening).handler.is_some_and(|handler| {
            std::ptr::fn_addr_eq(handler, ngx_http_init_connection as Connected)
        });
        if !is_http || connection.is_null() {
            return false;
        }
        let is_stream = (*(*connection).read)
            .handler
            .is_some_and(|handler| std::ptr::fn_addr_eq(handler, ngx_event_accept as Happened));
        let port: *mut ngx_http_port_t = (*listening).servers.cast();
        let is_v6 = u32::from((*(*listening).sockaddr).sa_family) == AF_INET6;
        is_stream
            && (0..(*port).naddrs).all(|place| {
                let conf = if is_v6 {
                    (*(*port).addrs.cast::<ngx_http_in6_addr_t>().add(place)).conf
                } else {
                    (*(*port).addrs.cast::<ngx_http_in_addr_t>().add(place)).conf
                };
                nginx::Server::from_ptr(conf.default_server).conf::<Http>().has_configuration
            })
    }
}

/// The endpoint's listener has a client, or its timer has run out.
unsafe extern "C" fn accept(event: *mut ngx_event_t) {
    // SAFETY: nginx calls it on the event loop's thread.
    guard::contain("lend", (), || unsafe { with(Reserve::lend) });
    // SAFETY: nginx's own handler for this very event.
    unsafe { ngx_event_accept(event) };
    // SAFETY: as above; nothing of nginx's handler is on the stack any more.
    guard::contain("refill", (), || unsafe {
        with(|reserve| {
            reserve.is_lent = false;
            reserve.refill();
            // Two clients waited and there was one descriptor: the other is accepted in the next turn.
            if !reserve.descriptors.is_empty() {
                listen(reserve);
            }
        });
    });
}

/// The endpoint's listener has accepted a client.
unsafe extern "C" fn init_connection(connection: *mut ngx_connection_t) {
    // SAFETY: nginx gives a new connection, with its pool.
    let cleanup = unsafe { ngx_pool_cleanup_add((*connection).pool, 0) };
    if !cleanup.is_null() {
        // SAFETY: nginx allocated it.
        unsafe { (*cleanup).handler = Some(ended) };
    }
    // SAFETY: nginx's own handler.
    unsafe { ngx_http_init_connection(connection) };
    // nginx closes connections without a request to make room. This one's first is about to come.
    // SAFETY: a connection's struct outlives it; without descriptor it is closed already.
    unsafe {
        if (*connection).fd != -1 {
            ngx_reusable_connection(connection, 0);
        }
    }
}

/// A client of the endpoint has gone: its connection and descriptor are free since a moment.
unsafe extern "C" fn ended(_: *mut c_void) {
    // SAFETY: nginx destroys pools on the event loop's thread. While nginx accepts, no reference is held.
    guard::contain("refill", (), || unsafe {
        with(|reserve| {
            if !reserve.is_lent {
                reserve.refill();
            }
        });
    });
}
