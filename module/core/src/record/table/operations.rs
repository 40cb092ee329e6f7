//! What can be done with a table of any kind.

use super::{Keys, Kind, Snapshot, TABLES, Table};
use crate::record::Change;
use crate::record::definition::{Checks, Fault};
use crate::wire::native::Patch;
use crate::wire::{DecodeError, decode_record};
use std::fmt;

/// A record of a snapshot or a delta.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordRef {
    /// The kind, which determines the table.
    pub kind: Kind,
    /// The key as text; empty for settings.
    pub key: String,
}

impl fmt::Display for RecordRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Operations::of_kind(self.kind).map_or(self.kind.label(), |table| table.name);
        match self.key.as_str() {
            "" => f.write_str(name),
            key => write!(f, "{name} {key}"),
        }
    }
}

impl RecordRef {
    /// The record that a JSON pointer into a request leads to; `within` is `snapshot` or `upsert`.
    pub fn at(pointer: &str, within: &str) -> Option<RecordRef> {
        let mut steps = pointer.strip_prefix('/')?.split('/');
        if steps.next()? != within {
            return None;
        }
        let name = steps.next()?;
        if name == Kind::Settings.label() {
            return Some(RecordRef { kind: Kind::Settings, key: String::new() });
        }
        let kind = TABLES.iter().find(|table| table.name == name)?.kind;
        let key = steps.next()?.replace("~1", "/").replace("~0", "~");
        Some(RecordRef { kind, key })
    }
}

/// A check of a record's key and bytes.
pub type Validate = fn(&[u8], &[u8], &dyn Checks) -> Result<(), Fault>;

/// The operations on one table. Functions that take a key as text return false, or do nothing, if it is not a key of the
/// table's type.
pub struct Operations {
    /// The kind of the table's records.
    pub kind: Kind,
    /// The name of the table in JSON.
    pub name: &'static str,
    /// Adds to the delta the changes that turn the first snapshot's table into the second one's.
    pub difference: fn(&Snapshot, &Snapshot, &mut Patch),
    /// Applies the delta's changes to the snapshot, as the module does to its store, and removes them from the delta.
    pub apply: fn(&mut Patch, &mut Snapshot),
    /// Moves the snapshot's table to the upserts of the delta.
    pub take: fn(&mut Snapshot, &mut Patch),
    /// Moves the upserts of the delta to the snapshot's table.
    pub put_back: fn(&mut Patch, &mut Snapshot),
    /// The first key that is both upserted and removed.
    pub contradiction: fn(&Patch) -> Option<String>,
    /// Moves the second delta's changes to the first one, which then does what both do one after the other.
    pub follow: fn(&mut Patch, &mut Patch),
    /// The numbers of records written and removed.
    pub count: fn(&Patch) -> (usize, usize),
    /// Adds the records written, except for those that are encoded with others.
    pub encode: fn(&Patch, &mut Vec<Change>),
    /// Adds the removals of the delta's records.
    pub removals: fn(&Patch, &mut Vec<Change>),
    /// Adds the keys of the records written.
    pub keys: fn(&Patch, &mut Vec<RecordRef>),
    /// Adds the keys of a snapshot.
    pub all_keys: fn(&Snapshot, &mut Keys),
    /// Whether the snapshot has a record with this key.
    pub has: fn(&Snapshot, &str) -> bool,
    /// Adds the names of a snapshot's records.
    pub records: fn(&Snapshot, &mut Vec<RecordRef>),
    /// The bytes of a record's key and value; `None`: there is no such record, or it is encoded with others.
    pub size: fn(&Snapshot, &str) -> Option<usize>,
    /// Whether a withheld record is replaced by a closed one, rather than left out.
    pub has_closed_form: fn() -> bool,
    /// Decodes a single record, to find the fault in it.
    pub decode: fn(&str, &serde_json::Value) -> Result<(), DecodeError>,
    /// Checks the key and the bytes of a record beyond its types.
    pub validate: Validate,
    /// Whether the delta writes or removes the record with this key.
    pub touches: fn(&Patch, &str) -> bool,
    /// Replaces the record in the delta by its closed form, or by its removal.
    pub withhold: fn(&mut Patch, &str) -> bool,
    /// Removes the record, even if the delta writes it.
    pub remove: fn(&mut Patch, &str) -> bool,
    /// Writes the record as the snapshot has it; false if the snapshot has no such record.
    pub restore: fn(&Snapshot, &mut Patch, &str) -> bool,
    /// Moves the record from the first delta's upserts to the second one's.
    pub shift: fn(&mut Patch, &mut Patch, &str),
    /// Moves all removals from the first delta to the second one.
    pub shift_removals: fn(&mut Patch, &mut Patch),
}

