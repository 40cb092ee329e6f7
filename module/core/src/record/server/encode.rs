//! Rules in the order of the record.

use super::order::{covers, segment_order, strength};
use super::{Entry, Header, NONE, RuleHead, YIELDS};
use crate::model::{HttpsRedirect, PathPattern, Rule, Server};
use crate::patterns;
use crate::record::{length, short};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

struct Ordered<'a> {
    path: &'a [u8],
    /// Only regular expressions have one.
    literal: Option<Vec<u8>>,
    rule: &'a Rule,
}

/// The value of a server's record.
pub fn encode_server(server: &Server) -> Vec<u8> {
    let (mut exact, mut prefixes, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
    for rule in &server.rules {
        match &rule.path {
            PathPattern::Exact(path) => exact.push(Ordered::new(path, rule)),
            PathPattern::Prefix(path) => prefixes.push(Ordered::new(path, rule)),
            PathPattern::Regex(path) => {
                let literal = Some(patterns::literal_prefix(path));
                regexes.push(Ordered { literal, ..Ordered::new(path, rule) });
            }
        }
    }
    exact.sort_by(|a, b| a.path.cmp(b.path));
    prefixes.sort_by(|a, b| segment_order(a.path, b.path));
    regexes.sort_by(|a, b| a.literal.cmp(&b.literal).then_with(|| strength(a.path, b.path)));

    let header = Header {
        rules: length(server.rules.len()).into(),
        exact: length(exact.len()).into(),
        regexes: length(regexes.len()).into(),
    };
    let mut parents = vec![NONE; exact.len()];
    parents.extend(parents_of(&prefixes, exact.len()));
    parents.extend(parents_of(&regexes, exact.len() + prefixes.len()));
    let mut value = header.as_bytes().to_vec();
    let tail_at = value.len() + parents.len() * size_of::<Entry>();
    let mut tail = Vec::new();
    for (rule, parent) in exact.iter().chain(&prefixes).chain(&regexes).zip(parents) {
        let entry = rule.put(&mut tail, tail_at, parent);
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
    fn new(path: &'a str, rule: &'a Rule) -> Self {
        Ordered { path: path.as_bytes(), literal: None, rule }
    }

    fn is_above(&self, below: &Ordered<'_>) -> bool {
        match (&self.literal, &below.literal) {
            (Some(above), Some(literal)) => literal.starts_with(above),
            _ => covers(self.path, below.path),
        }
    }

    /// Appends the rule to `tail`, which begins at `tail_at` of the record.
    fn put(&self, tail: &mut Vec<u8>, tail_at: usize, parent: u16) -> Entry {
        let rule = self.rule;
        let policies = rule.policies.as_ref().map_or("", |id| id.as_str());
        let head = RuleHead {
            policies_bytes: (policies.len() as u16).into(),
            policy: encode_policy(rule),
            kind: match rule.path {
                PathPattern::Prefix(_) => 0,
                PathPattern::Exact(_) => 1,
                PathPattern::Regex(_) => 2,
            },
        };
        tail.extend(policies.as_bytes());
        tail.extend(head.as_bytes());
        let path_at = tail_at + tail.len();
        tail.extend(self.path);
        let body = encode_body(rule);
        let entry = Entry {
            path_at: length(path_at).into(),
            path_bytes: (self.path.len() as u16).into(),
            parent: parent.into(),
            body_at: length(tail_at + tail.len()).into(),
            body_bytes: length(body.len()).into(),
        };
        tail.extend(body);
        if let Some(literal) = &self.literal {
            tail.extend((literal.len() as u16).to_le_bytes());
            tail.extend(literal);
        }
        entry
    }
}

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
    let lengths = texts.map(|text| U16::new(text.len() as u16));
    [lengths.as_bytes(), &texts.concat()].concat()
}
