//! How much of the controller's time each namespace has for what its changes cost.
//!
//! Shape:   a change is charged to its namespace before the world takes it over. What a namespace cannot pay waits, the
//!          latest form of each object only, and is taken over in the order in which it came; others' changes go on.
//!          Removals cost nothing and never wait.
//! Cost:    regular expressions that are new in an Ingress, by `oxigress_core::patterns::price_of`, and the reading of those
//!          that it had; certificates and revocation lists of a Secret.
//! Units:   nanoseconds, told from the objects, so every replica decides alike. What a removal brings back into the budget
//!          of the stock ([`crate::patterns::budget`]) is not charged again: at most as much as was charged for what is
//!          removed.
//! Exempt:  what is there at the start, which the caller does not ask about.

use crate::patterns::Meaning;
use crate::patterns::budget;
use oxigress_core::patterns::{price_of, price_of_reading};
use oxigress_objects::bucket::{Bucket, Rate};
use oxigress_objects::secret::Secret;
use oxigress_objects::{Kind, Name, Object, ObjectRef, Seen, World};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// What the changes of a namespace may cost: all that it may serve, once a minute.
pub const OF_NAMESPACE: Rate = Rate { full: budget::OF_NAMESPACE, period: Duration::from_mins(1) };
/// What reading a certificate costs.
const CERTIFICATE: u64 = 125_000;
/// What reading a byte of revocation lists costs.
const BYTE_OF_LISTS: u64 = 20;
/// Namespaces that are counted before those are forgotten that may ask for everything.
const MANY_NAMESPACES: usize = 1_000;

/// The changes that wait, and what each namespace may ask for.
#[derive(Default)]
pub struct Pace {
    prefix: String,
    namespaces: BTreeMap<Name, Namespace>,
    is_new: bool,
    delayed: u64,
}

struct Namespace {
    bucket: Bucket,
    waiting: BTreeMap<ObjectRef, Change>,
    /// The keys of `waiting`, the next to be taken over first.
    order: VecDeque<ObjectRef>,
}

/// A change and what is not yet paid of it.
struct Change {
    object: Object,
    due: Due,
}

#[derive(Clone, Copy)]
enum Due {
    /// What telling the price costs.
    Reading(u64),
    /// The rest of the price.
    Rest(u64),
}

impl Pace {
    /// Nothing waits. `prefix` is that of annotations.
    pub fn new(prefix: &str) -> Self {
        Pace { prefix: prefix.into(), ..Pace::default() }
    }

    /// What is taken over now; `None`: it waits.
    pub fn admit(&mut self, seen: Seen, world: &World, now: Instant) -> Option<Seen> {
        let (id, object) = seen;
        let name = &id.key.namespace;
        let Some(object) = object else {
            if let Some(namespace) = self.namespaces.get_mut(name) {
                self.is_new |= namespace.forget(&id);
            }
            return Some((id, None));
        };
        let reading = reading(&self.prefix, &id, &object, world);
        let is_waiting = |known: &Namespace| known.waiting.contains_key(&id);
        if reading == 0 && !self.namespaces.get(name).is_some_and(is_waiting) {
            return Some((id, Some(object)));
        }
        if self.namespaces.len() > MANY_NAMESPACES {
            self.namespaces
                .retain(|_, known| !known.order.is_empty() || !known.bucket.is_full(now));
        }
        let namespace = self.namespaces.entry(name.clone()).or_insert_with(|| Namespace {
            bucket: Bucket::full(OF_NAMESPACE, now),
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
        });
        let mut change = Change { object, due: Due::Reading(reading) };
        // Whoever waits goes first.
        if namespace.order.is_empty()
            && change.is_paid(&mut namespace.bucket, now, |of| rest(&self.prefix, &id, of, world))
        {
            return Some((id, Some(change.object)));
        }
        if namespace.waiting.insert(id.clone(), change).is_none() {
            namespace.order.push_back(id);
            self.delayed += 1;
            self.is_new = true;
        }
        None
    }

    /// What has waited and is taken over now.
    pub fn due(&mut self, world: &World, now: Instant) -> Vec<Seen> {
        let mut due = Vec::new();
        for namespace in self.namespaces.values_mut() {
            while let Some(id) = namespace.order.front().cloned() {
                let Some(change) = namespace.waiting.get_mut(&id) else { break };
                let rest = |of: &Object| rest(&self.prefix, &id, of, world);
                if !change.is_paid(&mut namespace.bucket, now, rest) {
                    break;
                }
                namespace.order.pop_front();
                let change = namespace.waiting.remove(&id);
                due.push((id, change.map(|change| change.object)));
            }
        }
        self.is_new |= !due.is_empty();
        due
    }

