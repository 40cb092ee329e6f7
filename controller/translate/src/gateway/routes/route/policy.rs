//! What the Policy of a rule says of it.

use super::{PolicyContent, RouteReader, Target};
use crate::annotation::balancing::Balancing;
use crate::claim::backend_ref::BackendRef;
use oxigress_core::model::BackendId;
use oxigress_objects::gateway::HttpRouteRule;
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::sync::Arc;

impl RouteReader<'_, '_> {
    /// The Policy that a rule names, if it names one; why it cannot be used.
    pub(super) fn policy(
        &mut self,
        rule: &HttpRouteRule,
    ) -> Result<Option<Arc<PolicyContent>>, Condition> {
        let mut names = rule.policies();
        let Some(name) = names.next() else { return Ok(None) };
        let refuse = |reason, message: String| Err(Condition::no("ResolvedRefs", reason, message));
        if names.next().is_some() {
            let message = "filters: one Policy of a rule is served alone: join them";
            return refuse("UnsupportedValue", message.into());
        }
        let key = Key::new(&self.id.key.namespace, name);
        let Some(content) = self.compiled.policies.get(&key).cloned().flatten() else {
            let absent = ObjectRef::new(Kind::Policy, key.clone());
            let missing =
                refuse("BackendNotFound", format!("filters: Policy {key} does not exist"));
            return missing.map_err(|why| why.because_of(absent));
        };
        if let Some(trouble) = &content.trouble {
            self.compiled.trouble.get_or_insert_with(|| trouble.clone());
        }
        if let Some(backend_ref) = &content.default_backend {
            self.add_backend(backend_ref, &Arc::default());
        }
        Ok(Some(content))
    }

    /// How the endpoints of a rule are chosen, with what sets their backends apart.
    pub(super) fn balancing(
        &self,
        rule: &HttpRouteRule,
        policy: Option<&PolicyContent>,
    ) -> Option<(String, Arc<Balancing>)> {
        let balancing = policy?.balancing.clone()?;
        let name = rule.policies().next()?;
        Some((format!("{}/{name}", self.id.key.namespace), balancing))
    }

    /// Leads a share to its backend, which is one of its own where a Policy says how endpoints are chosen.
    pub(super) fn balance(
        &mut self,
        target: &mut Target,
        by: &Option<(String, Arc<Balancing>)>,
    ) -> Result<(), String> {
        let Some(backend_ref) = &mut target.backend_ref else { return Ok(()) };
        let balancing = match by {
            None => Arc::default(),
            Some((policy, balancing)) => {
                let BackendRef { backend, .. } = backend_ref;
                *backend = BackendId::parse(format!("{backend}/{policy}"))
                    .map_err(|why| format!("backendRefs: {why}"))?;
                balancing.clone()
            }
        };
        self.add_backend(backend_ref, &balancing);
        Ok(())
    }
}
