//! Service and EndpointSlice as translate reads them.

pub mod external_name;

use crate::Key;
use crate::service::external_name::{DnsName, ExternalName};
use std::fmt;
use std::net::IpAddr;

/// A Service as far as its ports and addresses are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// spec.type is ExternalName; then the name it stands for.
    pub external_name: Option<ExternalName>,
    /// spec.clusterIP; a headless Service has none.
    pub cluster_ip: Option<IpAddr>,
    /// The field spec.ports of the object.
    pub ports: Vec<ServicePort>,
    /// Which of its endpoints it wants to be used first.
    pub prefers: Option<Nearness>,
}

/// What spec.trafficDistribution, or the annotation that came before it, asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearness {
    /// Endpoints meant for the same zone.
    Zone,
    /// Those meant for the same node; if there are none, for the same zone.
    Node,
}

impl Service {
    /// The DNS name that it stands for.
    pub fn dns_name(&self) -> Option<&DnsName> {
        match self.external_name.as_ref()? {
            ExternalName::Name(name) => Some(name),
            ExternalName::Address(_) | ExternalName::Odd(..) => None,
        }
    }
}

impl Nearness {
    /// `distribution` is spec.trafficDistribution, `mode` the annotation service.kubernetes.io/topology-mode.
    pub fn parse(distribution: Option<&str>, mode: Option<&str>) -> Option<Self> {
        match distribution {
            Some("PreferSameNode") => Some(Nearness::Node),
            // The first is the older name of the second.
            Some("PreferClose" | "PreferSameZone") => Some(Nearness::Zone),
            _ => mode.filter(|mode| mode.eq_ignore_ascii_case("auto")).map(|_| Nearness::Zone),
        }
    }
}

/// What a port speaks. SCTP ports are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "said by the names")]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// As Kubernetes writes it; nothing written means TCP.
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP" | "") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        })
    }
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The protocol; TCP if none is written.
    pub protocol: Protocol,
    /// Empty if it has none.
    pub name: String,
    /// What clients inside the cluster connect to.
    pub number: u16,
    /// Where it leads: like [`Self::number`] if not written.
    pub target: TargetPort,
    /// appProtocol, which routes of the Gateway API go by.
    pub app_protocol: Option<String>,
}

/// The field targetPort: a number, or the name of a container's port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "said by the names")]
pub enum TargetPort {
    Number(u16),
    Name(String),
}

/// Addresses of one Service, or a part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Value of the label kubernetes.io/service-name.
    pub service: Option<String>,
    /// The TCP and UDP ports; others are not read.
    pub ports: Vec<SlicePort>,
    /// The slice names no port at all, of whatever protocol.
    pub is_without_ports: bool,
    /// In the order of the object.
    pub endpoints: Vec<SliceEndpoint>,
    /// Addresses that are no IP addresses, as written.
    pub odd_addresses: Vec<String>,
}

impl EndpointSlice {
    /// The Service it belongs to; `namespace` is its own.
    pub fn service_of(&self, namespace: &str) -> Option<Key> {
        self.service.as_ref().map(|name| Key::new(namespace, name))
    }
}

/// One port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The protocol; TCP if none is written.
    pub protocol: Protocol,
    /// Empty if it has none.
    pub name: String,
    /// None: all ports, which cannot be connected to.
    pub number: Option<u16>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Whether the endpoint gets requests.
    pub condition: Condition,
    /// The IP addresses of the endpoint; Kubernetes writes one.
    pub addresses: Vec<IpAddr>,
    /// For whom it is meant; most have none.
    pub hints: Option<Box<Hints>>,
}

/// hints: names of zones and nodes whose requests an endpoint should get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The names in hints.forZones.
    pub zones: Vec<String>,
    /// The names in hints.forNodes.
    pub nodes: Vec<String>,
}

/// The conditions of an endpoint in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It gets requests. Nothing said means ready.
    Ready,
    /// It is terminating and still serves: it gets requests only while no other does.
    Draining,
    /// The endpoint gets no requests.
    NotReady,
}
