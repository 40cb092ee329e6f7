//! The hosts that are written in objects which are stored and not in force, such as those whose changes wait.

use super::{Pace, Payer};
use crate::Translator;
use crate::annotation::is_of_names;
use crate::claim::age::Age;
use crate::ingress::hosts_to_have;
use crate::relation::Relation;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::Listener;
use oxigress_objects::ingress::{Ingress, Rule};
use oxigress_objects::{Key, Kind, Name, Object, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

/// Objects that are stored and not in force, and the hosts that are written in them. Whether they would get one is not told here:
/// it changes with what others have, and costs more.
///
/// Cost:    a look finds one object, however many of the namespace name the host.
#[derive(Default)]
pub struct Named {
    created: BTreeMap<ObjectRef, i64>,
    hosts: Relation<Entry, HostPattern>,
}

/// An object among those that name a host: those of a namespace and a kind stand together, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    namespace: Name,
    kind: Option<Kind>,
    created: i64,
    name: Name,
}

impl Entry {
    fn of(id: &ObjectRef, created: i64) -> Self {
        let Key { namespace, name } = id.key.clone();
        Entry { namespace, kind: Some(id.kind), created, name }
    }

    /// What comes after all others of its namespace and kind.
    fn last_of_kind(&self) -> Self {
        Entry { created: i64::MAX, ..self.clone() }
    }
}

impl Named {
    /// Takes note of the hosts that an object names, which was made then; none: it is in force, or gone.
    pub fn set(&mut self, id: &ObjectRef, created: i64, hosts: BTreeSet<HostPattern>) {
        if let Some(old) = self.created.remove(id)
            && old != created
        {
            self.hosts.set(&Entry::of(id, old), BTreeSet::new());
        }
        if !hosts.is_empty() {
            self.created.insert(id.clone(), created);
        }
        self.hosts.set(&Entry::of(id, created), hosts);
    }

    /// As [`Named::set`], with these hosts beside those that the object names already.
    pub fn add(&mut self, id: &ObjectRef, created: i64, mut hosts: BTreeSet<HostPattern>) {
        hosts.extend(self.hosts.of(&Entry::of(id, created)).cloned());
        self.set(id, created, hosts);
    }

    /// The object names these hosts no more; answers when it was made.
    pub fn remove(&mut self, id: &ObjectRef, hosts: &BTreeSet<HostPattern>) -> Option<i64> {
        let created = *self.created.get(id)?;
        let entry = Entry::of(id, created);
        let all = self.hosts.of(&entry);
        let left = all.filter(|host| !hosts.contains(host)).cloned().collect();
        self.set(id, created, left);
        Some(created)
    }

    /// The objects of a namespace that name a host.
    pub fn of_namespace<'n>(
        &'n self,
        namespace: &Name,
        host: &'n HostPattern,
    ) -> impl Iterator<Item = ObjectRef> + 'n {
        let mut last =
            Entry { namespace: namespace.clone(), created: i64::MIN, ..Entry::default() };
        iter::from_fn(move || {
            let entry = self.hosts.by_after(host, &last)?;
            let kind = entry.kind.filter(|_| entry.namespace == last.namespace)?;
            last = entry.clone();
            Some(ObjectRef::new(kind, Key::new(&entry.namespace, &entry.name)))
        })
    }

    /// Whether this object, made then, names a host.
    pub fn names_since(&self, id: &ObjectRef, created: i64, host: &HostPattern) -> bool {
        self.hosts.relates(&Entry::of(id, created), host)
    }

    /// Whether this object names a host.
    pub fn names(&self, id: &ObjectRef, host: &HostPattern) -> bool {
        let made = self.created.get(id);
        made.is_some_and(|made| self.hosts.relates(&Entry::of(id, *made), host))
    }

    /// Whether an object names a host.
    pub fn has(&self, host: &HostPattern) -> bool {
        self.hosts.has(host)
    }

    /// The objects of kinds that count which name a host and would take it from one of this age, of each namespace and kind the
    /// oldest first.
    pub fn older<'n>(
        &'n self,
        host: &'n HostPattern,
        age: &'n Age,
        counts: impl Fn(Kind) -> bool + 'n,
    ) -> impl Iterator<Item = ObjectRef> + 'n {
        let mut last = Entry::default();
        iter::from_fn(move || {
            loop {
                let entry = self.hosts.by_after(host, &last)?;
                let Entry { namespace, kind, created, name } = entry;
                let key = Key::new(namespace, name);
                let age_of = Age { created: *created, key: key.clone() };
                let kind = kind.filter(|kind| counts(*kind) && age_of.takes_from(age));
                // Those after one that is younger are younger still.
                last = if kind.is_some() { entry.clone() } else { entry.last_of_kind() };
                if let Some(kind) = kind {
                    return Some(ObjectRef::new(kind, key));
                }
            }
        })
    }
}

