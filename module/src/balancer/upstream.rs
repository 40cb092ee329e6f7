//! Upstream peers: nginx's callbacks around one attempt to reach an endpoint.
#![allow(unsafe_code)]

use crate::balancer::attempt::Choice;
use crate::balancer::attempt::InFlight;
use crate::balancer::attempt::MAX_DENIED;
use crate::balancer::attempt::Name;
use crate::balancer::attempt::Tried;
use crate::balancer::idle::Settings;
use crate::balancer::keepalive;
use crate::balancer::peer;
use crate::balancer::peer::Key;
use crate::balancer::peer::Outcome;
use crate::balancer::peer::Search;
use crate::balancer::selection;
use crate::headers::fastcgi;
use crate::headers::interim;
use crate::headers::reverse;
use crate::module::directives;
use crate::request::Request;
use crate::request::route::Found;
use crate::spans;
use crate::system::guard;
use crate::system::log;
use crate::system::memory::now_milliseconds;
use crate::worker::Worker;
use crate::zone::retired;
use nginx::sys::{
    NGX_BUSY, NGX_DONE, NGX_ERROR, NGX_OK, ngx_conf_t, ngx_current_msec, ngx_exiting,
    ngx_handle_read_event, ngx_http_request_t, ngx_http_upstream_srv_conf_t, ngx_int_t,
    ngx_peer_connection_t, ngx_shm_zone_t, ngx_str_t, ngx_table_elt_t, ngx_terminate, ngx_uint_t,
};
use nginx::{Attempt, Outcome as Ended, RawAddress};
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::idle;
use oxigress_core::balancer::statistics::Failure;
use oxigress_store::KeyHash;
use std::ffi::c_void;
use std::ptr::{self, null_mut};

/// A request's peer, in its pool: what is chosen and what was tried.
struct Peer {
    worker: &'static Worker,
    /// It outlives its peer.
    request: *mut ngx_http_request_t,
    /// Of the request's pool or the configuration.
    backend: ngx_str_t,
    found: Found,
    /// The last attempt failed on a connection that was kept from before.
    has_failed_kept: bool,
    /// Endpoints asked again for that reason.
    asked_again: u8,
    attempts: u32,
    tried: Tried,
    name: *mut Name,
    address: RawAddress,
    current: Identity,
    in_flight: InFlight,
    /// What the endpoint is chosen by: 0 nothing, else as below.
    selected_by: u8,
    changes_on_failure: bool,
    key_hash: u32,
    /// Of the affinity cookie, in the request's headers; empty: it had none.
    key: ngx_str_t,
    /// The header that gives the client another cookie; null: none.
    set_cookie: *mut ngx_table_elt_t,
    /// The generation that `current` was chosen from.
    generation: u64,
    /// How connections are kept; `None`: nginx sees to that, or nobody.
    settings: Option<&'static Settings>,
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
    let decided = guard::contain("init_upstream", Err(nginx::Refused::Told), || {
        // SAFETY: nginx gives the upstream that it initialises, while the configuration is read.
        unsafe { keepalive::decide_keeper(nginx::Conf::from_ptr(cf), upstream) }
    });
    if decided.is_err() {
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
        let (raw, conf) =
            unsafe { (nginx::Request::from_ptr(request), directives::upstream_conf(upstream)) };
        let Some(peer) = prepare(raw, conf).and_then(|peer| raw.pool().alloc(peer)) else {
            return NGX_ERROR as ngx_int_t;
        };
        // SAFETY: nginx creates the upstream before it initialises the peer.
        let u = unsafe { &mut (*(*request).upstream).peer };
        u.data = ptr::from_mut(peer).cast();
        u.get = Some(get_peer);
        u.free = Some(free_peer);
        // The first attempt sets it to what there is.
        u.tries = 1;
        // nginx calls these unchecked for upstreams with TLS.
        u.set_session = Some(set_session);
        u.save_session = Some(save_session);
        NGX_OK as ngx_int_t
    })
}

