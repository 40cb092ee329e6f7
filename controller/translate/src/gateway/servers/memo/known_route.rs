//! Routes that were compiled.

use super::Share;
use crate::gateway::listeners::state::ListenerState;
use crate::gateway::routes::route::{Asked, CompiledRoute};
use crate::gateway::servers::rank::Age;
use crate::gateway::servers::served::{self, Decrypted, Served};
use crate::gateway::work::{self, Step};
use oxigress_core::model::BackendId;
use oxigress_objects::gateway::Route;
use oxigress_objects::secret::Pair;
use oxigress_objects::{Key, ObjectRef};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The targets of sessions that are decrypted, by what is shown to endpoints.
pub type KnownDecrypted = Vec<(Option<Arc<Pair>>, Arc<Decrypted>)>;

/// A route that was compiled.
pub struct KnownRoute {
    pub(super) route: Arc<Route>,
    /// What it says.
    pub compiled: CompiledRoute,
    /// It was read now.
    pub(super) is_new: bool,
    /// It was read with other settings.
    pub(super) is_stale: bool,
    /// How many rules it has where it is served.
    count: usize,
    /// Whether its rules depend on the port of a listener.
    has_redirects: bool,
    /// Whether they depend on what a listener shows to endpoints.
    has_tls: bool,
    /// How often it takes over what a listener shows to endpoints.
    shows: usize,
    /// Its rules as they are served, by what a listener says about them.
    served: Vec<KnownServed>,
    /// The targets of its sessions where they are decrypted.
    pub decrypted: KnownDecrypted,
    /// The bytes of its filters at a listener.
    filter_bytes: usize,
    /// Its namespace had no room for it somewhere.
    pub lacks_room: bool,
    /// Its rules are not kept: it is served nowhere.
    pub(super) is_bare: bool,
    /// What it adds to what routes have in common.
    pub share: Share,
}

struct KnownServed {
    by: Base,
    rules: Arc<Served>,
    is_used: bool,
}

/// What rules take over from a listener.
#[derive(Clone, Default, PartialEq)]
struct Base {
    /// What redirects do: whether it speaks TLS, and its port.
    redirects: Option<(bool, i64)>,
    /// What is shown to endpoints over TLS.
    identity: Option<Arc<Pair>>,
}

impl KnownRoute {
    /// A route that was compiled now.
    pub fn new(route: &Arc<Route>, compiled: CompiledRoute, filter_bytes: usize) -> Self {
        let count = compiled.count();
        let has_redirects = compiled.rules.iter().any(|rule| rule.answer.redirect.is_some());
        let mut seen = BTreeSet::new();
        let answers = compiled.rules.iter().map(|rule| &rule.answer);
        let answers = answers.filter(|answer| seen.insert(Arc::as_ptr(answer)));
        let targets = answers.flat_map(|answer| &answer.targets);
        let shows = targets.filter(|target| served::takes_identity(&target.policies)).count();
        KnownRoute {
            route: route.clone(),
            compiled,
            is_new: true,
            is_stale: false,
            count,
            has_redirects,
            has_tls: shows > 0,
            shows,
            served: Vec::new(),
            decrypted: Vec::new(),
            filter_bytes,
            lacks_room: false,
            is_bare: false,
            share: Share::default(),
        }
    }

    /// Whether its rules are there, or nobody asks for them. `is_served`: somewhere a listener serves it.
    pub fn has_rules_if(&self, is_served: impl FnOnce() -> bool) -> bool {
        !self.is_bare || !is_served()
    }

    /// The bytes of filters and of certificates that serving it at one more listener takes; those of the first are counted with its reading.
    pub fn bytes_at(&self, listener: &ListenerState<'_>) -> usize {
        let by = self.base(listener);
        let is_known = by == Base::default()
            || self.served.iter().any(|known| known.by == by && known.is_used);
        let shown = by.identity.map_or(0, |pair| pair.chain.len() + pair.key.len());
        if is_known { 0 } else { self.filter_bytes + self.shows.saturating_mul(shown) }
    }

    /// What a listener shows to its endpoints over TLS.
    pub fn shown_at(&self, listener: &ListenerState<'_>) -> Option<Arc<Pair>> {
        self.base(listener).identity
    }

    fn base(&self, listener: &ListenerState<'_>) -> Base {
        Base {
            redirects: self.has_redirects.then_some((listener.is_https(), listener.spec.port)),
            identity: listener.identity.clone().filter(|_| self.has_tls),
        }
    }

    /// When it was created.
    pub fn created(&self) -> i64 {
        self.route.meta.created
    }

    /// Its creation, its name and its kind.
    pub fn age(&self, id: &ObjectRef) -> Age {
        (self.route.meta.created, id.key.clone(), id.kind)
    }

    /// The paths that give out the affinity cookie of a backend, at any listener.
    pub fn paths_to(&self, backend: &BackendId) -> BTreeSet<&str> {
        let sticky = self.served.first().into_iter().flat_map(|known| &known.rules.sticky);
        sticky.filter(|(id, _)| id == backend).map(|(_, path)| path.as_str()).collect()
    }

    /// What its rules ask for that are served, wherever that is.
    pub fn asked(&self) -> BTreeSet<Asked> {
        let all = self.served.iter().flat_map(|served| &served.rules.candidates);
        all.map(|one| (one.path.clone(), one.selection.clone())).collect()
    }

    /// How many rules it has wherever it is served.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its rules at a listener. Those that are the same at every listener are kept in this form alone.
    pub fn served_at(&mut self, key: &Key, listener: &ListenerState<'_>) -> Arc<Served> {
        let by = self.base(listener);
        if let Some(known) = self.served.iter_mut().find(|known| known.by == by) {
            known.is_used = true;
            return known.rules.clone();
        }
        work::count(Step::Served);
        let rules = Arc::new(served::served(key, &self.compiled, listener));
        self.served.push(KnownServed { by, rules: rules.clone(), is_used: true });
        if !self.has_redirects && !self.has_tls {
            self.compiled.rules = Vec::new();
        }
        rules
    }

    /// Forgets the rules of listeners that are there no more, and all if no listener serves the route.
    pub fn forget_unused(&mut self) {
        self.is_bare =
            !std::mem::take(&mut self.lacks_room) && self.served.iter().all(|known| !known.is_used);
        if self.is_bare {
            self.compiled.rules = Vec::new();
        }
        self.served.retain(|known| known.is_used || (known.by == Base::default() && !self.is_bare));
        self.served.iter_mut().for_each(|known| known.is_used = false);
    }
}
