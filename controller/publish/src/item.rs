//! What can be withheld by itself: a record, or what one namespace has added to another one's host.
//!
//! Several namespaces may have rules in one server. The record belongs to the namespace of its host, also that of a Gateway's
//! listener; the rules of another namespace are an item of their own, so that whatever is wrong with them, and whatever room
//! they take, costs neither the owner of the host nor a third namespace anything.

use super::owners::{BY_OPERATOR, HostOwner, View, host_owner, listener_owner};
use oxigress_core::model::{HostPattern, ListenerHost, Rule, Server, Snapshot};
use oxigress_core::record::table::{RecordRef, TABLES};
use oxigress_core::record::{Change, Kind, closed_rule, encode_server};
use oxigress_core::wire::native::Patch;
use std::collections::BTreeMap;
use std::fmt;

/// What a record takes in the zone besides key and value: its header and its part of the index.
pub const OVERHEAD: u64 = 128;

/// A record, or the rules of one namespace in the server of another one's host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The record that is meant.
    pub record: RecordRef,
    /// The namespace whose rules are meant; `None`: the record itself.
    pub guest: Option<String>,
}

impl From<RecordRef> for Item {
    fn from(record: RecordRef) -> Self {
        Item { record, guest: None }
    }
}

impl Item {
    /// The rules of `namespace` in a server that is another namespace's.
    pub fn of_guest(record: RecordRef, namespace: &str) -> Self {
        Item { record, guest: Some(namespace.to_owned()) }
    }

    /// Whether it is of a kind that `has` is true for; a guest's rules are of no kind of record.
    pub fn is_record(&self, has: impl Fn(Kind) -> bool) -> bool {
        self.guest.is_none() && has(self.record.kind)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.guest {
            None => self.record.fmt(f),
            Some(namespace) => write!(f, "rules of namespace {namespace} in {}", self.record),
        }
    }
}

/// The records that hold rules, of a snapshot or of a delta: hosts, and hosts of Gateways' listeners.
#[derive(Clone, Copy)]
pub struct RuleRecords<'s> {
    servers: &'s BTreeMap<HostPattern, Server>,
    listeners: &'s BTreeMap<ListenerHost, Server>,
}

impl<'s> From<&'s Snapshot> for RuleRecords<'s> {
    fn from(snapshot: &'s Snapshot) -> Self {
        RuleRecords { servers: &snapshot.servers, listeners: &snapshot.listener_servers }
    }
}

impl<'s> From<&'s Patch> for RuleRecords<'s> {
    fn from(patch: &'s Patch) -> Self {
        let upsert = &patch.upsert;
        RuleRecords { servers: &upsert.servers, listeners: &upsert.listener_servers }
    }
}

impl<'s> RuleRecords<'s> {
    /// Whether records of this kind hold rules, which may be of several namespaces.
    pub fn is_kind(kind: Kind) -> bool {
        matches!(kind, Kind::Server | Kind::Listener)
    }

    /// The rules of one record; `None`: it has none, or is not there.
    pub fn get(self, record: &RecordRef) -> Option<&'s Server> {
        match record.kind {
            Kind::Server => self.servers.get(&HostPattern::parse(&record.key).ok()?),
            Kind::Listener => self.listeners.get(&ListenerHost::parse(&record.key).ok()?),
            _ => None,
        }
    }

    /// All of them, each with its name.
    #[cfg(test)]
    pub fn all(self) -> impl Iterator<Item = (RecordRef, &'s Server)> {
        let record = |kind, key: String| RecordRef { kind, key };
        let servers = self.servers.iter();
        let servers =
            servers.map(move |(at, server)| (record(Kind::Server, at.to_string()), server));
        let listeners = self.listeners.iter();
        servers.chain(
            listeners.map(move |(at, server)| (record(Kind::Listener, at.to_string()), server)),
        )
    }
}

