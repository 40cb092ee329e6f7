//! What is known of the rules of servers beside the snapshot: how many of them are whose, and where those of a path stand.
//!
//! Shape:   of a server whose rules stand in the order of their paths, as those of Ingresses do, nothing is kept: they are found as
//!          they stand. Rules of listeners stand in the order of their age.
//! Cost:    how many rules listeners have on hosts is told by a look-up for each host, and by one more for each host below a wildcard.

use crate::gateway::work::{self, Step};
use oxigress_core::model::{HostPattern, ListenerHost, PathPattern, Rule, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What is known of the rules of all servers.
#[derive(Debug, Default)]
pub struct RuleIndex {
    /// How many rules listeners have, by host and by the namespace of their object.
    pub counts: BTreeMap<HostPattern, BTreeMap<String, usize>>,
    /// How many there are by host, whose labels stand from the last to the first: those below a wildcard stand together.
    by_labels: BTreeMap<Box<str>, usize>,
    /// How many there are on all hosts.
    total: usize,
    listeners: BTreeMap<ListenerHost, ByPath>,
    hosts: BTreeMap<HostPattern, ByPath>,
}

impl RuleIndex {
    /// Notes that a host has other rules on one of its ports.
    pub fn set_listener(&mut self, at: &ListenerHost, old: Option<&Server>, new: Option<&Server>) {
        count(&mut self.counts, &at.host, old, new);
        self.set_sums(&at.host);
        set(&mut self.listeners, at, new);
    }

    fn set_sums(&mut self, host: &HostPattern) {
        let key = reversed(host.as_str());
        let old = self.by_labels.get(&*key).copied().unwrap_or_default();
        let new = self.at(host);
        self.total = self.total + new - old;
        match new {
            0 => drop(self.by_labels.remove(&*key)),
            _ => drop(self.by_labels.insert(key.into(), new)),
        }
    }

    /// How many rules listeners have on a host.
    pub fn at(&self, host: &HostPattern) -> usize {
        self.counts.get(host).map_or(0, |by_namespace| by_namespace.values().sum())
    }

    /// How many rules listeners have on hosts that one of these names or covers.
    pub fn under(&self, hosts: &BTreeSet<HostPattern>) -> usize {
        if hosts.contains(&HostPattern::default_host()) {
            return self.total;
        }
        // What a wildcard covers stands right behind it.
        let keys: BTreeSet<String> = hosts.iter().map(|host| reversed(host.as_str())).collect();
        let (mut sum, mut widest): (usize, Option<&str>) = (0, None);
        for key in &keys {
            if widest.is_some_and(|wide| key.starts_with(wide)) {
                continue;
            }
            let below = key.strip_suffix('*');
            let first = below.unwrap_or(key);
            let all = self.by_labels.range::<str, _>((Bound::Included(first), Bound::Unbounded));
            let all =
                all.inspect(|_| work::count(Step::Summed)).take_while(|(host, _)| match below {
                    Some(below) => host.starts_with(below),
                    None => ***host == **key,
                });
            sum += all.map(|(_, count)| count).sum::<usize>();
            widest = below.or(widest);
        }
        sum
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

/// The labels of a host from the last to the first.
fn reversed(host: &str) -> String {
    host.rsplit('.').collect::<Vec<_>>().join(".")
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
    use crate::gateway::covers;
    use oxigress_core::model::{Origin, Policy};
    use std::num::NonZeroU16;

    fn rule(path: &str) -> Rule {
        Rule {
            path: PathPattern::prefix(path).unwrap(),
            backend: None,
            origin: Origin { path: path.into(), ..Origin::default() },
            policy: Policy::default(),
            policies: None,
            selection: None,
        }
    }

    #[test]
    fn rules_are_found_by_their_path_in_whatever_order_they_stand() {
        let host = HostPattern::parse("a.test").unwrap();
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

    fn host(name: &str) -> HostPattern {
        HostPattern::parse(name).unwrap()
    }

    /// An index in which each of these hosts has so many rules on two ports.
    fn index(hosts: &[(&str, usize)]) -> RuleIndex {
        let mut index = RuleIndex::default();
        for (name, rules) in hosts {
            let server = Server::of(vec![rule("/"); *rules]);
            for port in [80, 81] {
                let at = ListenerHost::deep(NonZeroU16::new(port).unwrap(), None, host(name));
                index.set_listener(&at, None, Some(&server));
            }
        }
        index
    }

    #[test]
    fn rules_are_counted_under_the_hosts_that_are_named_or_covered() {
        let all = [
            ("a.test", 1),
            ("b.a.test", 2),
            ("c.b.a.test", 4),
            ("*.a.test", 8),
            ("*.b.a.test", 16),
            ("a-b.test", 32),
            ("ba.test", 64),
            ("_", 128),
            ("b.a.test2", 256),
        ];
        let mut index = index(&all);
        let names = all.map(|(name, _)| name).into_iter().chain([
            "*.test",
            "test",
            "none.test",
            "*.ba.test",
        ]);
        let names: Vec<&str> = names.collect();
        for first in &names {
            for second in &names {
                let hosts = BTreeSet::from([host(first), host(second)]);
                let is_under = |name: &str| hosts.iter().any(|outer| covers(outer, &host(name)));
                let under =
                    all.iter().filter(|(name, _)| is_under(name)).map(|(_, rules)| 2 * rules);
                assert_eq!(index.under(&hosts), under.sum::<usize>(), "{first} {second}");
            }
        }
        let at = ListenerHost::deep(NonZeroU16::MIN, None, host("b.a.test"));
        let (old, new) = (Server::of(vec![rule("/"); 2]), Server::of(vec![rule("/"); 3]));
        index.set_listener(&at, Some(&old), Some(&new));
        assert_eq!(index.under(&BTreeSet::from([host("b.a.test")])), 2 + 3);
        index.set_listener(&at, Some(&new), None);
        assert_eq!(index.under(&BTreeSet::from([host("*.a.test")])), 2 + 2 * (4 + 8 + 16));
        assert_eq!(index.under(&BTreeSet::from([host("_")])), 2 * 511 - 2);
    }

    #[test]
    fn counting_looks_at_what_is_under_these_hosts_and_at_the_one_behind() {
        let names: Vec<String> = (0..500).map(|n| format!("h{n}.{}.test", n % 5)).collect();
        let hosts: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let index = index(&hosts);
        for (name, rules, looked_at) in
            [("h7.2.test", 2, 2), ("none.2.test", 0, 1), ("*.2.test", 200, 101), ("_", 1_000, 0)]
        {
            work::take(Step::Summed);
            let found = index.under(&BTreeSet::from([host(name)]));
            assert_eq!((found, work::take(Step::Summed)), (rules, looked_at), "{name}");
        }
    }
}
