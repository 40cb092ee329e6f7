//! What the Ingresses of each namespace come to together, and which of them are beyond a limit: the newest ones, so that the
//! others are not touched.
//!
//! Cost:    a change costs as much as there are Ingresses that turn by it, however many are beyond the limit.

use crate::claim::age::Age;
use oxigress_objects::{Key, Name};
use std::collections::{BTreeMap, BTreeSet, btree_map};

/// When an Ingress was made, and what it comes to.
pub type Item = (i64, u64);

/// What the Ingresses of each namespace come to.
#[derive(Debug, Default)]
pub struct Stock {
    namespaces: BTreeMap<Name, Namespace>,
}

#[derive(Debug, Default)]
struct Namespace {
    sizes: BTreeMap<Age, u64>,
    created: BTreeMap<Key, i64>,
    /// The oldest that is beyond the limit, with all newer ones; `None`: none is.
    first_over: Option<Age>,
    /// The sum of the sizes of those before it.
    taken: u64,
}

impl Stock {
    /// Takes note of changed Ingresses, `None` for one that does not count; answers which others are over the limit since, or no
    /// more.
    pub fn update<'c>(
        &mut self,
        limit: u64,
        changed: impl IntoIterator<Item = (&'c Key, Option<Item>)>,
    ) -> BTreeSet<Key> {
        let mut touched = BTreeSet::new();
        for (key, item) in changed {
            let (created, size) = item.unwrap_or_default();
            if size == 0 && !self.namespaces.contains_key(&key.namespace) {
                continue;
            }
            let namespace = self.namespaces.entry(key.namespace.clone()).or_default();
            namespace.set(key, created, size);
            touched.insert(&key.namespace);
        }
        let mut turned = BTreeSet::new();
        for name in touched {
            let Some(namespace) = self.namespaces.get_mut(name) else { continue };
            namespace.settle(limit, &mut turned);
            if namespace.created.is_empty() {
                self.namespaces.remove(name);
            }
        }
        turned
    }

    /// Whether an Ingress is beyond the limit.
    pub fn is_over(&self, key: &Key) -> bool {
        self.namespaces.get(&key.namespace).is_some_and(|namespace| {
            let age = namespace.age_of(key);
            age.is_some_and(|age| namespace.is_over(&age))
        })
    }

    /// What an Ingress was last counted as.
    pub fn item(&self, key: &Key) -> Option<Item> {
        let namespace = self.namespaces.get(&key.namespace)?;
        Some((*namespace.created.get(key)?, namespace.size_of(key)))
    }

    /// Whether a candidate of this size would be, in the place of its older self.
    pub fn would_be_over(&self, limit: u64, key: &Key, item: Item) -> bool {
        let namespace = self.namespaces.get(&key.namespace);
        namespace.map_or(item.1 > limit, |namespace| namespace.would_be_over(limit, key, item))
    }

    /// Which others would be over the limit, or no more, if an Ingress came to this.
    pub fn would_turn(&self, limit: u64, key: &Key, item: Option<Item>) -> BTreeSet<&Key> {
        let namespace = self.namespaces.get(&key.namespace);
        namespace.map_or_else(BTreeSet::new, |namespace| namespace.would_turn(limit, key, item))
    }

    /// The newest of the others that would be over the limit newly.
    pub fn pushed_out(&self, limit: u64, key: &Key, item: Item) -> Option<&Key> {
        self.namespaces.get(&key.namespace)?.pushed_out(limit, key, item)
    }

    /// Whether nothing is counted.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.namespaces.is_empty()
    }
}

impl Namespace {
    fn age_of(&self, key: &Key) -> Option<Age> {
        self.created.get(key).map(|created| Age { created: *created, key: key.clone() })
    }

    fn is_over(&self, age: &Age) -> bool {
        self.first_over.as_ref().is_some_and(|first| age >= first)
    }

    fn size_of(&self, key: &Key) -> u64 {
        let age = self.age_of(key);
        age.and_then(|age| self.sizes.get(&age).copied()).unwrap_or_default()
    }

