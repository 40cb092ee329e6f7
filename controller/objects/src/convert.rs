//! Kubernetes's types to the objects of a [`crate::World`].
//!
//! Errors:  a [`WrongField`] names the field and the remedy. The API server has checked most of this
//!          already; for a file of manifests this is the only check.

use crate::gateway;
use crate::ingress::{Ingress, IngressClass, Path, PathType, Port, Rule, Target, Tls};
use crate::secret::{Fields, Offer, Secret};
use crate::service::external_name::ExternalName;
use crate::service::{
    Condition, EndpointSlice, Hints, Nearness, Protocol, Service, ServicePort, SliceEndpoint,
    SlicePort, TargetPort,
};
use crate::{ConfigMap, Key, Kind, Namespace, Object, ObjectRef};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A field that cannot be what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct WrongField {
    /// Its path in the object.
    pub field: String,
    /// What is wrong and the remedy.
    pub message: String,
}

fn wrong(field: impl Into<String>, message: impl Into<String>) -> WrongField {
    WrongField { field: field.into(), message: message.into() }
}

/// Namespace and name; `default` where an object of a namespace names none.
pub fn identify(kind: Kind, meta: &ObjectMeta) -> Result<ObjectRef, WrongField> {
    let name = meta.name.clone().unwrap_or_default();
    if name.is_empty() {
        return Err(wrong("metadata.name", "is missing: give the object a name"));
    }
    let written = || meta.namespace.clone().filter(|text| !text.is_empty());
    let namespace = match kind.is_namespaced() {
        true => written().unwrap_or_else(|| "default".into()),
        false => String::new(),
    };
    // Those of a signer begin with its name and a colon.
    let has_signer = kind == Kind::ClusterTrustBundle;
    // Names make up ids such as `namespace/service/port`, where a slash would join two parts.
    for (field, text) in [("metadata.name", &name), ("metadata.namespace", &namespace)] {
        let is_name = |b: u8| {
            b.is_ascii_lowercase()
                || b.is_ascii_digit()
                || matches!(b, b'-' | b'.')
                || (b == b':' && has_signer)
        };
        if text.len() > 253 || !text.bytes().all(is_name) {
            return Err(wrong(
                field,
                format!("{text:?} is not a name: use up to 253 of a-z, 0-9, `-` and `.`"),
            ));
        }
    }
    Ok(ObjectRef::new(kind, Key::new(namespace, name)))
}

/// Reads an Ingress; refuses a path type, port or name that Kubernetes does not have.
pub fn ingress(from: networking::Ingress) -> Result<Object, WrongField> {
    let created = from.metadata.creation_timestamp.map_or(0, |time| time.0.as_second());
    let annotations = from.metadata.annotations.unwrap_or_default();
    let spec = from.spec.unwrap_or_default();
    let default_backend =
        spec.default_backend.map(|b| target("spec.defaultBackend", b)).transpose()?;
    let all = spec.rules.unwrap_or_default();
    let mut rules = Vec::with_capacity(all.len());
    for (r, rule) in all.into_iter().enumerate() {
        let all = rule.http.map(|http| http.paths).unwrap_or_default();
        let mut paths = Vec::with_capacity(all.len());
        for (p, path) in all.into_iter().enumerate() {
            let field = format!("spec.rules[{r}].http.paths[{p}]");
            paths.push(Path {
                path: path.path.unwrap_or_default(),
                path_type: match path.path_type.as_str() {
                    "Exact" => PathType::Exact,
                    "Prefix" => PathType::Prefix,
                    "ImplementationSpecific" | "" => PathType::ImplementationSpecific,
                    other => {
                        return Err(wrong(
                            format!("{field}.pathType"),
                            format!(
                                "{other:?} is unknown: use Exact, Prefix or ImplementationSpecific"
                            ),
                        ));
                    }
                },
                target: target(&format!("{field}.backend"), path.backend)?,
            });
        }
        rules.push(Rule { host: rule.host.unwrap_or_default(), paths });
    }
    let tls = spec.tls.unwrap_or_default().into_iter().map(|tls| Tls {
        hosts: tls.hosts.unwrap_or_default(),
        secret: tls.secret_name.unwrap_or_default(),
    });
    let class = spec.ingress_class_name.filter(|class| !class.is_empty());
    let tls = tls.collect();
    Ok(Object::Ingress(Arc::new(Ingress {
        created,
        annotations,
        class,
        default_backend,
        rules,
        tls,
    })))
}

