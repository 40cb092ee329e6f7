//! What is looked at, and said, of Services with very many ports, slices and addresses.

use super::*;
use oxigress_core::balancer::destinations::Destinations;
use oxigress_objects::Object;
use oxigress_objects::ingress::Port;
use oxigress_objects::service::{SliceEndpoint, SlicePort};
use std::net::Ipv4Addr;
use std::sync::Arc;

fn port(n: u16) -> ServicePort {
    ServicePort {
        protocol: Protocol::Tcp,
        name: String::new(),
        number: n,
        target: TargetPort::Number(n),
        app_protocol: None,
    }
}

fn world(ports: impl Iterator<Item = u16>, slice: EndpointSlice) -> World {
    let service = Service { ports: ports.map(port).collect(), ..Service::default() };
    let slice = EndpointSlice { service: Some("s".into()), ..slice };
    let mut world = World::default();
    for (kind, name, object) in [
        (Kind::Service, "s", Object::Service(Arc::new(service))),
        (Kind::EndpointSlice, "s-1", Object::EndpointSlice(Arc::new(slice))),
    ] {
        let id = ObjectRef::new(kind, Key::new("a", name));
        world.apply((id, Some(object)), &mut oxigress_objects::Changed::default());
    }
    world
}

fn slice(first: [u8; 2], addresses: u8, ports: u16) -> EndpointSlice {
    let [a, b] = first;
    let endpoint = |n: u8| SliceEndpoint {
        condition: Condition::Ready,
        addresses: vec![Ipv4Addr::new(a, b, 0, n).into()],
        hints: None,
    };
    let port =
        |n: u16| SlicePort { protocol: Protocol::Tcp, name: format!("p{n}"), number: Some(n) };
    EndpointSlice {
        ports: (1..=ports).map(port).collect(),
        endpoints: (1..=addresses).map(endpoint).collect(),
        ..EndpointSlice::default()
    }
}

fn resolved(world: &World, number: u16) -> Resolved {
    let backend = format!("a/s/{number}").try_into().unwrap();
    let to = BackendRef { service: Key::new("a", "s"), port: Port::Number(number), backend };
    resolve(world, &Options::default(), &to, Usage::Http { service_upstream: false })
}

#[test]
fn the_remedy_names_ten_ports_and_how_many_more_there_are() {
    let world = world(1..=5_000, EndpointSlice::default());
    let lack = resolved(&world, 9_999).lack.unwrap().note("requests get 503").message;
    assert!(lack.contains("use one of [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 4990 more]"), "{lack}");
}

/// The only port of a Service may have no name; then it has all ports of its slices.
#[test]
fn no_more_endpoints_are_looked_at_than_may_be_served() {
    let large = slice([10, 0], 250, 200);
    let mut endpoints = Endpoints::default();
    let key = Key::new("a", "s-1");
    let options = Options::default();
    collect(&options, &port(80), &key, &large, &mut endpoints, &mut Resolved::default());
    assert_eq!((endpoints.looked_at, endpoints.all.len()), (40_001, 40_000));
    let lack = resolved(&world([80].into_iter(), large), 80).lack.unwrap();
    assert!(lack.note("x").message.contains("more than 40000 addresses"), "{lack:?}");
    let fitting = world([80].into_iter(), slice([10, 0], 100, 100));
    assert_eq!(resolved(&fitting, 80).endpoints.as_slice().len(), 10_000);
}

#[test]
fn of_many_addresses_that_may_be_no_endpoints_some_are_told() {
    let of = slice([169, 254], 200, 1);
    let options = Options { destinations: Destinations::new(false, &[]), ..Options::default() };
    let mut resolved = Resolved::default();
    let mut endpoints = Endpoints::default();
    collect(&options, &port(80), &Key::new("a", "s-1"), &of, &mut endpoints, &mut resolved);
    let notes = resolved.object_notes;
    assert_eq!(notes.len(), MAX_OBJECT_NOTES + 1);
    assert!(notes[0].1.message.contains("169.254.0.1:1"), "{notes:?}");
    assert!(notes[MAX_OBJECT_NOTES].1.message.contains("there is more"), "{notes:?}");
}
