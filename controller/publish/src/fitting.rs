//! When a record gets another chance that the zone had no room for.
//!
//! An edit alone gives it none: whoever fills the zone edits as often as it likes, and a write that lacks room costs everybody
//! time. nginx's status says what room there is, and is asked for once a second. What has changed is measured
//! then, at most so often, and is tried again if it fits, or if others have more by now and would have to wait for it.

use super::Publisher;
use super::item::Item;
use super::owners::{Owners, View, asking_once};
use super::room::Ledger;
use oxigress_core::record::table::Operations;
use oxigress_core::wire::native::{Patch, Status};

impl Publisher {
    /// Something waits for room in the zone, which nginx's status tells of.
    pub fn lacks_room(&self) -> bool {
        self.withheld.lacks_room()
    }

    /// Measures what has changed of what has no room; what nothing is left of is no longer withheld.
    pub(super) fn measure_changed(&mut self, status: &Status, view: &View<'_>) {
        let changed = self.withheld.take_changed();
        if changed.is_empty() {
            return;
        }
        self.sizes.measure(view.snapshot);
        let measured = asking_once(view, |view| {
            let ledger = Ledger::of(view, &self.withheld, &self.sizes);
            let mut room = status.free_bytes - status.free_bytes / 8;
            let mut measure = |item: &Item| {
                let bytes = self.sizes.bytes_of(item)?;
                let is_fitting = bytes <= room;
                if is_fitting {
                    room -= bytes;
                }
                // The old record makes room for one that is no larger.
                let is_retried = is_fitting
                    || self.withheld.has_old(item)
                    || ledger.is_turn_of_others(item, bytes);
                Some((bytes, is_retried))
            };
            let all = changed.into_iter().map(|item| (measure(&item), item));
            all.map(|(measured, item)| (item, measured)).collect::<Vec<_>>()
        });
        for (item, measured) in measured {
            match measured {
                Some((bytes, is_retried)) => self.withheld.set_bytes(item, bytes, is_retried),
                None => self.withheld.release(&item),
            }
        }
    }

    /// Sends what fits into the zone by now as the snapshot has it.
    pub(super) fn queue_fitting(&mut self, view: &View<'_>) {
        let fitting = asking_once(view, |view| {
            let owners = Owners::of(view);
            let age_of = |item: &Item| owners.get(item.record.kind, &item.record.key).created;
            self.withheld.take_fitting(age_of)
        });
        let mut patch = Patch::default();
        for item in fitting {
            if let Some(table) = Operations::of_kind(item.record.kind) {
                // What the snapshot no longer has was removed in the meantime.
                (table.restore)(view.snapshot, &mut patch, &item.record.key);
            }
        }
        self.pending.follow(patch);
    }
}
