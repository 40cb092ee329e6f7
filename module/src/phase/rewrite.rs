//! REWRITE: host and path decide, once per request.

use crate::ffi::{BadHead, Entered, Found, NewDecision, Request};
use crate::policy::Compiled;
use crate::records::Noting;
use crate::{client_certificate, forwarded, metrics, peer, policy, responses, retired, selection};
use oxigress_core::model::policy::{Redirect, Rewrite};
use oxigress_core::record::{BackendView, EndpointsView, Kind, RuleView, SettingsView};
use oxigress_core::redirect;
use oxigress_core::rewrite::{self, Rewritten};
use oxigress_core::router::{self, tls};
use oxigress_core::text::template;
use oxigress_store::{Guard, KeyHash, Place, Record};

/// Header lines that are taken. Their bytes are bounded by nginx.
const MAX_HEADERS: usize = 100;
/// nginx's own status for too large a head; the client sees 400, the page names the reason.
const HEADER_TOO_LARGE: u16 = 494;
/// RFC 5842 §7.2: a request that leads in a circle (RFC 8586).
const LOOP_DETECTED: u16 = 508;

/// Whether anybody can take a request now.
fn outcome(set: Option<Record<'_>>) -> Outcome {
    let Some(set) = set else { return Outcome::Status(503) };
    let view = EndpointsView::new(set.value());
    match view.is_empty() {
        true => Outcome::Status(503),
        false if peer::is_busy(set, view) => Outcome::Busy,
        false => Outcome::Continue,
    }
}

/// What becomes of the request.
pub enum Outcome {
    /// It goes on to the backend that was decided on.
    Continue,
    /// Every endpoint is busy up to its limit: 503, and come back.
    Busy,
    /// It is answered with this status.
    Status(u16),
    /// It goes on at another path, of the same host.
    Internal(Vec<u8>),
    /// It is sent elsewhere.
    Redirect {
        /// Status.
        code: u16,
        /// Value of `Location`.
        location: Vec<u8>,
    },
}

