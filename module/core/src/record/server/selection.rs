//! Rules that take only some of the requests for their path.
//!
//! Layout: they stand behind all other rules, those of one path together, the strongest first. Before the id of the policies of
//!         such a rule stands its [`Share`], behind the texts of its body what a request has to have: the length (`u8`) of the
//!         method and the method; the number (`u8`) of headers and of parameters, each a [`Condition`], its name and its text;
//!         last its place (`u16`) among those that share requests, so that no two rules have one name.
//!         Behind the rule of the path stands an [`Index`]: the rules by the hash of the rarest of their exact conditions, then
//!         (`u16` each) those without an exact condition.
//! Cost:   a request's method, headers and parameters are looked up by hash, and only the rules that are found so are compared:
//!         a thousand rules that differ in one header cost what ten do.
//!         A request has a number of steps for all of them together ([`Inspection`]).
//! Errors: a request that takes more steps, or an expression beyond its budget, ends the search with [`NoAnswer`].

use super::inspection::{Inspection, RequestParts, Source, fnv, name_hash};
use super::view::{RuleView, ServerView};
use super::{Lengths, RuleHead};
use crate::model::{Rule, Selection, ValueMatch, ValuePattern};
use crate::patterns::{NoAnswer, Patterns};
use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Share {
    weight: U32,
    /// The number of rules from this one on that share requests: 1 for one that takes all, 0 for those behind the first.
    group: U16,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Condition {
    is_regex: u8,
    name_bytes: U16,
    text_bytes: U16,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Index {
    /// The rules of the path.
    first: U16,
    count: U16,
    keyed: U16,
    open: U16,
    /// A bit for each name of a key, by its hash: what has another name is not hashed.
    names: U64,
}

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Keyed {
    hash: U32,
    rule: U16,
}

fn value_hash(name: u32, value: &[u8]) -> u32 {
    fnv(fnv(name, [0xff].into_iter()), value.iter().copied())
}

const fn bit(hash: u32) -> u64 {
    1 << ((hash >> 7) & 63)
}

/// The exact conditions of a selection, as hashes of their name and of both.
fn keys(selection: &Selection) -> Vec<(u32, u32)> {
    let mut all = Vec::new();
    if let Some(method) = &selection.method {
        let name = name_hash(Source::Method, b"");
        all.push((name, value_hash(name, method.as_str().as_bytes())));
    }
    for (source, list) in [(Source::Header, &selection.headers), (Source::Query, &selection.query)]
    {
        for one in list {
            if let ValuePattern::Exact(value) = &one.value {
                let name = name_hash(source, one.name.as_bytes());
                all.push((name, value_hash(name, value.as_bytes())));
            }
        }
    }
    all
}

/// The rules of one path, the strongest first; those that share requests stay together.
pub(super) fn ordered(mut rules: Vec<&Rule>) -> Vec<(&Rule, u16, u16)> {
    let rank = |rule: &Rule| rule.selection.as_deref().map(Selection::rank);
    rules.sort_by_key(|rule| std::cmp::Reverse(rank(rule)));
    let mut all = Vec::with_capacity(rules.len());
    let is_one = |a: &Rule, b: &Rule| match (a.selection.as_deref(), b.selection.as_deref()) {
        (Some(a), Some(b)) => {
            a.weight.is_some() && b.weight.is_some() && a.criteria() == b.criteria()
        }
        _ => false,
    };
    for group in rules.chunk_by(|a, b| is_one(a, b)) {
        for (place, rule) in group.iter().enumerate() {
            let length = if place == 0 { group.len() as u16 } else { 0 };
            all.push((*rule, length, place as u16));
        }
    }
    all
}

/// What stands before the id of a selected rule's policies.
pub(super) fn encode_share(rule: &Rule, group: u16, to: &mut Vec<u8>) {
    let weight = rule.selection.as_ref().and_then(|selection| selection.weight).unwrap_or(1);
    to.extend(Share { weight: weight.into(), group: group.into() }.as_bytes());
}

/// What stands behind the texts of a selected rule.
pub(super) fn encode_conditions(selection: &Selection, place: u16, to: &mut Vec<u8>) {
    let method = selection.method.as_ref().map_or("", |method| method.as_str());
    to.push(method.len() as u8);
    to.extend(method.as_bytes());
    for list in [&selection.headers, &selection.query] {
        to.push(list.len() as u8);
        for one in list {
            put_condition(one, to);
        }
    }
    to.extend(place.to_le_bytes());
}

fn put_condition(one: &ValueMatch, to: &mut Vec<u8>) {
    let regex = one.regex();
    let text = match (&regex, &one.value) {
        (Some(text), _) => text,
        (None, ValuePattern::Exact(text) | ValuePattern::Regex(text)) => text,
    };
    let head = Condition {
        is_regex: regex.is_some().into(),
        name_bytes: (one.name.len() as u16).into(),
        text_bytes: (text.len() as u16).into(),
    };
    to.extend(head.as_bytes());
    to.extend(one.name.as_bytes());
    to.extend(text.as_bytes());
}

/// What stands behind the rule of a path whose selected rules begin at `first`.
pub(super) fn encode_index(rules: &[(&Rule, u16, u16)], first: usize, to: &mut Vec<u8>) {
    let leaders = rules.iter().enumerate().filter(|(_, (_, group, _))| *group > 0);
    let leaders: Vec<_> = leaders
        .map(|(place, (rule, ..))| {
            let keys = rule.selection.as_deref().map(keys).unwrap_or_default();
            ((first + place) as u16, keys)
        })
        .collect();
    let mut common: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, hash) in leaders.iter().flat_map(|(_, keys)| keys) {
        *common.entry(*hash).or_default() += 1;
    }
    let (mut keyed, mut open, mut names) = (Vec::new(), Vec::new(), 0);
    for (rule, keys) in &leaders {
        match keys.iter().min_by_key(|(_, hash)| common.get(hash)) {
            Some((name, hash)) => {
                names |= bit(*name);
                keyed.push((*hash, *rule));
            }
            None => open.push(*rule),
        }
    }
    keyed.sort_unstable();
    let index = Index {
        first: (first as u16).into(),
        count: (rules.len() as u16).into(),
        keyed: (keyed.len() as u16).into(),
        open: (open.len() as u16).into(),
        names: names.into(),
    };
    to.extend(index.as_bytes());
    for (hash, rule) in keyed {
        to.extend(Keyed { hash: hash.into(), rule: rule.into() }.as_bytes());
    }
    to.extend(open.iter().flat_map(|rule| rule.to_le_bytes()));
}

/// The selected rules of a path, read in place.
struct IndexView<'g> {
    head: &'g Index,
    keyed: &'g [Keyed],
    open: &'g [U16],
}

