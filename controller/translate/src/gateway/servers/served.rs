//! The rules of a route as a listener serves them.

use crate::gateway::listeners::state::ListenerState;
use crate::gateway::routes::filter;
use crate::gateway::routes::route::{CompiledRoute, CompiledRule, RuleAction, Target};
use crate::gateway::work::{self, Step};
use crate::host::merge::Ids;
use oxigress_core::model::policy::{Policies, PolicyId};
use oxigress_core::model::{
    BackendId, Origin, PathPattern, Policy, Rule, Selection, SessionTarget,
};
use oxigress_objects::Key;
use oxigress_objects::gateway::RedirectFilter;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A match of a rule.
#[derive(Clone)]
pub struct Candidate {
    /// Its path.
    pub path: PathPattern,
    /// What else it asks for.
    pub selection: Selection,
    /// What is served, one for each share.
    pub rules: Vec<Rule>,
}

impl Candidate {
    /// The same for fewer requests.
    pub fn narrowed(&self, path: &PathPattern, selection: Selection) -> Self {
        let rules = self.rules.iter().map(|rule| {
            let weight = rule.selection.as_ref().and_then(|own| own.weight);
            let selection = Selection { weight, ..selection.clone() };
            let is_all = selection == Selection::default();
            let selection = (!is_all).then(|| Box::new(selection));
            Rule { path: path.clone(), selection, ..rule.clone() }
        });
        Candidate { path: path.clone(), rules: rules.collect(), selection }
    }
}

/// The rules of a route at a listener.
#[derive(Default)]
pub struct Served {
    /// Each match of each rule.
    pub candidates: Vec<Candidate>,
    /// The policies that they name.
    pub policies: BTreeMap<PolicyId, Arc<Policies>>,
    /// The backends with affinity, and the paths that give out their cookies.
    pub sticky: BTreeSet<(BackendId, String)>,
}

/// The rules of a route at a listener.
pub fn served(key: &Key, compiled: &CompiledRoute, listener: &ListenerState<'_>) -> Served {
    let (mut served, mut made) = (Served::default(), Made::default());
    for rule in &compiled.rules {
        let (targets, ids) = made.of(rule, listener);
        let shares = targets.len() > 1;
        let backend_refs = targets.iter().filter_map(|target| target.backend_ref.as_ref());
        let sticky = backend_refs.filter(|backend_ref| compiled.is_sticky(&backend_ref.backend));
        served
            .sticky
            .extend(sticky.map(|backend_ref| (backend_ref.backend.clone(), rule.written.clone())));
        let rules = targets.iter().zip(ids).map(|(target, id)| {
            let weight = shares.then_some(target.weight);
            let selection = Selection { weight, ..rule.selection.clone() };
            let is_all = selection == Selection::default();
            served.policies.extend(id.clone().map(|id| (id, target.policies.clone())));
            Rule {
                path: rule.path.clone(),
                backend: target.backend_ref.as_ref().map(|backend_ref| backend_ref.backend.clone()),
                origin: origin(key, target, &rule.written),
                policy: Policy { is_strict: true, ..Policy::default() },
                policies: id.clone(),
                selection: (!is_all).then(|| Box::new(selection)),
            }
        });
        let rules = rules.collect();
        let (path, selection) = (rule.path.clone(), rule.selection.clone());
        served.candidates.push(Candidate { path, selection, rules });
    }
    served
}

/// The targets of answers, with their ids: many matches have one answer.
#[derive(Default)]
struct Made<'r>(BTreeMap<*const RuleAction, Known<'r>>);

struct Known<'r> {
    targets: Cow<'r, [Target]>,
    ids: Vec<Option<PolicyId>>,
}