impl Operations {
    pub(super) const fn of<T: Table>() -> Self {
        Operations {
            kind: T::KIND,
            name: T::NAME,
            difference: difference::<T>,
            apply: apply::<T>,
            take: |snapshot, patch| *T::changes(patch).0 = std::mem::take(T::of_mut(snapshot)),
            put_back: |patch, snapshot| *T::of_mut(snapshot) = std::mem::take(T::changes(patch).0),
            contradiction: contradiction::<T>,
            follow: follow::<T>,
            count: |patch| (T::upserts(patch).len(), T::removals(patch).len()),
            encode: encode::<T>,
            removals: |patch, all| {
                let keys = T::removals(patch).iter();
                all.extend(keys.map(|key| Change::remove(T::KIND, key.to_string())));
            },
            keys: |patch, all| {
                let keys = T::upserts(patch).keys();
                all.extend(keys.map(|key| RecordRef { kind: T::KIND, key: key.to_string() }));
            },
            all_keys: all_keys::<T>,
            has: |snapshot, key| {
                parsed::<T>(key).is_some_and(|key| T::of(snapshot).contains_key(&key))
            },
            records: |snapshot, all| {
                let keys = T::of(snapshot).keys();
                all.extend(keys.map(|key| RecordRef { kind: T::KIND, key: key.to_string() }));
            },
            size: |snapshot, text| {
                let key = parsed::<T>(text)?;
                Some(text.len() + T::encode(&key, T::of(snapshot).get(&key)?)?.len())
            },
            has_closed_form: || T::closed().is_some(),
            decode: decode_record::<T::Key, T::Value>,
            validate: T::validate,
            touches: touches::<T>,
            withhold: withhold::<T>,
            remove: remove::<T>,
            restore: restore::<T>,
            shift: shift::<T>,
            shift_removals: |from, to| T::changes(to).1.append(T::changes(from).1),
        }
    }

    /// The table of a kind; `None` for the kinds without a table.
    pub fn of_kind(kind: Kind) -> Option<&'static Operations> {
        TABLES.iter().find(|table| table.kind == kind)
    }
}

fn difference<T: Table>(old: &Snapshot, new: &Snapshot, patch: &mut Patch) {
    let (old, new) = (T::of(old), T::of(new));
    let (upsert, remove) = T::changes(patch);
    let changed = new.iter().filter(|&(key, value)| old.get(key) != Some(value));
    upsert.extend(changed.map(|(key, value)| (key.clone(), value.clone())));
    remove.extend(old.keys().filter(|&key| !new.contains_key(key)).cloned());
}

fn apply<T: Table>(patch: &mut Patch, snapshot: &mut Snapshot) {
    let (upsert, remove) = T::changes(patch);
    let all = T::of_mut(snapshot);
    all.append(upsert);
    for key in std::mem::take(remove) {
        all.remove(&key);
    }
}

fn contradiction<T: Table>(patch: &Patch) -> Option<String> {
    let upserts = T::upserts(patch);
    T::removals(patch).iter().find(|key| upserts.contains_key(key)).map(T::Key::to_string)
}

fn follow<T: Table>(first: &mut Patch, later: &mut Patch) {
    let (upsert, remove) = T::changes(first);
    let (more, fewer) = T::changes(later);
    for key in fewer.iter() {
        upsert.remove(key);
    }
    for key in more.keys() {
        remove.remove(key);
    }
    upsert.append(more);
    remove.append(fewer);
}

fn encode<T: Table>(patch: &Patch, all: &mut Vec<Change>) {
    for (key, value) in T::upserts(patch) {
        if let Some(bytes) = T::encode(key, value) {
            all.push(Change::upsert(T::KIND, key.to_string(), bytes));
        }
    }
}

fn all_keys<T: Table>(snapshot: &Snapshot, all: &mut Keys) {
    // `Table` reaches the tables of `Keys` through the removals of a delta.
    let mut patch = Patch { remove: std::mem::take(all), ..Patch::default() };
    T::changes(&mut patch).1.extend(T::of(snapshot).keys().cloned());
    *all = patch.remove;
}

fn parsed<T: Table>(key: &str) -> Option<T::Key> {
    T::Key::try_from(key.to_owned()).ok()
}

fn touches<T: Table>(patch: &Patch, key: &str) -> bool {
    parsed::<T>(key).is_some_and(|key| {
        T::upserts(patch).contains_key(&key) || T::removals(patch).contains(&key)
    })
}

fn withhold<T: Table>(patch: &mut Patch, key: &str) -> bool {
    let Some(closed) = T::closed() else { return remove::<T>(patch, key) };
    let Some(key) = parsed::<T>(key) else { return false };
    let (upsert, remove) = T::changes(patch);
    remove.remove(&key);
    upsert.insert(key, closed);
    true
}

fn remove<T: Table>(patch: &mut Patch, key: &str) -> bool {
    let Some(key) = parsed::<T>(key) else { return false };
    let (upsert, remove) = T::changes(patch);
    upsert.remove(&key);
    remove.insert(key);
    true
}

fn restore<T: Table>(snapshot: &Snapshot, patch: &mut Patch, key: &str) -> bool {
    let Some(key) = parsed::<T>(key) else { return false };
    let Some(value) = T::of(snapshot).get(&key) else { return false };
    let (upsert, remove) = T::changes(patch);
    remove.remove(&key);
    upsert.insert(key, value.clone());
    true
}

fn shift<T: Table>(from: &mut Patch, to: &mut Patch, key: &str) {
    let Some(key) = parsed::<T>(key) else { return };
    if let Some(value) = T::changes(from).0.remove(&key) {
        T::changes(to).0.insert(key, value);
    }
}
