//! Which Secrets and ConfigMaps a world is served from: a source need not keep the others.
//!
//! Shape:   [`ReferenceIndex`] holds what decides that, the Ingresses with their classes and namespaces and the ConfigMaps of the
//!          operator, and asks translate's own reader what each Ingress names. It sees no Secret, so what an Ingress
//!          wants does not depend on what there is.

use crate::Options;
use crate::gateway;
use crate::ingress;
use crate::ingress::class;
use crate::patterns::Compiler;
use crate::relation::Relation;
use oxigress_objects::{Changed, Key, Kind, ObjectRef, References, Seen, World};
use oxigress_settings::{self as settings, Settings};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which Secrets, ConfigMaps and other objects each object refers to.
pub struct ReferenceIndex {
    options: Options,
    settings: Settings,
    world: World,
    by_ingress: Relation<Key, ObjectRef>,
    /// What flags name, and the operator's ConfigMap.
    by_operator: BTreeSet<ObjectRef>,
    by_gateways: BTreeSet<ObjectRef>,
    by_policy: Relation<Key, ObjectRef>,
}

impl ReferenceIndex {
    /// Of a world without objects.
    pub fn new(options: Options) -> Self {
        let mut wants = ReferenceIndex {
            options,
            settings: Settings::default(),
            world: World::default(),
            by_ingress: Relation::default(),
            by_operator: BTreeSet::new(),
            by_gateways: BTreeSet::new(),
            by_policy: Relation::default(),
        };
        wants.ask_operator();
        wants
    }

    fn update(&mut self, changed: &Changed) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) {
        let (mut different, mut all) = (BTreeSet::new(), BTreeSet::new());
        if !changed.config_maps.is_empty() {
            different.extend(self.ask_operator());
            all.extend(self.by_operator.iter().cloned());
        }
        if !changed.gateway_api.is_empty() {
            let new = gateway::references(&self.options, &self.world.gateway_api);
            different.extend(self.by_gateways.symmetric_difference(&new).cloned());
            all.extend(new.iter().cloned());
            self.by_gateways = new;
        }
        let policies: Vec<Key> = match changed.config_maps.is_empty() {
            true => {
                let all = changed.gateway_api.iter().filter(|id| id.kind == Kind::Policy);
                all.map(|id| id.key.clone()).collect()
            }
            false => self.world.gateway_api.policies.keys().cloned().collect(),
        };
        for key in policies {
            let wanted = self.wants_of_policy(&key);
            all.extend(wanted.iter().cloned());
            let turned = self.by_policy.set(&key, wanted);
            different.extend(turned.into_iter().map(Arc::unwrap_or_clone));
        }
        let touched = match changed.config_maps.is_empty() {
            true => {
                let mut touched = class::decided_anew(&self.world, &self.options, changed);
                touched.extend(changed.ingresses.iter().cloned());
                touched
            }
            false => self.world.ingresses.keys().cloned().collect(),
        };
        for key in touched {
            let wanted = match self.world.ingresses.get(&key) {
                Some(ingress) => {
                    let parsed = ingress::parse(
                        &self.world,
                        &self.options,
                        &self.settings,
                        (&key, ingress),
                        Compiler::over_budget(),
                    );
                    parsed.wants(&key)
                }
                None => BTreeSet::new(),
            };
            all.extend(wanted.iter().cloned());
            let turned = self.by_ingress.set(&key, wanted);
            different.extend(turned.into_iter().map(Arc::unwrap_or_clone));
        }
        (different, all)
    }

    /// The Secrets and ConfigMaps that a Policy names.
    fn wants_of_policy(&self, key: &Key) -> BTreeSet<ObjectRef> {
        let Some(policy) = self.world.gateway_api.policies.get(key) else { return BTreeSet::new() };
        let (world, options, settings) = (&self.world, &self.options, &self.settings);
        let mut named = gateway::references_of_policy(world, options, settings, key, policy);
        named.retain(|id| matches!(id.kind, Kind::ConfigMap | Kind::Secret));
        named
    }

    fn ask_operator(&mut self) -> BTreeSet<ObjectRef> {
        let options = &self.options;
        let map = options.configmap.as_ref().and_then(|key| self.world.config_maps.get(key));
        (self.settings, _) = settings::parse(map.map(AsRef::as_ref), &self.world.config_maps);
        let maps =
            [&options.configmap, &options.tcp_services_configmap, &options.udp_services_configmap];
        let maps = maps.into_iter().flatten().chain(self.settings.sources());
        let maps = maps.map(|key| ObjectRef::new(Kind::ConfigMap, key.clone()));
        let secrets = options.default_ssl_certificate.iter();
        let secrets = secrets.map(|key| ObjectRef::new(Kind::Secret, key.clone()));
        let new: BTreeSet<_> = maps.chain(secrets).collect();
        let different = self.by_operator.symmetric_difference(&new).cloned().collect();
        self.by_operator = new;
        different
    }
}

impl References for ReferenceIndex {
    fn depends_on(&self, id: &ObjectRef) -> bool {
        match id.kind {
            Kind::Ingress | Kind::IngressClass | Kind::Namespace => true,
            Kind::Gateway | Kind::GatewayClass | Kind::ListenerSet | Kind::ReferenceGrant => true,
            Kind::BackendTLSPolicy | Kind::Policy => true,
            Kind::GRPCRoute | Kind::HTTPRoute => false,
            Kind::TCPRoute | Kind::TLSRoute | Kind::UDPRoute => false,
            Kind::ConfigMap => self.options.configmap.as_ref() == Some(&id.key),
            Kind::EndpointSlice | Kind::Secret | Kind::Service => false,
        }
    }

    fn has(&self, id: &ObjectRef) -> bool {
        self.by_operator.contains(id)
            || self.by_gateways.contains(id)
            || self.by_ingress.has(id)
            || self.by_policy.has(id)
    }

    fn apply(&mut self, seen: Seen) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) {
        let mut changed = Changed::default();
        self.world.apply(seen, &mut changed);
        self.update(&changed)
    }

    fn hide_classes(&mut self, hides: bool) -> BTreeSet<ObjectRef> {
        let mut changed = Changed::default();
        self.world.hide_classes(hides, &mut changed);
        self.update(&changed).0
    }
}
