//! Hosts that another object names which is stored and not in force: it waits for its namespace's share of time, its namespace has
//! no room for it, or the host is another name of one of its hosts and does not hold yet. Somebody who was admitted for such a
//! host would lose it when the object comes into force, and nobody is asked about that.
//!
//! Shape:   the names that are written in routes, and in what is not in force, are kept. Whether a listener of a Gateway of another
//!          namespace would take a route for one is told when somebody wants that host, by the listeners as they are then. A route
//!          at a ListenerSet, at a Gateway of its own namespace, or at one that is not there keeps its names: its namespace may
//!          bring the listener when it likes.
//! Cost:    charged to the namespace of what is not in force, apart from its own reviews. Where it has more such objects with the
//!          host than are looked at, or cannot pay, they count as if they would take it: a name cannot be hidden behind others,
//!          and no namespace keeps from others what it has not written.
//! Order:   who names a host newly comes after all who name it already, whatever the ages of their objects are.
//! Owned:   what is named while another namespace has the host is not kept: nothing that is not in force keeps more from others
//!          than it would in force. Who gets the host when its owner is gone may lose it to such an object.
//! Limit:   paths are not compared. A route without host names, and one with a wildcard, are not looked at; nor are ports and
//!          listeners without a host of sets that are not in force.

use crate::claim::age::Age;
use crate::gateway::{self, NewListeners, OwnListeners, Standing};
use crate::host::owner::HostOwnership;
use crate::ingress::class::{self, Choice};
use crate::pace::price::Prices;
use crate::pace::{Pace, created, hosts_of};
use crate::{Reviews, Translator};
use oxigress_core::model::{HostPattern, shorten};
use oxigress_objects::gateway::{HttpRouteSpec, Listener, ListenerSet, Route};
use oxigress_objects::{Key, Kind, Name, Object, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// Most objects of one namespace that are looked at in one review: each may name some thousand listeners.
const MOST: usize = 16;
/// Most that are asked whether they may be ours at all.
const MOST_ASKED: usize = 256;

impl Translator {
    /// Why an object may not have its hosts yet: one of another namespace names one already that nobody has.
    pub fn reserved(
        &self,
        world: &World,
        pace: &Pace,
        (id, object): (&ObjectRef, &Object),
        reviews: &mut Reviews,
        now: Instant,
    ) -> Option<String> {
        if self.options.host_ownership == HostOwnership::Shared
            || created(object).is_none()
            || !self.may_be_ours(world, id, object)
        {
            return None;
        }
        let object = newly_listening(world, (id, object));
        let own = match &object {
            Object::ListenerSet(set) => {
                Some(NewListeners::new((&id.key, set), None).read(world, &self.options))
            }
            _ => None,
        };
        let (own, left) = (own.as_ref(), BTreeMap::new());
        let (parents, asked) = (requests_at(id, &object), BTreeMap::new());
        let (translator, standing, is_owner) = (self, None, false);
        let mut looked = Looked {
            translator,
            world,
            reviews,
            now,
            own,
            is_owner,
            parents,
            standing,
            asked,
            left,
        };
        let mut hosts = self.newly_named(world, (id, &object));
        hosts.retain(|host, _| !pace.names(id, host));
        let mut named = hosts
            .into_iter()
            .filter(|(host, _)| self.written.has(host) || pace.has_waiting_for(host));
        named.find_map(|(host, since)| {
            let other = looked.kept_by(pace, id, &host, since)?;
            Some(format!(
                "host {:?} is named by {other} already, which is not served yet: try again when it is served or gone, or use \
                 another host",
                shorten(host.as_str())
            ))
        })
    }

    /// The hosts that an object names, but those that it names already: nobody is kept from changing it otherwise. At other parents
    /// a route may have a host for the first time that it named: since when it did so is told beside it, if it was ours.
    fn newly_named(
        &self,
        world: &World,
        (id, object): (&ObjectRef, &Object),
    ) -> BTreeMap<HostPattern, Option<i64>> {
        let hosts = hosts_of(self, world, (id, Some(object)));
        let mut hosts: BTreeMap<_, _> = hosts.into_iter().map(|host| (host, None)).collect();
        let stored = world.object(id).filter(|old| {
            let is_listening = matches!(old, Object::Gateway(_) | Object::ListenerSet(_));
            !is_listening && created(old) == created(object) && self.may_be_ours(world, id, old)
        });
        match (&stored, object) {
            (Some(Object::Route(old)), Object::Route(new))
                if old.spec.parent_refs != new.spec.parent_refs =>
            {
                let named = hosts.iter_mut().filter(|(host, _)| self.has_named(id, host));
                named.for_each(|(_, since)| *since = created(object));
            }
            (Some(_), _) => {
                let named = hosts_of(self, world, (id, stored.as_ref()));
                hosts.retain(|host, _| !named.contains(host));
            }
            (None, _) => {}
        }
        hosts
    }

    /// Whether an object is of our class, or names a Gateway that is, or that is not there yet.
    fn may_be_ours(&self, world: &World, id: &ObjectRef, object: &Object) -> bool {
        let (options, objects) = (&self.options, &world.gateway_api);
        if !gateway::is_watched(world, options, &id.key.namespace) {
            return false;
        }
        match object {
            Object::Ingress(ingress) => {
                matches!(class::choose(world, options, &id.key, ingress), Choice::Ours)
            }
            Object::Route(route) => {
                let parents = route.spec.parent_refs.iter();
                let mut parents = parents.filter_map(|parent| parent.object(&id.key.namespace));
                parents.any(|parent| {
                    let gateway = match parent.kind {
                        // What is beyond a limit is looked at by nobody when a set is led to another Gateway.
                        Kind::ListenerSet if objects.is_beyond(id) => return true,
                        Kind::ListenerSet => match objects.any_set(&parent.key) {
                            Some(set) => set.spec.gateway(&parent.key.namespace),
                            None => return true,
                        },
                        _ => Some(parent.key),
                    };
                    gateway.is_some_and(|key| {
                        !objects.gateways.contains_key(&key)
                            || gateway::is_ours(options, objects, &key)
                    })
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

/// An object, of a ListenerSet the listeners alone whose port, protocol and host it has newly.
fn newly_listening(world: &World, (id, object): (&ObjectRef, &Object)) -> Object {
    let Object::ListenerSet(set) = object else { return object.clone() };
    let stored = world.gateway_api.any_set(&id.key).filter(|old| {
        (old.meta.created, &old.spec.parent_ref) == (set.meta.created, &set.spec.parent_ref)
    });
    let place = |of: &Listener| (of.port, of.protocol.clone(), of.hostname.clone());
    let had: Vec<_> = stored.iter().flat_map(|old| &old.spec.listeners).map(place).collect();
    let mut new = ListenerSet::clone(set);
    new.meta.created = i64::MAX;
    new.spec.listeners.retain(|listener| !had.contains(&place(listener)));
    Object::ListenerSet(Arc::new(new))
}

/// The Gateways at which a route of requests would be.
fn requests_at(id: &ObjectRef, object: &Object) -> BTreeSet<ObjectRef> {
    let Object::Route(route) = object else { return BTreeSet::new() };
    let parents = route.spec.parent_refs.iter().filter(|_| id.kind.is_of_requests());
    parents.filter_map(|parent| parent.object(&id.key.namespace)).collect()
}

/// What is looked at in one review.
struct Looked<'r> {
    translator: &'r Translator,
    world: &'r World,
    reviews: &'r mut Reviews,
    now: Instant,
    /// The new listeners of the ListenerSet that is reviewed.
    own: Option<&'r OwnListeners<'r>>,
    /// Its namespace owns the host that is looked for by a route.
    is_owner: bool,
    /// The Gateways of the route of requests that is reviewed.
    parents: BTreeSet<ObjectRef>,
    standing: Option<Standing<'r>>,
    /// How many objects of a namespace were asked whether they may be ours.
    asked: BTreeMap<Name, usize>,
    /// How many more objects of a namespace are looked at.
    left: BTreeMap<Name, usize>,
}

impl<'r> Looked<'r> {
    /// The object that keeps a host from one that names it; `since`: when that was made, if it has named the host before.
    fn kept_by(
        &mut self,
        pace: &Pace,
        id: &ObjectRef,
        host: &HostPattern,
        since: Option<i64>,
    ) -> Option<ObjectRef> {
        let translator = self.translator;
        let (loser, has_owner) = (translator.loser(host), translator.owner_of(host).is_some());
        let is_free = loser.is_none();
        let own = loser.filter(|(owner, _)| owner.key.namespace == id.key.namespace);
        self.is_owner = own.as_ref().is_some_and(|(_, kind)| kind.is_route());
        // All that is noted is stored already; but whoever has named the host before a set keeps it.
        let made = |created| Age { created, key: id.key.clone() };
        let before = [own.map(|(owner, _)| owner), since.map(made)];
        let age = before.into_iter().flatten().fold(made(i64::MAX), Age::min);
        // A listener leaves its host to who names it, and a set takes one from sets alone.
        let counts = |kind: Kind| match kind {
            Kind::ListenerSet => id.kind == Kind::ListenerSet,
            Kind::Gateway => !has_owner,
            _ => is_free,
        };
        self.not_in_force(pace, host, &age, counts)
    }

    /// An object that names a host, is not in force, and would take it from one of this age.
    fn not_in_force(
        &mut self,
        pace: &Pace,
        host: &HostPattern,
        age: &Age,
        counts: impl Fn(Kind) -> bool,
    ) -> Option<ObjectRef> {
        let Looked { translator, world, .. } = *self;
        let mut stored = translator.written.older(host, age, &counts);
        let is_its = |id: &ObjectRef| {
            world.object(id).is_some_and(|object| self.would_have(id, &object, host))
        };
        stored.find(is_its).or_else(|| {
            let mut waiting = pace.waiting_for(host, age, &counts);
            let found = waiting.find(|(id, object)| self.would_have(id, object, host));
            found.map(|(id, _)| id)
        })
    }

    /// Whether an object would have a host that it names, or too many of its namespace had to be looked at to tell that.
    fn would_have(&mut self, id: &ObjectRef, object: &Object, host: &HostPattern) -> bool {
        let asked = self.asked.entry(id.key.namespace.clone()).or_default();
        *asked += 1;
        if *asked > MOST_ASKED {
            return true;
        }
        if !self.translator.may_be_ours(self.world, id, object) {
            return false;
        }
        let left = self.left.entry(id.key.namespace.clone()).or_insert(MOST);
        if *left == 0 {
            return true;
        }
        *left -= 1;
        match object {
            Object::Route(route) => {
                self.may_bring_listeners(id, route) || self.is_taken(id, route, host)
            }
            Object::ListenerSet(set) => self.is_in_way(id, set, host),
            _ => true,
        }
    }

    /// Whether the namespace of a route may bring a listener for it unasked, or somebody else a Gateway. Routes of requests that wait
    /// for one Gateway share its hosts, as they do when it is there.
    fn may_bring_listeners(&self, id: &ObjectRef, route: &Route) -> bool {
        let parents = route.spec.parent_refs.iter();
        let mut parents = parents.filter_map(|parent| parent.object(&id.key.namespace));
        let shares = |parent: &ObjectRef| id.kind.is_of_requests() && self.parents.contains(parent);
        parents.any(|parent| {
            parent.kind == Kind::ListenerSet
                || parent.key.namespace == id.key.namespace
                || (!shares(&parent) && !self.world.gateway_api.gateways.contains_key(&parent.key))
        })
    }

    /// Whether a listener would take a route for a host that it names.
    fn is_taken(&mut self, id: &ObjectRef, route: &Route, host: &HostPattern) -> bool {
        let parent_refs = route.spec.parent_refs.clone();
        let hostnames = vec![host.as_str().to_owned()];
        let spec = HttpRouteSpec { parent_refs, hostnames, ..HttpRouteSpec::default() };
        let prices = Prices { translator: self.translator, world: self.world };
        let price = prices.of_attaching(id, &spec);
        let route = Route { meta: route.meta.clone(), spec };
        let standing = self.listeners(&id.key.namespace, price);
        standing.is_none_or(|standing| standing.may_have(id, &route, host))
    }

    /// Whether a listener of a set would be in the way of one that is reviewed.
    fn is_in_way(&mut self, id: &ObjectRef, set: &ListenerSet, host: &HostPattern) -> bool {
        let Looked { translator, world, own, is_owner, .. } = *self;
        // A guest's listener, in force, leaves a host to routes of others that name it.
        let of_guest = |key: Key| key.namespace != id.key.namespace;
        if is_owner && set.spec.gateway(&id.key.namespace).is_none_or(of_guest) {
            return false;
        }
        let prices = Prices { translator, world };
        let price = prices.of_reading_listeners(set.spec.listeners.len());
        let standing = self.listeners(&id.key.namespace, price);
        standing.zip(own).is_none_or(|(standing, own)| {
            let set = NewListeners::new((&id.key, set), None).read(world, &translator.options);
            standing.is_in_way(&set, own, host)
        })
    }

    /// The listeners as they are now, if a namespace can pay for what is to be told from them.
    fn listeners(&mut self, namespace: &Name, price: u64) -> Option<&mut Standing<'r>> {
        let Looked { translator, world, reviews, standing, .. } = self;
        let prices = Prices { translator, world };
        let of_listeners = if standing.is_none() { prices.of_listeners() } else { 0 };
        let price = price.saturating_add(of_listeners);
        let is_paid = reviews.charge_beside(namespace, price, self.now);
        let of = || Standing::of(world, &translator.options, Some(&translator.gateways.left));
        is_paid.then(|| standing.get_or_insert_with(of))
    }
}

#[cfg(test)]
mod tests;
