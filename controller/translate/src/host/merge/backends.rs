//! The backends that the rules of a host lead to.

use super::{EXPRESSIONS, Merge, Winner};
use crate::backend::spec::{self, BackendSpec, HostBackend, Override};
use crate::claim::backend_ref::BackendRef;
use crate::ingress::Claims;
use oxigress_core::model::{BackendId, Cookie, PathPattern};
use oxigress_objects::Key;
use oxigress_objects::verdict::Note;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<'a> Merge<'a> {
    /// The backend of one rule.
    pub(super) fn backend(
        &mut self,
        by: &'a Claims,
        backend_ref: &'a BackendRef,
        winner: &Winner<'a>,
    ) -> BackendId {
        let (base, spec) = self.base(by, backend_ref);
        let gives_cookie = by.balancing().is_some_and(|word| word.affinity.is_some());
        let path = if gives_cookie { winner.path } else { "" };
        let balancing = self.spec_owners.balancing_of(&base, &spec);
        let mut alternatives = Vec::new();
        for (canary, to) in &winner.canaries {
            let Some(rules) = canary.canary() else { continue };
            let affinity = balancing.affinity.clone().filter(|_| rules.is_sticky);
            let mut id = format!("{}//canary/{}", to.backend, canary.key.name);
            if affinity.is_some() {
                id = format!("{id}//{base}");
            }
            let id = match BackendId::parse(id) {
                Ok(id) => id,
                Err(why) => {
                    self.say(canary, Note::rejected(format!("canary: {why}: use shorter names")));
                    continue;
                }
            };
            let path = if affinity.is_some() { path } else { "" };
            let mut own = canary.balancing().map(|word| (**word).clone()).unwrap_or_default();
            own.affinity = affinity;
            let own = Override {
                balancing: Arc::new(own),
                split: Some(rules.split.clone()),
                ..Override::default()
            };
            self.add_backend(id.clone(), BackendSpec::own(to, own), canary, path);
            alternatives.push(id);
        }
        let (id, spec) = match spec::split(&base, &alternatives) {
            _ if alternatives.is_empty() => (base, spec),
            Ok(id) => (
                id,
                BackendSpec::own(backend_ref, Override { balancing, alternatives, split: None }),
            ),
            Err(why) => {
                self.say(
                    by,
                    Note::warning(format!(
                        "canaries of this path get no requests: {why}: use shorter names"
                    )),
                );
                (base, spec)
            }
        };
        self.add_backend(id.clone(), spec, by, path);
        id
    }

    /// The backend of a Service's port for one Ingress, without canaries.
    pub(super) fn base(
        &mut self,
        by: &'a Claims,
        backend_ref: &BackendRef,
    ) -> (BackendId, BackendSpec) {
        self.spec_owners.backend_of(by, backend_ref).unwrap_or_else(|why| {
            self.say(by, Note::warning(format!(
                "its balancing annotations have no effect for Service {}: {why}: use shorter names",
                backend_ref.service
            )));
            (backend_ref.backend.clone(), BackendSpec::shared(backend_ref))
        })
    }

    pub(super) fn add_backend(
        &mut self,
        backend: BackendId,
        spec: BackendSpec,
        by: &Claims,
        path: &str,
    ) {
        self.merged.backend_specs.insert(backend.clone(), spec);
        self.merged.backends.insert(HostBackend {
            backend,
            ingress: by.key.clone(),
            path: path.into(),
        });
    }

    /// Where the reference would send a part of the requests to a canary that claims another path.
    pub(super) fn name_paths_without_canary(
        &mut self,
        winners: &BTreeMap<PathPattern, Winner<'a>>,
    ) {
        let mut canaries: BTreeMap<&BackendId, BTreeMap<&Key, &Claims>> = BTreeMap::new();
        for winner in winners.values() {
            let Some(backend_ref) = winner.backend_ref else { continue };
            for (by, _) in &winner.canaries {
                canaries.entry(&backend_ref.backend).or_default().insert(&by.key, by);
            }
        }
        for (pattern, winner) in winners {
            let Some(backend_ref) = winner.backend_ref else { continue };
            for by in canaries.get(&backend_ref.backend).into_iter().flat_map(BTreeMap::values) {
                if winner.canaries.iter().any(|(here, _)| here.key == by.key) {
                    continue;
                }
                let message = format!(
                    "canary: {} leads to Service {} too and is not split, since the canary does not \
                     claim it; ingress-nginx splits it: add the path if that is meant",
                    self.place(pattern),
                    backend_ref.service
                );
                self.say(by, Note::remark(message));
            }
        }
    }

    /// Where the affinity cookie's `Path` is the text of an expression, so that browsers keep the cookie to themselves.
    pub(super) fn name_paths_without_cookie(
        &mut self,
        winners: &BTreeMap<PathPattern, Winner<'a>>,
    ) {
        let mut told = BTreeSet::new();
        for (pattern, winner) in winners {
            let Winner { by, path, backend_ref, closer, .. } = winner;
            let affinity = by.balancing().and_then(|word| word.affinity.as_ref());
            let has_own_path = affinity.is_none_or(|affinity| affinity.cookie.path.is_some());
            let is_served = backend_ref.is_some() && closer.is_none() && !by.is_closed();
            // One that no attribute can hold becomes `/`.
            let is_sent = Cookie::check_attribute(path).is_ok();
            let is_expression =
                matches!(pattern, PathPattern::Regex(_)) && path.contains(EXPRESSIONS);
            if is_expression && is_sent && is_served && !has_own_path && told.insert(&by.key) {
                let message = format!(
                    "annotation affinity: {}: the cookie's Path is the expression, so no browser sends it back and nothing \
                     is sticky: set session-cookie-path to what all requests begin with",
                    self.place(pattern)
                );
                self.say(by, Note::warning(message));
            }
        }
    }
}
