//! Objects of which a namespace has more than it may: the newest are kept apart, and nobody who reads the others looks at them.
//!
//! Cost:    of a change some look-ups, however many are beyond a limit. Of what is served from the others none.
//! Tenancy: each object of the namespace counts, whatever it names and whoever serves it. So an edit never moves the limit: who
//!          could move it would have others read again, for which nobody pays.

use super::{GatewayObjects, HttpRouteSpec, ListenerSet, ListenerSetSpec, Resource, Route};
use crate::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most routes of a namespace, of all kinds together: whatever is built looks at each, for some 10 µs.
pub const MAX_ROUTES: usize = 10_000;
/// Most ListenerSets of a namespace: as many as the listeners that it may have.
pub const MAX_SETS: usize = 1_024;

/// The objects that are beyond the limits of their namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beyond {
    routes: Apart<ObjectRef, HttpRouteSpec>,
    sets: Apart<Key, ListenerSetSpec>,
}

impl Beyond {
    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = ObjectRef> {
        let sets = self.sets.objects.keys();
        let sets = sets.map(|key| ObjectRef::new(Kind::ListenerSet, key.clone()));
        sets.chain(self.routes.objects.keys().cloned())
    }
}

impl GatewayObjects {
    /// Takes over a route as it is now; notes which routes are there newly, otherwise, or no more.
    pub(crate) fn set_route(
        &mut self,
        id: &ObjectRef,
        new: Option<Arc<Route>>,
        changed: &mut BTreeSet<ObjectRef>,
    ) {
        let of = (&id.key.namespace, id);
        self.beyond.routes.replace(&mut self.routes, MAX_ROUTES, of, new, changed);
    }

    /// Takes over a ListenerSet, likewise.
    pub(crate) fn set_listeners(
        &mut self,
        key: &Key,
        new: Option<Arc<ListenerSet>>,
        changed: &mut BTreeSet<Key>,
    ) {
        self.beyond.sets.replace(&mut self.sets, MAX_SETS, (&key.namespace, key), new, changed);
    }

    /// A route, also one that is beyond the limit.
    pub fn any_route(&self, id: &ObjectRef) -> Option<&Arc<Route>> {
        self.routes.get(id).or_else(|| self.beyond.routes.objects.get(id))
    }

    /// A ListenerSet, also one that is beyond the limit.
    pub fn any_set(&self, key: &Key) -> Option<&Arc<ListenerSet>> {
        self.sets.get(key).or_else(|| self.beyond.sets.objects.get(key))
    }

    /// Whether an object is beyond a limit.
    pub fn is_beyond(&self, id: &ObjectRef) -> bool {
        match id.kind {
            Kind::ListenerSet => self.beyond.sets.objects.contains_key(&id.key),
            _ => self.beyond.routes.objects.contains_key(id),
        }
    }
}

/// Objects that are beyond the limits of their namespaces, and the ages of those that are not.
#[derive(Clone, Debug, PartialEq)]
struct Apart<K, S> {
    objects: BTreeMap<K, Arc<Resource<S>>>,
    namespaces: BTreeMap<Name, Ages<K>>,
}

