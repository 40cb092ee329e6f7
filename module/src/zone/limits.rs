//! The shared memory of limits.
//!
//! A zone apart from `ingress_zone`: that one is copied when it changes its size, and its writers take it as a whole.
//! This one has no writer, a reload keeps it, and where it is new its counts begin at nothing.
#![allow(unsafe_code)]

use crate::conf::{Core, CoreConf};
use crate::system::memory::monotonic_nanoseconds;
use crate::system::memory::random;
use nginx::Cycle;
use nginx::zone::{Block, BlockZone, Tag, Zone};
use oxigress_core::policy::limits::Counts;
use std::sync::atomic::AtomicU64;

/// The zone of `ingress_limits`.
pub struct CountsZone;

impl BlockZone for CountsZone {
    type Module = Core;

    const NAME: &'static str = "ingress_limits";

    fn tag() -> &'static Tag {
        static TAG: Tag = Tag::new();
        &TAG
    }

    fn create(_: &Zone, _: &CoreConf, block: Block) -> Result<(), String> {
        let key = [random(), random()];
        Counts::create(words(block), key, monotonic_nanoseconds()).map(|_| ()).ok_or_else(too_small)
    }

    fn adopt(_: &Zone, _: &CoreConf, block: Block) -> Result<(), String> {
        Counts::open(words(block)).map(|_| ()).ok_or_else(too_small)
    }
}

/// The block of `ingress_limits`, which nobody but [`Counts`] looks at.
fn words(block: Block) -> &'static [AtomicU64] {
    // SAFETY: nginx has made or taken the zone over for the cycle at hand. A worker uses what it opens until it ends, before
    // which nothing is unmapped; the master keeps nothing of it.
    unsafe { block.words() }
}

fn too_small() -> String {
    "the zone is too small or damaged".into()
}

/// What all workers count together; `None` without `ingress_limits`. Used until the cycle has been replaced.
pub fn counts_of(cycle: &Cycle) -> Option<Counts<'static>> {
    Counts::open(words(cycle.core::<Core>()?.limits(cycle)?.block::<CountsZone>()?))
}
