//! Upstream peers: nginx's callbacks around one attempt to reach an endpoint.

use crate::balancer::attempt::{ChosenEndpoint, InFlight, MAX_DENIED, Tried};
use crate::balancer::choose::{self, Search, SelectBy};
use crate::balancer::keepalive;
use crate::balancer::outcome::AttemptOutcome;
use crate::balancer::selection;
use crate::conf::{Http, Keepalive, SrvConf};
use crate::headers::{fastcgi, interim, reverse};
use crate::request::Request;
use crate::request::route::EndpointSetRef;
use crate::request::spans;
use crate::route;
use crate::system::log;
use crate::system::memory::now_milliseconds;
use crate::worker::Worker;
use nginx::event::{is_exiting, is_terminating};
use nginx::sys::{NGX_HTTP_GET, NGX_HTTP_HEAD, NGX_HTTP_OPTIONS, NGX_HTTP_UPSTREAM_FT_ERROR};
use nginx::{
    Attempt, Code, Header, NewUpstream, Outcome, PeerName, Refused, Upstream, UpstreamBlock,
    UpstreamConf,
};
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::attempts::{Attempts, Bounds};
use oxigress_core::balancer::idle;
use oxigress_core::balancer::statistics::Failure;
use oxigress_core::model::policy::Proxy;
use oxigress_store::KeyHash;

/// Balances the requests of upstreams with `ingress_balancer`.
pub struct Requests;

/// A request's peer, in its pool: what is chosen and what was tried.
pub struct Peer<'r> {
    request: Request<'r>,
    /// Of the request's pool or the configuration.
    backend: &'r [u8],
    endpoint_set: EndpointSetRef,
    /// The last attempt failed on a connection that was kept from before.
    has_failed_kept: bool,
    /// Endpoints asked again for that reason.
    asked_again: u8,
    attempts: Attempts,
    /// The backend is the one of the request's rule, and not a variable's.
    is_of_rule: bool,
    /// Settings of the request's own, whose timeouts are what is left of the time for all attempts.
    own_conf: Option<&'r UpstreamConf>,
    tried: Tried<'r>,
    name: Option<&'r PeerName>,
    current: Identity,
    in_flight: InFlight,
    /// What the endpoint is chosen by.
    selected_by: SelectedBy<'r>,
    changes_on_failure: bool,
    /// The header that gives the client another cookie.
    set_cookie: Option<&'r Header>,
    /// The generation that `current` was chosen from.
    generation: u64,
    /// How connections are kept; `None`: nginx sees to that, or nobody.
    settings: Option<&'r Keepalive>,
    protocol: u64,
    /// Stands for TLS settings and local address: a kept connection must have the same.
    identity: u64,
}

/// What an endpoint is chosen by.
#[derive(Clone, Copy, Default)]
enum SelectedBy<'r> {
    #[default]
    Nothing,
    Hash(u32),
    /// The affinity cookie in the request's headers; empty: it had none.
    Cookie(&'r [u8]),
}

/// A kept connection may have been closed by an endpoint that is well. When no other endpoint is left, one
/// that failed on a kept connection is asked again, this often.
const MAX_ASKED_AGAIN: u8 = 3;

/// nginx's bits of the methods that an endpoint may get twice, since they change nothing (RFC 9110 §9.2.1).
const SAFE_METHODS: usize = (NGX_HTTP_GET | NGX_HTTP_HEAD | NGX_HTTP_OPTIONS) as usize;

/// Refuses an upstream with a zone of nginx's: it would copy peers of its own into that, and there are none.
pub fn refuse_zone(has_zone: bool) -> Result<(), Refused> {
    if !has_zone {
        return Ok(());
    }
    let line = "\"ingress_balancer\" has its own shared memory: remove \"zone\" from the upstream";
    log::cycle(log::EMERG, format_args!("{line}"));
    Err(Refused::Told)
}

impl nginx::Balancer for Requests {
    const NAME: &'static str = "ingress_balancer";
    type Peer<'r> = Peer<'r>;

    fn init(upstream: &mut NewUpstream<'_>) -> Result<(), Refused> {
        refuse_zone(upstream.block().has_zone())?;
        keepalive::decide_keeper(upstream)
    }

    fn peer<'r>(request: &'r nginx::Request, block: &'r UpstreamBlock) -> Option<Peer<'r>> {
        prepare(request, block.conf::<Http>())
    }
}

