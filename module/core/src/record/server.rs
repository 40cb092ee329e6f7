//! A server's record: its rules, ordered so that one binary search finds the rule of a path.
//!
//! Layout: `rule_count u32`, `exact_count u32`, `regex_count u32`, then per rule 16 bytes: `path_offset u32`,
//! `path_length u16`, `parent u16`, `body_offset u32`, `body_length u32`; then for each rule the id of its
//! policies, their length (`u16`), its policy (`https_redirect u8`), its kind (`u8`: 0 prefix, 1 exact, 2 regular
//! expression), its path and its body; after the body of a regular expression the length (`u16`) and the text of
//! its literal: what every path that it takes begins with, in lower case.
//!
//! Exact rules come first, in byte order; then prefixes in *segment order*, where `/` sorts before every
//! other byte, so that a prefix stands directly before everything below it. `parent` is the nearest
//! prefix rule that covers a prefix rule, [`NONE`] if there is none. The rule of a path is then its
//! predecessor in that order, or the first of the predecessor's parents that covers the path: the cost
//! does not grow with the number of segments that a client sends.
//!
//! Regular expressions come last, by their literals in byte order, those of one literal with the strongest last;
//! `parent` is then the rule before it, of the first one of a literal the last one of the nearest literal that
//! begins it. The only expressions that may take a path are the predecessor of the path among the literals and its
//! parents: ten thousand others cost nothing.
//!
//! A policy: when plain HTTP is redirected in the two lowest bits, then one bit if the rule yields.
//!
//! A body: six `u16` lengths (backend, namespace, ingress, service, port, path), then these texts. No backend:
//! length 0. Kind, path and body in one piece are the rule's *name*: what stays the same while only its policy
//! changes.

use super::{length, short, u16_at, u32_at};
use crate::model::{HttpsRedirect, PathPattern, Rule, Server, is_well_known};
use crate::patterns::{self, Budget, Captures, NoAnswer, Patterns};
use std::cmp::Ordering;

const ENTRY: usize = 16;
const ENTRIES_AT: usize = 12;
const TEXTS: usize = 6;
const TEXTS_AT: usize = 2 * TEXTS;
/// No parent; greater than any index, since a server has at most `MAX_RULES` rules.
const NONE: u16 = u16::MAX;

/// A rule on its way into the record.
struct Entry<'a> {
    path: &'a [u8],
    /// Of a regular expression.
    literal: Option<Vec<u8>>,
    rule: &'a Rule,
}

impl<'a> Entry<'a> {
    fn new(path: &'a str, rule: &'a Rule) -> Self {
        Entry { path: path.as_bytes(), literal: None, rule }
    }
}

/// The record's value of a server.
pub fn encode_server(server: &Server) -> Vec<u8> {
    let mut exact = Vec::new();
    let mut prefixes = Vec::new();
    let mut regexes = Vec::new();
    for rule in &server.rules {
        match &rule.path {
            PathPattern::Exact(path) => exact.push(Entry::new(path, rule)),
            PathPattern::Prefix(path) => prefixes.push(Entry::new(path, rule)),
            PathPattern::Regex(path) => {
                let literal = patterns::literal_prefix(path);
                regexes.push(Entry { literal: Some(literal), ..Entry::new(path, rule) });
            }
        }
    }
    exact.sort_by(|a, b| a.path.cmp(b.path));
    prefixes.sort_by(|a, b| segment_order(a.path, b.path));
    regexes.sort_by(|a, b| a.literal.cmp(&b.literal).then_with(|| strength(a.path, b.path)));

    let first_regex = exact.len() + prefixes.len();
    let rules: Vec<_> = exact.iter().chain(&prefixes).chain(&regexes).collect();
    let mut value = Vec::new();
    value.extend(length(rules.len()).to_le_bytes());
    value.extend(length(exact.len()).to_le_bytes());
    value.extend(length(regexes.len()).to_le_bytes());
    let mut tail = Vec::new();
    let tail_at = ENTRIES_AT + rules.len() * ENTRY;
    let mut ancestors: Vec<usize> = Vec::new();
    for (index, Entry { path, literal, rule }) in rules.iter().enumerate() {
        if index == first_regex {
            ancestors.clear();
        }
        let mut parent = NONE;
        if index >= exact.len() {
            let is_above = |above: &Entry<'_>| match (&above.literal, literal) {
                (Some(above), Some(literal)) => literal.starts_with(above),
                _ => covers(above.path, path),
            };
            while ancestors.last().is_some_and(|&above| !is_above(rules[above])) {
                ancestors.pop();
            }
            parent = ancestors.last().map_or(NONE, |&above| above as u16);
            ancestors.push(index);
        }
        let body = encode_body(rule);
        let policies = rule.policies.as_ref().map_or("", |id| id.as_str());
        tail.extend(policies.as_bytes());
        tail.extend((policies.len() as u16).to_le_bytes());
        tail.push(encode_policy(rule));
        tail.push(match rule.path {
            PathPattern::Prefix(_) => 0,
            PathPattern::Exact(_) => 1,
            PathPattern::Regex(_) => 2,
        });
        value.extend(length(tail_at + tail.len()).to_le_bytes());
        value.extend((path.len() as u16).to_le_bytes());
        value.extend(parent.to_le_bytes());
        tail.extend(*path);
        value.extend(length(tail_at + tail.len()).to_le_bytes());
        value.extend(length(body.len()).to_le_bytes());
        tail.extend(body);
        if let Some(literal) = literal {
            tail.extend((literal.len() as u16).to_le_bytes());
            tail.extend(literal);
        }
    }
    value.extend(tail);
    value
}

