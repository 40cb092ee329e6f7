//! Upstream peers of sessions: nginx's callbacks around one attempt to reach an endpoint.
#![allow(unsafe_code)]

use crate::balancer::attempt::Choice;
use crate::balancer::attempt::InFlight;
use crate::balancer::attempt::MAX_DENIED;
use crate::balancer::attempt::Tried;
use crate::balancer::peer;
use crate::balancer::peer::Key;
use crate::balancer::peer::Search;
use crate::balancer::upstream as http;
use crate::module::table::stream_index;
use crate::request::route::Found;
use crate::stream::SrvConf;
use crate::stream::passthrough::Decision;
use crate::stream::sessions as stream;
use crate::stream::sessions::Attempt;
use crate::stream::variable_by_name;
use crate::stream::{concat, variable};
use crate::system::guard;
use crate::system::log;
use crate::system::memory::now_milliseconds;
use crate::worker;
use crate::worker::Worker;
use nginx::PeerName;
use nginx::log::Log;
use nginx::sys::{
    NGX_DECLINED, NGX_ERROR, NGX_OK, NGX_PEER_FAILED, ngx_conf_t, ngx_connection_local_sockaddr,
    ngx_connection_t, ngx_inet_get_port, ngx_int_t, ngx_msec_t, ngx_peer_connection_t, ngx_str_t,
    ngx_stream_session_t, ngx_stream_upstream_srv_conf_t, ngx_uint_t,
};
use nginx::{EventLoop, RawAddress};
use oxigress_core::balancer::Identity;
use oxigress_core::model::StreamPort;
use std::ffi::c_void;
use std::fmt::Arguments;
use std::num::NonZeroU16;
use std::ptr::null_mut;

/// A session's peer, in its pool: what is chosen and what was tried.
#[repr(C)]
struct Peer {
    worker: *const Worker,
    session: *mut ngx_stream_session_t,
    /// The client's.
    connection: *mut ngx_connection_t,
    upstream: *mut ngx_stream_upstream_srv_conf_t,
    /// Empty: none, and the log has said so.
    backend: ngx_str_t,
    /// Its endpoint set, as it was found first.
    found: Found,
    attempts: ngx_uint_t,
    /// `proxy_next_upstream_tries`, if it is set.
    limit: ngx_uint_t,
    tried: Tried<'static>,
    name: Option<&'static PeerName>,
    address: RawAddress,
    current: Identity,
    in_flight: InFlight,
    /// The backend's sessions are sent by the hash of a key.
    is_hashed: bool,
    hash: u32,
}

/// nginx's callback for an upstream block: says what to call for each session.
pub unsafe extern "C" fn init_upstream(
    _: *mut ngx_conf_t,
    upstream: *mut ngx_stream_upstream_srv_conf_t,
) -> ngx_int_t {
    guard::contain("init_upstream", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the upstream that it initialises.
        let upstream = unsafe { &mut *upstream };
        if http::refuse_zone(!upstream.shm_zone.is_null()).is_err() {
            return NGX_ERROR as ngx_int_t;
        }
        upstream.peer.init = Some(init_peer);
        NGX_OK as ngx_int_t
    })
}

/// nginx's callback when a session is about to be sent to this upstream.
unsafe extern "C" fn init_peer(
    session: *mut ngx_stream_session_t,
    upstream: *mut ngx_stream_upstream_srv_conf_t,
) -> ngx_int_t {
    guard::contain("init_peer", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the session and the upstream it is for, on the event loop.
        match unsafe { prepare(session, upstream) } {
            Some(()) => NGX_OK as ngx_int_t,
            None => NGX_ERROR as ngx_int_t,
        }
    })
}

