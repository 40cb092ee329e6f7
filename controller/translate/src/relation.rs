//! Which of these depends on which of those, read from both sides.

use oxigress_objects::small::{SmallSet, compact};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(test)]
thread_local! {
    /// How often something on the right was compared.
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often something was compared to tell whether it is related.
#[cfg(test)]
pub fn compared() -> usize {
    COMPARED.get()
}

/// Many to many. What stands on the right is stored once, whichever side it is read from.
#[derive(Clone, Debug)]
pub struct Relation<L, R> {
    forward: BTreeMap<L, Box<[Arc<R>]>>,
    back: BTreeMap<Arc<R>, SmallSet<L>>,
}

impl<L, R> Default for Relation<L, R> {
    fn default() -> Self {
        Relation { forward: BTreeMap::new(), back: BTreeMap::new() }
    }
}

impl<L: Ord + Clone, R: Ord> Relation<L, R> {
    /// Replaces what `left` is related to; answers what it is newly or no longer related to, each once.
    pub fn set(&mut self, left: &L, rights: BTreeSet<R>) -> Vec<Arc<R>> {
        let old = self.forward.remove(left).unwrap_or_default();
        let mut different = Vec::new();
        for gone in old.iter().filter(|right| !rights.contains(&***right)) {
            if let Some(lefts) = self.back.get_mut(&**gone) {
                lefts.remove(left);
                if lefts.is_empty() {
                    self.back.remove(&**gone);
                }
            }
            different.push(gone.clone());
        }
        let mut new = Vec::with_capacity(rights.len());
        for right in rights {
            if let Ok(place) = old.binary_search_by(|other| (**other).cmp(&right)) {
                new.extend(old.get(place).cloned());
                continue;
            }
            let right = match self.back.get_key_value(&right) {
                Some((known, _)) => known.clone(),
                None => Arc::new(right),
            };
            self.back.entry(right.clone()).or_default().insert(left.clone());
            different.push(right.clone());
            new.push(right);
        }
        if !new.is_empty() {
            self.forward.insert(left.clone(), new.into());
        }
        different
    }

    /// Gives back the memory that many first entries have left half used.
    pub fn compact(&mut self) {
        compact(&mut self.forward);
        compact(&mut self.back);
    }

    /// What is related to `right`.
    pub fn by(&self, right: &R) -> impl Iterator<Item = &L> {
        self.back.get(right).into_iter().flatten()
    }

    /// The first that is related to `right` and comes after this one, which need not be there.
    pub fn by_after(&self, right: &R, left: &L) -> Option<&L> {
        self.back.get(right)?.after(left)
    }

    /// What `left` is related to.
    pub fn of(&self, left: &L) -> impl Iterator<Item = &R> {
        self.forward.get(left).into_iter().flatten().map(AsRef::as_ref)
    }

    /// Whether these are related.
    pub fn relates(&self, left: &L, right: &R) -> bool {
        let compare = |other: &Arc<R>| {
            #[cfg(test)]
            COMPARED.set(COMPARED.get() + 1);
            (**other).cmp(right)
        };
        let all = self.forward.get(left).map(AsRef::as_ref).unwrap_or_default();
        all.binary_search_by(compare).is_ok()
    }

    /// Whether anything is related to `right`.
    pub fn has(&self, right: &R) -> bool {
        self.back.contains_key(right)
    }

    /// Everything that something is related to, in order.
    pub fn rights(&self) -> impl Iterator<Item = &R> {
        self.back.keys().map(AsRef::as_ref)
    }

    /// Everything that something is related to, from `first` on, in order.
    pub fn rights_from(&self, first: &R) -> impl Iterator<Item = &R> + use<'_, L, R> {
        self.back.range::<R, _>(first..).map(|(right, _)| right.as_ref())
    }
}
