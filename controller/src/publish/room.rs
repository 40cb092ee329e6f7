//! Which records wait when the zone has no room for all.
//!
//! Namespaces share the zone: the next record to wait is always one of the namespace that brings most bytes, so a
//! namespace with a few records loses none of them to one that fills the zone. Of a namespace, the records of the
//! newest hosts wait first when everything is new, as at a start, and else the largest ones; endpoints wait last.

use oxigress_core::model::{HostPattern, Snapshot};
use oxigress_core::record::{Change, Kind, delta_records};
use oxigress_core::table::RecordRef;
use oxigress_core::wire::native::Patch;
use std::collections::{BinaryHeap, HashMap};

/// What a record takes in the zone besides key and value: its header and its part of the index.
const OVERHEAD: u64 = 128;

/// What the publisher may know of the objects behind a snapshot.
pub struct View<'s> {
    /// Everything to be served.
    pub snapshot: &'s Snapshot,
    /// When the oldest Ingress of a host was created, in seconds since 1970.
    pub created: &'s dyn Fn(&HostPattern) -> i64,
}

/// The owner of a record: the namespace and age of the oldest host that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner<'s> {
    namespace: &'s str,
    created: i64,
}

/// Which of the records that `patch` writes wait, so that at least `deficit` bytes are not needed; with their sizes.
pub fn choose(
    patch: &Patch,
    view: &View<'_>,
    deficit: u64,
    newest_first: bool,
) -> Vec<(RecordRef, u64)> {
    let owners = owners(view);
    // The last of a namespace waits first: endpoints come before everything else.
    let mut namespaces: HashMap<&str, Vec<(bool, i64, u64, RecordRef)>> = HashMap::new();
    for Change { kind, key, value } in delta_records(patch, |_, _| None) {
        let (Some(value), Ok(key)) = (value, String::from_utf8(key)) else { continue };
        if kind == Kind::Settings {
            continue;
        }
        let owner = owners.get(&(kind, key.as_str())).copied();
        let created = owner.filter(|_| newest_first).map_or(0, |owner| owner.created);
        let bytes = (key.len() + value.len()) as u64 + OVERHEAD;
        let namespace = owner.map_or("", |owner| owner.namespace);
        let may_wait = kind != Kind::Endpoints;
        let record = RecordRef { kind, key };
        namespaces.entry(namespace).or_default().push((may_wait, created, bytes, record));
    }
    let mut heap = BinaryHeap::new();
    for (namespace, records) in &mut namespaces {
        records.sort();
        heap.push((records.iter().map(|(_, _, bytes, _)| bytes).sum::<u64>(), *namespace));
    }
    let (mut chosen, mut spared) = (Vec::new(), 0);
    while spared < deficit {
        let Some((total, namespace)) = heap.pop() else { break };
        let next = namespaces.get_mut(namespace).and_then(Vec::pop);
        let Some((_, _, bytes, record)) = next else { continue };
        spared += bytes;
        chosen.push((record, bytes));
        heap.push((total - bytes, namespace));
    }
    chosen
}

fn owners<'s>(view: &View<'s>) -> HashMap<(Kind, &'s str), Owner<'s>> {
    let mut owners: HashMap<(Kind, &str), Owner<'_>> = HashMap::new();
    let mut own = |kind, key, owner: Owner<'s>| {
        let known = owners.entry((kind, key)).or_insert(owner);
        if owner.created < known.created {
            *known = owner;
        }
    };
    let snapshot = view.snapshot;
    for (host, server) in &snapshot.servers {
        let created = (view.created)(host);
        for rule in &server.rules {
            let owner = Owner { namespace: &rule.origin.namespace, created };
            for kind in [Kind::Server, Kind::Tls, Kind::Name] {
                own(kind, host.as_str(), owner);
            }
            if let Some(id) = snapshot.names.get(host) {
                own(Kind::Certificate, id.as_str(), owner);
            }
            if let Some(id) = &rule.policies {
                own(Kind::Policies, id.as_str(), owner);
            }
            if let Some(id) = &rule.backend {
                own(Kind::Backend, id.as_str(), owner);
                own(Kind::Endpoints, id.as_str(), owner);
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts of namespace `a`, with so many rules each, beside one small host of namespace `b`.
    fn snapshot(rules: &[usize]) -> Snapshot {
        let server = |namespace: &str, count: usize| {
            let rules: Vec<_> = (0..count)
                .map(|n| {
                    serde_json::json!({"path": {"prefix": format!("/{n}")},
                        "origin": {"namespace": namespace}})
                })
                .collect();
            serde_json::json!({ "rules": rules })
        };
        let mut servers = serde_json::Map::new();
        for (number, count) in rules.iter().enumerate() {
            servers.insert(format!("a{number}.test"), server("a", *count));
        }
        servers.insert("b.test".into(), server("b", 1));
        serde_json::from_value(serde_json::json!({ "servers": servers })).unwrap()
    }

    fn chosen(rules: &[usize], deficit: u64, newest_first: bool) -> Vec<String> {
        let snapshot = snapshot(rules);
        // a0 is the oldest host.
        let created = |host: &HostPattern| i64::from(host.as_str().as_bytes()[1]);
        let view = View { snapshot: &snapshot, created: &created };
        let patch = Patch::of_whole(snapshot.clone());
        let all = choose(&patch, &view, deficit, newest_first);
        all.into_iter().map(|(record, _)| record.key).collect()
    }

    #[test]
    fn the_largest_record_of_the_largest_namespace_waits() {
        assert_eq!(chosen(&[2, 9, 3], 1, false), ["a1.test"]);
        assert_eq!(chosen(&[2, 9, 3], 1, true), ["a2.test"]);
        assert_eq!(chosen(&[], 1, true), ["b.test"]);
    }

    #[test]
    fn a_small_namespace_waits_last() {
        let all = chosen(&[2, 9, 3], u64::MAX, true);
        assert_eq!(all, ["a2.test", "a1.test", "a0.test", "b.test"]);
    }
}
