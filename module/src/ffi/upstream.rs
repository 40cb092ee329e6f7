//! Upstream peers: nginx's callbacks around one attempt to reach an endpoint.

use super::Found;
use super::Request;
use super::attempt::{Address, Choice, InFlight, MAX_DENIED, Name, Tried};
use super::memory::now_milliseconds;
use super::pool::{self, Settings};
use super::worker::{self, Worker};
use super::{directives, fastcgi, guard, interim, keepalive, log, memory, reverse};
use crate::peer::{self, Key, Outcome, Search};
use crate::{retired, selection};
use nginx::EventLoop;
use nginx::log::Log;
use nginx::sys::{
    NGX_BUSY, NGX_DONE, NGX_ERROR, NGX_OK, NGX_PEER_FAILED, ngx_conf_t, ngx_current_msec,
    ngx_exiting, ngx_handle_read_event, ngx_http_request_t, ngx_http_upstream_srv_conf_t,
    ngx_http_upstream_t, ngx_int_t, ngx_msec_t, ngx_peer_connection_t, ngx_shm_zone_t, ngx_str_t,
    ngx_table_elt_t, ngx_terminate, ngx_uint_t,
};
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::idle;
use oxigress_core::balancer::statistics::Failure;
use oxigress_store::KeyHash;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A request's peer, in its pool: what is chosen and what was tried.
#[repr(C)]
struct Peer {
    worker: *const Worker,
    request: *mut ngx_http_request_t,
    backend: ngx_str_t,
    found: Found,
    /// The last attempt failed on a connection that was kept from before.
    has_failed_kept: bool,
    /// Endpoints asked again for that reason.
    asked_again: u8,
    attempts: u32,
    tried: Tried,
    name: *mut Name,
    address: Address,
    current: Identity,
    in_flight: InFlight,
    /// What the endpoint is chosen by: 0 nothing, else as below.
    selected_by: u8,
    changes_on_failure: bool,
    key_hash: u32,
    /// Of the affinity cookie; empty: it had none.
    key: ngx_str_t,
    /// The header that gives the client another cookie; null: none.
    set_cookie: *mut ngx_table_elt_t,
    /// The generation that `current` was chosen from.
    generation: u64,
    /// How connections are kept; null: nginx sees to that, or nobody.
    settings: *const Settings,
    protocol: u64,
    /// Of the TLS handshake and the local address.
    identity: u64,
}

const BY_HASH: u8 = 1;
const BY_COOKIE: u8 = 2;

/// A kept connection may have been closed by an endpoint that is well. When no other endpoint is left, one
/// that failed on a kept connection is asked again, this often.
const MAX_ASKED_AGAIN: u8 = 3;

/// `None`, and a line in the log, for an upstream with a zone of nginx's: it would copy peers of its own into
/// that, and there are none.
pub fn refuse_zone(zone: *mut ngx_shm_zone_t) -> Option<()> {
    if zone.is_null() {
        return Some(());
    }
    let line = "\"ingress_balancer\" has its own shared memory: remove \"zone\" from the upstream";
    log::cycle(log::EMERG, format_args!("{line}"));
    None
}

