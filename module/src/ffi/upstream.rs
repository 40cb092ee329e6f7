//! Upstream peers: nginx's callbacks around one attempt to reach an endpoint.

use super::worker::{self, Worker};
use super::{directives, guard, log, memory};
use crate::peer;
use nginx_bitfields as bits;
use nginx_sys::{
    AF_INET, AF_INET6, NGX_BUSY, NGX_ERROR, NGX_OK, NGX_PEER_FAILED, ngx_conf_t,
    ngx_http_get_indexed_variable, ngx_http_request_t, ngx_http_upstream_srv_conf_t, ngx_int_t,
    ngx_peer_connection_t, ngx_str_t, ngx_uint_t, sockaddr, sockaddr_in, sockaddr_in6,
};
use oxigress_core::balancer::Identity;
use oxigress_core::record::EndpointView;
use oxigress_store::KeyHash;
use std::ffi::c_void;
use std::net::SocketAddr;

/// The longest name, an IPv6 address in brackets with its port, has 47 bytes.
const NAME_BYTES: usize = 47;

/// An endpoint that was chosen, copied out of shared memory.
pub struct Choice {
    address: SocketAddr,
    name: [u8; NAME_BYTES],
    name_length: u8,
    identity: Identity,
}

impl Choice {
    /// Copies what an attempt needs.
    pub fn new(endpoint: EndpointView<'_>) -> Self {
        let mut name = [0; NAME_BYTES];
        let text = endpoint.name();
        let length = text.len().min(NAME_BYTES);
        name[..length].copy_from_slice(&text[..length]);
        Choice {
            address: endpoint.socket_address(),
            name,
            name_length: length as u8,
            identity: *endpoint.identity(),
        }
    }
}

/// A request's peer, in its pool: what is chosen and what was tried.
#[repr(C)]
struct Peer {
    worker: *const Worker,
    backend: ngx_str_t,
    hash: u64,
    has_hash: bool,
    name_length: u8,
    tried_count: u16,
    tried_capacity: u16,
    /// [`Identity`] each.
    tried: *mut Identity,
    request: *mut ngx_http_request_t,
    name: ngx_str_t,
    address: Address,
    current: Identity,
    name_bytes: [u8; NAME_BYTES],
}

