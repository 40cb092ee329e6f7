//! The PREACCESS phase: what a routed request may be too many for.

use crate::access::{buffers, limits};
use crate::request::Request;
use crate::request::policies::Compiled;
use nginx::{Code, Next, PhaseHandler};

/// Refuses a request that is one too many.
pub struct Preaccess;

impl PhaseHandler for Preaccess {
    const NAME: &'static str = "preaccess";
    // A limit that cannot be looked at closes.
    const PANICKED: Code = Code::status(503);

    fn run(request: &nginx::Request) -> Next<'_> {
        let seen = Request::of(request);
        let refused = seen.and_then(|seen| refuse(&seen, seen.policies()?));
        refused.map_or(Code::DECLINED, Code::status).into()
    }
}

/// The status of a refusal. Not in line: a request without policies does not pay for its frame.
#[inline(never)]
fn refuse(request: &Request<'_>, policies: &Compiled) -> Option<u16> {
    // nginx runs the phases once more for the answer of an error backend.
    if request.is_error() {
        return None;
    }
    limits::decide(request, policies).or_else(|| buffers::decide(request, policies))
}
