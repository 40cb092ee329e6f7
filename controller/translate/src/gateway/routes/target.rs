//! Who serves the requests of a rule, who may be referred to, and whose objects are served.

use crate::Options;
use crate::claim::backend_ref::BackendRef;
use kube::core::SelectorExt;
use oxigress_core::model::BackendId;
use oxigress_core::model::policy::{Policies, Protocol, Proxy, UpstreamTls};
use oxigress_objects::gateway::{self, GatewayObjects, HttpBackendRef};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::ingress::Port;
use oxigress_objects::service::{self, Service, ServicePort};
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

/// What a reference means.
pub struct Resolved {
    /// The Service's port.
    pub backend_ref: BackendRef,
    /// The same as the Service has it.
    pub port: ServicePort,
}

/// The Service's port that a reference means, or why it is none. Adds the Service to those that were looked at.
pub fn resolve(
    world: &World,
    route: &ObjectRef,
    reference: &HttpBackendRef,
    looked_at: &mut BTreeMap<Key, Option<Arc<Service>>>,
) -> Result<Resolved, Condition> {
    let refuse = |reason, message: String| Err(Condition::no("ResolvedRefs", reason, message));
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let name = &reference.name;
    if !reference.is_service() {
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
        let absent = ObjectRef::new(Kind::Service, service.clone());
        let missing = refuse("BackendNotFound", format!("Service {service} does not exist"));
        return missing.map_err(|why| why.because_of(absent));
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
    let of =
        if route.kind.is_of_requests() { "route" } else { &*wanted.to_string().to_lowercase() };
    // Not the one of Ingresses, whose annotations say how it balances.
    match BackendId::parse(format!("{service}/{number}//{of}")) {
        Ok(backend) => {
            let backend_ref = BackendRef { service, port: Port::Number(number), backend };
            Ok(Resolved { backend_ref, port: port.clone() })
        }
        Err(why) => refuse("BackendNotFound", why.to_string()),
    }
}

/// What the endpoints of a Service's port are spoken to with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ToEndpoints {
    /// What the port says itself.
    #[default]
    Plain,
    /// TLS.
    Tls(Arc<UpstreamTls>),
    /// Nothing: the policy cannot be honoured.
    Refused,
}

/// What endpoints are spoken to with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// The protocol; `None`: HTTP/1.1.
    protocol: Option<Protocol>,
    /// How TLS is spoken.
    tls: Option<Arc<UpstreamTls>>,
}

impl Spoken {
    /// Those of a Service's port, or why they cannot be. `None`: nothing is said to them.
    pub fn of(
        port: &ServicePort,
        kind: Kind,
        service: &Key,
        tls: ToEndpoints,
    ) -> Result<Option<Self>, Condition> {
        let refuse = |what: &str| {
            let message = format!("appProtocol of Service {service} {what}");
            Err(Condition::no("ResolvedRefs", "UnsupportedProtocol", message))
        };
        let tls = match tls {
            ToEndpoints::Plain => None,
            ToEndpoints::Tls(tls) => Some(tls),
            ToEndpoints::Refused => return Ok(None),
        };
        let is_grpc = match (port.app_protocol.as_deref(), kind) {
            (Some("https" | "kubernetes.io/wss"), _) if tls.is_none() => {
                return refuse("needs a BackendTLSPolicy");
            }
            (Some("kubernetes.io/ws"), Kind::GRPCRoute) => {
                return refuse("is WebSocket, which is no gRPC");
            }
            (app, kind) => app == Some("kubernetes.io/h2c") || kind == Kind::GRPCRoute,
        };
        let protocol = match (is_grpc, &tls) {
            (false, None) => None,
            (false, Some(_)) => Some(Protocol::Https),
            (true, None) => Some(Protocol::Grpc),
            (true, Some(_)) => Some(Protocol::Grpcs),
        };
        Ok(Some(Spoken { protocol, tls }))
    }

    /// Those of a Service's port to which sessions go, whatever they carry. `None`: nothing is said to them.
    pub fn of_sessions(tls: ToEndpoints) -> Option<Self> {
        let tls = match tls {
            ToEndpoints::Plain => None,
            ToEndpoints::Tls(tls) => Some(tls),
            ToEndpoints::Refused => return None,
        };
        Some(Spoken { protocol: None, tls })
    }

    /// Sets it.
    pub fn set(&self, policies: &mut Policies) {
        let proxy = policies.proxy.get_or_insert_with(Proxy::default);
        proxy.protocol = self.protocol;
        proxy.tls = self.tls.as_deref().cloned();
    }
}

/// What a rule says about its requests, whoever serves them.
pub struct Common {
    policies: Arc<Policies>,
    /// The same for endpoints that are spoken to otherwise.
    spoken: Option<(Spoken, Arc<Policies>)>,
}

impl Common {
    /// That of a rule.
    pub fn of(policies: Policies) -> Self {
        Common { policies: Arc::new(policies), spoken: None }
    }

    /// What is said to endpoints that are spoken to with this.
    pub fn speaking(&mut self, spoken: Spoken) -> Arc<Policies> {
        if spoken == Spoken::default() {
            return self.policies.clone();
        }
        if let Some((_, known)) = self.spoken.as_ref().filter(|(known, _)| *known == spoken) {
            return known.clone();
        }
        let mut policies = Policies::clone(&self.policies);
        spoken.set(&mut policies);
        let policies = Arc::new(policies);
        self.spoken = Some((spoken, policies.clone()));
        policies
    }
}

/// What the ports of Services speak to which routes of a kind lead.
pub fn protocol_of(kind: Kind) -> service::Protocol {
    match kind {
        Kind::UDPRoute => service::Protocol::Udp,
        _ => service::Protocol::Tcp,
    }
}
