//! Variables of texts that are worked out of others, which a request has before it goes on: what they lack would open something
//! later.

use super::facts::{CompiledPolicies, Facts, Generation};
use super::trace::Trace;
use super::{Decider, defined};
use crate::model::policy::{Policies, Template};
use crate::patterns::Budget;
use crate::record::RuleView;

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// Works out the variables of a text that are worked out of others; `false`: that takes too long, or they are not there.
    #[cold]
    pub(super) fn know(&mut self, text: &Template, rule: RuleView<'g>) -> bool {
        let edits = self.edit();
        let mut known = edits.variables.take().unwrap_or_default();
        let mut budget = edits.pattern_steps.map_or(Budget::OF_SCRIPTS, Budget::of);
        let uri = edits.uri.take();
        let [_, namespace, ..] = rule.texts();
        let source = defined::OfGeneration { generation: self.generation, namespace };
        let changed = uri.as_ref().map(|(path, args)| (&path[..], &args[..]));
        let uri_now = changed.unwrap_or((self.facts.path(), self.facts.args()));
        let values = defined::Rewritten { uri: uri_now, values: &self.named(rule) };
        let done = defined::know(text, &source, &mut known, &mut budget, &values);
        let edits = self.edit();
        (edits.variables, edits.uri) = (Some(known), uri);
        edits.pattern_steps = Some(budget.left());
        done.is_ok()
    }

    /// The same of all texts that a request may have expanded; those after the first that is not known are not looked at.
    #[cold]
    pub(super) fn know_all(&mut self, source: &Policies, rule: RuleView<'g>) -> bool {
        let inner = self.edits.as_ref().and_then(|edits| edits.if_location.clone());
        let inner = inner.iter().flat_map(|inner| inner.templates());
        let mut all = source.templates().into_iter().chain(inner);
        all.all(|text| !text.uses_definitions() || self.know(text, rule))
    }

    /// Whether texts of these policies, or of the `if` that the request is in, have such variables.
    #[inline]
    pub(super) fn uses_definitions(&self, policies: &G::Policies) -> bool {
        let inner = self.edits.as_ref().and_then(|edits| edits.if_location.as_ref());
        policies.uses_definitions()
            || inner.is_some_and(|inner| inner.templates().any(Template::uses_definitions))
    }
}
