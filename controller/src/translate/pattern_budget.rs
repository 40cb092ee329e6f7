//! How much compiling of regular expressions a namespace may ask for.
//!
//! Units:   nanoseconds of CPU, told from the texts (`oxigress_core::patterns::price_of`), so every replica decides alike.
//! Errors:  the newest Ingresses of a namespace that asks for more are over the budget; the others are not touched.

use super::owner::Age;
use crate::world::Key;
use crate::world::ingress::{Ingress, PathType};
use oxigress_core::patterns::{is_plain, price_of};
use std::collections::{BTreeMap, BTreeSet};

/// What the patterns of one Ingress may cost: some 3,000 ordinary ones.
pub const OF_INGRESS: u64 = 100_000_000;
/// What those of a namespace may cost.
pub const OF_NAMESPACE: u64 = 2_000_000_000;

/// What each namespace asks for.
#[derive(Debug, Default)]
pub struct PatternBudget {
    namespaces: BTreeMap<String, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    prices: BTreeMap<Age, u64>,
    created: BTreeMap<Key, i64>,
    /// The sum of the prices.
    total: u64,
    over: BTreeSet<Key>,
}

/// What the paths of an Ingress cost if all that could be patterns are; what is over its own budget is not compiled.
pub fn price(ingress: &Ingress) -> u64 {
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths);
    paths
        .filter(|path| path.path_type != PathType::Exact && !is_plain(&path.path))
        // What is refused is not compiled.
        .map(|path| price_of(&path.path).unwrap_or_default())
        .fold(0, u64::saturating_add)
        .min(OF_INGRESS)
}

impl PatternBudget {
    /// Takes note of changed Ingresses; answers which are over the budget since, or no more.
    pub fn update<'c>(
        &mut self,
        changed: impl IntoIterator<Item = (&'c Key, Option<&'c Ingress>)>,
    ) -> BTreeSet<Key> {
        let mut touched = BTreeSet::new();
        for (key, ingress) in changed {
            let price = ingress.map_or(0, price);
            if price == 0 && !self.namespaces.contains_key(&key.namespace) {
                continue;
            }
            let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
            namespace.set(key, ingress.map_or(0, |ingress| ingress.created), price);
            touched.insert(&key.namespace);
        }
        let mut turned = BTreeSet::new();
        for name in touched {
            let Some(namespace) = self.namespaces.get_mut(name) else { continue };
            let over = namespace.over_budget(OF_NAMESPACE);
            turned.extend(over.symmetric_difference(&namespace.over).cloned());
            namespace.over = over;
            if namespace.created.is_empty() {
                self.namespaces.remove(name);
            }
        }
        turned
    }

    /// Whether the patterns of an Ingress are not compiled.
    pub fn is_over(&self, key: &Key) -> bool {
        self.namespaces.get(&key.namespace).is_some_and(|namespace| namespace.over.contains(key))
    }

    /// Whether those of a candidate would not be, in the place of its older self.
    pub fn would_be_over(&self, key: &Key, ingress: &Ingress) -> bool {
        let Some(namespace) = self.namespaces.get(&key.namespace) else { return false };
        let age = Age { created: ingress.created, key: key.clone() };
        let older = namespace.prices.range(..age).filter(|(other, _)| other.key != *key);
        let taken = older.map(|(_, price)| *price).fold(price(ingress), u64::saturating_add);
        taken > OF_NAMESPACE
    }
}

impl Namespace {
    fn set(&mut self, key: &Key, created: i64, price: u64) {
        if let Some(created) = self.created.remove(key) {
            let age = Age { created, key: key.clone() };
            self.total -= self.prices.remove(&age).unwrap_or_default();
        }
        if price > 0 {
            self.created.insert(key.clone(), created);
            self.prices.insert(Age { created, key: key.clone() }, price);
            self.total += price;
        }
    }

