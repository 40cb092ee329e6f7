//! What holds for a request once it is decided.

use super::facts::{CompiledPolicies, Generation};
use crate::model::policy::Policies;
use crate::patterns::Captures;
use crate::record::RuleView;

/// What holds for a request until it is routed again.
pub struct Route<'g, G: Generation<'g>> {
    /// The rule that takes it.
    pub rule: Option<RuleView<'g>>,
    /// What the groups of the rule's pattern matched in the path.
    pub captures: Option<Box<Captures>>,
    /// The policies of the rule.
    pub policies: Option<G::Policies>,
    /// Variables and log lines name the rule. An answer that does not depend on it leaves its names out.
    pub is_named: bool,
    /// Who serves; `None`: the request was answered before that mattered.
    pub destination: Option<Destination<'g, G::Endpoints>>,
    /// The status that the fallback answers in the place of the rule's own backend.
    pub error: Option<u16>,
}

/// The backend that serves a request, with its endpoints as the generation has them.
#[derive(Clone, Copy)]
pub struct Destination<'g, E> {
    /// Which of the backends that the rule may lead to serves.
    pub backend: Backend<'g>,
    /// Its endpoints; `None`: there is no backend.
    pub endpoints: Option<E>,
}

/// Which of the backends that a rule may lead to serves the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend<'g> {
    /// Neither the rule nor the settings name a backend.
    Nobody,
    /// The one that the rule names.
    Own,
    /// The default one, with this id.
    Default(&'g [u8]),
    /// An alternative of either, with this id.
    Alternative(&'g [u8]),
    /// The fallback that the rule's policies name.
    Fallback,
}

/// The cell that counts a request: a place in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter<R> {
    /// No rule takes the request.
    NoRule,
    /// The rule with this index in the server's record.
    Rule(R, usize),
    /// The alternative with this index in the record of the backend that it stands in for.
    Alternative(R, usize),
}

impl<'g, G: Generation<'g>> Route<'g, G> {
    pub(super) const fn none() -> Self {
        Route {
            rule: None,
            captures: None,
            policies: None,
            is_named: false,
            destination: None,
            error: None,
        }
    }

    /// Id of the backend that serves in the place of the rule's own; empty: the rule's own serves, or nobody.
    pub fn instead(&self) -> &[u8] {
        match self.destination.as_ref().map(|to| to.backend) {
            Some(Backend::Default(id) | Backend::Alternative(id)) => id,
            Some(Backend::Fallback) => self.fallback().unwrap_or_default(),
            Some(Backend::Own | Backend::Nobody) | None => b"",
        }
    }

    /// Id of the backend that serves; `None`: nobody does.
    pub fn backend(&self) -> Option<&[u8]> {
        match self.destination.as_ref()?.backend {
            Backend::Nobody => None,
            Backend::Own => self.rule?.backend(),
            _ => Some(self.instead()),
        }
    }

    /// Whether an alternative, such as a canary, serves in the place of the rule's own backend.
    pub fn is_alternative(&self) -> bool {
        let destination = self.destination.as_ref();
        destination.is_some_and(|to| matches!(to.backend, Backend::Alternative(_)))
    }

    pub(super) fn source(&self) -> Option<&Policies> {
        self.policies.as_deref().map(CompiledPolicies::source)
    }

    pub(super) fn fallback(&self) -> Option<&[u8]> {
        Some(self.source()?.fallback.as_ref()?.as_str().as_bytes())
    }
}
