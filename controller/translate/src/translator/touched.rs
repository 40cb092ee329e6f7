//! What a change touches of the Gateway API: nothing, routes alone, or everything.

use super::Translator;
use crate::gateway;
use crate::pace::OF_NAMESPACE;
use crate::pace::price::REBUILT;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::of_namespace;
use oxigress_objects::{Changed, Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};

/// The ReferenceGrants that changed.
pub fn grants(changed: &Changed) -> impl Iterator<Item = &Key> {
    let grants = changed.gateway_api.iter().filter(|id| id.kind == Kind::ReferenceGrant);
    grants.map(|id| &id.key)
}

/// Whether what objects of a kind say is built again without all else.
fn is_alone(kind: Kind) -> bool {
    kind.is_of_requests() || kind == Kind::ReferenceGrant
}

impl Translator {
    /// The routes that are to be read again, if nothing else has changed by which something is served of the Gateway API.
    pub(super) fn routes_alone(
        &self,
        world: &World,
        changed: &Changed,
    ) -> Option<BTreeSet<ObjectRef>> {
        let memo = &self.gateway_memo;
        let mut others = changed.gateway_api.iter().filter(|id| !is_alone(id.kind));
        let is_else = others.any(|id| self.is_used(world, id))
            || memo.opened.has_due()
            || self.is_of_services(changed)
            || !changed.namespaces.is_empty()
            || self.objects_are_named(world, changed);
        if is_else || memo.totals.is_none() {
            return None;
        }
        let routes = changed.gateway_api.iter().filter(|id| id.kind.is_of_requests());
        let mut routes: BTreeSet<ObjectRef> = routes.cloned().collect();
        routes.extend(memo.readers_of_changed(world, &changed.service_specs));
        routes.extend(memo.readers_of_grants(world, grants(changed))?);
        Some(routes)
    }

    /// Charges building everything to the namespaces that have it built. A route that is built with all others for somebody else's
    /// change is not its namespace's doing, and nothing is owed for a removal.
    pub(super) fn charge_build(&mut self, world: &World, changed: &Changed) {
        if self.gateways.statuses.is_empty() {
            return;
        }
        let is_payer = |id: &ObjectRef| world.object(id).is_some() && !self.is_operators(id);
        let objects = changed.gateway_api.iter().filter(|id| {
            id.kind.is_namespaced() && !is_alone(id.kind) && is_payer(id) && self.is_used(world, id)
        });
        let shown = |key: &&Key| self.gateways.shown.contains_key(*key);
        let secrets = changed.secrets.iter().filter(shown);
        let secrets = secrets.map(|key| ObjectRef::new(Kind::Secret, key.clone()));
        let maps = self.maps_of_authorities(world, &changed.config_maps).into_iter();
        let maps = maps.map(|key| ObjectRef::new(Kind::ConfigMap, key.clone()));
        let others = secrets.chain(maps).filter(is_payer);
        let all = others.chain(objects.cloned()).map(|id| id.key.namespace).collect();
        self.charge_build_to(world, all);
    }

    /// Charges building everything to the namespaces of the changed routes and Ingresses that name a host on which it depends who
    /// has sessions.
    pub(super) fn charge_session(&mut self, world: &World, changed: &Changed, host: &HostPattern) {
        // A route without names may have all.
        let is_default = *host == HostPattern::default_host();
        let names = |id: &ObjectRef| {
            let route = world.gateway_api.routes.get(id);
            route.is_some_and(|it| {
                let mut names = it.spec.hostnames.iter();
                names.any(|name| name == host.as_str()) || is_default && names.len() == 0
            })
        };
        let routes = changed.gateway_api.iter().filter(|id| id.kind.is_route());
        let routes = routes.filter(|id| self.is_used(world, id) && !self.is_operators(id));
        let (named, others): (Vec<_>, Vec<_>) = routes.partition(|id| names(id));
        let namespace = |id: &ObjectRef| id.key.namespace.clone();
        let mut payers: BTreeSet<Name> = named.into_iter().map(namespace).collect();
        payers.extend(self.claimed_by.get(host).into_iter().flatten().cloned());
        // An alias came or went, or a route has its names from a listener.
        if payers.is_empty() {
            let edited = changed.ingresses.iter().filter(|key| world.ingresses.contains_key(*key));
            payers.extend(edited.map(|key| key.namespace.clone()));
            payers.extend(others.into_iter().map(namespace));
        }
        self.charge_build_to(world, payers);
    }