/// `None`: the request cannot be sent, or memory is out. nginx has made the upstream.
fn prepare(raw: &nginx::Request, conf: &'static crate::conf::SrvConf) -> Option<Peer> {
    let seen = Request::of(raw)?;
    let worker = seen.worker();
    let mut peer = Peer {
        worker,
        request: raw.as_ptr(),
        backend: ngx_str_t::empty(),
        found: Found::default(),
        has_failed_kept: false,
        asked_again: 0,
        attempts: 0,
        tried: Tried::default(),
        name: null_mut(),
        address: RawAddress::none(),
        current: Identity::default(),
        in_flight: InFlight::default(),
        selected_by: 0,
        changes_on_failure: false,
        key_hash: 0,
        key: ngx_str_t::empty(),
        set_cookie: null_mut(),
        generation: 0,
        settings: None,
        protocol: 0,
        identity: 0,
    };
    if let Some(index) = conf.backend_variable() {
        if keepalive::mixes_handshakes(raw, conf.kept_by_nginx) {
            return None;
        }
        // Flushed: after an internal redirect the variable may say something else. A variable's text lies in the
        // request's pool or in the configuration.
        peer.backend = ngx_str_t::of(raw.flushed_variable(index)?);
    } else {
        // SAFETY: nginx has just written the request.
        unsafe { fastcgi::complete(raw.as_ptr(), &seen) }?;
        let Some(decision) = seen.decision() else {
            seen.log_error(format_args!(
                "\"ingress_balancer\" without a variable serves \"ingress_router\" locations only"
            ));
            return None;
        };
        peer.backend = ngx_str_t::of(decision.backend);
        peer.found = decision.found;
        // SAFETY: nginx creates the upstream before it initialises the peer.
        unsafe { reverse::install(raw.as_ptr(), &seen) };
        if conf.keep.connections != 0 {
            peer.settings = Some(&conf.keep);
            peer.protocol = raw.upstream()?.protocol();
            // SAFETY: alive, with the upstream that is being initialised.
            peer.identity = unsafe { worker.pools().identifier().of(raw.as_ptr()) }?;
        }
    }
    // SAFETY: nginx creates the upstream before it initialises the peer.
    unsafe { interim::install(raw.as_ptr(), &seen) }?;
    peer.select(&seen);
    Some(peer)
}

/// nginx's callback for an attempt: where to connect to.
unsafe extern "C" fn get_peer(attempt: *mut ngx_peer_connection_t, data: *mut c_void) -> ngx_int_t {
    guard::contain("get_peer", NGX_ERROR as ngx_int_t, || {
        // SAFETY: nginx gives the attempt it is about to make, and what `init_peer` set; the request is alive.
        let (attempt, peer) = unsafe { (Attempt::from_ptr(attempt), &mut *data.cast::<Peer>()) };
        peer.get(attempt) as ngx_int_t
    })
}

/// All of these are called in callbacks, while the request is alive.
impl Peer {
    fn request(&self) -> &nginx::Request {
        // SAFETY: alive as long as its peer, which lies in its pool.
        unsafe { nginx::Request::from_ptr(self.request) }
    }

    /// `NGX_OK`, `NGX_DONE` for a connection that was kept, `NGX_BUSY` or `NGX_ERROR`.
    fn get(&mut self, attempt: &Attempt) -> i32 {
        // Set for a kept connection, by us or by keepalive, and nobody else clears it.
        attempt.set_cached(false);
        // SAFETY: none.
        unsafe { attempt.set_connection(null_mut()) };
        let mut may_be_kept = true;
        let mut choice = self.choose_allowed();
        if choice.is_none() && self.has_failed_kept && self.asked_again < MAX_ASKED_AGAIN {
            self.asked_again += 1;
            self.tried.forget(self.current);
            choice = self.choose_allowed();
            // A new one says whether the endpoint is well.
            may_be_kept = false;
        }
        let Some(choice) = choice else {
            if peer::is_limit_reached(&self.search(), self.worker)
                && let Some(request) = Request::of(self.request())
            {
                request.set_busy();
            }
            return NGX_BUSY;
        };
        self.in_flight.begin(self.worker, &choice.begun);
        if let Some(key) = &choice.begun.new_key {
            self.give_cookie(key);
        }
        let Some(length) = self.take(&choice) else {
            // nginx calls `free` for an attempt with an address only.
            self.end(Ended(0));
            return NGX_ERROR;
        };
        if let Some(trace) = Request::of(self.request()).and_then(|request| spans::of(&request)) {
            trace.begin_attempt();
        }
        attempt.set_tries(self.attempts_left(choice.untried));
        // SAFETY: the address is the peer's, and `take` made the name, both in the request's pool.
        unsafe {
            attempt.lead_to(&raw mut self.address, length, &raw mut (*self.name).text);
        }
        if may_be_kept && self.take_kept(attempt) { NGX_DONE } else { NGX_OK as i32 }
    }

    fn backend(&self) -> (&[u8], Found) {
        // SAFETY: set by `prepare`, in the request's pool or the configuration.
        (unsafe { nginx::bytes(self.backend) }, self.found)
    }

    fn choose(&self) -> Option<Choice> {
        let pool = self.request().pool();
        peer::choose(self.worker, &self.search(), |endpoint, begun, untried, generation| {
            Choice::copy(pool, endpoint, begun, untried, generation)
        })
    }

