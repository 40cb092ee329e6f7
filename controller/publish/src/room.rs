//! Which records wait when the zone has no room for all, or a namespace has more than its share.
//!
//! Namespaces share the zone: the next record to wait is always one of the namespace with the most bytes in the whole
//! snapshot, whoever came first and whose record it is that lacks room. So a namespace that fills the zone loses records
//! to others that have less, and none of these to it. Of a namespace, the records of the newest hosts wait first, of
//! these the largest; then endpoints; then what several namespaces need. Rules that it has added to another namespace's
//! host wait without that host. What stands twice, since others have rules on a listener, counts for these ([`copies`]). All
//! this depends on the snapshot alone, so every replica decides alike.

use super::copies::{self, Copies};
use super::item::{Item, OVERHEAD, RuleRecords};
use super::owners::{OPERATOR, Owner, Owners, View, asking_once};
use super::sizes::Sizes;
use super::withheld::{Withheld, keeps_old};
use oxigress_core::record::Kind;
use oxigress_core::record::table::{Operations, RecordRef};
use std::collections::{BTreeMap, BinaryHeap};

/// What closes a record, about.
pub const CLOSED: u64 = 64;

/// When a record waits, the last first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// It is closed already, or its absence would not close.
    Last,
    /// Records that several namespaces need.
    Shared,
    /// Without it a backend answers 503.
    Endpoints,
    /// All records that one namespace needs.
    Own,
}

struct Candidate<'l> {
    turn: Turn,
    bytes: u64,
    item: Item,
    owner: Owner<'l>,
    is_taken: bool,
}

#[derive(Default)]
struct Account {
    bytes: u64,
    /// Places of its candidates; the last one waits first.
    candidates: Vec<usize>,
}

/// What every namespace has in the zone.
pub struct Ledger<'l> {
    candidates: Vec<Candidate<'l>>,
    accounts: BTreeMap<&'l str, Account>,
    /// Places of the rules that guests have added, by record: they go with it.
    guests: BTreeMap<RecordRef, Vec<usize>>,
    /// What stands in the records of listeners because of others than those whose rules it is: it goes with them, too.
    copies: BTreeMap<RecordRef, Copies<'l>>,
    owners: Owners<'l>,
}

impl<'l> Ledger<'l> {
    /// Of everything in the snapshot but what is withheld.
    pub fn of<'s: 'l>(view: &View<'s>, withheld: &Withheld, sizes: &'l Sizes) -> Self {
        let copies = copies::of(view, withheld, sizes);
        let owners: Owners<'l> = Owners::of(view);
        let mut candidates = candidates(&owners, withheld, sizes, &copies);
        candidates.sort_by(|a, b| {
            let key = |c: &Candidate<'_>| (c.turn, c.owner.created, c.bytes);
            key(a).cmp(&key(b)).then_with(|| a.item.cmp(&b.item))
        });
        let mut accounts: BTreeMap<&str, Account> = BTreeMap::new();
        let mut guests: BTreeMap<RecordRef, Vec<usize>> = BTreeMap::new();
        for (place, candidate) in candidates.iter().enumerate() {
            for namespace in &candidate.owner.namespaces {
                let account = accounts.entry(namespace).or_default();
                account.bytes += candidate.bytes;
                account.candidates.push(place);
            }
            if candidate.item.guest.is_some() {
                guests.entry(candidate.item.record.clone()).or_default().push(place);
            }
        }
        for copies in copies.values() {
            for namespace in &copies.causes {
                accounts.entry(namespace).or_default().bytes += copies.bytes();
            }
        }
        Ledger { candidates, accounts, guests, copies, owners }
    }

    /// Bytes of a namespace; the operator's count for nothing.
    fn bytes(&self, namespace: &str) -> u64 {
        let account = self.accounts.get(namespace).filter(|_| namespace != OPERATOR);
        account.map_or(0, |account| account.bytes)
    }

    /// The next record of a namespace that waits.
    fn next(&mut self, namespace: &str) -> Option<usize> {
        let account = self.accounts.get_mut(namespace)?;
        std::iter::from_fn(|| account.candidates.pop())
            .find(|place| self.candidates.get(*place).is_some_and(|candidate| !candidate.is_taken))
    }

    /// Takes an item, and with a server what guests have in it; the bytes of all.
    fn take(&mut self, place: usize) -> Option<(Item, u64)> {
        let candidate = self.candidates.get_mut(place)?;
        if std::mem::replace(&mut candidate.is_taken, true) {
            return None;
        }
        let (item, mut bytes) = (candidate.item.clone(), candidate.bytes);
        for namespace in &candidate.owner.namespaces {
            if let Some(account) = self.accounts.get_mut(namespace) {
                account.bytes -= bytes;
            }
        }
        if item.is_record(RuleRecords::is_kind) {
            if let Some(copies) = self.copies.remove(&item.record) {
                bytes += copies.bytes();
                for namespace in &copies.causes {
                    if let Some(account) = self.accounts.get_mut(namespace) {
                        account.bytes -= copies.bytes();
                    }
                }
            }
            for guest in self.guests.remove(&item.record).unwrap_or_default() {
                bytes += self.take(guest).map_or(0, |(_, bytes)| bytes);
            }
        }
        Some((item, bytes))
    }

