//! What manifests leave to the cluster and the report therefore assumes: classes, endpoints, and objects that other
//! programs make, such as the Secrets of cert-manager.

use oxigress_core::text::count;
use oxigress_objects::ingress::{Ingress, IngressClass, Target};
use oxigress_objects::service::{
    Condition, EndpointSlice, Protocol, Service, ServicePort, SliceEndpoint, SlicePort, TargetPort,
};
use oxigress_objects::{Changed, Key, Kind, Object, ObjectRef, Seen, World};
use oxigress_translate::Options;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Controllers' own classes, as their installation names them: an Ingress of one is not ours.
const OTHERS: [&str; 22] = [
    "alb",
    "ambassador",
    "apisix",
    "application-gateway",
    "azure-application-gateway",
    "caddy",
    "cilium",
    "citrix",
    "contour",
    "f5",
    "gce",
    "gce-internal",
    "haproxy",
    "istio",
    "kong",
    "ngrok",
    "openshift-default",
    "skipper",
    "tailscale",
    "traefik",
    "tyk",
    "webapprouting.kubernetes.azure.com",
];
/// Addresses for documentation (RFC 5737), which stand for a Service's pods and for itself.
const POD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const CLUSTER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// What `check` assumed about the cluster, since the manifests do not say.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    /// The objects are of manifests, so what they name may be elsewhere.
    pub is_of_manifests: bool,
    /// IngressClasses that nothing defines: they are taken for ours.
    pub classes: BTreeSet<String>,
    /// Ingresses without a class: they are taken for those of the default class.
    pub without_class: usize,
    /// Objects that the manifests refer to and do not have.
    pub objects: BTreeSet<ObjectRef>,
    /// Gateways that routes name and the manifests do not have: whose they are is not known, and nothing is assumed.
    pub without_parent: BTreeSet<ObjectRef>,
}

/// Adds the IngressClasses and endpoints that a cluster would have, and answers what was added.
pub fn complete(world: &mut World, options: &mut Options) -> Assumed {
    let mut assumed = Assumed { is_of_manifests: true, ..Assumed::default() };
    let mut seen = Vec::new();
    let annotated =
        |ingress: &Ingress| ingress.annotations.contains_key("kubernetes.io/ingress.class");
    for ingress in world.ingresses.values() {
        match &ingress.class {
            Some(name) if world.ingress_classes.contains_key(&Key::new("", name)) => {}
            Some(name) if OTHERS.contains(&name.as_str()) => {
                seen.push(class(name, "another controller".into()));
            }
            Some(name) => drop(assumed.classes.insert(name.clone())),
            None if annotated(ingress) || options.watch_ingress_without_class => {}
            None => assumed.without_class += 1,
        }
    }
    options.watch_ingress_without_class |= assumed.without_class > 0;
    seen.extend(assumed.classes.iter().map(|name| class(name, options.controller_class.clone())));
    let of_routes = services_of_routes(world);
    assumed.objects.extend(of_routes.keys().map(|key| ObjectRef::new(Kind::Service, key.clone())));
    for (key, service) in world.services.iter().map(|(key, is)| (key, &**is)).chain(&of_routes) {
        if let Some(slice) = endpoints_of(world, key, service) {
            let id = ObjectRef::new(Kind::EndpointSlice, key.clone());
            seen.push((id, Some(Object::EndpointSlice(Arc::new(slice)))));
            // The API server gives it one.
            let cluster_ip = service.cluster_ip.or(Some(CLUSTER_IP));
            let service = Service { cluster_ip, ..service.clone() };
            let id = ObjectRef::new(Kind::Service, key.clone());
            seen.push((id, Some(Object::Service(Arc::new(service)))));
        }
    }
    let mut changed = Changed::default();
    seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
    assumed
}

fn class(name: &str, controller: String) -> Seen {
    let id = ObjectRef::new(Kind::IngressClass, Key::new("", name));
    (id, Some(Object::IngressClass(Arc::new(IngressClass { controller }))))
}

