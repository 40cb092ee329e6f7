//! A server and its rules, read in place.

use super::order::{folded_order, starts_with_folded};
use super::{
    Entry, Header, IS_EMPTY, IS_STRICT, Lengths, REDIRECT, RuleHead, SELECTS, TEXTS, YIELDS,
};
use crate::model::HttpsRedirect;
use std::cmp::Ordering;
use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

/// The record of a server, as [`encode_server`](super::encode_server) wrote it. Damaged bytes have no rules.
#[derive(Clone, Copy, Debug)]
pub struct ServerView<'g> {
    value: &'g [u8],
    entries: &'g [Entry],
    /// The index of the first rule that is not exact.
    pub(super) exact: usize,
    /// The index of the first regular expression.
    pub(super) regexes: usize,
    /// The index of the first rule with a selection.
    pub(super) selected: usize,
}

impl<'g> ServerView<'g> {
    /// A view of a record's value.
    pub fn new(value: &'g [u8]) -> Self {
        let empty = ServerView { value, entries: &[], exact: 0, regexes: 0, selected: 0 };
        let Ok((header, rest)) = Header::ref_from_prefix(value) else { return empty };
        let rules = header.rules.get() as usize;
        let Ok((entries, _)) = <[Entry]>::ref_from_prefix_with_elems(rest, rules) else {
            return empty;
        };
        let exact = header.exact.get() as usize;
        let selected = rules.saturating_sub(header.selected.get().into());
        let regexes = selected.saturating_sub(header.regexes.get().into());
        ServerView { value, entries, exact, regexes, selected }
    }

    /// The number of rules of the server.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the server has no rules.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All rules, in the order of [`RuleView::index`]. A path without a rule of its own is left out.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'g>> + use<'g> {
        let server = *self;
        let all = (0..self.len()).map_while(move |index| server.body(index));
        all.filter(|rule| !rule.is_placeholder())
    }

    /// The names of all rules, in their order: each rule's kind, path, backend and origin.
    pub fn names(&self) -> impl Iterator<Item = &'g [u8]> + use<'g> {
        let value = self.value;
        self.entries.iter().map_while(move |entry| {
            let start = (entry.path_at.get() as usize).checked_sub(1)?;
            value.get(start..entry.body_end()?)
        })
    }

    /// The path of a rule as it is stored, and whether it is exact.
    pub fn place(&self, index: usize) -> (&'g [u8], bool) {
        (self.path(index).unwrap_or_default(), index < self.exact)
    }

    pub(super) fn has_regexes(&self) -> bool {
        self.regexes < self.selected
    }

    pub(super) fn path(&self, index: usize) -> Option<&'g [u8]> {
        let entry = self.entries.get(index)?;
        let start = entry.path_at.get() as usize;
        self.value.get(start..)?.get(..usize::from(entry.path_bytes.get()))
    }

    /// The parent of a rule, which always stands before it.
    pub(super) fn parent(&self, index: usize) -> Option<usize> {
        let parent = usize::from(self.entries.get(index)?.parent.get());
        (parent < index).then_some(parent)
    }

    /// The literal of a regular expression.
    pub(super) fn literal(&self, index: usize) -> Option<&'g [u8]> {
        let rest = self.value.get(self.entries.get(index)?.body_end()?..)?;
        let (bytes, rest) = U16::ref_from_prefix(rest).ok()?;
        rest.get(..usize::from(bytes.get()))
    }

    /// What stands behind a rule, and behind the literal of a regular expression.
    pub(super) fn after(&self, index: usize) -> Option<&'g [u8]> {
        let rest = self.value.get(self.entries.get(index)?.body_end()?..)?;
        match (self.regexes..self.selected).contains(&index) {
            true => rest.get(2 + self.literal(index)?.len()..),
            false => Some(rest),
        }
    }

    /// What stands before the id of a rule's policies.
    pub(super) fn before(&self, index: usize) -> Option<&'g [u8]> {
        let before = self.value.get(..self.entries.get(index)?.path_at.get() as usize)?;
        let (before, head) = RuleHead::ref_from_suffix(before).ok()?;
        before.get(..before.len().checked_sub(usize::from(head.policies_bytes.get()))?)
    }

    #[inline]
    pub(super) fn body(&self, index: usize) -> Option<RuleView<'g>> {
        let entry = self.entries.get(index)?;
        let body = self.value.get(entry.body_at.get() as usize..entry.body_end()?)?;
        let (lengths, texts) = Lengths::ref_from_prefix(body).ok()?;
        let before = self.value.get(..entry.path_at.get() as usize)?;
        let (before, head) = RuleHead::ref_from_suffix(before).ok()?;
        let start = before.len().checked_sub(usize::from(head.policies_bytes.get()))?;
        let policies = before.get(start..)?;
        Some(RuleView { lengths, texts, policy: head.policy, policies, index })
    }

    /// A binary search among the rules from `from` up to `to`, with the result of [`slice::binary_search`].
    pub(super) fn search(
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

    /// The regular expressions whose literal the path starts with, and their texts.
    pub(super) fn candidates(&self, path: &[u8]) -> Vec<(usize, &'g [u8])> {
        let (mut low, mut high) = (self.regexes, self.selected);
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
            if self.literal(index).is_some_and(|literal| starts_with_folded(path, literal)) {
                found.extend(self.path(index).map(|text| (index, text)));
            }
            next = self.parent(index);
        }
        found
    }
}

