//! What lies below [`WELL_KNOWN`] stays the owner's where another namespace has the root of a host.
//!
//! Who answers there obtains certificates for the host. Nobody but the owner may name a path below it, but a root covers all
//! that no other path takes: so the rules that the owner would have as the root stand at [`WELL_KNOWN`], too.

use super::{Merge, Owner, Place, Winner};
use crate::gateway::servers::rank::Age;
use crate::gateway::servers::served::Candidate;
use crate::host::merge::open_well_known;
use oxigress_core::model::{MAX_RULES, PathPattern, Policy, Rule, Selection, WELL_KNOWN};
use oxigress_objects::{Key, Kind};
use std::collections::BTreeMap;

/// The routes of a host's owner.
type Routes<'r> = [(&'r Age, &'r Vec<Candidate>)];

/// Whether a rule is the root of an Ingress's owner by another name: see [`crate::host::merge`].
pub fn stands_for_root(rule: &Rule) -> bool {
    rule.policy.yields && rule.path == well_known()
}

impl Merge<'_> {
    /// Adds the owner's root at [`WELL_KNOWN`] where the root is not the owner's.
    pub fn keep_well_known(&mut self, owner: &Owner<'_>, place: &Place<'_>, own: &Routes<'_>) {
        let by_ingress = self.root_of_ingress.take();
        let is_its = |namespace: &str| owner.certifies(place, namespace);
        let mut at_root = self.all.iter().filter(|((path, _), _)| *path == root());
        // The owner may be a Gateway's namespace, which the routes of its hosts are not told of: Ingresses are.
        let is_foreign = at_root.any(|(_, winner)| {
            let is_lost = winner.age.2 == Kind::Ingress && by_ingress.is_some();
            is_lost || !is_its(&winner.age.1.namespace)
        });
        let is_named = self.all.contains_key(&(well_known(), Selection::default()));
        if !is_foreign || is_named {
            return;
        }
        let mut roots = self.roots(by_ingress, owner, own);
        let count = |roots: &BTreeMap<_, Winner>| -> usize {
            roots.values().map(|winner| winner.rules.len()).sum()
        };
        if self.count + count(&roots) > MAX_RULES {
            roots = BTreeMap::from([(Selection::default(), nobodys(open_well_known()))]);
        }
        self.count += count(&roots);
        for (selection, winner) in roots {
            self.all.entry((well_known(), selection)).or_insert(winner);
        }
    }

    /// What the owner would have as the root, at [`WELL_KNOWN`].
    fn roots(
        &self,
        by_ingress: Option<(Age, Rule)>,
        owner: &Owner<'_>,
        own: &Routes<'_>,
    ) -> BTreeMap<Selection, Winner> {
        let mut roots = BTreeMap::new();
        for (age, candidates) in own {
            let candidates = candidates.iter().enumerate();
            for (place, candidate) in candidates.filter(|(_, asked)| asked.path == root()) {
                let selection = candidate.selection.clone();
                let Candidate { rules, .. } = candidate.narrowed(&well_known(), selection.clone());
                let rules = rules.into_iter().map(moved).collect();
                let winner = Winner { age: (*age).clone(), place, rules };
                roots.entry(selection).or_insert(winner);
            }
        }
        let winner = self.all.get(&(root(), Selection::default()));
        let winner = winner.filter(|winner| {
            winner.age.2 == Kind::Ingress && winner.age.1.namespace == owner.namespace
        });
        let winner = winner.and_then(|root| Some((root.age.clone(), root.rules.first()?.clone())));
        let older = by_ingress.or(winner).filter(|(age, _)| {
            roots.get(&Selection::default()).is_none_or(|route: &Winner| *age < route.age)
        });
        if let Some((age, rule)) = older {
            let rules = vec![moved(rule)];
            let winner = Winner { age, place: 0, rules };
            roots.insert(Selection::default(), winner);
        }
        roots.entry(Selection::default()).or_insert_with(|| nobodys(open_well_known()));
        roots
    }
}

fn root() -> PathPattern {
    PathPattern::Prefix(String::new())
}

fn well_known() -> PathPattern {
    PathPattern::Prefix(WELL_KNOWN.into())
}

/// A rule of the root, at [`WELL_KNOWN`]: expressions of the owner compare with it as with the root.
fn moved(rule: Rule) -> Rule {
    let policy = Policy { yields: true, ..rule.policy };
    Rule { path: well_known(), policy, ..rule }
}

/// A rule that no object has.
pub fn nobodys(rule: Rule) -> Winner {
    let age = (i64::MAX, Key::new("", ""), Kind::Ingress);
    Winner { age, place: 0, rules: vec![rule] }
}
