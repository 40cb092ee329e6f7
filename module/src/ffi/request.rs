//! A request, seen safely.

mod access;
mod error;
mod head;
mod headers;
mod limits;
mod mirror;
mod response;
mod uri;

use super::access::Progress;
use super::directives::SrvConf;
use super::interim;
use super::location::{self, Entered};
use super::memory;
use super::question::Question;
use super::table::http_index;
use super::worker::{self, Worker};
use crate::metrics::Counter;
use crate::policy::Compiled;
use nginx::sys::{
    AF_INET, AF_INET6, ngx_hash_key, ngx_http_get_indexed_variable, ngx_http_get_variable,
    ngx_http_request_t, ngx_list_part_t, ngx_pool_cleanup_add, ngx_str_t, ngx_table_elt_t,
    sockaddr_in, sockaddr_in6,
};
use oxigress_core::model::policy::Mirror;
use oxigress_store::{KeyHash, Place};
use std::cell::Cell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ptr::null_mut;
use std::rc::Rc;

pub use head::BadHead;

/// What REWRITE decided, copied out of shared memory: a decision never mixes generations.
#[derive(Clone, Copy)]
pub struct Decision<'r> {
    /// As [`oxigress_core::record::RuleView::texts`].
    pub texts: [&'r [u8]; 6],
    /// The backend that serves; empty if there is none.
    pub backend: &'r [u8],
    /// Its endpoint set.
    pub found: Found,
}

/// How to find a backend's endpoint set again.
#[derive(Clone, Copy, Default)]
pub struct Found {
    /// The hash of its key.
    pub hash: Option<KeyHash>,
    /// Where it stood.
    pub place: Place,
    /// The backend's record has nothing more to say: nobody has to look.
    pub is_plain: bool,
}

/// A decision as it is copied: the rule's texts in one piece.
pub struct NewDecision<'g> {
    /// Of the texts, the rule's backend first.
    pub lengths: [u16; 6],
    /// One after the other.
    pub texts: &'g [u8],
    /// The default backend or an alternative, if it serves instead.
    pub instead: &'g [u8],
    /// It is an alternative.
    pub is_alternative: bool,
}

/// What the module keeps with a request, in the request's pool. Zeroes are "nothing yet". Cells, since
/// several callbacks may look at it at once.
#[repr(C)]
struct Context {
    /// The alternative that takes the request; null: none does.
    alternative: Cell<*const u8>,
    alternative_length: Cell<usize>,
    /// The rule's texts and the backend that serves instead, one after the other.
    texts: Cell<*const u8>,
    lengths: Cell<[u16; 7]>,
    is_decided: Cell<bool>,
    has_id: Cell<bool>,
    is_busy: Cell<bool>,
    is_plain: Cell<bool>,
    /// Limits were applied.
    is_limited: Cell<bool>,
    hash: Cell<u64>,
    place: Cell<Place>,
    /// What counts it in the end.
    counter: Cell<Counter>,
    /// Written once.
    id: Cell<[u8; 32]>,
    /// Of the configuration endpoint: its work, while it goes on.
    pending: Cell<*mut c_void>,
    /// The policies of the rule, held by [`Held`]; null: it has none.
    policies: Cell<*const Compiled>,
    /// The status that another backend answers; 0: none does.
    error: Cell<u16>,
    /// ACCESS has let it in.
    is_let_in: Cell<bool>,
    /// How far it has come in the ACCESS phase; null: it was not there.
    progress: Cell<*const Progress>,
    /// Of a question to an auth server; null: it is none.
    question: Cell<*const Question>,
    /// Of a copy for another server; null: it is none.
    mirror: Cell<*const Mirror>,
    /// How far its own copy has come.
    copied: Cell<u8>,
    /// What reads its endpoint's answer.
    interim: Cell<interim::Callbacks>,
    /// What the groups of the rule's path matched; null: it is no pattern.
    captured: Cell<*const uri::Captured>,
}

