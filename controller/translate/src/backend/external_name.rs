//! A Service that stands for a name or an address outside of the cluster.
//!
//! Source:  ingress-nginx's controller. Its [BUG] of port 0 is mended: a named targetPort says nothing where there are
//!          no pods, so the Service's own number counts.

use super::{Lack, Resolved, Usage, find_port};
use crate::Options;
use crate::claim::backend_ref::BackendRef;
use oxigress_core::model::{Endpoint, EndpointSet};
use oxigress_objects::ingress::Port;
use oxigress_objects::service::external_name::{DnsName, ExternalName};
use oxigress_objects::service::{Service, ServicePort, TargetPort};
use oxigress_objects::verdict::{Note, Severity};
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;

/// Its endpoints: an address itself, or what DNS says of a name. What else there is to say goes into `resolved`.
pub fn resolve(
    world: &World,
    options: &Options,
    backend_ref: &BackendRef,
    usage: Usage,
    service: &Service,
    external: &ExternalName,
    resolved: &mut Resolved,
) -> Result<EndpointSet, Lack> {
    let key = &backend_ref.service;
    let rejected = |why: String, remedy: &str| Err(rejected(why, remedy));
    if options.disable_svc_external_name {
        let why = format!(
            "Service {key} is of type ExternalName, and --disable-svc-external-name is given"
        );
        return rejected(why, "name a Service with endpoints");
    }
    let Some(port) = port(service, &backend_ref.port, usage) else {
        let why = format!("Service {key} has no {} port {}", usage.protocol(), backend_ref.port);
        return rejected(why, "add it to spec.ports or use its number");
    };
    let addresses = match external {
        ExternalName::Address(address) => vec![*address],
        ExternalName::Odd(text, reason) => {
            let why = format!("spec.externalName {text:?} of Service {key} {reason}");
            return rejected(why, "write a DNS name or an IP address");
        }
        ExternalName::Name(name) => match addresses_of(world, key, name, resolved)? {
            Some(addresses) => addresses,
            // Nothing is known at first. There is nothing to say about that: soon there is.
            None => return Ok(EndpointSet::default()),
        },
    };
    let all = addresses.len();
    let endpoints = without_denied(options, key, port, addresses, resolved);
    if endpoints.is_empty() && all > 0 {
        let why = format!("every address of Service {key} is one that endpoints may not have");
        return rejected(why, "name another host or port");
    }
    EndpointSet::new(endpoints).or_else(|refused| {
        rejected(
            format!("Service {key} port {}: {refused}", backend_ref.port),
            "use fewer addresses",
        )
    })
}

fn rejected(why: String, remedy: &str) -> Lack {
    Lack { severity: Severity::Rejected, why, remedy: remedy.into(), cause: None }
}

/// What DNS says of a name; `None`: it has not answered yet.
fn addresses_of(
    world: &World,
    key: &Key,
    name: &DnsName,
    resolved: &mut Resolved,
) -> Result<Option<Vec<IpAddr>>, Lack> {
    resolved.external_name = Some(name.clone());
    let Some(answer) = world.answer_for(name) else { return Ok(None) };
    let mut warn = |message: String| {
        let object = ObjectRef::new(Kind::Service, key.clone());
        resolved.object_notes.push((object, Note::warning(message)));
    };
    if answer.left_out > 0 {
        warn(format!(
            "spec.externalName: {name} has {} addresses more than the {} that are used",
            answer.left_out,
            answer.addresses.len()
        ));
    }
    match &answer.failure {
        Some(failure) if answer.addresses.is_empty() => {
            let why =
                format!("DNS has no address for {name}, externalName of Service {key} ({failure})");
            return Err(rejected(why, "correct spec.externalName or the name servers"));
        }
        Some(failure) => warn(format!(
            "spec.externalName: {name} cannot be looked up ({failure}): the last addresses stay in use"
        )),
        None => {}
    }
    Ok(Some(answer.addresses.clone()))
}

fn without_denied(
    options: &Options,
    key: &Key,
    port: NonZeroU16,
    addresses: Vec<IpAddr>,
    resolved: &mut Resolved,
) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for address in addresses {
        if let Some(denial) = options.denial(address, port.get()) {
            let denied = SocketAddr::new(address, port.get());
            let text = || format!("spec.externalName: {denied} is left out, since it {denial}");
            let service = || ObjectRef::new(Kind::Service, key.clone());
            resolved.tell(service, || Note::rejected(text()));
        } else {
            endpoints.push(Endpoint::new(address, port));
        }
    }
    endpoints
}

/// Where to connect to: the Service may list the port, and need not.
fn port(service: &Service, asked: &Port, usage: Usage) -> Option<NonZeroU16> {
    let number = match (find_port(service, asked, usage), asked) {
        (Some(ServicePort { target: TargetPort::Number(number), .. }), _) => *number,
        (Some(port), _) => port.number,
        (None, Port::Number(number)) => *number,
        (None, Port::Name(_)) => return None,
    };
    NonZeroU16::new(number)
}
