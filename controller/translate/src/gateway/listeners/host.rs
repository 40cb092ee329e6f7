//! Host names of listeners and routes.

use crate::gateway::work::{self, Step};
use oxigress_core::model::HostPattern;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What follows the star of the wildcards above a host, the most specific first; of a wildcard also its own.
pub fn levels(host: &HostPattern) -> impl Iterator<Item = &str> {
    let name = host.as_str().trim_start_matches('*');
    name.match_indices('.').filter_map(move |(dot, _)| name.get(dot..))
}

/// Something for each of some wildcards, which is looked up for the hosts below them. Those of one length stand together: names of
/// many labels are compared with few.
pub struct Wildcards<K, T>(BTreeMap<usize, BTreeMap<K, T>>);

impl<K, T> Default for Wildcards<K, T> {
    fn default() -> Self {
        Wildcards(BTreeMap::new())
    }
}

impl<K: Borrow<str> + Ord, T> Wildcards<K, T> {
    /// The place of a wildcard, told by what follows its star.
    pub fn entry(&mut self, below: K) -> Entry<'_, K, T> {
        self.0.entry(below.borrow().len()).or_default().entry(below)
    }

    /// Puts something there for a wildcard, told by what follows its star.
    pub fn insert(&mut self, below: K, one: T) {
        self.0.entry(below.borrow().len()).or_default().insert(below, one);
    }

    /// What there is for the wildcards above a host, as [`levels`] names them.
    pub fn above(&self, host: &HostPattern) -> impl Iterator<Item = &T> {
        let longest = self.0.last_key_value().map_or(0, |(length, _)| *length);
        let parents = levels(host).filter(move |parent| parent.len() <= longest);
        parents.filter_map(|parent| {
            work::count(Step::Level);
            self.0.get(&parent.len())?.get(parent)
        })
    }
}

/// Whether a host stands for several: it is a wildcard, or that of all requests.
pub fn is_wide(host: &HostPattern) -> bool {
    host.is_wildcard() || *host == HostPattern::default_host()
}

/// Whether every host of `inner` is one of `outer`: the star stands for one or more labels.
pub fn covers(outer: &HostPattern, inner: &HostPattern) -> bool {
    if outer.as_str() == HostPattern::DEFAULT || outer == inner {
        return true;
    }
    match outer.as_str().strip_prefix('*') {
        Some(parent) => {
            inner.as_str().strip_prefix('*').unwrap_or(inner.as_str()).ends_with(parent)
        }
        None => false,
    }
}

/// The hosts that are both a listener's and a route's; `None`: there are none.
pub fn intersection(listener: &HostPattern, route: &HostPattern) -> Option<HostPattern> {
    match () {
        () if covers(listener, route) => Some(route.clone()),
        () if covers(route, listener) => Some(listener.clone()),
        () => None,
    }
}

/// Orders patterns: what is greater is more specific than what covers it.
pub fn specificity(host: &HostPattern) -> (bool, usize) {
    match host.as_str() {
        HostPattern::DEFAULT => (false, 0),
        text => (!host.is_wildcard(), text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_or_more_labels() {
        let host = |text| HostPattern::parse(text).unwrap();
        let meet = |a, b| intersection(&host(a), &host(b)).map(|found| found.to_string());
        for (listener, route, expected) in [
            ("_", "a.test", Some("a.test")),
            ("a.test", "_", Some("a.test")),
            ("a.test", "a.test", Some("a.test")),
            ("a.test", "b.test", None),
            ("*.test", "a.b.test", Some("a.b.test")),
            ("*.test", "test", None),
            ("*.test", "*.a.test", Some("*.a.test")),
            ("a.b.test", "*.test", Some("a.b.test")),
            ("*.a.test", "*.b.test", None),
            ("*.a.test", "xa.test", None),
        ] {
            assert_eq!(meet(listener, route).as_deref(), expected, "{listener} {route}");
        }
    }
}