/// nginx's callback for an upstream block: says what to call for each request.
pub unsafe extern "C" fn init_upstream(
    cf: *mut ngx_conf_t,
    upstream: *mut ngx_http_upstream_srv_conf_t,
) -> ngx_int_t {
    // SAFETY: nginx gives the upstream that it initialises.
    if refuse_zone(unsafe { (*upstream).shm_zone }).is_none() {
        return NGX_ERROR as ngx_int_t;
    }
    // SAFETY: as above, while the configuration is read.
    if unsafe { keepalive::decide_keeper(nginx::Conf::from_ptr(cf), upstream) }.is_err() {
        return NGX_ERROR as ngx_int_t;
    }
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
    let (worker, pool) = unsafe { (worker::current(EventLoop::here())?, (*request).pool) };
    // SAFETY: the pool is alive; zeroes are a value of every field.
    let peer = unsafe { memory::zeroed::<Peer>(pool).as_mut() }?;
    peer.found = Found::default();
    peer.worker = worker;
    peer.request = request;
    // SAFETY: vouched for by the caller.
    let conf = unsafe { directives::upstream_conf(upstream) };
    // SAFETY: vouched for by the caller.
    let raw = unsafe { nginx::Request::from_ptr(request) };
    if let Some(index) = conf.backend_variable() {
        if keepalive::mixes_handshakes(raw, conf.kept_by_nginx) {
            return None;
        }
        // Flushed: after an internal redirect the variable may say something else. A variable's text lies in the
        // request's pool or in the configuration.
        peer.backend = text(raw.flushed_variable(index)?);
    } else {
        // SAFETY: as above.
        let seen = unsafe { Request::from_callback(request) }?;
        // SAFETY: as above; nginx has just written the request.
        unsafe { fastcgi::complete(request, &seen) }?;
        let Some(decision) = seen.decision() else {
            let line = format_args!(
                "\"ingress_balancer\" without a variable serves \"ingress_router\" locations only"
            );
            // SAFETY: a request has a connection with a log.
            unsafe { log::write(log::ERROR, Log::from_ptr((*(*request).connection).log), line) };
            return None;
        };
        let backend = decision.backend;
        peer.backend = text(backend);
        peer.found = decision.found;
        // SAFETY: nginx creates the upstream before it initialises the peer.
        unsafe { reverse::install(request, &seen) };
        if conf.keep.connections != 0 {
            peer.settings = &raw const conf.keep;
            // SAFETY: the request is alive, with the upstream that is being initialised.
            peer.protocol = unsafe { pool::protocol(request) };
            // SAFETY: as above.
            peer.identity = unsafe { worker.pools().identifier().of(request) }?;
        }
    }
    // SAFETY: vouched for by the caller.
    let seen = unsafe { Request::from_callback(request) }?;
    // SAFETY: nginx creates the upstream before it initialises the peer.
    unsafe { interim::install(request, &seen) }?;
    // SAFETY: vouched for by the caller.
    unsafe { peer.select(request) };
    // SAFETY: nginx creates the upstream before it initialises the peer.
    let u = unsafe { &mut (*(*request).upstream).peer };
    u.data = (&raw mut *peer).cast();
    u.get = Some(get_peer);
    u.free = Some(free_peer);
    // The first attempt sets it to what there is.
    u.tries = 1;
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
        // Set for a kept connection, by us or by keepalive, and nobody else clears it.
        // SAFETY: nginx gives the connection it is about to make.
        unsafe {
            (*connection).set_cached(0);
            (*connection).connection = null_mut();
        }
        let mut may_be_kept = true;
        // SAFETY: the request is alive, on the event loop.
        let mut choice = unsafe { peer.choose_allowed() };
        if choice.is_none() && peer.has_failed_kept && peer.asked_again < MAX_ASKED_AGAIN {
            peer.asked_again += 1;
            peer.tried.forget(peer.current);
            // SAFETY: as above.
            choice = unsafe { peer.choose_allowed() };
            // A new one says whether the endpoint is well.
            may_be_kept = false;
        }
        let Some(choice) = choice else {
            // SAFETY: the request is alive, on the event loop.
            let request = unsafe { Request::from_callback(peer.request) };
            if let Some(request) =
                request.filter(|_| peer::is_limit_reached(&peer.search(), peer.worker()))
            {
                request.set_busy();
            }
            return NGX_BUSY as ngx_int_t;
        };
        peer.in_flight.begin(peer.worker(), &choice.begun);
        if let Some(key) = &choice.begun.new_key {
            // SAFETY: the request is alive, and what it is answered with is not known yet.
            unsafe { peer.give_cookie(key) };
        }
        let Some(length) = peer.take(&choice) else {
            // nginx calls `free` for an attempt with an address only.
            // SAFETY: the attempt that began above.
            unsafe { peer.end(0) };
            return NGX_ERROR as ngx_int_t;
        };
        let tries = peer.attempts_left(choice.untried);
        // SAFETY: as above.
        let connection = unsafe { &mut *connection };
        connection.tries = tries;
        connection.sockaddr = (&raw mut peer.address).cast();
        connection.socklen = length as _;
        // SAFETY: `take` made it, in the request's pool.
        connection.name = unsafe { &raw mut (*peer.name).text };
        // SAFETY: the request's log outlives its attempts.
        if may_be_kept && unsafe { peer.take_kept(connection) } {
            return NGX_DONE as ngx_int_t;
        }
        NGX_OK as ngx_int_t
    })
}

