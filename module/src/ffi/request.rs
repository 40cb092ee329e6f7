//! A request, seen safely.

mod access;
mod error;
mod head;
mod headers;
mod limits;
mod mirror;
mod response;
mod route;
mod uri;

use super::directives::SrvConf;
use super::interim;
use super::location::{self, Entered};
use super::memory;
use super::question::Question;
use super::table::http_index;
use super::worker::{self, Worker};
use crate::metrics::Counter;
use nginx::sys::{
    AF_INET, AF_INET6, ngx_hash_key, ngx_http_get_indexed_variable, ngx_http_get_variable,
    ngx_http_request_t, ngx_list_part_t, ngx_str_t, ngx_table_elt_t, sockaddr_in, sockaddr_in6,
};
use oxigress_core::model::policy::Mirror;
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;

pub use head::BadHead;
use route::Route;
pub use route::{Found, Names, NewRoute};

/// What the module keeps with a request, in the request's pool. Zeroes are "nothing yet". Cells, since
/// several callbacks may look at it at once.
#[repr(C)]
struct Context {
    /// What REWRITE decided, and what holds as long as that does.
    route: Cell<Route>,
    /// Of the metrics: what counts the request in the end.
    counter: Cell<Counter>,
    /// Of the limits: they were applied.
    is_limited: Cell<bool>,
    has_id: Cell<bool>,
    /// Written once.
    id: Cell<[u8; 32]>,
    /// Of the configuration endpoint: its work, while it goes on.
    pending: Cell<*mut c_void>,
    /// Of a question to an auth server; null: it is none.
    question: Cell<*const Question>,
    /// Of a copy for another server; null: it is none.
    mirror: Cell<*const Mirror>,
    /// What reads its endpoint's answer.
    interim: Cell<interim::Callbacks>,
}

/// A request during one callback.
pub struct Request<'r> {
    raw: *mut ngx_http_request_t,
    worker: &'static Worker,
    callback: PhantomData<&'r ()>,
}

impl<'r> Request<'r> {
    /// The request nginx runs a callback for; `None` without an `ingress_zone`.
    ///
    /// # Safety
    /// `raw` is alive during `'r`, and this is the event loop's thread.
    #[inline]
    pub unsafe fn from_callback(raw: *mut ngx_http_request_t) -> Option<Self> {
        // SAFETY: vouched for by the caller.
        let worker = unsafe { worker::current() }?;
        Some(Request { raw, worker, callback: PhantomData })
    }

