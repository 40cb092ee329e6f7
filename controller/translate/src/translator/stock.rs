//! What the Ingresses of a namespace have together: patterns that are compiled, and paths with what is read for them.
//!
//! Reason:  many Ingresses may name one Secret, ConfigMap or Service, and are all read and merged again when that changes. With
//!          a limit of their paths no change has more read than what a namespace may have changed in a minute.

use super::Translator;
use super::known::copies_of;
use crate::ingress::class;
use crate::pace::price::bytes::{bytes_of, named_by};
use crate::pace::price::{INGRESS, PATH, RULE};
use oxigress_core::model::MAX_RULES;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, ObjectRef, World};
use std::collections::BTreeSet;

/// The most paths of a namespace's Ingresses: what is read and merged again within two seconds.
const MOST_PATHS: u64 = 200_000;
/// What an Ingress counts as beside its paths, by the time that it takes to read.
const PATHS_OF_INGRESS: u64 = INGRESS / (PATH + RULE);
/// So many bytes of the Secrets and ConfigMaps that an Ingress names are read in the time of a path.
const BYTES_OF_PATH: u64 = 1_024;

impl Translator {
    /// Counts what changed Ingresses have; answers which of others are beyond a limit since, or no more.
    pub(super) fn count_stock(&mut self, world: &World, changed: &BTreeSet<Key>) -> BTreeSet<Key> {
        let options = &self.options;
        let ours = |key: &Key| {
            let ingress = world.ingresses.get(key).map(AsRef::as_ref);
            ingress.filter(|ingress| {
                let choice = class::choose(world, options, key, ingress);
                matches!(choice, class::Choice::Ours)
            })
        };
        let all: Vec<_> = changed.iter().map(|key| (key, ours(key))).collect();
        let prefix = &options.annotations_prefix;
        let mut turned = self.pattern_budget.update(prefix, all.iter().copied());
        let counted = all.into_iter().map(|(key, one)| {
            (key, one.map(|one| (one.created, size_of(world, prefix, key, one))))
        });
        turned.extend(self.path_stock.update(MOST_PATHS, counted));
        turned
    }

    /// The Ingresses that would be read again because there is room for them no longer, or again, with this one as it would be.
    pub(crate) fn turned_by(
        &self,
        world: &World,
        key: &Key,
        new: Option<&Ingress>,
    ) -> BTreeSet<&Key> {
        let prefix = &self.options.annotations_prefix;
        let mut all = self.pattern_budget.would_turn(prefix, key, new);
        let item = new.map(|one| (one.created, size_of(world, prefix, key, one)));
        all.append(&mut self.path_stock.would_turn(MOST_PATHS, key, item));
        all
    }

    /// Why nothing is served of an Ingress for whose paths its namespace has no room.
    pub(super) fn refuse_paths(&self, key: &Key) -> Option<Note> {
        self.path_stock.is_over(key).then(|| no_room(key))
    }

    /// Whether there would be room for a candidate in the place of its older self, which it may always do with less, and for the
    /// others still.
    pub(crate) fn check_paths(
        &self,
        world: &World,
        key: &Key,
        new: &Ingress,
    ) -> Result<(), String> {
        let size = size_of(world, &self.options.annotations_prefix, key, new);
        let item = (new.created, size);
        let old = self.path_stock.item(key).filter(|(created, _)| *created == new.created);
        let is_larger = old.is_none_or(|(_, old)| size > old);
        if is_larger && self.path_stock.would_be_over(MOST_PATHS, key, item) {
            return Err(no_room(key).message);
        }
        match self.path_stock.pushed_out(MOST_PATHS, key, item) {
            Some(other) => Err(format!(
                "with it the Ingresses of namespace {} have more than {MOST_PATHS} paths together ({}), and nothing of the \
                 newer Ingress {} would be served: {REMEDY}",
                key.namespace, COUNTED, other.name
            )),
            None => Ok(()),
        }
    }
}

/// The paths of an Ingress that are read, and what counts as some.
fn size_of(world: &World, prefix: &str, key: &Key, ingress: &Ingress) -> u64 {
    let named = bytes_named(world, prefix, key, ingress) / BYTES_OF_PATH;
    PATHS_OF_INGRESS + paths_of(prefix, ingress) + named
}

/// The paths of an Ingress that are read, and their copies for its aliases. A rule without paths and an Ingress without rules
/// are one.
fn paths_of(prefix: &str, ingress: &Ingress) -> u64 {
    let paths: usize = ingress.rules.iter().map(|rule| rule.paths.len().max(1)).sum();
    (paths.clamp(1, MAX_RULES) + copies_of(prefix, ingress)) as u64
}

