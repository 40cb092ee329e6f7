//! Which of these depends on which of those, read from both sides.

use std::collections::{BTreeMap, BTreeSet};

/// Many to many.
#[derive(Clone, Debug)]
pub struct Relation<L, R> {
    forward: BTreeMap<L, BTreeSet<R>>,
    back: BTreeMap<R, BTreeSet<L>>,
}

impl<L, R> Default for Relation<L, R> {
    fn default() -> Self {
        Relation { forward: BTreeMap::new(), back: BTreeMap::new() }
    }
}

impl<L: Ord + Clone, R: Ord + Clone> Relation<L, R> {
    /// Replaces what `left` is related to; answers what it is newly or no longer related to.
    pub fn set(&mut self, left: &L, rights: BTreeSet<R>) -> BTreeSet<R> {
        let old = match rights.is_empty() {
            true => self.forward.remove(left),
            false => self.forward.insert(left.clone(), rights.clone()),
        };
        let old = old.unwrap_or_default();
        for gone in old.difference(&rights) {
            if let Some(lefts) = self.back.get_mut(gone) {
                lefts.remove(left);
                if lefts.is_empty() {
                    self.back.remove(gone);
                }
            }
        }
        for new in rights.difference(&old) {
            self.back.entry(new.clone()).or_default().insert(left.clone());
        }
        old.symmetric_difference(&rights).cloned().collect()
    }

    /// What is related to `right`.
    pub fn by(&self, right: &R) -> impl Iterator<Item = &L> {
        self.back.get(right).into_iter().flatten()
    }

    /// Whether anything is related to `right`.
    pub fn has(&self, right: &R) -> bool {
        self.back.contains_key(right)
    }

    /// Everything that something is related to, in order.
    pub fn rights(&self) -> impl Iterator<Item = &R> {
        self.back.keys()
    }

    /// Everything that something is related to, from `first` on, in order.
    pub fn rights_from(&self, first: &R) -> impl Iterator<Item = &R> + use<'_, L, R> {
        self.back.range(first..).map(|(right, _)| right)
    }
}