/// All of these are called in callbacks, while the request is alive.
impl Peer {
    fn worker(&self) -> &'static Worker {
        // SAFETY: the worker lives until the process ends.
        unsafe { &*self.worker }
    }

    fn backend(&self) -> (&[u8], Found) {
        // SAFETY: set by `prepare`, in the request's pool or the configuration.
        let backend = unsafe { memory::bytes(self.backend) };
        (backend, self.found)
    }

    fn choose(&self) -> Option<Choice> {
        peer::choose(self.worker(), &self.search(), |endpoint, begun, untried, generation| {
            // SAFETY: the request's pool is alive.
            unsafe { Choice::copy((*self.request).pool, endpoint, begun, untried, generation) }
        })
    }

    /// Chooses, and passes over endpoints that no connection may lead to.
    ///
    /// # Safety
    /// The request is alive, on the event loop.
    #[inline]
    unsafe fn choose_allowed(&mut self) -> Option<Choice> {
        for _ in 0..=MAX_DENIED {
            let choice = self.choose()?;
            let Some(denial) = self.worker().denial(choice.address) else { return Some(choice) };
            // SAFETY: vouched for by the caller; a request has a connection with a log.
            unsafe {
                let (backend, log) =
                    (memory::bytes(self.backend), Log::from_ptr((*(*self.request).connection).log));
                self.in_flight.deny(&*self.worker, &choice, denial, backend, log);
                self.tried.push((*self.request).pool, choice.identity);
            }
        }
        None
    }

    fn search(&self) -> Search<'_> {
        let (backend, found) = self.backend();
        // SAFETY: of the request's headers, which live as long as it.
        let cookie = unsafe { memory::bytes(self.key) };
        let is_new = cookie.is_empty() || self.changes_on_failure && self.attempts > 0;
        let key = match self.selected_by {
            BY_HASH => Key::Hash(self.key_hash),
            BY_COOKIE => Key::Affinity(Some(cookie).filter(|_| !is_new)),
            _ => Key::None,
        };
        Search { backend, found, tried: self.tried.as_slice(), key }
    }

    /// Looks at the request for what the backend's record asks for.
    ///
    /// # Safety
    /// `request` is alive and the peer's, on the event loop.
    unsafe fn select(&mut self, request: *mut ngx_http_request_t) {
        let mut found = self.found;
        if found.is_plain {
            return;
        }
        let guard = self.worker().reader().read();
        let has_more = peer::find(&guard, self.backend().0, &mut found);
        self.found = found;
        if !has_more {
            return;
        }
        let backend = self.backend().0;
        let decided = found.place.generation();
        let Some(mut record) = retired::backend(&guard, backend, decided) else { return };
        // SAFETY: vouched for by the caller.
        let Some(request) = (unsafe { Request::from_callback(request) }) else { return };
        // The router has decided on an alternative already.
        let alternative = match request.decision() {
            Some(_) => None,
            None => selection::alternative(&request, &guard, &record),
        };
        if let Some(copy) = alternative.and_then(|id| request.set_alternative(id)) {
            (self.backend, self.found) = (text(copy), Found::default());
            let Some(other) = retired::backend(&guard, copy, 0) else { return };
            record = other;
        }
        let selection = selection::of(&request, &record);
        drop(guard);
        self.changes_on_failure = selection.changes_on_failure;
        match selection.key {
            Key::None => {}
            Key::Hash(hash) => (self.selected_by, self.key_hash) = (BY_HASH, hash),
            Key::Affinity(key) => {
                let key = key.unwrap_or_default();
                self.selected_by = BY_COOKIE;
                self.key = text(key);
            }
        }
    }

    /// Gives the client another cookie; one for all attempts.
    ///
    /// # Safety
    /// The request is alive and its header was not sent.
    unsafe fn give_cookie(&mut self, key: &[u8]) {
        // SAFETY: vouched for by the caller.
        let Some(request) = (unsafe { Request::from_callback(self.request) }) else { return };
        let (backend, found) = self.backend();
        let decided = found.place.generation();
        let Some(text) = selection::set_cookie(&request, backend, decided, key) else { return };
        if self.set_cookie.is_null() {
            let header = request.nginx().push_response_header(b"Set-Cookie", text.as_bytes());
            self.set_cookie = header.map_or(null_mut(), |header| header.as_ptr());
            return;
        }
        // SAFETY: the pool is alive, and the header is in it.
        unsafe {
            if let Some(value) = memory::concat((*self.request).pool, &[text.as_bytes()]) {
                (*self.set_cookie).value = value;
            }
        }
    }

    /// The attempt that is under way has ended: counts it.
    ///
    /// # Safety
    /// nginx has done with the attempt, and `state` is what it says about it.
    #[inline]
    unsafe fn end(&mut self, state: ngx_uint_t) {
        let (worker, name) = (self.worker(), self.name.cast_const());
        // SAFETY: `take` made the name, in the request's pool; a request with a peer has an upstream, an attempt a
        // state, and a connection a log.
        unsafe {
            let (upstream, log) =
                ((*self.request).upstream, Log::from_ptr((*(*self.request).connection).log));
            self.in_flight.end(worker, name, log, |began| outcome(upstream, state, began));
        }
    }

    /// Attempts that may still be made when `untried` endpoints are left: `proxy_next_upstream_tries` counts
    /// all of a request's.
    fn attempts_left(&self, untried: usize) -> ngx_uint_t {
        // SAFETY: a request with a peer has an upstream with a configuration.
        let limit = unsafe { (*(*(*self.request).upstream).conf).next_upstream_tries };
        if limit == 0 { untried } else { untried.min(limit.saturating_sub(self.attempts as usize)) }
    }

    /// Keeps a choice for nginx to point at; answers the length of its address, `None` when memory is out.
    fn take(&mut self, choice: &Choice) -> Option<usize> {
        if choice.name.is_null() {
            return None;
        }
        self.name = choice.name;
        self.current = choice.identity;
        self.generation = choice.generation;
        Some(self.address.write(choice.address))
    }

    fn settings(&self) -> Option<&'static Settings> {
        // SAFETY: null, or of the configuration, which outlives the requests.
        unsafe { self.settings.as_ref() }
    }

    fn key(&self) -> idle::Key {
        idle::Key {
            backend: self.found.hash.map_or(0, KeyHash::to_bits),
            protocol: self.protocol,
            identity: self.identity,
            endpoint: self.current,
        }
    }

    /// Lets nginx use an idle connection to the current endpoint; `false` if there is none.
    ///
    /// # Safety
    /// `attempt` is the request's, with its log.
    #[inline]
    unsafe fn take_kept(&self, attempt: &mut ngx_peer_connection_t) -> bool {
        let Some(settings) = self.settings() else { return false };
        // SAFETY: vouched for by the caller.
        let kept = unsafe {
            self.worker().pools().take(EventLoop::here(), settings.number, &self.key(), attempt.log)
        };
        if kept.is_null() {
            return false;
        }
        attempt.connection = kept;
        attempt.set_cached(1);
        true
    }

    /// Keeps the connection of an attempt that is over, if it is good for another.
    ///
    /// # Safety
    /// `attempt` is the request's, and nginx has done with it.
    #[inline]
    unsafe fn keep(&self, attempt: &mut ngx_peer_connection_t, state: ngx_uint_t) {
        let Some(settings) = self.settings() else { return };
        if state & NGX_PEER_FAILED as ngx_uint_t != 0 || attempt.connection.is_null() {
            return;
        }
        // SAFETY: open, and vouched for by the caller.
        let is_kept = unsafe {
            is_good(attempt.connection.cast(), settings, (*self.request).upstream.cast())
                && self.worker().pools().put(
                    settings,
                    self.key(),
                    self.generation,
                    attempt.connection,
                )
        };
        if is_kept {
            attempt.connection = null_mut();
        }
    }
}

