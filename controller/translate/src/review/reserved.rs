//! Hosts that an older object names which is stored and not in force: it waits for its namespace's share of time, or its
//! namespace has no room for it. Somebody who was admitted for such a host would lose it when the object comes into force, and
//! nobody is asked about that.

use crate::Translator;
use crate::age::Age;
use crate::gateway::Standing;
use crate::host::owner::HostOwnership;
use crate::pace::{Pace, created, hosts_of};
use oxigress_core::model::{HostPattern, shorten};
use oxigress_objects::{Object, ObjectRef, World};

/// Most objects of a host that are looked at: where there are more, one of them is taken for one that would have it.
const MOST: usize = 1_000;

impl Translator {
    /// Takes note of whether a route is stored and not in force.
    pub(crate) fn note_unserved(&mut self, world: &World, id: &ObjectRef) {
        let objects = &world.gateway_api;
        let is_unserved = objects.is_beyond(id) || self.unplaced.contains(id);
        let route = objects.any_route(id).filter(|_| is_unserved);
        let route = route.map(|route| Object::Route(route.clone()));
        self.unserved.set(id, hosts_of(route.as_ref()));
    }

    /// Why an object may not have its hosts yet: an older one of another namespace names one that nobody has.
    pub fn reserved(
        &self,
        world: &World,
        pace: &Pace,
        id: &ObjectRef,
        object: &Object,
    ) -> Option<String> {
        if self.options.host_ownership == HostOwnership::Shared {
            return None;
        }
        let age = Age { created: created(object)?, key: id.key.clone() };
        let mut standing = None;
        let hosts = hosts_of(Some(object));
        hosts.iter().filter(|host| self.owner_of(host).is_none()).find_map(|host| {
            let mut older = self.not_in_force(world, pace, host, &age).enumerate();
            let (_, (other, _)) = older.find(|(place, (other, object))| match object {
                Object::Route(route) if *place < MOST => {
                    let left = Some(&self.gateways.left);
                    let of = || Standing::of(world, &self.options, left);
                    let standing: &mut Standing<'_> = standing.get_or_insert_with(of);
                    standing.hosts_of(other, route).named.contains(host)
                }
                _ => true,
            })?;
            Some(format!(
                "host {:?} is named by {other} too, which is older, and is not served yet: try again when it is served or gone, \
                 or use another host",
                shorten(host.as_str())
            ))
        })
    }

