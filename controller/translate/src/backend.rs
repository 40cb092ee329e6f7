//! A Service's port to endpoints.
//!
//! Source:  ingress-nginx's controller. Slices belong to a Service by their label alone; the reference also
//!          wants their names to begin with the Service's, so it ignores hand-made ones.

mod external_name;
mod nearness;
pub mod room;
pub mod size;
pub mod spec;
pub mod stream;
#[cfg(test)]
mod tests;

use crate::Options;
use crate::claim::backend_ref::BackendRef;
use nearness::Near;
use oxigress_core::balancer::destinations::Denial;
use oxigress_core::model::{Endpoint, EndpointSet, Invalid, MAX_ENDPOINTS};
use oxigress_objects::ingress;
use oxigress_objects::service::external_name::{DnsName, ExternalName};
use oxigress_objects::service::{
    Condition, EndpointSlice, Nearness, Protocol, Service, ServicePort, TargetPort,
};
use oxigress_objects::verdict::{Note, Severity};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

/// How many ports of a Service the remedy names where another one is asked for.
const MAX_NAMED_PORTS: usize = 10;
/// How many notes on slices and addresses one backend gives.
const MAX_OBJECT_NOTES: usize = 20;
/// How many addresses with their ports are looked at for one backend, those that stand twice among them.
const MAX_LOOKED_AT: usize = 4 * MAX_ENDPOINTS;

/// What becomes of one backend.
#[derive(Debug, Default)]
pub struct Resolved {
    /// Its endpoints; none of them: 503.
    pub endpoints: EndpointSet,
    /// Why it has none, for those who lead to it.
    pub lack: Option<Lack>,
    /// What else there is to say to those who lead to it.
    pub remark: Option<Note>,
    /// What there is to say about Services and EndpointSlices.
    pub object_notes: Vec<(ObjectRef, Note)>,
    /// The DNS name its endpoints come from.
    pub external_name: Option<DnsName>,
}

/// Why a backend has no endpoints.
#[derive(Debug)]
pub struct Lack {
    severity: Severity,
    why: String,
    remedy: String,
    /// The object that has to come.
    cause: Option<ObjectRef>,
}

impl Lack {
    fn new(severity: Severity, why: String, remedy: String) -> Lack {
        Lack { severity, why, remedy, cause: None }
    }

    /// The backend is not read, since those of the namespace have too many endpoints together.
    pub fn of_room(payer: &str) -> Lack {
        let why = format!(
            "the backends of namespace {payer} have more than {} endpoints together",
            room::OF_NAMESPACE
        );
        let remedy = "lead to fewer ports of its Services, or to Services with fewer endpoints";
        Lack::new(Severity::Rejected, why, remedy.into())
    }

    fn of_service(key: &Key) -> Lack {
        let why = format!("Service {key} does not exist");
        let cause = Some(ObjectRef::new(Kind::Service, key.clone()));
        let remedy = "create it or name another".into();
        Lack { severity: Severity::Rejected, why, remedy, cause }
    }

    /// In words, with what follows from it.
    pub fn note(&self, what_follows: &str) -> Note {
        let message = format!("{}, so {what_follows}: {}", self.why, self.remedy);
        Note { severity: self.severity, cause: self.cause.clone(), ..Note::warning(message) }
    }
}

/// What for a Service's port is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// By requests. With `service_upstream` the Service's own address stands for its endpoints.
    Http {
        /// Whether service-upstream asks for the Service's own address.
        service_upstream: bool,
    },
    /// By TCP or UDP sessions.
    Stream(Protocol),
}

impl Usage {
    fn protocol(self) -> Protocol {
        match self {
            Usage::Http { .. } => Protocol::Tcp,
            Usage::Stream(protocol) => protocol,
        }
    }
}

