//! Collections that mostly hold one entry: no tree of many, each with a node of eleven places for one entry.
//!
//! At 10,000 Ingresses such trees were two thirds of the controller's memory.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::ops::Bound;
use std::slice;

/// Above so many entries a set is a tree, so that an insertion never moves more than this.
const FEW: usize = 16;

/// A sorted set: a vector without spare room while it has few entries, then a tree.
#[derive(Clone, Debug)]
pub struct SmallSet<T>(Form<T>);

#[derive(Clone, Debug)]
enum Form<T> {
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        SmallSet(Form::Few(Vec::new()))
    }
}

impl<T: Ord> PartialEq for SmallSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Ord> SmallSet<T> {
    /// Adds an entry, unless an equal one is there.
    pub fn insert(&mut self, entry: T) {
        match &mut self.0 {
            Form::Few(few) => {
                let Err(place) = few.binary_search(&entry) else { return };
                if few.len() == FEW {
                    let mut many: BTreeSet<_> = std::mem::take(few).into_iter().collect();
                    many.insert(entry);
                    self.0 = Form::Many(many);
                    return;
                }
                few.reserve_exact(1);
                few.insert(place, entry);
            }
            Form::Many(many) => drop(many.insert(entry)),
        }
    }

    /// Takes an entry away, if it is there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, entry: &Q)
    where
        T: Borrow<Q>,
    {
        match &mut self.0 {
            Form::Few(few) => {
                if let Ok(place) = few.binary_search_by(|other| other.borrow().cmp(entry)) {
                    few.remove(place);
                    few.shrink_to_fit();
                }
            }
            Form::Many(many) => {
                many.remove(entry);
                if many.len() <= FEW / 2 {
                    self.0 = Form::Few(std::mem::take(many).into_iter().collect());
                }
            }
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Few(few) => few.len(),
            Form::Many(many) => many.len(),
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The smallest entry, if there is any.
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The smallest entry that is larger than this one, which need not be there.
    pub fn after(&self, entry: &T) -> Option<&T> {
        match &self.0 {
            Form::Few(few) => few.get(few.partition_point(|other| other <= entry)),
            Form::Many(many) => many.range((Bound::Excluded(entry), Bound::Unbounded)).next(),
        }
    }

    /// The entries in ascending order.
    pub fn iter(&self) -> Iter<'_, T> {
        match &self.0 {
            Form::Few(few) => Iter::Few(few.iter()),
            Form::Many(many) => Iter::Many(many.iter()),
        }
    }
}

/// The entries of a [`SmallSet`] in ascending order.
#[derive(Debug)]
pub enum Iter<'a, T> {
    /// The entries of a vector.
    Few(slice::Iter<'a, T>),
    /// The entries of a tree.
    Many(btree_set::Iter<'a, T>),
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match self {
            Iter::Few(few) => few.next(),
            Iter::Many(many) => many.next(),
        }
    }
}

impl<'a, T: Ord> IntoIterator for &'a SmallSet<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Moves the entries of a tree into full nodes: the nodes of one that grew in the order of its keys are half empty.
pub fn compact<K: Ord, V>(map: &mut BTreeMap<K, V>) {
    *map = std::mem::take(map).into_iter().collect();
}

/// A sorted map that does not change once it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedMap<K, V>(Box<[(K, V)]>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap(Box::new([]))
    }
}

impl<K: Ord, V> From<BTreeMap<K, V>> for SortedMap<K, V> {
    fn from(map: BTreeMap<K, V>) -> Self {
        SortedMap(map.into_iter().collect())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.0.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        self.0.get(place).map(|(_, value)| value)
    }

    /// Whether there is a value of a key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries in ascending order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys in ascending order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_set_is_what_a_tree_is_at_any_size() {
        let (mut small, mut tree) = (SmallSet::default(), BTreeSet::new());
        let same = |small: &SmallSet<usize>, tree: &BTreeSet<usize>| {
            small.iter().eq(tree)
                && small.len() == tree.len()
                && small.first() == tree.first()
                && small.is_empty() == tree.is_empty()
                && (0..50).all(|n| small.after(&n) == tree.range(n + 1..).next())
        };
        // Up, with repetitions and in no order, and down again, twice.
        for turn in 0..400 {
            let entry = turn * 7 % 50;
            match turn % 200 < 100 {
                true => {
                    small.insert(entry);
                    tree.insert(entry);
                }
                false => {
                    small.remove(&entry);
                    tree.remove(&entry);
                }
            }
            assert!(same(&small, &tree), "turn {turn}: {small:?} {tree:?}");
        }
        assert!(small.is_empty());
    }

    #[test]
    fn a_set_of_one_has_no_spare_room_and_a_large_one_is_a_tree() {
        let mut set = SmallSet::default();
        set.insert(1);
        assert!(matches!(&set.0, Form::Few(few) if few.capacity() == 1));
        (0..100).for_each(|entry| set.insert(entry));
        assert!(matches!(set.0, Form::Many(_)));
        (0..95).for_each(|entry| set.remove(&entry));
        assert!(matches!(set.0, Form::Few(_)));
    }

    #[test]
    fn a_sorted_map_finds_what_the_tree_had() {
        let map = SortedMap::from(BTreeMap::from([(3, 'c'), (1, 'a')]));
        assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (Some(&'a'), None, Some(&'c')));
        assert!(map.keys().eq(&[1, 3]) && map.values().eq(&['a', 'c']));
    }
}
