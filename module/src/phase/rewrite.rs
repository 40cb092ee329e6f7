//! REWRITE: host and path decide, once per request.

use crate::ffi::{Decision, Request};
use crate::records::Held;
use oxigress_core::record::{Kind, SettingsView};
use oxigress_core::{redirect, router, tls};

/// What becomes of the request.
pub enum Outcome {
    /// It goes on to the backend that was decided on.
    Continue,
    /// It is answered with this status.
    Status(u16),
    /// It is sent elsewhere.
    Redirect {
        /// Status.
        code: u16,
        /// Value of `Location`.
        location: Vec<u8>,
    },
}

/// Finds the rule, applies its policy, and keeps the decision with the request.
pub fn decide(request: &mut Request<'_>) -> Outcome {
    let worker = request.worker();
    let guard = worker.reader().read();
    let records = Held(&guard);
    if guard.generation() == 0 {
        // Nothing was ever published: not "no such host" but "not ready".
        return Outcome::Status(503);
    }
    let settings = || SettingsView::of(&records);
    let rule = router::route(&records, request.host(), request.path());
    if let Some(rule) = rule {
        let has_certificate = || tls::has_certificate(&records, request.host());
        let is_redirected =
            redirect::is_redirected(rule.https_redirect(), request.is_https(), has_certificate);
        let host = request.host_header().unwrap_or(request.host());
        // Without a name there is nowhere to send a client to.
        if is_redirected && !host.is_empty() {
            let location = redirect::location(host, request.target());
            return Outcome::Redirect { code: settings().http_redirect_code().into(), location };
        }
    }
    let texts = rule.map(|rule| rule.texts()).unwrap_or_default();
    let own = Some(texts[0]).filter(|id| !id.is_empty());
    let Some(backend) = own.or_else(|| settings().default_backend()) else {
        request.decide(Decision { texts, backend: b"", hash: None });
        return Outcome::Status(404);
    };
    let hash = guard.hash(Kind::Endpoints as u8, backend);
    request.decide(Decision { texts, backend, hash: Some(hash) });
    let endpoints = guard.get_hashed(hash, Kind::Endpoints as u8, backend);
    match endpoints {
        Some(set) if !oxigress_core::record::EndpointsView::new(set.value()).is_empty() => {
            Outcome::Continue
        }
        _ => Outcome::Status(503),
    }
}
