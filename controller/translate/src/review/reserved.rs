//! Hosts that an older object names which is stored and not in force: it waits for its namespace's share of time, its namespace has
//! no room for it, or the host is another name of one of its hosts and does not hold yet. Somebody who was admitted for such a
//! host would lose it when the object comes into force, and nobody is asked about that.
//!
//! Cost:    charged to the review's namespace for each route that is looked at.
//! Limit:   a route without host names, one with a wildcard, and one whose listener is not there yet are not looked at.

use crate::age::Age;
use crate::gateway::{self, Standing};
use crate::host::owner::HostOwnership;
use crate::ingress::class::{self, Choice};
use crate::pace::price::Prices;
use crate::pace::{Pace, created, hosts_of};
use crate::{Reviews, Translator};
use oxigress_core::model::{HostPattern, shorten};
use oxigress_objects::gateway::Route;
use oxigress_objects::{Kind, Object, ObjectRef, World};

/// Most routes of a host that are looked at: where there are more, one of them is taken for one that would have it.
const MOST: usize = 64;
/// Most objects of a host of which it is looked at whose they are.
const MANY: usize = 10_000;

impl Translator {
    /// Takes note of whether a route or a ListenerSet is stored and not in force.
    pub(crate) fn note_unserved(&mut self, world: &World, id: &ObjectRef) {
        let objects = &world.gateway_api;
        let is_unserved = objects.is_beyond(id) || self.unplaced.contains(id);
        let object = is_unserved.then(|| world.object(id)).flatten();
        self.unserved.set(id, hosts_of(&self.options.annotations_prefix, object.as_ref()));
    }

    /// Why an object may not have its hosts yet: an older one of another namespace names one that nobody has.
    pub fn reserved(
        &self,
        world: &World,
        pace: &Pace,
        (id, object): (&ObjectRef, &Object),
        reviews: &mut Reviews,
    ) -> Option<String> {
        if self.options.host_ownership == HostOwnership::Shared
            || !self.may_be_ours(world, id, object)
        {
            return None;
        }
        let age = Age { created: created(object)?, key: id.key.clone() };
        let mut looked = Looked { translator: self, world, standing: None, left: MOST };
        let hosts = hosts_of(&self.options.annotations_prefix, Some(object));
        // A listener leaves its host to who names it: so nobody has that yet.
        hosts.iter().filter(|host| self.loser(host).is_none()).find_map(|host| {
            let mut older = self.not_in_force(world, pace, host, &age).enumerate();
            let (_, (other, _)) = older.find(|(place, (other, object))| {
                let may_be_ours = *place >= MANY || self.may_be_ours(world, other, object);
                may_be_ours
                    && match object {
                        Object::Route(route) => looked.would_have(other, route, host, reviews),
                        _ => true,
                    }
            })?;
            Some(format!(
                "host {:?} is named by {other} too, which is older, and is not served yet: try again when it is served or gone, \
                 or use another host",
                shorten(host.as_str())
            ))
        })
    }

    /// Whether an object is of our class, or names a Gateway that is.
    fn may_be_ours(&self, world: &World, id: &ObjectRef, object: &Object) -> bool {
        let (options, objects) = (&self.options, &world.gateway_api);
        match object {
            Object::Ingress(ingress) => {
                matches!(class::choose(world, options, &id.key, ingress), Choice::Ours)
            }
            Object::Route(route) => {
                let parents = route.spec.parent_refs.iter();
                let mut parents = parents.filter_map(|parent| parent.object(&id.key.namespace));
                parents.any(|parent| {
                    let gateway = match parent.kind {
                        Kind::ListenerSet => {
                            let set = objects.any_set(&parent.key);
                            set.and_then(|set| set.spec.gateway(&parent.key.namespace))
                        }
                        _ => Some(parent.key),
                    };
                    gateway.is_some_and(|key| gateway::is_ours(options, objects, &key))
                })
            }
            Object::ListenerSet(set) => {
                let gateway = set.spec.gateway(&id.key.namespace);
                gateway.is_some_and(|key| gateway::is_ours(options, objects, &key))
            }
            _ => true,
        }
    }

    /// The objects that name a host, are not in force, and would take it from one of this age.
    fn not_in_force<'s>(
        &'s self,
        world: &'s World,
        pace: &'s Pace,
        host: &'s HostPattern,
        age: &'s Age,
    ) -> impl Iterator<Item = (ObjectRef, Object)> {
        let waiting = pace.waiting_for(host).map(|(id, object)| (id.clone(), object.clone()));
        let others = self.other_names.by(host);
        let others = others.map(|key| ObjectRef::new(Kind::Ingress, key.clone()));
        let stored = self.unserved.by(host).cloned().chain(others);
        let stored = stored.filter_map(|id| world.object(&id).map(|object| (id, object)));
        let is_older = |(id, object): &(ObjectRef, Object)| {
            created(object)
                .is_some_and(|created| Age { created, key: id.key.clone() }.takes_from(age))
        };
        waiting.chain(stored).filter(is_older)
    }
}