/// Holds a request's policies until its pool goes, and finds its context again: nginx forgets what modules keep
/// with a request when it redirects it internally.
#[repr(C)]
struct Held {
    request: *mut ngx_http_request_t,
    context: *const Context,
    policies: *const Compiled,
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
            None => self.context_from_before(),
        }
    }

    /// What was kept before an internal redirect.
    fn context_from_before(&self) -> Option<&'r Context> {
        let held = self.held()?;
        // SAFETY: nginx allocates a place for every http module; the context lies in the request's pool.
        unsafe {
            let context = (*held).context;
            *self.raw().ctx.add(http_index()) = context.cast_mut().cast();
            context.as_ref()
        }
    }

    /// The newest.
    fn held(&self) -> Option<*mut Held> {
        // SAFETY: a request has a pool; its clean-ups are a list that ends with null.
        let mut next = unsafe { (*self.raw().pool).cleanup };
        // SAFETY: as above.
        while let Some(cleanup) = unsafe { next.as_ref() } {
            let is_ours = cleanup.handler.is_some_and(|handler| {
                std::ptr::fn_addr_eq(handler, release as unsafe extern "C" fn(*mut c_void))
            });
            let held = cleanup.data.cast::<Held>();
            // A subrequest has the pool of its main request.
            // SAFETY: what `hold` put there.
            if is_ours && unsafe { (*held).request } == self.raw {
                return Some(held);
            }
            next = cleanup.next;
        }
        None
    }

    /// Holds the policies of the rule, if it has any, until the request ends; `false` when memory is out.
    pub fn hold(&self, policies: Rc<Compiled>) -> bool {
        let Some(context) = self.context_or_new() else { return false };
        // A request that is redirected internally may be routed again, and holds both.
        // SAFETY: the request's pool is alive.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.raw().pool, size_of::<Held>()) };
        // SAFETY: null, or a new clean-up with room for what was asked for.
        let Some(cleanup) = (unsafe { cleanup.as_mut() }) else { return false };
        let policies = Rc::into_raw(policies);
        // SAFETY: as above.
        unsafe {
            cleanup.data.cast::<Held>().write(Held { request: self.raw, context, policies });
        }
        cleanup.handler = Some(release);
        context.policies.set(policies);
        // Who was let in by others was not by these.
        context.progress.set(std::ptr::null());
        true
    }

    /// The policies of the rule; `None`: it has none.
    #[inline]
    pub fn policies(&self) -> Option<&'r Compiled> {
        // SAFETY: null, or held until the request's pool goes.
        unsafe { self.context()?.policies.get().as_ref() }
    }

    /// A request that was redirected internally is routed anew: nothing of the rule before holds.
    pub fn forget_route(&self) {
        let Some(context) = self.context() else { return };
        context.policies.set(null_mut());
        context.progress.set(std::ptr::null());
        context.captured.set(std::ptr::null());
        context.alternative.set(std::ptr::null());
        context.error.set(0);
        context.copied.set(0);
        context.is_let_in.set(false);
        context.is_busy.set(false);
        context.is_decided.set(false);
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

    /// Keeps a decision: copies its texts into the request's pool. Out of memory: there is none.
    pub fn decide(&mut self, decision: &NewDecision<'_>, found: Found) {
        let parts = [decision.texts, decision.instead];
        // SAFETY: the request's pool is alive.
        let Some(copy) = (unsafe { memory::concat(self.raw().pool, &parts) }) else { return };
        if let Some(context) = self.context_or_new() {
            let [a, b, c, d, e, f] = decision.lengths;
            context.texts.set(copy.data);
            // An id has 512 bytes at most.
            context.lengths.set([a, b, c, d, e, f, decision.instead.len() as u16]);
            if decision.is_alternative {
                // SAFETY: the last part of the copy.
                context.alternative.set(unsafe { copy.data.add(decision.texts.len()) });
                context.alternative_length.set(decision.instead.len());
            }
            context.hash.set(found.hash.map_or(0, KeyHash::to_bits));
            context.place.set(found.place);
            context.is_plain.set(found.is_plain);
            context.is_decided.set(true);
        }
    }

    /// Keeps the alternative that takes the request; answers the copy, `None` when memory is out.
    pub fn set_alternative(&self, id: &[u8]) -> Option<&'r [u8]> {
        // SAFETY: the request's pool is alive.
        let copy = unsafe { memory::concat(self.raw().pool, &[id]) }?;
        let context = self.context_or_new()?;
        context.alternative.set(copy.data);
        context.alternative_length.set(copy.len);
        Some(self.text(copy))
    }

    /// Every endpoint is busy up to its limit.
    pub fn is_busy(&self) -> bool {
        self.context().is_some_and(|context| context.is_busy.get())
    }

    /// Notes that every endpoint is busy up to its limit.
    pub fn set_busy(&self) {
        if let Some(context) = self.context_or_new() {
            context.is_busy.set(true);
        }
    }

    /// nginx's callbacks for an answer, which ours stand before.
    pub(super) fn interim(&self) -> interim::Callbacks {
        self.context().map(|context| context.interim.get()).unwrap_or_default()
    }

    /// Keeps them; `None` when memory is out.
    pub(super) fn set_interim(&self, callbacks: interim::Callbacks) -> Option<()> {
        self.context_or_new().map(|context| context.interim.set(callbacks))
    }

    /// The alternative that takes the request, if one does.
    pub fn alternative(&self) -> Option<&'r [u8]> {
        let context = self.context().filter(|context| !context.alternative.get().is_null())?;
        let data = context.alternative.get().cast_mut();
        Some(self.text(ngx_str_t { len: context.alternative_length.get(), data }))
    }

    /// REWRITE has decided where it goes, or that it goes nowhere.
    #[inline]
    pub fn is_decided(&self) -> bool {
        self.context().is_some_and(|context| context.is_decided.get())
    }

    /// The generation that decided where it goes; 0: none did.
    pub fn decided(&self) -> u64 {
        let context = self.context().filter(|context| context.is_decided.get());
        context.map_or(0, |context| context.place.get().generation())
    }

    /// The decision, if there is one.
    pub fn decision(&self) -> Option<Decision<'r>> {
        let context = self.context().filter(|context| context.is_decided.get())?;
        let mut at = context.texts.get();
        let [backend, namespace, ingress, service, port, path, instead] =
            context.lengths.get().map(|length| {
                // SAFETY: the lengths add up to the copy that `decide` made in the request's pool.
                let text = unsafe { std::slice::from_raw_parts(at, usize::from(length)) };
                // SAFETY: at most one past it.
                at = unsafe { at.add(usize::from(length)) };
                text
            });
        let found = Found {
            hash: Some(KeyHash::from_bits(context.hash.get())),
            place: context.place.get(),
            is_plain: context.is_plain.get(),
        };
        Some(Decision {
            texts: [backend, namespace, ingress, service, port, path],
            backend: if instead.is_empty() { backend } else { instead },
            found,
        })
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

/// nginx's callback when the pool of a request goes.
unsafe extern "C" fn release(data: *mut c_void) {
    super::guard::contain("release", (), || {
        // SAFETY: what `hold` put there.
        let policies = unsafe { (*data.cast::<Held>()).policies };
        // SAFETY: `hold` made it of a counted pointer; released once.
        let policies = unsafe { Rc::from_raw(policies) };
        // SAFETY: on the event loop.
        match unsafe { worker::current() } {
            Some(worker) => worker.policies().release(policies),
            // The worker is leaving.
            None => std::mem::forget(policies),
        }
    });
}
