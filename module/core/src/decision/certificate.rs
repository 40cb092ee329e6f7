//! What the TLS policy of a request's host says about its client's certificate.
//!
//! A handshake is for a server name and a request for a host, which need not be the same: a client may name another
//! host, none at all, or put requests for several hosts on one HTTP/2 connection. A request whose host wants something else
//! than its connection was asked for gets 421.
//!
//! Source: statuses from ngx_http_process_request.

use super::facts::{Parts, Shown, Unusable};
use super::listener::{FoundHost, MISDIRECTED};
use super::values::Routed;
use super::{
    Answer, CompiledHostPolicy, Decider, Facts, Generation, Reason, Trace, is_sent_to_https,
};
use crate::model::policy::{ClientCertificates, VerifyClient};
use crate::patterns::Budget;
use crate::record::{MatchedRule, ServerView};
use crate::text::template;

/// nginx's own statuses; the client sees 400, the page names the reason.
const CERTIFICATE_ERROR: u16 = 495;
const NO_CERTIFICATE: u16 = 496;
/// nginx's own: the connection is closed.
const CLOSE: u16 = 444;
/// Challenges of certificate authorities come over plain HTTP.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// What the TLS policy of the request's host answers; `None`: the request goes on. `at`: what was found where Gateways
    /// listen.
    #[inline]
    pub(super) fn client_certificate(
        &mut self,
        at: Option<&FoundHost<G::Record>>,
    ) -> Option<Answer> {
        if at.is_none() && !self.generation.has_host_policies() {
            return None;
        }
        match self.host_policy(at) {
            // A host without one gets 421 too, from a connection that was asked for something.
            Ok(policy) => self.certificate_of(policy),
            Err(_) => Some(self.respond(503, Reason::HostPolicyUnusable)),
        }
    }

    /// The policy of the listener that has the host, or that of the host.
    fn host_policy(
        &self,
        at: Option<&FoundHost<G::Record>>,
    ) -> Result<Option<G::HostPolicy>, Unusable> {
        let generation = self.generation;
        let host = Some(self.facts.host()).filter(|host| !host.is_empty());
        // What Ingresses say about a host is for the ports on which they are served.
        let is_shared = at.is_none_or(FoundHost::is_shared);
        let of_host = match generation.has_host_policies() && is_shared {
            true => {
                generation.host_policy(host, !at.is_some_and(FoundHost::is_named_by_listener))?
            }
            false => None,
        };
        let of_listener = match at.and_then(FoundHost::of_listener) {
            Some(record) => generation.listener_policy(record)?,
            None => None,
        };
        let restricts = |policy: &G::HostPolicy| {
            let source = policy.source();
            source.denied
                || source.client.as_ref().is_some_and(|client| client.verify != VerifyClient::Off)
        };
        match of_listener {
            None => Ok(of_host),
            // One handshake cannot ask for both, and neither is given up.
            Some(_) if of_host.as_ref().is_some_and(restricts) => Err(Unusable),
            Some(policy) => Ok(Some(policy)),
        }
    }

    fn certificate_of(&mut self, policy: Option<G::HostPolicy>) -> Option<Answer> {
        if policy.as_ref().is_some_and(|policy| policy.source().denied) {
            return Some(self.respond(403, Reason::HostDenied));
        }
        if self.facts.is_tls() {
            let asks = policy.as_ref().map_or([0; 16], |policy| policy.asks());
            if !self.facts.was_asked_for(&asks) {
                // Whoever asks again has to shake hands again.
                self.edit().closes_connection = true;
                return Some(self.respond(MISDIRECTED, Reason::Misdirected));
            }
        }
        let policy = policy?;
        let client = policy.source().client.as_ref()?;
        self.trace.client_certificate(client);
        if !self.facts.is_tls() && self.may_come_without_tls() {
            return None;
        }
        let shown = if self.facts.is_tls() { self.facts.certificate()? } else { Shown::Nothing };
        if let Some(status) = fault(client, shown) {
            self.edit().forgets_session = true;
            return self.refuse(client, status);
        }
        let subject = client.subject.as_ref()?;
        // It was searched before a script gave the request another path.
        if self.facts.is_tls() && self.facts.moved_budget().is_some() {
            return None;
        }
        let named = self.facts.certificate_subject().unwrap_or_default();
        let patterns = self.generation.patterns().of(policy.payer());
        // A pattern that cannot be tried on a subject does not match it.
        let mut budget = Budget::OF_VALUES;
        match patterns.is_match(subject.as_str().as_bytes(), named, &mut budget) {
            Some(true) => None,
            _ => Some(self.respond(403, Reason::SubjectRefused)),
        }
    }

    /// Plain HTTP shows no certificate. What goes on to be sent to HTTPS may come, and so may what certificate
    /// authorities ask for, if a rule of its own takes it. The rule is that which would serve the request.
    fn may_come_without_tls(&self) -> bool {
        let (generation, facts) = (self.generation, self.facts);
        let path = facts.path();
        let Some((server, _)) = self.find_server() else { return false };
        let view = ServerView::new(generation.value_of(server));
        let found = view.rule(path, &Parts(facts), generation.patterns());
        let Ok(Some(MatchedRule { rule, .. })) = found else { return false };
        let [.., named] = rule.texts();
        (named.starts_with(CHALLENGES) && path.starts_with(CHALLENGES))
            || is_sent_to_https(generation, facts, rule)
    }

    /// Whether the rule that serves the page is this namespace's: what protects that of another one may look at the client's path.
    fn is_page_of(&self, namespace: Option<&str>) -> bool {
        let Some(namespace) = namespace else { return true };
        let generation = self.generation;
        let Some((server, _)) = self.find_server() else { return true };
        let view = ServerView::new(generation.value_of(server));
        match view.rule(self.facts.path(), &Parts(self.facts), generation.patterns()) {
            Ok(Some(MatchedRule { rule, .. })) => {
                let [_, of_rule, ..] = rule.texts();
                of_rule == namespace.as_bytes()
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The error page, if there is one and it can be made, else nginx's own.
    fn refuse(&mut self, client: &ClientCertificates, status: u16) -> Option<Answer> {
        let reason = match status {
            NO_CERTIFICATE => Reason::CertificateMissing,
            _ => Reason::CertificateRefused,
        };
        let answer = match &client.error_page {
            None => Answer::Respond(status),
            Some(page) => match page.as_str().as_bytes() {
                // It was sent here by the line below.
                [b'/', ..]
                    if self.facts.is_internal() && is_path(page.as_str(), self.facts.path()) =>
                {
                    if self.is_page_of(client.error_page_of.as_deref()) {
                        return None;
                    }
                    Answer::Respond(status)
                }
                // A name of nginx.conf's, which has none for users.
                [b'@', ..] => Answer::Respond(status),
                [b'/', ..] => Answer::Internal(page.as_str().into()),
                _ => {
                    let values =
                        Routed { facts: self.facts, names: None, captures: None, known: &[] };
                    match template::expand(page.parts(), &values) {
                        Some(location) if !location.is_empty() => {
                            Answer::Redirect { code: 302, location }
                        }
                        _ => Answer::Respond(status),
                    }
                }
            },
        };
        self.trace.answer(reason);
        Some(answer)
    }
}

/// nginx's status for what a client has shown, where it is not enough.
fn fault(client: &ClientCertificates, shown: Shown) -> Option<u16> {
    match (client.verify, shown) {
        (VerifyClient::Off | VerifyClient::Any, _) | (_, Shown::Valid) => None,
        (VerifyClient::Strict, _) => Some(CLOSE),
        (VerifyClient::On, Shown::Nothing) => Some(NO_CERTIFICATE),
        (VerifyClient::Optional | VerifyClient::OptionalNoCa, Shown::Nothing)
        | (VerifyClient::OptionalNoCa, Shown::Unvouched) => None,
        (_, Shown::Unvouched | Shown::Invalid) => Some(CERTIFICATE_ERROR),
    }
}

fn is_path(page: &str, path: &[u8]) -> bool {
    page.split('?').next().is_some_and(|page| page.as_bytes() == path)
}
