//! What would become of hosts if a ListenerSet is created or changed: routes that have long named one may get it by a new listener.
//!
//! What:    of two sets the older has a port or a host of it, by the age of the set and not of its listener. So none that stands may
//!          fall for a listener that an older set has newly, nor a host below a wildcard get another one's certificate.
//! Shape:   the routes that name the set and that a listener of it admits are judged as if they were about to be stored, by the
//!          listeners as they would be.
//! Cost:    charged to the namespace of the set: of its own routes all places, of others' those at the new listeners, which alone are
//!          judged. So nobody makes the reviews of a set dear that does not let them in.

use super::ReviewOutcome;
use super::routes::{Loss, why};
use crate::Reviews;
use crate::Translator;
use crate::claim::age::Age;
use crate::gateway::{Admitted, Home, NewListeners, OfSet, Standing};
use crate::host::owner::HostOwnership;
use crate::pace::price::Prices;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::ListenerSet;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// What others would lose to a route.
type OfRoute = (ObjectRef, Vec<Loss>);

impl Translator {
    /// Judges whose hosts the routes would have that name a ListenerSet. All else is told in its status.
    ///
    /// Its namespace is charged for what is read. Where it cannot pay, a set with a listener that it has not yet is denied, since
    /// nothing else could tell. `world` is as before afterwards.
    pub fn review_set(
        &self,
        world: &mut World,
        (key, set): (&Key, &Arc<ListenerSet>),
        reviews: &mut Reviews,
        now: Instant,
    ) -> ReviewOutcome {
        let mut outcome = ReviewOutcome::default();
        let stored = world.gateway_api.sets.get(key).cloned();
        let has_new = stored.as_ref().is_none_or(|old| old.spec != set.spec);
        let gateway = set.spec.gateway(&key.namespace);
        let gateway = gateway.map(|gateway| ObjectRef::new(Kind::Gateway, gateway));
        let is_ours = gateway.is_some_and(|gateway| self.statuses().contains_key(&gateway));
        if self.options.host_ownership == HostOwnership::Shared || !has_new || !is_ours {
            return outcome;
        }
        reviews.begin(&key.namespace, now);
        let new = NewListeners::new((key, set), stored.as_deref());
        let Some((losses, standing)) = self.losses_by(world, (key, set), &new, reviews) else {
            if !new.is_empty() {
                outcome.denial = Some(unchecked(&key.namespace));
            }
            return outcome;
        };
        let own = new.read(world, &self.options);
        let mut had = Standing::of(world, &self.options, Some(&self.gateways.left));
        let age = Home::of_set(key, set).age();
        let wildcards = own.newly_certified().filter(|host| host.is_wildcard());
        let wildcards: BTreeSet<&HostPattern> = wildcards.collect();
        // Nobody keeps the owner of a host from bringing it by a set with which nothing came. It has named the host before there was
        // that set: [`Translator::set_over`]. A listener without a host, or one of TCP or UDP, has that of all requests.
        let is_its = |host: &HostPattern, home: Home<'_>| {
            let owner = self.decide_owner(host).by.filter(|_| *host != HostPattern::default_host());
            owner.is_some_and(|by| by.key.namespace == key.namespace && by < home.age())
        };
        outcome.denial = had.lost_by(&own, &standing, is_its).or_else(|| {
            let mut wildcards = wildcards.into_iter();
            wildcards.find_map(|host| self.certificate_over(host, &age, Kind::ListenerSet))
        });
        if outcome.denial.is_some() {
            return outcome;
        }
        let mut denials = losses.into_iter().filter_map(|(id, losses)| {
            let route = own.judged_before(&id, world.gateway_api.routes.get(&id)?);
            let hosts = had.hosts_of(&id, &route);
            // What it takes already it has taken long ago.
            let lost = losses.into_iter().find(|loss| !loss.is_in(&hosts))?;
            Some(format!("by this ListenerSet {id} would get what it has not: {}", lost.why))
        });
        let named = || own.newly_named().find_map(|host| self.owned_over(host, (key, set)));
        outcome.denial = denials.next().or_else(named);
        outcome
    }

    /// Why the set of a guest may not newly name a host: its owner could not name that in an older object any more, which
    /// [`Translator::set_over`] denies. A route that names the set wants the listener.
    fn owned_over(&self, host: &HostPattern, (key, set): (&Key, &ListenerSet)) -> Option<String> {
        let gateway = set.spec.gateway(&key.namespace)?;
        let age = Home::of_set(key, set).age();
        let (owner, kind) = self.loser(host).filter(|(owner, _)| age.takes_from(owner))?;
        let by = ObjectRef::new(kind, owner.key.clone());
        let object = ObjectRef::new(Kind::ListenerSet, key.clone());
        let is_attached = self.routes_at(&object).any(|route| *route == by);
        let has_it = self.hosts_of_sets.get(host).is_some_and(|sets| sets.contains(&age));
        let is_lost = gateway.namespace != key.namespace && !is_attached && !has_it;
        is_lost.then(|| why(host, (&owner.key, kind), Kind::ListenerSet))
    }

    /// What others would lose to the routes that name the set, and the listeners of sets that would stand; `None`: its namespace
    /// cannot pay for telling that.
    fn losses_by(
        &self,
        world: &mut World,
        (key, set): (&Key, &Arc<ListenerSet>),
        new: &NewListeners<'_>,
        reviews: &mut Reviews,
    ) -> Option<(Vec<OfRoute>, BTreeSet<OfSet>)> {
        let prices = Prices { translator: self, world };
        if !reviews.charge(prices.of_set_review(&set.spec)) {
            return None;
        }
        let stored = world.gateway_api.sets.insert(key.clone(), set.clone());
        let losses = self.losses_with(world, new, reviews);
        let standing = Standing::of(world, &self.options, Some(&self.gateways.left)).of_sets();
        match stored {
            Some(stored) => drop(world.gateway_api.sets.insert(key.clone(), stored)),
            None => drop(world.gateway_api.sets.remove(key)),
        }
        Some((losses?, standing))
    }

    /// What others would lose in a world that has the set.
    fn losses_with(
        &self,
        world: &World,
        new: &NewListeners<'_>,
        reviews: &mut Reviews,
    ) -> Option<Vec<OfRoute>> {
        let mut own = new.read(world, &self.options);
        let prices = Prices { translator: self, world };
        let admitted: Vec<Admitted<'_>> = own.admitted(world).collect();
        let priced = admitted.into_iter().map(|route| {
            let price = prices.of_review_by_set(&own, &route);
            (route, price)
        });
        let routes = reviews.charge_all(priced)?;
        if routes.is_empty() {
            return Some(Vec::new());
        }
        let mut standing = Standing::of(world, &self.options, None);
        let of_route = |of: Admitted<'_>| {
            let (id, route) = (of.id, of.route);
            let age = Age { created: route.meta.created, key: id.key.clone() };
            let hosts = standing.hosts_of(id, &own.judged(&of));
            // Also where another object is in the way of the listener: its owner may remove that unreviewed.
            let behind = own.hosts_of(&standing, &of);
            let price = prices.of_paths(&hosts).saturating_add(prices.of_paths(&behind));
            let all = [&hosts, &behind].into_iter();
            reviews.charge(price).then(|| {
                let losses = all.flat_map(|hosts| self.losses(world, hosts, &age, id.kind));
                (id.clone(), losses.collect::<Vec<_>>())
            })
        };
        let all: Option<Vec<OfRoute>> = routes.into_iter().map(of_route).collect();
        Some(all?.into_iter().filter(|(_, losses)| !losses.is_empty()).collect())
    }
}

/// What is said to a namespace that had too many objects reviewed.
fn unchecked(namespace: &str) -> String {
    format!(
        "routes may get hosts of other namespaces by this ListenerSet, and namespace {namespace} had so many or such large objects \
         reviewed in the last minute that it was not checked: send it again in a minute"
    )
}