/// The Services that routes of the Gateway API name and the input does not have, with the ports that are named. Where an
/// Ingress names one too, nothing is made up: the ports that it names may have names.
fn services_of_routes(world: &World) -> BTreeMap<Key, Service> {
    let mut all: BTreeMap<Key, Service> = BTreeMap::new();
    let of_ingresses: BTreeSet<Key> =
        world.ingresses.iter().flat_map(|(key, ingress)| services_of(key, ingress)).collect();
    for (route, object) in &world.gateway_api.routes {
        let protocol = match route.kind {
            Kind::UDPRoute => Protocol::Udp,
            _ => Protocol::Tcp,
        };
        for reference in object.spec.rules.iter().flat_map(|rule| rule.references()) {
            let namespace = reference.namespace.as_deref().unwrap_or(&route.key.namespace);
            let key = Key::new(namespace, reference.name.as_str());
            let number = reference.port.and_then(|port| u16::try_from(port).ok());
            let (Some(number @ 1..), true) = (number, reference.is_service()) else { continue };
            if world.services.contains_key(&key) || of_ingresses.contains(&key) {
                continue;
            }
            let port = ServicePort {
                protocol,
                name: format!("{protocol}-{number}").to_lowercase(),
                number,
                target: TargetPort::Number(number),
                app_protocol: None,
            };
            let ports = &mut all.entry(key).or_default().ports;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
    }
    all
}

/// The Services that an Ingress names.
pub fn services_of(key: &Key, ingress: &Ingress) -> BTreeSet<Key> {
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths).map(|path| &path.target);
    let names = paths.chain(&ingress.default_backend).filter_map(|target| match target {
        Target::Service { name, .. } => Some(Key::new(&key.namespace, name)),
        Target::Resource(_) => None,
    });
    names.collect()
}

/// One ready endpoint for a Service of which no EndpointSlice is known: pods make those.
fn endpoints_of(world: &World, key: &Key, service: &Service) -> Option<EndpointSlice> {
    if service.external_name.is_some() || world.slices(key).next().is_some() {
        return None;
    }
    let number = |target: &TargetPort, number| match target {
        TargetPort::Number(target) => *target,
        TargetPort::Name(_) => number,
    };
    let ports = service.ports.iter().map(|port| SlicePort {
        protocol: port.protocol,
        name: port.name.clone(),
        number: Some(number(&port.target, port.number)),
    });
    Some(EndpointSlice {
        service: Some(key.name.to_string()),
        ports: ports.collect(),
        is_without_ports: false,
        endpoints: vec![SliceEndpoint {
            condition: Condition::Ready,
            addresses: vec![POD],
            hints: None,
        }],
        odd_addresses: Vec::new(),
    })
}

impl Assumed {
    /// One sentence for each kind of assumption.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        if !self.classes.is_empty() {
            let names: Vec<_> = self.classes.iter().map(String::as_str).collect();
            let (noun, verb, object) = match names.len() {
                1 => ("IngressClass", "is", "object"),
                _ => ("IngressClasses", "are", "objects"),
            };
            sentences.push(format!(
                "{noun} {} {verb} assumed to belong to this controller: the input has no such {object}",
                some_of(&names)
            ));
        }
        if self.without_class > 0 {
            sentences.push(format!(
                "{} without a class: the cluster's default class is this controller's",
                count(self.without_class, "Ingress")
            ));
        }
        let mut by_kind: BTreeMap<Kind, Vec<String>> = BTreeMap::new();
        for object in &self.objects {
            by_kind.entry(object.kind).or_default().push(object.key.to_string());
        }
        sentences.extend(by_kind.into_iter().map(|(kind, names)| {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let (verb, them) = if names.len() == 1 { ("is", "it") } else { ("are", "them") };
            let counted = count(names.len(), &kind.to_string());
            format!(
                "{counted} {verb} assumed to exist, the input does not define {them}: {}",
                some_of(&names)
            )
        }));
        if !self.without_parent.is_empty() {
            let names: Vec<_> = self.without_parent.iter().map(ToString::to_string).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            sentences.push(format!(
                "routes that name {} are other controllers': the input does not define it: check both together",
                some_of(&names)
            ));
        }
        sentences
    }
}

/// The first three, and how many more there are.
pub fn some_of(names: &[&str]) -> String {
    const NAMED: usize = 3;
    let named = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{named} and {more} more"),
        _ => named,
    }
}