    fn charge_build_to(&mut self, world: &World, by: BTreeSet<Name>) {
        // A part: who edits listeners of a large installation now and then is not to wait for that.
        let all = (REBUILT / 4).saturating_mul(world.gateway_api.routes.len() as u64);
        let each = all.min(OF_NAMESPACE.full) / (by.len() as u64).max(1);
        for namespace in by {
            *self.build_work.entry(namespace).or_default() += each;
        }
    }

    /// What building everything of the Gateway API has taken since this was last asked, by the namespace that pays for it.
    pub fn take_build_work(&mut self) -> BTreeMap<Name, u64> {
        std::mem::take(&mut self.build_work)
    }

    /// Remembers the grants that changed, once all that they concern is built.
    pub(super) fn note_grants(&mut self, world: &World, changed: &Changed) {
        grants(changed).for_each(|key| self.gateway_memo.note_grant(world, key));
    }

    /// Whether Gateways, policies or Policies name one of the Secrets, ConfigMaps and Services that changed.
    pub(super) fn objects_are_named(&self, world: &World, changed: &Changed) -> bool {
        changed.secrets.iter().any(|key| self.gateways.shown.contains_key(key))
            || !self.maps_of_authorities(world, &changed.config_maps).is_empty()
            || self.policies_name_one_of(changed)
    }

    pub(super) fn touches_gateways(
        &self,
        world: &World,
        changed: &Changed,
        is_new_settings: bool,
        hosts: &BTreeSet<HostPattern>,
    ) -> bool {
        let now = &self.gateways;
        if self.concerns_gateways(world, changed) || self.gateway_memo.opened.has_due() {
            return true;
        }
        if now.statuses.is_empty() {
            return false;
        }
        let is_beside = || {
            let is_above = |above: HostPattern| hosts.contains(&above);
            let served = self.snapshot.listener_servers.keys().map(|at| &at.host);
            let mut served = served.chain(now.session_hosts.keys()).chain(now.kept_hosts.keys());
            // What is kept from a wildcard that is passed through is so wherever its routes are.
            let mut passed = hosts.iter().filter(|_| self.options.ssl_passthrough);
            hosts.contains(&HostPattern::default_host())
                || passed.any(|host| {
                    self.below.contains_key(host) || self.gateway_claims.contains_key(host)
                })
                || served
                    .any(|host| hosts.contains(host) || host.wildcard_above().is_some_and(is_above))
        };
        is_new_settings
            || self.is_of_services(changed)
            || !changed.namespaces.is_empty()
            || self.objects_are_named(world, changed)
            || !self.gateway_memo.readers_of_changed(world, &changed.service_specs).is_empty()
            || is_beside()
    }

    /// Whether TCP or UDP services may take other ports, which Gateways' listeners then do not have.
    pub(super) fn is_of_services(&self, changed: &Changed) -> bool {
        let maps = [&self.options.tcp_services_configmap, &self.options.udp_services_configmap];
        maps.into_iter().flatten().any(|key| changed.config_maps.contains(key))
    }

    /// Whether something is served or told because of one of the objects of the Gateway API that changed. What is not may be
    /// edited without end: it is read as it is then when another object's change has it served.
    pub(super) fn concerns_gateways(&self, world: &World, changed: &Changed) -> bool {
        changed.gateway_api.iter().any(|id| self.is_used(world, id))
    }

