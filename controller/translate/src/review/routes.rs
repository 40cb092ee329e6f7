//! What would become of a route that is about to be created or changed.

use super::ReviewOutcome;
use crate::Translator;
use crate::age::Age;
use crate::gateway;
use crate::host::owner::{self, HostOwnership};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::Route;
use oxigress_objects::{Kind, ObjectRef, World};

impl Translator {
    /// Judges whose hosts a route would have. Its age is the object's, not that of a host name in it: an old one that names a
    /// new host would be the oldest there, and take the host from its owner. All else is told in the route's status.
    pub fn review_route(&self, world: &World, id: &ObjectRef, route: &Route) -> ReviewOutcome {
        let mut outcome = ReviewOutcome::default();
        if self.options.host_ownership == HostOwnership::Shared {
            return outcome;
        }
        let named = gateway::named_by(world, &self.options, id, route);
        outcome.compared = named.len().min(1);
        let age = Age { created: route.meta.created, key: id.key.clone() };
        outcome.denial = named.iter().find_map(|host| self.taken_over(host, &age, id.kind));
        outcome
    }

    /// Why a route of this age may not be: it would be the oldest object on a host of another namespace.
    fn taken_over(&self, host: &HostPattern, age: &Age, new: Kind) -> Option<String> {
        let (owner, kind) = self.loser(host)?;
        let is_foreign = owner.key.namespace != age.key.namespace;
        (is_foreign && age.borrowed() < owner.borrowed()).then(|| {
            format!(
                "{} belongs to namespace {}, whose {kind} {} names it; this {new} is older and would take it over: \
                 name the host in a new {new}",
                owner::words_of(host),
                owner.key.namespace,
                owner.key
            )
        })
    }

    /// Who would lose a host to an older object that names it now: a listener loses nothing.
    fn loser(&self, host: &HostPattern) -> Option<(Age, Kind)> {
        let held = self.hold(host);
        match held.kind {
            Kind::Gateway => self.heir(host, held.kind),
            kind => Some((held.by?, kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::review::tests::{Fixture, objects};
    use oxigress_objects::Object;

    #[test]
    fn an_old_route_takes_no_host_of_another_namespace() {
        let route_of = |kind: &str, namespace: &str, created: &str, host: &str| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
                 metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{created}' }}\n\
                 spec: {{ parentRefs: [{{ name: web, namespace: infra }}], hostnames: [{host}] }}"
            )
        };
        let route = |namespace: &str, created: &str, host: &str| {
            route_of("HTTPRoute", namespace, created, host)
        };
        let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                       spec: { controllerName: oxigress.io/gateway-controller }\n---\n\
                       apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: { name: web, namespace: infra, creationTimestamp: '2019-01-01T00:00:00Z' }\n\
                       spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP, \
                       allowedRoutes: { namespaces: { from: All } } }] }";
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                       metadata: { name: shop, namespace: victim, creationTimestamp: '2024-01-01T00:00:00Z' }\n\
                       spec: { ingressClassName: nginx, rules: [{ host: shop.test }] }";
        let world = [
            gateway.to_owned(),
            ingress.to_owned(),
            route("victim", "2024-01-01T00:00:00Z", "routed.test"),
        ];
        for (flags, expected) in [("", true), ("--host-ownership=shared", false)] {
            let fixture = Fixture::new(flags, &world);
            for host in ["shop.test", "routed.test"] {
                let denial = |namespace: &str, created: &str| {
                    let all = objects(&route(namespace, created, host));
                    let [(id, Object::Route(route))] = &all[..] else { panic!("{all:?}") };
                    let outcome = fixture.translator.review_route(&fixture.world, id, route);
                    outcome.denial
                };
                let said = denial("evil", "2023-01-01T00:00:00Z");
                assert_eq!(said.is_some(), expected, "{flags} {host}: {said:?}");
                assert!(said.is_none_or(|said| said.contains("belongs to namespace victim")));
                let call = objects(&route_of("GRPCRoute", "evil", "2023-01-01T00:00:00Z", host));
                let [(id, Object::Route(call))] = &call[..] else { panic!("{call:?}") };
                let said = fixture.translator.review_route(&fixture.world, id, call).denial;
                assert_eq!(said.is_some(), expected, "{flags} {host}: {said:?}");
                assert!(said.is_none_or(|said| said.contains("in a new GRPCRoute")));
                assert_eq!(denial("evil", "2025-01-01T00:00:00Z"), None, "{host}: a younger one");
                assert_eq!(denial("victim", "2023-01-01T00:00:00Z"), None, "{host}: its owner");
            }
            let mine = objects(&route("evil", "2023-01-01T00:00:00Z", "new.test"));
            let [(id, Object::Route(mine))] = &mine[..] else { panic!() };
            assert_eq!(fixture.translator.review_route(&fixture.world, id, mine).denial, None);
        }
    }
    /// A Gateway whose listener names a host leaves it to the oldest object that names it, too.
    #[test]
    fn a_route_may_move_to_a_younger_gateway_and_takes_nothing_from_who_is_served_there() {
        let class = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                     spec: { controllerName: oxigress.io/gateway-controller }";
        let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
                       metadata: { name: web, namespace: infra, creationTimestamp: '2022-01-01T00:00:00Z' }\n\
                       spec: { gatewayClassName: oxigress, listeners: [{ name: http, port: 80, protocol: HTTP, \
                       hostname: shop.test, allowedRoutes: { namespaces: { from: All } } }] }";
        let route = |namespace: &str, year: u16| {
            format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
                 metadata: {{ name: r, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
                 spec: {{ parentRefs: [{{ name: web, namespace: infra }}], hostnames: [shop.test] }}"
            )
        };
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
                       metadata: { name: shop, namespace: victim, creationTimestamp: '2024-01-01T00:00:00Z' }\n\
                       spec: { ingressClassName: nginx, rules: [{ host: shop.test }] }";
        let all = [class.to_owned(), gateway.to_owned()];
        for (others, year, is_denied) in [
            (vec![], 2018, false),
            (vec![route("victim", 2024)], 2018, true),
            (vec![route("victim", 2024)], 2023, true),
            (vec![route("victim", 2024)], 2025, false),
            (vec![ingress.to_owned()], 2018, true),
            (vec![ingress.to_owned()], 2023, true),
            (vec![ingress.to_owned()], 2025, false),
        ] {
            let fixture = Fixture::new("", &[&all[..], &others].concat());
            let own = objects(&route("team", year));
            let [(id, Object::Route(own))] = &own[..] else { panic!() };
            let denial = fixture.translator.review_route(&fixture.world, id, own).denial;
            assert_eq!(denial.is_some(), is_denied, "{year} beside {others:?}: {denial:?}");
        }
    }
}