/// The endpoints of a Service's port as they are now; with `service_upstream` the Service's own address
/// stands for them.
pub fn resolve(world: &World, options: &Options, to: &BackendRef, usage: Usage) -> Resolved {
    let service_upstream = usage == Usage::Http { service_upstream: true };
    let mut resolved = Resolved::default();
    let key = &to.service;
    let (service, port) = match find(world, options, to, usage, &mut resolved) {
        Ok(Found::Port(service, port)) => (service, port),
        Ok(Found::External(endpoints)) => {
            resolved.endpoints = endpoints;
            return resolved;
        }
        Err(lack) => {
            resolved.lack = Some(lack);
            return resolved;
        }
    };
    let endpoints = match service.cluster_ip {
        Some(address) if service_upstream => {
            own_address(options, port, key, address, &mut resolved)
        }
        _ => {
            if service_upstream {
                resolved.remark = Some(Note::warning(format!(
                    "service-upstream: Service {key} has no cluster IP: its endpoints are used"
                )));
            }
            let mut endpoints = Endpoints::default();
            for (key, slice) in world.slices(key) {
                collect(options, port, key, slice, &mut endpoints, &mut resolved);
            }
            endpoints
        }
    };
    let lack = |severity, why, remedy: &str| Lack::new(severity, why, remedy.into());
    resolved.lack = match endpoints.finish(service.prefers) {
        Ok(set) if set.as_slice().is_empty() => {
            let why = format!("Service {key} has no ready endpoint for port {}", to.port);
            Some(lack(Severity::Warning, why, "check its selector and its pods"))
        }
        Ok(set) => {
            resolved.endpoints = set;
            None
        }
        Err(refused) => {
            let why = format!("Service {key} port {}: {refused}", to.port);
            Some(lack(Severity::Rejected, why, "use fewer endpoints"))
        }
    };
    resolved
}

/// Why a Service's port cannot be led to, whatever its endpoints: the Service or the port does not exist.
pub fn missing(world: &World, options: &Options, to: &BackendRef, usage: Usage) -> Option<Lack> {
    find(world, options, to, usage, &mut Resolved::default()).err()
}

/// Where a Service's port leads.
enum Found<'w> {
    /// To the endpoints of a Service.
    Port(&'w Service, &'w ServicePort),
    /// To what an ExternalName stands for.
    External(EndpointSet),
}

fn find<'w>(
    world: &'w World,
    options: &Options,
    to: &BackendRef,
    usage: Usage,
    resolved: &mut Resolved,
) -> Result<Found<'w>, Lack> {
    let key = &to.service;
    let service = world.services.get(key).ok_or_else(|| Lack::of_service(key))?;
    if let Some(external) = &service.external_name {
        let found = external_name::resolve(world, options, to, usage, service, external, resolved);
        return found.map(Found::External);
    }
    let port = find_port(service, &to.port, usage).ok_or_else(|| {
        let protocol = usage.protocol();
        let ports = service.ports.iter().filter(|port| port.protocol == protocol);
        let mut named: Vec<_> = ports.clone().take(MAX_NAMED_PORTS).map(describe).collect();
        let more = ports.count() - named.len();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        let why = format!("Service {key} has no {protocol} port {}", to.port);
        Lack::new(Severity::Rejected, why, format!("use one of [{}]", named.join(", ")))
    })?;
    Ok(Found::Port(service, port))
}

/// The Service's own address, as the only endpoint.
fn own_address(
    options: &Options,
    port: &ServicePort,
    key: &Key,
    address: IpAddr,
    resolved: &mut Resolved,
) -> Endpoints {
    let mut endpoints = Endpoints::default();
    let number = NonZeroU16::new(port.number).into_iter().collect();
    let denied = endpoints.add(options, &[address], &number, false, Near::default());
    let service = || ObjectRef::new(Kind::Service, key.clone());
    resolved.name_denied(denied, service, "spec.clusterIP");
    endpoints
}

/// The server of a URL that an annotation names.
#[derive(Debug, Default)]
pub struct Server {
    /// None of them: requests that need it fail.
    pub endpoints: EndpointSet,
    /// The name that they come from.
    pub name: Option<DnsName>,
    /// What is wrong with them, without the place where they are named.
    pub notes: Vec<Note>,
}

