//! TLSRoutes, TCPRoutes and UDPRoutes: read by the types of HTTPRoutes, of whose fields they have some.
//!
//! Source:  Gateway API v1.7.

use super::grpc::all;
use super::{HttpBackendRef, HttpRouteRule, HttpRouteSpec, ParentRef, Unread};
use serde::Deserialize;

spec! {
    /// spec of a TLSRoute.
    struct TlsRouteSpec {
        parent_refs: Vec<ParentRef>,
        hostnames: Vec<String>,
        use_default_gateways: Unread,
        rules: Vec<SessionRouteRule>,
    }
    /// spec of a TCPRoute or a UDPRoute.
    struct PortRouteSpec {
        parent_refs: Vec<ParentRef>,
        use_default_gateways: Unread,
        rules: Vec<SessionRouteRule>,
    }
    /// A rule of any of them.
    struct SessionRouteRule {
        name: Option<String>,
        backend_refs: Vec<SessionBackendRef>,
    }
    /// Who serves, and its share.
    struct SessionBackendRef {
        group: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: String,
        port: Option<i64>,
        weight: Option<i64>,
    }
}

impl From<TlsRouteSpec> for HttpRouteSpec {
    fn from(from: TlsRouteSpec) -> Self {
        let TlsRouteSpec { parent_refs, hostnames, use_default_gateways, rules } = from;
        HttpRouteSpec { parent_refs, hostnames, use_default_gateways, rules: all(rules) }
    }
}

impl From<PortRouteSpec> for HttpRouteSpec {
    fn from(from: PortRouteSpec) -> Self {
        let PortRouteSpec { parent_refs, use_default_gateways, rules } = from;
        let hostnames = Vec::new();
        HttpRouteSpec { parent_refs, hostnames, use_default_gateways, rules: all(rules) }
    }
}

impl From<SessionRouteRule> for HttpRouteRule {
    fn from(from: SessionRouteRule) -> Self {
        let SessionRouteRule { name, backend_refs } = from;
        HttpRouteRule { name, backend_refs: all(backend_refs), ..HttpRouteRule::default() }
    }
}

impl From<SessionBackendRef> for HttpBackendRef {
    fn from(from: SessionBackendRef) -> Self {
        let SessionBackendRef { group, kind, namespace, name, port, weight } = from;
        HttpBackendRef { group, kind, namespace, name, port, weight, filters: Vec::new() }
    }
}