/// nginx's form of a text that lives as long as the request.
fn text(text: &[u8]) -> ngx_str_t {
    ngx_str_t { len: text.len(), data: text.as_ptr().cast_mut() }
}

/// How an attempt ended. nginx says how long it took only of one that ended well.
///
/// # Safety
/// `upstream` is alive, with the state of the attempt.
#[inline]
unsafe fn outcome(upstream: *mut ngx_http_upstream_t, state: ngx_uint_t, began: u64) -> Outcome {
    const NOT_YET: ngx_msec_t = ngx_msec_t::MAX;
    // SAFETY: vouched for by the caller.
    let (status, took) = unsafe { ((*upstream).headers_in.status_n, (*upstream).state.as_ref()) };
    let connect = took.map_or(NOT_YET, |took| took.connect_time);
    let response = took.map_or(NOT_YET, |took| took.response_time);
    let elapsed = now_milliseconds().saturating_sub(began);
    let milliseconds = match (connect, response) {
        // The reference counts the time to connect twice, and so do its clients' averages.
        (connect, response) if connect != NOT_YET && response != NOT_YET => {
            (connect + response) as u64
        }
        _ => elapsed,
    };
    let failure = if state & NGX_PEER_FAILED as ngx_uint_t != 0 {
        let is_connected = connect != NOT_YET;
        Some(if is_connected { Failure::Answer } else { Failure::Connect })
    } else if (502..=504).contains(&status) {
        Some(Failure::Answer)
    } else {
        None
    };
    let is_answered = failure.is_none() && status != 0;
    Outcome { failure, seconds: milliseconds as f32 / 1_000.0, is_answered }
}

