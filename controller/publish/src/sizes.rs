//! What records take in the zone, and in records with rules what the rules of each namespace take.
//!
//! Shape:   nothing is measured before somebody asks, which nobody does while there is room. From then on only what has
//!          changed is encoded: a full zone may refuse a write for each edit of anybody, and the controller's loop waits.
//! Units:   bytes of key and value, without [`OVERHEAD`].
//! Rejected: to measure in each change, for which clusters would pay whose zone is never full.

use super::item::{self, Item, OVERHEAD, RuleRecords};
use oxigress_core::model::{Backend, BackendId, HostPattern, ListenerHost, Rule, Server, Snapshot};
use oxigress_core::record::table::{Operations, RecordRef, TABLES};
use oxigress_core::record::{Kind, endpoints_bytes};
use oxigress_core::wire::native::Patch;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What one record takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordSize {
    /// Bytes of key and value.
    pub bytes: u64,
    /// Those of the rules of each namespace among them.
    rules: BTreeMap<String, u64>,
}

impl RecordSize {
    /// What the rules of each namespace take but those of the owner of the host.
    pub fn guests(&self, owner: &str) -> impl Iterator<Item = (&str, u64)> {
        let all = self.rules.iter().map(|(namespace, bytes)| (namespace.as_str(), *bytes));
        all.filter(move |(namespace, _)| !namespace.is_empty() && *namespace != owner)
    }
}

/// Rules in the record of a listener that the host's Ingresses have too.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The namespaces of the other rules.
    pub others: BTreeSet<String>,
    /// Bytes of the rules of each namespace.
    pub rules: BTreeMap<String, u64>,
}

impl Copied {
    fn of(server: &Server, ingresses: &Server) -> Self {
        let known: HashMap<_, &Rule> =
            ingresses.rules.iter().map(|rule| (&rule.path, rule)).collect();
        let (copied, others): (Vec<&Rule>, Vec<&Rule>) =
            server.rules.iter().partition(|rule| known.get(&rule.path) == Some(rule));
        let others = others.iter().map(|rule| rule.origin.namespace.to_string()).collect();
        Copied { others, rules: bytes_by_namespace(copied) }
    }
}

fn bytes_by_namespace<'s>(rules: impl IntoIterator<Item = &'s Rule>) -> BTreeMap<String, u64> {
    let all = item::by_namespace(rules).into_iter();
    all.map(|(namespace, rules)| (namespace.to_owned(), item::bytes_of(&rules) as u64)).collect()
}

/// The same of all rules of a server, whose record has so many bytes.
fn bytes_of_server(server: &Server, bytes: u64) -> BTreeMap<String, u64> {
    let mut rules = server.rules.iter().map(|rule| &rule.origin.namespace);
    match rules.next() {
        // Most hosts are of one namespace, and need not be encoded twice.
        Some(first) if rules.all(|namespace| namespace == first) => {
            [(first.to_string(), bytes - item::bytes_of_head())].into()
        }
        _ => bytes_by_namespace(&server.rules),
    }
}

/// What everything in a snapshot takes, as far as somebody has asked.
#[derive(Debug, Default)]
pub struct Sizes {
    records: BTreeMap<RecordRef, RecordSize>,
    copied: BTreeMap<HostPattern, BTreeMap<ListenerHost, Copied>>,
    /// Records that have changed since they were measured.
    changed: BTreeSet<RecordRef>,
    is_measured: bool,
    /// How many records were encoded.
    #[cfg(test)]
    pub encoded: usize,
}

impl Sizes {
    /// What everything in a snapshot takes.
    #[cfg(test)]
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut sizes = Sizes::default();
        sizes.measure(snapshot);
        sizes
    }

    /// Takes note of what is to be measured again.
    pub fn note_changed(&mut self, patch: &Patch) {
        if !self.is_measured {
            return;
        }
        for record in item::written(patch).into_iter().chain(item::removed(patch)) {
            if record.kind == Kind::Backend {
                // Whether its endpoints have the table of a hash.
                let endpoints = RecordRef { kind: Kind::Endpoints, key: record.key.clone() };
                self.changed.insert(endpoints);
            }
            self.changed.insert(record);
        }
        let (upsert, remove) = (&patch.upsert, &patch.remove);
        let listeners = upsert.listener_servers.keys().chain(&remove.listener_servers);
        let hosts = upsert.servers.keys().chain(&remove.servers);
        for host in hosts.chain(listeners.map(|at| &at.host)) {
            self.copied.remove(host);
        }
        if self.changed.len() > 1_000 + self.records.len() {
            // Names that came and went since, for which nobody has asked.
            (self.is_measured, self.records, self.changed) = Default::default();
            self.copied.clear();
        }
    }

    /// Measures what has changed; the snapshot holds all changes.
    pub fn measure(&mut self, snapshot: &Snapshot) {
        if !std::mem::replace(&mut self.is_measured, true) {
            let mut all = Vec::new();
            TABLES.iter().for_each(|table| (table.records)(snapshot, &mut all));
            self.changed = all.into_iter().collect();
        }
        for record in std::mem::take(&mut self.changed) {
            match size_of(snapshot, &record) {
                Some(size) => drop(self.records.insert(record, size)),
                None => drop(self.records.remove(&record)),
            }
            self.count_encoded();
        }
        for (at, server) in &snapshot.listener_servers {
            let Some(ingresses) = snapshot.servers.get(&at.host) else { continue };
            let of_host = self.copied.entry(at.host.clone()).or_default();
            if !of_host.contains_key(at) {
                of_host.insert(at.clone(), Copied::of(server, ingresses));
                self.count_encoded();
            }
        }
    }

    fn count_encoded(&mut self) {
        #[cfg(test)]
        {
            self.encoded += 1;
        }
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = (&RecordRef, &RecordSize)> {
        self.records.iter()
    }

    /// What stands in the records of listeners and in those of Ingresses.
    pub fn copied(&self) -> impl Iterator<Item = (&ListenerHost, &Copied)> {
        self.copied.values().flatten().filter(|(_, copied)| !copied.rules.is_empty())
    }

    /// What a record takes; `None`: there is no such record.
    pub fn get(&self, record: &RecordRef) -> Option<&RecordSize> {
        self.records.get(record)
    }

    /// What it takes to write an item; `None`: there is no such item. The rules of a guest take their whole server.
    pub fn bytes_of(&self, item: &Item) -> Option<u64> {
        let size = self.get(&item.record)?;
        let is_there = item.guest.as_ref().is_none_or(|guest| size.rules.contains_key(guest));
        is_there.then_some(size.bytes + OVERHEAD)
    }
}

