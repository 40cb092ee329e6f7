//! Records that name others: they count only where these are there.

use super::Records;
use super::policies::decode_policies;
use super::table::Kind;
use crate::model::BundleId;
use crate::model::policy::Policies;

/// [`Policies`] by id; `None` if they, or a bundle that they name, are absent or damaged.
pub fn policies<'g>(records: &impl Records<'g>, id: &[u8]) -> Option<Policies> {
    let policies = records.value(Kind::Policies, id).and_then(decode_policies)?;
    has_all(records, policies.bundles()).then_some(policies)
}

/// Whether all these bundles have records.
pub fn has_all<'g, 'b>(
    records: &impl Records<'g>,
    mut bundles: impl Iterator<Item = &'b BundleId>,
) -> bool {
    bundles.all(|id| records.value(Kind::Bundle, id.as_str().as_bytes()).is_some())
}
