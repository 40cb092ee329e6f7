//! Where the rules of hosts lead: to backends of Services, and to URLs that policies name.

use crate::ingress::urls;
use crate::relation::Relation;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{BackendId, ListenerHost};
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where they lead; `None` stands for the targets of sessions.
#[derive(Default)]
pub struct Leads {
    backends: Relation<Option<ListenerHost>, BackendId>,
    /// Each with a route that says so.
    urls: Relation<Option<ListenerHost>, (BackendId, ObjectRef)>,
    touched: Touched,
}

/// What rules newly lead to, or no more.
#[derive(Default)]
pub struct Touched {
    /// Backends of Services.
    pub backends: BTreeSet<BackendId>,
    /// URLs.
    pub urls: BTreeSet<BackendId>,
}

impl Leads {
    /// Notes where the rules of a host lead, with the policies that they name and a route that names each.
    pub fn set(
        &mut self,
        by: Option<&ListenerHost>,
        mut backends: BTreeSet<BackendId>,
        policies: &BTreeMap<PolicyId, Arc<Policies>>,
        named: &BTreeMap<PolicyId, ObjectRef>,
    ) {
        backends.extend(policies.values().flat_map(|policies| policies.backends()).cloned());
        let mut asked = BTreeSet::new();
        for (id, policies) in policies {
            let Some(route) = named.get(id) else { continue };
            asked.extend(urls(policies).map(|url| (url.clone(), route.clone())));
        }
        let by = by.cloned();
        let asked = self.urls.set(&by, asked);
        self.touched.urls.extend(asked.into_iter().map(|asked| asked.0.clone()));
        let backends = self.backends.set(&by, backends);
        self.touched.backends.extend(backends.iter().map(|id| BackendId::clone(id)));
    }

    /// Notes that they lead nowhere.
    pub fn forget(&mut self, by: Option<&ListenerHost>) {
        self.set(by, BTreeSet::new(), &BTreeMap::new(), &BTreeMap::new());
    }

    /// Whether rules lead to a backend.
    pub fn has(&self, backend: &BackendId) -> bool {
        self.backends.has(backend)
    }

    /// The routes by which a URL is asked.
    pub fn routes_with(&self, url: &BackendId) -> impl Iterator<Item = &ObjectRef> {
        // The first of the kinds of routes.
        let first = (url.clone(), ObjectRef::new(Kind::GRPCRoute, Key::new("", "")));
        let all = self.urls.rights_from(&first);
        all.take_while(move |(of, _)| *of == first.0).map(|(_, route)| route)
    }

    /// What rules newly lead to, or no more, and was not taken yet.
    pub fn touched(&self) -> &Touched {
        &self.touched
    }

    /// What rules newly lead to, or no more, since this was last asked.
    pub fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }
}
