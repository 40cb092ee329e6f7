//! Which writes are short enough for the event loop.
//!
//! A body of 64 KiB may name 3,000 records, ask for a backend's 10,000 endpoints to be written anew, or end a snapshot that
//! was sent in parts, for which every live record is looked at. What is too long is given up before anything was
//! written, and done again by a thread.
//!
//! Units: of work, not of time, so that a fast machine takes the same way as a slow one.

use crate::zone::ZoneLock;
use oxigress_core::record::{Change, Kind};
use oxigress_store::{Store, Transaction};
use std::cell::Cell;

/// Looking at more records than this takes more than a tenth of a millisecond.
pub const MANY_RECORDS: u64 = 1_000;
/// Records that are written or removed: each takes about three microseconds.
const MAX_CHANGES: usize = 200;
/// Bytes of live records that are read and written anew.
const MAX_LIVE_BYTES: usize = 128 * 1024;
/// Free room beside twice what is written. A write that finds no room is undone, for which every record is looked at.
const MIN_FREE_BYTES: usize = 256 * 1024;

/// What a write may still do.
pub struct Effort {
    is_unlimited: bool,
    is_exceeded: Cell<bool>,
    live_bytes: Cell<usize>,
}

impl Effort {
    /// For a write that reads so many records to find those that it replaces; unlimited on a thread.
    pub fn new(is_thread: bool, records_read: u64) -> Self {
        Effort {
            is_unlimited: is_thread,
            is_exceeded: Cell::new(records_read > MANY_RECORDS),
            live_bytes: Cell::new(0),
        }
    }

    /// Whether a live record of so many bytes may be read.
    pub fn allows(&self, bytes: usize) -> bool {
        let all = self.live_bytes.get().saturating_add(bytes);
        self.live_bytes.set(all);
        if all > MAX_LIVE_BYTES {
            self.is_exceeded.set(true);
        }
        self.is_unlimited || !self.is_exceeded.get()
    }

    /// Whether these changes may be made, and all that was read before was allowed.
    pub fn is_enough_for(
        &self,
        changes: &[Change],
        transaction: &Transaction<'_, ZoneLock>,
    ) -> bool {
        let has_room = || {
            let needed = bytes_needed(changes, transaction).saturating_mul(2);
            transaction.space().free_bytes >= needed.saturating_add(MIN_FREE_BYTES)
        };
        self.is_unlimited
            || !self.is_exceeded.get()
                && changes.len() <= MAX_CHANGES
                && has_room()
                && !changes.iter().any(|change| is_for_openssl(change, transaction))
    }
}

/// How many records are live.
pub fn records(store: &Store) -> u64 {
    store.live().counts.iter().map(|count| u64::from(*count)).sum()
}

/// OpenSSL has to read it: a tenth of a millisecond for each certificate, key or list of ciphers.
fn is_for_openssl(change: &Change, transaction: &Transaction<'_, ZoneLock>) -> bool {
    let is_for_openssl = match change.kind {
        Kind::Bundle | Kind::Certificate | Kind::Tls | Kind::Policies => true,
        Kind::Server
        | Kind::Listener
        | Kind::Backend
        | Kind::Endpoints
        | Kind::Name
        | Kind::Passthrough
        | Kind::Port
        | Kind::Session
        | Kind::Settings
        | Kind::General => false,
    };
    is_for_openssl && new_value(change, transaction).is_some()
}

/// What a change upserts, unless it is live already.
pub fn new_value<'c>(
    change: &'c Change,
    transaction: &Transaction<'_, ZoneLock>,
) -> Option<&'c Vec<u8>> {
    let live = transaction.get(change.kind as u8, &change.key);
    change.value.as_ref().filter(|value| live.is_none_or(|live| live.value() != *value))
}

/// Bytes of the records among `changes` that are not live already.
pub fn bytes_needed(changes: &[Change], transaction: &Transaction<'_, ZoneLock>) -> usize {
    let needed = changes.iter().filter_map(|Change { kind, key, value }| {
        let value = value.as_ref()?;
        let is_live = |value| transaction.get(*kind as u8, key).is_some_and(|r| r.value() == value);
        (!is_live(value)).then(|| Transaction::<ZoneLock>::bytes_needed(key, value))
    });
    needed.sum()
}
