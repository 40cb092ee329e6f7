//! Spans of requests: the trace context that every hop gets, and what the exporter learns of a request that has ended.
//!
//! Shape:   REWRITE gives a request whose policies ask for it a [`Traced`]. Calls, to endpoints, auth servers and mirrors, have
//!          client spans of their own. LOG writes a sampled request into the queue that workers share; the controller takes
//!          it from there by `POST /configuration/spans`.
//! Limits:  attempts of one request are sent the same headers, so what an endpoint records belongs to the last attempt.
//! Memory:  the queue's pages are touched only when requests are sampled.

use crate::request::Request;
use crate::system::log;
use crate::system::memory::{monotonic_milliseconds, wall_clock_milliseconds};
use nginx::State;
use oxigress_core::decision;
use oxigress_core::model::policy::{Propagation, Tracing};
use oxigress_core::telemetry::span::{
    self, Begun, Call, CallKind, Context, Finished, Ring, SpanId, TAKE_BYTES, is_trace_state,
};
use oxigress_core::text::template;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Requests that wait for the exporter; a namespace alone has half, those of two seconds at 2,000 requests a second.
const SLOTS: usize = 8192;

/// The queue's memory, and what makes owners of namespaces: no tenant can tell which ones count as one.
static QUEUE: OnceLock<(&'static [AtomicU64], RandomState)> = OnceLock::new();

/// Makes the queue, once a master, before it forks. Without memory for it nothing is exported.
pub fn create() {
    if QUEUE.get().is_some() {
        return;
    }
    match nginx::shared::map_words(Ring::words(SLOTS)) {
        Ok(words) => _ = QUEUE.set((words, RandomState::new())),
        Err(error) => {
            log::warn(format_args!(
                "ingress: spans are not exported, no memory for the queue: {error}"
            ));
        }
    }
}

fn ring() -> Option<(Ring<'static>, &'static RandomState)> {
    let (words, hasher) = QUEUE.get()?;
    Some((Ring::new(words)?, hasher))
}

/// Takes requests out of the queue: their records one after the other, and how many were dropped since the master started.
pub fn take() -> (Vec<u8>, u64) {
    let Some((ring, _)) = ring() else { return (Vec::new(), 0) };
    let mut records = Vec::new();
    ring.take(&mut records, TAKE_BYTES, monotonic_milliseconds());
    (records, ring.dropped())
}

/// The trace of a request.
pub struct Traced {
    begun: Begun,
    propagation: Propagation,
    /// The span of the last attempt at an endpoint.
    endpoint: SpanId,
    /// When the attempts began, in milliseconds since the Unix epoch.
    attempts: RefCell<Vec<u64>>,
    /// Requests to auth servers and mirrors. `after_ms` is a time since the Unix epoch, cut, until the request ends.
    calls: RefCell<Vec<Pending>>,
}

/// A call that has begun.
struct Pending {
    kind: CallKind,
    span: SpanId,
    start_ms: u64,
    /// What came back: milliseconds it took, status, address.
    answer: Option<(u64, u16, Vec<u8>)>,
}

/// The place of a call among a request's.
#[derive(Clone, Copy)]
pub struct CallPlace(usize);

/// Headers that carry a context; those with an empty value remove the client's.
pub type Headers = Vec<(&'static str, Vec<u8>)>;

impl Request<'_> {
    /// Whether the request is traced, sampled or not: its pool has its trace then. A subrequest never is.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.context().is_some_and(|context| context.is_traced.get())
    }

    /// Notes that its pool has its trace.
    fn set_traced(&self) {
        if let Some(context) = self.context_or_new() {
            context.is_traced.set(true);
        }
    }
}

/// The trace of a request; `None`: it is not traced, or a subrequest.
#[inline]
pub fn of<'r>(request: &Request<'r>) -> Option<&'r Traced> {
    request.is_traced().then(|| request.nginx().pool().kept().next()).flatten()
}

impl Traced {
    /// The trace and the server span.
    pub fn context(&self) -> Context {
        self.begun.own
    }

    /// The headers of the next hop, whose span this is. The client's `tracestate` belongs to the context that it came with:
    /// without that, or damaged, it goes nowhere.
    fn headers(&self, request: &Request<'_>, span: SpanId) -> Headers {
        let state = request.header(b"tracestate").unwrap_or_default();
        let state = Some(state).filter(|it| self.begun.parent.is_some() && is_trace_state(it));
        let context = Context { span, ..self.begun.own };
        let mut headers = Headers::from(context.headers(self.propagation));
        headers.push(("tracestate", state.unwrap_or_default().to_vec()));
        headers
    }

    /// Begins a call to an auth server or a mirror.
    pub fn begin_call(&self, request: &Request<'_>, kind: CallKind) -> (CallPlace, Headers) {
        let span = SpanId::new(request.worker().random());
        let mut calls = self.calls.borrow_mut();
        let start_ms = wall_clock_milliseconds();
        calls.push(Pending { kind, span, start_ms, answer: None });
        (CallPlace(calls.len() - 1), self.headers(request, span))
    }