/// # Safety
/// `session` is alive, `upstream` has `ingress_balancer`, and this is the event loop's thread.
unsafe fn prepare(
    session: *mut ngx_stream_session_t,
    upstream: *mut ngx_stream_upstream_srv_conf_t,
) -> Option<()> {
    // SAFETY: the caller has a live session, on the event loop.
    let (worker, connection) =
        unsafe { (worker::current(EventLoop::here())?, (*session).connection) };
    // SAFETY: the caller has a live session, on the event loop.
    let backend = unsafe { backend(session, upstream, worker) }.unwrap_or_default();
    let peer = Peer {
        worker,
        session,
        connection,
        upstream,
        backend,
        found: Found::default(),
        attempts: 0,
        limit: 0,
        tried: Tried::default(),
        name: None,
        address: RawAddress::none(),
        current: Identity::default(),
        in_flight: InFlight::default(),
        is_hashed: false,
        hash: 0,
    };
    // SAFETY: the pool is alive, and lives as long as the session.
    let peer = unsafe { nginx::Pool::from_ptr((*connection).pool) }.alloc(peer)?;
    // SAFETY: the values are used at once.
    let value = |name: &[u8]| unsafe { variable_by_name(session, name) };
    let mut found = Found::default();
    if let Some(hash) = stream::hash(worker, peer.backend(), &mut found, value) {
        (peer.is_hashed, peer.hash) = (true, hash);
    }
    peer.found = found;
    // SAFETY: nginx creates the upstream before it initialises the peer.
    let attempts = unsafe { &mut (*(*session).upstream).peer };
    attempts.data = (&raw mut *peer).cast();
    attempts.get = Some(get_peer);
    attempts.free = Some(free_peer);
    attempts.notify = Some(notify_peer);
    // nginx makes `proxy_next_upstream_tries` of it, which no header says.
    attempts.tries = ngx_uint_t::MAX;
    // nginx calls these unchecked with `proxy_ssl`.
    attempts.set_session = Some(set_session);
    attempts.save_session = Some(save_session);
    Some(())
}

/// The backend of a session: by the variable, by the server name that was passed through, or by the port. `None`: there
/// is none, which the log says.
///
/// # Safety
/// As for [`prepare`].
unsafe fn backend(
    session: *mut ngx_stream_session_t,
    upstream: *mut ngx_stream_upstream_srv_conf_t,
    worker: &Worker,
) -> Option<ngx_str_t> {
    // SAFETY: the caller has a live session, on the event loop; the module has one pointer in both arrays.
    let (conf, decision, connection) = unsafe {
        let conf: *const SrvConf = (*(*upstream).srv_conf.add(stream_index())).cast();
        let decision: *const Decision = (*(*session).ctx.add(stream_index())).cast();
        (&*conf, decision.as_ref(), (*session).connection)
    };
    if conf.variable != 0 {
        // SAFETY: as above; the value lies in the session's pool or in the configuration.
        let value = unsafe { variable(session, conf.variable) }.filter(|value| value.len > 0);
        if value.is_none() {
            let line = "the variable of \"ingress_balancer\" is empty";
            // SAFETY: as above.
            unsafe { say(connection, format_args!("no backend: {line}")) };
        }
        return value;
    }
    if let Some(Decision(backend)) = decision {
        return Some(*backend);
    }
    // SAFETY: as above.
    let port = unsafe { port(connection) };
    let copy = |id: &[u8]| {
        // SAFETY: the pool is alive, and lives as long as the peer.
        unsafe { concat((*connection).pool, &[id]) }
    };
    let found = port.and_then(|port| stream::backend_of_port(worker, port, copy).flatten());
    if found.is_none() {
        let port = port.map(|port| port.to_string());
        let port = port.as_deref().unwrap_or("of a Unix socket");
        // SAFETY: as above.
        unsafe { say(connection, format_args!("no backend for port {port}")) };
    }
    found
}

/// Writes an error line about a session; nginx adds whose it is.
///
/// # Safety
/// `connection` is the session's, open.
unsafe fn say(connection: *mut ngx_connection_t, line: Arguments<'_>) {
    // SAFETY: a connection has a log, which outlives it.
    unsafe {
        log::write(log::ERROR, Log::from_ptr((*connection).log), format_args!("ingress: {line}"))
    };
}