    /// The objects that name a host, are not in force, and would take it from one of this age.
    fn not_in_force<'s>(
        &'s self,
        world: &'s World,
        pace: &'s Pace,
        host: &HostPattern,
        age: &'s Age,
    ) -> impl Iterator<Item = (&'s ObjectRef, Object)> {
        let waiting = pace.waiting_for(host).map(|(id, object)| (id, object.clone()));
        let unserved = self.unserved.by(host).filter_map(|id| {
            let route = world.gateway_api.any_route(id)?;
            Some((id, Object::Route(route.clone())))
        });
        let is_older = |(id, object): &(&ObjectRef, Object)| {
            created(object)
                .is_some_and(|created| Age { created, key: id.key.clone() }.takes_from(age))
        };
        waiting.chain(unserved).filter(is_older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::pace::price::Prices;
    use oxigress_objects::Changed;
    use oxigress_objects::document::{self, Found};
    use oxigress_objects::gateway::MAX_ROUTES;
    use oxigress_objects::ingress::{Ingress, Rule};
    use oxigress_objects::{Key, Kind};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn ingress(namespace: &str, created: i64, host: &str) -> (ObjectRef, Object) {
        let rule = Rule { host: host.into(), paths: Vec::new() };
        let mut ingress = Ingress { created, rules: vec![rule], ..Ingress::default() };
        ingress.annotations.insert("kubernetes.io/ingress.class".into(), "nginx".into());
        let id = ObjectRef::new(Kind::Ingress, Key::new(namespace, "i"));
        (id, Object::Ingress(Arc::new(ingress)))
    }

    #[test]
    fn a_host_that_an_older_object_names_which_waits_is_nobody_s_yet() {
        let (world, translator) = (World::default(), Translator::new(Options::default()));
        let (mut pace, now) = (Pace::default(), Instant::now());
        // Nothing is left of the share of the namespace.
        pace.spend_share("evil", now);
        let prices = Prices { translator: &translator, world: &world };
        let (id, waiting) = ingress("evil", 5, "pay.test");
        assert!(pace.admit((id.clone(), Some(waiting)), &prices, now).is_none());
        let denial = |pace: &Pace, (id, object): (ObjectRef, Object)| {
            translator.reserved(&world, pace, &id, &object)
        };
        let why = denial(&pace, ingress("shop", 9, "pay.test")).unwrap();
        assert!(why.contains("Ingress evil/i"), "{why}");
        for other in [
            ingress("shop", 9, "other.test"),
            ingress("shop", 1, "pay.test"),
            ingress("evil", 9, "pay.test"),
        ] {
            assert_eq!(denial(&pace, other), None);
        }
        // It names another host now, and then it is taken over.
        pace.admit(ingress_of(&id, "else.test"), &prices, now);
        assert_eq!(denial(&pace, ingress("shop", 9, "pay.test")), None);
        assert!(denial(&pace, ingress("shop", 9, "else.test")).is_some());
        assert_eq!(pace.due(&prices, now + Duration::from_mins(2)).len(), 1);
        assert_eq!(denial(&pace, ingress("shop", 9, "else.test")), None);
    }

    fn see(
        world: &mut World,
        translator: &mut Translator,
        seen: impl IntoIterator<Item = oxigress_objects::Seen>,
    ) {
        let mut changed = Changed::default();
        seen.into_iter().for_each(|seen| world.apply(seen, &mut changed));
        translator.update(world, &changed);
    }

    fn read(manifest: &str) -> oxigress_objects::Seen {
        let found = document::read(manifest, false).pop().unwrap().found.unwrap().pop();
        let Some(Found::Object(id, object)) = found else { panic!("{manifest}") };
        (id, Some(object))
    }

    #[test]
    fn a_host_of_an_older_route_that_has_no_room_is_nobody_s_yet() {
        let (mut world, mut translator) = (World::default(), Translator::new(Options::default()));
        let api = "apiVersion: gateway.networking.k8s.io/v1";
        let gateway = |from: &str| {
            read(&format!(
                "{{{api}, kind: Gateway, metadata: {{name: g, namespace: infra}}, spec: {{gatewayClassName: c, listeners: \
                 [{{name: l, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}}}}"
            ))
        };
        let class = read(&format!(
            "{{{api}, kind: GatewayClass, metadata: {{name: c}}, spec: {{controllerName: oxigress.io/gateway-controller}}}}"
        ));
        let route = |n: usize, host: &str| {
            let (id, object) = read(&format!(
                "{{{api}, kind: HTTPRoute, metadata: {{name: r{n:05}, namespace: evil, creationTimestamp: \
                 '1970-01-01T00:00:01Z'}}, spec: {{parentRefs: [{{name: g, namespace: infra}}], hostnames: [{host}]}}}}"
            ));
            (id, object)
        };
        let fillers = (0..MAX_ROUTES).map(|n| route(n, "filler.test"));
        let all = fillers.chain([class, gateway("All"), route(99_999, "pay.test")]);
        see(&mut world, &mut translator, all);
        let denial = |world: &World, translator: &Translator, host: &str| {
            let (id, object) = ingress("shop", 9, host);
            translator.reserved(world, &Pace::default(), &id, &object)
        };
        let why = denial(&world, &translator, "pay.test").unwrap();
        assert!(why.contains("HTTPRoute evil/r99999"), "{why}");
        assert_eq!(denial(&world, &translator, "other.test"), None);
        see(&mut world, &mut translator, [gateway("Same")]);
        assert_eq!(denial(&world, &translator, "pay.test"), None, "no listener takes it");
        see(&mut world, &mut translator, [gateway("All"), (route(0, "").0, None)]);
        assert_eq!(denial(&world, &translator, "pay.test"), None, "it has room, and owns the host");
        let host = HostPattern::parse("pay.test").unwrap();
        assert_eq!(*translator.owner_of(&host).unwrap().0.namespace, *"evil");
    }

    fn ingress_of(id: &ObjectRef, host: &str) -> oxigress_objects::Seen {
        let (_, object) = ingress(&id.key.namespace, 5, host);
        (id.clone(), Some(object))
    }
}
