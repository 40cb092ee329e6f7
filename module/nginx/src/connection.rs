//! Connections, of clients and to endpoints.

use crate::basic::address::Address;
use crate::basic::handle::{fields, handle};
use crate::basic::log::Log;
use crate::basic::pool::Pool;

handle! {
    /// A connection. nginx keeps its struct when it is closed, and uses it again for another.
    Connection of ngx_connection_t
}

fields! { Connection {
    /// Its log, which adds what nginx knows of the client to each line.
    link log: Log = log;
    /// Its pool.
    link pool: Pool = pool;
    /// Its socket; -1 when it is closed.
    get socket: i32 = fd;
    /// The peer's address in text, without port.
    text address_text = addr_text;
    /// Bytes that were sent over it.
    get sent: i64 = sent;
    /// `SOCK_STREAM` or `SOCK_DGRAM`.
    get kind: i32 = type_;
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

impl Connection {
    /// TLS is spoken on it.
    #[inline]
    pub fn is_tls(&self) -> bool {
        // SAFETY: copies a pointer out of a live struct.
        unsafe { !(*self.as_ptr()).ssl.is_null() }
    }

    /// Where the other end is, as `realip` sees it if that is used.
    #[inline]
    pub fn peer(&self) -> Option<Address> {
        // SAFETY: nginx's addresses are as long as their family says, and stay as long as the connection.
        unsafe { Address::read((*self.as_ptr()).sockaddr) }
    }

    /// Where this end is: of the listener, if the kernel was not asked.
    #[inline]
    pub fn local(&self) -> Option<Address> {
        // SAFETY: nginx's addresses are as long as their family says, and stay as long as the connection.
        unsafe { Address::read((*self.as_ptr()).local_sockaddr) }
    }
}