/// The bytes of what annotations name in the Ingress's own namespace: others' objects are no reason to refuse it.
fn bytes_named(world: &World, prefix: &str, key: &Key, ingress: &Ingress) -> u64 {
    let named: BTreeSet<ObjectRef> = named_by(prefix, key, ingress)
        .filter(|object| object.key.namespace == key.namespace)
        .collect();
    named.iter().map(|object| bytes_of(world, object)).sum()
}

const _: () = assert!(PATHS_OF_INGRESS == 6);
/// What counts as paths.
const COUNTED: &str = "each Ingress counts as 6 more, and copies for server-alias and each KiB of the Secrets and ConfigMaps that \
    they name count too";
const REMEDY: &str = "use fewer paths, or move Ingresses to another namespace";

fn no_room(key: &Key) -> Note {
    Note::rejected(format!(
        "the Ingresses of namespace {} have more than {MOST_PATHS} paths together ({COUNTED}), and this one is among the newest: \
         nothing of it is served: {REMEDY}",
        key.namespace
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::ingress::take_paths_read;
    use crate::pace::price::{PATH, Prices};
    use oxigress_core::model::HostPattern;
    use oxigress_objects::ingress::{Path, PathType, Port, Rule, Target};
    use oxigress_objects::secret::{Fields, Offer, Secret};
    use oxigress_objects::verdict::Severity;
    use oxigress_objects::{Changed, ConfigMap, Kind, Object};
    use std::sync::Arc;

    /// One that names a Secret.
    fn ingress(created: i64, paths: usize) -> Ingress {
        let path = |n| Path {
            path: format!("/{n}"),
            path_type: PathType::Prefix,
            target: Target::Service { name: "s".into(), port: Port::Number(80) },
        };
        let paths = (0..paths).map(path).collect();
        let rules = vec![Rule { host: format!("h{created}.test"), paths }];
        let named = [("auth-type", "basic"), ("auth-secret", "users")];
        let mut ingress = Ingress { created, rules, ..Ingress::default() };
        for (name, value) in named {
            ingress.annotations.insert(format!("x.io/{name}"), value.into());
        }
        ingress.annotations.insert("kubernetes.io/ingress.class".into(), "nginx".into());
        ingress
    }

    struct Bench {
        world: World,
        translator: Translator,
    }

    impl Bench {
        fn put(&mut self, namespace: &str, name: &str, ingress: Option<Ingress>) {
            let id = ObjectRef::new(Kind::Ingress, Key::new(namespace, name));
            self.see(id, ingress.map(|ingress| Object::Ingress(Arc::new(ingress))));
        }

        fn see(&mut self, id: ObjectRef, object: Option<Object>) {
            let mut changed = Changed::default();
            self.world.apply((id, object), &mut changed);
            self.translator.update(&self.world, &changed);
        }

        fn is_served(&self, created: i64) -> bool {
            let host = HostPattern::parse(&format!("h{created}.test")).unwrap();
            // A host without paths has the root.
            self.translator.snapshot().servers.get(&host).is_some_and(|it| it.rules.len() > 1)
        }
    }

    /// One that counts for nearly 50,000 paths, since it has 99 aliases, which are none.
    fn quarter(created: i64) -> Ingress {
        let mut ingress = ingress(created, 499);
        ingress.annotations.insert("x.io/server-alias".into(), ["-"; 99].join(","));
        ingress
    }

    #[test]
    fn the_newest_ingresses_of_a_namespace_are_refused_until_there_is_room_for_their_paths() {
        let options = Options { annotations_prefix: "x.io".into(), ..Options::default() };
        let (world, translator) = (World::default(), Translator::new(options));
        let mut bench = Bench { world, translator };
        for created in 1..=5 {
            bench.put("a", &format!("i{created}"), Some(quarter(created)));
        }
        bench.put("b", "other", Some(ingress(6, 10)));
        let served = |bench: &Bench| (1..=6).filter(|n| bench.is_served(*n)).collect::<Vec<_>>();
        assert_eq!(served(&bench), [1, 2, 3, 4, 6]);
        let mut notes = bench.translator.notes().filter(|(id, _)| *id.key.name == *"i5");
        let (_, note) = notes.find(|(_, note)| note.severity == Severity::Rejected).unwrap();
        assert!(note.message.contains("namespace a have more than 200000 paths"), "{note:?}");
        drop(notes);
        // Its host is nobody else's for that.
        bench.put("b", "stranger", Some(Ingress { created: 7, ..ingress(5, 1) }));
        let host = HostPattern::parse("h5.test").unwrap();
        let owner = |bench: &Bench| bench.translator.owner_of(&host).unwrap().0.clone();
        assert_eq!(owner(&bench), Key::new("a", "i5"));
        bench.put("b", "stranger", None);
        // No change has more read than there is room for.
        take_paths_read();
        let users = ObjectRef::new(Kind::Secret, Key::new("a", "users"));
        let secret = Secret { offer: Offer::WithoutPair, fields: Arc::new(Fields::default()) };
        for object in [Some(Object::Secret(secret)), None] {
            bench.see(users.clone(), object);
            assert_eq!(take_paths_read(), 4 * 499);
        }
        // Nor is it admitted, but in the place of an older one.
        let fits = |bench: &Bench, name: &str, of: &Ingress| {
            bench.translator.check_paths(&bench.world, &Key::new("a", name), of).is_ok()
        };
        assert!(fits(&bench, "i4", &quarter(4)) && !fits(&bench, "i4", &quarter(7)));
        assert!(!fits(&bench, "new", &ingress(9, 1)));
        assert!(fits(&bench, "i5", &quarter(5)), "it is no larger than it is");
        // Nor may an older one grow so that there is none left for another one.
        let mut larger = quarter(1);
        larger.rules[0].paths.extend(ingress(1, 5).rules.swap_remove(0).paths);
        let key = Key::new("a", "i1");
        let denial = bench.translator.check_paths(&bench.world, &key, &larger).unwrap_err();
        assert!(denial.contains("of the newer Ingress i4 would be served"), "{denial}");
        bench.put("a", "i1", None);
        assert_eq!(served(&bench), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_others_cost_that_turn_is_in_the_price_of_a_change() {
        let options = Options { annotations_prefix: "x.io".into(), ..Options::default() };
        let (world, translator) = (World::default(), Translator::new(options));
        let mut bench = Bench { world, translator };
        let id = |n: i64| ObjectRef::new(Kind::Ingress, Key::new("a", format!("i{n}")));
        let object = |ingress: Ingress| Object::Ingress(Arc::new(ingress));
        for created in 1..=4 {
            bench.put("a", &format!("i{created}"), Some(quarter(created)));
        }
        let price = |bench: &Bench, n: i64, new: Option<Ingress>| {
            let prices = Prices { translator: &bench.translator, world: &bench.world };
            match new {
                Some(new) => prices.of_reading(&id(n), &object(new)).total(),
                None => prices.of_removal(&id(n)).total(),
            }
        };
        let small = || Some(ingress(1, 1));
        let (smaller, gone) = (price(&bench, 1, small()), price(&bench, 1, None));
        // There is no room for this one until the first one shrinks or goes.
        let mut ninth = quarter(9);
        ninth.rules[0].paths.truncate(400);
        bench.put("a", "i9", Some(ninth));
        let of_others = PATH * 400;
        assert!(price(&bench, 1, small()) > smaller + of_others);
        assert!(price(&bench, 1, None) > gone + of_others);
        bench.put("a", "i1", small());
        assert!(bench.is_served(9));
        // And it is pushed out again.
        let with_it = price(&bench, 1, Some(quarter(1)));
        bench.put("a", "i9", None);
        assert!(with_it > price(&bench, 1, Some(quarter(1))) + of_others);
    }

    #[test]
    fn the_bytes_of_what_an_ingress_names_count_as_paths() {
        let mut world = World::default();
        let one = ingress(1, 10);
        let (own, other) = (Key::new("a", "i"), Key::new("b", "i"));
        let map = |name: &str, bytes: usize| {
            let data = [("k".to_owned(), "x".repeat(bytes))].into();
            let id = ObjectRef::new(Kind::ConfigMap, Key::new("a", name));
            (id, Some(Object::ConfigMap(Arc::new(ConfigMap { data }))))
        };
        world.apply(map("users", 3_000_000), &mut Changed::default());
        world.apply(map("unnamed", 3_000_000), &mut Changed::default());
        assert_eq!(size_of(&world, "x.io", &own, &one), 16 + 2_929);
        assert_eq!(size_of(&world, "x.io", &other, &one), 16, "it names one of its own namespace");
        let mut foreign = one.clone();
        foreign.annotations.insert("x.io/auth-secret".into(), "a/users".into());
        assert_eq!(size_of(&world, "x.io", &other, &foreign), 16);
        assert_eq!(size_of(&world, "x.io", &own, &foreign), 16 + 2_929);
    }

    #[test]
    fn copies_for_aliases_count_as_paths() {
        let mut one = ingress(1, 10);
        assert_eq!(paths_of("x.io", &one), 10);
        one.annotations.insert("x.io/server-alias".into(), "b.test,c.test".into());
        assert_eq!(paths_of("x.io", &one), 30);
        assert_eq!(paths_of("x.io", &Ingress::default()), 1);
    }
}
