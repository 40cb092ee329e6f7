//! What the Ingresses of each namespace come to together, and which of them are beyond a limit: the newest ones, so that the
//! others are not touched.

use crate::age::Age;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::{Key, Name};
use std::collections::{BTreeMap, BTreeSet};

/// What the Ingresses of each namespace come to.
#[derive(Debug, Default)]
pub struct Stock {
    namespaces: BTreeMap<Name, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    sizes: BTreeMap<Age, u64>,
    created: BTreeMap<Key, i64>,
    /// The sum of the sizes.
    total: u64,
    over: BTreeSet<Key>,
}

impl Stock {
    /// Takes note of changed Ingresses, `None` for one that does not count; answers which are over the limit since, or no more.
    pub fn update<'c>(
        &mut self,
        limit: u64,
        changed: impl IntoIterator<Item = (&'c Key, Option<&'c Ingress>)>,
        size_of: impl Fn(&Ingress) -> u64,
    ) -> BTreeSet<Key> {
        let mut touched = BTreeSet::new();
        for (key, ingress) in changed {
            let size = ingress.map_or(0, &size_of);
            if size == 0 && !self.namespaces.contains_key(&key.namespace) {
                continue;
            }
            let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
            namespace.set(key, ingress.map_or(0, |ingress| ingress.created), size);
            touched.insert(&key.namespace);
        }
        let mut turned = BTreeSet::new();
        for name in touched {
            let Some(namespace) = self.namespaces.get_mut(name) else { continue };
            let over = namespace.over_limit(limit);
            turned.extend(over.symmetric_difference(&namespace.over).cloned());
            namespace.over = over;
            if namespace.created.is_empty() {
                self.namespaces.remove(name);
            }
        }
        turned
    }

    /// Whether an Ingress is beyond the limit.
    pub fn is_over(&self, key: &Key) -> bool {
        self.namespaces.get(&key.namespace).is_some_and(|namespace| namespace.over.contains(key))
    }

    /// Whether a candidate of this size would be, in the place of its older self.
    pub fn would_be_over(&self, limit: u64, key: &Key, created: i64, size: u64) -> bool {
        let Some(namespace) = self.namespaces.get(&key.namespace) else { return size > limit };
        let age = Age { created, key: key.clone() };
        let older = namespace.sizes.range(..age).filter(|(other, _)| other.key != *key);
        let taken = older.map(|(_, size)| *size).fold(size, u64::saturating_add);
        taken > limit
    }

    /// Whether nothing is counted.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }
}

impl Namespace {
    fn set(&mut self, key: &Key, created: i64, size: u64) {
        if let Some(created) = self.created.remove(key) {
            let age = Age { created, key: key.clone() };
            self.total -= self.sizes.remove(&age).unwrap_or_default();
        }
        if size > 0 {
            self.created.insert(key.clone(), created);
            self.sizes.insert(Age { created, key: key.clone() }, size);
            self.total += size;
        }
    }

    fn over_limit(&self, limit: u64) -> BTreeSet<Key> {
        if self.total <= limit {
            return BTreeSet::new();
        }
        let mut sum = 0;
        let newest = self.sizes.iter().skip_while(|(_, size)| {
            sum += **size;
            sum <= limit
        });
        newest.map(|(age, _)| age.key.clone()).collect()
    }
}