/// The port of this machine that a client has sent to.
///
/// # Safety
/// `connection` is a client's, open.
unsafe fn port(connection: *mut ngx_connection_t) -> Option<StreamPort> {
    // SAFETY: the caller has a live session, on the event loop.
    let number = unsafe {
        // A listener may have many ports, with transparent proxying.
        if ngx_connection_local_sockaddr(connection, null_mut(), 0) != NGX_OK as ngx_int_t {
            return None;
        }
        ngx_inet_get_port((*connection).local_sockaddr)
    };
    let number = NonZeroU16::new(number)?;
    // SAFETY: as above.
    Some(match unsafe { (*connection).type_ } {
        libc::SOCK_DGRAM => StreamPort::Udp(number),
        _ => StreamPort::Tcp(number),
    })
}

/// nginx's callback for an attempt: where to connect to.
unsafe extern "C" fn get_peer(attempt: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t {
    guard::contain("get_peer", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the attempt it is about to make; `data` is what `prepare` set, in a live session.
        let (attempt, peer) = unsafe { (&mut *attempt, &mut *data.cast::<Peer>()) };
        if peer.attempts == 0 {
            peer.limit = attempt.tries;
        }
        // SAFETY: the session is alive, on the event loop.
        let Some(choice) = (unsafe { peer.choose_allowed() }) else {
            peer.say_no_endpoint();
            // nginx ends the session with 502, without a line of its own.
            attempt.tries = 0;
            // SAFETY: of the configuration, which outlives the session; for `$upstream_addr`.
            attempt.name = unsafe { &raw mut (*peer.upstream).host };
            return NGX_DECLINED as ngx_int_t;
        };
        peer.in_flight.begin(peer.worker(), &choice.begun);
        (peer.name, peer.current) = (choice.name, choice.identity);
        let Some(name) = choice.name else {
            // SAFETY: the attempt has not begun for nginx, so nobody else ends it.
            unsafe { peer.end(true) };
            return NGX_ERROR as ngx_int_t;
        };
        attempt.tries = peer.attempts_left(choice.untried);
        let (address, length) = RawAddress::new(choice.address);
        (peer.address, attempt.socklen) = (address, length as _);
        attempt.sockaddr = (&raw mut peer.address).cast();
        attempt.name = name.as_ptr();
        NGX_OK as ngx_int_t
    })
}

