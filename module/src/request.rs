//! A request, seen safely.
#![allow(unsafe_code)]

mod error;
pub mod forwarded;
pub mod head;
mod headers;
mod input;
mod limits;
pub mod log;
pub mod policies;
mod response;
pub mod route;
pub mod spans;
mod uri;
mod variables;

use crate::conf::Http;
use crate::worker;
use crate::worker::Worker;
use crate::worker::parts::{Has, OfRequest};
use crate::zone::counters::Counter;
use nginx::{Address, Connection, Header};
use std::cell::{Cell, OnceCell};
use std::net::IpAddr;

use route::Route;

/// What the module keeps with a request, in the request's pool. Cells, since several callbacks may look at it at once.
#[derive(Default)]
pub struct Context {
    /// What REWRITE decided, and what holds as long as that does.
    route: Cell<Route>,
    /// Of the metrics: what counts the request in the end.
    counter: Cell<Counter>,
    /// Of texts with variables: how many bytes of values they have had.
    expanded: Cell<usize>,
    /// Of the tracing: its pool has its trace.
    is_traced: Cell<bool>,
    id: OnceCell<[u8; 32]>,
    parts: OfRequest,
}

/// A request during one callback.
pub struct Request<'r> {
    seen: &'r nginx::Request,
    worker: &'static Worker,
}

impl<'r> Request<'r> {
    /// The request nginx runs a callback for; `None` without an `ingress_zone`.
    #[inline]
    pub fn of(seen: &'r nginx::Request) -> Option<Self> {
        let worker = worker::current(seen.event_loop())?;
        Some(Request { seen, worker })
    }

