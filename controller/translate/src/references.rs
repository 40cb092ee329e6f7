//! Which Secrets and ConfigMaps a world is served from: a source need not keep the others.
//!
//! Shape:   [`ReferenceIndex`] holds what decides that, the Ingresses with their classes and namespaces and the ConfigMaps of the
//!          operator, and asks translate's own reader of annotations what each Ingress names. It sees no Secret, so what an
//!          Ingress wants does not depend on what there is. Rules name none, and are not read: each edit comes here, before
//!          the namespace's share of time is asked.

use crate::Options;
use crate::gateway;
use crate::ingress;
use crate::ingress::class;
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
    /// What Gateways, ListenerSets and BackendTLSPolicies refer to. Each is looked at by itself: were all of a namespace for one
    /// that changes, those that are there at the start would take time that grows with the square of their number.
    by_gateways: Relation<ObjectRef, ObjectRef>,
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
            by_gateways: Relation::default(),
            by_policy: Relation::default(),
        };
        wants.ask_operator();
        wants
    }

    /// `holders`: the objects of the Gateway API that may refer to others than before.
    fn update(
        &mut self,
        changed: &Changed,
        holders: BTreeSet<ObjectRef>,
    ) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) {
        let (mut different, mut own) = (BTreeSet::new(), BTreeSet::new());
        if !changed.config_maps.is_empty() {
            different.extend(self.ask_operator());
            own.extend(self.by_operator.iter().cloned());
        }
        for id in holders {
            let wanted = gateway::references_of(&self.options, &self.world.gateway_api, &id);
            let turned = self.by_gateways.set(&id, wanted.clone());
            let is_own = changed.gateway_api.contains(&id);
            note(turned, wanted, is_own, (&mut different, &mut own));
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
            let is_own = changed.gateway_api.contains(&ObjectRef::new(Kind::Policy, key.clone()));
            let turned = self.by_policy.set(&key, wanted.clone());
            note(turned, wanted, is_own, (&mut different, &mut own));
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
            let wanted = self.wants_of_ingress(&key);
            let is_own = changed.ingresses.contains(&key);
            let turned = self.by_ingress.set(&key, wanted.clone());
            note(turned, wanted, is_own, (&mut different, &mut own));
        }
        (different, own)
    }

    /// The objects that may refer to others because of one of the Gateway API as it is now.
    fn holders_by(&self, id: &ObjectRef) -> BTreeSet<ObjectRef> {
        let objects = &self.world.gateway_api;
        match id.kind {
            Kind::Gateway | Kind::ListenerSet | Kind::BackendTLSPolicy => [id.clone()].into(),
            Kind::ReferenceGrant => {
                let from = objects.grants.get(&id.key).into_iter().flat_map(|it| &it.spec.from);
                let from: BTreeSet<&str> = from.map(|from| from.namespace.as_str()).collect();
                let all = from.into_iter().map(|name| gateway::with_listeners(objects, name));
                all.flatten().collect()
            }
            Kind::GatewayClass => {
                let gateways = objects.gateways.keys().map(|key| (Kind::Gateway, key));
                let sets = objects.sets.keys().map(|key| (Kind::ListenerSet, key));
                gateways.chain(sets).map(|(kind, key)| ObjectRef::new(kind, key.clone())).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// The ListenerSets of a Gateway.
    fn sets_of(&self, gateway: &Key) -> impl Iterator<Item = ObjectRef> {
        let sets = self.world.gateway_api.sets.iter();
        let own =
            sets.filter(|(key, set)| set.spec.gateway(&key.namespace).as_ref() == Some(gateway));
        own.map(|(key, _)| ObjectRef::new(Kind::ListenerSet, key.clone()))
    }

    /// The Secrets and ConfigMaps that an Ingress names.
    fn wants_of_ingress(&self, key: &Key) -> BTreeSet<ObjectRef> {
        let Some(ingress) = self.world.ingresses.get(key) else { return BTreeSet::new() };
        ingress::references(&self.world, &self.options, &self.settings, (key, ingress))
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

/// Notes what an object refers to newly or no longer, and of what it refers to that which is new, or all.
fn note(
    turned: Vec<Arc<ObjectRef>>,
    wanted: BTreeSet<ObjectRef>,
    is_own: bool,
    (different, own): (&mut BTreeSet<ObjectRef>, &mut BTreeSet<ObjectRef>),
) {
    let new = turned.iter().filter(|id| wanted.contains(&***id));
    own.extend(new.map(|id| ObjectRef::clone(id)));
    own.extend(wanted.into_iter().filter(|_| is_own));
    different.extend(turned.into_iter().map(Arc::unwrap_or_clone));
}

impl References for ReferenceIndex {
    fn depends_on(&self, id: &ObjectRef) -> bool {
        match id.kind {
            Kind::Ingress | Kind::IngressClass | Kind::Namespace => true,
            Kind::Gateway | Kind::GatewayClass | Kind::ListenerSet | Kind::ReferenceGrant => true,
            Kind::BackendTLSPolicy | Kind::Policy => true,
            Kind::ClusterTrustBundle | Kind::GRPCRoute | Kind::HTTPRoute => false,
            Kind::TCPRoute | Kind::TLSRoute | Kind::UDPRoute => false,
            Kind::ConfigMap => self.options.configmap.as_ref() == Some(&id.key),
            Kind::EndpointSlice | Kind::Secret | Kind::Service => false,
        }
    }

    fn has(&self, id: &ObjectRef) -> bool {
        self.by_operator.contains(id)
            || self.by_gateways.has(id)
            || self.by_ingress.has(id)
            || self.by_policy.has(id)
    }

    fn apply(&mut self, seen: Seen) -> (BTreeSet<ObjectRef>, BTreeSet<ObjectRef>) {
        let (mut changed, id) = (Changed::default(), seen.0.clone());
        let is_ours = |index: &Self| {
            id.kind == Kind::Gateway
                && gateway::is_ours(&index.options, &index.world.gateway_api, &id.key)
        };
        let (mut holders, was_ours) = (self.holders_by(&id), is_ours(self));
        self.world.apply(seen, &mut changed);
        holders.extend(self.holders_by(&id));
        if is_ours(self) != was_ours {
            holders.extend(self.sets_of(&id.key));
        }
        if changed.gateway_api.is_empty() {
            holders.clear();
        }
        self.update(&changed, holders)
    }

    fn hide_classes(&mut self, hides: bool) -> BTreeSet<ObjectRef> {
        let mut changed = Changed::default();
        self.world.hide_classes(hides, &mut changed);
        self.update(&changed, BTreeSet::new()).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::work::Step;
    use crate::patterns::Compiler;
    use oxigress_objects::document::{self, Found};
    use std::fmt::Write;

    const CLASS: &str = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, \
         spec: {controller: k8s.io/ingress-nginx}}";

    fn seen(manifest: &str) -> Seen {
        let found = document::read(manifest, false).pop().unwrap().found.unwrap().pop();
        let Some(Found::Object(id, object)) = found else { panic!("{manifest}") };
        (id, Some(object))
    }

    /// The index, which knows the class, and an Ingress with some annotations, of so many paths and Secrets.
    fn index(annotations: &str, paths: usize, secrets: usize) -> (ReferenceIndex, Seen) {
        let mut text = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: a, namespace: a, \
             annotations: {{{annotations}}}}}, spec: {{ingressClassName: nginx, tls: ["
        );
        for n in 0..secrets {
            write!(text, "{{hosts: [{n}.test], secretName: s{n:04}}}, ").unwrap();
        }
        text.push_str("], rules: [{host: a.test, http: {paths: [");
        for n in 0..paths {
            let backend = "{service: {name: s, port: {number: 80}}}";
            write!(text, "{{path: /{n}, pathType: Exact, backend: {backend}}}, ").unwrap();
        }
        text.push_str("]}}]}}");
        let mut index = ReferenceIndex::new(Options::default());
        index.apply(seen(CLASS));
        (index, seen(&text))
    }

    fn names(all: &BTreeSet<ObjectRef>) -> Vec<&str> {
        all.iter().map(|id| id.key.name.as_str()).collect()
    }

    #[test]
    fn the_rules_of_an_ingress_are_not_read() {
        let annotations = "nginx.ingress.kubernetes.io/auth-tls-secret: a/ca, \
             nginx.ingress.kubernetes.io/auth-type: basic, nginx.ingress.kubernetes.io/auth-secret: users";
        let (mut index, seen) = index(annotations, 1_000, 1);
        ingress::take_paths_read();
        let (different, own) = index.apply(seen);
        assert_eq!(ingress::take_paths_read(), 0);
        assert_eq!(names(&different), ["ca", "s0000", "users"]);
        assert_eq!(different, own);
    }

    #[test]
    fn of_one_ingress_a_thousand_secrets_are_wanted() {
        let (mut index, seen) = index("", 1, 1_002);
        let (different, _) = index.apply(seen);
        assert_eq!(different.len(), 1_000);
        assert!(!index.has(&ObjectRef::new(Kind::Secret, Key::new("a", "s1000"))));
        let (key, ingress) = index.world.ingresses.first_key_value().unwrap();
        let (world, options, settings) = (&index.world, &index.options, &index.settings);
        let object = (key, &**ingress);
        let read = ingress::parse(world, options, settings, object, Compiler::over_budget());
        let notes: Vec<_> = read.notes.iter().map(|note| note.message.as_str()).collect();
        assert!(notes[0].contains("spec.tls[1000] and later entries"), "{notes:?}");
    }

    #[test]
    fn what_others_refer_to_already_is_not_a_class_s_own() {
        let (mut index, (id, ingress)) = index("", 1, 1);
        index.apply((id, ingress.clone()));
        let (different, own) = index.apply(seen(&CLASS.replace("k8s.io/ingress-nginx", "other")));
        assert_eq!((different.len(), own.len()), (1, 0), "it is not referred to any more");
        let (different, own) = index.apply(seen(CLASS));
        assert_eq!((different.len(), own.len()), (1, 1), "it is again, because of the class");
        let (_, own) = index.apply((ObjectRef::new(Kind::Ingress, Key::new("a", "b")), ingress));
        assert_eq!(own.len(), 1, "an Ingress's own, though another one names it too");
    }

    #[test]
    fn a_gateway_s_own_are_those_that_it_names_and_not_those_of_all() {
        let mut index = ReferenceIndex::new(Options::default());
        let api = "apiVersion: gateway.networking.k8s.io/v1";
        index.apply(seen(&format!(
            "{{{api}, kind: GatewayClass, metadata: {{name: o}}, spec: {{controllerName: {}}}}}",
            index.options.gateway_controller_name
        )));
        let gateway = |namespace: &str, secrets: &[&str]| {
            let listener = |secret: &&str| {
                format!(
                    "{{name: {secret}, port: 443, protocol: HTTPS, hostname: {secret}.test, \
                     tls: {{certificateRefs: [{{name: {secret}}}]}}}}"
                )
            };
            let listeners: Vec<_> = secrets.iter().map(listener).collect();
            seen(&format!(
                "{{{api}, kind: Gateway, metadata: {{name: g, namespace: {namespace}}}, \
                 spec: {{gatewayClassName: o, listeners: [{}]}}}}",
                listeners.join(", ")
            ))
        };
        index.apply(gateway("evil", &["e1", "e2"]));
        let (different, own) = index.apply(gateway("b", &["b1", "b2"]));
        assert_eq!((names(&different), names(&own)), (vec!["b1", "b2"], vec!["b1", "b2"]));
        let (different, own) = index.apply(gateway("b", &["b1", "b3"]));
        assert_eq!((names(&different), names(&own)), (vec!["b2", "b3"], vec!["b1", "b3"]));
    }

    #[test]
    fn a_change_looks_at_the_objects_that_it_may_concern() {
        let mut index = ReferenceIndex::new(Options::default());
        let api = "apiVersion: gateway.networking.k8s.io/v1";
        let class = format!(
            "{{{api}, kind: GatewayClass, metadata: {{name: o}}, spec: {{controllerName: {}}}}}",
            index.options.gateway_controller_name
        );
        index.apply(seen(&class));
        let listeners = |secret: &str| {
            format!(
                "listeners: [{{name: l, port: 443, protocol: HTTPS, hostname: a.test, \
                 tls: {{certificateRefs: [{{name: {secret}, namespace: s}}]}}}}]"
            )
        };
        let gateway = |namespace: &str, class: &str, secret: &str| {
            let listeners = listeners(secret);
            seen(&format!(
                "{{{api}, kind: Gateway, metadata: {{name: g, namespace: {namespace}}}, \
                 spec: {{gatewayClassName: {class}, {listeners}}}}}"
            ))
        };
        let set = |namespace: &str, secret: &str| {
            let listeners = listeners(secret);
            seen(&format!(
                "{{{api}, kind: ListenerSet, metadata: {{name: l, namespace: {namespace}}}, \
                 spec: {{parentRef: {{name: g, namespace: n00}}, {listeners}}}}}"
            ))
        };
        let grant = |kind: &str, namespace: &str| {
            let api = "apiVersion: gateway.networking.k8s.io/v1beta1";
            seen(&format!(
                "{{{api}, kind: ReferenceGrant, metadata: {{name: {namespace}, namespace: s}}, spec: {{\
                 from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: {namespace}}}], \
                 to: [{{group: '', kind: Secret}}]}}}}"
            ))
        };
        for n in 0..50 {
            index.apply(gateway(&format!("n{n:02}"), "o", "x"));
        }
        gateway::work::take(Step::Referred);
        let mut steps = |seen: Seen| {
            let (different, _) = index.apply(seen);
            (different.len(), gateway::work::take(Step::Referred))
        };
        assert_eq!(steps(set("sets", "y")), (0, 1), "itself, and no grant");
        assert_eq!(steps(grant("ListenerSet", "sets")), (1, 1), "who is granted something");
        assert_eq!(steps(grant("Gateway", "n07")), (1, 1));
        assert_eq!(steps(gateway("n07", "o", "z")), (2, 1), "one in the place of another");
        assert_eq!(steps(set("sets", "z")), (2, 1), "another one refers to the new one");
        assert_eq!(steps(gateway("n00", "o", "z")), (0, 1), "its sets are as they were");
        assert_eq!(steps(gateway("n00", "other", "z")), (1, 0), "its sets go with it");
        assert_eq!(steps(gateway("n00", "o", "z")), (1, 2), "and come with it");
        let (id, _) = grant("ListenerSet", "sets");
        assert_eq!(steps((id, None)), (1, 1), "no longer granted");
        assert_eq!(steps(seen(&class.replace("name: o", "name: p"))), (0, 51), "the operator's");
    }

    #[test]
    fn a_policy_is_looked_at_by_itself_however_many_others_its_namespace_has() {
        let mut index = ReferenceIndex::new(Options::default());
        for n in 0..50 {
            let (different, _) = index.apply(seen(&format!(
                "{{apiVersion: gateway.networking.k8s.io/v1, kind: BackendTLSPolicy, metadata: {{name: p{n}, namespace: a}}, \
                 spec: {{targetRefs: [{{group: '', kind: Service, name: s}}], validation: {{hostname: s.test, \
                 caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca{n}}}]}}}}}}"
            )));
            assert_eq!(names(&different), [format!("ca{n}")]);
            assert_eq!(gateway::work::take(Step::Referred), 1);
        }
    }
}