    /// When something may be due; `None`: nothing waits.
    pub fn due_at(&self, now: Instant) -> Option<Instant> {
        let first = |namespace: &Namespace| {
            let (Due::Reading(lacks) | Due::Rest(lacks)) =
                namespace.waiting.get(namespace.order.front()?)?.due;
            Some(now + namespace.bucket.wait(lacks, now))
        };
        self.namespaces.values().filter_map(first).min()
    }

    /// The objects whose changes wait, if they are others than when this was last asked.
    pub fn take_waiting(&mut self) -> Option<BTreeSet<ObjectRef>> {
        let all = self.namespaces.values().flat_map(|namespace| namespace.waiting.keys());
        std::mem::take(&mut self.is_new).then(|| all.cloned().collect())
    }

    /// How many changes wait.
    pub fn waiting(&self) -> usize {
        self.namespaces.values().map(|namespace| namespace.waiting.len()).sum()
    }

    /// How many changes have waited since the start, or wait.
    pub fn delayed(&self) -> u64 {
        self.delayed
    }
}

impl Namespace {
    /// Whether a change of it waited.
    fn forget(&mut self, id: &ObjectRef) -> bool {
        self.order.retain(|waiting| waiting != id);
        self.waiting.remove(id).is_some()
    }
}

impl Change {
    /// Draws what it costs, as far as there is; `rest` tells the price beyond its own costs.
    fn is_paid(&mut self, from: &mut Bucket, now: Instant, rest: impl Fn(&Object) -> u64) -> bool {
        if let Due::Reading(reading) = self.due {
            if !from.draw(reading.min(OF_NAMESPACE.full), now) {
                return false;
            }
            self.due = Due::Rest(rest(&self.object));
        }
        match self.due {
            Due::Rest(rest) => from.draw(rest.min(OF_NAMESPACE.full), now),
            Due::Reading(_) => false,
        }
    }
}

/// What telling the price of an object costs; 0: taking it over costs nothing.
fn reading(prefix: &str, id: &ObjectRef, object: &Object, world: &World) -> u64 {
    match object {
        Object::Ingress(new) => {
            let old = world.ingresses.get(&id.key);
            match old == Some(new) {
                true => 0,
                false => budget::price_by(new, prefix, |_, text| Ok(price_of_reading(text))),
            }
        }
        Object::Secret(new) => {
            let old = world.secrets.get(&id.key).map(|history| &history.secret);
            price_of_secret(old, new)
        }
        Object::ConfigMap(_)
        | Object::EndpointSlice(_)
        | Object::IngressClass(_)
        | Object::Namespace(_)
        | Object::Service(_) => 0,
    }
}

/// What taking an object over costs beside that.
fn rest(prefix: &str, id: &ObjectRef, object: &Object, world: &World) -> u64 {
    let Object::Ingress(new) = object else { return 0 };
    let old = world.ingresses.get(&id.key);
    let paths = old.into_iter().flat_map(|old| &old.rules).flat_map(|rule| &rule.paths);
    let known: HashSet<&str> = paths.map(|path| path.path.as_str()).collect();
    budget::price_by(new, prefix, |meaning, text| match meaning {
        Meaning::Path if known.contains(text) => Ok(0),
        Meaning::Path | Meaning::Value => price_of(text),
    })
}

fn price_of_secret(old: Option<&Secret>, new: &Secret) -> u64 {
    let changed = |name: &str| {
        let text = new.fields.text(name).unwrap_or_default();
        let is_known = old.is_some_and(|old| old.fields.text(name) == Some(text));
        if is_known { "" } else { text }
    };
    let certificates = changed("ca.crt").matches("-----BEGIN ").count() as u64;
    certificates * CERTIFICATE + changed("ca.crl").len() as u64 * BYTE_OF_LISTS
}