/// `None`: the request cannot be sent, or memory is out. nginx has made the upstream.
///
/// The peer is put together at the end, so that it is written once.
#[inline]
fn prepare<'r>(raw: &'r nginx::Request, conf: &'r SrvConf) -> Option<Peer<'r>> {
    let request = Request::of(raw)?;
    let (mut settings, mut protocol, mut identity) = (None, 0, 0);
    let mut chosen = Selected::default();
    if let Some(index) = conf.backend_variable() {
        if keepalive::mixes_handshakes(raw, conf.kept_by_nginx) {
            return None;
        }
        // Flushed: after an internal redirect the variable may say something else.
        chosen.backend = raw.flushed_variable(index)?;
    } else {
        // nginx has just written the request.
        fastcgi::complete(&request)?;
        let Some(served) = request.served_by() else {
            request.log_error(format_args!(
                "\"ingress_balancer\" without a variable serves \"ingress_router\" locations only"
            ));
            return None;
        };
        reverse::install(&request);
        if conf.keep.connections != 0 {
            let upstream = raw.upstream()?;
            settings = Some(&conf.keep);
            protocol = upstream.protocol();
            identity = request.worker().pools().identifier().of(raw, upstream)?;
        }
        (chosen.backend, chosen.endpoint_set) = served;
    }
    interim::install(&request)?;
    if !chosen.endpoint_set.is_plain {
        chosen.select(&request);
    }
    let Selected { backend, endpoint_set, by: selected_by, changes_on_failure } = chosen;
    Some(Peer {
        request,
        backend,
        endpoint_set,
        has_failed_kept: false,
        asked_again: 0,
        attempts: Attempts::default(),
        is_of_rule: conf.backend_variable().is_none(),
        own_conf: None,
        tried: Tried::default(),
        name: None,
        current: Identity::default(),
        in_flight: InFlight::default(),
        selected_by,
        changes_on_failure,
        set_cookie: None,
        generation: 0,
        settings,
        protocol,
        identity,
    })
}

/// The backend of a request, and what its endpoint is chosen by.
#[derive(Default)]
struct Selected<'r> {
    /// Of the request's pool or the configuration.
    backend: &'r [u8],
    endpoint_set: EndpointSetRef,
    by: SelectedBy<'r>,
    changes_on_failure: bool,
}

impl<'r> Selected<'r> {
    /// Looks at the request for what the backend's record asks for.
    fn select(&mut self, request: &Request<'r>) {
        let worker = request.worker();
        let guard = worker.reader().read();
        let has_more =
            choose::refresh_endpoint_set(worker, &guard, self.backend, &mut self.endpoint_set);
        if !has_more {
            return;
        }
        let decided = self.endpoint_set.place.generation();
        let Some(mut record) = route::backend(worker, &guard, self.backend, decided) else {
            return;
        };
        // The router has decided on an alternative already.
        let alternative = match request.route_names() {
            Some(_) => None,
            None => selection::alternative(request, &guard, &record),
        };
        if let Some(copy) = alternative.and_then(|id| request.set_alternative(id)) {
            (self.backend, self.endpoint_set) = (copy, EndpointSetRef::default());
            let Some(other) = route::backend(worker, &guard, copy, 0) else { return };
            record = other;
        }
        let selection = selection::of(request, &record);
        drop(guard);
        self.changes_on_failure = selection.changes_on_failure;
        self.by = match selection.key {
            SelectBy::None => SelectedBy::Nothing,
            SelectBy::Hash(hash) => SelectedBy::Hash(hash),
            SelectBy::Affinity(key) => SelectedBy::Cookie(key.unwrap_or_default()),
        };
    }
}

