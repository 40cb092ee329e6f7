//! What can be withheld by itself: a record, or what one namespace has added to another one's host.
//!
//! Several namespaces may have rules in one server. The record belongs to the namespace of its host; the rules of another
//! namespace are an item of their own, so that whatever is wrong with them, and whatever room they take, costs neither
//! the owner of the host nor a third namespace anything.

use oxigress_core::model::{HostPattern, Rule, Server, Snapshot};
use oxigress_core::record::table::RecordRef;
use oxigress_core::record::{Kind, encode_server};
use oxigress_core::wire::native::Patch;
use std::collections::BTreeMap;
use std::fmt;

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
            Some(namespace) => write!(f, "{}, the rules of namespace {namespace}", self.record),
        }
    }
}

/// The namespace of a rule, where it is another one than the owner of the host.
pub fn guest_of<'s>(owner: &str, rule: &'s Rule) -> Option<&'s str> {
    let namespace = rule.origin.namespace.as_str();
    (!namespace.is_empty() && namespace != owner).then_some(namespace)
}

/// The rules of each namespace but the one that owns the host.
pub fn guests<'s>(
    owner: &str,
    rules: impl IntoIterator<Item = &'s Rule>,
) -> BTreeMap<&'s str, Vec<&'s Rule>> {
    let mut all: BTreeMap<&str, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        if let Some(namespace) = guest_of(owner, rule) {
            all.entry(namespace).or_default().push(rule);
        }
    }
    all
}

/// Bytes that rules take in the record of their server.
pub fn bytes_of(rules: &[&Rule]) -> usize {
    let of = |rules: Vec<Rule>| encode_server(&Server { rules }).len();
    of(rules.iter().map(|rule| (*rule).clone()).collect()) - of(Vec::new())
}

/// Bytes of a server's record; 0: there is no such server.
pub fn bytes_of_server(snapshot: &Snapshot, host: &str) -> u64 {
    let host = HostPattern::parse(host).ok();
    let server = host.and_then(|host| snapshot.servers.get(&host));
    server.map_or(0, |server| encode_server(server).len() as u64)
}

/// Takes the rules of a guest out of what a delta writes.
pub fn take_rules(patch: &mut Patch, host: &str, guest: &str) {
    let host = HostPattern::parse(host);
    if let Some(server) = host.ok().and_then(|host| patch.upsert.servers.get_mut(&host)) {
        server.rules.retain(|rule| rule.origin.namespace != guest);
    }
}