/// Finds the rule, applies its policy, and keeps the decision with the request.
pub fn decide(request: &mut Request<'_>) -> Outcome {
    let headers = request.header_count();
    if headers > MAX_HEADERS && headers > MAX_HEADERS + request.own_headers() {
        return Outcome::Status(HEADER_TOO_LARGE);
    }
    // A subrequest goes where the module has sent it; what leads one here (X-Accel-Redirect) would pass by ACCESS.
    if !request.is_main() {
        return Outcome::Status(404);
    }
    request.forget_route();
    match request.clean_head() {
        Ok(()) => {}
        Err(BadHead::Refused) => return Outcome::Status(400),
        Err(BadHead::Loop) => {
            request.log_loop();
            return Outcome::Status(LOOP_DETECTED);
        }
    }
    let refused_paths = request.refused_paths();
    if !refused_paths.is_nothing() && refused_paths.refuses(request.target()) {
        return Outcome::Status(400);
    }
    let worker = request.worker();
    let guard = worker.reader().read();
    let records = Noting::new(&guard);
    if guard.generation() == 0 {
        // Nothing was ever published: not "no such host" but "not ready".
        return Outcome::Status(503);
    }
    if let Some(outcome) = client_certificate::answer(request, &guard) {
        return outcome;
    }
    let settings = || SettingsView::of(&records);
    if worker.blocks(guard.generation(), || settings().has_blocked()) {
        let header = |name: &[u8]| request.header(name).unwrap_or_default();
        let (agent, referer) = (header(b"user-agent"), header(b"referer"));
        if settings().is_blocked(worker.patterns(), agent, referer) {
            return Outcome::Status(403);
        }
    }
    let patterns = worker.patterns();
    let Ok(route) = router::route(&records, request.host(), request.path(), patterns) else {
        request.log_no_answer();
        return Outcome::Status(500);
    };
    let lacks_slash = route.as_ref().is_some_and(|route| route.lacks_slash);
    let (rule, captures) = route.map_or((None, None), |route| (Some(route.rule), route.captures));
    if let Some(captures) = captures
        && !request.set_captures(*captures)
    {
        return Outcome::Status(500);
    }
    if worker.buckets().is_some() {
        request.count(metrics::of_rule(&guard, records.server(), rule));
    }
    if let Some(rule) = rule.filter(|rule| !rule.policies().is_empty()) {
        // Policies that are named and not there may be those that protect.
        let Some(policies) = policy::find(request.worker(), &guard, rule.policies()) else {
            return Outcome::Status(503);
        };
        if !request.hold(policies) {
            return Outcome::Status(500);
        }
        if !lacks_slash
            && let Some(outcome) = request.policies().and_then(|held| answer(request, rule, held))
        {
            return outcome;
        }
    }
    // As in nginx before whatever the location says, a redirect to HTTPS included.
    if let Some(rule) = rule.filter(|_| lacks_slash) {
        return with_slash(request, rule);
    }
    if let Some(rule) = rule {
        let has_certificate = || tls::has_certificate(&records, request.host());
        let is_https = forwarded::scheme(request) != b"http";
        let is_redirected =
            redirect::is_redirected(rule.https_redirect(), is_https, has_certificate);
        let host = forwarded::host(request);
        // Without a name there is nowhere to send a client to.
        if is_redirected && !host.is_empty() {
            let policies = request.policies().map(|policies| &policies.source);
            let port = policies.and_then(|policies| policies.redirect_port);
            let keeps_slash = policies.is_some_and(|policies| policies.keeps_trailing_slash);
            let location = redirect::location(host, port, request.target(), keeps_slash);
            return Outcome::Redirect { code: settings().http_redirect_code().into(), location };
        }
    }
    // Before anything is refused: what becomes of a refusal is the location's.
    let entered = request.enter_location();
    let (lengths, texts) = rule.map(|rule| rule.packed()).unwrap_or_default();
    let own = texts.get(..usize::from(lengths[0])).filter(|id| !id.is_empty());
    let default = if own.is_some() { None } else { settings().default_backend() };
    let mut decision =
        NewDecision { lengths, texts, instead: default.unwrap_or_default(), is_alternative: false };
    let Some(backend) = own.or(default) else {
        request.decide(&decision, Found::default());
        return Outcome::Status(404);
    };
    let mut destination = Destination::of(&guard, backend);
    if destination.has_more()
        && let Some(alternative) = alternative(request, &guard, backend)
    {
        (decision.instead, decision.is_alternative) = (alternative, true);
        destination = Destination::of(&guard, alternative);
    }
    let fallback = if destination.has_endpoints() { None } else { fallback(request, &guard) };
    if let Some((backend, other)) = fallback {
        (decision.instead, decision.is_alternative) = (backend, false);
        destination = other;
    }
    request.decide(&decision, destination.found(&guard));
    if fallback.is_some() {
        super::error::tell(request, 503);
    }
    match entered {
        Entered::Target => outcome(destination.endpoints),
        Entered::NoTarget => Outcome::Status(503),
        Entered::TooLarge => Outcome::Status(413),
    }
}

/// Who serves while the rule's own backend has no endpoint.
fn fallback<'g>(
    request: &Request<'g>,
    guard: &'g Guard<'_>,
) -> Option<(&'g [u8], Destination<'g>)> {
    let backend = request.policies()?.source.fallback.as_ref()?.as_str().as_bytes();
    let destination = Destination::of(guard, backend);
    destination.has_endpoints().then_some((backend, destination))
}

/// What policies answer a request with before it is sent anywhere, and the path that its endpoint sees.
fn answer(request: &mut Request<'_>, rule: RuleView<'_>, policies: &Compiled) -> Option<Outcome> {
    let source = &policies.source;
    if let Some(status) = source.denied {
        return Some(Outcome::Status(status));
    }
    if responses::answers_preflight(request, policies) {
        return Some(Outcome::Status(204));
    }
    if source.redirect.is_none() && source.rewrite.is_none() {
        return None;
    }
    // Their texts may name the rule, and so may the log of an answer.
    let (lengths, texts) = rule.packed();
    let decision = NewDecision { lengths, texts, instead: &[], is_alternative: false };
    request.decide(&decision, Found::default());
    match (&source.redirect, &source.rewrite) {
        (Some(elsewhere), _) => Some(redirected(request, elsewhere, source.relative_redirects)),
        (None, Some(rewrite)) => rewritten(request, rewrite),
        (None, None) => None,
    }
}