    /// Those that are not over the limit.
    fn within(&self) -> btree_map::Range<'_, Age, u64> {
        match &self.first_over {
            Some(first) => self.sizes.range(..first),
            None => self.sizes.range::<Age, _>(..),
        }
    }

    /// What those come to without this one.
    fn taken_by_others(&self, key: &Key) -> u64 {
        let own = self.age_of(key).filter(|age| !self.is_over(age));
        self.taken - own.map_or(0, |_| self.size_of(key))
    }

    fn after(&self, age: &Age) -> Option<Age> {
        let mut newer = self.sizes.range(age..).map(|(age, _)| age);
        newer.find(|other| *other != age).cloned()
    }

    fn set(&mut self, key: &Key, created: i64, size: u64) {
        if let Some(age) = self.age_of(key) {
            if self.first_over.as_ref() == Some(&age) {
                self.first_over = self.after(&age);
            } else if !self.is_over(&age) {
                self.taken -= self.size_of(key);
            }
            self.created.remove(key);
            self.sizes.remove(&age);
        }
        if size > 0 {
            let age = Age { created, key: key.clone() };
            if !self.is_over(&age) {
                self.taken += size;
            }
            self.created.insert(key.clone(), created);
            self.sizes.insert(age, size);
        }
    }

    /// Moves the limit to where it is now; what it passes has turned.
    fn settle(&mut self, limit: u64, turned: &mut BTreeSet<Key>) {
        while self.taken > limit {
            let Some((age, size)) =
                self.within().next_back().map(|(age, size)| (age.clone(), *size))
            else {
                return;
            };
            self.taken -= size;
            turned.insert(age.key.clone());
            self.first_over = Some(age);
        }
        while let Some(first) = self.first_over.take() {
            let size = self.sizes.get(&first).copied().unwrap_or_default();
            if self.taken + size > limit {
                self.first_over = Some(first);
                return;
            }
            self.taken += size;
            self.first_over = self.after(&first);
            turned.insert(first.key);
        }
    }

    /// Looks at those between the limit and the candidate only.
    fn would_be_over(&self, limit: u64, key: &Key, (created, size): Item) -> bool {
        let own = Age { created, key: key.clone() };
        // The sum of it and of all that are older.
        let mut sum = self.taken_by_others(key).saturating_add(size);
        let others = |(age, _): &(&Age, &u64)| age.key != *key;
        match &self.first_over {
            Some(first) if own > *first => {
                let mut between = self.sizes.range(first..&own).filter(others);
                between.any(|(_, other)| {
                    sum = sum.saturating_add(*other);
                    sum > limit
                }) || sum > limit
            }
            _ => {
                let mut newer = self.sizes.range(&own..).filter(others);
                while sum > limit
                    && let Some((age, other)) = newer.next()
                    && !self.is_over(age)
                {
                    sum -= other;
                }
                sum > limit
            }
        }
    }

    /// The first that would make room for the candidate is the newest that is not over the limit.
    fn pushed_out(&self, limit: u64, key: &Key, (created, size): Item) -> Option<&Key> {
        let own = Age { created, key: key.clone() };
        let (newest, _) = self.within().rev().find(|(age, _)| age.key != *key)?;
        let is_older = !self.is_over(&own) && own < *newest;
        (is_older && self.taken_by_others(key).saturating_add(size) > limit).then_some(&newest.key)
    }

    /// As [`Self::set`] and [`Self::settle`], without either.
    fn would_turn(&self, limit: u64, key: &Key, item: Option<Item>) -> BTreeSet<&Key> {
        let mut turned = BTreeSet::new();
        let mut taken = self.taken_by_others(key);
        let (created, size) = item.unwrap_or_default();
        let mut own = Some(Age { created, key: key.clone() }).filter(|_| size > 0);
        if own.as_ref().is_some_and(|age| !self.is_over(age)) {
            taken += size;
            for (age, other) in self.within().rev().filter(|(age, _)| age.key != *key) {
                if taken > limit && own.take_if(|own| *own > *age).is_some() {
                    taken -= size;
                }
                if taken <= limit {
                    break;
                }
                taken -= other;
                turned.insert(&age.key);
            }
            // Whatever is newer than what is over is so too.
            if taken > limit || own.take().is_none() || !turned.is_empty() {
                return turned;
            }
        }
        let Some(first) = &self.first_over else { return turned };
        for (age, other) in self.sizes.range(first..).filter(|(age, _)| age.key != *key) {
            if own.take_if(|own| *own < *age).is_some() {
                taken += size;
            }
            taken += other;
            if taken > limit {
                break;
            }
            turned.insert(&age.key);
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    const LIMIT: u64 = 20;

    /// Those beyond the limit, told from the beginning.
    fn over(all: &BTreeMap<Key, Item>) -> BTreeSet<Key> {
        let mut by_age: Vec<_> = all.iter().collect();
        by_age.sort_by_key(|(key, (created, _))| (*created, (*key).clone()));
        let mut sum = 0;
        let newest = by_age.into_iter().skip_while(|(_, (_, size))| {
            sum += size;
            sum <= LIMIT
        });
        newest.map(|(key, _)| key.clone()).collect()
    }

    /// Makes a step, and looks that who turns is told before and after.
    fn step(
        (stock, all): (&mut Stock, &mut BTreeMap<Key, Item>),
        key: &Key,
        item: Option<Item>,
    ) -> Result<(), TestCaseError> {
        let before = over(all);
        let (created, size) = item.unwrap_or((0, 1));
        let would_be_over = stock.would_be_over(LIMIT, key, (created, size));
        let mut with = all.clone();
        with.insert(key.clone(), (created, size));
        prop_assert_eq!(would_be_over, over(&with).contains(key));
        let pushed_out = stock.pushed_out(LIMIT, key, (created, size)).cloned();
        let mut newly: BTreeSet<Key> = over(&with).difference(&over(all)).cloned().collect();
        newly.remove(key);
        prop_assert_eq!(pushed_out.is_some(), !newly.is_empty());
        prop_assert!(pushed_out.is_none_or(|one| newly.contains(&one)));
        let told: BTreeSet<Key> = stock.would_turn(LIMIT, key, item).into_iter().cloned().collect();
        let mut turned = stock.update(LIMIT, [(key, item)]);
        match item {
            Some(item) => drop(all.insert(key.clone(), item)),
            None => drop(all.remove(key)),
        }
        let after = over(all);
        let mut expected: BTreeSet<Key> = before.symmetric_difference(&after).cloned().collect();
        turned.remove(key);
        expected.remove(key);
        prop_assert_eq!(&turned, &expected);
        prop_assert_eq!(&told, &expected);
        for other in all.keys() {
            prop_assert_eq!(stock.is_over(other), after.contains(other));
        }
        prop_assert_eq!(stock.is_empty(), all.is_empty());
        Ok(())
    }

    proptest! {
        #[test]
        fn the_newest_are_over_and_who_turns_is_told_before_and_after(
            steps in vec((0..8_usize, option::weighted(0.8, (0..6_i64, 0..9_u64))), 1..40),
        ) {
            let (mut stock, mut all) = (Stock::default(), BTreeMap::new());
            for (number, item) in steps {
                let key = Key::new("n", format!("i{number}"));
                step((&mut stock, &mut all), &key, item.filter(|(_, size)| *size > 0))?;
            }
        }
    }
}
