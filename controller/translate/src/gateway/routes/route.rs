//! The rules of a route, before it is known where they are served.

mod matching;
mod policy;

pub use matching::{Asked, asked};

use super::charge::Charge;
use super::filter::{self, Refusal};
use super::policies::{APPLIED, Named, PolicyContent};
use super::target::{self, Common, Resolved, Spoken, ToEndpoints};
use super::tls_policy::TlsPolicies;
use crate::annotation::balancing::Balancing;
use crate::claim::backend_ref::BackendRef;
use crate::gateway::work::{self, Step};
use oxigress_core::model::policy::{AuthHost, HeaderValue, Mirror, Policies, Template};
use oxigress_core::model::{BackendId, Invalid, PathPattern, Selection};
use oxigress_core::patterns::Allowance;
use oxigress_objects::gateway::{
    HttpBackendRef, HttpRouteFilter, HttpRouteMatch, HttpRouteRule, RedirectFilter, Route,
};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::service::Service;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use oxigress_settings::Settings;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the expressions of one route may cost to compile, in nanoseconds: some 600 ordinary ones.
const OF_ROUTE: u64 = 20_000_000;
/// What those of all routes of a namespace may cost, in nanoseconds.
pub const OF_NAMESPACE: u64 = 500_000_000;

/// Regular expressions that were tried.
pub type Patterns = BTreeMap<String, Tried>;

/// What came of trying an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What compiling it costs, in nanoseconds.
    price: u64,
    /// Whether it can be served; `None`: it was beyond the budget and not compiled.
    result: Option<Result<(), Invalid>>,
}

/// What a route says.
#[derive(Default)]
pub struct CompiledRoute {
    /// The regular expressions that were tried.
    pub expressions: BTreeSet<String>,
    /// What they took.
    pub charge: Charge,
    /// Each match of each rule, in their order; empty again once they are served: see
    /// [`crate::gateway::servers::memo::KnownRoute::served_at`].
    pub rules: Vec<CompiledRule>,
    /// Whether there are or were rules.
    pub has_rules: bool,
    /// Why rules are left out.
    pub invalid: Option<String>,
    /// What is referred to and cannot be used.
    pub unresolved: Option<Condition>,
    /// The Services of other namespaces that it names, which ReferenceGrants decide about.
    pub asked: BTreeSet<Key>,
    /// The Services' ports that it leads to, and how their endpoints are chosen.
    pub backends: BTreeMap<BackendId, (BackendRef, Arc<Balancing>)>,
    /// The Policies that its rules name.
    pub policies: Named,
    /// What the Policies say and cannot be honoured.
    pub trouble: Option<Condition>,
    /// The Services that were looked at.
    pub services: BTreeMap<Key, Option<Arc<Service>>>,
    /// What the endpoints of the ports of Services are spoken to with, which it leads requests to.
    pub tls: BTreeMap<(Key, String), ToEndpoints>,
}

impl CompiledRoute {
    /// One that is not read, since its namespace has too many rules.
    pub fn over_limit() -> Self {
        let invalid =
            Some("rules: its namespace has too many of them, or of filters: use fewer".into());
        CompiledRoute { invalid, ..CompiledRoute::default() }
    }

    /// Whether its Policies are carried out as they are written; `None`: it has none.
    pub fn applied(&self) -> Option<Condition> {
        self.policies.values().flatten().next()?;
        let trouble = self.trouble.clone();
        Some(trouble.unwrap_or_else(|| Condition::yes(APPLIED, "Applied")))
    }

    /// Whether sessions of a backend stay with their endpoints.
    pub fn is_sticky(&self, backend: &BackendId) -> bool {
        self.backends.get(backend).is_some_and(|(_, balancing)| balancing.affinity.is_some())
    }

    /// How many rules it has at a listener, one for each share.
    pub fn count(&self) -> usize {
        let of = |rule: &CompiledRule| match &rule.answer.redirect {
            Some(_) => 1,
            None => rule.answer.targets.len(),
        };
        self.rules.iter().map(of).sum()
    }
}

/// A match of a rule.
pub struct CompiledRule {
    /// The paths.
    pub path: PathPattern,
    /// As written.
    pub written: String,
    /// What else a request has; without a weight.
    pub selection: Selection,
    /// What is done with its requests.
    pub answer: Arc<RuleAction>,
}