    #[inline]
    fn raw(&self) -> &'r ngx_http_request_t {
        // SAFETY: alive during `'r`; nobody else runs meanwhile. The reference is dropped before the next
        // write through the pointer.
        unsafe { &*self.raw }
    }

    /// The bytes of a string of the request.
    #[inline]
    fn text(&self, text: ngx_str_t) -> &'r [u8] {
        // SAFETY: strings of a request lie in its buffers or its pool.
        unsafe { memory::bytes(text) }
    }

    /// nginx's own request.
    pub(super) fn as_ptr(&self) -> *mut ngx_http_request_t {
        self.raw
    }

    /// The worker it runs in.
    pub fn worker(&self) -> &'static Worker {
        self.worker
    }

    /// `$host` as nginx validated it: lower case, no port, no trailing dot; empty if there is none.
    #[inline]
    pub fn host(&self) -> &'r [u8] {
        self.text(self.raw().headers_in.server)
    }

    /// The `Host` header as it was sent.
    #[inline]
    pub fn host_header(&self) -> Option<&'r [u8]> {
        let header = self.raw().headers_in.host;
        // SAFETY: null, or an element of the header list.
        unsafe { header.as_ref() }.map(|header| self.text(header.value))
    }

    /// The path as nginx normalised it: decoded, dot segments resolved, slashes merged, no query.
    #[inline]
    pub fn path(&self) -> &'r [u8] {
        self.text(self.raw().uri)
    }

    /// The request target as it was sent: path and query.
    #[inline]
    pub fn target(&self) -> &'r [u8] {
        self.text(self.raw().unparsed_uri)
    }

    /// It came over TLS.
    #[inline]
    pub fn is_https(&self) -> bool {
        // SAFETY: a request has a connection until it is freed.
        unsafe { !(*self.raw().connection).ssl.is_null() }
    }

    /// The peer, a proxy in front, is believed what it says of the client: `ingress_forwarded_headers`.
    #[inline]
    pub fn has_trusted_peer(&self) -> bool {
        // SAFETY: a request has one configuration a module of its server, which lives as long as the cycle.
        let conf = unsafe { (*self.raw().srv_conf.add(http_index())).cast::<SrvConf>().as_ref() };
        let Some(index) = conf.and_then(SrvConf::trust_variable) else { return false };
        // SAFETY: the request is alive; the index was made when the configuration was read.
        let value = unsafe { ngx_http_get_indexed_variable(self.raw, index) };
        // SAFETY: null or a value.
        let value = unsafe { value.as_ref() };
        value.is_some_and(|value| {
            let text = ngx_str_t { len: value.len() as usize, data: value.data };
            value.not_found() == 0 && value.valid() != 0 && self.text(text) == b"1"
        })
    }

    /// The port that the PROXY header names as the one the client connected to.
    #[inline]
    pub fn proxied_port(&self) -> Option<u16> {
        // SAFETY: a request has a connection until it is freed; null, or made with the connection.
        let header = unsafe { (*self.raw().connection).proxy_protocol.as_ref() }?;
        Some(header.dst_port).filter(|port| *port != 0)
    }

    /// The address and port that the PROXY header names as the client's; `None` without one.
    pub fn proxied_address(&self) -> Option<Vec<u8>> {
        // SAFETY: as above.
        let header = unsafe { (*self.raw().connection).proxy_protocol.as_ref() }?;
        let address = self.text(header.src_addr);
        let port = header.src_port.to_string();
        let parts = match address.contains(&b':') {
            true => [&b"["[..], address, b"]:", port.as_bytes()],
            false => [&b""[..], address, b":", port.as_bytes()],
        };
        (!address.is_empty()).then(|| parts.concat())
    }

    /// The port of the listener. Read from the listener's address: asking the kernel, as `$server_port`
    /// does, costs a system call and answers the same port.
    pub fn local_port(&self) -> Option<u16> {
        // SAFETY: a request has a connection until it is freed.
        let address = unsafe { (*self.raw().connection).local_sockaddr };
        if address.is_null() {
            return None;
        }
        // SAFETY: nginx's addresses are as long as their family says.
        unsafe {
            match u32::from((*address).sa_family) {
                AF_INET => Some(u16::from_be((*address.cast::<sockaddr_in>()).sin_port)),
                AF_INET6 => Some(u16::from_be((*address.cast::<sockaddr_in6>()).sin6_port)),
                _ => None,
            }
        }
    }

    /// How many header lines came; those of a name that nginx ignores are left out.
    #[inline]
    pub fn header_count(&self) -> usize {
        let mut part: *const ngx_list_part_t = &raw const self.raw().headers_in.headers.part;
        let mut count = 0;
        // SAFETY: a part of the request's header list; null after the last.
        while let Some(elements) = unsafe { part.as_ref() } {
            count += elements.nelts;
            part = elements.next;
        }
        count
    }

    /// Names and values of the headers, as they were sent.
    fn headers(&self) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + use<'_, 'r> {
        let mut part: *const ngx_list_part_t = &raw const self.raw().headers_in.headers.part;
        let mut place = 0;
        std::iter::from_fn(move || {
            // SAFETY: a part of the request's header list; null after the last.
            while let Some(elements) = unsafe { part.as_ref() } {
                if place < elements.nelts {
                    // SAFETY: the part has `nelts` elements.
                    let header = unsafe { &*elements.elts.cast::<ngx_table_elt_t>().add(place) };
                    place += 1;
                    return Some((self.text(header.key), self.text(header.value)));
                }
                (part, place) = (elements.next, 0);
            }
            None
        })
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
        let mut name = ngx_str_t { len: name.len(), data: name.as_ptr().cast_mut() };
        // SAFETY: reads the name.
        let key = unsafe { ngx_hash_key(name.data, name.len) };
        // SAFETY: the request is alive; nginx reads the name.
        let value = unsafe { ngx_http_get_variable(self.raw, &raw mut name, key) };
        // SAFETY: null or a value.
        let value = unsafe { value.as_ref() }?;
        let text = ngx_str_t { len: value.len() as usize, data: value.data };
        (value.not_found() == 0 && value.valid() != 0).then(|| self.text(text))
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
        // SAFETY: null, or an element of the header list.
        unsafe { self.raw().headers_in.upgrade.as_ref() }.is_some_and(|header| header.value.len > 0)
    }

    /// The method as it was sent.
    pub fn method(&self) -> &'r [u8] {
        self.text(self.raw().method_name)
    }

    /// `Content-Length`; `None` without one.
    pub fn content_length(&self) -> Option<u64> {
        u64::try_from(self.raw().headers_in.content_length_n).ok()
    }

    /// The body comes in chunks.
    pub fn is_chunked(&self) -> bool {
        self.raw().headers_in.chunked() != 0
    }

    /// The client's socket.
    pub fn socket(&self) -> i32 {
        // SAFETY: a request has a connection until it is freed.
        unsafe { (*self.raw().connection).fd }
    }

    /// Whether it came over a Unix socket.
    pub fn is_unix(&self) -> bool {
        // SAFETY: as above; a connection has a local address.
        let address = unsafe { (*self.raw().connection).local_sockaddr };
        // SAFETY: null or an address.
        unsafe { address.as_ref() }.is_some_and(|a| u32::from(a.sa_family) == nginx::sys::AF_UNIX)
    }

    /// The client is on this machine, over TCP.
    pub fn is_from_loopback(&self) -> bool {
        // SAFETY: a request has a connection until it is freed.
        let address = unsafe { (*self.raw().connection).sockaddr };
        // SAFETY: null or an address; nginx's addresses are as long as their family says.
        unsafe {
            match address.as_ref().map(|address| u32::from(address.sa_family)) {
                Some(AF_INET) => {
                    let v4 = (*address.cast::<sockaddr_in>()).sin_addr.s_addr;
                    Ipv4Addr::from(v4.to_ne_bytes()).is_loopback()
                }
                Some(AF_INET6) => {
                    let v6 =
                        (&raw const (*address.cast::<sockaddr_in6>()).sin6_addr).cast::<[u8; 16]>();
                    Ipv6Addr::from(*v6).to_canonical().is_loopback()
                }
                _ => false,
            }
        }
    }

    #[inline]
    fn context(&self) -> Option<&'r Context> {
        // SAFETY: nginx allocates a place for every http module.
        let place = unsafe { self.raw().ctx.add(http_index()) };
        // SAFETY: the place is of this module; null until it is set.
        match unsafe { (*place).cast::<Context>().as_ref() } {
            Some(context) => Some(context),
            None => {
                let context = self.context_from_before()?;
                // SAFETY: as above; the context lies in the request's pool.
                unsafe {
                    (*place) = context.cast_mut().cast();
                    context.as_ref()
                }
            }
        }
    }

    /// Goes on with the settings of the policies' protocol, as [`location::enter`].
    pub fn enter_location(&self) -> Entered {
        // SAFETY: alive, and called in the REWRITE phase.
        unsafe { location::enter(self.raw, self.policies(), self.is_https()) }
    }

    fn context_or_new(&self) -> Option<&'r Context> {
        if let Some(context) = self.context() {
            return Some(context);
        }
        // SAFETY: the request's pool is alive; zeroes are a value.
        let context = unsafe { memory::zeroed::<Context>(self.raw().pool) };
        // SAFETY: as in `context`.
        unsafe { *self.raw().ctx.add(http_index()) = context.cast() };
        // SAFETY: null, or zeroed above.
        unsafe { context.as_ref() }
    }

    /// nginx's callbacks for an answer, which ours stand before.
    pub(super) fn interim(&self) -> interim::Callbacks {
        self.context().map(|context| context.interim.get()).unwrap_or_default()
    }

    /// Keeps them; `None` when memory is out.
    pub(super) fn set_interim(&self, callbacks: interim::Callbacks) -> Option<()> {
        self.context_or_new().map(|context| context.interim.set(callbacks))
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

    /// Keeps the endpoint's work with the request; `false` when memory is out.
    pub fn set_pending(&self, pending: *mut c_void) -> bool {
        let context = self.context_or_new();
        context.map(|context| context.pending.set(pending)).is_some()
    }

    /// What [`Request::set_pending`] kept; null if nothing.
    pub fn pending(&self) -> *mut c_void {
        self.context().map_or(null_mut(), |context| context.pending.get())
    }

    /// The request's id: made up when first asked for, the same afterwards. Out of memory: there is none.
    pub fn id(&self) -> Option<&'r [u8]> {
        let context = self.context_or_new()?;
        if !context.has_id.get() {
            context.id.set(self.worker.next_request_id());
            context.has_id.set(true);
        }
        // SAFETY: written above or before, once, and in the request's pool.
        Some(unsafe { std::slice::from_raw_parts(context.id.as_ptr().cast(), 32) })
    }
}
