//! Most bytes of one namespace, where the operator sets a limit (`--namespace-bytes-max`).
//!
//! What a namespace has is counted before each write that may add to it. Changes of endpoints alone, which are the
//! most, are not counted while no namespace can have come to its limit by them.

use super::Publisher;
use super::item::Item;
use super::owners::{View, asking_once};
use super::room::Ledger;
use super::withheld::{Reason, Withheld};
use oxigress_core::record::table::Operations;
use oxigress_core::wire::native::Patch;

/// What an endpoint takes, at most about.
const ENDPOINT_BYTES: u64 = 256;

/// The limit, and when it has to be checked.
#[derive(Debug, Default)]
pub struct Quota {
    /// The most bytes of a namespace; 0: no limit.
    limit: u64,
    is_due: bool,
    /// What endpoints may add before the limit is checked again.
    slack: u64,
}

impl Quota {
    /// At most `limit` bytes for each namespace; 0: any.
    pub fn new(limit: u64) -> Self {
        Quota { limit, ..Quota::default() }
    }

    /// Has the limit checked before the next write.
    pub fn set_due(&mut self) {
        self.is_due = true;
    }

    /// Takes note of a change.
    pub fn changed(&mut self, patch: &Patch) {
        let (written, removed) = patch.count();
        let endpoints = patch.upsert.endpoints.values().map(|set| 1 + set.as_slice().len() as u64);
        self.slack = self.slack.saturating_sub(endpoints.sum::<u64>() * ENDPOINT_BYTES);
        let is_only_endpoints = written == patch.upsert.endpoints.len() && removed == 0;
        self.is_due |= !is_only_endpoints || self.slack == 0;
    }
}

impl Publisher {
    /// Withholds what namespaces have beyond the limit, and serves again what is within it.
    pub(super) fn keep_quota(&mut self, view: &View<'_>) {
        let limit = self.quota.limit;
        if limit == 0 || !std::mem::take(&mut self.quota.is_due) {
            return;
        }
        // Of everything that is wanted, so that it does not depend on what lacks room.
        self.sizes.measure(view.snapshot);
        let (beyond, most) = asking_once(view, |view| {
            let mut ledger = Ledger::of(view, &Withheld::default(), &self.sizes);
            let beyond = ledger.take_beyond(limit);
            (beyond, ledger.totals().map(|(_, bytes)| bytes).max().unwrap_or(0))
        });
        self.quota.slack = limit.saturating_sub(most);
        let mut patch = Patch::default();
        let mut send = |item: &Item| {
            if let Some(table) = Operations::of_kind(item.record.kind) {
                (table.restore)(view.snapshot, &mut patch, &item.record.key);
            }
        };
        for item in self.withheld.over_quota() {
            if !beyond.contains_key(&item) {
                self.withheld.release(&item);
                send(&item);
            }
        }
        for (item, namespace) in beyond {
            if !self.withheld.is_over_quota(&item) {
                // It is closed when it is sent.
                send(&item);
                let reason = Reason::OverQuota { namespace, limit };
                tracing::error!("{item} is not published: {reason}");
                self.withheld.evict(item, reason);
            }
        }
        self.pending.follow(patch);
    }
}
