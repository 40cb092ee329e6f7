//! What a request says about where it goes, beside its host and path: to an alternative of its backend, by a hash
//! of its own, or to the endpoint of its affinity cookie.

use crate::balancer::choose::SelectBy;
use crate::request::Request;
use crate::route::{self, Live, RequestFacts};
use crate::system::memory::wall_clock_milliseconds;
use crate::zone::records::GuardedRecords;
use oxigress_core::balancer::cookie::{self, RequestView};
use oxigress_core::balancer::hash_key;
use oxigress_core::balancer::ring;
use oxigress_core::decision::{self, Silent};
use oxigress_core::record::{AffinityView, BackendView};
use oxigress_core::router;
use oxigress_core::text::template::Values;
use oxigress_store::Guard;

/// What a backend's record says about one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'r> {
    /// By what an endpoint is chosen.
    pub key: SelectBy<'r>,
    /// After a failed attempt the client gets another endpoint for good.
    pub changes_on_failure: bool,
}

/// Looks at the request for what its backend asks for.
pub fn of<'r>(request: &Request<'r>, backend: &BackendView<'_>) -> Selection<'r> {
    if let Some(affinity) = backend.affinity() {
        let key = held(request, &affinity).map(|held| held.key);
        let changes_on_failure = affinity.change_on_failure();
        return Selection { key: SelectBy::Affinity(key), changes_on_failure };
    }
    let Some(key) = backend.hash_key() else { return Selection::default() };
    let hash = hash(key, request);
    Selection { key: SelectBy::Hash(hash), changes_on_failure: false }
}

/// The hash of a key, with the values of its variables.
pub fn hash(key: &[u8], values: &impl Values) -> u32 {
    ring::hash_parts(hash_key::parse(key).map(|part| values.value(part)))
}

/// What the affinity cookie of a request says.
fn held<'r>(request: &Request<'r>, affinity: &AffinityView<'_>) -> Option<cookie::Value<'r>> {
    cookie::split(cookie::value(request.all_headers(b"cookie"), affinity.name())?)
}

/// The alternative that takes the request in place of a backend, if one does.
pub fn alternative<'g>(
    request: &Request<'_>,
    guard: &'g Guard<'g>,
    backend: &BackendView<'g>,
) -> Option<&'g [u8]> {
    let live = Live::new(request.worker(), guard);
    let facts = RequestFacts::of(request);
    decision::alternative(&live, &facts, backend, &mut Silent).map(|(_, id)| id)
}

/// `Set-Cookie` for a client that was given `key`, by a request that was decided in generation `decided`; `None` where
/// no cookie is given out.
pub fn set_cookie(
    request: &Request<'_>,
    backend: &[u8],
    decided: u64,
    key: &[u8],
) -> Option<String> {
    let guard = request.worker().reader().read();
    let affinity = route::backend(request.worker(), &guard, backend, decided)?.affinity()?;
    let path = match request.route_names() {
        Some(names) => names.path(),
        None => request.variable(b"location_path").unwrap_or_default(),
    };
    let mut asked = RequestView {
        host: Some(request.host()),
        path,
        is_tls: request.is_https(),
        user_agent: request.header(b"user-agent"),
        now_seconds: wall_clock_milliseconds() / 1_000,
    };
    if !router::is_named(&GuardedRecords(&guard), request.host())
        && !cookie::is_given(&affinity, &asked)
    {
        asked.host = None;
    }
    cookie::is_given(&affinity, &asked).then(|| cookie::set_cookie(&affinity, &asked, key))
}
