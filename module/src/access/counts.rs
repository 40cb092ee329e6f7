//! Limits: their shared memory, and the PREACCESS phase.
//!
//! A zone apart from `ingress_zone`: that one is copied when it changes its size, and its writers take it as a whole.
//! This one has no writer, a reload keeps it, and where it is new its counts begin at nothing.
#![allow(unsafe_code)]

use crate::access::buffers;
use crate::access::limits;
use crate::conf::Core;
use crate::conf::CoreConf;
use crate::request::Request;
use crate::system::memory::monotonic_nanoseconds;
use crate::system::memory::random;
use nginx::zone::{Block, BlockZone, Zone};
use nginx::{Code, Cycle, Next, PhaseHandler};
use oxigress_core::policy::limits::Counts;
use std::sync::atomic::AtomicU64;

/// The zone of `ingress_limits`.
pub struct CountsZone;

impl BlockZone for CountsZone {
    type Module = Core;

    const NAME: &'static str = "ingress_limits";

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

/// Refuses a request that is one too many.
pub struct Preaccess;

impl PhaseHandler for Preaccess {
    const NAME: &'static str = "preaccess";
    // A limit that cannot be looked at closes.
    const PANICKED: Code = Code::status(503);

    fn run(request: &nginx::Request) -> Next<'_> {
        let refused = Request::of(request).and_then(|request| {
            // nginx runs the phases once more for the answer of an error backend.
            if request.is_error() {
                return None;
            }
            let policies = request.policies()?;
            limits::decide(&request, policies).or_else(|| buffers::decide(&request, policies))
        });
        refused.map_or(Code::DECLINED, Code::status).into()
    }
}
