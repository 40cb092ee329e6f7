//! What would answer requests for a path that is restricted and not served.

use super::Merge;
use crate::claim::well_known::is_below_well_known;
use crate::ingress::{Claim, Claims, Restriction, UnservedPath};
use oxigress_core::model::policy::Policies;
use oxigress_core::model::{HostPattern, PathPattern};
use oxigress_core::patterns::literal_prefix;
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Most paths of a namespace that are looked at one by one, for each alias of a host.
const MOST: usize = 256;

/// Most kinds of restrictions of a namespace that are told apart.
const MOST_KINDS: usize = 8;

/// A path that is not served.
pub(super) struct Lost<'a> {
    by: &'a Claims,
    path: UnservedPath,
    /// How long a rule is that answers 503 to all its requests: shorter ones have none of them.
    closed: usize,
}

/// Restricted paths of a namespace that are not served on a host.
#[derive(Default)]
struct Exposed<'a> {
    /// In lower case; of an expression what all its matches begin with. Rules that are shorter than the number have none of
    /// its requests.
    paths: BTreeMap<String, (&'a Claims, usize)>,
    /// What matches of expressions begin with, none of which begins another one, and how long the longest expression is.
    beginnings: BTreeMap<String, (&'a Claims, usize)>,
    /// One that has paths of which nothing is known, or for which the host has no place.
    unknown: Option<&'a Claims>,
}

/// What is exposed, by who has access to it.
type Groups<'a> = Vec<(Option<Restriction<'a>>, Exposed<'a>)>;

/// The place of each Ingress among the groups of its namespace.
type Places<'a> = BTreeMap<&'a Key, usize>;

impl<'a> Exposed<'a> {
    fn is_full(&self) -> bool {
        self.paths.len() >= MOST
    }

    fn add(&mut self, by: &'a Claims, path: &UnservedPath, closed: usize) {
        if self.is_full() {
            self.unknown.get_or_insert(by);
            return;
        }
        let UnservedPath { beginning, length, is_regex } = path;
        let text = beginning.to_ascii_lowercase();
        // An expression of which hardly a letter is known does not close a whole host.
        if *is_regex && text.len() > 1 {
            self.add_beginning(text.clone(), (by, *length));
        }
        let (_, known) = self.paths.entry(text).or_insert((by, closed));
        *known = closed.min(*known);
    }

    fn add_beginning(&mut self, text: String, (by, mut length): (&'a Claims, usize)) {
        if let Some((_, known)) = beginning_of(&self.beginnings, &text) {
            let known = known.clone();
            if let Some((_, longest)) = self.beginnings.get_mut(&known) {
                *longest = length.max(*longest);
            }
            return;
        }
        let longer: Vec<_> = from(&self.beginnings, &text).map(|(one, _)| one.clone()).collect();
        for one in longer {
            let (_, longest) = self.beginnings.remove(&one).unwrap_or((by, 0));
            length = length.max(longest);
        }
        self.beginnings.insert(text, (by, length));
    }

    /// Whose requests may come to this path.
    fn below(&self, pattern: &PathPattern) -> Option<&'a Claims> {
        let (beginning, below, length) = match pattern {
            PathPattern::Exact(path) => (path.to_ascii_lowercase(), None, usize::MAX),
            PathPattern::Prefix(path) => (path.to_ascii_lowercase(), Some("/"), path.len()),
            PathPattern::Regex(text) => {
                let literal = String::from_utf8(literal_prefix(text));
                (literal.unwrap_or_default(), Some(""), text.len())
            }
        };
        let rank = if below.is_none() { usize::MAX } else { length };
        let is_open = |&(_, closed): &&(&Claims, usize)| rank >= *closed;
        let same = self.paths.get(&beginning).filter(is_open);
        // Between a path and what lies below it stand others, such as `/a-b`.
        let found = same.or_else(|| {
            let beginning = [&beginning, below?].concat();
            from(&self.paths, &beginning).map(|(_, lost)| lost).find(is_open)
        });
        let of_expression = || {
            let ((by, longest), _) = beginning_of(&self.beginnings, &beginning)?;
            // What is longer would have these requests all the same.
            (length <= *longest).then_some(*by)
        };
        let found = found.map(|(by, _)| *by).or_else(of_expression);
        found.or(self.unknown.filter(|_| below.is_some()))
    }
}

/// The places of the groups whose restrictions others do not have.
fn open_to(groups: &Groups<'_>, policies: &Policies, host_has_lists: bool) -> Vec<usize> {
    let own = Restriction::of(policies).on(host_has_lists);
    let is_safe = |of: &Option<Restriction<'_>>| match of {
        Some(of) => own.covers(of),
        None => policies.denied.is_some(),
    };
    let open = groups.iter().enumerate().filter(|(_, (of, _))| !is_safe(of));
    open.map(|(place, _)| place).collect()
}

/// Those of some texts that begin with a text.
fn from<'m, V>(
    texts: &'m BTreeMap<String, V>,
    text: &str,
) -> impl Iterator<Item = (&'m String, &'m V)> {
    let from_here = texts.range::<str, _>((Bound::Included(text), Bound::Unbounded));
    from_here.take_while(move |(one, _)| one.starts_with(text))
}

/// The one of some texts that a text begins with, if none of them begins another one.
fn beginning_of<'m, V>(texts: &'m BTreeMap<String, V>, text: &str) -> Option<(&'m V, &'m String)> {
    let mut until_here = texts.range::<str, _>((Bound::Unbounded, Bound::Included(text)));
    let found = until_here.next_back().filter(|(one, _)| text.starts_with(one.as_str()));
    found.map(|(one, value)| (value, one))
}

