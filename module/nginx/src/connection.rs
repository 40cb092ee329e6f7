//! Connections, of clients and to endpoints.

use crate::basic::address::Address;
use crate::basic::chain::Buffer;
use crate::basic::handle::{fields, handle, on_event_loop};
use crate::basic::log::Log;
use crate::basic::pool::Pool;
use crate::sys::{
    NGX_HTTP_GZIP_BUFFERED, NGX_OK, ngx_connection_local_sockaddr, ngx_del_timer, ngx_event_t,
    ngx_handle_read_event, ngx_int_t, ngx_post_event, ngx_posted_events, ngx_posted_next_events,
};
use rustix::net::getsockname;
use std::cell::UnsafeCell;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

handle! {
    /// A connection. nginx keeps its struct when it is closed, and uses it again for another.
    Connection of ngx_connection_t
}

on_event_loop!(Connection);

fields! { Connection {
    /// Its log, which adds what nginx knows of the client to each line.
    link log: Log = log;
    /// Its socket; -1 when it is closed.
    get socket: i32 = fd;
    /// The peer's address in text, without port.
    text address_text = addr_text;
    /// Bytes that were sent over it.
    get sent: i64 = sent;
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    get kind: i32 = type_;
    /// Its pool. A client's has one as long as it lives; a listener's has none, and one to an endpoint has none before it is
    /// connected.
    option pool: Pool = pool;
    /// What happens when there is something to read.
    link read_event: Event = read;
    /// What happens when there is room to write.
    link write_event: Event = write;
    /// Its TLS side.
    option tls: TlsConnection = ssl;
    /// What was read of it, and is not yet handled.
    option read_ahead: Buffer = buffer;
    /// Requests that it has served.
    get requests: usize = requests;
    /// When it was made, on the clock of [`crate::now_milliseconds`].
    get start_milliseconds: u64 = start_time;
    /// nginx wants it closed.
    flag is_to_close = close;
    /// Nobody uses it.
    set_flag set_idle = set_idle;
    /// TLS is spoken on it.
    has is_tls = ssl;
    /// What the PROXY protocol's header said, if the listener asks for it.
    option proxied: Proxied = proxy_protocol;
}}

handle! {
    /// The header of the PROXY protocol.
    Proxied of ngx_proxy_protocol_t
}

fields! { Proxied {
    /// The client's address, as text.
    text source = src_addr;
    /// The client's port.
    get source_port: u16 = src_port;
    /// The port that the client connected to; 0 if it was not told.
    get destination_port: u16 = dst_port;
}}

handle! {
    /// The TLS side of a connection.
    TlsConnection of ngx_ssl_connection_t
}

handle! {
    /// What nginx does when something happens on a connection.
    Event of ngx_event_t
}

on_event_loop!(Event);

fields! { Event {
    /// The other end has sent its end.
    flag has_ended = eof;
    /// It failed.
    flag has_failed = error;
    /// It took too long.
    flag has_timed_out = timedout;
    /// It has happened, and may happen again at once.
    flag is_ready = ready;
    /// It has happened, and may happen again at once.
    set_flag set_ready = set_ready;
    /// A limit of rates has put it off.
    set_flag set_delayed = set_delayed;
    /// The kernel is to tell of it.
    flag is_active = active;
    /// The kernel, or HTTP/2 in its place, tells of it by itself.
    set_flag set_active = set_active;
    /// Its timer is set.
    flag has_timer = timer_set;
}}

impl Event {
    /// An event of this crate's own. Before it goes, it is taken back.
    pub(crate) fn of(raw: ngx_event_t) -> Self {
        Event(UnsafeCell::new(raw))
    }

    /// Has nginx handle it at the end of this turn of the event loop, or of the next.
    #[inline]
    pub(crate) fn post(&self, in_next_turn: bool) {
        // SAFETY: nginx's own queues, on the event loop's thread. nginx takes an event of a connection back before the connection is
        // used again, and one of ours is taken back before it goes, as `of` asks.
        unsafe {
            let queue = match in_next_turn {
                true => &raw mut ngx_posted_next_events,
                false => &raw mut ngx_posted_events,
            };
            ngx_post_event(self.as_ptr(), queue);
        }
    }

