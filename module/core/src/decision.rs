//! The decision about one request, as a value: facts and records in, [`Decision`] out.
//!
//! Shape:   [`decide`] reads the request through [`Facts`], one generation through [`Generation`], and reports its steps to a
//!          [`Trace`]. It changes nothing: the caller carries out what the decision says. nginx's REWRITE phase calls it
//!          with a silent trace, [`crate::explain`] with one that records, so that both cannot differ.
//! Order:   the host's client certificates, blocked clients, the rule, its policies, a lacking slash, the redirect to HTTPS,
//!          and then the backend: the rule's own or the default one, an alternative, the fallback.
//! Errors:  none; a request that cannot be served is answered with a status, and [`Reason`] says why.
//! Cost:    nothing is allocated where the rule is a prefix or an exact path without redirect and rewrite.

pub mod asking;
mod backend;
mod certificate;
mod facts;
mod failure;
mod known;
mod listener;
mod path_edit;
pub mod redirect;
pub mod rewrite;
mod route;
mod script;
mod trace;
mod values;

pub use backend::alternative;
pub use facts::{
    CompiledHostPolicy, CompiledPolicies, EndpointSet, Facts, Generation, PlainPolicies, Shown,
    SplitRequest, Unusable,
};
pub use failure::{Failure, Replacement, replace, withheld};
pub use route::{Backend, Counter, Destination, Route};
pub use trace::{BackendReason, Reason, Silent, Trace};
pub use values::{RuleNames, location_path, upstream_name, upstream_name_parts};

use crate::http::paths;
use crate::model::policy::script::SharedIfLocation;
use crate::model::policy::{Cors, PathEdit, Redirect, RedirectTo, Rewrite};
use crate::policy::cors;
use crate::record::{RuleView, ServerView, SettingsView};
use crate::text::template;
use facts::Parts;
use listener::FoundHost;
use rewrite::Rewritten;
pub use script::Variable;
pub use script::defined;
use script::scripted::Scripted;
use script::{Carried, Move};
use values::Routed;

/// The verdict about a request, and what carrying it out takes.
pub struct Decision<'g, G: Generation<'g>> {
    /// What becomes of the request.
    pub answer: Answer,
    /// What changes in the request and in its answer, before the answer is carried out; `None`: nothing, as for most requests.
    pub edits: Option<Box<Edits>>,
    /// What holds for the request from now on.
    pub route: Route<'g, G>,
    /// The cell that counts the request; `None`: it was answered before a rule was looked for.
    pub counter: Option<Counter<G::Record>>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on to the backend of the route.
    Forward,
    /// nginx answers with this status and its own page.
    Respond(u16),
    /// nginx answers with this status and body.
    Text {
        /// A status from 200 to 299.
        code: u16,
        /// The body.
        body: Vec<u8>,
        /// Its type; `None`: nginx's default.
        media_type: Option<String>,
    },
    /// It is processed again with this path and query, which belong to the same host.
    Internal(Vec<u8>),
    /// The client is sent elsewhere.
    Redirect {
        /// A status between 301 and 308.
        code: u16,
        /// The absolute URL that stands in `Location`.
        location: Vec<u8>,
    },
}

/// Changes of a request and of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The path, decoded, and the query that the endpoint gets in place of the client's.
    pub uri: Option<(Vec<u8>, Vec<u8>)>,
    /// The path, decoded, and the query that a script has found the rule by, in place of the client's.
    pub moved: Option<Box<(Vec<u8>, Vec<u8>)>>,
    /// The variables of a script, for texts of later phases.
    pub variables: Option<Box<Vec<Variable>>>,
    /// The steps that patterns of scripts and definitions have left; `None`: none was needed yet.
    pub pattern_steps: Option<u64>,
    /// The location of an `if` of that script, in which the request stays.
    pub if_location: Option<SharedIfLocation>,
    /// Request headers that replace the client's of the same name; an empty value removes them.
    pub request: Vec<(&'static str, Vec<u8>)>,
    /// Headers that the answer gets.
    pub response: &'static [(&'static str, &'static str)],
    /// The connection ends with the answer.
    pub closes_connection: bool,
    /// The TLS session of the connection is not resumed.
    pub forgets_session: bool,
}

/// Decides what becomes of a request.
#[inline]
pub fn decide<'g, G, F, T>(generation: &G, facts: &F, trace: &mut T) -> Decision<'g, G>
where
    G: Generation<'g>,
    F: Facts,
    T: Trace,
{
    let mut decision = Decision::new();
    if let Some(moved) = once(generation, facts, trace, &mut decision, None) {
        decision = script::scripted::again(generation, facts, trace, *moved);
    }
    // One place to return from: the decision is too large to be moved for every request.
    decision
}