/// The routes that are looked at in one review.
struct Looked<'r> {
    translator: &'r Translator,
    world: &'r World,
    standing: Option<Standing<'r>>,
    left: usize,
}

impl Looked<'_> {
    /// Whether a listener would take a route for a host; it counts as if one did where the review cannot pay for telling it.
    fn would_have(
        &mut self,
        id: &ObjectRef,
        route: &Route,
        host: &HostPattern,
        reviews: &mut Reviews,
    ) -> bool {
        let Looked { translator, world, standing, left } = self;
        let prices = Prices { translator, world };
        if *left == 0 || !reviews.charge(prices.of_review(id, &route.spec)) {
            return true;
        }
        *left -= 1;
        let of = || Standing::of(world, &translator.options, Some(&translator.gateways.left));
        standing.get_or_insert_with(of).hosts_of(id, route).named.contains(host)
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

    fn reviews() -> Reviews {
        let mut reviews = Reviews::default();
        reviews.begin("shop", Instant::now());
        reviews
    }

    /// One with another name for its host.
    fn aliased(name: &str, created: i64, alias: &str) -> (ObjectRef, Object) {
        let (mut id, object) = ingress("evil", created, "x.test");
        let Object::Ingress(ingress) = object else { unreachable!() };
        let mut ingress = Arc::unwrap_or_clone(ingress);
        let key = "nginx.ingress.kubernetes.io/server-alias";
        ingress.annotations.insert(key.into(), alias.into());
        id.key.name = name.into();
        (id, Object::Ingress(Arc::new(ingress)))
    }

    #[test]
    fn another_name_that_waits_or_does_not_hold_yet_is_nobody_s() {
        let (mut world, mut translator) = (World::default(), Translator::new(Options::default()));
        let denial = |world: &World, translator: &Translator, pace: &Pace, host: &str| {
            let (id, object) = ingress("shop", 9, host);
            translator.reserved(world, pace, (&id, &object), &mut reviews())
        };
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.spend_share("evil", now);
        let prices = Prices { translator: &translator, world: &world };
        let (id, object) = aliased("e", 5, "pay.test, b.test");
        assert!(pace.admit((id, Some(object)), &prices, now).is_none());
        assert!(denial(&world, &translator, &pace, "pay.test").is_some());
        assert_eq!(denial(&world, &translator, &pace, "other.test"), None);
        // Of two Ingresses of a host the aliases of the older one hold.
        let pace = Pace::default();
        let all = [aliased("f", 1, "other.test"), aliased("e", 5, "pay.test")];
        see(&mut world, &mut translator, all.map(|(id, object)| (id, Some(object))));
        let owner = |translator: &Translator, host: &str| {
            translator.owner_of(&HostPattern::parse(host).unwrap()).is_some()
        };
        assert!(owner(&translator, "other.test") && !owner(&translator, "pay.test"));
        assert!(denial(&world, &translator, &pace, "pay.test").is_some());
        let (id, _) = aliased("e", 5, "");
        see(&mut world, &mut translator, [(id, None)]);
        assert_eq!(denial(&world, &translator, &pace, "pay.test"), None);
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
            translator.reserved(&world, pace, (&id, &object), &mut reviews())
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
        let gateway = |from: &str, host: &str| {
            read(&format!(
                "{{{api}, kind: Gateway, metadata: {{name: g, namespace: infra}}, spec: {{gatewayClassName: c, listeners: \
                 [{{name: l, port: 80, protocol: HTTP, hostname: '{host}', allowedRoutes: {{namespaces: {{from: {from}}}}}}}]}}}}"
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
        let all = fillers.chain([class, gateway("All", "*.test"), route(99_999, "pay.test")]);
        see(&mut world, &mut translator, all);
        let denial = |world: &World, translator: &Translator, host: &str| {
            let (id, object) = ingress("shop", 9, host);
            translator.reserved(world, &Pace::default(), (&id, &object), &mut reviews())
        };
        let why = denial(&world, &translator, "pay.test").unwrap();
        assert!(why.contains("HTTPRoute evil/r99999"), "{why}");
        assert_eq!(denial(&world, &translator, "other.test"), None);
        // A listener that names the host leaves it to the oldest route.
        see(&mut world, &mut translator, [gateway("All", "pay.test")]);
        assert!(denial(&world, &translator, "pay.test").is_some());
        see(&mut world, &mut translator, [gateway("Same", "*.test")]);
        assert_eq!(denial(&world, &translator, "pay.test"), None, "no listener takes it");
        see(&mut world, &mut translator, [gateway("All", "*.test"), (route(0, "").0, None)]);
        assert_eq!(denial(&world, &translator, "pay.test"), None, "it has room, and owns the host");
        let host = HostPattern::parse("pay.test").unwrap();
        assert_eq!(*translator.owner_of(&host).unwrap().0.namespace, *"evil");
    }

    fn ingress_of(id: &ObjectRef, host: &str) -> oxigress_objects::Seen {
        let (_, object) = ingress(&id.key.namespace, 5, host);
        (id.clone(), Some(object))
    }
}