impl<K, S> Default for Apart<K, S> {
    fn default() -> Self {
        Apart { objects: BTreeMap::new(), namespaces: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, S: PartialEq> Apart<K, S> {
    /// Takes over an object, among those `within` the limit or here. Notes it, and others that come in or go out for it.
    fn replace(
        &mut self,
        within: &mut BTreeMap<K, Arc<Resource<S>>>,
        most: usize,
        (namespace, key): (&Name, &K),
        new: Option<Arc<Resource<S>>>,
        changed: &mut BTreeSet<K>,
    ) {
        if within.get(key).or_else(|| self.objects.get(key)) == new.as_ref() {
            return;
        }
        let ages = self.namespaces.entry(namespace.clone()).or_default();
        if let Some(old) = within.remove(key).or_else(|| self.objects.remove(key)) {
            ages.remove(&(old.meta.created, key.clone()));
        }
        if let Some(new) = new {
            ages.beyond.insert((new.meta.created, key.clone()));
            self.objects.insert(key.clone(), new);
        }
        changed.insert(key.clone());
        while let Some(due) = ages.pop_due(most) {
            within.extend(self.objects.remove_entry(&due.1));
            changed.insert(due.1.clone());
            ages.within.insert(due);
            if ages.within.len() > most
                && let Some(last) = ages.within.pop_last()
            {
                self.objects.extend(within.remove_entry(&last.1));
                changed.insert(last.1.clone());
                ages.beyond.insert(last);
            }
        }
        if ages.within.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

/// When the objects of a namespace were made: of the same second the first by name is the older one.
#[derive(Clone, Debug, PartialEq)]
struct Ages<K> {
    within: BTreeSet<(i64, K)>,
    beyond: BTreeSet<(i64, K)>,
}

impl<K> Default for Ages<K> {
    fn default() -> Self {
        Ages { within: BTreeSet::new(), beyond: BTreeSet::new() }
    }
}

impl<K: Ord> Ages<K> {
    fn remove(&mut self, age: &(i64, K)) {
        if !self.within.remove(age) {
            self.beyond.remove(age);
        }
    }

    /// The oldest that is beyond the limit, if there is room for it or it is older than one that is not.
    fn pop_due(&mut self, most: usize) -> Option<(i64, K)> {
        let first = self.beyond.first()?;
        let is_due = self.within.len() < most || self.within.last() > Some(first);
        if is_due { self.beyond.pop_first() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    /// Objects of one namespace, each a name and when it was made.
    #[derive(Default)]
    struct Bench {
        within: BTreeMap<Key, Arc<Resource<u8>>>,
        apart: Apart<Key, u8>,
        all: BTreeMap<Key, Arc<Resource<u8>>>,
    }

    impl Bench {
        /// Takes an object over; answers which have changed, and looks that the oldest are within.
        fn see(&mut self, name: &str, new: Option<(i64, u8)>) -> Vec<String> {
            let key = Key::new("a", name);
            let new = new.map(|(created, spec)| {
                let mut new = Resource { spec, ..Resource::default() };
                new.meta.created = created;
                Arc::new(new)
            });
            let mut changed = BTreeSet::new();
            let of = (&key.namespace, &key);
            self.apart.replace(&mut self.within, MOST, of, new.clone(), &mut changed);
            match new {
                Some(new) => drop(self.all.insert(key, new)),
                None => drop(self.all.remove(&key)),
            }
            let mut by_age: Vec<_> = self.all.iter().collect();
            by_age.sort_by_key(|(key, it)| (it.meta.created, (*key).clone()));
            let (first, rest) = by_age.split_at(by_age.len().min(MOST));
            let is = |all: &BTreeMap<Key, Arc<Resource<u8>>>, expected: &[(&Key, &Arc<_>)]| {
                all.iter().eq(expected.iter().copied().collect::<BTreeMap<_, _>>())
            };
            assert!(is(&self.within, first) && is(&self.apart.objects, rest), "{name}");
            assert_eq!(self.apart.namespaces.is_empty(), self.all.is_empty());
            changed.into_iter().map(|key| key.name.to_string()).collect()
        }
    }

    #[test]
    fn the_newest_objects_of_a_namespace_are_kept_apart_until_there_is_room() {
        let mut bench = Bench::default();
        for (n, name) in (0..).zip(["a", "b", "c", "d", "e"]) {
            assert_eq!(bench.see(name, Some((n, 0))), [name], "those beyond are seen, too");
        }
        assert!(bench.see("d", Some((3, 0))).is_empty(), "it is what it was");
        assert_eq!(bench.see("e", Some((4, 1))), ["e"]);
        assert_eq!(bench.see("b", Some((1, 1))), ["b"], "an edit moves nobody");
        assert_eq!(bench.see("a", None), ["a", "d"], "there is room for one more");
        assert_eq!(bench.see("0", Some((1, 0))), ["0", "d"], "it is older by its name");
        assert_eq!(bench.see("0", Some((9, 0))), ["0", "d"], "it was made anew");
        assert_eq!(bench.see("e", None), ["e"]);
        for name in ["0", "b", "c", "d"] {
            assert!(bench.see(name, None).contains(&name.to_owned()));
        }
    }

    #[test]
    fn routes_of_all_kinds_are_counted_together_and_each_namespace_by_itself() {
        let (mut objects, mut changed) = (GatewayObjects::default(), BTreeSet::new());
        let id = |kind, namespace: &str, n: usize| {
            ObjectRef::new(kind, Key::new(namespace, format!("r{n}")))
        };
        let route = |created| {
            let mut route = Route::default();
            route.meta.created = created;
            Some(Arc::new(route))
        };
        for n in 0..MAX_ROUTES {
            objects.set_route(&id(Kind::HTTPRoute, "a", n), route(0), &mut changed);
        }
        let [last, other] = ["a", "b"].map(|namespace| id(Kind::TLSRoute, namespace, 0));
        for id in [&last, &other] {
            objects.set_route(id, route(1), &mut changed);
        }
        assert!(objects.is_beyond(&last) && !objects.is_beyond(&other));
        assert!(objects.any_route(&last).is_some() && objects.names().contains(&last));
        assert_eq!((objects.routes.len(), changed.len()), (MAX_ROUTES + 1, MAX_ROUTES + 2));
        objects.set_route(&id(Kind::HTTPRoute, "a", 7), None, &mut changed);
        assert!(!objects.is_beyond(&last));
    }
}