/// All of these are called in callbacks, while the session is alive.
impl Peer {
    fn worker(&self) -> &'static Worker {
        // SAFETY: the worker lives until the process ends.
        unsafe { &*self.worker }
    }

    fn backend(&self) -> &[u8] {
        // SAFETY: set by `prepare`, in the session's pool or the configuration.
        unsafe { nginx::bytes(self.backend) }
    }

    fn choose(&self) -> Option<Choice<'static>> {
        if self.backend.len == 0 {
            return None;
        }
        peer::choose(self.worker(), &self.search(), |endpoint, begun, untried, generation| {
            // SAFETY: the session's pool is alive.
            unsafe {
                Choice::copy(
                    nginx::Pool::from_ptr((*self.connection).pool),
                    endpoint,
                    begun,
                    untried,
                    generation,
                )
            }
        })
    }

    /// Chooses, and passes over endpoints that no connection may lead to.
    ///
    /// # Safety
    /// The session is alive, on the event loop.
    unsafe fn choose_allowed(&mut self) -> Option<Choice<'static>> {
        for _ in 0..=MAX_DENIED {
            let choice = self.choose()?;
            let Some(denial) = self.worker().denial(choice.address) else { return Some(choice) };
            // SAFETY: the caller has a live session, on the event loop; a connection has a log.
            unsafe {
                let (backend, log) =
                    (nginx::bytes(self.backend), Log::from_ptr((*self.connection).log));
                self.in_flight.deny(&*self.worker, &choice, denial, backend, log);
                self.tried.push(nginx::Pool::from_ptr((*self.connection).pool), choice.identity);
            }
        }
        None
    }

    fn search(&self) -> Search<'_> {
        let key = if self.is_hashed { Key::Hash(self.hash) } else { Key::None };
        Search { backend: self.backend(), found: self.found, tried: self.tried.as_slice(), key }
    }

    /// Times of the attempt that is under way, in milliseconds: to its connection, to the first byte of its endpoint.
    ///
    /// # Safety
    /// The session is alive.
    unsafe fn times(&self) -> (Option<u64>, Option<u64>) {
        // SAFETY: nginx makes the upstream before a peer, and a state before an attempt.
        let state = unsafe { (*(*self.session).upstream).state.as_ref() };
        let time = |time: ngx_msec_t| (time != ngx_msec_t::MAX).then_some(time as u64);
        state.map_or((None, None), |s| (time(s.connect_time), time(s.first_byte_time)))
    }

    /// The attempt that is under way has ended: counts it.
    ///
    /// # Safety
    /// The session is alive.
    unsafe fn end(&mut self, is_failed: bool) {
        // SAFETY: the caller has a live session, on the event loop.
        let (connect, first_byte) = unsafe { self.times() };
        // SAFETY: a number of an open connection, which has a log; the name is in the session's pool.
        unsafe {
            let is_udp = (*self.connection).type_ == libc::SOCK_DGRAM;
            let (worker, name, log) =
                (self.worker(), self.name, Log::from_ptr((*self.connection).log));
            self.in_flight.end(worker, name, log, |began| {
                let milliseconds = now_milliseconds().saturating_sub(began);
                Attempt { is_failed, is_udp, milliseconds, connect, first_byte }.outcome()
            });
        }
    }

    /// Attempts that may still be made when `untried` endpoints are left.
    fn attempts_left(&self, untried: usize) -> ngx_uint_t {
        untried.min(self.limit.saturating_sub(self.attempts))
    }

    fn say_no_endpoint(&self) {
        let backend = self.backend().escape_ascii();
        if self.backend.len > 0 {
            let line = format_args!("no endpoint is left in backend \"{backend}\"");
            // SAFETY: the session is alive.
            unsafe { say(self.connection, line) };
        }
    }
}

/// nginx's callback after an attempt that failed, and at the end of the session.
unsafe extern "C" fn free_peer(
    attempt: *mut ngx_peer_connection_t,
    data: *mut c_void,
    state: ngx_uint_t,
) {
    guard::contain("free_peer", (), || {
        // SAFETY: as for `get_peer`.
        let peer = unsafe { &mut *data.cast::<Peer>() };
        let is_failed = state & NGX_PEER_FAILED as ngx_uint_t != 0;
        // SAFETY: nginx calls this once for each attempt.
        unsafe { peer.end(is_failed) };
        if !is_failed {
            return;
        }
        peer.attempts = peer.attempts.saturating_add(1);
        // SAFETY: the session's pool is alive.
        unsafe { peer.tried.push(nginx::Pool::from_ptr((*peer.connection).pool), peer.current) };
        let untried = peer::untried(peer.worker(), &peer.search());
        // SAFETY: nginx gives the attempt.
        unsafe { (*attempt).tries = peer.attempts_left(untried) };
    });
}

/// nginx's callback when an attempt has connected, which with UDP says nothing.
unsafe extern "C" fn notify_peer(_: *mut ngx_peer_connection_t, data: *mut c_void, _: ngx_uint_t) {
    guard::contain("notify_peer", (), || {
        // SAFETY: as for `get_peer`.
        let peer = unsafe { &mut *data.cast::<Peer>() };
        // SAFETY: the session is alive, with an open connection.
        let (is_tcp, (connect, _)) =
            unsafe { ((*peer.connection).type_ == libc::SOCK_STREAM, peer.times()) };
        if let (true, Some(begun), Some(milliseconds)) = (is_tcp, peer.in_flight.begun(), connect) {
            peer::connected(peer.worker(), &begun, milliseconds as f32 / 1_000.0);
        }
    });
}

unsafe extern "C" fn set_session(_: *mut ngx_peer_connection_t, _: *mut c_void) -> ngx_int_t {
    NGX_OK as ngx_int_t
}

unsafe extern "C" fn save_session(_: *mut ngx_peer_connection_t, _: *mut c_void) {}