fn size_of(snapshot: &Snapshot, record: &RecordRef) -> Option<RecordSize> {
    if record.kind == Kind::Endpoints {
        let id = BackendId::parse(record.key.as_str()).ok()?;
        let set = snapshot.endpoints.get(&id)?;
        let plain = Backend::default();
        let backend = snapshot.backends.get(&id).unwrap_or(&plain);
        let bytes = endpoints_bytes(set, backend) + record.key.len();
        return Some(RecordSize { bytes: bytes as u64, ..RecordSize::default() });
    }
    let table = Operations::of_kind(record.kind)?;
    let bytes = (table.size)(snapshot, &record.key)? as u64;
    let server = RuleRecords::from(snapshot).get(record);
    let value = bytes - record.key.len() as u64;
    let rules = server.map(|server| bytes_of_server(server, value)).unwrap_or_default();
    Some(RecordSize { bytes, rules })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn snapshot(value: Value) -> Snapshot {
        serde_json::from_value(value).unwrap()
    }

    fn rule(namespace: &str, path: &str) -> Value {
        json!({"path": {"prefix": path}, "origin": {"namespace": namespace}})
    }

    fn endpoints(count: usize) -> Value {
        (0..count).map(|n| json!({"address": format!("10.0.0.{n}"), "port": 80})).collect()
    }

    /// What was measured again of what has changed is what everything takes.
    #[test]
    fn what_is_measured_again_is_what_has_changed() {
        let first = snapshot(json!({
            "servers": {"a": {"rules": [rule("a", "/"), rule("g", "/g")]}, "b": {"rules": [rule("b", "/")]}},
            "listener_servers": {"80/a": {"rules": [rule("a", "/"), rule("r", "/r")]}},
            "backends": {"a/s/80": {}, "b/s/80": {"hash_by": {"key": "$uri"}}},
            "endpoints": {"a/s/80": endpoints(3), "b/s/80": endpoints(9)},
        }));
        let steps = [
            json!({"endpoints": {"a/s/80": endpoints(4), "b/s/80": endpoints(9)}}),
            json!({"servers": {"a": {"rules": [rule("g", "/g"), rule("a", "/longer")]}}}),
            json!({"listener_servers": {"80/a": {"rules": [rule("r", "/r")]}, "81/a": {"rules": [rule("a", "/longer")]}}}),
            json!({"backends": {"a/s/80": {"hash_by": {"key": "$uri"}}}}),
            json!({"servers": {"b": {"rules": []}}}),
        ];
        let (mut old, mut sizes) = (first.clone(), Sizes::of(&first));
        assert_eq!(sizes.encoded, 8);
        for (step, encoded) in steps.into_iter().zip([1, 3, 4, 4, 2]) {
            let mut new = serde_json::to_value(&old).unwrap();
            for (table, records) in step.as_object().unwrap() {
                new[table] = records.clone();
            }
            let new = snapshot(new);
            let before = sizes.encoded;
            sizes.note_changed(&Patch::between(&old, &new));
            sizes.measure(&new);
            let whole = Sizes::of(&new);
            assert_eq!(sizes.records, whole.records);
            assert_eq!(sizes.copied().collect::<Vec<_>>(), whole.copied().collect::<Vec<_>>());
            assert_eq!(sizes.encoded - before, encoded, "{step}");
            old = new;
        }
    }

    #[test]
    fn names_that_nobody_asks_for_are_not_kept() {
        let mut sizes = Sizes::of(&Snapshot::default());
        for number in 0..5_000 {
            let mut patch = Patch::default();
            patch.remove.servers.insert(HostPattern::parse(format!("h{number}").as_str()).unwrap());
            sizes.note_changed(&patch);
            assert!(sizes.changed.len() <= 1_000);
        }
    }
}