impl<'r> Made<'r> {
    fn of(
        &mut self,
        rule: &'r CompiledRule,
        listener: &ListenerState<'_>,
    ) -> (&[Target], &[Option<PolicyId>]) {
        let known = self.0.entry(Arc::as_ptr(&rule.answer)).or_insert_with(|| {
            let targets: Cow<'r, [Target]> = match &rule.answer.redirect {
                Some(redirect) => vec![redirected(redirect, &rule.path, listener)].into(),
                None => identified(&rule.answer.targets, listener),
            };
            let mut ids = Ids::default();
            let ids = targets.iter().map(|target| ids.of(&target.policies)).collect();
            Known { targets, ids }
        });
        (&known.targets, &known.ids)
    }
}

/// The targets of a route whose sessions a listener decrypts.
pub struct Decrypted {
    /// Who takes the sessions, by weight. Without any they are closed.
    pub targets: Arc<[SessionTarget]>,
    /// The policies that they name.
    pub policies: BTreeMap<PolicyId, Arc<Policies>>,
}

/// The targets of a route whose sessions a listener decrypts.
pub fn decrypted(compiled: &CompiledRoute, listener: &ListenerState<'_>) -> Decrypted {
    work::count(Step::Served);
    let (mut all, mut policies, mut ids) = (Vec::new(), BTreeMap::new(), Ids::default());
    for rule in &compiled.rules {
        let targets = identified(&rule.answer.targets, listener);
        for target in targets.iter().filter(|target| target.weight > 0) {
            let backend_ref = target.backend_ref.as_ref();
            let backend_ref = backend_ref.filter(|_| target.policies.denied.is_none());
            let named = backend_ref.and_then(|_| ids.of(&target.policies));
            policies.extend(named.clone().map(|id| (id, target.policies.clone())));
            all.push(SessionTarget {
                weight: target.weight,
                backend: backend_ref.map(|backend_ref| backend_ref.backend.clone()),
                policies: named,
            });
        }
    }
    Decrypted { targets: all.into(), policies }
}

/// The targets as they are spoken to by a listener, which may show endpoints a certificate.
fn identified<'r>(targets: &'r [Target], listener: &ListenerState<'_>) -> Cow<'r, [Target]> {
    let takes = |target: &Target| takes_identity(&target.policies);
    let Some(pair) = listener.identity.as_ref().filter(|_| targets.iter().any(takes)) else {
        return targets.into();
    };
    let shown = targets.iter().map(|target| {
        let mut target = target.clone();
        if takes(&target)
            && let Some(tls) = Arc::make_mut(&mut target.policies)
                .proxy
                .as_mut()
                .and_then(|proxy| proxy.tls.as_mut())
        {
            tls.certificate.clone_from(&pair.chain);
            tls.key.clone_from(&pair.key);
        }
        target
    });
    shown.collect()
}

/// Whether endpoints are shown what the listener says: over TLS, without a certificate that a Policy names.
pub fn takes_identity(policies: &Policies) -> bool {
    let tls = policies.proxy.as_ref().and_then(|proxy| proxy.tls.as_ref());
    tls.is_some_and(|tls| tls.certificate.is_empty())
}

/// The redirect that a rule answers with at a listener.
fn redirected(
    (redirect, policies): &(RedirectFilter, Policies),
    path: &PathPattern,
    listener: &ListenerState<'_>,
) -> Target {
    work::count(Step::Filters);
    let mut policies = policies.clone();
    match filter::redirect(redirect, path, listener.is_https(), listener.spec.port) {
        Ok(to) => policies.redirect_to = Some(to),
        Err(_) => policies.denied = Some(500),
    }
    Target { weight: 1, backend_ref: None, policies: Arc::new(policies) }
}

fn origin(key: &Key, target: &Target, path: &str) -> Origin {
    let backend_ref = target.backend_ref.as_ref();
    Origin {
        namespace: key.namespace.to_string(),
        ingress: key.name.to_string(),
        service: backend_ref
            .map(|backend_ref| backend_ref.service.name.to_string())
            .unwrap_or_default(),
        port: backend_ref.map(|backend_ref| backend_ref.port.to_string()).unwrap_or_default(),
        path: path.into(),
    }
}
