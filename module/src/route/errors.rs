//! A status is answered by another backend: REWRITE of the `ingress_error` location, which [`decision::replace`] decides.
//!
//! nginx comes here for the statuses that policies name, its own and those of endpoints. It does so once for a request:
//! what happens here is final, and so is what the backend answers.

use crate::request::Request;
use crate::route::{Live, location};
use oxigress_core::decision::{self, Answer, Failure, Replacement};

/// Sends the request to the backend that answers errors, as it came, but for its path.
pub fn decide(request: &Request<'_>) -> Answer {
    let status = request.take_error_status();
    let (Some(policies), Some(status)) = (request.policies(), status) else {
        return Answer::Respond(404);
    };
    let failure = Failure { status, was_let_in: request.is_let_in() };
    let guard = request.worker().reader().read();
    let live = Live::since(request.worker(), &guard, request.decided());
    let replacement = decision::replace(&live, &policies.source, failure);
    if !matches!(replacement, Replacement::Keep) {
        let is_unlogged = request.if_location().is_some_and(|inner| inner.is_unlogged);
        location::enter_answer(request.nginx(), policies, is_unlogged);
    }
    let Replacement::Backend { id, endpoints } = replacement else {
        return Answer::Respond(status);
    };
    if !request.serve_by(id, endpoints.endpoint_set(&guard), status)
        || !request.set_uri(b"/", request.args())
    {
        return Answer::Respond(status);
    }
    for name in decision::withheld(&policies.source, failure) {
        request.remove_header(name);
    }
    Answer::Forward
}
