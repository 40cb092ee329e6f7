//! Records that nginx does not get: it refused them, or its zone has no room for them.
//!
//! A withheld record never opens anything: what is sent in its place closes it ([`Record::closed`]), or its absence does.
//! Where even the closed form is refused, the host is removed. Rules of a guest that nginx refused answer 503; those that even so
//! are refused, or have no room, are absent from the server.
//!
//! [`Record::closed`]: oxigress_core::record::table::Record::closed

use super::item::{self, Fate, Item};
use oxigress_core::model::{Snapshot, shorten};
use oxigress_core::record::table::{Kind, Operations, RecordRef, TABLES};
use oxigress_core::wire::native::{Patch, Status};
use std::collections::{BTreeMap, BTreeSet};

/// Why a record is withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// nginx refused it, and said this.
    Refused(String),
    /// The zone has no room for it.
    NoRoom {
        /// What it takes in the zone, about.
        bytes: u64,
    },
    /// Its namespace has more than it may have.
    OverQuota {
        /// The name of the namespace.
        namespace: String,
        /// Bytes that it may have.
        limit: u64,
    },
}

/// The zone when it last had no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that the zone has for records.
    pub capacity: u64,
    /// Bytes of the zone that were free.
    pub free: u64,
}

/// All records that are withheld, with the reasons.
#[derive(Debug, Default)]
pub struct Withheld {
    reasons: BTreeMap<Item, Reason>,
    /// Those whose closed form was refused too, or was never sent.
    absent: BTreeSet<Item>,
    /// Hosts without their TLS policies, and why.
    removals: Vec<(String, Reason)>,
    /// Told by the last refusal.
    full_at: Option<Room>,
    /// Bytes that records without room may take now.
    has_room: Option<u64>,
    is_new: bool,
}

impl Withheld {
    /// Withholds an item; a record that is withheld already loses its closed form. False: nothing of it was sent.
    pub fn insert(&mut self, item: Item, reason: Reason) -> bool {
        if self.reasons.contains_key(&item) {
            return self.remove(item);
        }
        self.reasons.insert(item, reason);
        self.is_new = true;
        true
    }

    /// Takes an item away that nginx may have. False: nothing of it was there.
    pub fn evict(&mut self, item: Item, reason: Reason) -> bool {
        if self.reasons.contains_key(&item) && matches!(reason, Reason::NoRoom { .. }) {
            return self.remove(item);
        }
        if item.is_record(keeps_old) {
            self.absent.insert(item.clone());
        }
        self.reasons.insert(item, reason);
        self.is_new = true;
        true
    }

    /// The zone had no more room than this.
    pub fn set_full(&mut self, room: Room) {
        self.full_at = Some(room);
        self.has_room = None;
    }

    /// An item is no longer withheld.
    pub fn release(&mut self, item: &Item) {
        self.is_new |= self.reasons.remove(item).is_some();
        self.absent.remove(item);
    }

    /// Whether the item is withheld.
    pub fn contains(&self, item: &Item) -> bool {
        self.reasons.contains_key(item)
    }

    /// The guests whose rules are absent from a server.
    pub fn guests_of(&self, server: &RecordRef) -> BTreeSet<&str> {
        let all = self.reasons.range(Item::from(server.clone())..);
        let own = all.map(|(item, _)| item).take_while(|item| item.record == *server);
        let absent = own.filter(|item| self.fate_of(item) == Fate::Absent);
        absent.filter_map(|item| item.guest.as_deref()).collect()
    }

    /// Whether nothing stands in the place of a withheld record.
    pub fn is_absent(&self, record: &RecordRef) -> bool {
        self.absent.contains(&Item::from(record.clone()))
    }

    /// What becomes of the withheld rules of a guest.
    fn fate_of(&self, item: &Item) -> Fate {
        match self.reasons.get(item) {
            Some(Reason::Refused(_)) if !self.absent.contains(item) => Fate::Closed,
            _ => Fate::Absent,
        }
    }

    /// Whether all that the delta writes is withheld.
    pub fn has_all(&self, patch: &Patch) -> bool {
        let mut written = Vec::new();
        TABLES.iter().for_each(|table| (table.keys)(patch, &mut written));
        patch.upsert.settings.is_none()
            && written.into_iter().all(|record| self.contains(&record.into()))
    }

    /// The items that are beyond what their namespaces may have.
    pub fn over_quota(&self) -> Vec<Item> {
        self.reasons.keys().filter(|item| self.is_over_quota(item)).cloned().collect()
    }

    /// Whether it is one of them.
    pub fn is_over_quota(&self, item: &Item) -> bool {
        matches!(self.reasons.get(item), Some(Reason::OverQuota { .. }))
    }

    fn remove(&mut self, item: Item) -> bool {
        if item.guest.is_some() && self.fate_of(&item) == Fate::Absent {
            return false;
        }
        if item.guest.is_none()
            && item.record.kind == Kind::Tls
            && let Some(reason) = self.reasons.get(&item)
        {
            // Without its policy the host must not be served at all.
            self.removals.push((item.record.key.clone(), reason.clone()));
        }
        self.absent.insert(item)
    }

