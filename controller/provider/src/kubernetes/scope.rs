//! What is watched: the fewest objects that can matter.
//!
//! Shape:   a [`Subject`] is one watch. With --watch-namespace there is one a kind in that namespace, and one for each
//!          object elsewhere that a flag names.
//! Source:  ingress-nginx's controller.

use oxigress_objects::{Key, Kind, ObjectRef, gateway};
use std::collections::BTreeSet;
use std::fmt;

/// What the operator decided about what is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The value of `--watch-namespace`.
    pub watch_namespace: Option<String>,
    /// Whether labels of namespaces count, because of `--watch-namespace-selector`.
    pub watches_namespaces: bool,
    /// The value of `--gateway-api`.
    pub gateway_api: bool,
    /// The value of `--configmap`.
    pub configmap: Option<Key>,
    /// The value of `--default-backend-service`.
    pub default_backend_service: Option<Key>,
    /// The value of `--default-ssl-certificate`.
    pub default_ssl_certificate: Option<Key>,
    /// The value of `--tcp-services-configmap`.
    pub tcp_services_configmap: Option<Key>,
    /// The value of `--udp-services-configmap`.
    pub udp_services_configmap: Option<Key>,
}

/// Helm's releases: large, many, and never served.
const NO_RELEASES: &str = "type!=helm.sh/release.v1";
const NO_TILLER: &str = "OWNER!=TILLER";

/// The objects of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The kind of the objects.
    pub kind: Kind,
    /// None: in all namespaces, or of a kind that has none.
    pub namespace: Option<String>,
    /// With this name alone, of EndpointSlices with this Service's.
    pub name: Option<String>,
}

impl Subject {
    /// All there are to watch.
    pub fn all(options: &Options) -> Vec<Subject> {
        let namespace = options.watch_namespace.clone();
        let of = |kind: Kind| {
            let namespace = namespace.clone().filter(|_| kind.is_namespaced());
            Subject { kind, namespace, name: None }
        };
        let mut all = vec![
            of(Kind::IngressClass),
            of(Kind::Ingress),
            of(Kind::Service),
            of(Kind::EndpointSlice),
            of(Kind::Secret),
            of(Kind::ConfigMap),
        ];
        if options.gateway_api {
            all.push(of(Kind::GatewayClass));
            all.push(of(Kind::Gateway));
            all.push(of(Kind::ListenerSet));
            all.extend(Kind::ROUTES.map(of));
            all.push(of(Kind::ReferenceGrant));
            all.push(of(Kind::BackendTLSPolicy));
            all.push(of(Kind::Policy));
            all.push(of(Kind::ClusterTrustBundle));
        }
        // For the operator's selector, and for those of Gateways, if there are any.
        if options.watches_namespaces || options.gateway_api {
            all.push(of(Kind::Namespace));
        }
        let backend = &options.default_backend_service;
        let named: BTreeSet<_> = [
            (Kind::ConfigMap, &options.configmap),
            (Kind::ConfigMap, &options.tcp_services_configmap),
            (Kind::ConfigMap, &options.udp_services_configmap),
            (Kind::Secret, &options.default_ssl_certificate),
            (Kind::Service, backend),
            (Kind::EndpointSlice, backend),
        ]
        .into_iter()
        .filter_map(|(kind, key)| Some((kind, key.clone()?)))
        .filter(|(_, key)| namespace.as_ref().is_some_and(|watched| *watched != key.namespace))
        .collect();
        all.extend(named.into_iter().map(|(kind, Key { namespace, name })| Subject {
            kind,
            namespace: Some(namespace.into()),
            name: Some(name.into()),
        }));
        all
    }

