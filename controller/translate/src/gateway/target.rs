//! Who serves the requests of a rule, who may be referred to, and whose objects are served.

use crate::Options;
use crate::backend_ref::BackendRef;
use kube::core::SelectorExt;
use oxigress_core::model::BackendId;
use oxigress_core::model::policy::{Policies, Protocol, Proxy};
use oxigress_objects::gateway::{self, GatewayObjects, HttpBackendRef};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::ingress::Port;
use oxigress_objects::service::{self, Service};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether the operator lets objects of a namespace be served.
pub fn is_watched(world: &World, options: &Options, namespace: &str) -> bool {
    if options.watch_namespace.as_ref().is_some_and(|watched| watched != namespace) {
        return false;
    }
    options.watch_namespace_selector.as_ref().is_none_or(|selector| {
        let known = world.namespaces.get(&Key::new("", namespace));
        known.is_some_and(|known| selector.matches(&known.labels))
    })
}

/// Whether an object of one kind and namespace may refer to another one: within its namespace, or by a ReferenceGrant there.
pub fn is_granted(
    objects: &GatewayObjects,
    (from_group, from_kind, from_namespace): (&str, Kind, &str),
    (to_group, to_kind): (&str, &str),
    to: &Key,
) -> bool {
    if *from_namespace == *to.namespace {
        return true;
    }
    let from = [from_group, &*from_kind.to_string(), from_namespace];
    objects.allowed.has(from, [to_group, to_kind], to)
}

/// The Service's port that a reference means, or why it is none. Adds the Service to those that were looked at.
pub fn resolve(
    world: &World,
    route: &ObjectRef,
    reference: &HttpBackendRef,
    looked_at: &mut BTreeMap<Key, Option<Arc<Service>>>,
) -> Result<(BackendRef, Option<Protocol>), Condition> {
    let refuse = |reason, message: String| Err(Condition::no("ResolvedRefs", reason, message));
    let group = reference.group.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let name = &reference.name;
    if (group, kind) != ("", "Service") {
        return refuse("InvalidKind", format!("backendRefs: {kind} {name} is no Service"));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&route.key.namespace);
    let service = Key::new(namespace, name.as_str());
    let from = (gateway::GROUP, route.kind, &*route.key.namespace);
    if !is_granted(&world.gateway_api, from, ("", "Service"), &service) {
        let message = format!(
            "backendRefs: no ReferenceGrant in namespace {namespace} allows Service {service}"
        );
        return refuse("RefNotPermitted", message);
    }
    let known = world.services.get(&service);
    looked_at.insert(service.clone(), known.cloned());
    let Some(known) = known else {
        return refuse("BackendNotFound", format!("Service {service} does not exist"));
    };
    let number = reference.port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    let Some(number) = number else {
        return refuse("BackendNotFound", format!("backendRefs: {service} has no port: add one"));
    };
    let wanted = protocol_of(route.kind);
    let mut ports = known.ports.iter().filter(|port| port.number == number);
    let port = ports.find(|port| port.protocol == wanted);
    let Some(port) = port.filter(|_| known.external_name.is_none()) else {
        if known.external_name.is_some() {
            let message = format!("Service {service} is an ExternalName, which routes may not use");
            return refuse("UnsupportedProtocol", message);
        }
        let message = format!("Service {service} has no {wanted} port {number}");
        return refuse("BackendNotFound", message);
    };
    let protocol = spoken(port.app_protocol.as_deref(), route.kind, &service)?;
    let of =
        if route.kind.is_of_requests() { "route" } else { &*wanted.to_string().to_lowercase() };
    // Not the one of Ingresses, whose annotations say how it balances.
    match BackendId::parse(format!("{service}/{number}//{of}")) {
        Ok(backend) => Ok((BackendRef { service, port: Port::Number(number), backend }, protocol)),
        Err(why) => refuse("BackendNotFound", why.to_string()),
    }
}

/// What endpoints of a Service's port are spoken to with, or why they cannot be.
fn spoken(said: Option<&str>, kind: Kind, service: &Key) -> Result<Option<Protocol>, Condition> {
    let refuse = |what: &str| {
        let message = format!("appProtocol of Service {service} {what}");
        Err(Condition::no("ResolvedRefs", "UnsupportedProtocol", message))
    };
    match (said, kind) {
        _ if !kind.is_of_requests() => Ok(None),
        (Some("https" | "kubernetes.io/wss"), _) => refuse("needs a BackendTLSPolicy"),
        (Some("kubernetes.io/ws"), Kind::GRPCRoute) => refuse("is WebSocket, which is no gRPC"),
        (Some("kubernetes.io/h2c"), _) | (_, Kind::GRPCRoute) => Ok(Some(Protocol::Grpc)),
        _ => Ok(None),
    }
}

/// What the ports of Services speak to which routes of a kind lead.
pub fn protocol_of(kind: Kind) -> service::Protocol {
    match kind {
        Kind::UDPRoute => service::Protocol::Udp,
        _ => service::Protocol::Tcp,
    }
}

/// Sets what an endpoint is spoken to with.
pub fn speak(policies: &mut Policies, protocol: Option<Protocol>) {
    if protocol.is_some() {
        policies.proxy.get_or_insert_with(Proxy::default).protocol = protocol;
    }
}
