//! The paths of a host beside those that are claimed: its root, what is closed, canaries that join.

use super::{Merge, Winner, root};
use crate::claim::backend_ref::BackendRef;
use crate::host::passthrough;
use crate::ingress::{Claim, Claims};
use oxigress_core::model::policy::{Policies, Redirect};
use oxigress_core::model::{HostPattern, MAX_ALTERNATIVES, PathPattern, Policy, WELL_KNOWN};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Kind, ObjectRef};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What answers 503.
pub(super) fn closed() -> Policies {
    Policies { denied: Some(503), ..Policies::default() }
}

impl<'a> Merge<'a> {
    /// The root, which every host has, and what holds for the whole host.
    /// `first` is the oldest Ingress of the host's owner.
    pub(super) fn complete(&mut self, first: Option<&'a Claims>) {
        if *self.host == HostPattern::default_host() {
            for by in self.view.mains.iter().filter(|by| by.is_catch_all) {
                self.catch_all(by);
            }
        } else if let Some(first) = first
            && !self.winners.contains_key(&root())
        {
            // With the policies of the host's first Ingress: what nothing else takes is redirected,
            // closed or sent on as that one says.
            let policy = first.policy("/", self.settings);
            let policies = first.policies("/", self.settings);
            self.insert(first, root(), first.default_backend.as_ref(), "/", policy, policies);
        }
        self.keep_well_known(first);
        self.send_root_to_app();
        let mut unprotected = self.unprotected.clone();
        if self.tls_of.is_some() {
            let all = self.view.owner.settings();
            let asking = all.filter(|(_, settings)| settings.client_tls.client.is_some());
            unprotected.extend(asking.map(|(by, _)| &by.key));
        }
        for winner in self.winners.values_mut() {
            winner.closer = unprotected.contains(&winner.by.key).then_some(winner.by);
        }
        // One client-certificate rule that can be honoured holds for the host, whatever others say.
        let all = || self.view.owner.settings();
        let clients = || all().map(|(by, settings)| (by, settings.client_tls.client.as_ref()));
        let is_client = clients().any(|(_, client)| matches!(client, Some(Ok(_))));
        let error = clients().find(|(_, client)| matches!(client, Some(Err(()))) && !is_client);
        let error = error.filter(|_| self.tls_of.is_none());
        let closing = all().find(|(_, settings)| settings.closes_host).map(|(by, _)| by);
        if let Some(by) = closing.or(error.map(|(by, _)| by)) {
            self.close(by);
        }
    }

    /// Where another namespace has the root, what lies below [`WELL_KNOWN`] is the owner's all the same: the request comes
    /// to the root that the owner would have. An owner without an Ingress has none: the rule is nobody's then, and a route's
    /// root takes its place.
    pub(super) fn keep_well_known(&mut self, first: Option<&'a Claims>) {
        let owner = &self.view.owner;
        let is_foreign = self.winners.get(&root()).is_some_and(|winner| !owner.has(winner.by));
        let pattern = PathPattern::Prefix(WELL_KNOWN.into());
        if (!is_foreign && self.lost_root.is_none()) || self.winners.contains_key(&pattern) {
            return;
        }
        let Some(first) = first else {
            self.has_open_well_known = true;
            return;
        };
        let is_default = *self.host == HostPattern::default_host();
        let (by, backend_ref, policy) = match self.lost_root {
            Some((by, claim)) => (by, claim.backend_ref.as_ref(), by.policy("/", self.settings)),
            // As the root that stands where nobody claims one.
            None if is_default => {
                let mut own = self.view.mains.iter().filter(|by| by.is_catch_all && owner.has(by));
                let by = own.find(|by| by.default_backend.is_some()).copied().unwrap_or(first);
                (by, by.default_backend.as_ref(), Policy::default())
            }
            None => (first, first.default_backend.as_ref(), first.policy("/", self.settings)),
        };
        let policy = Policy { yields: true, ..policy };
        let policies = match self.lost_root {
            Some((by, claim)) => self.policies_of(by, claim),
            None => by.policies("/", self.settings),
        };
        self.insert(by, pattern, backend_ref, "/", policy, policies);
    }

    pub(super) fn catch_all(&mut self, by: &'a Claims) {
        let Some(backend_ref) = &by.default_backend else { return };
        if let Some(winner) = self.winners.get(&root()) {
            let message = format!(
                "spec.defaultBackend: requests that no host takes go to Ingress {}, which claims \
                 path / or is older: remove one of the two",
                winner.by.key
            );
            return self.say(by, Note::rejected(message));
        }
        // The reference applies no redirect to this root.
        let policies = by.policies("/", self.settings);
        self.insert(by, root(), Some(backend_ref), "/", Policy::default(), policies);
    }

