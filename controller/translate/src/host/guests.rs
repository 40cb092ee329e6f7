//! What namespaces that do not own a host may add to it.
//!
//! Shape:   each has what it asks for, as far as that leaves as much for each of the others. So none keeps another one's paths out
//!          by adding more of its own, however old its objects are.

use crate::host::owner::HostView;
use oxigress_core::model::{HostPattern, MAX_RULES, PathPattern};
use std::collections::BTreeMap;

/// Most paths that they add to a host: whenever its owner changes something there, they are merged again.
pub const MAX_PATHS: usize = MAX_RULES / 2;
/// Most bytes of paths that they add to a host: all rules of a host are one record.
pub const MAX_BYTES: usize = 1 << 20;
/// Most regular expressions that they add: every request of the host looks at them.
pub const MAX_EXPRESSIONS: usize = 100;

/// What is left of something for each namespace.
#[derive(Debug, Default)]
pub struct Shares<'n>(BTreeMap<&'n str, usize>);

impl<'n> Shares<'n> {
    /// Shares `all` out among namespaces, each with what it asks for.
    pub fn of(all: usize, asked: &BTreeMap<&'n str, usize>) -> Self {
        let mut by_amount: Vec<_> = asked.iter().collect();
        by_amount.sort_by_key(|(_, amount)| **amount);
        let (mut left, count) = (all, by_amount.len());
        let shares = by_amount.into_iter().enumerate().map(|(place, (namespace, amount))| {
            let share = (*amount).min(left / (count - place));
            left -= share;
            (*namespace, share)
        });
        Shares(shares.collect())
    }

    /// Whether a namespace may take so many more.
    pub fn has(&self, namespace: &str, amount: usize) -> bool {
        self.0.get(namespace).is_some_and(|left| amount <= *left)
    }

    /// Takes them.
    pub fn take(&mut self, namespace: &str, amount: usize) {
        if let Some(left) = self.0.get_mut(namespace) {
            *left = left.saturating_sub(amount);
        }
    }
}

/// What is left for the Ingresses of each namespace on a host.
#[derive(Debug, Default)]
pub struct GuestRoom<'a> {
    paths: Shares<'a>,
    bytes: Shares<'a>,
    expressions: Shares<'a>,
}

impl<'a> GuestRoom<'a> {
    /// So many paths, and what else there is, for those with claims on `source`.
    pub fn of(paths: usize, source: &HostPattern, view: &HostView<'a>) -> Self {
        let [mut asked, mut bytes, mut expressions] = [const { BTreeMap::<&str, usize>::new() }; 3];
        for by in view.mains.iter().filter(|by| !view.owner.has(by)) {
            let (namespace, claims) = (by.key.namespace.as_str(), by.claims_on(source));
            let is_regex = |pattern: &PathPattern| matches!(pattern, PathPattern::Regex(_));
            *asked.entry(namespace).or_default() += claims.len();
            *bytes.entry(namespace).or_default() +=
                claims.iter().map(|claim| claim.path.len()).sum::<usize>();
            // Where one Ingress of the host asks for expressions, all of the owner's are.
            *expressions.entry(namespace).or_default() += claims
                .iter()
                .filter(|claim| claim.is_valid_regex || is_regex(&claim.pattern))
                .count();
        }
        GuestRoom {
            paths: Shares::of(paths, &asked),
            bytes: Shares::of(MAX_BYTES, &bytes),
            expressions: Shares::of(MAX_EXPRESSIONS, &expressions),
        }
    }

    /// Whether a namespace may add any path.
    pub fn has_paths(&self, namespace: &str) -> bool {
        self.paths.has(namespace, 1)
    }

    /// Whether it may add this one of so many bytes.
    pub fn has(&self, namespace: &str, bytes: usize, pattern: &PathPattern) -> bool {
        let is_regex = matches!(pattern, PathPattern::Regex(_));
        self.has_paths(namespace)
            && self.bytes.has(namespace, bytes)
            && (!is_regex || self.expressions.has(namespace, 1))
    }

    /// Adds it.
    pub fn take(&mut self, namespace: &str, bytes: usize, pattern: &PathPattern) {
        self.paths.take(namespace, 1);
        self.bytes.take(namespace, bytes);
        if matches!(pattern, PathPattern::Regex(_)) {
            self.expressions.take(namespace, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_little_has_it_whatever_others_ask_for() {
        for (asked, shares) in [
            (&[("a", 100)][..], &[100][..]),
            (&[("a", 1_000)], &[100]),
            (&[("a", 1_000), ("b", 10)], &[90, 10]),
            (&[("a", 1_000), ("b", 10), ("c", 1_000)], &[45, 10, 45]),
            (&[("a", 1_000), ("b", 0), ("c", 999)], &[50, 0, 50]),
            (&[("a", 30), ("b", 30), ("c", 40)], &[30, 30, 40]),
        ] {
            let mut all = Shares::of(100, &asked.iter().copied().collect());
            for ((namespace, _), share) in asked.iter().zip(shares) {
                assert!(all.has(namespace, *share), "{asked:?}");
                all.take(namespace, *share);
                assert!(!all.has(namespace, 1), "{asked:?}");
            }
        }
        assert!(!Shares::default().has("a", 1));
    }
}