impl Entry {
    fn body_end(&self) -> Option<usize> {
        (self.body_at.get() as usize).checked_add(self.body_bytes.get() as usize)
    }
}

/// A rule read in place.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'g> {
    lengths: &'g Lengths,
    texts: &'g [u8],
    policy: u8,
    policies: &'g [u8],
    index: usize,
}

impl<'g> RuleView<'g> {
    /// When a plain HTTP request is redirected to HTTPS.
    pub fn https_redirect(&self) -> HttpsRedirect {
        match self.policy & REDIRECT {
            1 => HttpsRedirect::WithCertificate,
            2 => HttpsRedirect::Always,
            _ => HttpsRedirect::Never,
        }
    }

    pub(super) fn yields(&self) -> bool {
        self.policy & YIELDS != 0
    }

    /// Rules for some of the requests for the path come before this one.
    #[inline]
    pub(super) fn selects(&self) -> bool {
        self.policy & SELECTS != 0
    }

    /// It stands only for the rules of its path that take some of the requests.
    pub(super) fn is_placeholder(&self) -> bool {
        self.policy & IS_EMPTY != 0
    }

    /// Nobody is redirected to its path for lacking a slash.
    pub(super) fn is_strict(&self) -> bool {
        self.policy & IS_STRICT != 0
    }

    /// What stands behind the six texts of the rule.
    pub(super) fn after_texts(&self) -> &'g [u8] {
        let total: usize = self.lengths.iter().map(|length| usize::from(length.get())).sum();
        self.texts.get(total..).unwrap_or_default()
    }

    /// The id of the rule's policies; empty if it has none.
    #[inline]
    pub fn policies(&self) -> &'g [u8] {
        self.policies
    }

    /// The position of the rule among those of its server.
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The id of the backend; `None` if the default backend serves.
    pub fn backend(&self) -> Option<&'g [u8]> {
        self.texts.get(..usize::from(self.lengths[0].get())).filter(|id| !id.is_empty())
    }

    /// Whether no Ingress has the rule: it stands for the paths without a rule of the host, with the host's policies.
    pub fn is_unclaimed(&self) -> bool {
        let [backend, _, _, service, _, path] = self.texts();
        backend.is_empty() && service.is_empty() && path == b"/" && !self.is_strict()
    }

    pub(super) fn namespace(&self) -> &'g [u8] {
        let [_, namespace, ..] = self.texts();
        namespace
    }

    /// The lengths of the texts of [`RuleView::texts`], and these texts in one piece, for a single copy.
    pub fn packed(&self) -> ([u16; TEXTS], &'g [u8]) {
        let lengths = self.lengths.map(U16::get);
        let total: usize = lengths.iter().map(|length| usize::from(*length)).sum();
        match self.texts.get(..total) {
            Some(texts) => (lengths, texts),
            None => ([0; TEXTS], &[]),
        }
    }

    /// The backend id and then the texts of [`crate::model::Origin`], in the order of its fields.
    pub fn texts(&self) -> [&'g [u8]; TEXTS] {
        let mut rest = self.texts;
        self.lengths.map(|length| {
            let (text, after) = rest.split_at_checked(length.get().into()).unwrap_or_default();
            rest = after;
            text
        })
    }
}