#[repr(C)]
union Address {
    any: sockaddr,
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

/// nginx's callback for an upstream block: says what to call for each request.
pub unsafe extern "C" fn init_upstream(
    _: *mut ngx_conf_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> ngx_int_t {
    // SAFETY: nginx gives the upstream that it initialises.
    unsafe { (*upstream).peer.init = Some(init_peer) };
    NGX_OK as ngx_int_t
}

/// nginx's callback when a request is about to be sent to this upstream.
unsafe extern "C" fn init_peer(
    request: *mut ngx_http_request_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> ngx_int_t {
    guard::contain("init_peer", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the request and the upstream it is for, on the event loop.
        match unsafe { prepare(request, upstream) } {
            Some(()) => NGX_OK as ngx_int_t,
            None => NGX_ERROR as ngx_int_t,
        }
    })
}

/// # Safety
/// `request` is alive, `upstream` has `ingress_balancer`, and this is the event loop's thread.
unsafe fn prepare(
    request: *mut ngx_http_request_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> Option<()> {
    // SAFETY: vouched for by the caller.
    let (worker, pool) = unsafe { (worker::current()?, (*request).pool) };
    // SAFETY: the pool is alive; zeroes are a value of every field.
    let peer = unsafe { memory::zeroed::<Peer>(pool).as_mut() }?;
    peer.worker = worker;
    peer.request = request;
    // SAFETY: vouched for by the caller.
    if let Some(index) = unsafe { directives::backend_variable(upstream) } {
        // SAFETY: the index came from nginx.
        let value = unsafe { ngx_http_get_indexed_variable(request, index) };
        // SAFETY: null or a value; the same struct, with bitfields that are right.
        let value = unsafe { value.cast::<bits::ngx_variable_value_t>().as_ref() }?;
        // A variable's text lies in the request's pool or in the configuration.
        peer.backend = ngx_str_t { len: value.len() as usize, data: value.data };
        if value.not_found() != 0 {
            peer.backend.len = 0;
        }
    } else {
        // SAFETY: as above.
        let decision = unsafe { super::Request::from_callback(request)?.decision() };
        let Some(decision) = decision else {
            let line = format_args!(
                "\"ingress_balancer\" without a variable serves \"ingress_router\" locations only"
            );
            // SAFETY: a request has a connection with a log.
            unsafe { log::write(log::ERROR, (*(*request).connection).log, line) };
            return None;
        };
        let backend = decision.backend;
        peer.backend = ngx_str_t { len: backend.len(), data: backend.as_ptr().cast_mut() };
        peer.hash = decision.hash.map_or(0, KeyHash::to_bits);
        peer.has_hash = decision.hash.is_some();
    }
    // SAFETY: nginx creates the upstream before it initialises the peer.
    let u = unsafe { &mut (*(*request).upstream).peer };
    u.data = (&raw mut *peer).cast();
    u.get = Some(get_peer);
    u.free = Some(free_peer);
    // An attempt ends when no endpoint is left; `proxy_next_upstream_tries` may end it before.
    u.tries = i32::MAX as ngx_uint_t;
    // nginx calls these unchecked for upstreams with TLS.
    u.set_session = Some(set_session);
    u.save_session = Some(save_session);
    Some(())
}

/// nginx's callback for an attempt: where to connect to.
unsafe extern "C" fn get_peer(
    connection: *mut ngx_peer_connection_t,
    data: *mut c_void,
) -> ngx_int_t {
    guard::contain("get_peer", NGX_ERROR as ngx_int_t, || {
        // SAFETY: `data` is what `prepare` set; the request is alive.
        let peer = unsafe { &mut *data.cast::<Peer>() };
        // SAFETY: the worker lives as long as the process.
        let worker = unsafe { &*peer.worker };
        // SAFETY: set by `prepare`, in the request's pool.
        let backend = unsafe { memory::bytes(peer.backend) };
        let hash = peer.has_hash.then(|| KeyHash::from_bits(peer.hash));
        // SAFETY: null with count 0, or an array of that many.
        let tried = unsafe { peer.tried() };
        let Some(choice) = peer::choose(worker, backend, hash, tried) else {
            return NGX_BUSY as ngx_int_t;
        };
        let length = peer.take(&choice);
        // SAFETY: nginx gives the connection it is about to make.
        let connection = unsafe { &mut *connection };
        connection.sockaddr = (&raw mut peer.address).cast();
        connection.socklen = length as _;
        connection.name = &raw mut peer.name;
        NGX_OK as ngx_int_t
    })
}

impl Peer {
    /// # Safety
    /// The request is alive.
    unsafe fn tried<'a>(&self) -> &'a [Identity] {
        if self.tried.is_null() {
            return &[];
        }
        // SAFETY: `tried_count` were written.
        unsafe { std::slice::from_raw_parts(self.tried, usize::from(self.tried_count)) }
    }

    /// Keeps a choice for nginx to point at; answers the length of its address.
    fn take(&mut self, choice: &Choice) -> usize {
        self.current = choice.identity;
        self.name_bytes = choice.name;
        self.name = ngx_str_t {
            len: usize::from(choice.name_length),
            data: (&raw mut self.name_bytes).cast(),
        };
        match choice.address {
            SocketAddr::V4(v4) => {
                // SAFETY: a C struct of numbers.
                let mut address: sockaddr_in = unsafe { std::mem::zeroed() };
                address.sin_family = AF_INET as _;
                address.sin_port = v4.port().to_be();
                address.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                self.address = Address { v4: address };
                size_of::<sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                // SAFETY: as above.
                let mut address: sockaddr_in6 = unsafe { std::mem::zeroed() };
                address.sin6_family = AF_INET6 as _;
                address.sin6_port = v6.port().to_be();
                // SAFETY: the union of bytes and words that every in6_addr is.
                unsafe { *(&raw mut address.sin6_addr).cast::<[u8; 16]>() = v6.ip().octets() };
                self.address = Address { v6: address };
                size_of::<sockaddr_in6>()
            }
        }
    }

    /// Remembers that the current endpoint was tried. Out of memory: it may be asked again.
    ///
    /// # Safety
    /// The request is alive.
    unsafe fn remember(&mut self) {
        if self.tried_count == self.tried_capacity {
            let Some(capacity) = self.tried_capacity.checked_mul(2).map(|double| double.max(4))
            else {
                return;
            };
            // SAFETY: the request's pool is alive.
            let larger: *mut Identity =
                unsafe { memory::array((*self.request).pool, usize::from(capacity)) };
            if larger.is_null() {
                return;
            }
            // SAFETY: the new array is larger, and neither is null when there is something to copy.
            unsafe {
                for place in 0..usize::from(self.tried_count) {
                    larger.add(place).write(self.tried.add(place).read());
                }
            }
            (self.tried, self.tried_capacity) = (larger, capacity);
        }
        // SAFETY: there is room for one more.
        unsafe { self.tried.add(usize::from(self.tried_count)).write(self.current) };
        self.tried_count += 1;
    }
}

/// nginx's callback after an attempt.
unsafe extern "C" fn free_peer(
    connection: *mut ngx_peer_connection_t,
    data: *mut c_void,
    state: ngx_uint_t,
) {
    guard::contain("free_peer", (), || {
        // SAFETY: as for `get_peer`.
        let (peer, tries) = unsafe { (&mut *data.cast::<Peer>(), &mut (*connection).tries) };
        // SAFETY: the same struct, through bindings that have its bitfields right.
        let is_cached =
            unsafe { (*connection.cast::<bits::ngx_peer_connection_s>()).cached() != 0 };
        // A kept connection that the endpoint had closed says nothing about the endpoint: it may be asked
        // again, on a new connection.
        if state & NGX_PEER_FAILED as ngx_uint_t != 0 && !is_cached {
            // SAFETY: the request is alive.
            unsafe { peer.remember() };
        }
        *tries = tries.saturating_sub(1);
    });
}

unsafe extern "C" fn set_session(_: *mut ngx_peer_connection_t, _: *mut c_void) -> ngx_int_t {
    NGX_OK as ngx_int_t
}

unsafe extern "C" fn save_session(_: *mut ngx_peer_connection_t, _: *mut c_void) {}
