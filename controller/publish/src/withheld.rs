//! Records that nginx does not get: it refused them, or its zone has no room for them.
//!
//! A withheld record never opens anything: what is sent in its place closes it ([`Record::closed`]), or its absence does.
//! Where even the closed form is refused, the host is removed. Rules of a guest that nginx refused answer 503; those that even so
//! are refused, or have no room, are absent from the server.
//!
//! [`Record::closed`]: oxigress_core::record::table::Record::closed

use super::item::{self, Fate, Item};
use oxigress_core::model::{Snapshot, shorten};
use oxigress_core::record::table::{Kind, Operations, RecordRef};
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

impl Room {
    /// The free bytes that are tried: some of them may be in pieces, or taken meanwhile.
    fn usable(self) -> u64 {
        self.free - self.free / 8
    }
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
    /// Those without room that have changed since they were measured.
    changed: BTreeSet<Item>,
    /// Those without room that are tried again, whatever room there is.
    retried: BTreeSet<Item>,
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
        self.changed.remove(item);
        self.retried.remove(item);
    }

    /// Whether the item is withheld.
    pub fn contains(&self, item: &Item) -> bool {
        self.reasons.contains_key(item)
    }

    /// The guests whose rules are absent from a server.
    pub fn guests_of(&self, server: &RecordRef) -> BTreeSet<&str> {
        let own = self.items_of(server);
        let absent = own.filter(|item| self.fate_of(item) == Fate::Absent);
        absent.filter_map(|item| item.guest.as_deref()).collect()
    }

    /// What is withheld of a record.
    fn items_of(&self, record: &RecordRef) -> impl Iterator<Item = &Item> {
        let all = self.reasons.range(Item::from(record.clone())..);
        all.map(|(item, _)| item).take_while(move |item| item.record == *record)
    }

    /// What is withheld of some records, however much of others is.
    fn items_of_all(&self, records: Vec<RecordRef>) -> Vec<Item> {
        records.iter().flat_map(|record| self.items_of(record)).cloned().collect()
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
        patch.upsert.settings.is_none()
            && item::written(patch).into_iter().all(|record| self.contains(&record.into()))
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

    /// What was refused gets another chance when it changes, and what is gone is no longer withheld. What lacks room still
    /// does, and nothing of it is sent. True: some of it is beyond the limit of its namespace.
    pub fn note_changed(&mut self, patch: &mut Patch) -> bool {
        if self.reasons.is_empty() {
            return false;
        }
        for item in self.items_of_all(item::removed(patch)) {
            self.release(&item);
        }
        let mut is_over_quota = false;
        for item in self.items_of_all(written(patch)) {
            match self.reasons.get(&item) {
                // It is counted anew before it is sent.
                Some(Reason::OverQuota { .. }) => is_over_quota = true,
                Some(Reason::NoRoom { .. }) => {
                    if item.guest.is_none()
                        && let Some(table) = Operations::of_kind(item.record.kind)
                    {
                        (table.shift)(patch, &mut Patch::default(), &item.record.key);
                    }
                    self.changed.insert(item);
                }
                Some(Reason::Refused(_)) | None => self.release(&item),
            }
        }
        is_over_quota
    }

    /// Takes what is withheld out of a delta.
    pub fn apply(&self, patch: &mut Patch) {
        if self.reasons.is_empty() {
            return;
        }
        for item in self.items_of_all(written(patch)) {
            let record = &item.record;
            if let Some(guest) = &item.guest {
                item::withhold_rules(patch, record, guest, self.fate_of(&item));
                continue;
            }
            let Some(table) = Operations::of_kind(record.kind) else {
                patch.upsert.settings = None;
                continue;
            };
            if self.absent.contains(&item) {
                (table.remove)(patch, &record.key);
            } else if self.keeps_old(&item) {
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
        // What seemed to fit when nginx refused it needs its own bytes more; what did not is tried as soon as it fits.
        let fits = |room: Room| smallest <= room.usable();
        match self.full_at {
            None => self.full_at = Some(now),
            Some(then)
                if now.capacity > then.capacity
                    || now.free > then.free + smallest
                    || fits(now) && !fits(then) =>
            {
                self.has_room = Some(now.usable());
                self.full_at = Some(now);
            }
            Some(_) => {}
        }
    }

    /// What has changed of what has no room, if that was not asked for since.
    pub fn take_changed(&mut self) -> Vec<Item> {
        let all = std::mem::take(&mut self.changed).into_iter();
        all.filter(|item| matches!(self.reasons.get(item), Some(Reason::NoRoom { .. }))).collect()
    }

    /// What an item without room takes by now, and whether it is tried again.
    pub fn set_bytes(&mut self, item: Item, bytes: u64, is_retried: bool) {
        if let Some(reason) = self.reasons.get_mut(&item) {
            *reason = Reason::NoRoom { bytes };
        }
        if is_retried {
            self.retried.insert(item);
        }
    }

    /// Whether nginx still has an older form of the record.
    pub fn has_old(&self, item: &Item) -> bool {
        item.is_record(keeps_old) && !self.is_absent(&item.record)
    }

    /// Something has no room.
    pub fn lacks_room(&self) -> bool {
        self.without_room().next().is_some()
    }

    /// There is room for a record that had none, or it is tried again.
    pub fn wants_room(&self) -> bool {
        self.has_room.is_some() || !self.retried.is_empty()
    }

    /// Items that are no longer withheld: those that are tried again, and those that fit into the zone by now, endpoints first,
    /// then those of the oldest hosts.
    pub fn take_fitting(&mut self, age_of: impl Fn(&Item) -> i64) -> Vec<Item> {
        let mut retried = std::mem::take(&mut self.retried);
        // One that its namespace's limit keeps out since is not.
        retried.retain(|item| matches!(self.reasons.get(item), Some(Reason::NoRoom { .. })));
        let mut fitting: Vec<Item> = retried.iter().cloned().collect();
        let booked: u64 =
            self.without_room().filter(|(_, i)| retried.contains(i)).map(|of| of.0).sum();
        if let Some(full) = &mut self.full_at {
            full.free = full.free.saturating_sub(booked);
        }
        if let Some(room) = self.has_room.take() {
            let mut room = room.saturating_sub(booked);
            let others = self.without_room().filter(|(_, item)| !retried.contains(item));
            let order = |(bytes, item): (u64, &Item)| {
                (item.record.kind != Kind::Endpoints, age_of(item), bytes, item.clone())
            };
            let mut others: Vec<_> = others.map(order).collect();
            others.sort();
            for (.., bytes, item) in others {
                if bytes > room {
                    continue;
                }
                room -= bytes;
                if let Some(full) = &mut self.full_at {
                    full.free = full.free.saturating_sub(bytes);
                }
                fitting.push(item);
            }
        }
        fitting.iter().for_each(|item| self.release(item));
        fitting
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

/// What the delta writes.
fn written(patch: &Patch) -> Vec<RecordRef> {
    let mut all = item::written(patch);
    if patch.upsert.settings.is_some() {
        all.push(RecordRef { kind: Kind::Settings, key: String::new() });
    }
    all
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