/// Whose a record with rules is; the rules of all other namespaces are their own.
pub fn owner_of<'s>(view: &View<'s>, record: &RecordRef) -> HostOwner<'s> {
    let key = &record.key;
    match record.kind {
        Kind::Server => HostPattern::parse(key).ok().map(|host| host_owner(view, &host)),
        Kind::Listener => ListenerHost::parse(key).ok().map(|at| listener_owner(view, &at)),
        _ => None,
    }
    .unwrap_or(BY_OPERATOR)
}

/// The namespace of a rule, where it is another one than the owner of the host.
pub fn guest_of<'s>(owner: &str, rule: &'s Rule) -> Option<&'s str> {
    let namespace = rule.origin.namespace.as_str();
    (!namespace.is_empty() && namespace != owner).then_some(namespace)
}

/// The rules of each namespace.
pub fn by_namespace<'s>(
    rules: impl IntoIterator<Item = &'s Rule>,
) -> BTreeMap<&'s str, Vec<&'s Rule>> {
    let mut all: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        all.entry(rule.origin.namespace.as_str()).or_default().push(rule);
    }
    all
}

/// The rules of each namespace but the one that owns the host.
pub fn guests<'s>(
    owner: &str,
    rules: impl IntoIterator<Item = &'s Rule>,
) -> BTreeMap<&'s str, Vec<&'s Rule>> {
    by_namespace(rules.into_iter().filter(|rule| guest_of(owner, rule).is_some()))
}

/// Bytes that rules take in the record of their server.
pub fn bytes_of(rules: &[&Rule]) -> usize {
    let server = Server::of(rules.iter().map(|rule| (*rule).clone()).collect());
    encode_server(&server).len() - bytes_of_head() as usize
}

/// Bytes of the record of a server without rules.
pub fn bytes_of_head() -> u64 {
    encode_server(&Server::of(Vec::new())).len() as u64
}

/// The records that a delta writes; the settings are none.
pub fn written(patch: &Patch) -> Vec<RecordRef> {
    let mut all = Vec::new();
    TABLES.iter().for_each(|table| (table.keys)(patch, &mut all));
    all
}

/// The records that a delta removes.
pub fn removed(patch: &Patch) -> Vec<RecordRef> {
    let mut all = Vec::new();
    TABLES.iter().for_each(|table| (table.removals)(patch, &mut all));
    let record = |Change { kind, key, .. }| RecordRef {
        kind,
        key: String::from_utf8(key).unwrap_or_default(),
    };
    all.into_iter().map(record).collect()
}

/// What becomes of the rules of a guest in what a delta writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// They answer 503, so that no rule of another namespace gets their requests.
    Closed,
    /// They are left out: even so they were refused, or there is no room for them.
    Absent,
}

/// Closes the rules of a guest in what a delta writes, or leaves them out.
pub fn withhold_rules(patch: &mut Patch, record: &RecordRef, guest: &str, fate: Fate) {
    let key = &record.key;
    let upsert = &mut patch.upsert;
    let server = match record.kind {
        Kind::Server => HostPattern::parse(key).ok().and_then(|at| upsert.servers.get_mut(&at)),
        Kind::Listener => {
            ListenerHost::parse(key).ok().and_then(|at| upsert.listener_servers.get_mut(&at))
        }
        _ => None,
    };
    let Some(server) = server else { return };
    let is_guests = |rule: &Rule| rule.origin.namespace == guest;
    match fate {
        Fate::Closed => server.rules.iter_mut().filter(|rule| is_guests(rule)).for_each(close),
        Fate::Absent => server.rules.retain(|rule| !is_guests(rule)),
    }
}

/// Leaves of a rule what tells its requests, which are answered 503.
pub fn close(rule: &mut Rule) {
    if let Some(closed) = closed_rule(rule.path.clone()) {
        let (origin, selection) = (rule.origin.clone(), rule.selection.take());
        *rule = Rule { origin, selection, ..closed };
    }
}
