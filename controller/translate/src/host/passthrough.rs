//! What TLS that is passed through unread would leave without effect.

use oxigress_core::model::policy::{Policies, TlsPolicy};

/// The protection of a host that would have no effect; `None`: it has none.
pub fn lost_protection<'p>(
    tls: Option<&TlsPolicy>,
    policies: impl IntoIterator<Item = &'p Policies>,
) -> Option<&'static str> {
    if tls.is_some_and(|tls| tls.client.is_some() || tls.denied) {
        return Some("client certificates");
    }
    policies.into_iter().find_map(|policies| {
        let access = policies.access.as_ref().map(|_| "access lists or authentication");
        access.or_else(|| policies.limits.as_ref().map(|_| "limits"))
    })
}
