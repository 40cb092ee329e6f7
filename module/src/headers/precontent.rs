//! PRECONTENT: a request is let in, and about to be passed on.

use crate::headers::requests;
use crate::request::Request;
use crate::request::spans;
use nginx::{Code, Next, PhaseHandler};

/// Gives a request the headers of its route.
pub struct Precontent;

impl PhaseHandler for Precontent {
    const NAME: &'static str = "precontent";

    fn run(request: &nginx::Request) -> Next<'_> {
        // Subrequests have the headers that their location gives them.
        let request = Request::of(request).filter(Request::is_main);
        if let Some(request) = request
            && let Some(policies) = request.policies()
            && !request.is_error()
        {
            request.let_in();
            requests::prepare(&request, &policies.source);
            if policies.source.tracing.is_some() {
                spans::prepare(&request);
            }
        }
        Code::DECLINED.into()
    }
}