fn target(field: &str, from: networking::IngressBackend) -> Result<Target, WrongField> {
    if let Some(service) = from.service {
        if service.name.is_empty() {
            return Err(wrong(format!("{field}.service.name"), "is missing: name a Service"));
        }
        let port = service.port.unwrap_or_default();
        let port = match (port.number.filter(|n| *n != 0), port.name.filter(|n| !n.is_empty())) {
            (Some(number), _) => Port::Number(port_number(number).ok_or_else(|| {
                wrong(
                    format!("{field}.service.port.number"),
                    format!("{number} is not in 1..65535"),
                )
            })?),
            (None, Some(name)) => Port::Name(name),
            (None, None) => {
                let remedy = "is missing: give a number or a name";
                return Err(wrong(format!("{field}.service.port"), remedy));
            }
        };
        return Ok(Target::Service { name: service.name, port });
    }
    match from.resource {
        Some(resource) => Ok(Target::Resource(format!("{} {}", resource.kind, resource.name))),
        None => Err(wrong(format!("{field}.service"), "is missing: name a Service and its port")),
    }
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|&number| number != 0)
}

/// Reads an IngressClass.
pub fn ingress_class(from: networking::IngressClass) -> Result<Object, WrongField> {
    let controller = from.spec.and_then(|spec| spec.controller).unwrap_or_default();
    Ok(Object::IngressClass(Arc::new(IngressClass { controller })))
}

/// An object of a kind that is defined by a cluster, as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Custom<S> {
    /// The field apiVersion.
    #[serde(default)]
    pub api_version: gateway::Unread,
    /// The field kind.
    #[serde(default)]
    pub kind: gateway::Unread,
    /// The field metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The field spec, of the type of the kind.
    #[serde(default)]
    pub spec: S,
    /// status, which nothing is served from.
    #[serde(default)]
    pub status: serde_json::Value,
}

impl<S> From<Custom<S>> for Arc<gateway::Resource<S>> {
    fn from(from: Custom<S>) -> Self {
        let created = from.metadata.creation_timestamp.map_or(0, |time| time.0.as_second());
        let generation = from.metadata.generation.unwrap_or_default();
        Arc::new(gateway::Resource { meta: gateway::Meta { created, generation }, spec: from.spec })
    }
}

/// Converts a GatewayClass.
pub fn gateway_class(from: Custom<gateway::GatewayClassSpec>) -> Result<Object, WrongField> {
    Ok(Object::GatewayClass(from.into()))
}

/// Converts a Gateway.
pub fn gateway(from: Custom<gateway::GatewaySpec>) -> Result<Object, WrongField> {
    Ok(Object::Gateway(from.into()))
}

/// Converts a BackendTLSPolicy.
pub fn backend_tls_policy(
    from: Custom<gateway::BackendTlsPolicySpec>,
) -> Result<Object, WrongField> {
    Ok(Object::BackendTlsPolicy(from.into()))
}

/// Converts a ClusterTrustBundle.
pub fn cluster_trust_bundle(
    from: Custom<gateway::ClusterTrustBundleSpec>,
) -> Result<Object, WrongField> {
    Ok(Object::ClusterTrustBundle(from.into()))
}

/// Converts a Policy.
pub fn policy(from: Custom<gateway::PolicySpec>) -> Result<Object, WrongField> {
    Ok(Object::Policy(from.into()))
}

/// Converts a ListenerSet.
pub fn listener_set(from: Custom<gateway::ListenerSetSpec>) -> Result<Object, WrongField> {
    Ok(Object::ListenerSet(from.into()))
}

