//! Rules in the order of the record.

use super::order::{covers, segment_order, strength};
use super::selection::{encode_conditions, encode_index, encode_share, ordered};
use super::{Entry, Header, IS_EMPTY, IS_STRICT, NONE, RuleHead, SELECTS, YIELDS};
use crate::model::{HttpsRedirect, Origin, PathPattern, Policy, Rule, Server};
use crate::patterns;
use crate::record::{flag_if, length, short};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

struct Ordered<'a> {
    path: &'a [u8],
    /// Only regular expressions have one.
    literal: Option<Vec<u8>>,
    rule: &'a Rule,
    /// The rules for some of the requests for the path.
    selected: Vec<(&'a Rule, u16, u16)>,
    is_placeholder: bool,
}

/// The rules for some of the requests for a path, by path.
type Selected<'a> = BTreeMap<&'a PathPattern, Vec<&'a Rule>>;

/// Stands for the rules of a path that has none for all of its requests.
fn placeholder(path: &PathPattern) -> Rule {
    let (path, origin, policy) = (path.clone(), Origin::default(), Policy::default());
    Rule { path, backend: None, origin, policy, policies: None, selection: None }
}

/// The value of a server's record.
pub fn encode_server(server: &Server) -> Vec<u8> {
    let (mut exact, mut prefixes, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
    let mut selected = Selected::new();
    for rule in server.rules.iter().filter(|rule| rule.selection.is_some()) {
        selected.entry(&rule.path).or_default().push(rule);
    }
    let plain = || server.rules.iter().filter(|rule| rule.selection.is_none());
    let mut lone: BTreeSet<&PathPattern> = selected.keys().copied().collect();
    for rule in plain() {
        lone.remove(&rule.path);
    }
    let placeholders: Vec<Rule> = lone.into_iter().map(placeholder).collect();
    let all = plain().map(|rule| (rule, false));
    for (rule, is_placeholder) in all.chain(placeholders.iter().map(|rule| (rule, true))) {
        let selected = ordered(selected.remove(&rule.path).unwrap_or_default());
        let (PathPattern::Exact(path) | PathPattern::Prefix(path) | PathPattern::Regex(path)) =
            &rule.path;
        let path = path.as_bytes();
        let rule = Ordered { path, literal: None, rule, selected, is_placeholder };
        match &rule.rule.path {
            PathPattern::Exact(_) => exact.push(rule),
            PathPattern::Prefix(_) => prefixes.push(rule),
            PathPattern::Regex(path) => {
                let literal = Some(patterns::literal_prefix(path));
                regexes.push(Ordered { literal, ..rule });
            }
        }
    }
    exact.sort_by(|a, b| a.path.cmp(b.path));
    prefixes.sort_by(|a, b| segment_order(a.path, b.path));
    regexes.sort_by(|a, b| a.literal.cmp(&b.literal).then_with(|| strength(a.path, b.path)));

    let paths = exact.len() + prefixes.len() + regexes.len();
    let selected = || exact.iter().chain(&prefixes).chain(&regexes).map(|path| &path.selected);
    let selected_count: usize = selected().map(Vec::len).sum();
    let header = Header {
        rules: length(paths + selected_count).into(),
        exact: length(exact.len()).into(),
        regexes: (regexes.len() as u16).into(),
        selected: (selected_count as u16).into(),
    };
    let mut parents = vec![NONE; exact.len()];
    parents.extend(parents_of(&prefixes, exact.len()));
    parents.extend(parents_of(&regexes, exact.len() + prefixes.len()));
    let mut value = header.as_bytes().to_vec();
    let tail_at = value.len() + (parents.len() + selected_count) * size_of::<Entry>();
    let mut tail = Vec::new();
    let mut first = paths;
    for (rule, parent) in exact.iter().chain(&prefixes).chain(&regexes).zip(parents) {
        let entry = rule.put(&mut tail, tail_at, parent, first);
        value.extend(entry.as_bytes());
        first += rule.selected.len();
    }
    for (rule, group, place) in selected().flatten() {
        let entry = put_selected(rule, *group, *place, &mut tail, tail_at);
        value.extend(entry.as_bytes());
    }
    value.extend(tail);
    value
}

/// The parents of prefixes or of regular expressions, which are sorted and the first of which has the index `first`.
fn parents_of(rules: &[Ordered<'_>], first: usize) -> Vec<u16> {
    let mut ancestors: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(rules.len());
    for (index, rule) in rules.iter().enumerate() {
        while ancestors.last().is_some_and(|&above| !rules[above].is_above(rule)) {
            ancestors.pop();
        }
        parents.push(ancestors.last().map_or(NONE, |&above| (first + above) as u16));
        ancestors.push(index);
    }
    parents
}

impl<'a> Ordered<'a> {
    fn is_above(&self, below: &Ordered<'_>) -> bool {
        match (&self.literal, &below.literal) {
            (Some(above), Some(literal)) => literal.starts_with(above),
            _ => covers(self.path, below.path),
        }
    }

    /// Appends the rule to `tail`, which begins at `tail_at` of the record. The rules for some of the requests for its path
    /// begin with the one of this index.
    fn put(&self, tail: &mut Vec<u8>, tail_at: usize, parent: u16, first: usize) -> Entry {
        let flags =
            flag_if(!self.selected.is_empty(), SELECTS) | flag_if(self.is_placeholder, IS_EMPTY);
        let entry = put_rule(self.rule, flags, encode_body(self.rule), tail, tail_at);
        if let Some(literal) = &self.literal {
            tail.extend((literal.len() as u16).to_le_bytes());
            tail.extend(literal);
        }
        if !self.selected.is_empty() {
            encode_index(&self.selected, first, tail);
        }
        Entry { parent: parent.into(), ..entry }
    }
}

/// Appends a rule for some of the requests for its path.
fn put_selected(rule: &Rule, group: u16, place: u16, tail: &mut Vec<u8>, tail_at: usize) -> Entry {
    let mut body = encode_body(rule);
    if let Some(selection) = &rule.selection {
        encode_conditions(selection, place, &mut body);
    }
    encode_share(rule, group, tail);
    put_rule(rule, 0, body, tail, tail_at)
}

/// Appends what every rule has.
fn put_rule(rule: &Rule, flags: u8, body: Vec<u8>, tail: &mut Vec<u8>, tail_at: usize) -> Entry {
    let policies = rule.policies.as_ref().map_or("", |id| id.as_str());
    let (kind, path) = match &rule.path {
        PathPattern::Prefix(path) => (0, path),
        PathPattern::Exact(path) => (1, path),
        PathPattern::Regex(path) => (2, path),
    };
    let policies_bytes = (policies.len() as u16).into();
    let head = RuleHead { policies_bytes, policy: encode_policy(rule) | flags, kind };
    tail.extend(policies.as_bytes());
    tail.extend(head.as_bytes());
    let path_at = tail_at + tail.len();
    tail.extend(path.as_bytes());
    let entry = Entry {
        path_at: length(path_at).into(),
        path_bytes: (path.len() as u16).into(),
        parent: NONE.into(),
        body_at: length(tail_at + tail.len()).into(),
        body_bytes: length(body.len()).into(),
    };
    tail.extend(body);
    entry
}

fn encode_policy(rule: &Rule) -> u8 {
    let redirect = match rule.policy.https_redirect {
        HttpsRedirect::Never => 0,
        HttpsRedirect::WithCertificate => 1,
        HttpsRedirect::Always => 2,
    };
    redirect | flag_if(rule.policy.yields, YIELDS) | flag_if(rule.policy.is_strict, IS_STRICT)
}

fn encode_body(rule: &Rule) -> Vec<u8> {
    let origin = &rule.origin;
    let backend = rule.backend.as_ref().map_or("", |id| id.as_str());
    let texts =
        [backend, &origin.namespace, &origin.ingress, &origin.service, &origin.port, &origin.path]
            .map(short);
    let lengths = texts.map(|text| U16::new(text.len() as u16));
    [lengths.as_bytes(), &texts.concat()].concat()
}
