//! BackendTLSPolicies: which ports of Services are spoken to over TLS, and what the certificates of their endpoints have to be.
//!
//! Order:   a policy for a port comes before one for its Service; of two for the same the older one has it, then the first by name.
//! Closed:  a policy that cannot be honoured is not passed over: the share of its Service gets 500.
//! Tenancy: a policy, the Service that it is about, and the ConfigMap that it names are of one namespace, which is charged.
//!          A ClusterTrustBundle is the cluster administrator's, and every policy may name it.
//! Source:  BackendTLSPolicy of Gateway API v1.7.

use super::target::{ToEndpoints, is_watched};
use crate::Options;
use crate::gateway::listeners::host::is_wide;
use crate::gateway::work::{self, Step};
use crate::gateway::{Built, status};
use oxigress_core::model::policy::{HeaderValue, UpstreamTls};
use oxigress_core::model::{Bundle, BundleId, HostPattern};
use oxigress_objects::gateway::{
    self, BackendTlsPolicy, BackendValidation, ClusterTrustBundle, GatewayObjects, ParentRef,
};
use oxigress_objects::gateway_status::{Condition, Content, ParentStatus};
use oxigress_objects::{ConfigMap, Key, Kind, Name, ObjectRef, World};
use oxigress_validate::tls::{self, Named};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most policies of one namespace, the oldest first: every rebuild looks at each.
const MAX_POLICIES: usize = 1_024;
/// Most certificates between an endpoint's and its authority's.
const DEPTH: u32 = 5;
/// Most Gateways in a policy's status, as the API has it.
const MAX_ANCESTORS: usize = 16;

/// The authorities in ConfigMaps and ClusterTrustBundles: one that did not change is not read again.
pub type Authorities = BTreeMap<ObjectRef, (Source, Result<Named, String>)>;

/// An object that authorities stand in.
#[derive(Clone, Debug)]
pub enum Source {
    Map(Arc<ConfigMap>),
    Bundle(Arc<ClusterTrustBundle>),
}

impl Source {
    fn of(world: &World, id: &ObjectRef) -> Option<Self> {
        match id.kind {
            Kind::ClusterTrustBundle => {
                world.gateway_api.trust_bundles.get(&id.key).cloned().map(Self::Bundle)
            }
            _ => world.config_maps.get(&id.key).cloned().map(Self::Map),
        }
    }

