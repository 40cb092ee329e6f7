//! The checks of a record of any kind.

use super::definition::{Checks, Fault};
use super::table::{Kind, Operations};

/// Checks the key and the value of a record of any kind.
pub fn check(kind: Kind, key: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
    Operations::of_kind(kind).map_or(Ok(()), |table| (table.validate)(key, value, checks))
}
