//! The objects that matter, as sorted maps.
//!
//! Shape:   one map a kind, from namespace and name to a shared object; EndpointSlices also by Service, and what DNS
//!          says of the names that Services stand for.
//! Source:  every provider ends here, so translation cannot tell a folder from a cluster.
//!
//! An object holds only what translate reads. A change of anything else (status, labels, resource
//! versions) leaves it equal, and equal objects change nothing.

pub(super) mod references;

use crate::gateway::{
    BackendTlsPolicy, ClusterTrustBundle, Gateway, GatewayClass, GatewayObjects, ListenerSet,
    Policy, ReferenceGrant, Route,
};
use crate::ingress::{Ingress, IngressClass};
use crate::key::{Key, Kind, ObjectRef};
use crate::secret::{Pair, Secret};
use crate::service::external_name::{DnsAnswer, DnsName};
use crate::service::{EndpointSlice, Service};
use crate::small::{SmallSet, compact};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object of any kind that is read. A source that remembers its objects shares them with the world.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "Kubernetes's own names")]
pub enum Object {
    BackendTlsPolicy(Arc<BackendTlsPolicy>),
    ClusterTrustBundle(Arc<ClusterTrustBundle>),
    ConfigMap(Arc<ConfigMap>),
    EndpointSlice(Arc<EndpointSlice>),
    Gateway(Arc<Gateway>),
    GatewayClass(Arc<GatewayClass>),
    Ingress(Arc<Ingress>),
    IngressClass(Arc<IngressClass>),
    ListenerSet(Arc<ListenerSet>),
    Namespace(Arc<Namespace>),
    Policy(Arc<Policy>),
    ReferenceGrant(Arc<ReferenceGrant>),
    /// Of a kind of [`Kind::ROUTES`].
    Route(Arc<Route>),
    Secret(Secret),
    Service(Arc<Service>),
}

/// A ConfigMap: settings as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// The values by key, as they are written.
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// The bytes of its names and values.
    pub fn bytes(&self) -> usize {
        self.data.iter().map(|(name, text)| name.len() + text.len()).sum()
    }
}

/// A Namespace, as far as selectors read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// The field metadata.labels of the object.
    pub labels: BTreeMap<String, String>,
}

/// What a source saw: an object as it is now, or that it is gone.
pub type Seen = (ObjectRef, Option<Object>);

/// The keys translate has to look at again.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields of World")]
pub struct Changed {
    pub config_maps: BTreeSet<Key>,
    /// Objects of the Gateway API.
    pub gateway_api: BTreeSet<ObjectRef>,
    pub ingresses: BTreeSet<Key>,
    pub ingress_classes: BTreeSet<Key>,
    pub namespaces: BTreeSet<Key>,
    pub secrets: BTreeSet<Key>,
    /// Services that changed themselves, through one of their EndpointSlices or through what DNS says.
    pub services: BTreeSet<Key>,
    /// The Services whose own object changed, and not only their endpoints.
    pub service_specs: BTreeSet<Key>,
    /// Names of which DNS says something else.
    pub names: BTreeSet<DnsName>,
}

impl Changed {
    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        *self == Changed::default()
    }
}

/// All objects seen so far.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "Kubernetes's own names")]
pub struct World {
    pub config_maps: BTreeMap<Key, Arc<ConfigMap>>,
    pub gateway_api: GatewayObjects,
    pub ingresses: BTreeMap<Key, Arc<Ingress>>,
    pub ingress_classes: BTreeMap<Key, Arc<IngressClass>>,
    /// The API server does not let us see IngressClasses.
    pub hides_classes: bool,
    pub namespaces: BTreeMap<Key, Arc<Namespace>>,
    pub secrets: BTreeMap<Key, SecretHistory>,
    pub services: BTreeMap<Key, Arc<Service>>,
    slices: BTreeMap<Key, Arc<EndpointSlice>>,
    slices_of_service: BTreeMap<Key, SmallSet<Key>>,
    answers: BTreeMap<DnsName, DnsAnswer>,
    services_of_name: BTreeMap<DnsName, SmallSet<Key>>,
}

