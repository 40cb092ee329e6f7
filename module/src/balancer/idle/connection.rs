//! One upstream connection, on its way into the pool and out of it: the field changes of nginx's keepalive module.
#![allow(unsafe_code)]

use crate::system::guard;
use crate::worker;
use nginx::EventLoop;
use nginx::sys::{
    NGX_AGAIN, NGX_OK, ngx_close_connection, ngx_connection_t, ngx_cycle, ngx_del_timer,
    ngx_destroy_pool, ngx_handle_read_event, ngx_int_t, ngx_log_t, ngx_ssl_shutdown,
};
use oxigress_core::balancer::idle::Place;
use std::ptr::{null_mut, without_provenance_mut};

/// A connection of nginx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawConnection(*mut nginx::sys::ngx_connection_s);

impl RawConnection {
    pub fn new(connection: *mut ngx_connection_t) -> Self {
        RawConnection(connection.cast())
    }

    /// Nothing has arrived on this idle connection, the end included. Bytes that nobody asked for are as bad as
    /// the end: they would be taken for the next answer.
    pub fn is_quiet(self) -> bool {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: a connection in the pool is open, the buffer has one byte, and every thread has an errno.
        unsafe {
            libc::recv((*self.0).fd, (&raw mut byte).cast(), 1, flags) == -1
                && *libc::__errno_location() == libc::EAGAIN
        }
    }

    /// Makes it ready for a request.
    ///
    /// # Safety
    /// It is open and idle, and no longer in a pool; `log` outlives the request.
    pub unsafe fn resume(self, log: *mut ngx_log_t) -> *mut ngx_connection_t {
        // SAFETY: the caller has an open connection that nobody else uses; a connection has events and, once it was used, a pool.
        unsafe {
            (*self.0).set_idle(0);
            (*self.0).sent = 0;
            (*self.0).data = null_mut();
            self.log_to(log);
        }
        self.0
    }

    /// Makes it idle. It may close itself at once, if the end has arrived already.
    ///
    /// # Safety
    /// It is open, nobody uses it, and it stands in pool `number` at `place`.
    pub unsafe fn rest(self, number: usize, place: Place) {
        // SAFETY: as above. The events are the connection's own; a timer that is set is in nginx's tree.
        unsafe {
            let (read, write) = ((*self.0).read, (*self.0).write);
            (*read).set_delayed(0);
            for event in [read, write] {
                if (*event).timer_set() != 0 {
                    ngx_del_timer(event.cast());
                }
            }
            (*write).handler = Some(write_handler);
            (*read).handler = Some(read_handler);
            // A number, since the pool may not give addresses away.
            (*self.0).data = without_provenance_mut(number << 32 | place.0 as usize);
            (*self.0).set_idle(1);
            self.log_to((*ngx_cycle).log);
            if (*read).ready() != 0 {
                read_handler(read);
            }
        }
    }

    /// # Safety
    /// As for [`RawConnection::resume`].
    unsafe fn log_to(self, log: *mut ngx_log_t) {
        let log: *mut nginx::sys::ngx_log_t = log;
        // SAFETY: the caller has an open connection that nobody else uses.
        unsafe {
            (*self.0).log = log;
            (*(*self.0).read).log = log;
            (*(*self.0).write).log = log;
            if let Some(pool) = (*self.0).pool.as_mut() {
                pool.log = log;
            }
        }
    }

    /// Closes it, as nginx does: without a word of TLS.
    ///
    /// # Safety
    /// It is open and nobody uses it.
    pub unsafe fn close(self) {
        // SAFETY: the caller has an open connection that nobody else uses.
        unsafe {
            if let Some(ssl) = (*self.0).ssl.as_mut() {
                ssl.set_no_wait_shutdown(1);
                ssl.set_no_send_shutdown(1);
                if ngx_ssl_shutdown(self.0.cast()) == NGX_AGAIN as ngx_int_t {
                    ssl.handler = Some(close_handler);
                    return;
                }
            }
            if !(*self.0).pool.is_null() {
                ngx_destroy_pool((*self.0).pool.cast());
            }
            ngx_close_connection(self.0.cast());
        }
    }
}

unsafe extern "C" fn close_handler(connection: *mut nginx::sys::ngx_connection_s) {
    // SAFETY: nginx has ended the TLS session of a connection that is in no pool.
    guard::contain("close_upstream", (), || unsafe { RawConnection(connection).close() });
}

unsafe extern "C" fn write_handler(_: *mut nginx::sys::ngx_event_s) {}

/// nginx's callback when something arrives on an idle connection, and when nginx wants it closed: because the
/// worker shuts down.
unsafe extern "C" fn read_handler(event: *mut nginx::sys::ngx_event_s) {
    guard::contain("idle_upstream", (), || {
        // SAFETY: an event of a connection that `rest` gave this handler.
        unsafe {
            let connection = RawConnection((*event).data.cast());
            if (*connection.0).close() == 0 && connection.is_quiet() {
                (*event).set_ready(0);
                if ngx_handle_read_event(event.cast(), 0) == NGX_OK as ngx_int_t {
                    return;
                }
            }
            let data = (*connection.0).data.addr();
            let (number, place) = (data >> 32, Place(data as u32));
            match worker::current(EventLoop::here()) {
                Some(worker) => worker.pools().give_up(number, place, connection),
                None => connection.close(),
            }
        }
    });
}