/// Converts an HTTPRoute.
pub fn http_route(from: Custom<gateway::HttpRouteSpec>) -> Result<Object, WrongField> {
    route(from)
}

/// A route of any kind, as the HTTPRoute that it means or that has all its fields.
fn route<R, H>(from: Custom<gateway::RouteSpec<R, H>>) -> Result<Object, WrongField>
where
    R: Into<gateway::HttpRouteRule>,
    H: Into<Vec<String>>,
{
    let Custom { api_version, kind, metadata, spec, status } = from;
    Ok(Object::Route(Custom { api_version, kind, metadata, spec: spec.into_http(), status }.into()))
}

/// Converts a GRPCRoute.
pub fn grpc_route(from: Custom<gateway::GrpcRouteSpec>) -> Result<Object, WrongField> {
    route(from)
}

/// Converts a TLSRoute.
pub fn tls_route(from: Custom<gateway::TlsRouteSpec>) -> Result<Object, WrongField> {
    route(from)
}

/// Converts a TCPRoute or a UDPRoute.
pub fn port_route(from: Custom<gateway::PortRouteSpec>) -> Result<Object, WrongField> {
    route(from)
}

/// Converts a ReferenceGrant.
pub fn reference_grant(from: Custom<gateway::ReferenceGrantSpec>) -> Result<Object, WrongField> {
    Ok(Object::ReferenceGrant(from.into()))
}

/// Reads a Namespace, whose labels are kept.
pub fn namespace(from: core::Namespace) -> Result<Object, WrongField> {
    let labels = from.metadata.labels.unwrap_or_default();
    Ok(Object::Namespace(Arc::new(Namespace { labels })))
}

/// Reads a Service; refuses ports beyond 65535.
pub fn service(from: core::Service) -> Result<Object, WrongField> {
    let spec = from.spec.unwrap_or_default();
    let all = spec.ports.unwrap_or_default();
    let mut ports = Vec::with_capacity(all.len());
    for (i, port) in all.into_iter().enumerate() {
        let Some(protocol) = Protocol::parse(port.protocol.as_deref()) else { continue };
        let field = format!("spec.ports[{i}]");
        let number = port_number(port.port).ok_or_else(|| {
            wrong(format!("{field}.port"), format!("{} is not in 1..65535", port.port))
        })?;
        let target = match port.target_port {
            None => TargetPort::Number(number),
            Some(IntOrString::Int(0)) => TargetPort::Number(number),
            Some(IntOrString::String(name)) => TargetPort::Name(name),
            Some(IntOrString::Int(target)) => {
                TargetPort::Number(port_number(target).ok_or_else(|| {
                    let message = format!("{target} is not in 1..65535");
                    wrong(format!("{field}.targetPort"), message)
                })?)
            }
        };
        let (name, app_protocol) = (port.name.unwrap_or_default(), port.app_protocol);
        ports.push(ServicePort { protocol, name, number, target, app_protocol });
    }
    let external_name = match spec.type_.as_deref() {
        Some("ExternalName") => Some(ExternalName::parse(&spec.external_name.unwrap_or_default())),
        _ => None,
    };
    // A headless Service says `None`.
    let cluster_ip = spec.cluster_ip.and_then(|address| address.parse().ok());
    let annotations = from.metadata.annotations.unwrap_or_default();
    let mode = annotations.get("service.kubernetes.io/topology-mode");
    let prefers = Nearness::parse(spec.traffic_distribution.as_deref(), mode.map(String::as_str));
    Ok(Object::Service(Arc::new(Service { external_name, cluster_ip, ports, prefers })))
}