/// The addresses of a URL's host.
pub fn resolve_url(
    world: &World,
    options: &Options,
    host: &ExternalName,
    port: NonZeroU16,
) -> Server {
    let mut server = Server::default();
    let addresses = match host {
        ExternalName::Address(address) => vec![*address],
        ExternalName::Odd(..) => Vec::new(),
        ExternalName::Name(name) => {
            server.name = Some(name.clone());
            let answer = world.answer_for(name);
            if let Some(failure) = answer.and_then(|answer| answer.failure.as_ref()) {
                let what = "cannot be looked up";
                server.notes.push(Note::warning(format!("{name} {what} ({failure}): correct it")));
            }
            answer.map(|answer| answer.addresses.clone()).unwrap_or_default()
        }
    };
    let mut endpoints = Endpoints::default();
    let denied =
        endpoints.add(options, &addresses, &BTreeSet::from([port]), false, Near::default());
    for (address, denial) in denied {
        server
            .notes
            .push(Note::rejected(format!("no connection leads to {address}, which {denial}")));
    }
    server.endpoints = endpoints.finish(None).unwrap_or_default();
    server
}

/// The port of a Service that an Ingress names.
pub fn port_of_ingress<'s>(service: &'s Service, port: &ingress::Port) -> Option<&'s ServicePort> {
    find_port(service, port, Usage::Http { service_upstream: false })
}

fn find_port<'s>(
    service: &'s Service,
    asked: &ingress::Port,
    usage: Usage,
) -> Option<&'s ServicePort> {
    let text = asked.to_string();
    // A name of digits is a number, too, as the reference reads it.
    let number = written(&text);
    let is_number = |other: u16| number == Some(other);
    let mut ports = service.ports.iter().filter(|port| port.protocol == usage.protocol());
    ports.find(|port| {
        // An Ingress may also name what is behind the Service; the ConfigMaps of TCP and UDP may not.
        port.name == text
            || is_number(port.number)
            || match &port.target {
                _ if usage == Usage::Stream(port.protocol) => false,
                TargetPort::Number(number) => is_number(*number),
                TargetPort::Name(name) => *name == text,
            }
    })
}

/// A number as it is written without sign and without zeros before it.
fn written(text: &str) -> Option<u16> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits && (text == "0" || !text.starts_with('0')))
}

fn describe(port: &ServicePort) -> String {
    match port.name.as_str() {
        "" => port.number.to_string(),
        name => format!("{} ({name})", port.number),
    }
}

fn collect(
    options: &Options,
    port: &ServicePort,
    key: &Key,
    slice: &EndpointSlice,
    endpoints: &mut Endpoints,
    resolved: &mut Resolved,
) {
    let object = || ObjectRef::new(Kind::EndpointSlice, key.clone());
    if let Some(odd) = slice.odd_addresses.first() {
        let note =
            || Note::warning(format!("endpoints: address {odd:?} is no IP address: left out"));
        resolved.tell(object, note);
    }
    let numbers = slice_ports(port, slice);
    let mut denied = DeniedEndpoints::new();
    for endpoint in &slice.endpoints {
        if endpoints.are_too_many() {
            break;
        }
        let draining = match endpoint.condition {
            Condition::Ready => false,
            Condition::Draining => true,
            Condition::NotReady => continue,
        };
        let near = Near::of(options, endpoint.hints.as_deref());
        denied.append(&mut endpoints.add(options, &endpoint.addresses, &numbers, draining, near));
    }
    resolved.name_denied(denied, object, "endpoints");
}

/// Addresses that are no endpoints, and why.
type DeniedEndpoints = BTreeMap<SocketAddr, Denial>;

/// Endpoints on their way into a set, in the order in which they were seen.
#[derive(Default)]
struct Endpoints {
    all: Vec<(Endpoint, Near)>,
    seen: BTreeMap<(IpAddr, NonZeroU16), usize>,
    looked_at: usize,
}