    /// app-root, before whatever else `/` is; the oldest counts.
    pub(super) fn send_root_to_app(&mut self) {
        let mut all = self.view.owner.settings();
        let app = all.find_map(|(by, settings)| Some((by, settings.hosts.app_root.clone()?)));
        let Some((by, location)) = app else { return };
        let redirect = Some(Redirect { code: 302, location, appends_target: false });
        let policies = Arc::new(Policies { redirect, ..Policies::default() });
        let pattern = PathPattern::Exact("/".into());
        if let Some(other) = self.winners.get(&pattern).map(|winner| winner.by)
            && other.key != by.key
        {
            let message = format!(
                "{} is app-root of Ingress {}: remove the path",
                self.place(&pattern),
                by.key
            );
            self.say(other, Note::rejected(message));
        }
        self.insert(by, pattern, None, "/", Policy::default(), policies);
    }

    /// What is decided per request about a path, which answers 503 where it leads to no Service.
    pub(super) fn policies_of(&self, by: &Claims, claim: &Claim) -> Arc<Policies> {
        match claim.backend_ref.is_some() {
            true => by.policies(&claim.path, self.settings),
            false => self.closed.clone(),
        }
    }

    pub(super) fn insert(
        &mut self,
        by: &'a Claims,
        pattern: PathPattern,
        backend_ref: Option<&'a BackendRef>,
        path: &'a str,
        policy: Policy,
        policies: Arc<Policies>,
    ) {
        let canaries = Vec::new();
        let winner = Winner { by, backend_ref, path, policy, policies, canaries, closer: None };
        self.winners.insert(pattern, winner);
    }

    /// Has a path answer 503.
    pub(super) fn insert_closed(&mut self, by: &'a Claims, pattern: PathPattern, path: &'a str) {
        self.insert(by, pattern, None, path, Policy::default(), self.closed.clone());
    }

    /// A client-certificate rule holds for the whole host; while it cannot be honoured, nothing of the
    /// host is open.
    pub(super) fn close(&mut self, by: &'a Claims) {
        let mut told = BTreeSet::new();
        if !self.winners.contains_key(&root()) {
            let policies = by.policies("/", self.settings);
            self.insert(by, root(), None, "/", Policy::default(), policies);
        }
        for winner in self.winners.values_mut() {
            winner.closer = Some(by);
            if winner.by.key != by.key && told.insert(winner.by.key.clone()) {
                let message = format!(
                    "host {} is closed by annotations of Ingress {} that hold for the whole host: its \
                     locations are not served until that one is corrected",
                    self.host, by.key
                );
                let object = ObjectRef::new(Kind::Ingress, winner.by.key.clone());
                self.merged.notes.push((object, Note::rejected(message)));
            }
        }
    }

    /// A canary takes a part of the requests of a path that somebody has.
    pub(super) fn join(&mut self, by: &'a Claims, claim: &'a Claim) {
        let pattern = self.pattern(claim);
        let place = self.place(&pattern);
        let refuse = |why: &str| Note::rejected(format!("canary: {place} {why}"));
        let Some(winner) = self.winners.get_mut(&pattern).filter(|w| w.backend_ref.is_some())
        else {
            let why = "has no main Ingress with this pathType, so no request goes to the canary: \
                       create one";
            return self.say(by, refuse(why));
        };
        if !self.view.may_split(by, winner.by) {
            let message = format!(
                "canary: {place} belongs to Ingress {} of another namespace, so no request goes to the canary: create it \
                 in that namespace",
                winner.by.key
            );
            return self.refuse(by, message);
        }
        // A canary's paths lead to Services.
        let Some(to) = &claim.backend_ref else { return };
        let service = (&to.service, &to.port);
        let refused = if winner.canaries.iter().any(|(other, _)| other.key == by.key) {
            refuse("is defined twice; the first one is served: remove the other")
        } else if winner
            .backend_ref
            .is_some_and(|backend_ref| (&backend_ref.service, &backend_ref.port) == service)
        {
            refuse("leads to the same Service and port as the main Ingress: name another")
        } else if winner.canaries.len() == MAX_ALTERNATIVES {
            refuse(&format!("has {MAX_ALTERNATIVES} older canaries already: remove some"))
        } else {
            return winner.canaries.push((by, to));
        };
        self.say(by, refused);
    }

    /// What protects the host would have no effect; a path of another namespace leads elsewhere, and is not reached.
    pub(super) fn lost_protection(&self, by: &Claims) -> Option<&'static str> {
        let winners = self.winners.values();
        let own = winners.filter(|winner| winner.by.key.namespace == by.key.namespace);
        let is_closed = |winner: &Winner<'_>| winner.closer.is_some() || winner.by.is_closed();
        let paths = own.map(|winner| (&*winner.policies, is_closed(winner)));
        passthrough::lost_protection(self.merged.tls.as_ref(), paths)
    }
}