/// In a policy: the rule yields.
const YIELDS: u8 = 4;

fn encode_policy(rule: &Rule) -> u8 {
    let redirect = match rule.policy.https_redirect {
        HttpsRedirect::Never => 0,
        HttpsRedirect::WithCertificate => 1,
        HttpsRedirect::Always => 2,
    };
    redirect | if rule.policy.yields { YIELDS } else { 0 }
}

fn encode_body(rule: &Rule) -> Vec<u8> {
    let origin = &rule.origin;
    let backend = rule.backend.as_ref().map_or("", |id| id.as_str());
    let texts =
        [backend, &origin.namespace, &origin.ingress, &origin.service, &origin.port, &origin.path]
            .map(short);
    let mut body = Vec::new();
    body.extend(texts.iter().flat_map(|text| (text.len() as u16).to_le_bytes()));
    body.extend(texts.concat());
    body
}

/// Lexicographic with `/` below every other byte.
fn segment_order(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: u8| if byte == b'/' { 0 } else { u16::from(byte) + 1 };
    match a.iter().zip(b).find(|(x, y)| x != y) {
        Some((&x, &y)) => rank(x).cmp(&rank(y)),
        None => a.len().cmp(&b.len()),
    }
}

/// Among paths that are patterns: the longer text is stronger, then the one that is greater byte by byte.
fn strength(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Compares a literal with a path in lower case.
fn folded_order(literal: &[u8], path: &[u8]) -> Ordering {
    literal.iter().copied().cmp(path.iter().map(u8::to_ascii_lowercase))
}

/// A path begins with a literal, upper and lower case alike.
fn begins(literal: &[u8], path: &[u8]) -> bool {
    path.get(..literal.len()).is_some_and(|start| start.eq_ignore_ascii_case(literal))
}

/// `prefix` takes `path`: equal, or `path` goes on with a slash.
fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The rule that takes a path.
#[derive(Clone, Debug)]
pub struct Route<'g> {
    /// It.
    pub rule: RuleView<'g>,
    /// What its groups matched; `None`: it is no regular expression.
    pub captures: Option<Box<Captures>>,
    /// No rule takes the path. With a slash behind it this exact rule does: the client is sent there.
    pub lacks_slash: bool,
}

/// What became of a rule that could take a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It takes the request.
    Wins,
    /// No rule takes the path, and this exact one takes it with a slash behind it.
    LacksSlash,
    /// It takes the path too, and another one is stronger.
    Weaker,
    /// It takes the path too, and yields to the winner.
    Yields,
    /// The path does not match its pattern.
    OtherPath,
    /// Whether its pattern matches takes too much work to find out.
    NoAnswer,
}

impl Fate {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Fate::Wins => "an exact path first, then the longer text of patterns and prefixes",
            Fate::LacksSlash => {
                "no rule takes the path, and with a slash behind it this one does: the client is sent there"
            }
            Fate::Weaker => "it takes the path too: the winner is exact, or its text is longer",
            Fate::Yields => {
                "it takes the path too: the winner is of another namespace, and no shorter than its plain beginning"
            }
            Fate::OtherPath => "the path does not match the pattern",
            Fate::NoAnswer => "the pattern takes too much work on this path",
        }
    }
}

/// A rule that could take a path.
#[derive(Clone, Debug)]
pub struct Considered<'g> {
    /// It.
    pub rule: RuleView<'g>,
    /// Its path.
    pub path: PathPattern,
    /// What became of it.
    pub fate: Fate,
}

fn path_text(path: &PathPattern) -> &str {
    match path {
        PathPattern::Exact(text) | PathPattern::Prefix(text) | PathPattern::Regex(text) => text,
    }
}

/// A server read in place.
#[derive(Clone, Copy, Debug)]
pub struct ServerView<'g> {
    value: &'g [u8],
    rules: usize,
    exact: usize,
    /// Where regular expressions begin.
    regexes: usize,
}

impl<'g> ServerView<'g> {
    /// Reads `value`, which [`encode_server`] wrote.
    pub fn new(value: &'g [u8]) -> Self {
        let number = |at| u32_at(value, at).map_or(0, |n| n as usize);
        let rules = number(0);
        ServerView { value, rules, exact: number(4), regexes: rules.saturating_sub(number(8)) }
    }

