//! Routes a request: [`rewrite`], the handler of nginx's REWRITE phase, calls [`decide`], also after an internal redirect.
//! [`decision::decide`] decides; `carry_out` applies it.

pub mod errors;
pub mod facts;
pub mod location;
pub mod mirror;
pub mod own;
pub mod rewrite;

pub use facts::{Live, RequestFacts, backend, find_endpoint_set, live_endpoints};
pub use own::server;

use crate::request::Request;
use crate::request::head::BadHead;
use crate::request::policies::Compiled;
use crate::request::route::EndpointSetRef;
use crate::request::route::Names;
use crate::request::route::NewRoute;
use crate::request::spans;
use crate::route::location::Entered;
use crate::zone::counters;
use oxigress_core::decision::{self, Answer, Decision, Edits, Reason, Trace};
use oxigress_store::Guard;

/// Header lines that are taken. Their bytes are bounded by nginx.
const MAX_HEADERS: usize = 100;
/// nginx's own status for too large a head; the client sees 400, the page names the reason.
const HEADER_TOO_LARGE: u16 = 494;
/// RFC 5842 §7.2: a request that leads in a circle (RFC 8586).
const LOOP_DETECTED: u16 = 508;

/// Decides what becomes of a request, and gives it its route.
pub fn decide(request: &Request<'_>) -> Answer {
    let headers = request.header_count();
    if headers > MAX_HEADERS && headers > MAX_HEADERS + request.own_headers() {
        return Answer::Respond(HEADER_TOO_LARGE);
    }
    // The module sends subrequests elsewhere; X-Accel-Redirect would lead one here past ACCESS.
    if !request.is_main() {
        return Answer::Respond(404);
    }
    if let Some(status) = refuse_head(request) {
        request.set_route(NewRoute::default());
        return Answer::Respond(status);
    }
    let mut sender = None;
    if request.nginx().is_internal() {
        sender = request.sender();
        // What nginx has sent here was decided about before: nothing of that holds, even if the decision fails.
        request.set_route(NewRoute::default());
    }
    let guard = request.worker().reader().read();
    let live = Live::new(request.worker(), &guard);
    let facts = RequestFacts::sent_by(sender, request);
    let decision = decision::decide(&live, &facts, &mut Log(request));
    carry_out(request, &guard, decision)
}

/// Makes the client's head mean one thing; the status of a refusal.
#[inline]
fn refuse_head(request: &Request<'_>) -> Option<u16> {
    match request.clean_head() {
        Ok(()) => {}
        Err(BadHead::Refused) => return Some(400),
        Err(BadHead::Loop) => {
            request.log_loop();
            return Some(LOOP_DETECTED);
        }
    }
    let refused = request.refused_paths();
    (!refused.is_nothing() && refused.refuses(request.target())).then_some(400)
}

/// Writes down what an operator should know of.
struct Log<'a, 'r>(&'a Request<'r>);

impl Trace for Log<'_, '_> {
    #[inline]
    fn answer(&mut self, reason: Reason) {
        if reason == Reason::NoAnswer {
            self.0.log_no_answer();
        }
    }
}

/// Gives the request its route and its location, and changes it as the decision says.
#[inline]
fn carry_out<'g>(
    request: &Request<'_>,
    guard: &'g Guard<'_>,
    mut decision: Decision<'g, Live<'g>>,
) -> Answer {
    if request.worker().buckets().is_some()
        && let Some(counter) = decision.counter
    {
        request.count(counters::cell_of(guard, counter));
    }
    // What the rule's pattern has matched stands in it.
    if let Some(edits) = &decision.edits
        && let Some(moved) = &edits.moved
        && !request.set_uri(&moved.0, &moved.1)
    {
        return Answer::Respond(500);
    }
    let policies = decision.route.policies.clone();
    let route = &decision.route;
    let endpoints = route.destination.as_ref().and_then(|to| to.endpoints);
    let names = route.is_named.then(|| {
        let (lengths, texts) = route.rule.map(|rule| rule.packed()).unwrap_or_default();
        let is_alternative = route.is_alternative();
        Names { lengths, texts, instead: route.instead(), is_alternative }
    });
    let endpoint_set =
        endpoints.map_or_else(EndpointSetRef::default, |endpoints| endpoints.endpoint_set(guard));
    let (captures, error) = (route.captures.as_deref(), route.error.unwrap_or_default());
    let kept = NewRoute { policies, captures, names, endpoint_set, error };
    if !request.set_route(kept) {
        return Answer::Respond(500);
    }
    if decision.edits.as_mut().is_some_and(|edits| !keep(request, edits)) {
        return Answer::Respond(500);
    }
    let is_unlogged =
        decision.edits.is_some() && request.if_location().is_some_and(|inner| inner.is_unlogged);
    let policies = request.policies();
    if !edit(request, policies, decision.edits.as_deref()) {
        return Answer::Respond(500);
    }
    if let Some(policies) = policies
        && let Some(tracing) = &policies.source.tracing
    {
        spans::begin(request, tracing);
    }
    let answer = std::mem::replace(&mut decision.answer, Answer::Forward);
    if decision.route.destination.is_none() {
        if let Some(policies) = policies {
            location::enter_answer(request.nginx(), policies, is_unlogged);
        }
        return answer;
    }
    // Whatever the answer: what becomes of a refusal is the location's.
    match location::enter(request.nginx(), policies, is_unlogged) {
        Entered::NoTarget if endpoints.is_some() => Answer::Respond(503),
        Entered::TooLarge if endpoints.is_some() => Answer::Respond(413),
        _ => answer,
    }
}

/// Keeps what a script has left to later phases; `false` when memory is out.
fn keep(request: &Request<'_>, edits: &mut Edits) -> bool {
    let (variables, location) = (edits.variables.take(), edits.if_location.take());
    variables.is_none_or(|variables| request.keep_variables(*variables))
        && location.is_none_or(|location| request.keep_if_location(location))
}

/// Changes a request as its policies and a decision say; `false` when memory is out.
#[inline]
fn edit(request: &Request<'_>, policies: Option<&Compiled>, edits: Option<&Edits>) -> bool {
    if let Some(edits) = edits
        && !edit_target(request, edits)
    {
        return false;
    }
    // Before all that looks at them: what is asked of an auth server, kept under a key and sent to an endpoint is one request. What
    // the gateway says itself comes after it.
    if let Some(policies) = policies {
        request.change_headers(&policies.source.input_edits);
    }
    edits.is_none_or(|edits| {
        stay(request);
        tell(request, edits)
    })
}

/// Changes what a request asks for, as a decision says; `false` when memory is out.
fn edit_target(request: &Request<'_>, edits: &Edits) -> bool {
    if edits.closes_connection {
        request.close_after_answer();
    }
    if edits.forgets_session {
        request.forget_session();
    }
    edits.uri.as_ref().is_none_or(|(path, args)| request.set_uri(path, args))
}

/// Changes a request as the `if` says in whose location it is.
fn stay(request: &Request<'_>) {
    let Some(inner) = request.if_location() else { return };
    request.change_headers(&inner.input_edits);
    // PREACCESS does it again where the policies have rates of their own.
    request.limit_response(inner.response_rate, inner.response_rate_after);
}

/// Sets the headers that the gateway sends by itself, as a decision says; `false` when memory is out.
fn tell(request: &Request<'_>, edits: &Edits) -> bool {
    for (name, value) in &edits.request {
        // One that would end the header's line is not sent, nor is the client's.
        request.set_header(name.as_bytes(), value);
    }
    let mut headers =
        edits.response.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    headers.all(|(name, value)| request.add_response_header(name, value))
}
