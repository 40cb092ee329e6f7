//! Who serves a request that goes on: the rule's own backend, the default one, an alternative, or the fallback.

use super::{
    Answer, Backend, Counter, Decider, Destination, EndpointSet, Facts, Generation, Reason, Trace,
};
use crate::balancer::split;
use crate::decision::BackendReason;
use crate::model::BackendId;
use crate::record::{BackendView, Kind, RuleView, SettingsView};

const TRY_AGAIN: &[(&str, &str)] = &[("Retry-After", "1")];

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// Finds who serves, and whether anybody can.
    #[inline]
    pub(super) fn forward(&mut self) -> Answer {
        let own = self.route.rule.and_then(|rule| rule.backend());
        let (backend, id) = match own {
            Some(id) => (Backend::Own, id),
            None => match SettingsView::of(self.generation).default_backend() {
                Some(id) => (Backend::Default(id), id),
                None => return self.forward_to_nobody(),
            },
        };
        let is_own = backend == Backend::Own;
        self.trace.backend(if is_own { BackendReason::Own } else { BackendReason::Default });
        let endpoints = self.generation.endpoints(id);
        let mut to = Destination { backend, endpoints: Some(endpoints) };
        let mut set = endpoints;
        if set.has_more()
            && let Some(id) = self.alternative(id)
        {
            set = self.generation.endpoints(id);
            to = Destination { backend: Backend::Alternative(id), endpoints: Some(set) };
        }
        if set.is_empty()
            && let Some(fallback) = self.fallback()
        {
            set = fallback;
            to = Destination { backend: Backend::Fallback, endpoints: Some(set) };
        }
        self.route.destination = Some(to);
        match () {
            () if set.is_empty() => self.respond(503, Reason::NoEndpoint),
            () if set.is_busy() => {
                self.edit().response = TRY_AGAIN;
                self.respond(503, Reason::Busy)
            }
            () => {
                self.trace.answer(Reason::Served);
                Answer::Forward
            }
        }
    }

    #[cold]
    fn forward_to_nobody(&mut self) -> Answer {
        self.route.destination = Some(Destination { backend: Backend::Nobody, endpoints: None });
        let rule = self.route.rule.filter(|rule| !rule.is_unclaimed());
        let reason = if rule.is_some() { Reason::NoBackend } else { Reason::NoRule };
        self.respond(404, reason)
    }

    /// The alternative that takes the request, if one does; the primary's record counts it.
    fn alternative(&mut self, id: &[u8]) -> Option<&'g [u8]> {
        let primary = self.generation.record(Kind::Backend, id)?;
        let view = BackendView::new(self.generation.value_of(primary));
        let (index, alternative) = alternative(self.generation, self.facts, &view, self.trace)?;
        *self.counter = Some(Counter::Alternative(primary, index));
        Some(alternative)
    }

    /// The endpoints of the fallback, where it has some. Headers tell it for whom it answers.
    #[cold]
    fn fallback(&mut self) -> Option<G::Endpoints> {
        let set = self.generation.endpoints(self.route.fallback()?);
        if set.is_empty() {
            return None;
        }
        self.trace.backend(BackendReason::Fallback);
        self.route.error = Some(503);
        let (rule, facts) = (self.route.rule, self.facts);
        let headers = rule.into_iter().flat_map(|rule| headers_for_fallback(503, rule, facts));
        self.edit().request.extend(headers);
        Some(set)
    }
}

/// The headers that tell a fallback for whom it answers; for error pages nginx.conf sets them.
fn headers_for_fallback(
    status: u16,
    rule: RuleView<'_>,
    facts: &impl Facts,
) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let [_, namespace, ingress, service, port, _] = rule.texts().map(<[u8]>::to_vec);
    let accepted = facts.first_header(b"accept").unwrap_or_default().to_vec();
    [
        ("X-Code", status.to_string().into_bytes()),
        ("X-Format", accepted),
        ("X-Namespace", namespace),
        ("X-Ingress-Name", ingress),
        ("X-Service-Name", service),
        ("X-Service-Port", port),
    ]
    .into_iter()
}

/// The alternative that takes the request in place of a backend, if one does: its index and its id.
pub fn alternative<'g, G: Generation<'g>>(
    generation: &G,
    facts: &impl Facts,
    primary: &BackendView<'g>,
    trace: &mut impl Trace,
) -> Option<(usize, &'g [u8])> {
    let mut ids = primary.alternatives().peekable();
    let namespace = BackendId::namespace_of(ids.peek()?);
    let views = ids.clone().map(|id| {
        if generation.endpoints(id).is_empty() {
            return None;
        }
        generation.value(Kind::Backend, id).map(BackendView::new)
    });
    let patterns = generation.patterns().of(namespace);
    let chosen = split::decide(primary.affinity(), views, facts, &patterns, facts.random());
    let split::Choice { place, by } = chosen;
    trace.backend(BackendReason::Split { by, is_alternative: place.is_some() });
    place.and_then(|place| Some((place, ids.nth(place)?)))
}