impl<'r> nginx::Peer<'r> for Peer<'r> {
    fn get(&mut self, attempt: &Attempt<'r>) -> Code {
        // Set for a kept connection, by us or by keepalive, and nobody else clears it.
        attempt.forget_connection();
        let mut may_be_kept = true;
        let mut choice = self.choose_allowed();
        if choice.is_none() && self.has_failed_kept && self.asked_again < MAX_ASKED_AGAIN {
            self.asked_again += 1;
            self.tried.forget(self.current);
            choice = self.choose_allowed();
            // A new one says whether the endpoint is well.
            may_be_kept = false;
        }
        if choice.is_none() && self.attempts_left(0, self.may_repeat()) > 0 {
            self.attempts.begin_round();
            self.tried.restart();
            choice = self.choose_allowed();
        }
        let Some(choice) = choice else {
            if choose::is_limit_reached(&self.search(), self.worker()) {
                self.request.set_busy();
            }
            return Code::BUSY;
        };
        self.in_flight.begin(self.worker(), &choice.started);
        if let Some(key) = &choice.started.new_key {
            self.give_cookie(key);
        }
        let Some(name) = choice.name else {
            // nginx calls `free` for an attempt with an address only.
            self.end(Outcome::WELL);
            return Code::ERROR;
        };
        if let Some(trace) = spans::of(&self.request) {
            trace.begin_attempt();
        }
        (self.name, self.current) = (Some(name), choice.identity);
        self.generation = choice.started.place.generation();
        self.shorten_timeouts();
        // This endpoint itself may be tried again.
        attempt.nginx().set_tries(self.attempts_left(choice.untried as usize, self.repeats()));
        attempt.lead_to(choice.address, name);
        if may_be_kept && self.take_kept(attempt) { Code::DONE } else { Code::OK }
    }

    fn free(&mut self, attempt: &Attempt<'r>, ended: Outcome) {
        self.end(ended);
        if self.request.nginx().upstream().is_some_and(Upstream::redirects) {
            self.request.keep_for_redirect();
        }
        self.keep(attempt, ended);
        if ended == Outcome::WELL {
            return;
        }
        self.has_failed_kept = attempt.nginx().is_cached();
        self.attempts.fail(now_milliseconds());
        self.tried.push(self.request.nginx().pool(), self.current);
        let untried = choose::untried(self.worker(), &self.search());
        // For an error on a kept connection nginx adds one by itself.
        attempt.nginx().set_tries(self.attempts_left(untried, self.may_repeat()));
    }
}