    /// The rule that takes `path`: an exact one first, else the strongest of those regular expressions that are
    /// not weaker than the longest prefix, else that prefix. Expressions that yield come last, for their rules must not
    /// change what the others take. An expression without an answer ends the search: the
    /// rule it belongs to may protect what the next one does not. A path that nobody claims belongs to the exact rule
    /// that has one slash more, if there is one ([`Route::lacks_slash`]).
    #[inline]
    pub fn rule(&self, path: &[u8], patterns: &Patterns) -> Result<Option<Route<'g>>, NoAnswer> {
        let plain = |rule| Route { rule, captures: None, lacks_slash: false };
        if let Ok(index) = self.search(0, self.exact, |candidate| candidate.cmp(path)) {
            return Ok(self.body(index).map(plain));
        }
        let prefix = self.prefix(path);
        if self.regexes < self.rules
            && let Some(route) = self.regex(path, prefix, patterns)?
        {
            return Ok(Some(route));
        }
        let rule = prefix.and_then(|index| self.body(index));
        if self.exact > 0
            && rule.is_none_or(|rule| self.is_nobodys(rule))
            && let Some(rule) = self.with_slash(path)
        {
            return Ok(Some(Route { rule, captures: None, lacks_slash: true }));
        }
        Ok(rule.map(plain))
    }

    /// The exact rule of a path with a slash behind it.
    #[cold]
    fn with_slash(&self, path: &[u8]) -> Option<RuleView<'g>> {
        let order = |candidate: &[u8]| candidate.iter().cmp(path.iter().chain(b"/"));
        self.body(self.search(0, self.exact, order).ok()?)
    }

    /// The root of a host where nobody claims it: requests that come there get the default backend.
    fn is_nobodys(&self, rule: RuleView<'_>) -> bool {
        rule.backend().is_none() && self.path(rule.index()) == Some(b"")
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// The rules that take `path`, and those of whose pattern only the beginning fits, each with what became of it in
    /// [`Self::rule`]; the winner first, the others by their strength.
    pub fn considered(&self, path: &[u8], patterns: &Patterns) -> Vec<Considered<'g>> {
        let winner = self.rule(path, patterns);
        let (first, lacks_slash) = match &winner {
            Ok(Some(route)) => (Some(route.rule.index()), route.lacks_slash),
            _ => (None, false),
        };
        let wins = |index| first == Some(index);
        let requested = path;
        let mut found = Vec::new();
        let mut put = |index: usize, takes: Result<bool, NoAnswer>| {
            let (Some(rule), Some(path)) = (self.body(index), self.pattern(index)) else { return };
            let kind = if index < self.exact { 2 } else { 0 };
            let strength = (kind, path_text(&path).len(), path_text(&path).to_owned());
            let fate = match takes {
                _ if wins(index) && lacks_slash => Fate::LacksSlash,
                _ if wins(index) => Fate::Wins,
                Ok(true)
                    if self.yields(index)
                        && (is_well_known(requested) || !self.passes(index, first)) =>
                {
                    Fate::Yields
                }
                Ok(true) => Fate::Weaker,
                Ok(false) => Fate::OtherPath,
                Err(NoAnswer) => Fate::NoAnswer,
            };
            found.push((strength, Considered { rule, path, fate }));
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
            let wins = |one: &Considered<'_>| matches!(one.fate, Fate::Wins | Fate::LacksSlash);
            wins(second).cmp(&wins(first)).then_with(|| b.cmp(a))
        });
        found.into_iter().map(|(_, considered)| considered).collect()
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

    /// The longest prefix.
    fn prefix(&self, path: &[u8]) -> Option<usize> {
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

    /// The strongest regular expression that takes the path and is not weaker than a prefix.
    fn regex(
        &self,
        path: &[u8],
        prefix: Option<usize>,
        patterns: &Patterns,
    ) -> Result<Option<Route<'g>>, NoAnswer> {
        let mut candidates = self.candidates(path);
        candidates.retain(|(index, _)| match self.yields(*index) {
            true => !is_well_known(path),
            false => self.is_not_weaker(*index, prefix),
        });
        // The strongest of each literal come first: there is little left to sort.
        candidates.sort_by(|(_, a), (_, b)| strength(b, a));
        let mut budget = Budget::OF_PATH;
        let mut find = |all: &mut dyn Iterator<Item = (usize, &'g [u8])>| {
            for (index, text) in all {
                let namespace = self.body(index).map(|rule| rule.namespace()).unwrap_or_default();
                if let Some(captures) = patterns.of(namespace).captures(text, path, &mut budget)? {
                    return Ok(Some((index, captures)));
                }
            }
            Ok(None)
        };
        let (guests, own): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(index, _)| self.yields(*index));
        let mut found = find(&mut own.into_iter())?;
        if !guests.is_empty() {
            let winner = found.as_ref().map(|(index, _)| *index).or(prefix);
            for guest in guests.into_iter().filter(|(index, _)| self.passes(*index, winner)) {
                match find(&mut [guest].into_iter()) {
                    Ok(None) => {}
                    Ok(taken) => {
                        found = taken;
                        break;
                    }
                    // It closes nothing of another namespace, and may protect what its own serves.
                    Err(NoAnswer) if !self.is_of_one(guest.0, winner) => {}
                    Err(NoAnswer) => return Err(NoAnswer),
                }
            }
        }
        Ok(found.and_then(|(index, captures)| {
            let captures = Some(Box::new(captures));
            let route = |rule| Route { rule, captures, lacks_slash: false };
            self.body(index).map(route)
        }))
    }

    /// Whether the text of a regular expression is at least as strong as that of another rule.
    fn is_not_weaker(&self, index: usize, than: Option<usize>) -> bool {
        let Some(than) = than else { return true };
        let Some(weakest) = self.path(than) else { return true };
        // The root's, as it was written.
        let weakest = match weakest.is_empty() || self.is_marked(than) {
            true => &b"/"[..],
            false => weakest,
        };
        self.path(index).is_some_and(|text| strength(text, weakest) != Ordering::Less)
    }

    /// Whether a rule takes from other namespaces only what lies below their rules.
    fn yields(&self, index: usize) -> bool {
        index >= self.regexes && self.is_marked(index)
    }

    /// Whether a rule's [`crate::model::Policy::yields`] is set.
    fn is_marked(&self, index: usize) -> bool {
        self.body(index).is_some_and(|rule| rule.policy & YIELDS != 0)
    }

    /// Whether an expression that yields takes the path in place of `winner`.
    fn passes(&self, index: usize, winner: Option<usize>) -> bool {
        let Some(winner) = winner else { return true };
        let Some((rule, other)) = self.body(index).zip(self.body(winner)) else { return false };
        if rule.namespace() == other.namespace() {
            return self.is_not_weaker(index, Some(winner));
        }
        self.is_nobodys(other) || self.plain_beginning(index) > self.plain_beginning(winner)
    }

    /// Whether the winner is of the same namespace as a rule, or there is none.
    fn is_of_one(&self, index: usize, winner: Option<usize>) -> bool {
        let other = winner.and_then(|winner| self.body(winner));
        let rule = self.body(index);
        rule.zip(other).is_none_or(|(rule, other)| rule.namespace() == other.namespace())
    }

    /// The length of what every path that a rule takes begins with, without a slash at its end.
    fn plain_beginning(&self, index: usize) -> usize {
        let text = match index >= self.regexes {
            true => self.literal(index),
            false => self.path(index),
        };
        let text = text.unwrap_or_default();
        text.strip_suffix(b"/").unwrap_or(text).len()
    }

    /// The regular expressions whose literal begins the path, with their texts.
    fn candidates(&self, path: &[u8]) -> Vec<(usize, &'g [u8])> {
        let (mut low, mut high) = (self.regexes, self.rules);
        while low < high {
            let middle = low.midpoint(high);
            match folded_order(self.literal(middle).unwrap_or_default(), path) {
                Ordering::Greater => high = middle,
                _ => low = middle + 1,
            }
        }
        let mut found = Vec::new();
        let mut next = low.checked_sub(1).filter(|last| *last >= self.regexes);
        while let Some(index) = next {
            if self.literal(index).is_some_and(|literal| begins(literal, path)) {
                found.extend(self.path(index).map(|text| (index, text)));
            }
            next = self.parent(index);
        }
        found
    }

    /// The rule above; always one before it.
    fn parent(&self, index: usize) -> Option<usize> {
        let parent = usize::from(u16_at(self.value, ENTRIES_AT + index * ENTRY + 6)?);
        (parent < index).then_some(parent)
    }

    fn literal(&self, index: usize) -> Option<&'g [u8]> {
        let entry = ENTRIES_AT + index * ENTRY;
        let body = u32_at(self.value, entry + 8)? as usize;
        let at = body.checked_add(u32_at(self.value, entry + 12)? as usize)?;
        let bytes = usize::from(u16_at(self.value, at)?);
        self.value.get(at + 2..)?.get(..bytes)
    }

    fn search(
        &self,
        from: usize,
        to: usize,
        order: impl Fn(&[u8]) -> Ordering,
    ) -> Result<usize, usize> {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low.midpoint(high);
            match order(self.path(middle).unwrap_or_default()) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    fn path(&self, index: usize) -> Option<&'g [u8]> {
        let entry = ENTRIES_AT + index * ENTRY;
        let start = u32_at(self.value, entry)? as usize;
        self.value.get(start..)?.get(..usize::from(u16_at(self.value, entry + 4)?))
    }

    fn body(&self, index: usize) -> Option<RuleView<'g>> {
        let entry = ENTRIES_AT + index * ENTRY;
        let start = u32_at(self.value, entry + 8)? as usize;
        let body = self.value.get(start..)?.get(..u32_at(self.value, entry + 12)? as usize)?;
        let path = u32_at(self.value, entry)? as usize;
        let policy = *self.value.get(path.checked_sub(2)?)?;
        let policies_end = path.checked_sub(4)?;
        let policies_length = usize::from(u16_at(self.value, policies_end)?);
        let policies = self.value.get(policies_end.checked_sub(policies_length)?..policies_end)?;
        (body.len() >= TEXTS_AT).then_some(RuleView { body, policy, policies, index })
    }

    /// All rules, in the order of [`RuleView::index`].
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'g>> + use<'g> {
        let server = *self;
        (0..self.rules).map_while(move |index| server.body(index))
    }

    /// The names of all rules, in their order: each rule's kind, path, backend and origin.
    pub fn names(&self) -> impl Iterator<Item = &'g [u8]> + use<'g> {
        let server = *self;
        (0..self.rules).map_while(move |index| {
            let entry = ENTRIES_AT + index * ENTRY;
            let start = (u32_at(server.value, entry)? as usize).checked_sub(1)?;
            let body = u32_at(server.value, entry + 8)? as usize;
            let end = body.checked_add(u32_at(server.value, entry + 12)? as usize)?;
            server.value.get(start..end)
        })
    }
}