    /// nginx's own request.
    #[inline]
    pub fn nginx(&self) -> &'r nginx::Request {
        self.seen
    }

    /// The worker it runs in.
    pub fn worker(&self) -> &'static Worker {
        self.worker
    }

    /// `$host` as nginx validated it: lower case, no port, no trailing dot; empty if there is none.
    #[inline]
    pub fn host(&self) -> &'r [u8] {
        self.seen.host()
    }

    /// The `Host` header as it was sent.
    #[inline]
    pub fn host_header(&self) -> Option<&'r [u8]> {
        self.seen.host_header().map(Header::value)
    }

    /// The path as nginx normalised it: decoded, dot segments resolved, slashes merged, no query.
    #[inline]
    pub fn path(&self) -> &'r [u8] {
        self.seen.path()
    }

    /// The request target as it was sent: path and query.
    #[inline]
    pub fn target(&self) -> &'r [u8] {
        self.seen.target()
    }

    /// It came over TLS.
    #[inline]
    pub fn is_https(&self) -> bool {
        self.seen.is_https()
    }

    /// The peer, a proxy in front, is believed what it says of the client: `ingress_forwarded_headers`.
    #[inline]
    pub fn has_trusted_peer(&self) -> bool {
        let trust = self.seen.server_conf::<Http>().trust_variable();
        trust.is_some_and(|index| self.seen.indexed_variable(index) == Some(b"1"))
    }

    /// The port that the PROXY header names as the one the client connected to.
    #[inline]
    pub fn proxied_port(&self) -> Option<u16> {
        let port = self.seen.connection().proxied()?.destination_port();
        Some(port).filter(|port| *port != 0)
    }

    /// The address and port that the PROXY header names as the client's; `None` without one.
    pub fn proxied_address(&self) -> Option<Vec<u8>> {
        let header = self.seen.connection().proxied()?;
        let address = header.source();
        let port = header.source_port().to_string();
        let parts = match address.contains(&b':') {
            true => [&b"["[..], address, b"]:", port.as_bytes()],
            false => [&b""[..], address, b":", port.as_bytes()],
        };
        (!address.is_empty()).then(|| parts.concat())
    }

    /// The port of the listener.
    pub fn local_port(&self) -> Option<u16> {
        local_port(self.seen.connection())
    }

    /// The address of this machine that the client has sent to.
    pub fn local_address(&self) -> Option<IpAddr> {
        local_address(self.seen.connection())
    }

    /// How many header lines came; those of a name that nginx ignores are left out.
    #[inline]
    pub fn header_count(&self) -> usize {
        self.seen.headers().count_all()
    }

    /// Names and values of the headers, as they were sent.
    pub fn headers(&self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + use<'r> {
        self.seen.headers().map(|header| (header.name(), header.value()))
    }

    /// The first header of this lower-case name.
    pub fn header(&self, name: &[u8]) -> Option<&'r [u8]> {
        self.headers().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The values of all headers of this lower-case name.
    pub fn all_headers<'a>(
        &'a self,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'r [u8]> + use<'a, 'r> {
        self.headers()
            .filter(move |(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// As [`Request::all_headers`], where `-` and `_` are one, as in nginx's `$http_` variables.
    pub fn all_headers_alike<'a>(
        &'a self,
        name: &'a [u8],
    ) -> impl Iterator<Item = &'r [u8]> + use<'a, 'r> {
        let plain = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
        self.headers()
            .filter(move |(key, _)| key.iter().map(plain).eq(name.iter().map(plain)))
            .map(|(_, value)| value)
    }

    /// The value of one of nginx's variables, by its lower-case name; `None` if there is none.
    pub fn variable(&self, name: &[u8]) -> Option<&'r [u8]> {
        self.seen.variable(name)
    }

    /// Headers whose lower-case name begins with `prefix`.
    pub fn has_header_prefix(&self, prefix: &[u8]) -> bool {
        self.headers().any(|(key, _)| {
            key.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
    }

    /// The client asks for another protocol on the connection.
    #[inline]
    pub fn has_upgrade(&self) -> bool {
        self.seen.upgrade_header().is_some_and(|header| !header.value().is_empty())
    }

    /// The method as it was sent.
    pub fn method(&self) -> &'r [u8] {
        self.seen.method()
    }

    /// `Content-Length`; `None` without one.
    pub fn content_length(&self) -> Option<u64> {
        self.seen.content_length()
    }

    /// The body comes in chunks.
    pub fn is_chunked(&self) -> bool {
        self.seen.is_chunked()
    }

    /// Whether it came over a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.seen.connection().local() == Some(Address::Unix)
    }

    /// The client is on this machine, over TCP.
    pub fn is_from_loopback(&self) -> bool {
        let peer = self.seen.connection().peer().and_then(Address::ip);
        peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    #[inline]
    fn context(&self) -> Option<&'r Context> {
        match self.seen.context::<Http>() {
            Some(context) => Some(context),
            // SAFETY: what was kept before lies in the request's pool.
            None => Some(unsafe { self.seen.set_context::<Http>(self.context_from_before()?) }),
        }
    }

    fn context_or_new(&self) -> Option<&'r Context> {
        if let Some(context) = self.context() {
            return Some(context);
        }
        self.seen.new_context::<Http>(Context::default())
    }

    /// What a feature keeps with it; `None`: nothing is kept yet.
    #[inline]
    pub fn part<P>(&self) -> Option<&'r P>
    where
        OfRequest: Has<P>,
        P: 'r,
    {
        self.context().map(|context| context.parts.part())
    }

    /// What a feature keeps with it from now on; `None` when memory is out.
    #[inline]
    pub fn part_or_new<P>(&self) -> Option<&'r P>
    where
        OfRequest: Has<P>,
        P: 'r,
    {
        self.context_or_new().map(|context| context.parts.part())
    }

    /// Says what counts it in the end.
    #[inline]
    pub fn count(&self, counter: Counter) {
        if let Some(context) = self.context_or_new() {
            context.counter.set(counter);
        }
    }

    /// What counts it in the end, if it is to be counted.
    #[inline]
    pub fn counter(&self) -> Option<Counter> {
        self.context().map(|context| context.counter.get()).filter(Counter::is_some)
    }

    /// Counts bytes of values of texts with variables; answers how many there were. `None` when memory is out.
    pub(crate) fn count_expanded(&self, bytes: usize) -> Option<usize> {
        let expanded = &self.context_or_new()?.expanded;
        expanded.set(expanded.get().saturating_add(bytes));
        Some(expanded.get())
    }

    /// The request's id: made up when first asked for, the same afterwards. Out of memory: there is none.
    pub fn id(&self) -> Option<&'r [u8]> {
        let context = self.context_or_new()?;
        Some(context.id.get_or_init(|| self.worker.next_request_id()))
    }
}

/// The port of a connection's listener. Read from the listener's address: asking the kernel, as `$server_port` does, costs a
/// system call and answers the same port.
pub fn local_port(connection: &Connection) -> Option<u16> {
    Some(connection.local()?.ip()?.port())
}

/// The address of this machine that a client has sent to. The kernel is asked: a listener may have all addresses.
pub fn local_address(connection: &Connection) -> Option<IpAddr> {
    connection.local_port()?;
    let known = connection.local()?.ip()?;
    // One that stream has handed over has the address of the listener that it was given to.
    let real = if known.ip().is_loopback() { connection.kernels_local() } else { None };
    Some(real.unwrap_or(known).ip().to_canonical())
}