    /// The field that the authorities stand in, and what it says.
    fn field(&self) -> (&'static str, &str) {
        match self {
            Source::Map(map) => {
                let text = map.data.get("ca.crt").map(String::as_str);
                ("ca.crt", text.unwrap_or_default())
            }
            Source::Bundle(bundle) => ("spec.trustBundle", &bundle.spec.trust_bundle),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Source::Map(one), Source::Map(other)) => Arc::ptr_eq(one, other),
            (Source::Bundle(one), Source::Bundle(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// How many certificates an object has in which authorities may stand.
pub fn count_authorities(world: &World, id: &ObjectRef) -> u64 {
    let source = Source::of(world, id);
    source.map_or(0, |source| count_certificates(source.field().1))
}

/// How many certificates a text says that it has, told without reading them.
pub fn count_certificates(pem: &str) -> u64 {
    pem.matches("-----BEGIN ").count() as u64
}

/// Why authorities cannot be used: the policy is not honoured, or the listener is closed.
pub struct Refusal {
    /// Whether the object is accepted.
    pub accepted: Condition,
    /// Whether what it names can be used.
    pub resolved: Option<Condition>,
}

impl Refusal {
    /// The same, because this object is not there.
    pub fn because_of(self: Box<Self>, cause: Option<ObjectRef>) -> Box<Self> {
        let resolved = self.resolved.map(|why| why.because_of(cause.clone()));
        Box::new(Refusal { accepted: self.accepted.because_of(cause), resolved })
    }
}

/// A policy.
struct State<'w> {
    policy: &'w BackendTlsPolicy,
    read: Result<Arc<UpstreamTls>, Box<Refusal>>,
    /// An older one has one of its targets.
    is_conflicted: bool,
}

/// The policies, by what they are about.
#[derive(Default)]
pub struct TlsPolicies<'w> {
    states: BTreeMap<&'w Key, State<'w>>,
    /// By Service, the policy of each of its ports, and of all others.
    winners: BTreeMap<Key, BTreeMap<Option<&'w str>, &'w Key>>,
    /// By Service that policies name, some of the Gateways by which it is served: as many as a status has room for.
    served: BTreeMap<Key, BTreeSet<Key>>,
    /// The authorities that they name.
    bundles: BTreeMap<BundleId, Bundle>,
}

/// The BackendTLSPolicies that name a ConfigMap for their authorities.
pub fn naming<'w>(
    objects: &'w GatewayObjects,
    map: &'w Key,
) -> impl Iterator<Item = (&'w Key, &'w BackendTlsPolicy)> {
    let id = ObjectRef::new(Kind::ConfigMap, map.clone());
    let all = gateway::of_namespace(&objects.tls_policies, &map.namespace);
    let all = all.filter(move |(key, policy)| authorities_of(key, policy).as_ref() == Some(&id));
    all.map(|(key, policy)| (key, &**policy))
}

/// The ConfigMap or ClusterTrustBundle that a policy names for its authorities, if it names one alone.
pub fn authorities_of(key: &Key, policy: &BackendTlsPolicy) -> Option<ObjectRef> {
    let [reference] = &policy.spec.validation.ca_certificate_refs[..] else { return None };
    let id = reference.authorities(&key.namespace)?;
    // The API has no field for another namespace here.
    Some(match id.kind {
        Kind::ConfigMap => ObjectRef::new(id.kind, Key::new(&key.namespace, id.key.name)),
        _ => id,
    })
}

/// The Services that a policy is about.
pub fn services<'p>(key: &'p Key, policy: &'p BackendTlsPolicy) -> impl Iterator<Item = Key> {
    targets(key, policy).map(|(service, _)| service)
}

/// The same, each with the name of its port; `None`: all ports.
fn targets<'p>(
    key: &'p Key,
    policy: &'p BackendTlsPolicy,
) -> impl Iterator<Item = (Key, Option<&'p str>)> {
    let targets = policy.spec.target_refs.iter();
    let services = targets.filter(|to| to.group.is_empty() && to.kind == "Service");
    services.map(|to| {
        let section = to.section_name.as_deref().filter(|name| !name.is_empty());
        (Key::new(&key.namespace, &to.name), section)
    })
}

impl<'w> TlsPolicies<'w> {
    /// Those of a world. `known` has the authorities that were read before, and then those that are named now.
    pub fn of(world: &'w World, options: &Options, known: &mut Authorities) -> Self {
        let mut policies: Vec<_> = world.gateway_api.tls_policies.iter().collect();
        policies.retain(|(key, _)| is_watched(world, options, &key.namespace));
        policies.sort_by_key(|(key, policy)| (policy.meta.created, *key));
        let old = std::mem::take(known);
        let mut all = TlsPolicies::default();
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        for (key, policy) in policies {
            let count = counts.entry(&key.namespace).or_default();
            *count += 1;
            let read = match *count <= MAX_POLICIES {
                true => all.read(world, key, policy, (&old, known)),
                false => Err(invalid(format!(
                    "namespace {} has more than {MAX_POLICIES} BackendTLSPolicies, of which the oldest are read: use fewer",
                    key.namespace
                ))),
            };
            all.add(key, policy, read);
        }
        all
    }

    fn add(
        &mut self,
        key: &'w Key,
        policy: &'w BackendTlsPolicy,
        read: Result<Arc<UpstreamTls>, Box<Refusal>>,
    ) {
        let mut is_conflicted = false;
        for (service, section) in targets(key, policy) {
            let ports = self.winners.entry(service).or_default();
            is_conflicted |= *ports.entry(section).or_insert(key) != key;
        }
        self.states.insert(key, State { policy, read, is_conflicted });
    }

