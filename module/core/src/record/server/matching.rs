//! The rule of a path.

use super::inspection::{Inspection, RequestParts};
use super::order::{covers, segment_order, strength};
use super::view::{RuleView, ServerView};
use crate::model::is_well_known;
use crate::patterns::{Budget, Captures, NoAnswer, Patterns};
use std::cell::Cell;
use std::cmp::Ordering;

/// The rule that matches a path.
#[derive(Clone, Debug)]
pub struct MatchedRule<'g> {
    /// The rule that serves the request.
    pub rule: RuleView<'g>,
    /// The text that each group of a regular expression matched; `None` for other rules.
    pub captures: Option<Box<Captures>>,
    /// No rule matches the path, but this exact rule matches it with a slash appended: the client is redirected there.
    pub lacks_slash: bool,
}

impl<'g> MatchedRule<'g> {
    fn plain(rule: RuleView<'g>) -> Self {
        MatchedRule { rule, captures: None, lacks_slash: false }
    }
}

impl<'g> ServerView<'g> {
    /// The rule for `path`: an exact one first, else the strongest of those regular expressions that are not weaker
    /// than the longest prefix, else that prefix.
    ///
    /// Expressions that yield come last, so that they never change what other namespaces serve. An expression that
    /// exceeds its budget ends the search with [`NoAnswer`]: its rule may protect what the next one would open. A path
    /// without a rule belongs to the exact rule with one more slash, if there is one ([`MatchedRule::lacks_slash`]).
    ///
    /// A path whose rules take only some of its requests, and not this one, leaves it to the next shorter path.
    #[inline]
    pub fn rule(
        &self,
        path: &[u8],
        request: &impl RequestParts,
        patterns: &Patterns,
    ) -> Result<Option<MatchedRule<'g>>, NoAnswer> {
        let mut asked = Inspection::new(path, request);
        if let Ok(index) = self.search(0, self.exact, |candidate| candidate.cmp(path))
            && let Some(rule) = self.select(index, &mut asked, patterns)?
        {
            return Ok(Some(MatchedRule::plain(rule)));
        }
        let mut prefix = self.prefix(path);
        let mut rule = Ok(None);
        while let Some(index) = prefix {
            rule = self.select(index, &mut asked, patterns);
            if !matches!(rule, Ok(None)) {
                break;
            }
            prefix = self.parent(index);
        }
        if rule.is_err() {
            // The prefix may be another namespace's: a stronger expression has steps of its own.
            asked = Inspection::new(path, request);
        }
        if self.has_regexes()
            && let Some(route) = self.regex(path, &mut asked, prefix, patterns)?
        {
            return Ok(Some(route));
        }
        let rule = rule?;
        if self.exact > 0
            && rule.is_none_or(|rule| self.is_unclaimed_root(rule))
            && let Some(rule) = self.with_slash(path)
        {
            return Ok(Some(MatchedRule { rule, captures: None, lacks_slash: true }));
        }
        Ok(rule.map(MatchedRule::plain))
    }

    /// The exact rule of a path with a slash appended.
    #[cold]
    fn with_slash(&self, path: &[u8]) -> Option<RuleView<'g>> {
        let order = |candidate: &[u8]| candidate.iter().cmp(path.iter().chain(b"/"));
        let rule = self.body(self.search(0, self.exact, order).ok()?)?;
        (!rule.is_strict() && !rule.is_placeholder()).then_some(rule)
    }

    /// Whether a rule is the root of a host that no Ingress claims: the default backend serves it.
    fn is_unclaimed_root(&self, rule: RuleView<'_>) -> bool {
        rule.backend().is_none() && !rule.is_strict() && self.path(rule.index()) == Some(b"")
    }

    /// The longest prefix that covers the path.
    pub(super) fn prefix(&self, path: &[u8]) -> Option<usize> {
        let order = |prefix: &[u8]| segment_order(prefix, path);
        let mut index = match self.search(self.exact, self.regexes, order) {
            Ok(index) => index,
            Err(next) if next > self.exact => next - 1,
            Err(_) => return None,
        };
        while !covers(self.path(index)?, path) {
            index = self.parent(index)?;
        }
        Some(index)
    }

    /// The strongest regular expression that matches the path and is not weaker than a prefix.
    fn regex(
        &self,
        path: &[u8],
        asked: &mut Inspection<'_, impl RequestParts>,
        prefix: Option<usize>,
        patterns: &Patterns,
    ) -> Result<Option<MatchedRule<'g>>, NoAnswer> {
        let request = asked.request;
        let mut budget = request.moved_budget().map_or(Budget::OF_PATH, Cell::get);
        let found = self.regex_within(path, asked, prefix, patterns, &mut budget);
        if let Some(left) = request.moved_budget() {
            left.set(budget);
        }
        found
    }

    fn regex_within(
        &self,
        path: &[u8],
        asked: &mut Inspection<'_, impl RequestParts>,
        prefix: Option<usize>,
        patterns: &Patterns,
        budget: &mut Budget,
    ) -> Result<Option<MatchedRule<'g>>, NoAnswer> {
        let mut candidates = self.candidates(path);
        candidates.retain(|(index, _)| match self.yields(*index) {
            true => !is_well_known(path),
            false => self.is_not_weaker(*index, prefix),
        });
        // The strongest of each literal come first, so little is left to sort.
        candidates.sort_by(|(_, a), (_, b)| strength(b, a));
        let mut find = |all: &mut dyn Iterator<Item = (usize, &'g [u8])>| {
            for (index, text) in all {
                let namespace = self.body(index).map(|rule| rule.namespace()).unwrap_or_default();
                if let Some(captures) = patterns.of(namespace).captures(text, path, budget)?
                    && let Some(rule) = self.select(index, asked, patterns)?
                {
                    return Ok(Some((index, rule, captures)));
                }
            }
            Ok(None)
        };
        let (guests, own): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(index, _)| self.yields(*index));
        let mut found = find(&mut own.into_iter())?;
        if !guests.is_empty() {
            let winner = found.as_ref().map(|(index, ..)| *index).or(prefix);
            for guest in guests.into_iter().filter(|(index, _)| self.passes(*index, winner)) {
                match find(&mut [guest].into_iter()) {
                    Ok(None) => {}
                    Ok(matched) => {
                        found = matched;
                        break;
                    }
                    // Another namespace's rules stay open; those of its own it may protect.
                    Err(NoAnswer) if !self.is_same_namespace(guest.0, winner) => {}
                    Err(NoAnswer) => return Err(NoAnswer),
                }
            }
        }
        Ok(found.map(|(_, rule, captures)| {
            let captures = Some(Box::new(captures));
            MatchedRule { rule, captures, lacks_slash: false }
        }))
    }

    /// Whether the text of a regular expression is at least as strong as that of another rule.
    fn is_not_weaker(&self, index: usize, than: Option<usize>) -> bool {
        let Some(than) = than else { return true };
        let Some(weakest) = self.path(than) else { return true };
        // The root is stored as the empty text, and a prefix that yields counts as the root.
        let weakest = match weakest.is_empty() || self.is_marked(than) {
            true => &b"/"[..],
            false => weakest,
        };
        self.path(index).is_some_and(|text| strength(text, weakest) != Ordering::Less)
    }

    /// Whether a rule matches paths of other namespaces' rules only below these.
    pub(super) fn yields(&self, index: usize) -> bool {
        index >= self.regexes && self.is_marked(index)
    }

    /// Whether [`crate::model::Policy::yields`] is set for a rule.
    fn is_marked(&self, index: usize) -> bool {
        self.body(index).is_some_and(|rule| rule.yields())
    }

    /// Whether an expression that yields serves the path instead of `winner`.
    pub(super) fn passes(&self, index: usize, winner: Option<usize>) -> bool {
        let Some(winner) = winner else { return true };
        let Some((rule, other)) = self.body(index).zip(self.body(winner)) else { return false };
        if rule.namespace() == other.namespace() {
            return self.is_not_weaker(index, Some(winner));
        }
        self.is_unclaimed_root(other) || self.literal_length(index) > self.literal_length(winner)
    }

    /// Whether there is no winner, or it is of the same namespace as a rule.
    fn is_same_namespace(&self, index: usize, winner: Option<usize>) -> bool {
        let other = winner.and_then(|winner| self.body(winner));
        let rule = self.body(index);
        rule.zip(other).is_none_or(|(rule, other)| rule.namespace() == other.namespace())
    }

    /// The length of the text that every path of a rule begins with, without a trailing slash.
    fn literal_length(&self, index: usize) -> usize {
        let text = match index >= self.regexes {
            true => self.literal(index),
            false => self.path(index),
        };
        let text = text.unwrap_or_default();
        text.strip_suffix(b"/").unwrap_or(text).len()
    }
}
