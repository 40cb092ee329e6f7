//! How much there is to look at for a backend, told before anything is read.

use super::{MAX_LOOKED_AT, Usage};
use oxigress_objects::service::EndpointSlice;
use oxigress_objects::{Key, World};
use std::collections::BTreeMap;

/// So many ports take as long as one endpoint.
const PORTS_AN_ENDPOINT: usize = 100;

/// An address of DNS is read as often as its time to live has passed: it counts as so many endpoints.
const OF_ADDRESS: usize = 10;

/// The sizes of Services, each counted once.
#[derive(Debug, Default)]
pub struct Sizes(BTreeMap<Key, usize>);

impl Sizes {
    /// The size of one of a Service's backends, in endpoints.
    pub fn of(&mut self, world: &World, service: &Key, usage: Usage) -> usize {
        let known = world.services.get(service);
        let is_own = known.is_none_or(|known| {
            usage == Usage::Http { service_upstream: true } && known.cluster_ip.is_some()
        });
        if is_own {
            return 1;
        }
        match self.0.get(service) {
            Some(size) => *size,
            None => {
                let size = of_service(world, service);
                self.0.insert(service.clone(), size);
                size
            }
        }
    }
}

/// How much there is to look at for one port of a Service, in endpoints: those that are not ready or not allowed, the
/// slices and the ports included.
pub fn of_service(world: &World, service: &Key) -> usize {
    let Some(known) = world.services.get(service) else { return 1 };
    if known.external_name.is_some() {
        let answer = known.dns_name().and_then(|name| world.answer_for(name));
        return 1 + OF_ADDRESS * answer.map_or(0, |answer| answer.addresses.len());
    }
    // A port without a name leads to all that slices have.
    let is_nameless = known.ports.iter().any(|port| port.name.is_empty());
    let endpoints = |slice: &EndpointSlice| {
        let addresses = slice.endpoints.iter().map(|endpoint| endpoint.addresses.len().max(1));
        let numbers = if is_nameless { slice.ports.len().max(1) } else { 1 };
        addresses.sum::<usize>().saturating_mul(numbers)
    };
    let (mut all, mut slices, mut ports) = (0usize, 0, known.ports.len());
    for (_, slice) in world.slices(service) {
        all = all.saturating_add(endpoints(slice));
        slices += 1;
        ports += slice.ports.len();
    }
    all.min(MAX_LOOKED_AT) + slices.max(1) + ports / PORTS_AN_ENDPOINT
}
