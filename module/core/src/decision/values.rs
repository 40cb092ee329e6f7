//! Variables whose values come from the rule that takes the request.

use super::{Facts, Variable};
use crate::patterns::Captures;
use crate::record::RuleView;
use crate::text::template::Values;
use std::borrow::Cow;

/// The names of a rule: [`RuleView::texts`].
#[derive(Clone, Copy, Debug)]
pub struct RuleNames<'g> {
    texts: [&'g [u8]; 6],
}

impl<'g> RuleNames<'g> {
    /// The names of this rule.
    pub fn of(rule: RuleView<'g>) -> Self {
        RuleNames { texts: rule.texts() }
    }

    /// The value of one of the rule's variables, before a backend is chosen; `None`: the variable is not the rule's.
    fn variable(&self, name: &[u8]) -> Option<Cow<'g, [u8]>> {
        let [backend, namespace, ingress, service, port, path] = self.texts;
        Some(Cow::Borrowed(match name {
            b"namespace" => namespace,
            b"ingress_name" => ingress,
            b"service_name" => service,
            b"service_port" => port,
            b"location_path" => location_path(path),
            b"proxy_upstream_name" => return Some(upstream_name(self.texts, backend)),
            _ => return None,
        }))
    }
}

/// `$location_path`: the path that the Ingress names.
pub fn location_path(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

/// `$proxy_upstream_name` of a request that `backend` serves: `namespace-service-port`; the backend's id where the rule has
/// no Service; `upstream-default-backend`, as in ingress-nginx, where nobody serves.
pub fn upstream_name<'g>(texts: [&'g [u8]; 6], backend: &'g [u8]) -> Cow<'g, [u8]> {
    match upstream_name_parts(texts, backend) {
        [name, b"", ..] => Cow::Borrowed(name),
        parts => Cow::Owned(parts.concat()),
    }
}

/// The parts of [`upstream_name`], one after the other; a name of one part stands in the first.
pub fn upstream_name_parts<'g>(texts: [&'g [u8]; 6], backend: &'g [u8]) -> [&'g [u8]; 5] {
    let [own, namespace, _, service, port, _] = texts;
    let name = match (backend.is_empty(), service.is_empty()) {
        (true, _) => b"upstream-default-backend",
        (false, false) => return [namespace, b"-", service, b"-", port],
        // Not the alternative, which has a variable of its own.
        (false, true) if own.is_empty() => backend,
        (false, true) => own,
    };
    [name, b"", b"", b"", b""]
}

/// A request once its rule is known: what texts of policies are made of.
pub(super) struct Routed<'a, 'g, F> {
    pub facts: &'a F,
    /// `None`: no rule is known yet.
    pub names: Option<RuleNames<'g>>,
    pub captures: Option<&'a Captures>,
    /// Variables that are worked out of others.
    pub known: &'a [Variable],
}

impl<F: Facts> Values for Routed<'_, '_, F> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        if let Some(value) = self.names.and_then(|names| names.variable(name)) {
            return Some(value);
        }
        match self.known.iter().find(|(known, _)| known.as_bytes() == name) {
            Some((_, value)) => Some(Cow::Borrowed(value)),
            None => self.facts.variable(name),
        }
    }

    fn capture(&self, number: u8) -> &[u8] {
        self.captures.map_or(&[], |captures| captures.get(number, self.facts.path()))
    }
}