    /// Whether it tells of this object.
    pub fn covers(&self, id: &ObjectRef) -> bool {
        self.kind == id.kind
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == id.key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == id.key.name)
    }

    /// Whether only those of its objects are kept that something is served from.
    pub fn is_sparse(&self) -> bool {
        matches!(self.kind, Kind::ConfigMap | Kind::Secret)
    }

    /// Whether the others are served without it.
    pub fn is_dispensable(&self) -> bool {
        matches!(self.kind, Kind::IngressClass | Kind::Namespace) || self.kind.is_of_gateway_api()
    }

    /// What the server leaves out by fields.
    pub fn fields(&self) -> Option<String> {
        match (self.kind, &self.name) {
            (Kind::EndpointSlice, _) => None,
            (_, Some(name)) => Some(format!("metadata.name={name}")),
            (Kind::Secret, None) => Some(NO_RELEASES.into()),
            _ => None,
        }
    }

    /// What the server leaves out by labels.
    pub fn labels(&self) -> Option<String> {
        match (self.kind, &self.name) {
            (Kind::EndpointSlice, Some(name)) => Some(format!("kubernetes.io/service-name={name}")),
            (Kind::ConfigMap, None) => Some(NO_TILLER.into()),
            _ => None,
        }
    }

    /// What a role has to say so that it can be watched.
    pub fn rule(&self) -> String {
        let (group, resource) = match self.kind {
            Kind::ConfigMap => ("", "configmaps"),
            Kind::EndpointSlice => ("discovery.k8s.io", "endpointslices"),
            Kind::Gateway => (gateway::GROUP, "gateways"),
            Kind::GatewayClass => (gateway::GROUP, "gatewayclasses"),
            Kind::GRPCRoute => (gateway::GROUP, "grpcroutes"),
            Kind::HTTPRoute => (gateway::GROUP, "httproutes"),
            Kind::TCPRoute => (gateway::GROUP, "tcproutes"),
            Kind::TLSRoute => (gateway::GROUP, "tlsroutes"),
            Kind::UDPRoute => (gateway::GROUP, "udproutes"),
            Kind::BackendTLSPolicy => (gateway::GROUP, "backendtlspolicies"),
            Kind::ClusterTrustBundle => (gateway::TRUST_GROUP, "clustertrustbundles"),
            Kind::ListenerSet => (gateway::GROUP, "listenersets"),
            Kind::Policy => (gateway::POLICY_GROUP, "policies"),
            Kind::ReferenceGrant => (gateway::GROUP, "referencegrants"),
            Kind::Ingress => ("networking.k8s.io", "ingresses"),
            Kind::IngressClass => ("networking.k8s.io", "ingressclasses"),
            Kind::Namespace => ("", "namespaces"),
            Kind::Secret => ("", "secrets"),
            Kind::Service => ("", "services"),
        };
        let role = match &self.namespace {
            Some(namespace) => format!("Role in namespace {namespace}"),
            None => "ClusterRole".into(),
        };
        format!(
            "give its {role} the rule apiGroups: [\"{group}\"], resources: [\"{resource}\"], \
             verbs: [get, list, watch]"
        )
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (Some(namespace), None) => write!(f, " in {namespace}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_and_what_flags_name_elsewhere() {
        let options = Options {
            watch_namespace: Some("shop".into()),
            gateway_api: true,
            configmap: Some(Key::new("system", "settings")),
            tcp_services_configmap: Some(Key::new("system", "settings")),
            udp_services_configmap: Some(Key::new("shop", "udp")),
            default_backend_service: Some(Key::new("system", "default")),
            ..Options::default()
        };
        let all: Vec<_> = Subject::all(&options).iter().map(Subject::to_string).collect();
        let expected = [
            "IngressClass",
            "Ingress in shop",
            "Service in shop",
            "EndpointSlice in shop",
            "Secret in shop",
            "ConfigMap in shop",
            "GatewayClass",
            "Gateway in shop",
            "ListenerSet in shop",
            "HTTPRoute in shop",
            "GRPCRoute in shop",
            "TLSRoute in shop",
            "TCPRoute in shop",
            "UDPRoute in shop",
            "ReferenceGrant in shop",
            "BackendTLSPolicy in shop",
            "Policy in shop",
            "ClusterTrustBundle",
            "Namespace",
            "ConfigMap system/settings",
            "EndpointSlice system/default",
            "Service system/default",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn the_server_leaves_out_what_is_never_served() {
        let all = Subject::all(&Options::default());
        let of = |kind| all.iter().find(|subject| subject.kind == kind).unwrap();
        assert_eq!(of(Kind::Secret).fields().unwrap(), NO_RELEASES);
        assert_eq!(of(Kind::ConfigMap).labels().unwrap(), NO_TILLER);
        assert!(of(Kind::Service).fields().is_none() && of(Kind::Service).labels().is_none());
    }
}