impl<'g> IndexView<'g> {
    fn new(bytes: &'g [u8]) -> Option<Self> {
        let (head, rest) = Index::ref_from_prefix(bytes).ok()?;
        let keyed = usize::from(head.keyed.get());
        let (keyed, rest) = <[Keyed]>::ref_from_prefix_with_elems(rest, keyed).ok()?;
        let open = usize::from(head.open.get());
        let (open, _) = <[U16]>::ref_from_prefix_with_elems(rest, open).ok()?;
        Some(IndexView { head, keyed, open })
    }

    /// Adds the rules whose key the request has.
    fn look_up(&self, name: u32, value: &[u8], found: &mut Vec<u16>) {
        if self.head.names.get() & bit(name) == 0 {
            return;
        }
        let hash = value_hash(name, value);
        let from = self.keyed.partition_point(|entry| entry.hash.get() < hash);
        let same = self.keyed.iter().skip(from).take_while(|entry| entry.hash.get() == hash);
        found.extend(same.map(|entry| entry.rule.get()));
    }

    /// The rules that may take a request, the strongest first.
    fn candidates(
        &self,
        asked: &mut Inspection<'_, impl RequestParts>,
    ) -> Result<Vec<u16>, NoAnswer> {
        let mut found: Vec<u16> = self.open.iter().map(|rule| rule.get()).collect();
        self.look_up(name_hash(Source::Method, b""), asked.request.method(), &mut found);
        asked.each_value(|name, value| self.look_up(name, value, &mut found))?;
        asked.step(found.len())?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// What a selected rule asks for, read in place.
pub struct Conditions<'g>(&'g [u8]);

/// A named value that is asked for.
pub struct ConditionView<'g> {
    pub name: &'g [u8],
    pub text: &'g [u8],
    pub is_regex: bool,
}

