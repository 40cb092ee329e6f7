//! What the prices of changes are told from ([`crate::pace::price`]).

use crate::Translator;
use oxigress_objects::ingress::Ingress;
#[cfg(test)]
use oxigress_objects::{Changed, World};
use oxigress_objects::{Key, Kind, ObjectRef};
#[cfg(test)]
use std::collections::BTreeSet;

impl Translator {
    /// The paths of an Ingress that were compiled and are known as patterns.
    pub(crate) fn expressions_of(&self, ingress: &Key) -> impl Iterator<Item = &str> {
        self.claims.get(ingress).into_iter().flat_map(|claims| claims.expressions())
    }

    /// Whether paths of an Ingress may be patterns.
    pub(crate) fn may_have_patterns(&self, ingress: &Ingress) -> bool {
        let prefix = &self.options.annotations_prefix;
        let has = |name| ingress.annotations.contains_key(&format!("{prefix}/{name}"));
        self.options.regex_per_host || has("use-regex") || has("rewrite-target")
    }

    /// The Ingresses that are read again when an object changes.
    pub(crate) fn readers_of(&self, object: &ObjectRef) -> impl Iterator<Item = &Key> {
        self.referred.by(object)
    }

    /// The objects that an Ingress named when it was last read.
    pub(crate) fn objects_of(&self, ingress: &Key) -> impl Iterator<Item = &ObjectRef> {
        self.referred.of(ingress)
    }

    /// How many hosts choose a certificate again when a Secret changes.
    pub(crate) fn hosts_with(&self, secret: &Key) -> usize {
        self.secrets.by(secret).count()
    }

    /// The Ingresses that a change of objects has read again.
    #[cfg(test)]
    pub(crate) fn touched_by(&self, world: &World, changed: &Changed) -> BTreeSet<Key> {
        self.touched_ingresses(world, changed, false)
    }

    /// Whether flags or the main ConfigMap name an object.
    pub(crate) fn is_operators(&self, object: &ObjectRef) -> bool {
        let options = &self.options;
        let is = |named: &Option<Key>| named.as_ref() == Some(&object.key);
        match object.kind {
            Kind::ConfigMap => {
                let maps = [
                    &options.configmap,
                    &options.tcp_services_configmap,
                    &options.udp_services_configmap,
                ];
                maps.into_iter().any(is) || self.settings.sources().any(|key| *key == object.key)
            }
            Kind::Secret => is(&options.default_ssl_certificate),
            Kind::EndpointSlice
            | Kind::Gateway
            | Kind::GatewayClass
            | Kind::ReferenceGrant
            | Kind::IngressClass
            | Kind::Namespace => true,
            Kind::HTTPRoute | Kind::Ingress | Kind::Service => false,
        }
    }
}
