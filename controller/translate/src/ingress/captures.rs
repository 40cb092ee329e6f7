//! Captures that annotations name and paths do not have.
//!
//! Errors:  what is missing is empty in the result. That is seldom meant, so it is a warning; it is what nginx does.

use super::claims::{Claim, Claims};
use crate::annotation::balancing::{self, Balancing};
use oxigress_core::model::{PathPattern, shorten};
use oxigress_core::patterns;
use oxigress_core::text::template::{Part, parts};
use oxigress_objects::verdict::Note;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many paths are named in a note.
const NAMED: usize = 3;

impl Claims {
    /// What upstream-hash-by takes from paths: where none of them has groups, everybody would go to one endpoint. A canary's
    /// paths are those of main Ingresses.
    pub(super) fn check_captures(&mut self, is_per_host: bool, notes: &mut Vec<Note>) {
        let has_groups = |claim: &&Claim| {
            let is_regex = matches!(claim.pattern, PathPattern::Regex(_))
                || is_per_host && claim.is_valid_regex;
            // Most paths have none: only others are read.
            is_regex && claim.path.contains('(') && patterns::captures_of(&claim.path) > 0
        };
        let claims = || self.hosts.values().flat_map(|claims| claims.iter());
        self.has_groups = claims().any(|claim| has_groups(&claim));
        let without = claims().find(|claim| !has_groups(claim));
        let balancing = self.balancing().filter(|_| self.canary().is_none());
        let Some(balancing) = balancing.cloned() else { return };
        let Some(hash_by) = &balancing.hash_by else { return };
        let (captures, is_alone) = balancing::captures_of(&hash_by.key);
        if captures.is_empty() {
            return;
        }
        let message = match without {
            Some(claim) if is_alone && self.has_groups => format!(
                "requests for path {} have no captures and all go to one endpoint: use groups in it, or a variable too",
                shorten(&claim.path)
            ),
            _ if self.has_groups => return,
            _ => format!(
                "no path of this Ingress is a regular expression with groups, so its captures {}: use groups and use-regex",
                if is_alone { "cannot be hashed and the default is used" } else { "are empty" }
            ),
        };
        notes.push(Note::warning(format!("annotation upstream-hash-by: {message}")));
        if is_alone && !self.has_groups {
            let rest = Balancing { hash_by: None, ..Balancing::clone(&balancing) };
            self.annotations.balancing = (!rest.is_silent()).then(|| Arc::new(rest));
        }
    }

    /// What rewrite-target takes from paths that do not have it: the endpoint would see another path than was meant. A
    /// canary's requests are rewritten by main Ingresses.
    pub(super) fn check_rewrite(&self, notes: &mut Vec<Note>) {
        let rewrite = self.annotations.policies.rewrite.as_ref();
        let Some(rewrite) = rewrite.filter(|_| self.canary().is_none()) else { return };
        let target = rewrite.target.as_str();
        let named = parts(target.as_bytes()).filter_map(|part| match part {
            Part::Capture(number @ 1..) => Some(number),
            _ => None,
        });
        let Some(highest) = named.max() else { return };
        let claims = self.hosts.values().flat_map(|claims| claims.iter());
        let without: BTreeSet<&str> = claims
            .filter(|claim| !claim.is_refused && groups(claim) < usize::from(highest))
            .map(|claim| claim.path.as_str())
            .collect();
        if without.is_empty() {
            return;
        }
        let shown: Vec<_> = without.iter().take(NAMED).map(|path| shorten(path)).collect();
        let (noun, verb) = if without.len() == 1 { ("path", "has") } else { ("paths", "have") };
        let more = match without.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        notes.push(Note::warning(format!(
            "annotation rewrite-target: {noun} {}{more} {verb} no group {highest}, so ${highest} of {target:?} is empty there: \
             write the group into the path, such as /b(/|$)(.*) for $2, or an Ingress of its own",
            shown.join(", ")
        )));
    }
}

/// How many groups the path of a claim has; a path that is no regular expression has none.
fn groups(claim: &Claim) -> usize {
    match &claim.pattern {
        PathPattern::Regex(text) => patterns::captures_of(text),
        PathPattern::Exact(_) | PathPattern::Prefix(_) => 0,
    }
}