/// Which objects are told that their changes wait, in words.
pub fn message(kind: Kind) -> String {
    let what = match kind {
        Kind::Secret => "certificates",
        _ => "regular expressions",
    };
    format!(
        "its last change is not served yet: the {what} that its namespace has changed lately take more than {} ms to \
         read, what a namespace may ask for in a minute; it is taken over by itself, change less often or use fewer",
        OF_NAMESPACE.full / 1_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::ingress::{Ingress, Path, PathType, Port, Rule, Target};
    use oxigress_objects::secret::{Fields, Offer};
    use oxigress_objects::{Changed, Key};
    use std::sync::Arc;

    /// Some 100 milliseconds of patterns, others for each `version`.
    fn dear(version: usize) -> Object {
        let path = |number| Path {
            path: format!(r"/{version}/{number}/\p{{L}}"),
            path_type: PathType::ImplementationSpecific,
            target: Target::Service { name: "s".into(), port: Port::Number(80) },
        };
        let rules = vec![Rule { host: "a.test".into(), paths: (0..300).map(path).collect() }];
        Object::Ingress(Arc::new(Ingress { rules, ..Ingress::default() }))
    }

    fn id(namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(Kind::Ingress, Key::new(namespace, name))
    }

    struct Bench {
        pace: Pace,
        world: World,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Bench { pace: Pace::new("x.io"), world: World::default(), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        /// Whether it is taken over at once.
        fn see(&mut self, id: &ObjectRef, object: Option<Object>, seconds: u64) -> bool {
            let at = self.at(seconds);
            let admitted = self.pace.admit((id.clone(), object), &self.world, at);
            let is_admitted = admitted.is_some();
            if let Some(seen) = admitted {
                self.world.apply(seen, &mut Changed::default());
            }
            is_admitted
        }

        fn due(&mut self, seconds: u64) -> Vec<String> {
            let due = self.pace.due(&self.world, self.at(seconds));
            let names = due.iter().map(|(id, _)| id.key.name.to_string()).collect();
            for seen in due {
                self.world.apply(seen, &mut Changed::default());
            }
            names
        }
    }

    #[test]
    fn a_namespace_that_changes_much_waits_and_others_do_not() {
        let mut bench = Bench::new();
        let one = id("a", "one");
        let taken = (0..40).take_while(|version| bench.see(&one, Some(dear(*version)), 0)).count();
        assert!((17..=20).contains(&taken), "{taken} in two seconds of some 100 milliseconds each");
        assert!(bench.see(&id("b", "other"), Some(dear(0)), 0), "another namespace");
        assert!(!bench.see(&id("a", "two"), Some(dear(1)), 0));
        assert!(bench.see(&id("a", "plain"), Some(Object::Ingress(Arc::default())), 0));
        assert_eq!(bench.pace.waiting(), 2);
        let waiting = bench.pace.take_waiting().unwrap();
        assert_eq!(waiting, [one.clone(), id("a", "two")].into());
        assert_eq!(bench.pace.take_waiting(), None);
        assert!(bench.due(0).is_empty());
        let due_in = bench.pace.due_at(bench.start).unwrap().duration_since(bench.start);
        assert!(due_in > Duration::ZERO && due_in < Duration::from_secs(5), "{due_in:?}");
        // The latest form counts, and whoever came first is first.
        assert!(!bench.see(&one, Some(dear(99)), 0));
        let due: Vec<_> = (1..20).flat_map(|second| bench.due(second)).collect();
        assert_eq!(due, ["one", "two"]);
        assert!(bench.world.ingresses[&one.key].rules[0].paths[0].path.starts_with("/99/"));
        assert_eq!((bench.pace.waiting(), bench.pace.delayed()), (0, 2));
        assert_eq!(bench.pace.due_at(bench.at(7)), None);
    }

    #[test]
    fn a_removal_never_waits_and_takes_what_waits_with_it() {
        let mut bench = Bench::new();
        let one = id("a", "one");
        while bench.see(&one, Some(dear(bench.pace.delayed() as usize)), 0) {
            assert!(bench.see(&one, None, 0));
        }
        assert_eq!(bench.pace.waiting(), 1);
        assert!(bench.see(&one, None, 0));
        assert_eq!(bench.pace.take_waiting(), Some(BTreeSet::new()));
        assert!(bench.due(600).is_empty());
    }

    #[test]
    fn what_an_object_had_before_costs_its_reading_only() {
        let mut bench = Bench::new();
        let one = id("a", "one");
        assert!(bench.see(&one, Some(dear(0)), 0));
        let cost =
            |bench: &Bench, object: &Object| match reading("x.io", &one, object, &bench.world) {
                0 => 0,
                reading => reading + rest("x.io", &one, object, &bench.world),
            };
        assert_eq!(cost(&bench, &dear(0)), 0, "the same again");
        let Object::Ingress(mut same) = dear(0) else { unreachable!() };
        Arc::make_mut(&mut same).annotations.insert("x.io/app-root".into(), "/x".into());
        let (again, new) = (cost(&bench, &Object::Ingress(same)), cost(&bench, &dear(1)));
        assert!(0 < again && again < new / 3, "{again} {new}");
    }

    #[test]
    fn certificates_of_a_secret_are_charged_when_they_change() {
        let secret = |count: usize, password: &str| {
            let text = "-----BEGIN CERTIFICATE-----\n".repeat(count);
            let fields = [("ca.crt", text.as_str()), ("auth", password)];
            let fields = fields.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
            Secret { offer: Offer::WithoutPair, fields: Arc::new(Fields::new(fields.into())) }
        };
        assert_eq!(price_of_secret(None, &secret(200, "")), 25_000_000);
        assert_eq!(price_of_secret(Some(&secret(200, "a")), &secret(200, "b")), 0);
        assert_eq!(price_of_secret(Some(&secret(199, "")), &secret(200, "")), 25_000_000);
    }
}
