//! Connections to endpoints that wait for their next request: the field changes of nginx's keepalive module.

use crate::basic::callback::one;
use crate::basic::event_loop::EventLoop;
use crate::basic::guard::contain;
use crate::basic::log::Log;
use crate::connection::{Connection, Event};
use crate::sys::{
    NGX_AGAIN, ngx_close_connection, ngx_connection_t, ngx_destroy_pool, ngx_event_t, ngx_int_t,
    ngx_ssl_shutdown,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::ptr::{NonNull, null_mut, without_provenance_mut};

/// Whose idle connections are: it finds one again by a number.
pub trait Keeper: 'static {
    /// Something has arrived on this connection, or nginx wants it closed: its owner gives it up.
    fn give_up(here: EventLoop, number: usize) -> Option<Idle>;
}

/// An open connection to an endpoint that nobody uses. It is closed when it is dropped.
#[derive(Debug)]
pub struct Open(NonNull<ngx_connection_t>);

/// An open connection that waits for its next request. It is closed when it is dropped.
#[derive(Debug)]
pub struct Idle(Open);

impl Open {
    /// # Safety
    /// It is open, was used, and nobody else has it.
    #[inline]
    pub(crate) unsafe fn from_raw(connection: *mut ngx_connection_t) -> Self {
        // SAFETY: not null, as it is a connection.
        Open(unsafe { NonNull::new_unchecked(connection) })
    }

    /// Gives it to nginx.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut ngx_connection_t {
        let connection = self.0.as_ptr();
        std::mem::forget(self);
        connection
    }

    /// nginx's side of it.
    #[inline]
    pub fn nginx(&self) -> &Connection {
        // SAFETY: open as long as this, on the event loop, since a pointer is not sent to another thread.
        unsafe { Connection::from_ptr(self.0.as_ptr()) }
    }

    /// Makes it idle.
    pub fn rest(self) -> Idle {
        let (read, write) = (self.nginx().read_event(), self.nginx().write_event());
        read.set_delayed(false);
        read.stop_timer();
        write.stop_timer();
        write.poke(|raw| raw.handler = Some(write_handler));
        self.nginx().set_idle(true);
        Idle(self)
    }

    fn close(connection: *mut ngx_connection_t) {
        // SAFETY: open, and nobody uses it: it was taken out of an `Open` that is dropped. Without a word of TLS, as nginx
        // closes it.
        unsafe {
            if let Some(ssl) = (*connection).ssl.as_mut() {
                ssl.set_no_wait_shutdown(1);
                ssl.set_no_send_shutdown(1);
                if ngx_ssl_shutdown(connection) == NGX_AGAIN as ngx_int_t {
                    ssl.handler = Some(close_handler);
                    return;
                }
            }
            if !(*connection).pool.is_null() {
                ngx_destroy_pool((*connection).pool);
            }
            ngx_close_connection(connection);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        Self::close(self.0.as_ptr());
    }
}

impl Idle {
    /// Says by which number its keeper finds it; `false`: something has arrived on it already, so it is of no use.
    pub fn watch<K: Keeper>(&self, number: usize) -> bool {
        let connection = self.0.nginx();
        // A number, since a keeper may not give addresses away.
        connection.poke(|raw| raw.data = without_provenance_mut(number));
        let read = connection.read_event();
        read.poke(|raw| raw.handler = Some(one(read_handler::<K>)));
        !read.is_ready() || goes_on(connection)
    }

    /// Nothing has arrived on this idle connection, the end included. Bytes that nobody asked for are as bad as
    /// the end: they would be taken for the next answer.
    pub fn is_quiet(&self) -> bool {
        is_quiet(self.0.nginx())
    }

    /// Makes it ready for a request, which logs to `log` until it gives the connection back or closes it.
    #[inline]
    pub(crate) fn resume(self, log: &Log) -> Open {
        let connection = self.0.nginx();
        connection.set_idle(false);
        connection.poke(|raw| (raw.sent, raw.data) = (0, null_mut()));
        connection.log_to(log);
        self.0
    }
}

fn is_quiet(connection: &Connection) -> bool {
    let Some(socket) = connection.descriptor() else { return false };
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(socket, &mut [0_u8; 1], flags), Err(Errno::AGAIN))
}

/// Nothing has arrived on an idle connection whose event says so, and nginx does not want it closed.
fn goes_on(connection: &Connection) -> bool {
    if connection.is_to_close() || !is_quiet(connection) {
        return false;
    }
    connection.read_event().set_ready(false);
    connection.read_event().watch()
}

unsafe extern "C" fn close_handler(connection: *mut ngx_connection_t) {
    // nginx has ended the TLS session of a connection that was given up.
    contain("close_upstream", (), || Open::close(connection));
}

unsafe extern "C" fn write_handler(_: *mut ngx_event_t) {}

/// nginx's callback when something arrives on an idle connection, and when nginx wants it closed: because the
/// worker shuts down.
extern "C" fn read_handler<K: Keeper>(event: &Event) {
    contain("idle_upstream", (), || {
        let connection = event.connection();
        if !goes_on(connection) {
            // It is closed as it is dropped. Without a keeper it was dropped before.
            drop(K::give_up(event.event_loop(), connection.peek(|raw| raw.data.addr())));
        }
    });
}