impl<'a> Merge<'a> {
    /// Notes a claim that is not served, or only as far as its first letters go, which a rule of that length closes; 0: none does.
    pub(super) fn note_lost(&mut self, by: &'a Claims, claim: &'a Claim, closed: usize) {
        if self.crowded.contains(&by.key) || !self.restricts(by) {
            return;
        }
        let lost = self.unclosed.entry(by.key.namespace.as_str()).or_default();
        if lost.len() >= MOST {
            self.crowded.insert(&by.key);
            return;
        }
        let is_regex = self.is_regex_host || matches!(claim.pattern, PathPattern::Regex(_));
        let path = UnservedPath::of(&claim.path, is_regex);
        // It takes all only if all begin with its text.
        let closed = if path.beginning.len() >= closed { closed } else { 0 };
        lost.push(Lost { by, path, closed });
    }

    /// Whether an Ingress restricts who has access to its paths, by what it says of them or of whole hosts.
    pub(super) fn restricts(&self, by: &Claims) -> bool {
        !self.restriction(by).is_none() || by.is_closed() || self.unprotected.contains(&by.key)
    }

    /// Who has access to the paths of an Ingress on this host, unless it is closed.
    fn restriction<'c>(&self, by: &'c Claims) -> Restriction<'c> {
        by.restriction().on(self.has_lists)
    }

    /// Closes what would answer requests for paths that their Ingress restricts and that are not served, where it admits
    /// somebody else, of the same namespace on the host.
    pub(super) fn close_exposed(&mut self, source: &HostPattern) {
        let all = self.exposed(source);
        let mut told: BTreeMap<&Key, &Claims> = BTreeMap::new();
        let mut opened = BTreeMap::new();
        for (pattern, winner) in self.winners.iter_mut().filter(|_| !all.is_empty()) {
            let Some(groups) = all.get(winner.by.key.namespace.as_str()) else { continue };
            // Who answers challenges keeps nobody's certificates back.
            if winner.closer.is_some() || winner.by.is_closed() || is_below_well_known(pattern) {
                continue;
            }
            // Many paths have the same policies, whose lists may be long.
            let key = (&*winner.by.key.namespace, Arc::as_ptr(&winner.policies));
            let open = opened
                .entry(key)
                .or_insert_with(|| open_to(groups, &winner.policies, self.has_lists));
            let mut open = open.iter().filter_map(|place| groups.get(*place));
            let Some(cause) = open.find_map(|(_, exposed)| exposed.below(pattern)) else {
                continue;
            };
            winner.closer = Some(cause);
            told.entry(&winner.by.key).or_insert(cause);
        }
        for (key, cause) in told {
            let message = format!(
                "host {}: paths of this Ingress answer 503, since they would also answer requests for paths that Ingress {} \
                 restricts and that are not served: correct that one, its own messages name the paths",
                self.host, cause.key
            );
            let object = ObjectRef::new(Kind::Ingress, key.clone());
            self.merged.notes.push((object, Note::rejected(message)));
        }
    }

    /// By namespace, and by who has access to them; `None`: nobody knows, or there are too many kinds.
    fn exposed(&self, source: &HostPattern) -> BTreeMap<&'a str, Groups<'a>> {
        let mut all: BTreeMap<&str, Groups<'_>> = BTreeMap::new();
        let mut places = Places::new();
        for by in self.view.mains.iter().copied() {
            let on = by.unserved_on(source);
            let has_more = on.is_some_and(|on| on.has_more)
                || self.full.contains(&by.key)
                || self.crowded.contains(&by.key);
            let is_unknown = by.has_unknown_paths(self.has_lists);
            if !is_unknown && (!has_more && on.is_none() || !self.restricts(by)) {
                continue;
            }
            let groups = all.entry(by.key.namespace.as_str()).or_default();
            let exposed = self.group(groups, by, &mut places);
            if has_more || is_unknown {
                exposed.unknown.get_or_insert(by);
            }
            self.add_invalid(by, source, exposed);
        }
        for Lost { by, path, closed } in self.unclosed.values().flatten() {
            let groups = all.entry(by.key.namespace.as_str()).or_default();
            self.group(groups, by, &mut places).add(by, path, *closed);
        }
        all
    }

    /// What is exposed of those to which the same clients have access.
    fn group<'g>(
        &self,
        groups: &'g mut Groups<'a>,
        by: &'a Claims,
        places: &mut Places<'a>,
    ) -> &'g mut Exposed<'a> {
        let place = *places.entry(&by.key).or_insert_with(|| self.group_of(groups, by));
        &mut groups[place].1
    }

    /// The place of an Ingress's group, whose restrictions may be long to compare.
    fn group_of(&self, groups: &mut Groups<'a>, by: &'a Claims) -> usize {
        let is_known = !self.unprotected.contains(&by.key) && !by.is_closed();
        // Of one that is refused nothing is known.
        let own = Some(self.restriction(by)).filter(|own| is_known && !own.is_none());
        let place = |of: &Option<Restriction<'_>>| groups.iter().position(|(known, _)| known == of);
        let (of, found) = match place(&own) {
            None if groups.len() >= MOST_KINDS => (None, place(&None)),
            found => (own, found),
        };
        let place = found.unwrap_or(groups.len());
        if found.is_none() {
            groups.push((of, Exposed::default()));
        }
        place
    }

    fn add_invalid(&self, by: &'a Claims, source: &HostPattern, exposed: &mut Exposed<'a>) {
        for path in by.unserved_on(source).into_iter().flat_map(|on| &on.paths) {
            if exposed.is_full() {
                exposed.unknown.get_or_insert(by);
                return;
            }
            match self.is_regex_host && !path.is_regex {
                true => exposed.add(by, &UnservedPath::of(&path.beginning, true), 0),
                false => exposed.add(by, path, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests;
