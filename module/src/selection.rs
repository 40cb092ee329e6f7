//! What a request is sent by, beside the algorithm of its backend: a hash of its own, or an affinity cookie.

use crate::ffi::{Request, wall_clock_milliseconds};
use crate::peer::Key;
use crate::records::Held;
use oxigress_core::balancer::cookie::{self, Asked};
use oxigress_core::balancer::hash_key::{self, Part};
use oxigress_core::balancer::ring;
use oxigress_core::record::{AffinityView, BackendView, Kind};
use oxigress_core::router;

/// What a backend's record says about one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'r> {
    /// By what an endpoint is chosen.
    pub key: Key<'r>,
    /// After a failed attempt the client gets another endpoint for good.
    pub changes_on_failure: bool,
}

/// Looks at the request for what its backend asks for.
pub fn of<'r>(request: &Request<'r>, backend: &BackendView<'_>) -> Selection<'r> {
    if let Some(affinity) = backend.affinity() {
        let key = held(request, &affinity).map(|held| held.key);
        let changes_on_failure = affinity.change_on_failure();
        return Selection { key: Key::Affinity(key), changes_on_failure };
    }
    let Some(key) = backend.hash_key() else { return Selection::default() };
    Selection { key: Key::Hash(hash(request, key)), changes_on_failure: false }
}

fn hash(request: &Request<'_>, key: &[u8]) -> u32 {
    let mut text = Vec::with_capacity(128);
    for part in hash_key::parts(key) {
        match part {
            Part::Literal(literal) => text.extend(literal),
            Part::Variable(name) => text.extend(request.variable(name).unwrap_or_default()),
        }
    }
    ring::hash(&text)
}

/// What the affinity cookie of a request says.
fn held<'r>(request: &Request<'r>, affinity: &AffinityView<'_>) -> Option<cookie::Held<'r>> {
    cookie::split(cookie::value(request.all_headers(b"cookie"), affinity.name())?)
}

/// `Set-Cookie` for a client that was given `key`; `None` where no cookie is given out.
pub fn set_cookie(request: &Request<'_>, backend: &[u8], key: &[u8]) -> Option<String> {
    let guard = request.worker().reader().read();
    let record = guard.get(Kind::Backend as u8, backend)?;
    let affinity = BackendView::new(record.value()).affinity()?;
    let path = match request.decision() {
        Some(decision) => decision.texts[5],
        None => request.variable(b"location_path").unwrap_or_default(),
    };
    let mut asked = Asked {
        host: Some(request.host()),
        path,
        is_tls: request.is_https(),
        user_agent: request.header(b"user-agent"),
        now_seconds: wall_clock_milliseconds() / 1_000,
    };
    if !router::is_named(&Held(&guard), request.host()) && !cookie::is_given(&affinity, &asked) {
        asked.host = None;
    }
    cookie::is_given(&affinity, &asked).then(|| cookie::set_cookie(&affinity, &asked, key))
}
