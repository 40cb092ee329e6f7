//! Which backends there are and what makes each, apart from its endpoints.
//!
//! Shape:   the id of a backend says what it is for:
//!          `namespace/service/port`: a Service's port, with the balancing of the oldest Ingress that says
//!          anything about it; Ingresses that say nothing, or the same, share it;
//!          `…//ingress/NAME`: the same port for an Ingress that says something else, or has no captures to hash;
//!          `BACKEND//split/HASH`: a backend on paths where canaries take a part of the requests;
//!          `…//canary/NAME` and `…//canary/NAME//BACKEND`: the port that a canary leads to, in the second
//!          form where it shares the sessions of BACKEND;
//!          `…//route` and `…//route/NAMESPACE/NAME`: the port that routes lead to, in the second form with what that
//!          Policy says of balancing.
//!          Names hold no slash, so no two of them meet.
//! Source:  ingress-nginx's annotations. The reference has one upstream a Service's port, whose settings
//!          are the oldest Ingress's, or the last one's for cookies, and which a canary of any path splits.
//! Rejected: an id with every setting in it, which a change of a weight would turn into another backend.

use crate::annotation::balancing::{self, Balancing};
use crate::claim::backend_ref::BackendRef;
use crate::ingress::Claims;
use oxigress_core::model::{Backend, BackendId, Invalid, Split};
use oxigress_objects::{Key, Name};
use oxigress_settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The Service's port behind a backend, and what sets the backend apart.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// The Service's port that requests go to.
    pub backend_ref: BackendRef,
    /// What sets it apart from the others of that port; None: the backend that they share.
    pub own: Option<Box<Override>>,
}

/// What sets a backend apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Override {
    /// By which algorithm, hash or cookie endpoints are chosen.
    pub balancing: Arc<Balancing>,
    /// Backends of canaries that take a part of its requests.
    pub alternatives: Vec<BackendId>,
    /// Which requests it takes as a canary.
    pub split: Option<Split>,
}

/// That a rule needs a backend. The order puts those of one backend together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostBackend {
    /// The backend that a rule leads to.
    pub backend: BackendId,
    /// The Ingress that says so.
    pub ingress: Key,
    /// The path, as written, if it gives out the backend's affinity cookie; else empty.
    pub path: String,
}

impl HostBackend {
    /// What comes before every other lead to `backend`.
    pub fn first_of(backend: &BackendId) -> Self {
        HostBackend { backend: backend.clone(), ingress: Key::new("", ""), path: String::new() }
    }
}

impl BackendSpec {
    /// The backend that all share that say nothing else.
    pub fn shared(backend_ref: &BackendRef) -> Self {
        BackendSpec { backend_ref: backend_ref.clone(), own: None }
    }

    /// Makes a backend that others of the port do not share.
    pub fn own(backend_ref: &BackendRef, own: Override) -> Self {
        BackendSpec { backend_ref: backend_ref.clone(), own: Some(Box::new(own)) }
    }

    /// It takes a part of another backend's requests.
    pub fn is_canary(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.split.is_some())
    }

    /// The record. `locations` are the hosts and paths that give out its affinity cookie.
    pub fn record(
        &self,
        balancing: &Balancing,
        settings: &Settings,
        locations: BTreeMap<String, Vec<String>>,
    ) -> Backend {
        let Key { namespace, name } = &self.backend_ref.service;
        let affinity = balancing.affinity.clone().map(|mut affinity| {
            affinity.cookie.locations = locations;
            Box::new(affinity)
        });
        // Only where it says more than the id: the documents are smaller.
        let is_named = affinity.is_some() || self.own.is_some();
        let (alternatives, split) = match self.own.as_deref() {
            Some(own) => (own.alternatives.clone(), own.split.clone().map(Box::new)),
            None => (Vec::new(), None),
        };
        Backend {
            name: is_named.then(|| format!("{namespace}-{name}-{}", self.backend_ref.port)),
            algorithm: balancing.algorithm.unwrap_or(settings.load_balance),
            hash_by: balancing.hash_by.clone(),
            affinity,
            alternatives,
            split,
            ..Backend::default()
        }
    }
}

/// Who says something about the balancing of which Service's port, oldest first.
#[derive(Debug, Default)]
pub struct SpecOwners {
    by_port: BTreeMap<BackendId, BTreeMap<(i64, Key), Arc<Balancing>>>,
}