/// Sends the client to the path of an exact rule, which the request's lacks a slash of.
fn with_slash(request: &mut Request<'_>, rule: RuleView<'_>) -> Outcome {
    let (lengths, texts) = rule.packed();
    let decision = NewDecision { lengths, texts, instead: &[], is_alternative: false };
    request.decide(&decision, Found::default());
    let is_relative = request.policies().is_some_and(|held| held.source.relative_redirects);
    let origin = request.origin().filter(|_| !is_relative);
    let location = redirect::with_slash(origin.as_deref(), request.path(), request.args());
    Outcome::Redirect { code: 301, location }
}

fn redirected(request: &Request<'_>, elsewhere: &Redirect, is_relative: bool) -> Outcome {
    let (origin, target) = (request.origin(), request.target());
    match redirect::elsewhere(elsewhere, origin.as_deref(), is_relative, target, request) {
        Some(location) => Outcome::Redirect { code: elsewhere.code, location },
        None => Outcome::Status(400),
    }
}

/// Puts the rule's path in place of the client's.
fn rewritten(request: &Request<'_>, to: &Rewrite) -> Option<Outcome> {
    let Ok(result) = rewrite::apply(to, request.args(), request) else {
        return Some(Outcome::Status(400));
    };
    if let Some(prefix) = &to.forwarded_prefix {
        // One that would end the header's line is not sent, nor is the client's.
        let value = template::expand(prefix.parts(), request).unwrap_or_default();
        request.set_header(b"X-Forwarded-Prefix", &value);
    }
    match result {
        Rewritten::Elsewhere(location) => Some(Outcome::Redirect { code: 302, location }),
        Rewritten::Uri { path, args } if request.set_uri(&path, &args) => None,
        Rewritten::Uri { .. } => Some(Outcome::Status(500)),
    }
}

/// How to find the endpoints of a backend that a decision names, for a request that is made later.
pub fn found(guard: &Guard<'_>, backend: &[u8], decided: u64) -> Found {
    Destination::as_decided(guard, backend, decided).found(guard)
}

/// The endpoints of a backend.
#[derive(Clone, Copy)]
pub struct Destination<'g> {
    hash: KeyHash,
    endpoints: Option<Record<'g>>,
    /// The generation that names it.
    decided: u64,
}

impl<'g> Destination<'g> {
    /// Of this id, in this generation.
    pub fn of(guard: &'g Guard<'_>, backend: &[u8]) -> Self {
        let kind = Kind::Endpoints as u8;
        let hash = guard.hash(kind, backend);
        let endpoints = guard.get_hashed(hash, kind, backend);
        Destination { hash, endpoints, decided: guard.generation() }
    }

    /// Of this id, as an older generation names it: it may have been removed since.
    pub fn as_decided(guard: &'g Guard<'_>, backend: &[u8], decided: u64) -> Self {
        let live = Destination::of(guard, backend);
        match retired::endpoints(guard, backend, decided).filter(|_| !live.has_endpoints()) {
            Some((removed, _)) => Destination { endpoints: Some(removed), decided, ..live },
            None => live,
        }
    }

    /// The backend's record has more to say.
    fn has_more(&self) -> bool {
        self.endpoints.is_some_and(|set| retired::view(&set).has_more())
    }

    /// It has endpoints, busy or not.
    pub fn has_endpoints(&self) -> bool {
        self.endpoints.is_some_and(|set| !retired::view(&set).is_empty())
    }

    /// How to find them again.
    pub fn found(&self, guard: &Guard<'_>) -> Found {
        let live = self.endpoints.filter(|set| set.kind() == Kind::Endpoints as u8);
        let nowhere = Place::nowhere(self.decided);
        let place = live.map_or(nowhere, |set| guard.place(&set));
        Found { hash: Some(self.hash), place, is_plain: !self.has_more() }
    }
}

/// The alternative that takes the request in place of a backend, which is then counted as the alternative's.
fn alternative<'g>(
    request: &Request<'_>,
    guard: &'g Guard<'_>,
    backend: &[u8],
) -> Option<&'g [u8]> {
    let record = guard.get(Kind::Backend as u8, backend)?;
    let alternative = selection::alternative(request, guard, &BackendView::new(record.value()))?;
    if request.worker().buckets().is_some()
        && let Some(counter) = metrics::of_alternative(guard, &record, alternative)
    {
        request.count(counter);
    }
    Some(alternative)
}
