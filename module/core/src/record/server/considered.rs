//! The rules that were compared with a path, for `oxigress explain`.

use super::inspection::NoParts;
use super::order::covers;
use super::view::{RuleView, ServerView};
use crate::model::{PathPattern, is_well_known};
use crate::patterns::{Budget, NoAnswer, Patterns};
use crate::record::MatchedRule;

/// Why a rule serves a path, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// The rule serves the request.
    Wins,
    /// No rule matches the path, and this exact one matches it with a slash appended.
    LacksSlash,
    /// The rule matches the path too, and another one is stronger.
    Weaker,
    /// The rule matches the path too, and yields to the winner.
    Yields,
    /// The rule matches the path, and the request lacks what it asks for, or a stronger one takes it.
    NotSelected,
    /// The path does not match the pattern.
    OtherPath,
    /// The pattern exceeds its budget on this path.
    NoAnswer,
}

impl MatchResult {
    /// The reason, for `oxigress explain`.
    pub fn why(self) -> &'static str {
        match self {
            MatchResult::Wins => {
                "an exact path first, then the longer text of patterns and prefixes"
            }
            MatchResult::LacksSlash => {
                "no rule matches, but this one matches with a trailing slash: the client is redirected"
            }
            MatchResult::Weaker => {
                "it takes the path too: the winner is exact, or its text is longer"
            }
            MatchResult::Yields => {
                "it takes the path too: the winner is of another namespace, and at least as long as this pattern's literal prefix"
            }
            MatchResult::NotSelected => {
                "it takes the path too: the request lacks the method, header or parameter it asks for, or another rule takes it"
            }
            MatchResult::OtherPath => "the path does not match the pattern",
            MatchResult::NoAnswer => "the pattern exceeds the matching limit on this path",
        }
    }
}

/// A rule that could match a path.
#[derive(Clone, Debug)]
pub struct Considered<'g> {
    /// The rule that was compared with the path.
    pub rule: RuleView<'g>,
    /// The path of the rule, as it was written.
    pub path: PathPattern,
    /// Why the rule serves the path, or does not.
    pub result: MatchResult,
}

impl<'g> ServerView<'g> {
    /// [`Self::compared`] with the winner that [`Self::rule`] finds.
    pub fn considered(&self, path: &[u8], patterns: &Patterns) -> Vec<Considered<'g>> {
        let winner = self.rule(path, &NoParts, patterns);
        self.compared(path, patterns, winner.as_ref().ok().and_then(Option::as_ref))
    }

    /// The rules that take `path`, and those of whose pattern only the beginning fits, each with what became of it beside
    /// the winner, which [`Self::rule`] found; the winner first, the others by their strength.
    pub fn compared(
        &self,
        path: &[u8],
        patterns: &Patterns,
        winner: Option<&MatchedRule<'_>>,
    ) -> Vec<Considered<'g>> {
        let first = winner.map(|route| route.rule.index());
        let lacks_slash = winner.is_some_and(|route| route.lacks_slash);
        let requested = path;
        let mut found = Vec::new();
        let mut put = |index: usize, matches: Result<bool, NoAnswer>| {
            let (Some(rule), Some(path)) = (self.body(index), self.pattern(index)) else { return };
            let (PathPattern::Exact(text) | PathPattern::Prefix(text) | PathPattern::Regex(text)) =
                &path;
            let strength = (index < self.exact, text.len(), text.to_owned());
            for index in self.selected_of(index).filter(|_| matches == Ok(true)) {
                let Some(rule) = self.body(index) else { continue };
                let is_first = first == Some(index);
                let result = if is_first { MatchResult::Wins } else { MatchResult::NotSelected };
                let considered = Considered { rule, path: path.clone(), result };
                found.push((strength.clone(), considered));
            }
            if rule.is_placeholder() {
                return;
            }
            let result = match matches {
                _ if first == Some(index) && lacks_slash => MatchResult::LacksSlash,
                _ if first == Some(index) => MatchResult::Wins,
                Ok(true) => self.beaten(index, first, requested),
                Ok(false) => MatchResult::OtherPath,
                Err(NoAnswer) => MatchResult::NoAnswer,
            };
            found.push((strength, Considered { rule, path, result }));
        };
        if let Ok(index) = self.search(0, self.exact, |candidate| candidate.cmp(path)) {
            put(index, Ok(true));
        }
        if let Some(index) = first.filter(|_| lacks_slash) {
            put(index, Ok(false));
        }
        let mut prefix = self.prefix(path);
        while let Some(index) = prefix {
            if self.path(index).is_some_and(|above| covers(above, path)) {
                put(index, Ok(true));
            }
            prefix = self.parent(index);
        }
        let mut budget = Budget::OF_PATH;
        for (index, text) in self.candidates(path) {
            put(index, patterns.captures(text, path, &mut budget).map(|found| found.is_some()));
        }
        found.sort_by(|(a, first), (b, second)| {
            let wins = |one: &Considered<'_>| {
                matches!(one.result, MatchResult::Wins | MatchResult::LacksSlash)
            };
            wins(second).cmp(&wins(first)).then_with(|| b.cmp(a))
        });
        found.into_iter().map(|(_, considered)| considered).collect()
    }

    /// Why a rule that takes the path does not serve it.
    fn beaten(&self, index: usize, winner: Option<usize>, path: &[u8]) -> MatchResult {
        match self.yields(index) && (is_well_known(path) || !self.passes(index, winner)) {
            true => MatchResult::Yields,
            false => MatchResult::Weaker,
        }
    }

    /// The path of a rule, as it was written.
    fn pattern(&self, index: usize) -> Option<PathPattern> {
        let text = String::from_utf8_lossy(self.path(index)?).into_owned();
        Some(match index {
            _ if index < self.exact => PathPattern::Exact(text),
            _ if index >= self.regexes => PathPattern::Regex(text),
            _ => PathPattern::Prefix(text),
        })
    }
}