    /// The bytes of each namespace.
    pub fn totals(&self) -> impl Iterator<Item = (&'l str, u64)> {
        let all = self.accounts.iter().filter(|(namespace, _)| **namespace != OPERATOR);
        all.map(|(namespace, account)| (*namespace, account.bytes))
    }

    /// Whether another namespace has more than each that needs an item of so many bytes would have with it, so that none
    /// of these has to wait.
    pub fn is_turn_of_others(&self, item: &Item, bytes: u64) -> bool {
        let owner = match &item.guest {
            Some(guest) => vec![guest.as_str()],
            None => self.owners.get(item.record.kind, &item.record.key).namespaces,
        };
        let most = owner.iter().map(|namespace| self.bytes(namespace)).max().unwrap_or(0) + bytes;
        self.totals().any(|(namespace, bytes)| bytes > most && !owner.contains(&namespace))
    }

    /// Takes the items that are beyond `limit` bytes of their namespaces, each with its namespace. What several
    /// need waits only where it is beyond the limit of all of them.
    pub fn take_beyond(&mut self, limit: u64) -> BTreeMap<Item, String> {
        let namespaces: Vec<&str> = self.totals().map(|(namespace, _)| namespace).collect();
        let mut all = BTreeMap::new();
        for turn in [Turn::Own, Turn::Endpoints, Turn::Shared] {
            for namespace in &namespaces {
                let account = self.accounts.get(namespace).filter(|account| account.bytes > limit);
                let places = account.map(|account| account.candidates.clone()).unwrap_or_default();
                for place in places.into_iter().rev() {
                    if self.bytes(namespace) <= limit {
                        break;
                    }
                    if self.candidates.get(place).is_some_and(|c| self.is_beyond(c, turn, limit))
                        && let Some((item, _)) = self.take(place)
                    {
                        all.insert(item, (*namespace).to_owned());
                    }
                }
            }
        }
        all
    }

    fn is_beyond(&self, candidate: &Candidate<'l>, turn: Turn, limit: u64) -> bool {
        let is_left = candidate.turn == turn && !candidate.is_taken;
        let mut namespaces = candidate.owner.namespaces.iter();
        is_left && namespaces.all(|namespace| self.bytes(namespace) > limit)
    }
}

/// Everything that may wait, in no order.
fn candidates<'l>(
    owners: &Owners<'l>,
    withheld: &Withheld,
    sizes: &'l Sizes,
    copies: &BTreeMap<RecordRef, Copies<'l>>,
) -> Vec<Candidate<'l>> {
    let mut all = Vec::new();
    for (record, size) in sizes.records() {
        let kind = record.kind;
        let owner = owners.get(kind, &record.key);
        let item = Item::from(record.clone());
        let copies = copies.get(record);
        let mut bytes = size.bytes + OVERHEAD;
        if RuleRecords::is_kind(kind) {
            let of_owner = owner.namespaces.first().copied().unwrap_or(OPERATOR);
            for (namespace, of_guest) in size.guests(of_owner) {
                bytes = bytes.saturating_sub(of_guest);
                let guest = Item::of_guest(record.clone(), namespace);
                if !withheld.contains(&item) && !withheld.contains(&guest) {
                    let owner = Owner { namespaces: vec![namespace], created: owner.created };
                    let copied = copies.and_then(|copies| copies.of_guests.get(namespace));
                    let bytes = of_guest.saturating_sub(copied.copied().unwrap_or(0));
                    let (turn, item) = (Turn::Own, guest);
                    all.push(Candidate { turn, bytes, item, owner, is_taken: false });
                }
            }
        }
        bytes = bytes.saturating_sub(copies.map_or(0, |copies| copies.bytes_of_record));
        let mut turn = turn(kind, &owner);
        if withheld.contains(&item) {
            if withheld.is_absent(record) || !(has_closed_form(kind) || keeps_old(kind)) {
                continue;
            }
            (turn, bytes) = (Turn::Last, record.key.len() as u64 + CLOSED + OVERHEAD);
        }
        all.push(Candidate { turn, bytes, item, owner, is_taken: false });
    }
    all
}