/// A Secret and the last pair it had that can be served: a rotation that went wrong keeps the previous
/// certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretHistory {
    /// The Secret as it is now.
    pub secret: Secret,
    /// Of this version if it is usable, else of the last one that was.
    pub last_good: Option<Arc<Pair>>,
}

/// The object, if there is one of this kind.
macro_rules! found {
    ($object:expr, $kind:ident) => {
        match $object {
            Some(Object::$kind(new)) => Some(new),
            _ => None,
        }
    };
}

impl World {
    /// Gives back the memory that many first objects have left half used.
    pub fn compact(&mut self) {
        compact(&mut self.config_maps);
        compact(&mut self.ingresses);
        compact(&mut self.secrets);
        compact(&mut self.services);
        compact(&mut self.slices);
        compact(&mut self.slices_of_service);
    }

    /// Takes over what a source saw and notes in `changed` what translate has to look at.
    pub fn apply(&mut self, (id, object): Seen, changed: &mut Changed) {
        let key = id.key;
        match id.kind {
            Kind::ConfigMap => {
                replace(
                    &mut self.config_maps,
                    key,
                    found!(object, ConfigMap),
                    &mut changed.config_maps,
                );
            }
            Kind::BackendTLSPolicy
            | Kind::ClusterTrustBundle
            | Kind::Gateway
            | Kind::GatewayClass
            | Kind::GRPCRoute
            | Kind::HTTPRoute
            | Kind::ListenerSet
            | Kind::Policy
            | Kind::ReferenceGrant
            | Kind::TCPRoute
            | Kind::TLSRoute
            | Kind::UDPRoute => {
                self.apply_gateway_api(id.kind, key, object, &mut changed.gateway_api);
            }
            Kind::Ingress => {
                replace(&mut self.ingresses, key, found!(object, Ingress), &mut changed.ingresses);
            }
            Kind::IngressClass => {
                replace(
                    &mut self.ingress_classes,
                    key,
                    found!(object, IngressClass),
                    &mut changed.ingress_classes,
                );
            }
            Kind::Namespace => {
                replace(
                    &mut self.namespaces,
                    key,
                    found!(object, Namespace),
                    &mut changed.namespaces,
                );
            }
            Kind::Service => self.apply_service(key, found!(object, Service), changed),
            Kind::Secret => self.apply_secret(key, found!(object, Secret), &mut changed.secrets),
            Kind::EndpointSlice => {
                self.apply_slice(key, found!(object, EndpointSlice), &mut changed.services);
            }
        }
    }

    /// Notes whether IngressClasses can be seen.
    pub fn hide_classes(&mut self, hides: bool, changed: &mut Changed) {
        if std::mem::replace(&mut self.hides_classes, hides) != hides {
            let named = self.ingresses.values().filter_map(|ingress| ingress.class.as_ref());
            changed.ingress_classes.extend(named.map(|name| Key::new("", name)));
        }
    }

    fn apply_gateway_api(
        &mut self,
        kind: Kind,
        key: Key,
        new: Option<Object>,
        changed: &mut BTreeSet<ObjectRef>,
    ) {
        let (all, keys) = (&mut self.gateway_api, &mut BTreeSet::new());
        if kind.is_route() {
            return all.set_route(&ObjectRef::new(kind, key), found!(new, Route), changed);
        }
        match (kind, new) {
            (_, Some(Object::Gateway(new))) => replace(&mut all.gateways, key, Some(new), keys),
            (_, Some(Object::GatewayClass(new))) => replace(&mut all.classes, key, Some(new), keys),
            (_, Some(Object::BackendTlsPolicy(new))) => {
                replace(&mut all.tls_policies, key, Some(new), keys)
            }
            (_, Some(Object::ClusterTrustBundle(new))) => {
                replace(&mut all.trust_bundles, key, Some(new), keys)
            }
            (_, Some(Object::ListenerSet(new))) => all.set_listeners(&key, Some(new), keys),
            (_, Some(Object::Policy(new))) => replace(&mut all.policies, key, Some(new), keys),
            (_, Some(Object::ReferenceGrant(new))) => {
                all.set_allowed(&key, Some(&new));
                replace(&mut all.grants, key, Some(new), keys)
            }
            (Kind::Gateway, _) => replace(&mut all.gateways, key, None, keys),
            (Kind::GatewayClass, _) => replace(&mut all.classes, key, None, keys),
            (Kind::BackendTLSPolicy, _) => replace(&mut all.tls_policies, key, None, keys),
            (Kind::ClusterTrustBundle, _) => replace(&mut all.trust_bundles, key, None, keys),
            (Kind::ListenerSet, _) => all.set_listeners(&key, None, keys),
            (Kind::Policy, _) => replace(&mut all.policies, key, None, keys),
            _ => {
                all.set_allowed(&key, None);
                replace(&mut all.grants, key, None, keys)
            }
        }
        changed.extend(std::mem::take(keys).into_iter().map(|key| ObjectRef::new(kind, key)));
    }