/// Whether a connection may serve another request: nginx's conditions, in its order.
///
/// # Safety
/// `connection` is open, `upstream` is of the request it served.
#[inline]
unsafe fn is_good(
    connection: *mut nginx::sys::ngx_connection_s,
    settings: &Settings,
    upstream: *mut nginx::sys::ngx_http_upstream_s,
) -> bool {
    // SAFETY: vouched for by the caller; a connection has its two events. The numbers are nginx's own.
    unsafe {
        let (read, write) = ((*connection).read, (*connection).write);
        let has_ended = (*read).eof() | (*read).error() | (*read).timedout();
        has_ended | (*write).error() | (*write).timedout() == 0
            && (*connection).requests < settings.requests
            && ngx_current_msec.wrapping_sub((*connection).start_time) <= settings.time_msec
            && (*upstream).keepalive() != 0
            && (*upstream).request_body_sent() != 0
            && ngx_terminate == 0
            && ngx_exiting == 0
            && ngx_handle_read_event(read.cast(), 0) == NGX_OK as ngx_int_t
    }
}

/// nginx's callback after an attempt; `state` is 0 if it went well.
unsafe extern "C" fn free_peer(
    connection: *mut ngx_peer_connection_t,
    data: *mut c_void,
    state: ngx_uint_t,
) {
    guard::contain("free_peer", (), || {
        // SAFETY: as for `get_peer`.
        let peer = unsafe { &mut *data.cast::<Peer>() };
        // SAFETY: nginx calls this once for each attempt.
        unsafe { peer.end(state) };
        if !peer.settings.is_null() {
            // SAFETY: nginx gives the connection of the attempt.
            unsafe { peer.keep(&mut *connection, state) };
        }
        if state == 0 {
            return;
        }
        // SAFETY: nginx gives a live struct.
        peer.has_failed_kept = unsafe { (*connection).cached() != 0 };
        peer.attempts = peer.attempts.saturating_add(1);
        // SAFETY: the request's pool is alive.
        unsafe { peer.tried.push((*peer.request).pool, peer.current) };
        let untried = peer::untried(peer.worker(), &peer.search());
        // For an error on a kept connection nginx adds one by itself.
        let tries = peer.attempts_left(untried);
        // SAFETY: nginx gives the connection of the attempt.
        unsafe { (*connection).tries = tries };
    });
}

pub unsafe extern "C" fn set_session(_: *mut ngx_peer_connection_t, _: *mut c_void) -> ngx_int_t {
    NGX_OK as ngx_int_t
}

pub unsafe extern "C" fn save_session(_: *mut ngx_peer_connection_t, _: *mut c_void) {}
