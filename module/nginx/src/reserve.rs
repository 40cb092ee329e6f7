//! Connections and file descriptors kept back for some listeners of `http`.
//!
//! nginx gives a client a connection of its table, and a descriptor, when it accepts it, whether the client
//! ever says anything or not. So clients can use up `worker_connections` or the limit of open files, and then
//! nginx drops a client at the door, or does not come to the door. Here a few of both are put
//! aside at the start of a worker, and lent for the moment in which nginx accepts on one of those listeners.
//!
//! Shape:     one [`Reserve`] a worker. The listeners' two handlers lead here and on to nginx's own.
//! Invariant: a connection in the reserve is a free one: it has no descriptor, no event and no timer, just as
//!            in nginx's list of free ones.
//! Refilled:  when nginx has accepted, when a connection of such a listener ends (its pool is destroyed after it
//!            was put on the list, so no client can be faster), and with [`tick`].

use crate::basic::callback::one;
use crate::basic::event_loop::EventLoop;
use crate::basic::guard::contain;
use crate::conf::Server;
use crate::connection::{Connection, Event};
use crate::cycle::{Cycle, Listener};
use crate::sys::{
    AF_INET6, global, ngx_connection_t, ngx_cycle_t, ngx_event_accept, ngx_event_t,
    ngx_http_in_addr_t, ngx_http_in6_addr_t, ngx_http_init_connection, ngx_http_port_t, ngx_int_t,
    ngx_reusable_connection, ngx_uint_t,
};
use rustix::event::{EventfdFlags, eventfd};
use std::cell::RefCell;
use std::os::fd::OwnedFd;

/// `NGX_READ_EVENT` where nginx has epoll, for every event method.
const READ_EVENT: ngx_int_t = (libc::EPOLLIN | libc::EPOLLRDHUP) as ngx_int_t;
/// `NGX_EXCLUSIVE_EVENT`
const EXCLUSIVE_EVENT: ngx_uint_t = 1 << 28;
/// `NGX_DISABLE_EVENT`
const DISABLE_EVENT: ngx_uint_t = 2;

type Connected = unsafe extern "C" fn(*mut ngx_connection_t);
type Happened = unsafe extern "C" fn(*mut ngx_event_t);

struct Reserve {
    cycle: *mut ngx_cycle_t,
    /// Of that cycle's table, which stays as long as the worker.
    connections: Vec<&'static Connection>,
    /// As many connections are kept: fewer than descriptors when there are few at all.
    wanted: usize,
    descriptors: Vec<OwnedFd>,
    /// As many descriptors are kept.
    most: usize,
    /// nginx is accepting on one of the listeners: what comes free now is for that.
    is_lent: bool,
    /// Clients are welcome here: not while another nginx is to have them.
    is_welcome: bool,
}

thread_local! {
    /// The event loop's.
    static RESERVE: RefCell<Option<Reserve>> = const { RefCell::new(None) };
}

/// Runs `change` on the reserve, if there is one and its cycle is the one that runs.
fn with(here: EventLoop, change: impl FnOnce(&mut Reserve, &Cycle)) {
    RESERVE.with(|reserve| {
        let Ok(mut reserve) = reserve.try_borrow_mut() else { return };
        let cycle = Cycle::current(here);
        if let Some(reserve) = reserve.as_mut().filter(|it| it.cycle == cycle.as_ptr()) {
            change(reserve, cycle);
        }
    });
}

impl Reserve {
    /// Puts what is kept back to where nginx looks for it.
    fn lend(&mut self, cycle: &Cycle) {
        self.is_lent = true;
        // One is enough: a second client that waits is accepted with the next one.
        drop(self.descriptors.pop());
        for connection in self.connections.drain(..) {
            let next = cycle.peek(|raw| raw.free_connections);
            connection.poke(|raw| raw.data = next.cast());
            cycle.poke(|raw| {
                raw.free_connections = connection.as_ptr();
                raw.free_connection_n += 1;
            });
        }
    }

    /// Takes what is missing, as far as there is any.
    fn refill(&mut self, cycle: &Cycle) {
        while self.connections.len() < self.wanted {
            // SAFETY: null, or a free connection of the running cycle, whose table stays as long as the worker.
            let first =
                unsafe { Connection::from_nullable(cycle.peek(|raw| raw.free_connections)) };
            let Some(connection) = first else { break };
            // The list of free connections is linked by `data`.
            let next = connection.peek(|raw| raw.data);
            cycle.poke(|raw| {
                raw.free_connections = next.cast();
                raw.free_connection_n -= 1;
            });
            self.connections.push(connection);
        }
        while self.descriptors.len() < self.most {
            // No file is needed for it.
            let Ok(descriptor) = eventfd(0, EventfdFlags::CLOEXEC) else { break };
            self.descriptors.push(descriptor);
        }
    }

    /// Listens at the listeners, or does not.
    ///
    /// When descriptors run out nginx stops listening for half a second, and tries all listeners together
    /// again: as long as clients wait at any of them, it would not come to these.
    fn listen(&self, cycle: &Cycle) {
        // With the mutex, whoever holds it listens.
        if global!(ngx_use_accept_mutex) != 0 {
            return;
        }
        // A worker that shuts down has no listeners any more.
        for listener in cycle.listeners().filter(is_ours) {
            let Some(connection) = listener.connection() else { continue };
            let event = connection.read_event();
            let is_shared = global!(ngx_use_exclusive_accept) != 0;
            let (action, flags) = match (event.is_active(), self.is_welcome) {
                (false, true) if is_shared => (global!(ngx_event_actions.add), EXCLUSIVE_EVENT),
                (false, true) => (global!(ngx_event_actions.add), 0),
                (true, false) => (global!(ngx_event_actions.del), DISABLE_EVENT),
                _ => continue,
            };
            // nginx logs what fails; the next tick tries again.
            // SAFETY: the event of an open listener, and nginx's own function for the event method that it uses.
            action.map(|action| unsafe { action(event.as_ptr(), READ_EVENT, flags) });
        }
    }
}