/// A rule read in place.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'g> {
    body: &'g [u8],
    policy: u8,
    policies: &'g [u8],
    index: usize,
}

impl<'g> RuleView<'g> {
    /// When plain HTTP is answered with a redirect.
    pub fn https_redirect(&self) -> HttpsRedirect {
        match self.policy & !YIELDS {
            1 => HttpsRedirect::WithCertificate,
            2 => HttpsRedirect::Always,
            _ => HttpsRedirect::Never,
        }
    }

    /// Id of its policies; empty: it has none.
    #[inline]
    pub fn policies(&self) -> &'g [u8] {
        self.policies
    }

    /// Its place among the rules of its server.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Id of the backend; none: the default backend serves.
    pub fn backend(&self) -> Option<&'g [u8]> {
        let bytes = usize::from(u16_at(self.body, 0)?);
        self.body.get(TEXTS_AT..)?.get(..bytes).filter(|id| !id.is_empty())
    }

    /// Namespace of its Ingress.
    fn namespace(&self) -> &'g [u8] {
        let [_, namespace, ..] = self.texts();
        namespace
    }

    /// The texts of [`RuleView::texts`] one after the other, and their lengths: to copy them at once.
    pub fn packed(&self) -> ([u16; TEXTS], &'g [u8]) {
        let mut lengths = [0; TEXTS];
        for (number, length) in lengths.iter_mut().enumerate() {
            *length = u16_at(self.body, 2 * number).unwrap_or_default();
        }
        let texts = self.body.get(TEXTS_AT..).unwrap_or_default();
        let total: usize = lengths.iter().map(|length| usize::from(*length)).sum();
        match texts.get(..total) {
            Some(texts) => (lengths, texts),
            None => ([0; TEXTS], &[]),
        }
    }

    /// Backend id and then the texts of [`crate::model::Origin`], in the order of its fields.
    pub fn texts(&self) -> [&'g [u8]; TEXTS] {
        let mut rest = self.body.get(TEXTS_AT..).unwrap_or_default();
        let mut number = 0;
        [(); TEXTS].map(|()| {
            let bytes = u16_at(self.body, 2 * number).map_or(0, usize::from);
            number += 1;
            let (text, after) = rest.split_at_checked(bytes).unwrap_or_default();
            rest = after;
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BackendId, Origin, Policy};
    use crate::patterns::Allowance;
    use proptest::prelude::*;

    fn rule(path: PathPattern, backend: &str) -> Rule {
        Rule {
            path,
            backend: Some(BackendId::parse(backend).unwrap()),
            origin: Origin { ingress: "shop".into(), ..Origin::default() },
            policy: Policy { https_redirect: HttpsRedirect::Always, yields: false },
            policies: None,
        }
    }

    fn pattern(text: &str) -> PathPattern {
        match (text.strip_prefix('='), text.strip_prefix('~')) {
            (Some(exact), _) => PathPattern::exact(exact).unwrap(),
            (_, Some(regex)) => PathPattern::regex(regex, Allowance::unlimited()).unwrap(),
            _ => PathPattern::prefix(text).unwrap(),
        }
    }

    fn server(paths: &[&str]) -> Vec<u8> {
        let rules = paths.iter().map(|path| rule(pattern(path), path));
        encode_server(&Server { rules: rules.collect() })
    }

    fn winner(value: &[u8], path: &str) -> Option<String> {
        let patterns = Patterns::default();
        let route = ServerView::new(value).rule(path.as_bytes(), &patterns).unwrap()?;
        let backend = String::from_utf8(route.rule.backend().unwrap().to_vec()).unwrap();
        Some(if route.lacks_slash { format!("to {backend}") } else { backend })
    }

    fn found<'v>(value: &'v [u8], path: &[u8]) -> Option<RuleView<'v>> {
        let patterns = Patterns::default();
        ServerView::new(value).rule(path, &patterns).unwrap().map(|route| route.rule)
    }

    #[test]
    fn a_prefix_matches_whole_segments_only() {
        let value = server(&["/cart"]);
        assert_eq!(winner(&value, "/cart").as_deref(), Some("/cart"));
        assert_eq!(winner(&value, "/cart/1").as_deref(), Some("/cart"));
        assert_eq!(winner(&value, "/carts"), None);
        assert_eq!(winner(&value, "/car"), None);
    }

    /// Rules of `NAMESPACE PATH`; those of expressions in lower-case namespaces yield.
    fn shared(rules: &[&str]) -> Vec<u8> {
        let rule = |text: &&str| {
            let (namespace, path) = text.split_once(' ').unwrap();
            let mut rule = rule(pattern(path), text);
            rule.origin.namespace = namespace.into();
            rule.policy.yields = path.starts_with('~') && namespace != "OWNER";
            rule
        };
        encode_server(&Server { rules: rules.iter().map(rule).collect() })
    }

    #[test]
    fn an_expression_that_yields_takes_only_what_lies_below_the_rules_of_others() {
        let value = shared(&[
            "OWNER /",
            "OWNER /admin",
            "OWNER /docs/secret",
            "OWNER ~/v[0-9]/(.*)",
            "other ~/.*and-a-very-long-text-that-says-nothing(.*)|/.*",
            "other ~/(admin)(/|$)(.*)()()()()()()()()()()()()()()()()()()",
            "other ~/admin/.*()()()()()()()()()()()()()()()()()()",
            "other ~/docs(/|$)(.*)",
            "other ~/v[0-9]/(.*)()()()()()()()()()",
            "third /own",
            "third ~/own/.*",
        ]);
        for (path, expected) in [
            ("/", "OWNER /"),
            ("/x", "OWNER /"),
            ("/x/and-a-very-long-text-that-says-nothing", "OWNER /"),
            ("/admin", "OWNER /admin"),
            ("/admin/x", "OWNER /admin"),
            ("/docs", "other ~/docs(/|$)(.*)"),
            ("/docs/x", "other ~/docs(/|$)(.*)"),
            ("/docs/secret/x", "OWNER /docs/secret"),
            ("/v1/x", "OWNER ~/v[0-9]/(.*)"),
            ("/own/x", "third ~/own/.*"),
            ("/own", "third /own"),
        ] {
            assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
            let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
            assert_eq!(all[0].fate, Fate::Wins, "{path}");
        }
        let all = ServerView::new(&value).considered(b"/admin/x", &Patterns::default());
        assert_eq!(all.iter().filter(|one| one.fate == Fate::Yields).count(), 3, "{all:?}");
    }

    #[test]
    fn what_lies_below_well_known_is_never_a_guests_and_its_kept_rule_counts_as_the_root() {
        for guest in ["~/(.*)", "~/\\.well(.*)", "~/(\\.well-known|x)/(.*)"] {
            let value = shared(&["OWNER /", &format!("other {guest}"), "OWNER ~/shop(.*)"]);
            let path = "/.well-known/acme-challenge/token";
            assert_eq!(winner(&value, path).as_deref(), Some("OWNER /"), "{guest}");
            let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
            assert_eq!(all[0].fate, Fate::Wins, "{guest}");
            assert!(all[1..].iter().all(|one| one.fate == Fate::Yields), "{guest}: {all:?}");
        }
        // Where nobody claims the root, a guest's expression has all other paths.
        let mut nobodys = rule(pattern("/"), "x");
        nobodys.backend = None;
        let mut guest = rule(pattern("~/(.*)"), "guest");
        guest.policy.yields = true;
        let value = encode_server(&Server { rules: vec![nobodys, guest] });
        assert_eq!(winner(&value, "/x").as_deref(), Some("guest"));
        let found = found(&value, b"/.well-known/x").unwrap();
        assert_eq!(found.backend(), None);

        let mut kept = rule(pattern(crate::model::WELL_KNOWN), "kept");
        for (yields, expected) in [(true, "~/(.*)"), (false, "kept")] {
            kept.policy.yields = yields;
            let owners = rule(pattern("~/(.*)"), "~/(.*)");
            let value = encode_server(&Server { rules: vec![kept.clone(), owners] });
            assert_eq!(winner(&value, "/.well-known/x").as_deref(), Some(expected));
        }
    }

    #[test]
    fn an_expression_that_yields_has_what_nobody_claims_and_costs_the_others_nothing() {
        let mut nobodys = rule(pattern("/"), "x");
        nobodys.backend = None;
        let mut other = rule(pattern("~/(a|b)/.*"), "other");
        other.origin.namespace = "other".into();
        other.policy.yields = true;
        let value = encode_server(&Server { rules: vec![nobodys, other.clone()] });
        assert_eq!(winner(&value, "/a/x").as_deref(), Some("other"));

        // An expression without an answer ends the search: it is not tried where it may not win.
        let costly = "~/(?=a)(a+)+(a+)+(a+)+(a+)+b";
        let mut costly = Rule { path: pattern(costly), ..other };
        let path = format!("/{}", "a".repeat(1_000));
        let patterns = Patterns::default();
        let mut answer = |yields| {
            costly.policy.yields = yields;
            let rules = vec![rule(pattern("/"), "own"), costly.clone()];
            let value = encode_server(&Server { rules });
            let found = ServerView::new(&value).rule(path.as_bytes(), &patterns);
            found.map(|route| route.map(|route| route.rule.backend().unwrap() == b"own"))
        };
        assert!(answer(false).is_err(), "the pattern is not costly enough for this test");
        assert!(matches!(answer(true), Ok(Some(true))));

        // Where it may win, the owner's rule is served in its place.
        costly.path = pattern("~/shop/(?=a)(a+)+(a+)+(a+)+(a+)+b");
        costly.policy.yields = true;
        let rules = vec![rule(pattern("/"), "own"), costly.clone()];
        let value = encode_server(&Server { rules });
        let path = format!("/shop/{}", "a".repeat(1_000));
        let found = ServerView::new(&value).rule(path.as_bytes(), &patterns).unwrap().unwrap();
        assert_eq!(found.rule.backend(), Some(&b"own"[..]));

        // It may protect what its own namespace serves there.
        let mut open = Rule { path: pattern("/shop"), ..costly.clone() };
        open.policy.yields = false;
        let rules = vec![rule(pattern("/"), "own"), open.clone(), costly.clone()];
        let value = encode_server(&Server { rules });
        assert!(ServerView::new(&value).rule(path.as_bytes(), &patterns).is_err());
        // One of a third namespace ends nobody's search.
        let mut third = Rule { path: pattern("~/shop/a(?=a)(a+)+(a+)+(a+)+(a+)+b"), ..costly };
        third.origin.namespace = "third".into();
        let guarded = Rule { path: pattern("~/shop/a.*"), ..third.clone() };
        let guarded = Rule { origin: open.origin.clone(), ..guarded };
        let rules = vec![rule(pattern("/"), "own"), open, third, guarded.clone()];
        let value = encode_server(&Server { rules });
        let found = ServerView::new(&value).rule(path.as_bytes(), &patterns).unwrap().unwrap();
        assert!(found.captures.is_some(), "the guarded one takes it");
    }

    #[test]
    fn exact_wins_over_prefix_and_the_longer_prefix_over_the_shorter() {
        let value = server(&["/", "/a", "/a/b", "=/a/b", "/a-b", "/a/b/c"]);
        for (path, expected) in [
            ("/", "/"),
            ("/x", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a/b", "=/a/b"),
            ("/a/b/", "/a/b"),
            ("/a/bc", "/a"),
            ("/a/b/c/d", "/a/b/c"),
            ("/a/b-c", "/a"),
            ("/a-b/c", "/a-b"),
            ("/ab", "/"),
        ] {
            assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_path_that_lacks_the_slash_of_an_exact_one_leads_there_unless_a_rule_takes_it() {
        let paths = ["=/a/", "=/a/b/", "=/c/", "=/c", "=/d/e/", "/d", "=/r/", "~/r.*", "=/"];
        let value = server(&paths);
        for (path, expected) in [
            ("/a", Some("to =/a/")),
            ("/a/", Some("=/a/")),
            ("/a/b", Some("to =/a/b/")),
            ("/c", Some("=/c")),
            ("/d/e", Some("/d")),
            ("/r", Some("~/r.*")),
            ("/a/b//", None),
            ("/A", None),
            ("/", Some("=/")),
        ] {
            assert_eq!(winner(&value, path).as_deref(), expected, "{path}");
            let all = ServerView::new(&value).considered(path.as_bytes(), &Patterns::default());
            let is_first = matches!(expected, Some(expected) if expected.starts_with("to "));
            let fate = all.first().map(|one| one.fate);
            assert_eq!(fate == Some(Fate::LacksSlash), is_first, "{path}");
        }
        // A root takes every path; one that nobody claims takes none.
        let value = server(&["=/a/", "/"]);
        assert_eq!(winner(&value, "/a").as_deref(), Some("/"));
        let mut nobodys = rule(pattern("/"), "x");
        nobodys.backend = None;
        let value = encode_server(&Server { rules: vec![nobodys, rule(pattern("=/a/"), "=/a/")] });
        assert_eq!(winner(&value, "/a").as_deref(), Some("to =/a/"));
        assert!(
            !ServerView::new(&value)
                .rule(b"/b", &Patterns::default())
                .unwrap()
                .unwrap()
                .lacks_slash
        );
    }

    #[test]
    fn a_rule_gives_back_its_texts() {
        let value = server(&["/cart"]);
        let found = found(&value, b"/cart").unwrap();
        assert_eq!(found.texts(), [&b"/cart"[..], b"", b"shop", b"", b"", b""]);
        assert_eq!(found.packed(), ([5, 0, 4, 0, 0, 0], &b"/cartshop"[..]));
        assert_eq!(found.https_redirect(), HttpsRedirect::Always);
    }

    #[test]
    fn a_rule_keeps_its_name_while_its_policy_changes_and_no_other_has_it() {
        let exact = rule(PathPattern::exact("/a").unwrap(), "x");
        let prefix = rule(PathPattern::prefix("/a").unwrap(), "x");
        let other = rule(PathPattern::prefix("/b").unwrap(), "x");
        let value = |rules: &[&Rule]| {
            encode_server(&Server { rules: rules.iter().map(|rule| (*rule).clone()).collect() })
        };
        let before = value(&[&other, &prefix, &exact]);
        let names: Vec<_> = ServerView::new(&before).names().collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        let policy = Policy::default();
        let after = value(&[&Rule { policy, ..exact.clone() }]);
        assert_eq!(ServerView::new(&after).names().collect::<Vec<_>>(), names[..1]);
        let rules: Vec<_> = ServerView::new(&before).rules().collect();
        assert_eq!(rules.iter().map(RuleView::index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(found(&before, b"/b").unwrap().index(), 2);
    }

    #[test]
    fn cut_bytes_answer_not_there() {
        let value = server(&["/", "/a", "=/a/b", "~/a/b/[a-d]", "~/a/x", "~/A.b"]);
        for cut in 0..value.len() {
            ServerView::new(&value[..cut]).names().count();
            if let Some(rule) = found(&value[..cut], b"/a/b/c") {
                rule.texts();
            }
        }
    }

    #[test]
    fn an_exact_path_wins_then_the_longer_text_of_pattern_or_prefix() {
        let value = server(&[
            "/",
            "/app/v1/users",
            "=/app/v1/x1",
            "~/app(/|$)(.*)",
            "~/app/v[0-9]+/.*",
            "~/b.",
            "~/b?",
        ]);
        for (path, expected) in [
            ("/app/v1/x1", "=/app/v1/x1"),
            ("/app/v1/x2", "~/app/v[0-9]+/.*"),
            ("/app/v1/users/7", "~/app/v[0-9]+/.*"),
            ("/app/vx", "~/app(/|$)(.*)"),
            ("/apps", "~/b?"),
            ("/APP/V1/", "~/app/v[0-9]+/.*"),
            // As long as each other: `?` is greater than `.`.
            ("/bx", "~/b?"),
        ] {
            assert_eq!(winner(&value, path).as_deref(), Some(expected), "{path}");
        }
        let value = server(&["/app/v1/users/of/mine", "~/app/v[0-9]+/.*", "~/ab", "/ac", "~/a."]);
        assert_eq!(
            winner(&value, "/app/v1/users/of/mine/7").as_deref(),
            Some("/app/v1/users/of/mine")
        );
        assert_eq!(winner(&value, "/abc").as_deref(), Some("~/ab"));
        assert_eq!(winner(&value, "/ac").as_deref(), Some("/ac"));
        assert_eq!(winner(&value, "/b"), None);
    }

    #[test]
    fn a_pattern_is_anchored_as_a_whole_and_says_what_its_groups_matched() {
        let value = server(&["~/a(/|$)(.*)|/b([0-9]*)"]);
        let patterns = Patterns::default();
        let captures = |path: &'static [u8]| {
            let route = ServerView::new(&value).rule(path, &patterns).unwrap()?;
            let captures = route.captures.unwrap();
            Some([0, 1, 2, 3, 9].map(|group| captures.get(group, path).escape_ascii().to_string()))
        };
        assert_eq!(
            captures(b"/A/x%2f\xff/").unwrap(),
            ["/A/x%2f\\xff/", "/", "x%2f\\xff/", "", ""]
        );
        assert_eq!(captures(b"/a").unwrap(), ["/a", "", "", "", ""]);
        assert_eq!(captures(b"/b12x").unwrap(), ["/b12", "", "", "12", ""]);
        assert_eq!(captures(b"/x/b12"), None);
        assert_eq!(captures(b"x/a/"), None);
    }

    #[test]
    fn ten_thousand_patterns_with_other_beginnings_cost_nothing() {
        let all: Vec<_> = (0..10_000).map(|n| format!("~/svc-{n}(/|$)(.*)")).collect();
        let value = server(&all.iter().map(String::as_str).collect::<Vec<_>>());
        let patterns = Patterns::default();
        for n in [0, 7, 1_234, 9_999] {
            let path = format!("/SVC-{n}/x");
            let route = ServerView::new(&value).rule(path.as_bytes(), &patterns).unwrap().unwrap();
            assert_eq!(route.rule.backend().unwrap(), format!("~/svc-{n}(/|$)(.*)").as_bytes());
            assert_eq!(route.captures.unwrap().get(2, path.as_bytes()), b"x");
        }
        assert!(ServerView::new(&value).rule(b"/svd", &patterns).unwrap().is_none());
        assert_eq!(patterns.of_paths_kept(), 4, "no other was compiled");
    }

    #[test]
    fn a_pattern_without_an_answer_ends_the_search() {
        let value = server(&["/", r"~/(?=a)(a|a)*b\1\1"]);
        let path = format!("/{}!", "a".repeat(900));
        let patterns = Patterns::default();
        assert!(ServerView::new(&value).rule(path.as_bytes(), &patterns).is_err());
        assert_eq!(winner(&value, "/b").as_deref(), Some("/"));
    }

    /// Small, so that rules meet.
    const REGEXES: [&str; 19] = [
        "/",
        "/a",
        "/A",
        "/ab",
        "/a/b",
        "/a.*",
        "/a(/|$)(.*)",
        "/[ab]",
        "/(a|b)/?",
        "/a+b",
        "/ab?c",
        "/a|/b",
        "/(?i)AB",
        "/a\\.b",
        "/a/?b",
        "/(?!a)b",
        "/a(?=b)",
        "/ab*",
        "/a/b$",
    ];

    proptest! {
        /// Against the definition: exact, then all patterns and the longest prefix by their strength.
        #[test]
        fn the_strongest_pattern_is_found(
            chosen in proptest::collection::btree_set(0..REGEXES.len(), 0..6),
            prefixes in proptest::collection::btree_set("(/[ab]{1,2}){0,2}", 0..4),
            exact in proptest::option::of("/[ab]/?[ab]?"),
            path in "/([abA]{1,2}(/[aB.]{0,2})?)?",
        ) {
            let mut all: Vec<String> = chosen.iter().map(|n| format!("~{}", REGEXES[*n])).collect();
            all.extend(prefixes.iter().map(|p| if p.is_empty() { "/".into() } else { p.clone() }));
            all.extend(exact.iter().map(|path| format!("={path}")));
            let value = server(&all.iter().map(String::as_str).collect::<Vec<_>>());
            let takes = |text: &str| match pattern(text) {
                PathPattern::Exact(exact) => exact == path,
                PathPattern::Prefix(prefix) => covers(prefix.as_bytes(), path.as_bytes()),
                PathPattern::Regex(regex) => {
                    fancy_regex::Regex::new(&format!("(?i)^(?:{regex})")).unwrap().is_match(&*path).unwrap()
                }
            };
            let longest = all.iter().filter(|text| text.starts_with('/') && takes(text)).max_by_key(|t| t.len());
            let best = all
                .iter()
                .filter(|text| takes(text) && (!text.starts_with('/') || Some(*text) == longest))
                .max_by_key(|text| {
                    let bare = text.trim_start_matches(['=', '~']);
                    (text.starts_with('='), bare.len(), bare.to_owned(), text.starts_with('~'))
                });
            let slashed = format!("={path}/");
            let expected = best.cloned().or_else(|| all.contains(&slashed).then(|| format!("to {slashed}")));
            prop_assert_eq!(winner(&value, &path), expected, "{:?}", all);
        }

        /// Against the definition: among all prefixes that cover the path, the longest.
        #[test]
        fn the_longest_covering_prefix_is_found(
            prefixes in proptest::collection::btree_set("(/[ab.-]{1,2}){0,4}", 0..30),
            path in "(/[ab.-]{1,2}){1,5}/?",
        ) {
            let rules = prefixes.iter().map(|p| rule(PathPattern::Prefix(p.clone()), &format!("={p}")));
            let value = encode_server(&Server { rules: rules.collect() });
            let longest = prefixes.iter().filter(|p| covers(p.as_bytes(), path.as_bytes())).max_by_key(|p| p.len());
            prop_assert_eq!(winner(&value, &path), longest.map(|p| format!("={p}")));
        }
    }
}
