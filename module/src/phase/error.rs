//! A status is answered by another backend: REWRITE of the `ingress_error` location.
//!
//! nginx comes here for the statuses that policies name, its own and those of endpoints. It does so once for a request:
//! what happens here is final, and so is what the backend answers.

use super::rewrite::{Destination, Outcome};
use crate::ffi::Request;
use crate::records::Noting;
use oxigress_core::model::policy::Policies;
use oxigress_core::record::SettingsView;

/// Sends the request to the backend that answers errors, as it came, but for its path.
pub fn decide(request: &Request<'_>) -> Outcome {
    let status = request.take_error_status();
    let (Some(policies), Some(status)) = (request.policies(), status) else {
        return Outcome::Status(404);
    };
    if is_verdict(status) && !request.is_let_in() {
        return Outcome::Status(status);
    }
    let guard = request.worker().reader().read();
    let own = policies.source.errors.as_ref().and_then(|errors| errors.backend.as_ref());
    let backend = match own {
        Some(id) => Some(id.as_str().as_bytes()),
        None => SettingsView::of(&Noting::new(&guard)).default_backend(),
    };
    let decided = request.decided();
    let destination = backend.map(|id| Destination::as_decided(&guard, id, decided));
    let (Some(backend), Some(destination)) = (backend, destination) else {
        return Outcome::Status(status);
    };
    request.enter_error_location();
    // Nobody there: nginx's page says what happened.
    if !destination.has_endpoints()
        || !request.serve_by(backend, destination.found(&guard))
        || !request.set_uri(b"/", request.args())
    {
        return Outcome::Status(status);
    }
    withhold(request, &policies.source);
    request.note_error(status);
    Outcome::Continue
}

/// ACCESS takes from a request what it has looked at, and what only the auth server may say; this one may not have been
/// there.
fn withhold(request: &Request<'_>, policies: &Policies) {
    let Some(access) = policies.access.as_ref().filter(|_| !request.is_let_in()) else { return };
    if access.basic.is_some() {
        request.remove_header(b"authorization");
    }
    for name in access.external.iter().flat_map(|external| &external.response_headers) {
        request.remove_header(name.as_str().as_bytes());
    }
}

/// Who may come in and who not: an answer of its own, which nobody replaces.
fn is_verdict(status: u16) -> bool {
    matches!(status, 300..=399 | 400 | 401 | 403 | 421)
}

/// Tells an endpoint that answers for another one what happened, where nginx.conf does not.
pub fn tell(request: &Request<'_>, status: u16) {
    request.note_error(status);
    let Some(decision) = request.decision() else { return };
    let [_, namespace, ingress, service, port, _] = decision.texts;
    request.set_header(b"X-Code", status.to_string().as_bytes());
    request.set_header(b"X-Format", request.header(b"accept").unwrap_or_default());
    request.set_header(b"X-Namespace", namespace);
    request.set_header(b"X-Ingress-Name", ingress);
    request.set_header(b"X-Service-Name", service);
    request.set_header(b"X-Service-Port", port);
}