    fn read(
        &mut self,
        world: &World,
        key: &Key,
        policy: &BackendTlsPolicy,
        (old, known): (&Authorities, &mut Authorities),
    ) -> Result<Arc<UpstreamTls>, Box<Refusal>> {
        let validation = &policy.spec.validation;
        let name = name_of(validation)?;
        let refused = |reason, message: String| {
            let accepted = Condition::no("Accepted", "NoValidCACertificate", message.clone());
            let resolved = Some(Condition::no("ResolvedRefs", reason, message));
            Box::new(Refusal { accepted, resolved })
        };
        let field = "validation.caCertificateRefs";
        let Some(source) = authorities_of(key, policy) else {
            return Err(match &validation.ca_certificate_refs[..] {
                [] => invalid(format!(
                    "{field} is empty, and validation.wellKnownCACertificates is not served: name a ConfigMap or ClusterTrustBundle"
                )),
                [one] => refused("InvalidKind", not_authorities(field, one)),
                _ => invalid(format!("{field}: one of them is served alone: join them")),
            });
        };
        let bad = |why: String| {
            let refusal = refused("InvalidCACertificateRef", format!("{field}: {source} {why}"));
            refusal.because_of(absent(world, source.clone()))
        };
        let (id, bundle) = authorities_in(world, &source, (old, known)).map_err(bad)?;
        self.bundles.insert(id.clone(), bundle);
        Ok(Arc::new(UpstreamTls {
            authorities: Some(id),
            verify: true,
            verify_depth: DEPTH,
            name: Some(name),
            server_name: true,
            protocols: ["TLSv1.2", "TLSv1.3"].map(Into::into).into(),
            ..UpstreamTls::default()
        }))
    }

    /// What the endpoints of a Service's port are spoken to with, which may have no name.
    pub fn to_endpoints(&self, service: &Key, port: &str) -> ToEndpoints {
        let Some(ports) = self.winners.get(service) else { return ToEndpoints::Plain };
        let own = ports.get(&Some(port)).or_else(|| ports.get(&None));
        match own.and_then(|policy| self.states.get(policy)) {
            None => ToEndpoints::Plain,
            Some(State { read: Ok(tls), .. }) => ToEndpoints::Tls(tls.clone()),
            Some(_) => ToEndpoints::Refused,
        }
    }

    /// Whether one is about a Service.
    pub fn concern(&self, service: &Key) -> bool {
        self.winners.contains_key(service)
    }

    /// Notes that Services are served by Gateways, whatever number of policies names them: [`Self::finish`] looks at these once.
    pub fn note_served<'s>(
        &mut self,
        services: impl Iterator<Item = &'s Key>,
        gateways: &BTreeSet<&Key>,
    ) {
        let mut last = None;
        for service in services.filter(|service| self.winners.contains_key(*service)) {
            // One comes for each of its ports.
            if last.replace(service) == Some(service) {
                continue;
            }
            work::count(Step::NotedService);
            let served = self.served.entry(service.clone()).or_default();
            let room = MAX_ANCESTORS.saturating_sub(served.len());
            let new = gateways.iter().filter(|key| !served.contains(**key)).take(room);
            let new: Vec<Key> = new.map(|key| (*key).clone()).collect();
            served.extend(new);
        }
    }

    /// Some of the Gateways by which Services of a policy are served.
    fn ancestors(&self, key: &Key, policy: &BackendTlsPolicy) -> BTreeSet<&Key> {
        let mut all = BTreeSet::new();
        for gateway in
            services(key, policy).filter_map(|service| self.served.get(&service)).flatten()
        {
            work::count(Step::NotedService);
            all.insert(gateway);
            if all.len() == MAX_ANCESTORS {
                break;
            }
        }
        all
    }

    /// Says what became of them.
    pub fn finish(mut self, options: &Options, built: &mut Built) {
        built.bundles.extend(std::mem::take(&mut self.bundles));
        for (key, state) in &self.states {
            let gateways = self.ancestors(key, state.policy);
            if gateways.is_empty() {
                continue;
            }
            let conditions = conditions_of(state);
            let ancestor = |gateway: &Key| ParentStatus {
                parent: ParentRef {
                    group: Some(gateway::GROUP.into()),
                    kind: Some("Gateway".into()),
                    namespace: Some(gateway.namespace.to_string()),
                    name: gateway.name.to_string(),
                    ..ParentRef::default()
                },
                conditions: conditions.clone(),
            };
            let ancestors = gateways.into_iter().map(ancestor).collect();
            let controller = options.gateway_controller_name.clone();
            let content = Content::Policy { controller, ancestors };
            let generation = state.policy.meta.generation;
            status::put(Kind::BackendTLSPolicy, key, generation, content, built);
        }
    }
}