#[cfg(test)]
thread_local! {
    /// How often the hosts of an object were read.
    static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often the hosts of an object were read since this was last asked.
#[cfg(test)]
pub fn take_hosts_read() -> usize {
    READ.take()
}

/// The hosts that an object names, an Ingress also as other names of its hosts. A canary's are others'.
pub fn hosts_of(
    translator: &Translator,
    world: &World,
    (id, object): (&ObjectRef, Option<&Object>),
) -> BTreeSet<HostPattern> {
    #[cfg(test)]
    READ.set(READ.get() + 1);
    let of_listeners =
        |all: &[Listener]| parsed(all.iter().filter_map(|one| one.hostname.as_deref()));
    match object {
        Some(Object::Ingress(ingress)) => {
            let Translator { options, settings, .. } = translator;
            hosts_to_have(world, options, settings, (&id.key, ingress))
        }
        Some(Object::Route(route)) => parsed(route.spec.hostnames.iter().map(String::as_str)),
        Some(Object::Gateway(gateway)) => of_listeners(&gateway.spec.listeners),
        Some(Object::ListenerSet(set)) => of_listeners(&set.spec.listeners),
        _ => BTreeSet::new(),
    }
}

/// Whether two forms of an object write the same hosts, told without reading them: what waits may be edited without end.
pub(super) fn write_same(prefix: &str, old: &Object, new: &Object) -> bool {
    created(old) == created(new)
        && match (old, new) {
            (Object::Ingress(old), Object::Ingress(new)) => {
                let hosts = |(old, new): (&Rule, &Rule)| old.host == new.host;
                old.rules.len() == new.rules.len()
                    && old.rules.iter().zip(&new.rules).all(hosts)
                    && old.default_backend.is_some() == new.default_backend.is_some()
                    && names_written(prefix, old).eq(names_written(prefix, new))
            }
            (Object::Route(old), Object::Route(new)) => old.spec.hostnames == new.spec.hostnames,
            _ => false,
        }
}

/// The annotations that say something about the names of hosts.
fn names_written<'i>(
    prefix: &'i str,
    ingress: &'i Ingress,
) -> impl Iterator<Item = (&'i str, &'i String)> {
    let name = move |key: &'i str| key.strip_prefix(prefix)?.strip_prefix('/');
    let all = ingress.annotations.iter();
    let all = all.filter_map(move |(key, text)| Some((name(key)?, text)));
    all.filter(|(name, _)| is_of_names(name))
}

fn parsed<'h>(hosts: impl Iterator<Item = &'h str>) -> BTreeSet<HostPattern> {
    hosts.filter_map(|host| HostPattern::parse(host).ok()).collect()
}

/// When the object was made that names hosts, in seconds since 1970; `None`: it names none.
pub fn created(object: &Object) -> Option<i64> {
    match object {
        Object::Ingress(ingress) => Some(ingress.created),
        Object::Route(route) => Some(route.meta.created),
        Object::Gateway(gateway) => Some(gateway.meta.created),
        Object::ListenerSet(set) => Some(set.meta.created),
        _ => None,
    }
}

impl Pace {
    /// Whether an object names a host and waits.
    pub(crate) fn names(&self, id: &ObjectRef, host: &HostPattern) -> bool {
        self.named.names(id, host) || self.parked.names(id, host)
    }

    /// Whether an object that waits names a host.
    pub(crate) fn has_waiting_for(&self, host: &HostPattern) -> bool {
        self.named.has(host)
    }

    /// The objects that name a host and wait, as they are to be, if they are of kinds that count and would take it from one of this
    /// age.
    pub(crate) fn waiting_for<'p>(
        &'p self,
        host: &'p HostPattern,
        age: &'p Age,
        counts: impl Fn(Kind) -> bool + 'p,
    ) -> impl Iterator<Item = (ObjectRef, &'p Object)> {
        self.named.older(host, age, counts).filter_map(|id| {
            let change = self.shares.get(&Payer::of(&id))?.waiting(&id)?;
            Some((id, change.object.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_namespace_the_oldest_come_first_and_those_that_are_younger_are_passed_over() {
        let host = HostPattern::parse("a.test").unwrap();
        let id =
            |kind, namespace: &str, name: &str| ObjectRef::new(kind, Key::new(namespace, name));
        let mut named = Named::default();
        let mut set = |kind, (namespace, name): (&str, &str), created| {
            named.set(&id(kind, namespace, name), created, BTreeSet::from([host.clone()]));
        };
        for n in 0..50 {
            set(Kind::HTTPRoute, ("a", &format!("r{n}")), 10);
            set(Kind::Ingress, ("m", &format!("i{n}")), 1);
        }
        set(Kind::HTTPRoute, ("a", "z"), 3);
        set(Kind::HTTPRoute, ("a", "y"), 4);
        set(Kind::ListenerSet, ("a", "s"), 1);
        set(Kind::HTTPRoute, ("z", "r"), 5);
        set(Kind::HTTPRoute, ("z", "gone"), 1);
        set(Kind::HTTPRoute, ("z", "anew"), 1);
        // Made anew, or gone.
        set(Kind::HTTPRoute, ("z", "anew"), 7);
        named.set(&id(Kind::HTTPRoute, "z", "gone"), 1, BTreeSet::new());
        let older = |created| {
            let age = Age { created, key: Key::new("m", "i") };
            let all = named.older(&host, &age, |kind| kind != Kind::ListenerSet);
            all.map(|id| id.key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(older(5), ["a/z", "a/y"], "of the same age the first by name is older");
        assert_eq!(older(6), ["a/z", "a/y", "z/r"]);
        assert_eq!(older(8), ["a/z", "a/y", "z/r", "z/anew"]);
        assert_eq!(older(1), [""; 0]);
    }
}