impl SpecOwners {
    /// Replaces the claims of one Ingress; answers the ports whose oldest word is another one now.
    pub fn replace(&mut self, old: Option<&Claims>, new: Option<&Claims>) -> BTreeSet<BackendId> {
        let words = |claims: Option<&Claims>| -> Vec<_> {
            let Some((claims, word)) = claims.and_then(|by| Some((by, by.balancing()?))) else {
                return Vec::new();
            };
            let at = (claims.created, claims.key.clone());
            claims
                .ports()
                .into_iter()
                .map(|port| (port.clone(), at.clone(), word.clone()))
                .collect()
        };
        let (old, new) = (words(old), words(new));
        let ports: BTreeSet<_> = old.iter().chain(&new).map(|(port, ..)| port.clone()).collect();
        let before: Vec<_> = ports.iter().map(|port| self.first(port).cloned()).collect();
        for (port, at, _) in old {
            if let Some(spec_owners) = self.by_port.get_mut(&port) {
                spec_owners.remove(&at);
                if spec_owners.is_empty() {
                    self.by_port.remove(&port);
                }
            }
        }
        for (port, at, balancing) in new {
            self.by_port.entry(port).or_default().insert(at, balancing);
        }
        let is_turned =
            |(port, before): &(BackendId, Option<_>)| self.first(port) != before.as_ref();
        ports.into_iter().zip(before).filter(is_turned).map(|(port, _)| port).collect()
    }

    /// What the oldest of them says.
    pub fn first(&self, port: &BackendId) -> Option<&Arc<Balancing>> {
        self.by_port.get(port)?.values().next()
    }

    /// The backend, without canaries, that `by` means by a Service's port.
    pub fn backend_of(
        &self,
        by: &Claims,
        backend_ref: &BackendRef,
    ) -> Result<(BackendId, BackendSpec), Invalid> {
        let own = match (by.balancing(), self.first(&backend_ref.backend)) {
            (Some(word), first) if first != Some(word) => Some(word.clone()),
            (None, Some(first)) => without_captures(by, first),
            _ => None,
        };
        let Some(balancing) = own else {
            return Ok((backend_ref.backend.clone(), BackendSpec::shared(backend_ref)));
        };
        let id = BackendId::parse(format!("{}//ingress/{}", backend_ref.backend, by.key.name))?;
        Ok((id, BackendSpec::own(backend_ref, Override { balancing, ..Override::default() })))
    }

    /// How endpoints of a backend are chosen: its own word, or that of the port's oldest Ingress.
    pub fn balancing_of(&self, id: &BackendId, spec: &BackendSpec) -> Arc<Balancing> {
        match &spec.own {
            Some(own) => own.balancing.clone(),
            None => self.first(id).cloned().unwrap_or_default(),
        }
    }
}

/// What an Ingress that says nothing follows where the oldest word hashes nothing but captures, which its paths do not
/// have: all of its requests would go to one endpoint. None: it follows that word.
fn without_captures(by: &Claims, first: &Balancing) -> Option<Arc<Balancing>> {
    let (captures, is_alone) = balancing::captures_of(&first.hash_by.as_ref()?.key);
    let is_lost = is_alone && !captures.is_empty() && !by.has_groups();
    is_lost.then(|| Arc::new(Balancing { hash_by: None, ..first.clone() }))
}

/// Who pays for what is read for a backend: the namespace of the Policy that it is for, else that of its Service.
pub fn payer_of(id: &BackendId) -> Name {
    let mut parts = id.as_str().split('/');
    let of_service = parts.next().unwrap_or_default();
    // After the Service's name and its port: what sets the backend apart.
    let of_policy = match (parts.nth(2), parts.next(), parts.next()) {
        (Some(""), Some("route"), of_policy) => of_policy,
        _ => None,
    };
    of_policy.unwrap_or(of_service).into()
}

/// The backend of paths where `alternatives` take a part of what goes to `base`.
pub fn split(base: &BackendId, alternatives: &[BackendId]) -> Result<BackendId, Invalid> {
    // No id has a control byte.
    let ids: Vec<_> = alternatives.iter().map(BackendId::as_str).collect();
    let digest = openssl::sha::sha256(ids.join("\n").as_bytes());
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    BackendId::parse(format!("{base}//split/{digest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of namespaces and Services are words of ids, too.
    #[test]
    fn who_pays_is_told_from_the_place_of_a_name_in_an_id() {
        let payer = |id: &str| payer_of(&BackendId::parse(id).unwrap()).to_string();
        assert_eq!(payer("a/s/80"), "a");
        assert_eq!(payer("a/s/80//route"), "a");
        assert_eq!(payer("a/s/80//route/b/policy"), "b");
        assert_eq!(payer("route/c/80//canary/x//route/victim/80"), "route");
        assert_eq!(payer("a/s/80//ingress/route"), "a");
        assert_eq!(payer("a/route/80//split/00//route/b/p"), "a");
    }
}
