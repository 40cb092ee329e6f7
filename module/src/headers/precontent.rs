//! PRECONTENT: a request is let in, and about to be passed on.

use crate::headers::requests;
use crate::request::Request;
use crate::request::policies::Compiled;
use crate::request::spans;
use nginx::{Code, Next, PhaseHandler};

/// Gives a request the headers of its route.
pub struct Precontent;

impl PhaseHandler for Precontent {
    const NAME: &'static str = "precontent";

    fn run(request: &nginx::Request) -> Next<'_> {
        // Subrequests have the headers that their location gives them.
        if let Some(request) = Request::of(request)
            && let Some(policies) = request.policies()
            && request.is_main()
        {
            prepare(&request, policies);
        }
        Code::DECLINED.into()
    }
}

/// Not in line: a request without policies does not pay for its frame.
#[inline(never)]
fn prepare(request: &Request<'_>, policies: &Compiled) {
    if request.is_error() {
        return;
    }
    request.let_in();
    requests::prepare(request, &policies.source);
    if policies.source.tracing.is_some() {
        spans::prepare(request);
    }
}