/// Begins to keep `most` connections and descriptors, in a worker whose listeners are open, for listeners all of whose
/// addresses lead to servers that `is_for` names. Of the connections that are free at the start it keeps at most one in
/// `part`: nginx takes one more after it has accepted, and ends the worker if there is none.
pub fn start(cycle: &Cycle, most: usize, part: usize, is_for: impl Fn(&Server) -> bool) {
    let mut is_wanted = false;
    for listener in cycle.listeners() {
        let Some(connection) = listener.connection().filter(|_| leads_to(listener, &is_for)) else {
            continue;
        };
        listener.poke(|raw| raw.handler = Some(one(init_connection)));
        connection.read_event().poke(|raw| raw.handler = Some(one(accept)));
        is_wanted = true;
    }
    if !is_wanted {
        return;
    }
    let mut reserve = Reserve {
        cycle: cycle.as_ptr(),
        connections: Vec::with_capacity(most),
        wanted: (cycle.free_connections() / part.max(1)).min(most),
        descriptors: Vec::with_capacity(most),
        most,
        is_lent: false,
        is_welcome: true,
    };
    reserve.refill(cycle);
    RESERVE.set(Some(reserve));
}

/// Gives everything back.
pub fn stop(here: EventLoop) {
    with(here, Reserve::lend);
    RESERVE.set(None);
}

/// What the worker does now and then: takes what came free, and looks after the listeners. `is_welcome`: this
/// nginx takes clients; else they wait at the listener for the one that does.
pub fn tick(here: EventLoop, is_welcome: bool) {
    with(here, |reserve, cycle| {
        reserve.refill(cycle);
        reserve.is_welcome = is_welcome;
        reserve.listen(cycle);
    });
}

fn is_ours(listener: &&Listener) -> bool {
    let handler = listener.peek(|raw| raw.handler);
    handler.is_some_and(|handler| std::ptr::fn_addr_eq(handler, one(init_connection)))
}

/// An open listener of http's over TCP, all of whose addresses lead to such servers.
fn leads_to(listener: &Listener, is_for: impl Fn(&Server) -> bool) -> bool {
    let handler = listener.peek(|raw| raw.handler);
    let is_http = handler.is_some_and(|handler| {
        std::ptr::fn_addr_eq(handler, ngx_http_init_connection as Connected)
    });
    let Some(connection) = listener.connection().filter(|_| is_http) else { return false };
    let handler = connection.read_event().peek(|raw| raw.handler);
    let is_stream =
        handler.is_some_and(|handler| std::ptr::fn_addr_eq(handler, ngx_event_accept as Happened));
    is_stream && default_servers(listener).iter().all(|server| is_for(server))
}

/// The default server of each address of a listener of http's.
fn default_servers(listener: &Listener) -> Vec<&Server> {
    let (port, address) = listener.peek(|raw| (raw.servers.cast(), raw.sockaddr));
    let port: *const ngx_http_port_t = port;
    // SAFETY: a listener has an address, and what http hangs on its own listeners is of this type.
    let (port, is_v6) = unsafe { (&*port, u32::from((*address).sa_family) == AF_INET6) };
    // SAFETY: http has made so many entries, of the type for the family, each with a default server of the cycle, which stays
    // as long.
    let server = |place: usize| unsafe {
        Server::from_ptr(match is_v6 {
            true => (*port.addrs.cast::<ngx_http_in6_addr_t>().add(place)).conf.default_server,
            false => (*port.addrs.cast::<ngx_http_in_addr_t>().add(place)).conf.default_server,
        })
    };
    (0..port.naddrs).map(server).collect()
}

/// One of the listeners has a client, or its timer has run out.
extern "C" fn accept(event: &Event) {
    let here = event.event_loop();
    contain("lend", (), || with(here, Reserve::lend));
    // SAFETY: nginx's own handler for this very event.
    unsafe { ngx_event_accept(event.as_ptr()) };
    contain("refill", (), || {
        with(here, |reserve, cycle| {
            reserve.is_lent = false;
            reserve.refill(cycle);
            // Two clients waited and there was one descriptor: the other is accepted in the next turn.
            if !reserve.descriptors.is_empty() {
                reserve.listen(cycle);
            }
        });
    });
}

/// One of the listeners has accepted a client.
extern "C" fn init_connection(connection: &Connection) {
    // When memory is out, the next tick refills.
    if let Some(pool) = connection.pool() {
        pool.on_end(Ended(connection.event_loop()));
    }
    // SAFETY: nginx's own handler for a new connection, whose struct outlives it.
    unsafe {
        ngx_http_init_connection(connection.as_ptr());
        // nginx closes connections without a request to make room. This one's first is about to come. Without a descriptor it
        // is closed already.
        if connection.socket() != -1 {
            ngx_reusable_connection(connection.as_ptr(), 0);
        }
    }
}

/// A client of these listeners, until its connection and descriptor are free.
struct Ended(EventLoop);

impl Drop for Ended {
    fn drop(&mut self) {
        with(self.0, |reserve, cycle| {
            if !reserve.is_lent {
                reserve.refill(cycle);
            }
        });
    }
}