    /// Whether an object has a status, or is of something that has one; a Policy: whether a route at our Gateways names it.
    pub(super) fn is_used(&self, world: &World, id: &ObjectRef) -> bool {
        let (statuses, api) = (&self.gateways.statuses, &world.gateway_api);
        let namespace = &id.key.namespace;
        let has_status = |kind, key| statuses.contains_key(&ObjectRef::new(kind, key));
        let is_of_ours = || match id.kind {
            Kind::Policy => self.asks_for(&id.key),
            Kind::ReferenceGrant => {
                let routes = self.gateway_memo.readers_of_grants(world, [&id.key].into_iter());
                routes.is_none_or(|routes| !routes.is_empty())
            }
            // What is in a namespace that nobody watches has no status, and neither does what attaches to it.
            kind if kind.is_namespaced()
                && !gateway::is_watched(world, &self.options, namespace) =>
            {
                false
            }
            Kind::BackendTLSPolicy => {
                let is_read = |service| self.gateway_memo.readers_of(&service).next().is_some();
                let policy = api.tls_policies.get(&id.key).into_iter();
                let mut services = policy.flat_map(|policy| gateway::services(&id.key, policy));
                // Those of a namespace count for each other: by their number, and where they have one target.
                let first = ObjectRef::new(Kind::BackendTLSPolicy, Key::new(namespace, ""));
                let other = statuses.range(first..).next().map(|(other, _)| other);
                services.any(is_read)
                    || other.is_some_and(|it| it.kind == id.kind && it.key.namespace == *namespace)
            }
            Kind::Gateway => api.gateways.get(&id.key).is_some_and(|gateway| {
                let class = Key::new("", &gateway.spec.gateway_class_name);
                has_status(Kind::GatewayClass, class)
            }),
            Kind::ListenerSet => {
                gateway::gateway_of(world, id).is_some_and(|key| has_status(Kind::Gateway, key))
            }
            kind if kind.is_route() => {
                let route = api.routes.get(id).into_iter();
                let parents = route.flat_map(|route| &route.spec.parent_refs);
                let mut objects = parents.filter_map(|parent| parent.object(namespace));
                // One that comes together with the route is used itself.
                objects.any(|parent| statuses.contains_key(&parent))
            }
            _ => true,
        };
        statuses.contains_key(id) || is_of_ours()
    }

    /// Those of the ConfigMaps that a Gateway, or a BackendTLSPolicy that is used, names: what others write into theirs builds
    /// nothing again.
    fn maps_of_authorities<'m>(&self, world: &World, maps: &'m BTreeSet<Key>) -> BTreeSet<&'m Key> {
        if maps.is_empty() {
            return BTreeSet::new();
        }
        let objects = &world.gateway_api;
        let mut named = gateway::authorities_of_ours(&self.options, objects);
        let namespaces: BTreeSet<&Name> = maps.iter().map(|key| &key.namespace).collect();
        for namespace in namespaces {
            for (key, policy) in of_namespace(&objects.tls_policies, namespace) {
                let id = || ObjectRef::new(Kind::BackendTLSPolicy, key.clone());
                let map = gateway::authorities_of(key, policy);
                let map = map.filter(|map| map.kind == Kind::ConfigMap && maps.contains(&map.key));
                named.extend(map.filter(|map| !named.contains(map) && self.is_used(world, &id())));
            }
        }
        let is_named =
            |key: &&Key| named.contains(&ObjectRef::new(Kind::ConfigMap, (*key).clone()));
        maps.iter().filter(is_named).collect()
    }

    /// Whether a Policy of a route names one of the objects that changed.
    pub(super) fn policies_name_one_of(&self, changed: &Changed) -> bool {
        let all = [
            (Kind::ConfigMap, &changed.config_maps),
            (Kind::Secret, &changed.secrets),
            (Kind::Service, &changed.service_specs),
        ];
        let known = &self.gateway_memo.policies;
        all.into_iter().any(|(kind, objects)| known.name_one_of(kind, objects))
    }
}
