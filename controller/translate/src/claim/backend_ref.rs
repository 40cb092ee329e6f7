//! A Service's port, as Ingresses, annotations and flags name it.

use oxigress_core::model::BackendId;
use oxigress_objects::Key;
use oxigress_objects::ingress::Port;
use oxigress_objects::service::{Protocol, Service};

/// A port of a Service, as an Ingress names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BackendRef {
    /// The Service that has the port.
    pub service: Key,
    /// The port as the Ingress writes it.
    pub port: Port,
    /// The id of the backend for the Service and the port.
    pub backend: BackendId,
}

/// The first port of a Service, which `--default-backend-service` means.
pub fn first_port(service: &Service) -> Option<Port> {
    let first = service.ports.iter().find(|port| port.protocol == Protocol::Tcp);
    first.map(|port| Port::Number(port.number))
}
