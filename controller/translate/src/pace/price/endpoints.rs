//! What it costs that endpoints are read, sent and written: for each backend of a Service all of its endpoints, and the points that
//! these have on a ring.
//!
//! Shape:   what is read is taken from the share of the Service's namespace when it has been read ([`super::super::Pace::spend`]). What
//!          is told here beforehand keeps a namespace from having much read at once.

use super::{ENDPOINT, Prices, RING_POINT};
use crate::backend::size;
use oxigress_core::balancer::ring;
use oxigress_objects::gateway::HttpRouteSpec;
use oxigress_objects::ingress::{Ingress, Target};
use oxigress_objects::{Key, ObjectRef};
use std::collections::BTreeSet;

impl Prices<'_> {
    /// What it costs that the endpoints of a Service are read again.
    pub(super) fn of_endpoints(&self, service: &Key) -> u64 {
        price(self.count(service), self.translator.count_backends(service))
    }

    /// Whether nothing leads to a Service.
    pub(super) fn is_without_backends(&self, service: &Key) -> bool {
        self.translator.count_backends(service) == (0, 0)
    }

    /// What it costs that an Ingress leads to Services newly, or otherwise than before.
    pub(super) fn of_targets(&self, key: &Key, new: &Ingress) -> u64 {
        let old = self
            .world
            .ingresses
            .get(key)
            .filter(|old| self.translator.is_served(key) && old.annotations == new.annotations);
        let known: BTreeSet<&Target> = old.iter().flat_map(|old| targets(old)).collect();
        let new_targets: BTreeSet<&Target> =
            targets(new).filter(|target| !known.contains(target)).collect();
        let has = |name: &str| new.annotations.contains_key(&format!("{}/{name}", self.prefix()));
        let hashes = has("upstream-hash-by") || has("affinity");
        let of_one = |target: &Target| match target {
            Target::Service { name, .. } => {
                let count = self.count(&Key::new(&key.namespace, name));
                price(count, (1, hashes.into()))
            }
            Target::Resource(_) => 0,
        };
        new_targets.into_iter().map(of_one).fold(0, u64::saturating_add)
    }

    /// What it costs that a route leads to Services, beside those to which its older form does.
    pub(super) fn of_leads(&self, id: &ObjectRef, new: &HttpRouteSpec) -> u64 {
        let old = self.world.gateway_api.routes.get(id);
        let old = old.filter(|_| self.translator.has_rules_of(id)).map(|old| &old.spec);
        let known: BTreeSet<_> = old.into_iter().flat_map(|old| leads(&id.key, old)).collect();
        let new: BTreeSet<_> = leads(&id.key, new).filter(|lead| !known.contains(lead)).collect();
        let of_one = |(service, _): (Key, Option<i64>)| price(self.count(&service), (1, 0));
        new.into_iter().map(of_one).fold(0, u64::saturating_add)
    }

    fn count(&self, service: &Key) -> usize {
        size::of_service(self.world, service)
    }
}

/// What so many endpoints cost for so many backends, of which so many hash.
pub fn price(endpoints: usize, (backends, rings): (usize, usize)) -> u64 {
    let all = endpoints.saturating_mul(backends) as u64;
    let points = ring::count_points(endpoints).saturating_mul(rings) as u64;
    ENDPOINT.saturating_mul(all).saturating_add(RING_POINT.saturating_mul(points))
}

fn targets(ingress: &Ingress) -> impl Iterator<Item = &Target> {
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths);
    paths.map(|path| &path.target).chain(&ingress.default_backend)
}

/// The ports of Services to which a route leads.
fn leads(route: &Key, spec: &HttpRouteSpec) -> impl Iterator<Item = (Key, Option<i64>)> {
    let all = spec.rules.iter().flat_map(|rule| rule.references());
    let services = all.filter(|to| to.kind.as_deref().is_none_or(|kind| kind == "Service"));
    services.map(|to| {
        let namespace = to.namespace.as_deref().unwrap_or(&route.namespace);
        (Key::new(namespace, &to.name), to.port)
    })
}