    fn over_budget(&self, limit: u64) -> BTreeSet<Key> {
        if self.total <= limit {
            return BTreeSet::new();
        }
        let mut sum = 0;
        let newest = self.prices.iter().skip_while(|(_, price)| {
            sum += **price;
            sum <= limit
        });
        newest.map(|(age, _)| age.key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::{Options, golden, translate};
    use crate::world::ingress::{Path, Port, Rule as IngressRule, Target};
    use oxigress_core::model::{HostPattern, PathPattern, Rule};
    use std::fmt::Write as _;

    /// Some 100 milliseconds of patterns.
    fn dear(created: i64) -> Ingress {
        let path = |number| Path {
            path: format!(r"/{number}/\p{{L}}"),
            path_type: PathType::ImplementationSpecific,
            target: Target::Service { name: "s".into(), port: Port::Number(80) },
        };
        let paths = (0..300).map(path).collect();
        Ingress {
            created,
            rules: vec![IngressRule { host: "a.test".into(), paths }],
            ..Ingress::default()
        }
    }

    #[test]
    fn the_newest_are_over_the_budget_until_there_is_room() {
        let keys: Vec<_> = (0..25).map(|n| Key::new("a", format!("i{n:02}"))).collect();
        let all: Vec<_> = (0..25).map(dear).collect();
        let mut budget = PatternBudget::default();
        let changed = keys.iter().zip(all.iter().map(Some));
        let turned = budget.update(changed);
        assert_eq!(turned, keys.iter().skip(20).cloned().collect(), "20 times 100 milliseconds");
        assert!(budget.is_over(&keys[20]) && !budget.is_over(&keys[19]));
        assert!(!budget.is_over(&Key::new("b", "i24")), "another namespace's");
        assert!(budget.would_be_over(&Key::new("a", "new"), &dear(100)));
        assert!(!budget.would_be_over(&Key::new("a", "new"), &dear(-1)));
        assert!(!budget.would_be_over(&keys[3], &dear(3)), "in the place of its older self");
        assert!(!budget.would_be_over(&Key::new("b", "new"), &dear(100)));
        // One leaves, the next one has room.
        assert_eq!(budget.update([(&keys[3], None)]), [keys[20].clone()].into());
        for key in &keys {
            budget.update([(key, None)]);
        }
        assert!(budget.namespaces.is_empty());
    }

    #[test]
    fn an_ingress_and_a_namespace_over_the_budget_close_their_own_paths_only() {
        let ingress = |name: &str, paths: usize| {
            let mut text = format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: a\n  \
                 annotations: {{ kubernetes.io/ingress.class: nginx, nginx.ingress.kubernetes.io/use-regex: \"true\" }}\n\
                 spec:\n  rules:\n  - host: {name}.test\n    http:\n      paths:\n"
            );
            for n in 0..paths {
                let _ = writeln!(
                    text,
                    "      - {{ path: '/{n}/\\p{{L}}', pathType: ImplementationSpecific, backend: {{ service: {{ \
                     name: s, port: {{ number: 80 }} }} }} }}"
                );
            }
            text
        };
        let all: String = (0..22).map(|n| ingress(&format!("i{n:02}"), 300)).collect();
        let world = golden::world(&(all + &ingress("small", 1)));
        let translation = translate(&world, &Options::default());
        let count = |host: &str| {
            let host = HostPattern::parse(host).unwrap();
            let rules = &translation.snapshot.servers[&host].rules;
            let is = |rule: &&Rule| matches!(rule.path, PathPattern::Regex(_));
            let closed = rules.iter().filter(|rule| rule.policies.is_some()).count();
            (rules.iter().filter(is).count(), closed)
        };
        let (served, closed) = count("i00.test");
        assert!((200..250).contains(&served), "{served} of 300 cost 100 milliseconds");
        assert_eq!(served + closed, 300);
        assert_eq!(count("i19.test"), (served, closed));
        assert_eq!(count("i20.test"), (0, 300), "the namespace's two seconds are used up");
        assert_eq!(count("small.test"), (0, 1));
    }

    #[test]
    fn plain_and_exact_paths_cost_nothing() {
        let mut ingress = dear(0);
        for path in ingress.rules.iter_mut().flat_map(|rule| &mut rule.paths) {
            path.path_type = PathType::Exact;
        }
        assert_eq!(price(&ingress), 0);
        for path in ingress.rules.iter_mut().flat_map(|rule| &mut rule.paths) {
            (path.path_type, path.path) = (PathType::Prefix, "/a/b-c.d".into());
        }
        assert_eq!(price(&ingress), 0);
    }
}