    /// The connection that it is of. nginx's events all belong to one.
    #[inline]
    pub(crate) fn connection(&self) -> &Connection {
        // SAFETY: what nginx sets when it makes the connection; both stay as long.
        unsafe { Connection::from_ptr(self.peek(|raw| raw.data).cast()) }
    }

    /// Takes its timer back.
    #[inline]
    pub(crate) fn stop_timer(&self) {
        if self.has_timer() {
            // SAFETY: it is set, and this is the event loop's thread.
            unsafe { ngx_del_timer(self.as_ptr()) };
        }
    }

    /// Has the kernel tell about it; `false` when it cannot. Of connections to endpoints only: HTTP/2 makes copies of a client's
    /// connection, with its descriptor, which the kernel would lead to when they are gone.
    #[inline]
    pub(crate) fn watch(&self) -> bool {
        // SAFETY: an event of an open connection.
        unsafe { ngx_handle_read_event(self.as_ptr(), 0) == NGX_OK as ngx_int_t }
    }
}

impl Connection {
    /// Nothing more can be sent over it: nginx closes it after the request.
    pub(crate) fn set_failed(&self) {
        self.poke(|raw| raw.set_error(1));
    }

    /// A filter holds a part of a response back. The bit is gzip's, which passes over what is encoded by another.
    pub(crate) fn set_has_coded_rest(&self, has_rest: bool) {
        self.poke(|raw| {
            let others = raw.buffered() & !NGX_HTTP_GZIP_BUFFERED;
            raw.set_buffered(others | if has_rest { NGX_HTTP_GZIP_BUFFERED } else { 0 });
        });
    }

    /// The port of this machine that the client has sent to: asked of the kernel, since a listener may have many.
    pub fn local_port(&self) -> Option<u16> {
        self.pool()?;
        // SAFETY: a connection with a pool, in which nginx keeps the address.
        let code = unsafe { ngx_connection_local_sockaddr(self.as_ptr(), null_mut(), 0) };
        let known = (code == NGX_OK as ngx_int_t).then(|| self.local())?;
        known?.ip().map(|address| address.port())
    }

    /// Where this end is, as the kernel has it: for nginx a connection that was handed over has the address of the listener that
    /// it was given to.
    pub fn kernels_local(&self) -> Option<SocketAddr> {
        let address = getsockname(self.descriptor()?).ok()?;
        SocketAddr::try_from(address).ok()
    }

    /// Nothing is wrong with it, as far as nginx has seen.
    #[inline]
    pub fn is_well(&self) -> bool {
        let (read, write) = (self.read_event(), self.write_event());
        !(read.has_ended()
            || read.has_failed()
            || read.has_timed_out()
            || write.has_failed()
            || write.has_timed_out())
    }

    /// Its lines go to another log, which stays until it gets another one.
    #[inline]
    pub(crate) fn log_to(&self, log: &Log) {
        let log = log.as_ptr();
        self.poke(|raw| raw.log = log);
        self.read_event().poke(|raw| raw.log = log);
        self.write_event().poke(|raw| raw.log = log);
        self.pool().into_iter().for_each(|pool| pool.poke(|raw| raw.log = log));
    }

    /// Its socket; `None` when it is closed. A connection is not closed while it is looked at.
    #[inline]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open, until nginx closes the connection.
        Some(self.socket()).filter(|fd| *fd >= 0).map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Where the other end is, as `realip` sees it if that is used.
    #[inline]
    pub fn peer(&self) -> Option<Address> {
        // SAFETY: nginx's addresses are as long as their family says, and stay as long as the connection.
        unsafe { Address::read(self.peek(|raw| raw.sockaddr)) }
    }

    /// Where this end is: of the listener, if the kernel was not asked.
    #[inline]
    pub fn local(&self) -> Option<Address> {
        // SAFETY: nginx's addresses are as long as their family says, and stay as long as the connection.
        unsafe { Address::read(self.peek(|raw| raw.local_sockaddr)) }
    }
}