/// What is done with the requests of a rule: one for all its matches, unless it depends on their paths.
pub struct RuleAction {
    /// Who serves, by weight; more than one share the requests.
    pub targets: Vec<Target>,
    /// The redirect that answers, with policies of its own.
    pub redirect: Option<Redirect>,
}

/// A redirect, and what else is done with its requests.
type Redirect = (RedirectFilter, Policies);

/// A part of the requests of a rule.
#[derive(Clone)]
pub struct Target {
    /// Its share.
    pub weight: u32,
    /// Who serves; `None`: the policies answer.
    pub backend_ref: Option<BackendRef>,
    /// What is done with the requests.
    pub policies: Arc<Policies>,
}

/// Reads a route, if there is room for it.
pub fn rules(
    (world, settings, tls, has_room): (&World, &Settings, &TlsPolicies<'_>, bool),
    (id, route, policies): (&ObjectRef, &Route, Named),
    patterns: &mut Patterns,
    namespace: &mut Allowance,
) -> CompiledRoute {
    if !has_room {
        return CompiledRoute::over_limit();
    }
    let mut compiled = CompiledRoute { policies, ..CompiledRoute::default() };
    compiled.charge.had = namespace.left();
    let mut allowance = Allowance::of(OF_ROUTE);
    work::count(Step::Read);
    let foreign = |reference: &HttpBackendRef| {
        let namespace = reference.namespace.as_ref().filter(|name| **name != *id.key.namespace)?;
        Some(Key::new(namespace, reference.name.as_str()))
    };
    let references = route.spec.rules.iter().flat_map(|rule| rule.references());
    compiled.asked = references.filter_map(foreign).collect();
    for (place, rule) in route.spec.rules.iter().enumerate() {
        let mut reader = RouteReader {
            world,
            settings,
            tls,
            id,
            compiled: &mut compiled,
            patterns,
            allowance: &mut allowance,
            namespace,
        };
        let read = match id.kind.is_of_requests() {
            true => reader.rule(rule),
            false => reader.sessions(place, rule),
        };
        if let Err(why) = read {
            compiled.invalid.get_or_insert(format!("rules[{place}].{why}"));
        }
    }
    compiled.has_rules = !compiled.rules.is_empty();
    compiled
}

struct RouteReader<'a, 'w> {
    world: &'w World,
    settings: &'a Settings,
    tls: &'a TlsPolicies<'w>,
    id: &'a ObjectRef,
    compiled: &'a mut CompiledRoute,
    patterns: &'a mut Patterns,
    allowance: &'a mut Allowance,
    namespace: &'a mut Allowance,
}

impl RouteReader<'_, '_> {
    /// Either all of a rule is served or nothing of it.
    fn rule(&mut self, rule: &HttpRouteRule) -> Result<(), String> {
        if rule.session_persistence.is_some() {
            return Err("sessionPersistence is not served: remove it".into());
        }
        let any = [HttpRouteMatch::default()];
        let matches = if rule.matches.is_empty() { &any[..] } else { &rule.matches };
        let mut read = Vec::new();
        // Filters are not multiplied by matches: few mean something else for each path.
        let (depends_on_path, mut answers) = (rule.depends_on_path(), BTreeMap::new());
        for (place, one) in matches.iter().enumerate() {
            let at = |why| format!("matches[{place}].{why}");
            let (path, written, selection) = self.match_of(one).map_err(at)?;
            let by =
                (self.settings.defaults.is_open(&written), depends_on_path.then(|| path.clone()));
            let answer = match answers.entry(by) {
                Entry::Occupied(known) => Arc::clone(known.get()),
                Entry::Vacant(new) => {
                    new.insert(Arc::new(self.answer(rule, &path, &written)?)).clone()
                }
            };
            read.push(CompiledRule { path, written, selection, answer });
        }
        self.compiled.rules.extend(read);
        Ok(())
    }

    /// The first rule has all sessions, which its references share.
    fn sessions(&mut self, place: usize, rule: &HttpRouteRule) -> Result<(), String> {
        if place > 0 {
            return Err("backendRefs: another rule has all sessions: keep one".into());
        }
        let (mut targets, mut common) = (Vec::new(), Common::of(Policies::default()));
        for reference in &rule.backend_refs {
            let weight = reference.weight.unwrap_or(1);
            let weight = u32::try_from(weight).map_err(|_| "backendRefs: a weight is negative")?;
            let target = match self.resolve(reference) {
                Ok((backend_ref, spoken)) => {
                    self.add_backend(&backend_ref, &Arc::default());
                    // Its policy says why it is closed, where it is decrypted.
                    let policies = match spoken {
                        Some(spoken) => common.speaking(spoken),
                        None => self.failing(weight).policies,
                    };
                    Target { weight, backend_ref: Some(backend_ref), policies }
                }
                Err(condition) => {
                    self.unresolved(condition);
                    self.failing(weight)
                }
            };
            targets.push(target);
        }
        let path = PathPattern::prefix("/").map_err(|why| why.to_string())?;
        let (written, selection) = (String::new(), Selection::default());
        self.compiled.rules.push(CompiledRule {
            path,
            written,
            selection,
            answer: Arc::new(RuleAction { targets, redirect: None }),
        });
        Ok(())
    }

    fn answer(
        &mut self,
        rule: &HttpRouteRule,
        path: &PathPattern,
        written: &str,
    ) -> Result<RuleAction, String> {
        work::count(Step::Filters);
        let policy = match self.policy(rule) {
            Ok(policy) => policy,
            Err(condition) => {
                self.unresolved(condition);
                return Ok(RuleAction { targets: vec![self.failing(1)], redirect: None });
            }
        };
        if policy.as_ref().is_some_and(|policy| policy.is_closed) {
            return Ok(RuleAction { targets: vec![answering(1, 503)], redirect: None });
        }
        let defaults = &self.settings.defaults;
        let said = policy.as_ref().map_or(&defaults.policies, |policy| &policy.policies);
        let mut policies = said.clone();
        defaults.open(written, &mut policies);
        filter::timeouts(rule, &mut policies)?;
        if let Some(retry) = &rule.retry {
            filter::retry(retry, &mut policies)?;
        }
        self.mirrors(&rule.filters, &mut policies)?;
        let redirect = match filter::apply(&rule.filters, path, &mut policies) {
            Ok(redirect) => redirect.cloned(),
            Err(Refusal::Unsupported(why)) => return Err(why),
            Err(Refusal::Unresolved(why)) => {
                self.unresolved(Condition::no("ResolvedRefs", "InvalidKind", why));
                return Ok(RuleAction { targets: vec![self.failing(1)], redirect: None });
            }
        };
        if let Some(redirect) = redirect {
            return Ok(RuleAction { targets: Vec::new(), redirect: Some((redirect, policies)) });
        }
        let (mut targets, mut common) = (Vec::new(), Common::of(policies));
        let balancing = self.balancing(rule, policy.as_deref());
        for reference in &rule.backend_refs {
            let weight = reference.weight.unwrap_or(1);
            let weight = u32::try_from(weight).map_err(|_| "backendRefs: a weight is negative")?;
            let mut target = self.target(reference, weight, path, &mut common)?;
            self.balance(&mut target, &balancing)?;
            targets.push(target);
        }
        targets.retain(|target| target.weight > 0);
        if targets.is_empty() {
            targets.push(self.failing(1));
        }
        Ok(RuleAction { targets, redirect: None })
    }

    fn target(
        &mut self,
        reference: &HttpBackendRef,
        weight: u32,
        path: &PathPattern,
        common: &mut Common,
    ) -> Result<Target, String> {
        let (backend_ref, spoken) = match self.resolve(reference) {
            Ok((backend_ref, Some(spoken))) => (backend_ref, spoken),
            // Its policy says why.
            Ok((_, None)) => return Ok(self.failing(weight)),
            Err(condition) => {
                self.unresolved(condition);
                return Ok(self.failing(weight));
            }
        };
        let mut policies = common.speaking(spoken);
        if !reference.filters.is_empty() {
            work::count(Step::Filters);
            let mut own = Policies::clone(&policies);
            self.mirrors(&reference.filters, &mut own)?;
            if reference.filters.iter().any(|filter| filter.policy().is_some()) {
                let message = "backendRefs: filters: a Policy is read of rules alone: move it to rules.filters";
                self.unresolved(Condition::no("ResolvedRefs", "InvalidKind", message));
                return Ok(self.failing(weight));
            }
            match filter::apply(&reference.filters, path, &mut own) {
                Ok(None) => policies = Arc::new(own),
                Ok(Some(_)) => {
                    return Err("backendRefs: filters: RequestRedirect is not served".into());
                }
                Err(Refusal::Unsupported(why)) => return Err(format!("backendRefs: {why}")),
                Err(Refusal::Unresolved(why)) => {
                    self.unresolved(Condition::no("ResolvedRefs", "InvalidKind", why));
                    return Ok(self.failing(weight));
                }
            }
        }
        Ok(Target { weight, backend_ref: Some(backend_ref), policies })
    }

    /// Adds the copies that filters ask for. Without the server of a copy all else is served.
    fn mirrors(
        &mut self,
        filters: &[HttpRouteFilter],
        policies: &mut Policies,
    ) -> Result<(), String> {
        for filter in filters.iter().filter_map(|filter| filter.request_mirror.as_ref()) {
            let share = filter::share(filter)?;
            let backend_ref = match self.resolve(&filter.backend_ref) {
                Ok((backend_ref, Some(spoken))) if spoken == Spoken::default() => backend_ref,
                Ok(_) => {
                    let why = "filters: requestMirror: copies speak HTTP/1.1 without TLS alone";
                    return Err(why.into());
                }
                Err(condition) => {
                    self.unresolved(condition);
                    continue;
                }
            };
            self.add_backend(&backend_ref, &Arc::default());
            let host = HeaderValue::parse(format!(
                "{}.{}",
                backend_ref.service.name, backend_ref.service.namespace
            ));
            let to = AuthHost {
                backend: backend_ref.backend,
                host: host.map_err(|why| why.to_string())?,
                variable_host: None,
                https: false,
            };
            policies.more_mirrors.push(Mirror {
                to,
                target: Template::empty(),
                host: None,
                without_body: false,
                share,
            });
        }
        Ok(())
    }

    /// The Service's port that a reference means, and what its endpoints are spoken to with; `None`: nothing.
    fn resolve(
        &mut self,
        reference: &HttpBackendRef,
    ) -> Result<(BackendRef, Option<Spoken>), Condition> {
        let services = &mut self.compiled.services;
        let resolved = target::resolve(self.world, self.id, reference, services)?;
        let Resolved { backend_ref, port } = resolved;
        if matches!(self.id.kind, Kind::TCPRoute | Kind::UDPRoute) {
            return Ok((backend_ref, Some(Spoken::default())));
        }
        let tls = self.tls.to_endpoints(&backend_ref.service, &port.name);
        let at = (backend_ref.service.clone(), port.name.clone());
        self.compiled.tls.insert(at, tls.clone());
        let spoken = match self.id.kind {
            Kind::TLSRoute => Spoken::of_sessions(tls),
            kind => Spoken::of(&port, kind, &backend_ref.service, tls)?,
        };
        Ok((backend_ref, spoken))
    }

    /// Notes that the route leads to a Service.
    fn add_backend(&mut self, backend_ref: &BackendRef, balancing: &Arc<Balancing>) {
        let new = || (backend_ref.clone(), balancing.clone());
        self.compiled.backends.entry(backend_ref.backend.clone()).or_insert_with(new);
    }

    /// The first thing counts.
    fn unresolved(&mut self, condition: Condition) {
        self.compiled.unresolved.get_or_insert(condition);
    }

    /// A share that nobody may serve: 500, or what a client of gRPC reads as UNAVAILABLE, as the specification says.
    fn failing(&self, weight: u32) -> Target {
        answering(weight, if self.id.kind == Kind::GRPCRoute { 503 } else { 500 })
    }
}

/// A share that is answered with a status.
fn answering(weight: u32, code: u16) -> Target {
    let policies = Policies { denied: Some(code), ..Policies::default() };
    Target { weight, backend_ref: None, policies: Arc::new(policies) }
}