fn turn(kind: Kind, owner: &Owner<'_>) -> Turn {
    match kind {
        // Their absence would have a host served without TLS of its own, or by somebody else.
        Kind::Name | Kind::Passthrough | Kind::Port | Kind::Settings | Kind::General => Turn::Last,
        _ if owner.namespaces.len() > 1 => Turn::Shared,
        Kind::Endpoints => Turn::Endpoints,
        Kind::Server
        | Kind::Listener
        | Kind::Session
        | Kind::Backend
        | Kind::Certificate
        | Kind::Policies
        | Kind::Tls
        | Kind::Bundle => Turn::Own,
    }
}

fn has_closed_form(kind: Kind) -> bool {
    Operations::of_kind(kind).is_some_and(|table| (table.has_closed_form)())
}

/// Which items wait, so that at least `deficit` bytes are not needed; with their sizes. `removals_only`: those whose
/// place is taken by nothing, which needs no room.
pub fn choose(
    view: &View<'_>,
    withheld: &Withheld,
    sizes: &Sizes,
    deficit: u64,
    removals_only: bool,
) -> Vec<(Item, u64)> {
    asking_once(view, |view| {
        let mut ledger = Ledger::of(view, withheld, sizes);
        choose_of(&mut ledger, deficit, removals_only)
    })
}

fn choose_of(ledger: &mut Ledger<'_>, deficit: u64, removals_only: bool) -> Vec<(Item, u64)> {
    let mut heap: BinaryHeap<(u64, &str)> =
        ledger.accounts.keys().map(|namespace| (ledger.bytes(namespace), *namespace)).collect();
    let (mut chosen, mut spared) = (Vec::new(), 0);
    while spared < deficit {
        let Some((bytes, namespace)) = heap.pop() else { break };
        let now = ledger.bytes(namespace);
        if now != bytes {
            // A shared record went meanwhile.
            heap.push((now, namespace));
            continue;
        }
        let Some(place) = ledger.next(namespace) else { continue };
        let is_fit = |candidate: &Candidate<'_>| {
            !removals_only
                || candidate.turn != Turn::Last && candidate.item.is_record(|k| !has_closed_form(k))
        };
        if ledger.candidates.get(place).is_some_and(is_fit)
            && let Some((item, bytes)) = ledger.take(place)
        {
            spared += bytes;
            chosen.push((item, bytes));
        }
        heap.push((ledger.bytes(namespace), namespace));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostOwner, OwnedHost};
    use oxigress_core::model::Snapshot;
    use oxigress_core::model::policy::PolicyId;

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

    fn chosen(rules: &[usize], deficit: u64, has_ages: bool) -> Vec<String> {
        let snapshot = snapshot(rules);
        // a0 is the oldest host.
        let owner = |place: OwnedHost<'_>| {
            let host = place.host();
            let namespace = if host.as_str().starts_with('a') { "a" } else { "b" };
            let age = i64::from(host.as_str().as_bytes()[1]);
            Some(HostOwner { namespace, created: if has_ages { age } else { 0 } })
        };
        let view = View { snapshot: &snapshot, owner: &owner };
        let sizes = Sizes::of(&snapshot);
        let all = choose(&view, &Withheld::default(), &sizes, deficit, false);
        all.into_iter().map(|(item, _)| item.record.key).collect()
    }

    #[test]
    fn the_newest_or_largest_record_of_the_largest_namespace_waits() {
        assert_eq!(chosen(&[2, 9, 3], 1, false), ["a1.test"]);
        assert_eq!(chosen(&[2, 9, 3], 1, true), ["a2.test"]);
        assert_eq!(chosen(&[], 1, true), ["b.test"]);
    }

    #[test]
    fn a_small_namespace_waits_last() {
        let all = chosen(&[2, 9, 3], u64::MAX, true);
        assert_eq!(all, ["a2.test", "a1.test", "a0.test", "b.test"]);
    }

    #[test]
    fn what_several_namespaces_need_waits_last() {
        let mut snapshot = snapshot(&[1, 1]);
        let id = PolicyId::parse("p").unwrap();
        let large = serde_json::json!({"upstream_host": "x".repeat(4_000)});
        snapshot.policies.insert(id.clone(), serde_json::from_value(large).unwrap());
        for server in snapshot.servers.values_mut() {
            server.rules.iter_mut().for_each(|rule| rule.policies = Some(id.clone()));
        }
        let view = View { snapshot: &snapshot, owner: &|_| None };
        let sizes = Sizes::of(&snapshot);
        let all = choose(&view, &Withheld::default(), &sizes, u64::MAX, false);
        let keys: Vec<_> = all.iter().map(|(item, _)| item.record.key.as_str()).collect();
        assert_eq!(keys, ["a1.test", "a0.test", "b.test", "p"]);
        let removals = choose(&view, &Withheld::default(), &sizes, 1, true);
        assert_eq!(
            removals.iter().map(|(item, _)| item.record.key.as_str()).collect::<Vec<_>>(),
            ["p"]
        );
    }
}