    /// Chooses, and passes over endpoints that no connection may lead to.
    #[inline]
    fn choose_allowed(&mut self) -> Option<Choice> {
        for _ in 0..=MAX_DENIED {
            let choice = self.choose()?;
            let Some(denial) = self.worker.denial(choice.address) else { return Some(choice) };
            // SAFETY: alive as long as its peer, which lies in its pool.
            let request = unsafe { nginx::Request::from_ptr(self.request) };
            // SAFETY: the backend was set by `prepare`, in the request's pool or the configuration; the choice was copied
            // into that pool.
            unsafe {
                let backend = nginx::bytes(self.backend);
                self.in_flight.deny(self.worker, &choice, denial, backend, request.log());
            }
            self.tried.push(request.pool(), choice.identity);
        }
        None
    }

    fn search(&self) -> Search<'_> {
        let (backend, found) = self.backend();
        // SAFETY: of the request's headers, which live as long as it.
        let cookie = unsafe { nginx::bytes(self.key) };
        let is_new = cookie.is_empty() || self.changes_on_failure && self.attempts > 0;
        let key = match self.selected_by {
            BY_HASH => Key::Hash(self.key_hash),
            BY_COOKIE => Key::Affinity(Some(cookie).filter(|_| !is_new)),
            _ => Key::None,
        };
        Search { backend, found, tried: self.tried.as_slice(), key }
    }

    /// Looks at the request for what the backend's record asks for.
    fn select(&mut self, request: &Request<'_>) {
        let mut found = self.found;
        if found.is_plain {
            return;
        }
        let guard = self.worker.reader().read();
        let has_more = peer::find(&guard, self.backend().0, &mut found);
        self.found = found;
        if !has_more {
            return;
        }
        let backend = self.backend().0;
        let decided = found.place.generation();
        let Some(mut record) = retired::backend(&guard, backend, decided) else { return };
        // The router has decided on an alternative already.
        let alternative = match request.decision() {
            Some(_) => None,
            None => selection::alternative(request, &guard, &record),
        };
        if let Some(copy) = alternative.and_then(|id| request.set_alternative(id)) {
            (self.backend, self.found) = (ngx_str_t::of(copy), Found::default());
            let Some(other) = retired::backend(&guard, copy, 0) else { return };
            record = other;
        }
        let selection = selection::of(request, &record);
        drop(guard);
        self.changes_on_failure = selection.changes_on_failure;
        match selection.key {
            Key::None => {}
            Key::Hash(hash) => (self.selected_by, self.key_hash) = (BY_HASH, hash),
            Key::Affinity(key) => {
                let key = key.unwrap_or_default();
                self.selected_by = BY_COOKIE;
                self.key = ngx_str_t::of(key);
            }
        }
    }

    /// Gives the client another cookie; one for all attempts. What it is answered with is not known yet.
    fn give_cookie(&mut self, key: &[u8]) {
        let Some(request) = Request::of(self.request()) else { return };
        let (backend, found) = self.backend();
        let decided = found.place.generation();
        let Some(text) = selection::set_cookie(&request, backend, decided, key) else { return };
        // SAFETY: null, or the header that was added below, in the request's pool.
        match unsafe { nginx::Header::from_nullable(self.set_cookie) } {
            None => {
                let header = self.request().push_response_header(b"Set-Cookie", text.as_bytes());
                self.set_cookie = header.map_or(null_mut(), nginx::Header::as_ptr);
            }
            Some(header) => {
                self.request().set_response_value(header, &[text.as_bytes()]);
            }
        }
    }

    /// The attempt that is under way has ended, as nginx says: counts it.
    #[inline]
    fn end(&mut self, ended: Ended) {
        // SAFETY: alive as long as its peer, which lies in its pool.
        let request = unsafe { nginx::Request::from_ptr(self.request) };
        let upstream = request.upstream();
        // SAFETY: null, or made by `take`, in the request's pool.
        unsafe {
            self.in_flight.end(self.worker, self.name, request.log(), |began| {
                outcome(upstream, ended, began)
            });
        }
    }

    /// Attempts that may still be made when `untried` endpoints are left: `proxy_next_upstream_tries` counts
    /// all of a request's.
    fn attempts_left(&self, untried: usize) -> usize {
        match self.request().upstream().map_or(0, nginx::Upstream::tries) {
            0 => untried,
            limit => untried.min(limit.saturating_sub(self.attempts as usize)),
        }
    }

    /// Keeps a choice for nginx to point at; answers the length of its address, `None` when memory is out.
    fn take(&mut self, choice: &Choice) -> Option<usize> {
        if choice.name.is_null() {
            return None;
        }
        self.name = choice.name;
        self.current = choice.identity;
        self.generation = choice.generation;
        let (address, length) = RawAddress::new(choice.address);
        self.address = address;
        Some(length)
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
    #[inline]
    fn take_kept(&self, attempt: &Attempt) -> bool {
        let Some(settings) = self.settings else { return false };
        let (here, log) = (self.request().event_loop(), attempt.log().as_ptr());
        // SAFETY: the request's log outlives its attempts.
        let kept = unsafe { self.worker.pools().take(here, settings.number, &self.key(), log) };
        if kept.is_null() {
            return false;
        }
        // SAFETY: open, and out of the pool.
        unsafe { attempt.set_connection(kept) };
        attempt.set_cached(true);
        true
    }

    /// Keeps the connection of an attempt that is over, if it is good for another.
    #[inline]
    fn keep(&self, attempt: &Attempt, ended: Ended) {
        let Some(settings) = self.settings else { return };
        let connection = attempt.connection();
        if ended.is_failed() || connection.is_null() {
            return;
        }
        let Some(upstream) = self.request().upstream() else { return };
        // SAFETY: open, and nginx has done with it.
        let is_kept = unsafe {
            is_good(connection, settings, upstream)
                && self.worker.pools().put(settings, self.key(), self.generation, connection)
        };
        if is_kept {
            // SAFETY: none.
            unsafe { attempt.set_connection(null_mut()) };
        }
    }

    /// nginx has done with the attempt.
    fn free(&mut self, attempt: &Attempt, ended: Ended) {
        self.end(ended);
        self.keep(attempt, ended);
        if ended == Ended(0) {
            return;
        }
        self.has_failed_kept = attempt.is_cached();
        self.attempts = self.attempts.saturating_add(1);
        // SAFETY: alive as long as its peer, which lies in its pool.
        let pool = unsafe { nginx::Request::from_ptr(self.request) }.pool();
        self.tried.push(pool, self.current);
        let untried = peer::untried(self.worker, &self.search());
        // For an error on a kept connection nginx adds one by itself.
        attempt.set_tries(self.attempts_left(untried));
    }
}