    /// Records that have to go though nothing was said about them: all that serve a host without its TLS policy.
    pub fn take_removals(&mut self, snapshot: &Snapshot) -> Patch {
        let mut patch = Patch::default();
        for (host, reason) in std::mem::take(&mut self.removals) {
            let listeners = snapshot.listener_servers.keys().filter(|at| at.host.as_str() == host);
            let listeners = listeners.map(|at| (Kind::Listener, at.to_string()));
            for (kind, key) in listeners.chain([(Kind::Server, host.clone())]) {
                Operations::of_kind(kind).map(|table| (table.remove)(&mut patch, &key));
                let record = RecordRef { kind, key };
                self.reasons.insert(record.clone().into(), reason.clone());
                self.absent.insert(record.into());
            }
        }
        patch
    }

    /// A record that changes gets another chance.
    pub fn forget_changed(&mut self, patch: &Patch) {
        let before = self.reasons.len();
        self.reasons.retain(|item, _| !touches(patch, &item.record));
        self.absent.retain(|item| self.reasons.contains_key(item));
        self.is_new |= self.reasons.len() != before;
    }

    /// Takes what is withheld out of a delta.
    pub fn apply(&self, patch: &mut Patch) {
        let is_touched = |item: &&Item| touches(patch, &item.record);
        let touched: Vec<_> = self.reasons.keys().filter(is_touched).collect();
        for item in touched {
            let record = &item.record;
            if let Some(guest) = &item.guest {
                item::withhold_rules(patch, record, guest, self.fate_of(item));
                continue;
            }
            let Some(table) = Operations::of_kind(record.kind) else {
                patch.upsert.settings = None;
                continue;
            };
            if self.absent.contains(item) {
                (table.remove)(patch, &record.key);
            } else if self.keeps_old(item) {
                (table.shift)(patch, &mut Patch::default(), &record.key);
            } else {
                (table.withhold)(patch, &record.key);
            }
        }
    }

    fn keeps_old(&self, item: &Item) -> bool {
        let has_no_room = matches!(self.reasons.get(item), Some(Reason::NoRoom { .. }));
        has_no_room && item.is_record(keeps_old)
    }

    /// Notes what nginx says of its zone: whether it has grown or was freed since it was full.
    pub fn status_received(&mut self, status: &Status) {
        let now = Room { capacity: status.capacity_bytes, free: status.free_bytes };
        let Some(smallest) = self.without_room().map(|(bytes, _)| bytes).min() else { return };
        match self.full_at {
            None => self.full_at = Some(now),
            Some(then) if now.capacity > then.capacity || now.free > then.free + smallest => {
                self.has_room = Some(now.free - now.free / 8);
                self.full_at = Some(now);
            }
            Some(_) => {}
        }
    }

    /// There is room for a record that had none.
    pub fn wants_room(&self) -> bool {
        self.has_room.is_some()
    }

    /// Records that fit into the zone by now, to be sent as the snapshot has them; endpoints first, then the smallest.
    pub fn take_fitting(&mut self, snapshot: &Snapshot) -> Patch {
        let mut patch = Patch::default();
        let Some(mut room) = self.has_room.take() else { return patch };
        let all = self.without_room();
        let mut all: Vec<_> = all
            .map(|(bytes, item)| (item.record.kind != Kind::Endpoints, bytes, item.clone()))
            .collect();
        all.sort();
        for (_, bytes, item) in all {
            if bytes > room {
                continue;
            }
            room -= bytes;
            if let Some(full) = &mut self.full_at {
                full.free = full.free.saturating_sub(bytes);
            }
            self.release(&item);
            if let Some(table) = Operations::of_kind(item.record.kind) {
                // What the snapshot no longer has was removed in the meantime.
                (table.restore)(snapshot, &mut patch, &item.record.key);
            }
        }
        patch
    }

    fn without_room(&self) -> impl Iterator<Item = (u64, &Item)> {
        self.reasons.iter().filter_map(|(item, reason)| match reason {
            Reason::NoRoom { bytes } => Some((*bytes, item)),
            Reason::Refused(_) | Reason::OverQuota { .. } => None,
        })
    }

    /// How many items are withheld.
    pub fn len(&self) -> usize {
        self.reasons.len()
    }

    /// What is withheld and why, if that has changed since this was last asked.
    pub fn take_news(&mut self) -> Option<BTreeMap<Item, Reason>> {
        std::mem::take(&mut self.is_new).then(|| self.reasons.clone())
    }
}

/// Whether the delta writes or removes the record.
pub fn touches(patch: &Patch, record: &RecordRef) -> bool {
    match Operations::of_kind(record.kind) {
        Some(table) => (table.touches)(patch, &record.key),
        None => record.kind == Kind::Settings && patch.upsert.settings.is_some(),
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Refused(error) => write!(f, "nginx refused it: {}", shorten(error)),
            Reason::NoRoom { bytes } => write!(
                f,
                "the shared memory has no room for its {bytes} bytes: raise --zone-size-max or use fewer objects"
            ),
            Reason::OverQuota { namespace, limit } => write!(
                f,
                "namespace {namespace} has more than {limit} bytes of the shared memory: remove objects of it or \
                 raise --namespace-bytes-max"
            ),
        }
    }
}

/// What has no room and protects nothing stays as nginx has it: old endpoints are better than none.
pub fn keeps_old(kind: Kind) -> bool {
    matches!(kind, Kind::Endpoints | Kind::Certificate)
}