/// The authorities in an object. `known` has those that were read before, and those that are named now.
pub fn authorities_in(
    world: &World,
    id: &ObjectRef,
    (old, known): (&Authorities, &mut Authorities),
) -> Result<Named, String> {
    let source = Source::of(world, id).ok_or(match id.kind {
        Kind::ClusterTrustBundle => "does not exist, or the controller may not list those",
        _ => "does not exist",
    })?;
    let (field, text) = source.field();
    if text.is_empty() {
        return Err(format!("has no {field}"));
    }
    let same = known.get(id).or_else(|| old.get(id)).filter(|(of, _)| of.is(&source));
    let named = match same {
        Some((_, named)) => named.clone(),
        None => tls::normal_authorities(text.as_bytes()),
    };
    known.insert(id.clone(), (source, named.clone()));
    named.map_err(|why| format!("has no certificates: {why}"))
}

/// The object, if it is not there.
pub fn absent(world: &World, id: ObjectRef) -> Option<ObjectRef> {
    (!world.has(&id)).then_some(id)
}

/// What is said of a reference to an object of another kind than those that authorities stand in.
pub fn not_authorities(field: &str, name: &gateway::ObjectName) -> String {
    let kind = name.kind.as_deref().unwrap_or_default();
    format!("{field}: {kind} {} is neither a ConfigMap nor a ClusterTrustBundle", name.name)
}

fn conditions_of(state: &State<'_>) -> Vec<Condition> {
    let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
    let (accepted, resolved) = match &state.read {
        Ok(_) => (status::accepted(), resolved()),
        Err(why) => (why.accepted.clone(), why.resolved.clone().unwrap_or_else(resolved)),
    };
    let accepted = match state.is_conflicted {
        true => {
            let message = "an older BackendTLSPolicy has the same target: remove one of the two";
            Condition::no("Accepted", "Conflicted", message)
        }
        false => accepted,
    };
    vec![accepted, resolved]
}

fn invalid(message: String) -> Box<Refusal> {
    let accepted = Condition::no("Accepted", "Invalid", message);
    Box::new(Refusal { accepted, resolved: None })
}

/// The name that is sent and verified: nginx has one for both.
fn name_of(validation: &BackendValidation) -> Result<HeaderValue, Box<Refusal>> {
    let name = &validation.hostname;
    let host = HostPattern::parse(name).ok().filter(|host| !is_wide(host) && host.as_str() == name);
    if host.is_none() {
        return Err(invalid(format!("validation.hostname: {name:?} is no host name")));
    }
    let is_same =
        |other: &gateway::SubjectAltName| other.r#type == "Hostname" && other.hostname == *name;
    if !validation.subject_alt_names.iter().all(is_same) {
        let message = "validation.subjectAltNames: other names than validation.hostname are not served: remove them";
        return Err(invalid(message.into()));
    }
    HeaderValue::parse(name.clone()).map_err(|why| invalid(format!("validation.hostname: {why}")))
}