    fn apply_service(&mut self, key: Key, new: Option<Arc<Service>>, changed: &mut Changed) {
        let name_of = |service: &Arc<Service>| service.dns_name().cloned();
        let (old_name, new_name) =
            (self.services.get(&key).and_then(name_of), new.as_ref().and_then(name_of));
        if old_name != new_name {
            if let Some(name) = old_name
                && let Some(services) = self.services_of_name.get_mut(&name)
            {
                services.remove(&key);
                if services.is_empty() {
                    self.services_of_name.remove(&name);
                }
            }
            if let Some(name) = new_name {
                self.services_of_name.entry(name).or_default().insert(key.clone());
            }
        }
        if self.services.get(&key) != new.as_ref() {
            changed.services.insert(key.clone());
        }
        replace(&mut self.services, key, new, &mut changed.service_specs);
    }

    /// Takes over what DNS says of a name. After a failure the addresses of before stay.
    pub fn answer(&mut self, name: DnsName, mut answer: DnsAnswer, changed: &mut Changed) {
        let old = self.answers.get(&name);
        if let Some(old) = old
            && answer.failure.is_some()
        {
            answer = DnsAnswer { failure: answer.failure, ..old.clone() };
        }
        if old != Some(&answer) {
            let services = self.services_of_name.get(&name).into_iter().flatten();
            changed.services.extend(services.cloned());
            changed.names.insert(name.clone());
            self.answers.insert(name, answer);
        }
    }

    /// Forgets what DNS said of names that are not wanted.
    pub fn retain_answers(&mut self, is_wanted: impl Fn(&DnsName) -> bool) {
        self.answers.retain(|name, _| is_wanted(name));
    }

    /// What DNS says of a name that a Service or a URL stands for; none: nothing yet.
    pub fn answer_for(&self, name: &DnsName) -> Option<&DnsAnswer> {
        self.answers.get(name)
    }

    fn apply_secret(&mut self, key: Key, new: Option<Secret>, changed: &mut BTreeSet<Key>) {
        let old = self.secrets.get(&key);
        if old.map(|history| &history.secret) == new.as_ref() {
            return;
        }
        let kept = old.and_then(|history| history.last_good.clone());
        match new {
            Some(secret) => {
                let last_good = secret.pair().cloned().or(kept);
                self.secrets.insert(key.clone(), SecretHistory { secret, last_good });
            }
            None => drop(self.secrets.remove(&key)),
        }
        changed.insert(key);
    }

    fn apply_slice(
        &mut self,
        key: Key,
        new: Option<Arc<EndpointSlice>>,
        services: &mut BTreeSet<Key>,
    ) {
        let old = self.slices.get(&key).cloned();
        if old == new {
            return;
        }
        let service_of = |slice: &EndpointSlice| slice.service_of(&key.namespace);
        if let Some(service) = old.as_deref().and_then(service_of) {
            if let Some(slices) = self.slices_of_service.get_mut(&service) {
                slices.remove(&key);
                if slices.is_empty() {
                    self.slices_of_service.remove(&service);
                }
            }
            services.insert(service);
        }
        if let Some(service) = new.as_deref().and_then(service_of) {
            self.slices_of_service.entry(service.clone()).or_default().insert(key.clone());
            services.insert(service);
        }
        match new {
            Some(slice) => drop(self.slices.insert(key, slice)),
            None => drop(self.slices.remove(&key)),
        }
    }