impl<'r> Peer<'r> {
    fn worker(&self) -> &'static Worker {
        self.request.worker()
    }

    fn choose(&self) -> Option<ChosenEndpoint<'r>> {
        let pool = self.request.nginx().pool();
        choose::endpoint(self.worker(), &self.search(), |endpoint, started, untried| {
            ChosenEndpoint::copy(pool, endpoint, started, untried)
        })
    }

    /// Chooses, and passes over endpoints that no connection may lead to.
    #[inline]
    fn choose_allowed(&mut self) -> Option<ChosenEndpoint<'r>> {
        for _ in 0..=MAX_DENIED {
            let choice = self.choose()?;
            let Some(denial) = self.worker().denial(choice.address) else { return Some(choice) };
            let request = self.request.nginx();
            self.in_flight.deny(
                self.request.worker(),
                &choice,
                denial,
                self.backend,
                request.log(),
            );
            self.tried.deny(request.pool(), choice.identity);
        }
        None
    }

    fn search(&self) -> Search<'_> {
        let key = match self.selected_by {
            SelectedBy::Nothing => SelectBy::None,
            SelectedBy::Hash(hash) => SelectBy::Hash(hash),
            SelectedBy::Cookie(cookie) => {
                let is_new =
                    cookie.is_empty() || self.changes_on_failure && self.attempts.failed() > 0;
                SelectBy::Affinity(Some(cookie).filter(|_| !is_new))
            }
        };
        Search {
            backend: self.backend,
            endpoint_set: self.endpoint_set,
            tried: self.tried.as_slice(),
            key,
        }
    }

    /// Gives the client another cookie; one for all attempts. What it is answered with is not known yet.
    fn give_cookie(&mut self, key: &[u8]) {
        let (request, decided) = (&self.request, self.endpoint_set.place.generation());
        let Some(text) = selection::set_cookie(request, self.backend, decided, key) else { return };
        let raw = request.nginx();
        match self.set_cookie {
            None => self.set_cookie = raw.push_response_header(b"Set-Cookie", text.as_bytes()),
            Some(header) => {
                raw.set_response_value(header, &[text.as_bytes()]);
            }
        }
    }

    /// The attempt that is under way has ended, as nginx says: counts it.
    #[inline]
    fn end(&mut self, ended: Outcome) {
        let request = self.request.nginx();
        let upstream = request.upstream();
        self.in_flight.end(self.request.worker(), self.name, request.log(), |began| {
            outcome(upstream, ended, began)
        });
    }

    /// Attempts that may still be made when `untried` endpoints are left: `proxy_next_upstream_tries` counts
    /// all of a request's.
    fn attempts_left(&self, untried: usize, may_repeat: bool) -> usize {
        let has_failed = self.attempts.failed() > 0;
        let bounds = Bounds {
            limit: self.request.nginx().upstream().map_or(0, Upstream::tries),
            has_passed_before: has_failed && self.request.has_passed_before(),
            may_repeat,
        };
        self.attempts.left(untried, &bounds)
    }

    /// Endpoints that were tried may be tried again.
    fn repeats(&self) -> bool {
        self.proxy().is_some_and(|proxy| proxy.next_upstream_repeats)
    }

    /// Endpoints that were tried may be tried again, and one of them is open.
    fn may_repeat(&self) -> bool {
        let search = || Search { tried: self.tried.denied(), ..self.search() };
        self.repeats() && choose::is_any_open(self.worker(), &search())
    }

    /// What the policies of the request's rule say about its way to endpoints; `None`: nothing, or it goes to others.
    fn proxy(&self) -> Option<&'r Proxy> {
        let goes_there = self.is_of_rule && self.request.error_status().is_none();
        self.request.policies().filter(|_| goes_there)?.source.proxy.as_ref()
    }

    /// A further attempt has what is left of the time for all of them.
    fn shorten_timeouts(&mut self) {
        if self.attempts.failed() == 0 {
            return;
        }
        let total = self.proxy().and_then(|proxy| proxy.total_timeout_ms).unwrap_or(0) as usize;
        let request = self.request.nginx();
        let Some(upstream) = request.upstream().filter(|_| total > 0) else { return };
        let elapsed = (now_milliseconds() as usize).wrapping_sub(upstream.start_milliseconds());
        // nginx begins none when all of it is over; 0 would be no bound.
        let left = total.saturating_sub(elapsed).max(1);
        if self.own_conf.is_none() {
            // nginx's own `keepalive` would take its address for a location's, but does not keep these connections.
            self.own_conf = request.own_upstream_conf();
        }
        let Some(conf) = self.own_conf else { return };
        conf.set_connect_timeout(conf.connect_timeout().min(left));
        conf.set_send_timeout(conf.send_timeout().min(left));
        conf.set_read_timeout(conf.read_timeout().min(left));
    }

    fn key(&self) -> idle::IdleKey {
        idle::IdleKey {
            backend: self.endpoint_set.hash.map_or(0, KeyHash::to_bits),
            protocol: self.protocol,
            identity: self.identity,
            endpoint: self.current,
        }
    }

    /// Lets nginx use an idle connection to the current endpoint; `false` if there is none.
    #[inline]
    fn take_kept(&self, attempt: &Attempt<'r>) -> bool {
        let Some(settings) = self.settings else { return false };
        let here = self.request.nginx().event_loop();
        let (key, is_repeated) = (self.key(), self.is_repeated());
        let kept = self.worker().pools().take(here, settings.number, &key, is_repeated);
        kept.map(|kept| attempt.go_over(kept)).is_some()
    }

    /// nginx sends the request again where it finds a kept connection closed, whatever was sent of it: the conditions of
    /// `ngx_http_upstream_next`. Of the methods that it repeats, those that change nothing are taken (RFC 9110 §9.2.1).
    #[inline]
    fn is_repeated(&self) -> bool {
        let request = self.request.nginx();
        let Some(conf) = request.upstream().and_then(Upstream::conf) else { return false };
        self.attempts.failed() == 0
            && request.method_bit() & SAFE_METHODS != 0
            && !request.streams_body()
            && conf.next_upstream() & NGX_HTTP_UPSTREAM_FT_ERROR as usize != 0
            && conf.next_upstream_timeout() == 0
    }

    /// Keeps the connection of an attempt that is over, if it is good for another.
    #[inline]
    fn keep(&self, attempt: &Attempt<'r>, ended: Outcome) {
        let Some(settings) = self.settings.filter(|_| !ended.is_failed()) else { return };
        let Some(upstream) = self.request.nginx().upstream() else { return };
        if is_good(attempt, settings, upstream)
            && let Some(connection) = attempt.take_connection()
        {
            let pools = self.worker().pools();
            pools.put(settings, self.key(), self.generation, connection);
        }
    }
}

/// How an attempt ended. nginx says how long it took only of one that ended well.
#[inline]
fn outcome(upstream: Option<&Upstream>, ended: Outcome, began: u64) -> AttemptOutcome {
    let status = upstream.map_or(0, Upstream::status);
    let state = upstream.and_then(Upstream::state);
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
    AttemptOutcome { failure, seconds: milliseconds as f32 / 1_000.0, is_answered }
}

/// Whether the connection of an attempt may serve another request: nginx's conditions, in its order.
#[inline]
fn is_good(attempt: &Attempt<'_>, settings: &Keepalive, upstream: &Upstream) -> bool {
    let Some(connection) = attempt.nginx().connection() else { return false };
    let here = connection.event_loop();
    connection.is_well()
        && connection.requests() < settings.requests
        && now_milliseconds().wrapping_sub(connection.start_milliseconds())
            <= settings.time_msec as u64
        && upstream.keeps_alive()
        && upstream.is_request_sent()
        && !is_terminating(here)
        && !is_exiting(here)
        && attempt.nginx().watch()
}
