//! TLSRoutes, TCPRoutes and UDPRoutes: read by the types of HTTPRoutes, of whose fields they have some.
//!
//! Source:  Gateway API v1.7.

use super::{Absent, BackendRef, HttpRouteRule, RouteSpec};
use serde::Deserialize;

/// spec of a TLSRoute.
pub type TlsRouteSpec = RouteSpec<SessionRouteRule>;

/// spec of a TCPRoute or a UDPRoute.
pub type PortRouteSpec = RouteSpec<SessionRouteRule, Absent>;

spec! {
    /// A rule of any of them.
    struct SessionRouteRule {
        name: Option<String>,
        backend_refs: Vec<BackendRef<Absent>>,
    }
}

impl From<SessionRouteRule> for HttpRouteRule {
    fn from(from: SessionRouteRule) -> Self {
        let SessionRouteRule { name, backend_refs } = from;
        let backends = backend_refs.into_iter().map(|one| one.into_http(|_| Vec::new()));
        HttpRouteRule { name, backend_refs: backends.collect(), ..HttpRouteRule::default() }
    }
}
