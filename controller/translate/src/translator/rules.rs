//! What is known of the rules of servers beside the snapshot: how many of them are whose, and where those of a path stand.
//!
//! Shape:   of a server whose rules stand in the order of their paths, as those of Ingresses do, nothing is kept: they are found as
//!          they stand. Rules of listeners stand in the order of their age.

use oxigress_core::model::{HostPattern, ListenerHost, PathPattern, Rule, Server};
use std::collections::BTreeMap;

/// What is known of the rules of all servers.
#[derive(Debug, Default)]
pub struct RuleIndex {
    /// How many rules listeners have, by host and by the namespace of their object.
    pub counts: BTreeMap<HostPattern, BTreeMap<String, usize>>,
    listeners: BTreeMap<ListenerHost, ByPath>,
    hosts: BTreeMap<HostPattern, ByPath>,
}

impl RuleIndex {
    /// Notes that a host has other rules on one of its ports.
    pub fn set_listener(&mut self, at: &ListenerHost, old: Option<&Server>, new: Option<&Server>) {
        count(&mut self.counts, &at.host, old, new);
        set(&mut self.listeners, at, new);
    }

    /// Notes that a host of Ingresses has other rules.
    pub fn set_host(&mut self, host: &HostPattern, new: Option<&Server>) {
        set(&mut self.hosts, host, new);
    }

    /// The rules of a path at a listener, which has this server.
    pub fn at_listener<'r>(
        &'r self,
        at: &ListenerHost,
        server: &'r Server,
        path: &PathPattern,
    ) -> Vec<&'r Rule> {
        of_path(self.listeners.get(at), &server.rules, path)
    }

    /// The rules of a path that Ingresses have on a host, which has this server.
    pub fn on_host<'r>(
        &'r self,
        host: &HostPattern,
        server: &'r Server,
        path: &PathPattern,
    ) -> Vec<&'r Rule> {
        of_path(self.hosts.get(host), &server.rules, path)
    }
}

/// The places of the rules of a server in the order of their paths.
#[derive(Debug)]
struct ByPath(Box<[u32]>);

fn set<K: Ord + Clone>(all: &mut BTreeMap<K, ByPath>, key: &K, new: Option<&Server>) {
    let new = new.filter(|server| !server.rules.is_sorted_by_key(|rule| &rule.path));
    match new {
        Some(Server { rules, .. }) => {
            let mut by_path: Vec<(&PathPattern, u32)> =
                rules.iter().map(|rule| &rule.path).zip(0..).collect();
            by_path.sort();
            let places = by_path.into_iter().map(|(_, place)| place).collect();
            all.insert(key.clone(), ByPath(places));
        }
        None => drop(all.remove(key)),
    }
}

fn of_path<'r>(by_path: Option<&ByPath>, rules: &'r [Rule], path: &PathPattern) -> Vec<&'r Rule> {
    let Some(ByPath(places)) = by_path else {
        let first = rules.partition_point(|rule| rule.path < *path);
        return rules.iter().skip(first).take_while(|rule| rule.path == *path).collect();
    };
    let rule = |place: &u32| rules.get(*place as usize);
    let first = places.partition_point(|place| rule(place).is_some_and(|rule| rule.path < *path));
    let all = places.iter().skip(first).filter_map(rule);
    all.take_while(|rule| rule.path == *path).collect()
}

/// Counts that a host has other rules on one of its ports.
fn count(
    all: &mut BTreeMap<HostPattern, BTreeMap<String, usize>>,
    host: &HostPattern,
    old: Option<&Server>,
    new: Option<&Server>,
) {
    let by_namespace = all.entry(host.clone()).or_default();
    for rule in new.into_iter().flat_map(|server| &server.rules) {
        match by_namespace.get_mut(&rule.origin.namespace) {
            Some(count) => *count += 1,
            None => drop(by_namespace.insert(rule.origin.namespace.clone(), 1)),
        }
    }
    for rule in old.into_iter().flat_map(|server| &server.rules) {
        if let Some(count) = by_namespace.get_mut(&rule.origin.namespace) {
            *count = count.saturating_sub(1);
        }
    }
    by_namespace.retain(|_, count| *count > 0);
    if by_namespace.is_empty() {
        all.remove(host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_core::model::{Origin, Policy};

    #[test]
    fn rules_are_found_by_their_path_in_whatever_order_they_stand() {
        let host = HostPattern::parse("a.test").unwrap();
        let rule = |path: &str| Rule {
            path: PathPattern::prefix(path).unwrap(),
            backend: None,
            origin: Origin { path: path.into(), ..Origin::default() },
            policy: Policy::default(),
            policies: None,
            selection: None,
        };
        for paths in [&["/c", "/a", "/b", "/a/", "/b"][..], &["/a", "/a/", "/b", "/b", "/c"], &[]] {
            let server = Server::of(paths.iter().map(|path| rule(path)).collect());
            let mut index = RuleIndex::default();
            index.set_host(&host, Some(&server));
            let found = |path: &str| {
                let found = index.on_host(&host, &server, &PathPattern::prefix(path).unwrap());
                found.into_iter().map(|rule| rule.origin.path.as_str()).collect::<Vec<_>>()
            };
            let some = |of: &'static [&'static str]| if paths.is_empty() { &[] } else { of };
            assert_eq!(found("/a"), some(&["/a", "/a/"]), "{paths:?}");
            assert_eq!(found("/b"), some(&["/b", "/b"]));
            assert_eq!(found("/c"), some(&["/c"]));
            assert!(found("/0").is_empty() && found("/aa").is_empty() && found("/d").is_empty());
            let was_sorted = index.hosts.is_empty();
            index.set_host(&host, None);
            assert_eq!((was_sorted, index.hosts.len()), (paths.first() != Some(&"/c"), 0));
        }
    }
}