/// How an attempt ended. nginx says how long it took only of one that ended well.
#[inline]
fn outcome(upstream: Option<&nginx::Upstream>, ended: Ended, began: u64) -> Outcome {
    let status = upstream.map_or(0, nginx::Upstream::status);
    let state = upstream.and_then(nginx::Upstream::state);
    let connect = state.and_then(nginx::State::connect_milliseconds);
    let response = state.and_then(nginx::State::response_milliseconds);
    let elapsed = now_milliseconds().saturating_sub(began);
    // The reference counts the time to connect twice, and so do its clients' averages.
    let milliseconds = connect.zip(response).map_or(elapsed, |(connect, all)| connect + all);
    let failure = if ended.is_failed() {
        let is_connected = connect.is_some();
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
    upstream: &nginx::Upstream,
) -> bool {
    // SAFETY: the caller has an open connection and its request; a connection has its two events. The numbers are nginx's own.
    unsafe {
        let (read, write) = ((*connection).read, (*connection).write);
        let has_ended = (*read).eof() | (*read).error() | (*read).timedout();
        has_ended | (*write).error() | (*write).timedout() == 0
            && (*connection).requests < settings.requests
            && ngx_current_msec.wrapping_sub((*connection).start_time) <= settings.time_msec
            && upstream.keeps_alive()
            && upstream.is_request_sent()
            && ngx_terminate == 0
            && ngx_exiting == 0
            && ngx_handle_read_event(read, 0) == NGX_OK as ngx_int_t
    }
}

/// nginx's callback after an attempt; `state` is 0 if it went well. nginx calls it once for each.
unsafe extern "C" fn free_peer(
    attempt: *mut ngx_peer_connection_t,
    data: *mut c_void,
    state: ngx_uint_t,
) {
    guard::contain("free_peer", (), || {
        // SAFETY: nginx gives the attempt that is over, and what `init_peer` set; the request is alive.
        let (attempt, peer) = unsafe { (Attempt::from_ptr(attempt), &mut *data.cast::<Peer>()) };
        peer.free(attempt, Ended(state));
    });
}

pub unsafe extern "C" fn set_session(_: *mut ngx_peer_connection_t, _: *mut c_void) -> ngx_int_t {
    NGX_OK as ngx_int_t
}

pub unsafe extern "C" fn save_session(_: *mut ngx_peer_connection_t, _: *mut c_void) {}