    /// An EndpointSlice.
    pub fn slice(&self, key: &Key) -> Option<&Arc<EndpointSlice>> {
        self.slices.get(key)
    }

    /// The names of all EndpointSlices.
    pub fn all_slices(&self) -> impl Iterator<Item = &Key> {
        self.slices.keys()
    }

    /// The EndpointSlices of a Service, by name: whichever name they have, the label decides.
    pub fn slices(&self, service: &Key) -> impl Iterator<Item = (&Key, &Arc<EndpointSlice>)> {
        self.slices_of_service
            .get(service)
            .into_iter()
            .flatten()
            .filter_map(|key| self.slices.get_key_value(key))
    }

    /// Whether an object was seen and is not gone.
    pub fn has(&self, id: &ObjectRef) -> bool {
        self.object(id).is_some()
    }

    /// An object as it was last seen.
    pub fn object(&self, id: &ObjectRef) -> Option<Object> {
        let (key, api) = (&id.key, &self.gateway_api);
        match id.kind {
            Kind::ClusterTrustBundle => {
                api.trust_bundles.get(key).cloned().map(Object::ClusterTrustBundle)
            }
            Kind::ConfigMap => self.config_maps.get(key).cloned().map(Object::ConfigMap),
            Kind::EndpointSlice => self.slices.get(key).cloned().map(Object::EndpointSlice),
            Kind::Gateway => api.gateways.get(key).cloned().map(Object::Gateway),
            Kind::GatewayClass => api.classes.get(key).cloned().map(Object::GatewayClass),
            Kind::GRPCRoute
            | Kind::HTTPRoute
            | Kind::TCPRoute
            | Kind::TLSRoute
            | Kind::UDPRoute => api.any_route(id).cloned().map(Object::Route),
            Kind::BackendTLSPolicy => {
                api.tls_policies.get(key).cloned().map(Object::BackendTlsPolicy)
            }
            Kind::ListenerSet => api.any_set(key).cloned().map(Object::ListenerSet),
            Kind::Policy => api.policies.get(key).cloned().map(Object::Policy),
            Kind::ReferenceGrant => api.grants.get(key).cloned().map(Object::ReferenceGrant),
            Kind::Ingress => self.ingresses.get(key).cloned().map(Object::Ingress),
            Kind::IngressClass => self.ingress_classes.get(key).cloned().map(Object::IngressClass),
            Kind::Namespace => self.namespaces.get(key).cloned().map(Object::Namespace),
            Kind::Secret => self.secrets.get(key).map(|it| Object::Secret(it.secret.clone())),
            Kind::Service => self.services.get(key).cloned().map(Object::Service),
        }
    }

    /// Every key, as if all of it had just arrived.
    pub fn all(&self) -> Changed {
        Changed {
            config_maps: self.config_maps.keys().cloned().collect(),
            gateway_api: self.gateway_api.names(),
            ingresses: self.ingresses.keys().cloned().collect(),
            ingress_classes: self.ingress_classes.keys().cloned().collect(),
            namespaces: self.namespaces.keys().cloned().collect(),
            secrets: self.secrets.keys().cloned().collect(),
            service_specs: self.services.keys().cloned().collect(),
            services: self.services.keys().chain(self.slices_of_service.keys()).cloned().collect(),
            names: self.answers.keys().cloned().collect(),
        }
    }
}

fn replace<K: Ord + Clone, T: PartialEq>(
    all: &mut BTreeMap<K, Arc<T>>,
    key: K,
    new: Option<Arc<T>>,
    changed: &mut BTreeSet<K>,
) {
    if all.get(&key) == new.as_ref() {
        return;
    }
    match new {
        Some(new) => drop(all.insert(key.clone(), new)),
        None => drop(all.remove(&key)),
    }
    changed.insert(key);
}