/// Reads an EndpointSlice; refuses an address type that Kubernetes does not have.
pub fn endpoint_slice(from: discovery::EndpointSlice) -> Result<Object, WrongField> {
    let labels = from.metadata.labels.unwrap_or_default();
    let service = labels.get("kubernetes.io/service-name").filter(|name| !name.is_empty()).cloned();
    if !matches!(from.address_type.as_str(), "IPv4" | "IPv6" | "FQDN" | "") {
        return Err(wrong(
            "addressType",
            format!("{:?} is unknown: use IPv4 or IPv6", from.address_type),
        ));
    }
    let all_ports = from.ports.unwrap_or_default();
    let is_without_ports = all_ports.is_empty();
    let mut ports = Vec::with_capacity(all_ports.len());
    for (i, port) in all_ports.into_iter().enumerate() {
        let Some(protocol) = Protocol::parse(port.protocol.as_deref()) else { continue };
        let number = match port.port {
            None => None,
            Some(number) => Some(port_number(number).ok_or_else(|| {
                wrong(format!("ports[{i}].port"), format!("{number} is not in 1..65535"))
            })?),
        };
        ports.push(SlicePort { protocol, name: port.name.unwrap_or_default(), number });
    }
    let mut odd_addresses = Vec::new();
    let mut endpoints = Vec::with_capacity(from.endpoints.len());
    for endpoint in from.endpoints {
        let condition = match endpoint.conditions.unwrap_or_default() {
            c if c.ready != Some(false) => Condition::Ready,
            c if c.serving == Some(true) && c.terminating == Some(true) => Condition::Draining,
            _ => Condition::NotReady,
        };
        let mut addresses = Vec::with_capacity(endpoint.addresses.len());
        for address in endpoint.addresses {
            match address.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => odd_addresses.push(address),
            }
        }
        let hints = endpoint.hints.map(hints).filter(|hints| *hints != Hints::default());
        endpoints.push(SliceEndpoint { condition, addresses, hints: hints.map(Box::new) });
    }
    Ok(Object::EndpointSlice(Arc::new(EndpointSlice {
        service,
        ports,
        is_without_ports,
        endpoints,
        odd_addresses,
    })))
}

fn hints(from: discovery::EndpointHints) -> Hints {
    let zones = from.for_zones.unwrap_or_default();
    let nodes = from.for_nodes.unwrap_or_default();
    Hints {
        zones: zones.into_iter().map(|zone| zone.name).collect(),
        nodes: nodes.into_iter().map(|node| node.name).collect(),
    }
}

/// Reads a Secret; of the types that other programs own nothing but a key pair is kept.
pub fn secret(from: core::Secret) -> Result<Object, WrongField> {
    let (data, text) = (from.data.unwrap_or_default(), from.string_data.unwrap_or_default());
    // stringData is written over data by the API server, so it wins here too.
    let field = |name: &str| {
        let plain = text.get(name).map(|value| value.as_bytes());
        plain.or_else(|| data.get(name).map(|value| value.0.as_slice()))
    };
    let offer = Offer::of(field("tls.crt"), field("tls.key"));
    let mut fields = BTreeMap::new();
    if from.type_.as_deref().is_none_or(|kind| !is_of_others(kind)) {
        let names: BTreeSet<&String> = data.keys().chain(text.keys()).collect();
        let others =
            names.into_iter().filter(|name| !matches!(name.as_str(), "tls.crt" | "tls.key"));
        fields.extend(others.filter_map(|name| Some((name.clone(), field(name)?.to_vec()))));
    }
    Ok(Object::Secret(Secret { offer, fields: Arc::new(Fields::new(fields)) }))
}

/// Types of Secrets that no annotation names; some are large, and there are many of them.
fn is_of_others(kind: &str) -> bool {
    kind.starts_with("helm.sh/")
        || kind.starts_with("bootstrap.kubernetes.io/")
        || kind.starts_with("kubernetes.io/service-account")
        || kind.starts_with("kubernetes.io/dockerc")
}

/// Reads a ConfigMap; binary data is left out.
pub fn config_map(from: core::ConfigMap) -> Result<Object, WrongField> {
    Ok(Object::ConfigMap(Arc::new(ConfigMap { data: from.data.unwrap_or_default() })))
}