    /// Notes the answer to a call that went to a server; one from a cache leaves no span.
    fn end_call(&self, CallPlace(place): CallPlace, subrequest: &nginx::Request) {
        let state = subrequest.upstream_states().filter(|state| state.has_peer()).last();
        let Some(address) = state.and_then(State::peer_name) else { return };
        let status = state.map_or(0, |state| state.status() as u16);
        if let Some(call) = self.calls.borrow_mut().get_mut(place) {
            let took = wall_clock_milliseconds().saturating_sub(call.start_ms);
            call.answer = Some((took, status, address.to_vec()));
        }
    }

    /// Notes when an attempt at an endpoint begins.
    pub fn begin_attempt(&self) {
        self.attempts.borrow_mut().push(wall_clock_milliseconds());
    }
}

/// Notes the answer to a call that a subrequest was, when it has ended; nothing happens without a place.
pub fn end_call(subrequest: &nginx::Request, place: Option<CallPlace>) {
    let Some(place) = place else { return };
    // A subrequest has the pool of its main request.
    let trace = subrequest.pool().kept::<Traced>().next();
    trace.into_iter().for_each(|trace| trace.end_call(place, subrequest));
}

/// Gives a request its trace, unless it has one: it keeps that when it is routed again.
pub fn begin(request: &Request<'_>, policy: &Tracing) {
    if request.is_traced() {
        return;
    }
    let client = Context::from_headers(|name| {
        let mut all = request.all_headers(name);
        all.next().filter(|_| all.next().is_none())
    });
    let worker = request.worker();
    let begun = span::begin(policy, client, || worker.random());
    let endpoint = SpanId::new(worker.random());
    let propagation = policy.propagation;
    let (attempts, calls) = Default::default();
    let trace = Traced { begun, propagation, endpoint, attempts, calls };
    if request.nginx().pool().keep(trace).is_some() {
        request.set_traced();
    }
}

/// Writes the context into the headers that the endpoint gets.
pub fn prepare(request: &Request<'_>) {
    let Some(trace) = of(request) else { return };
    for (name, value) in trace.headers(request, trace.endpoint) {
        request.set_header(name.as_bytes(), &value);
    }
}

/// Queues a request that has ended.
#[cold]
pub fn finish(request: &Request<'_>) {
    let Some(trace) = of(request).filter(|trace| trace.begun.own.is_sampled) else { return };
    let Some((ring, hasher)) = ring() else { return };
    let namespace = request.route_names().map_or(&[][..], |names| names.namespace());
    let duration = request.elapsed_ms();
    let start_ms = wall_clock_milliseconds().saturating_sub(duration);
    let finished = Finished {
        context: trace.begun.own,
        parent: trace.begun.parent,
        is_https: request.is_https(),
        status: request.status().unwrap_or(0),
        port: request.local_port().unwrap_or(0),
        start_ms,
        duration_ms: clamp(duration),
        namespace: namespace.to_vec(),
        texts: texts(request),
        calls: calls(request, trace, start_ms),
    };
    ring.push(&finished.encode(), hasher.hash_one(namespace), monotonic_milliseconds());
}

fn texts(request: &Request<'_>) -> [Vec<u8>; 7] {
    let route = request.route_names().map(|names| decision::location_path(names.path()));
    let (method, route) = (request.method(), route.unwrap_or_default());
    let policies = request.policies();
    let operation =
        policies.and_then(|policies| policies.source.tracing.as_ref()?.operation.as_ref());
    let operation = operation.and_then(|text| template::expand(text.parts(), request));
    let target = request.target();
    // A query may have secrets of the user.
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    [
        operation.unwrap_or_else(|| [method, b" ", route].concat()),
        method.to_vec(),
        request.host().to_vec(),
        path.to_vec(),
        route.to_vec(),
        request.client_text().to_vec(),
        request.header(b"user-agent").unwrap_or_default().to_vec(),
    ]
}

fn calls(request: &Request<'_>, trace: &Traced, start_ms: u64) -> Vec<Call> {
    let after = |at: u64| clamp(at.saturating_sub(start_ms));
    let mut calls = Vec::new();
    for pending in trace.calls.borrow().iter() {
        let Pending { kind, span, start_ms, answer: Some((took, status, address)) } = pending
        else {
            continue;
        };
        calls.push(Call {
            kind: *kind,
            span: *span,
            after_ms: after(*start_ms),
            duration_ms: clamp(*took),
            status: *status,
            address: address.clone(),
        });
    }
    let attempts = trace.attempts.borrow();
    let states = request.nginx().upstream_states().filter(|state| state.has_peer());
    let begin = attempts.iter().copied().chain(std::iter::repeat(start_ms));
    let first = calls.len();
    calls.extend(states.zip(begin).map(|(state, began)| Call {
        kind: CallKind::Endpoint,
        span: SpanId::new(request.worker().random()),
        after_ms: after(began),
        duration_ms: clamp(state.response_milliseconds().unwrap_or(0)),
        status: state.status() as u16,
        address: state.peer_name().unwrap_or_default().to_vec(),
    }));
    if let Some(last) = calls[first..].last_mut() {
        last.span = trace.endpoint;
    }
    calls
}

fn clamp(milliseconds: u64) -> u32 {
    u32::try_from(milliseconds).unwrap_or(u32::MAX)
}