impl<'g> Conditions<'g> {
    /// The method and then the headers and the parameters.
    pub fn read(mut self) -> Option<(&'g [u8], Vec<ConditionView<'g>>, Vec<ConditionView<'g>>)> {
        let bytes = self.byte()?;
        let method = self.take(bytes)?;
        Some((method, self.list()?, self.list()?))
    }

    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some((*first).into())
    }

    fn take(&mut self, bytes: usize) -> Option<&'g [u8]> {
        let (text, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(text)
    }

    fn list(&mut self) -> Option<Vec<ConditionView<'g>>> {
        let count = self.byte()?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let (head, rest) = Condition::ref_from_prefix(self.0).ok()?;
            self.0 = rest;
            let name = self.take(head.name_bytes.get().into())?;
            let text = self.take(head.text_bytes.get().into())?;
            all.push(ConditionView { name, text, is_regex: head.is_regex != 0 });
        }
        Some(all)
    }
}

impl<'g> ServerView<'g> {
    /// The rule of a path that takes a request: one for some of its requests, else the one for all of them. Where there are
    /// none of the former, this is one comparison.
    #[inline]
    pub(super) fn select(
        &self,
        index: usize,
        asked: &mut Inspection<'_, impl RequestParts>,
        patterns: &Patterns,
    ) -> Result<Option<RuleView<'g>>, NoAnswer> {
        match self.body(index) {
            Some(rule) if rule.selects() => self.select_among(index, rule, asked, patterns),
            rule => Ok(rule),
        }
    }

    #[cold]
    fn select_among(
        &self,
        index: usize,
        rule: RuleView<'g>,
        asked: &mut Inspection<'_, impl RequestParts>,
        patterns: &Patterns,
    ) -> Result<Option<RuleView<'g>>, NoAnswer> {
        let Some(view) = self.after(index).and_then(IndexView::new) else {
            return Ok((!rule.is_placeholder()).then_some(rule));
        };
        for candidate in view.candidates(asked)? {
            let candidate = usize::from(candidate);
            if self.takes(candidate, asked, patterns)? {
                return Ok(self.body(self.share(candidate, asked.request)));
            }
        }
        Ok((!rule.is_placeholder()).then_some(rule))
    }

    /// The rules for some of the requests of a path, of which those that share requests stand together.
    pub(super) fn selected_of(&self, index: usize) -> std::ops::Range<usize> {
        let is_there = self.body(index).is_some_and(|rule| rule.selects());
        let view = is_there.then(|| self.after(index).and_then(IndexView::new)).flatten();
        view.map_or(0..0, |view| {
            let first = usize::from(view.head.first.get());
            first..(first + usize::from(view.head.count.get())).min(self.len())
        })
    }

    /// Whether a request has what a rule asks for.
    fn takes(
        &self,
        index: usize,
        asked: &mut Inspection<'_, impl RequestParts>,
        patterns: &Patterns,
    ) -> Result<bool, NoAnswer> {
        let Some(rule) = self.body(index) else { return Ok(false) };
        let Some((method, headers, query)) = Conditions(rule.after_texts()).read() else {
            return Ok(false);
        };
        if !method.is_empty() && method != asked.request.method() {
            return Ok(false);
        }
        let patterns = patterns.of(rule.namespace());
        let headers = headers.iter().map(|one| (Source::Header, one));
        for (source, condition) in headers.chain(query.iter().map(|one| (Source::Query, one))) {
            let is_met =
                asked.has(source, condition.name, |value, budget| match condition.is_regex {
                    true => patterns.is_match(condition.text, value, budget).ok_or(NoAnswer),
                    false => Ok(condition.text == value),
                });
            if !is_met? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rule that a request goes to, of those that share it with the first one.
    fn share(&self, first: usize, request: &impl RequestParts) -> usize {
        let share = |index| {
            let (_, share) = Share::ref_from_suffix(self.before(index)?).ok()?;
            Some((u64::from(share.weight.get()), usize::from(share.group.get())))
        };
        let group = share(first).map_or(1, |(_, group)| group);
        if group < 2 {
            return first;
        }
        let all =
            || (first..first + group).map(|index| share(index).map_or(0, |(weight, _)| weight));
        let total: u64 = all().sum();
        let mut at = ((u128::from(request.random()) * u128::from(total)) >> 64) as u64;
        for (place, weight) in all().enumerate() {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return first + place,
            }
        }
        first
    }
}

// What a rule's name is made of ends with its body: kind, path, texts and conditions.
const _: () = assert!(size_of::<RuleHead>() == 4 && size_of::<Lengths>() == 12);

#[cfg(test)]
mod tests;