impl Endpoints {
    /// Answers those that may be no endpoints. One that is ready in a slice and draining in
    /// another is ready.
    fn add(
        &mut self,
        options: &Options,
        addresses: &[IpAddr],
        numbers: &BTreeSet<NonZeroU16>,
        draining: bool,
        near: Near,
    ) -> DeniedEndpoints {
        let mut denied = DeniedEndpoints::new();
        for address in addresses {
            // An IPv4 address in IPv6 clothes is the same endpoint.
            let address = address.to_canonical();
            for &number in numbers {
                self.looked_at += 1;
                if self.are_too_many() {
                    return denied;
                }
                if let Some(denial) = options.denial(address, number.get()) {
                    denied.insert(SocketAddr::new(address, number.get()), denial);
                    continue;
                }
                let at = *self.seen.entry((address, number)).or_insert(self.all.len());
                match self.all.get_mut(at) {
                    Some((known, place)) => {
                        known.draining &= draining;
                        *place = place.or(near);
                    }
                    None => {
                        let new = Endpoint { draining, ..Endpoint::new(address, number) };
                        self.all.push((new, near));
                    }
                }
            }
        }
        denied
    }

    /// Whether no more are looked at, and the set is refused: of fewer those that are near may be few enough.
    fn are_too_many(&self) -> bool {
        self.looked_at > MAX_LOOKED_AT
    }

    /// The endpoints that are used: the near ones where nearness is preferred, else all.
    fn finish(self, prefers: Option<Nearness>) -> Result<EndpointSet, Invalid> {
        if self.are_too_many() {
            return Err(Invalid::new(format!(
                "its EndpointSlices have more than {MAX_LOOKED_AT} addresses with their ports"
            )));
        }
        EndpointSet::new(nearness::choose(self.all, prefers))
    }
}

impl Resolved {
    fn name_denied(
        &mut self,
        denied: DeniedEndpoints,
        object: impl Fn() -> ObjectRef,
        field: &str,
    ) {
        for (address, denial) in denied {
            let text = || format!("{field}: {address} is left out, since it {denial}");
            self.tell(&object, || Note::rejected(text()));
        }
    }

    /// Notes something on a Service or an EndpointSlice, while that is not too much.
    fn tell(&mut self, object: impl Fn() -> ObjectRef, note: impl FnOnce() -> Note) {
        match self.object_notes.len() {
            ..MAX_OBJECT_NOTES => self.object_notes.push((object(), note())),
            MAX_OBJECT_NOTES => {
                let message = "there is more of this kind, which is not told: correct this first";
                self.object_notes.push((object(), Note::warning(message)));
            }
            _ => {}
        }
    }
}

/// The ports of a slice that a Service's port means.
fn slice_ports(port: &ServicePort, slice: &EndpointSlice) -> BTreeSet<NonZeroU16> {
    let target = match port.target {
        TargetPort::Number(number) => NonZeroU16::new(number),
        TargetPort::Name(_) => None,
    };
    if slice.is_without_ports {
        return target.into_iter().collect();
    }
    // A Service's only port may be nameless; then so are the slices', and a name says nothing.
    let is_meant = |name: &str| port.name.is_empty() || port.name == name;
    let meant: BTreeSet<_> = slice
        .ports
        .iter()
        .filter(|candidate| candidate.protocol == port.protocol && is_meant(&candidate.name))
        .filter_map(|candidate| candidate.number.and_then(NonZeroU16::new))
        .collect();
    match meant.is_empty() && !slice.ports.is_empty() {
        true => target.into_iter().collect(),
        false => meant,
    }
}

impl Options {
    /// Why an address and port is never an endpoint; `None`: it may be one.
    pub fn denial(&self, address: IpAddr, port: u16) -> Option<Denial> {
        let is_local = |address| self.local_addresses.contains(&address);
        self.destinations.denial(SocketAddr::new(address, port), is_local)
    }
}
