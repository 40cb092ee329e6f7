//! Ids of policies.

use crate::claim::policies::id_of;
use oxigress_core::model::policy::{Policies, PolicyId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ids of policies: digests of what they say. Rules that share their policies do so by address.
#[derive(Default)]
pub struct Ids(BTreeMap<*const Policies, Option<PolicyId>>);

impl Ids {
    /// The id of these policies; `None`: they say nothing, and no record is needed.
    pub fn of(&mut self, policies: &Arc<Policies>) -> Option<PolicyId> {
        self.0.entry(Arc::as_ptr(policies)).or_insert_with(|| id_of(policies)).clone()
    }
}
