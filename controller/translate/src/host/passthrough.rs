//! What TLS that is passed through unread would leave without effect.

use oxigress_core::model::policy::{Policies, TlsPolicy};

/// The protection of a host that would have no effect, by the policies of its paths and whether these are closed; `None`: it
/// has none.
pub fn lost_protection<'p>(
    tls: Option<&TlsPolicy>,
    paths: impl IntoIterator<Item = (&'p Policies, bool)>,
) -> Option<&'static str> {
    if tls.is_some_and(|tls| tls.client.is_some() || tls.denied) {
        return Some("client certificates");
    }
    paths.into_iter().find_map(|(policies, is_closed)| {
        let access = policies.access.as_ref().map(|_| "access lists or authentication");
        let denied = (is_closed || policies.denied.is_some()).then_some("paths that answer 503");
        access.or(denied).or_else(|| policies.limits.as_ref().map(|_| "limits"))
    })
}
