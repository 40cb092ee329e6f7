//! Rules of Ingresses that stand a second time, in the records of Gateways' listeners, and who has caused that.
//!
//! A host on a port of a Gateway is a record of its own, which has the rules of the host's Ingresses too. It is there because of
//! the routes in it. So whoever wrote these has the bytes of all that is there twice, and of the record: else a small route on
//! the listeners of another namespace's host would multiply what that namespace has. Several have all of it each. Where no
//! route has a rule, it is there for a Gateway, which is the operator's.

use super::item::{Item, OVERHEAD};
use super::owners::{OPERATOR, View, listener_owner};
use super::sizes::{Copied, Sizes};
use super::withheld::Withheld;
use oxigress_core::record::Kind;
use oxigress_core::record::table::RecordRef;
use std::collections::{BTreeMap, BTreeSet};

/// What others than those who have caused it would count for in one record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copies<'s> {
    /// The namespaces that have caused it.
    pub causes: BTreeSet<&'s str>,
    /// Bytes of the record and of its owner's rules.
    pub bytes_of_record: u64,
    /// Bytes of the rules of guests.
    pub of_guests: BTreeMap<&'s str, u64>,
}

impl Copies<'_> {
    /// The bytes of all copies together.
    pub fn bytes(&self) -> u64 {
        self.bytes_of_record + self.of_guests.values().sum::<u64>()
    }
}

/// What stands twice in the records of listeners that are not withheld.
pub fn of<'l>(
    view: &View<'_>,
    withheld: &Withheld,
    sizes: &'l Sizes,
) -> BTreeMap<RecordRef, Copies<'l>> {
    let all = sizes.copied().filter_map(|(at, copied)| {
        let record = RecordRef { kind: Kind::Listener, key: at.to_string() };
        let item = Item::from(record);
        let is_withheld = withheld.contains(&item);
        let copies = || of_one(listener_owner(view, at).namespace, copied);
        (!is_withheld).then(|| (item.record, copies()))
    });
    all.collect()
}

fn of_one<'l>(owner: &str, copied: &'l Copied) -> Copies<'l> {
    let mut causes: BTreeSet<&str> = copied.others.iter().map(String::as_str).collect();
    causes.remove(OPERATOR);
    if causes.is_empty() {
        causes.insert(OPERATOR);
    }
    let mut copies = Copies { causes, ..Copies::default() };
    if !copies.causes.contains(owner) {
        copies.bytes_of_record = OVERHEAD;
    }
    for (namespace, bytes) in &copied.rules {
        let is_guest = !namespace.is_empty() && namespace != owner;
        match is_guest {
            true if !copies.causes.contains(namespace.as_str()) => {
                copies.of_guests.insert(namespace, *bytes);
            }
            false if !copies.causes.contains(owner) => copies.bytes_of_record += bytes,
            _ => {}
        }
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostOwner;
    use crate::room::{Ledger, choose};
    use oxigress_core::model::{HostPattern, Snapshot};
    use serde_json::{Value, json};

    fn rules(namespace: &str, count: usize) -> Vec<Value> {
        below(namespace, namespace, count)
    }

    /// A rule of a route.
    fn route(namespace: &str) -> Vec<Value> {
        below(&format!("route-{namespace}"), namespace, 1)
    }

    fn below(path: &str, namespace: &str, count: usize) -> Vec<Value> {
        let rule = |n: usize| json!({"path": {"prefix": format!("/{path}/{n}")}, "origin": {"namespace": namespace, "ingress": "i"}});
        (0..count).map(rule).collect()
    }

    /// Hosts of `victim`, on which `guest` has a path too, with the rules of routes on two listeners of each.
    fn snapshot(routes: &[Value]) -> Snapshot {
        let ingresses = [rules("victim", 50), rules("guest", 10)].concat();
        let server = json!({ "rules": ingresses });
        let all = [ingresses, routes.to_vec()].concat();
        let listener = json!({ "rules": all });
        let hosts = (0..5).map(|n| format!("v{n}.test"));
        let servers: BTreeMap<_, _> = hosts.clone().map(|host| (host, server.clone())).collect();
        let keys = hosts.flat_map(|host| [format!("80/{host}"), format!("443/{host}")]);
        let listeners: BTreeMap<_, _> = keys.map(|key| (key, listener.clone())).collect();
        let listeners = if routes.is_empty() { BTreeMap::new() } else { listeners };
        let all = json!({"servers": servers, "listener_servers": listeners});
        serde_json::from_value(all).unwrap()
    }

    fn owner(_: &HostPattern) -> Option<HostOwner<'static>> {
        Some(HostOwner { namespace: "victim", created: 1 })
    }

    fn totals(routes: &[Value]) -> BTreeMap<String, u64> {
        let snapshot = snapshot(routes);
        let view = View { snapshot: &snapshot, owner: &|place| owner(place.host()) };
        let sizes = Sizes::of(&snapshot);
        let ledger = Ledger::of(&view, &Withheld::default(), &sizes);
        ledger.totals().map(|(namespace, bytes)| (namespace.to_owned(), bytes)).collect()
    }

    #[test]
    fn what_a_route_copies_counts_for_the_route() {
        let alone = totals(&[]);
        let beside = totals(&route("evil"));
        let grown = |namespace: &str| beside[namespace] - alone[namespace];
        assert!(grown("victim") < alone["victim"] / 20, "{alone:?} {beside:?}");
        assert_eq!(grown("guest"), 0, "{alone:?} {beside:?}");
        assert!(beside["evil"] > 2 * (alone["victim"] + alone["guest"]) * 9 / 10, "{beside:?}");
        let both = totals(&[route("evil"), route("victim")].concat());
        assert!(both["victim"] > 2 * alone["victim"], "it has routes there itself: {both:?}");
    }

    #[test]
    fn who_copies_waits_first() {
        let snapshot = snapshot(&route("evil"));
        let view = View { snapshot: &snapshot, owner: &|place| owner(place.host()) };
        let sizes = Sizes::of(&snapshot);
        let mut ledger = Ledger::of(&view, &Withheld::default(), &sizes);
        let victim = ledger.totals().find(|(name, _)| *name == "victim").unwrap().1;
        let beyond = ledger.take_beyond(victim);
        assert_eq!(beyond.len(), 10, "its rules on each listener");
        assert!(
            beyond.iter().all(|(item, by)| item.guest.as_deref() == Some("evil") && by == "evil")
        );
        let chosen = choose(&view, &Withheld::default(), &sizes, 1, false);
        assert_eq!(chosen[0].0.guest.as_deref(), Some("evil"));
        // With the record goes what is there twice.
        let all = choose(&view, &Withheld::default(), &sizes, u64::MAX, false);
        let bytes: u64 = all.iter().map(|(_, bytes)| bytes).sum();
        let whole: u64 = totals(&route("evil")).values().sum();
        assert!(bytes.abs_diff(whole) < whole / 50, "{bytes} of {whole}");
    }
}
