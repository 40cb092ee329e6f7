//! Hosts that an older object names which is stored and not in force: it waits for its namespace's share of time, its namespace has
//! no room for it, or the host is another name of one of its hosts and does not hold yet. Somebody who was admitted for such a
//! host would lose it when the object comes into force, and nobody is asked about that.
//!
//! Cost:    what a route without room would have is told when it loses its room, and looked up. What waits is looked at for each
//!          review, whose namespace is charged; what it cannot pay for is not looked at.
//! Limit:   paths are not compared. A route without host names, one with a wildcard, and one whose listener is not there yet
//!          are not looked at.

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
use std::collections::BTreeSet;
use std::time::Instant;

/// Most routes that wait and are looked at in one review.
const MOST: usize = 64;
/// What a look at an object costs that may be older than the candidate, in nanoseconds.
const LOOK: u64 = 500;

impl Translator {
    /// Takes note of which of these routes and ListenerSets are stored and not in force, and of the hosts that they would have.
    pub(crate) fn note_unserved<'i>(
        &mut self,
        world: &World,
        ids: impl Iterator<Item = &'i ObjectRef>,
    ) {
        let objects = &world.gateway_api;
        let mut standing = None;
        for id in ids {
            let is_unserved = objects.is_beyond(id) || self.unplaced.contains(id);
            let object = is_unserved.then(|| world.object(id)).flatten();
            let hosts = match &object {
                Some(object) if !self.may_be_ours(world, id, object) => BTreeSet::new(),
                Some(Object::Route(route)) => {
                    let left = Some(&self.gateways.left);
                    let of = || Standing::of(world, &self.options, left);
                    standing.get_or_insert_with(of).hosts_of(id, route).named
                }
                object => hosts_of(self, world, (id, object.as_ref())),
            };
            self.unserved.set(id, hosts);
        }
    }

    /// Why an object may not have its hosts yet: an older one of another namespace names one that nobody has.
    pub fn reserved(
        &self,
        world: &World,
        pace: &Pace,
        (id, object): (&ObjectRef, &Object),
        reviews: &mut Reviews,
        now: Instant,
    ) -> Option<String> {
        if self.options.host_ownership == HostOwnership::Shared
            || !self.may_be_ours(world, id, object)
        {
            return None;
        }
        reviews.begin(&id.key.namespace, now);
        let age = Age { created: created(object)?, key: id.key.clone() };
        let mut looked = Looked { translator: self, world, reviews, standing: None, left: MOST };
        let hosts = hosts_of(self, world, (id, Some(object)));
        hosts.iter().find_map(|host| {
            // A listener leaves its host to who names it, and a set takes one from sets alone.
            let (is_free, has_owner) = (self.loser(host).is_none(), self.owner_of(host).is_some());
            let counts = |kind: Kind| match kind {
                Kind::ListenerSet => id.kind == Kind::ListenerSet,
                Kind::Gateway => !has_owner,
                _ => is_free,
            };
            let other = looked.not_in_force(pace, host, &age, counts)?;
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
}

/// What is looked at in one review.
struct Looked<'r> {
    translator: &'r Translator,
    world: &'r World,
    reviews: &'r mut Reviews,
    standing: Option<Standing<'r>>,
    left: usize,
}

impl Looked<'_> {
    /// An object that names a host, is not in force, and would take it from one of this age.
    fn not_in_force(
        &mut self,
        pace: &Pace,
        host: &HostPattern,
        age: &Age,
        counts: impl Fn(Kind) -> bool,
    ) -> Option<ObjectRef> {
        let Looked { translator, world, .. } = *self;
        let may_be_older =
            |id: &ObjectRef| id.key.namespace != age.key.namespace && counts(id.kind);
        let is_older = |id: &ObjectRef, object: &Object| {
            created(object)
                .is_some_and(|created| Age { created, key: id.key.clone() }.takes_from(age))
        };
        let others = translator.other_names.by(host);
        let others = others.map(|key| ObjectRef::new(Kind::Ingress, key.clone()));
        for id in translator.unserved.by(host).cloned().chain(others) {
            if !self.reviews.charge(LOOK) {
                return None;
            }
            let object = may_be_older(&id).then(|| world.object(&id)).flatten();
            if object.is_some_and(|object| is_older(&id, &object)) {
                return Some(id);
            }
        }
        for (id, object) in pace.waiting_for(host) {
            if !self.reviews.charge(LOOK) {
                return None;
            }
            let is_its = may_be_older(id)
                && is_older(id, object)
                && translator.may_be_ours(world, id, object)
                && match object {
                    Object::Route(route) => self.would_have(id, route, host),
                    _ => true,
                };
            if is_its {
                return Some(id.clone());
            }
        }
        None
    }

    /// Whether a listener would take a route for a host.
    fn would_have(&mut self, id: &ObjectRef, route: &Route, host: &HostPattern) -> bool {
        let Looked { translator, world, reviews, standing, left } = self;
        let prices = Prices { translator, world };
        if *left == 0 || !reviews.charge(prices.of_review(id, &route.spec)) {
            return false;
        }
        *left -= 1;
        let of = || Standing::of(world, &translator.options, Some(&translator.gateways.left));
        standing.get_or_insert_with(of).hosts_of(id, route).named.contains(host)
    }
}

#[cfg(test)]
mod tests;