/// Decides by the path that the facts have; where a script sends the request, instead of a decision.
#[inline]
fn once<'g, G, F, T>(
    generation: &G,
    facts: &F,
    trace: &mut T,
    decision: &mut Decision<'g, G>,
    carried: Option<Box<Carried>>,
) -> Option<Box<Move>>
where
    G: Generation<'g>,
    F: Facts,
    T: Trace,
{
    let mut moved = None;
    let Decision { answer, edits, route, counter } = decision;
    let moved_to = &mut moved;
    let mut decider =
        Decider { generation, facts, trace, route, edits, counter, carried, moved: moved_to };
    *answer = decider.answer();
    moved
}

impl<'g, G: Generation<'g>> Decision<'g, G> {
    #[inline]
    fn new() -> Self {
        Decision { answer: Answer::Forward, edits: None, route: Route::none(), counter: None }
    }
}

/// A decision while it is made. Its parts are written where they stay: they are too large to be moved for every request.
struct Decider<'a, 'g, G: Generation<'g>, F, T> {
    generation: &'a G,
    facts: &'a F,
    trace: &'a mut T,
    route: &'a mut Route<'g, G>,
    edits: &'a mut Option<Box<Edits>>,
    counter: &'a mut Option<Counter<G::Record>>,
    /// What a script knew of the request before it sent it here.
    carried: Option<Box<Carried>>,
    /// Where a script sends the request.
    moved: &'a mut Option<Box<Move>>,
}

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    #[inline]
    fn answer(&mut self) -> Answer {
        let generation = self.generation;
        if !generation.is_published() {
            // Not "no such host" but "not ready".
            return self.respond(503, Reason::NothingPublished);
        }
        let at = generation.has_listeners().then(|| self.find_at_listeners());
        if let Some(answer) = self.client_certificate(at.as_ref()) {
            return answer;
        }
        // What a script has moved was let through before.
        if generation.blocks_clients() && self.facts.moved_budget().is_none() && self.is_blocked() {
            return self.respond(403, Reason::Blocked);
        }
        let lacks_slash = match self.find_rule(at) {
            Ok(lacks_slash) => lacks_slash,
            Err(answer) => return answer,
        };
        if let Some(rule) = self.route.rule {
            let is_led = self.carried.is_some() || self.facts.sender().is_some();
            if is_led && self.is_led_to_another(rule) {
                return self.respond(404, Reason::MovedToAnother);
            }
            if is_led {
                // Those of the rule before it are nobody's any more.
                self.edit().variables.get_or_insert_default();
            }
            if let Some(answer) = self.policies(rule, lacks_slash) {
                return answer;
            }
            // As in nginx before whatever the location says, a redirect to HTTPS included.
            if lacks_slash {
                return self.with_slash(rule);
            }
            if let Some(answer) = self.redirect_to_https(rule) {
                return answer;
            }
        }
        self.route.is_named = true;
        self.forward()
    }

    /// Tells the trace why the request goes no further, and answers with a status of nginx's own page.
    fn respond(&mut self, status: u16, reason: Reason) -> Answer {
        self.trace.answer(reason);
        Answer::Respond(status)
    }

    /// What changes in the request and in its answer.
    fn edit(&mut self) -> &mut Edits {
        self.edits.get_or_insert_default()
    }

    #[cold]
    fn is_blocked(&self) -> bool {
        let header = |name: &[u8]| self.facts.first_header(name).unwrap_or_default();
        let settings = SettingsView::of(self.generation);
        let (agent, referer) = (header(b"user-agent"), header(b"referer"));
        settings.is_blocked(self.generation.patterns(), agent, referer)
    }

    /// Finds the rule and who counts the request; whether the path lacks the slash of an exact rule.
    #[inline]
    fn find_rule(&mut self, at: Option<FoundHost<G::Record>>) -> Result<bool, Answer> {
        let (generation, facts) = (self.generation, self.facts);
        let server = match at {
            None => generation.server(facts.host()),
            Some(at) => self.server_or_421(at)?,
        };
        self.trace.server(server.map(|(_, found)| found));
        let Some((server, _)) = server else {
            *self.counter = Some(Counter::NoRule);
            return Ok(false);
        };
        let view = ServerView::new(generation.value_of(server));
        let (path, patterns) = (facts.path(), generation.patterns());
        let found = view.rule(path, &Parts(facts), patterns);
        self.trace.rules(&view, path, patterns, found.as_ref().ok().and_then(Option::as_ref));
        let Ok(found) = found else {
            return Err(self.respond(500, Reason::NoAnswer));
        };
        let Some(found) = found else {
            *self.counter = Some(Counter::NoRule);
            return Ok(false);
        };
        *self.counter = Some(Counter::Rule(server, found.rule.index()));
        (self.route.rule, self.route.captures) = (Some(found.rule), found.captures);
        Ok(found.lacks_slash)
    }

    /// What the rule's policies answer before the request is sent anywhere.
    #[inline]
    fn policies(&mut self, rule: RuleView<'g>, lacks_slash: bool) -> Option<Answer> {
        if rule.policies().is_empty() {
            return None;
        }
        // Policies that are named and not there may be those that protect.
        let Some(mut policies) = self.generation.policies(rule.policies()) else {
            return Some(self.respond(503, Reason::PoliciesMissing));
        };
        let mut is_broken_off = false;
        if policies.source().script.is_some() && !lacks_slash {
            let scripted = self.scripted(policies, rule);
            if scripted.answer.is_some() {
                if self.moved.is_none() && self.uses_definitions(&scripted.policies) {
                    // Of an answer: what is not known of its headers opens nothing.
                    self.know_all(scripted.policies.source(), rule);
                }
                self.route.policies = Some(scripted.policies);
                return scripted.answer;
            }
            Scripted { policies, is_broken_off, .. } = scripted;
        }
        // Taken out while they are looked at: what they say changes the rest of the route.
        let mut answer =
            if lacks_slash { None } else { self.answer_of(&policies, rule, is_broken_off) };
        if self.uses_definitions(&policies) && !self.know_all(policies.source(), rule) {
            // The endpoint, or an auth server, would be told something else.
            answer = answer.or_else(|| Some(self.respond(500, Reason::NoAnswer)));
        }
        self.route.policies = Some(policies);
        answer
    }

    fn answer_of(
        &mut self,
        policies: &G::Policies,
        rule: RuleView<'g>,
        is_broken_off: bool,
    ) -> Option<Answer> {
        let source = policies.source();
        self.trace.policies(source);
        if let Some(status) = source.denied {
            return Some(self.respond(status, Reason::Denied));
        }
        // What an auth server, or the steps in its place, are told is the client's own text.
        let asks = source.access.as_ref().is_some_and(|access| access.external.is_some());
        if asks && paths::has_dot_segments(self.facts.target()) {
            return Some(self.respond(400, Reason::DotSegments));
        }
        if self.is_preflight(policies.origins(), source.cors.as_ref()) {
            return Some(self.respond(204, Reason::Preflight));
        }
        if let Some(to) = &source.redirect_to {
            return Some(self.redirect_to(to, rule));
        }
        if let Some(edit) = &source.path_edit {
            return self.edit_path(edit, rule);
        }
        match (&source.redirect, &source.rewrite) {
            (Some(elsewhere), _) => {
                Some(self.elsewhere(elsewhere, rule, source.relative_redirects))
            }
            (None, Some(rewrite)) if !is_broken_off => self.rewrite(rewrite, rule),
            (None, _) => None,
        }
    }

    /// A browser asks whether its origin may read, which is answered for the endpoint.
    fn is_preflight(&self, origins: Option<&cors::Origins>, written: Option<&Cors>) -> bool {
        let Some(origins) = origins.filter(|_| self.facts.method() == b"OPTIONS") else {
            return false;
        };
        let origin = self.facts.first_header(b"origin");
        // An origin that may not read is answered too, without permission.
        if written.is_some_and(|cors| cors.is_of_route) {
            let asked = self.facts.first_header(b"access-control-request-method");
            return origin.is_some() && asked.is_some();
        }
        matches!(origins.decide(origin), cors::OriginDecision::Shared(_))
    }

    /// The texts of the rule's policies may name the rule, and so may the log of an answer that they give.
    fn named(&mut self, rule: RuleView<'g>) -> Routed<'_, 'g, F> {
        self.route.is_named = true;
        let captures = self.route.captures.as_deref();
        let variables = self.edits.as_ref().and_then(|edits| edits.variables.as_ref());
        let known = variables.map_or(&[][..], |variables| &variables[..]);
        Routed { facts: self.facts, names: Some(RuleNames::of(rule)), captures, known }
    }

    /// The redirect of a route.
    fn redirect_to(&mut self, to: &RedirectTo, rule: RuleView<'g>) -> Answer {
        self.named(rule);
        let (host, path, target) =
            (self.facts.client_host(), self.facts.path(), self.facts.target());
        let location = path_edit::location(to, host, path, target);
        self.redirect(to.code, location)
    }

    fn redirect(&mut self, code: u16, location: Option<Vec<u8>>) -> Answer {
        match location {
            Some(location) => {
                self.trace.answer(Reason::RuleRedirects);
                Answer::Redirect { code, location }
            }
            None => self.respond(400, Reason::RedirectLeadsNowhere),
        }
    }

    /// Puts the path of a route in place of the client's.
    fn edit_path(&mut self, edit: &PathEdit, rule: RuleView<'g>) -> Option<Answer> {
        self.named(rule);
        let Some(path) = path_edit::edited(edit, self.facts.path()) else {
            return Some(self.respond(400, Reason::RewriteRefused));
        };
        self.edit().uri = Some((path, self.facts.args().to_vec()));
        None
    }

    fn elsewhere(&mut self, to: &Redirect, rule: RuleView<'g>, is_relative: bool) -> Answer {
        if to.location.uses_definitions() && !self.know(&to.location, rule) {
            return self.respond(500, Reason::NoAnswer);
        }
        let (origin, target) = (self.facts.origin(), self.facts.target());
        let values = self.named(rule);
        let location = redirect::elsewhere(to, origin.as_deref(), is_relative, target, &values);
        self.redirect(to.code, location)
    }

    /// Puts the rule's path in place of the client's.
    fn rewrite(&mut self, to: &Rewrite, rule: RuleView<'g>) -> Option<Answer> {
        if to.target.uses_definitions() && !self.know(&to.target, rule) {
            return Some(self.respond(500, Reason::NoAnswer));
        }
        let args = self.facts.args();
        let values = self.named(rule);
        let Ok(result) = rewrite::apply(to, args, &values) else {
            return Some(self.respond(400, Reason::RewriteRefused));
        };
        match result {
            Rewritten::Elsewhere(location) => {
                self.trace.answer(Reason::RewriteToUrl);
                Some(Answer::Redirect { code: 302, location })
            }
            Rewritten::Uri { path, args } => {
                if let Some(prefix) = &to.forwarded_prefix {
                    // One that would end the header's line is not sent, nor is the client's.
                    let value = template::expand(prefix.parts(), &values).unwrap_or_default();
                    self.edit().request.push(("X-Forwarded-Prefix", value));
                }
                self.edit().uri = Some((path, args));
                None
            }
        }
    }

    /// Sends the client to the path of an exact rule, which the request's lacks a slash of.
    #[cold]
    fn with_slash(&mut self, rule: RuleView<'g>) -> Answer {
        let is_relative = self.route.source().is_some_and(|source| source.relative_redirects);
        self.named(rule);
        let origin = self.facts.origin().filter(|_| !is_relative);
        let (path, args) = (self.facts.path(), self.facts.args());
        self.trace.answer(Reason::LacksSlash);
        Answer::Redirect {
            code: 301,
            location: redirect::with_slash(origin.as_deref(), path, args),
        }
    }

    #[inline]
    fn redirect_to_https(&mut self, rule: RuleView<'g>) -> Option<Answer> {
        // Without a name there is nowhere to send a client to.
        if !is_sent_to_https(self.generation, self.facts, rule) {
            return None;
        }
        let source = self.route.source();
        let port = source.and_then(|source| source.redirect_port);
        let keeps_slash = source.is_some_and(|source| source.keeps_trailing_slash);
        let (host, target) = (self.facts.client_host(), self.facts.target());
        let location = redirect::location(host, port, target, keeps_slash);
        let code = SettingsView::of(self.generation).http_redirect_code().into();
        self.trace.answer(Reason::ToHttps);
        Some(Answer::Redirect { code, location })
    }
}

/// A rule answers plain HTTP with a redirect to HTTPS. A client that names no host cannot be sent anywhere.
fn is_sent_to_https<'g>(
    generation: &impl Generation<'g>,
    facts: &impl Facts,
    rule: RuleView<'g>,
) -> bool {
    let has_certificate = || generation.has_certificate(facts.host());
    // A trusted proxy in front may say that its client came over HTTPS.
    let is_https = || facts.client_scheme() != b"http";
    redirect::is_redirected(rule.https_redirect(), is_https, has_certificate)
        && !facts.client_host().is_empty()
}

#[cfg(test)]
pub(crate) mod tests;
