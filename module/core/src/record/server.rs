//! A server's record: its rules, ordered so that one binary search finds the rule of a path.
//!
//! Layout: `rule_count u32`, `exact_count u32`, then per rule 16 bytes: `path_offset u32`,
//! `path_length u16`, `parent u16`, `body_offset u32`, `body_length u32`; then for each rule the id of its
//! policies, their length (`u16`), its policy (`https_redirect u8`), its kind (`u8`, 1: exact), its path and its
//! body.
//!
//! Exact rules come first, in byte order; then prefixes in *segment order*, where `/` sorts before every
//! other byte, so that a prefix stands directly before everything below it. `parent` is the nearest
//! prefix rule that covers a prefix rule, [`NONE`] if there is none. The rule of a path is then its
//! predecessor in that order, or the first of the predecessor's parents that covers the path: the cost
//! does not grow with the number of segments that a client sends.
//!
//! A body: six `u16` lengths (backend, namespace, ingress, service, port, path), then these texts. No backend:
//! length 0. Kind, path and body in one piece are the rule's *name*: what stays the same while only its policy
//! changes.

use super::{length, short, u16_at, u32_at};
use crate::model::{HttpsRedirect, PathPattern, Rule, Server};
use std::cmp::Ordering;

const ENTRY: usize = 16;
const ENTRIES_AT: usize = 8;
const TEXTS: usize = 6;
const TEXTS_AT: usize = 2 * TEXTS;
/// No parent; greater than any index, since a server has at most `MAX_RULES` rules.
const NONE: u16 = u16::MAX;

/// The record's value of a server.
pub fn encode_server(server: &Server) -> Vec<u8> {
    let path = |rule: &Rule| match &rule.path {
        PathPattern::Exact(path) | PathPattern::Prefix(path) | PathPattern::Regex(path) => {
            path.clone().into_bytes()
        }
    };
    let is_exact = |rule: &&Rule| matches!(rule.path, PathPattern::Exact(_));
    let mut exact: Vec<_> =
        server.rules.iter().filter(is_exact).map(|rule| (path(rule), rule)).collect();
    let is_prefix = |rule: &&Rule| matches!(rule.path, PathPattern::Prefix(_));
    let prefixes = server.rules.iter().filter(is_prefix);
    let mut prefixes: Vec<_> = prefixes.map(|rule| (path(rule), rule)).collect();
    exact.sort_by(|a, b| a.0.cmp(&b.0));
    prefixes.sort_by(|a, b| segment_order(&a.0, &b.0));

    let rules: Vec<_> = exact.iter().chain(&prefixes).collect();
    let mut value = Vec::new();
    value.extend(length(rules.len()).to_le_bytes());
    value.extend(length(exact.len()).to_le_bytes());
    let mut tail = Vec::new();
    let tail_at = ENTRIES_AT + rules.len() * ENTRY;
    let mut ancestors: Vec<usize> = Vec::new();
    for (index, (path, rule)) in rules.iter().enumerate() {
        let mut parent = NONE;
        if index >= exact.len() {
            while ancestors.last().is_some_and(|&above| !covers(&rules[above].0, path)) {
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
        tail.push(u8::from(index < exact.len()));
        value.extend(length(tail_at + tail.len()).to_le_bytes());
        value.extend((path.len() as u16).to_le_bytes());
        value.extend(parent.to_le_bytes());
        tail.extend(path);
        value.extend(length(tail_at + tail.len()).to_le_bytes());
        value.extend(length(body.len()).to_le_bytes());
        tail.extend(body);
    }
    value.extend(tail);
    value
}

fn encode_policy(rule: &Rule) -> u8 {
    match rule.policy.https_redirect {
        HttpsRedirect::Never => 0,
        HttpsRedirect::WithCertificate => 1,
        HttpsRedirect::Always => 2,
    }
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

/// `prefix` takes `path`: equal, or `path` goes on with a slash.
fn covers(prefix: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A server read in place.
#[derive(Clone, Copy, Debug)]
pub struct ServerView<'g> {
    value: &'g [u8],
    rules: usize,
    exact: usize,
}

impl<'g> ServerView<'g> {
    /// Reads `value`, which [`encode_server`] wrote.
    pub fn new(value: &'g [u8]) -> Self {
        let number = |at| u32_at(value, at).map_or(0, |n| n as usize);
        ServerView { value, rules: number(0), exact: number(4) }
    }

    /// The rule that takes `path`: an exact one first, else the longest prefix.
    pub fn rule(&self, path: &[u8]) -> Option<RuleView<'g>> {
        if let Ok(index) = self.search(0, self.exact, |candidate| candidate.cmp(path)) {
            return self.body(index);
        }
        let mut index =
            match self.search(self.exact, self.rules, |prefix| segment_order(prefix, path)) {
                Ok(index) => index,
                Err(next) if next > self.exact => next - 1,
                Err(_) => return None,
            };
        while !covers(self.path(index)?, path) {
            index = usize::from(u16_at(self.value, ENTRIES_AT + index * ENTRY + 6)?);
            if index == usize::from(NONE) {
                return None;
            }
        }
        self.body(index)
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
        match self.policy {
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
    use proptest::prelude::*;

    fn rule(path: PathPattern, backend: &str) -> Rule {
        Rule {
            path,
            backend: Some(BackendId::parse(backend).unwrap()),
            origin: Origin { ingress: "shop".into(), ..Origin::default() },
            policy: Policy { https_redirect: HttpsRedirect::Always },
            policies: None,
        }
    }

    fn server(paths: &[&str]) -> Vec<u8> {
        let rules = paths.iter().map(|path| match path.strip_prefix('=') {
            Some(exact) => rule(PathPattern::exact(exact).unwrap(), path),
            None => rule(PathPattern::prefix(path).unwrap(), path),
        });
        encode_server(&Server { rules: rules.collect() })
    }

    fn winner(value: &[u8], path: &str) -> Option<String> {
        let rule = ServerView::new(value).rule(path.as_bytes())?;
        Some(String::from_utf8(rule.backend().unwrap().to_vec()).unwrap())
    }

    #[test]
    fn a_prefix_matches_whole_segments_only() {
        let value = server(&["/cart"]);
        assert_eq!(winner(&value, "/cart").as_deref(), Some("/cart"));
        assert_eq!(winner(&value, "/cart/1").as_deref(), Some("/cart"));
        assert_eq!(winner(&value, "/carts"), None);
        assert_eq!(winner(&value, "/car"), None);
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
    fn a_rule_gives_back_its_texts() {
        let value = server(&["/cart"]);
        let found = ServerView::new(&value).rule(b"/cart").unwrap();
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
        let policy = Policy { https_redirect: HttpsRedirect::Never };
        let after = value(&[&Rule { policy, ..exact.clone() }]);
        assert_eq!(ServerView::new(&after).names().collect::<Vec<_>>(), names[..1]);
        let rules: Vec<_> = ServerView::new(&before).rules().collect();
        assert_eq!(rules.iter().map(RuleView::index).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(ServerView::new(&before).rule(b"/b").unwrap().index(), 2);
    }

    #[test]
    fn cut_bytes_answer_not_there() {
        let value = server(&["/", "/a", "=/a/b"]);
        for cut in 0..value.len() {
            ServerView::new(&value[..cut]).names().count();
            if let Some(rule) = ServerView::new(&value[..cut]).rule(b"/a/b/c") {
                rule.texts();
            }
        }
    }

    proptest! {
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
