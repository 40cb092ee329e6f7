//! Objects of the Gateway API, as far as they are read.
//!
//! Shape:   the fields of `gateway.networking.k8s.io` under their own names. What has a closed list of values there is text here:
//!          a value that is not known is told in the object's status, as the API wants it, and does not hide the object.
//! Source:  Gateway API v1.7.
//! Rejected: the crate `gateway-api` 0.22, which is of v1.5.1, wants older `kube` and `k8s-openapi`, refuses a whole object for
//!          one unknown value, and keeps fields that nobody reads.

use crate::{Key, Kind, Name, ObjectRef};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The API group.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// The API group of ClusterTrustBundles.
pub const TRUST_GROUP: &str = "certificates.k8s.io";

/// A default name of this controller in GatewayClasses.
pub const CONTROLLER: &str = "oxigress.io/gateway-controller";

/// What every object has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// metadata.creationTimestamp, in seconds.
    pub created: i64,
    /// metadata.generation, which its status names; 0 in a folder.
    pub generation: i64,
}

/// An object of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource<S> {
    /// Age and generation.
    pub meta: Meta,
    /// What it says.
    pub spec: S,
}

/// A GatewayClass.
pub type GatewayClass = Resource<GatewayClassSpec>;
/// A Gateway.
pub type Gateway = Resource<GatewaySpec>;
/// A BackendTLSPolicy.
pub type BackendTlsPolicy = Resource<BackendTlsPolicySpec>;
/// A ClusterTrustBundle of Kubernetes: authorities that no namespace has.
pub type ClusterTrustBundle = Resource<ClusterTrustBundleSpec>;
/// A ListenerSet.
pub type ListenerSet = Resource<ListenerSetSpec>;
/// A route of any kind, which is read as the HTTPRoute that it means, or that has all its fields: its [`Kind`] stands beside it.
pub type Route = Resource<HttpRouteSpec>;
/// A ReferenceGrant.
pub type ReferenceGrant = Resource<ReferenceGrantSpec>;

/// A field that nothing is made of. It is declared, so that nobody is told that it is misspelt, and not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // `IgnoredAny` would count as an unknown field.
        serde_json::Value::deserialize(from).map(|_| Unread)
    }
}

macro_rules! spec {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        #[allow(missing_docs, reason = "the fields of the Gateway API")]
        pub struct $name { $(pub $field: $type,)* }
    )*};
}

mod beyond;
mod grants;
mod grpc;
mod names;
mod policy;
mod session;
mod size;

pub use beyond::{Beyond, MAX_ROUTES, MAX_SETS};
pub use grants::Allowed;
pub use grpc::{GrpcRouteSpec, NO_NAME};
pub use policy::{POLICY_GROUP, Policy, PolicySpec};
pub use session::{PortRouteSpec, TlsRouteSpec};

/// A field that other kinds of routes have: whoever writes it is told, as of any field that is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absent;

impl<'de> Deserialize<'de> for Absent {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(from).map(|_| Absent)
    }
}

impl From<Absent> for Vec<String> {
    fn from(_: Absent) -> Self {
        Vec::new()
    }
}

/// spec of a route: the kinds differ in their rules, and in whether they have host names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields of the Gateway API")]
pub struct RouteSpec<R, H = Vec<String>> {
    pub parent_refs: Vec<ParentRef>,
    pub hostnames: H,
    pub use_default_gateways: Unread,
    pub rules: Vec<R>,
}

/// spec of an HTTPRoute.
pub type HttpRouteSpec = RouteSpec<HttpRouteRule>;

impl<R: Into<HttpRouteRule>, H: Into<Vec<String>>> RouteSpec<R, H> {
    /// The HTTPRoute that it means, or that has all its fields.
    pub fn into_http(self) -> HttpRouteSpec {
        let RouteSpec { parent_refs, hostnames, use_default_gateways, rules } = self;
        let rules = rules.into_iter().map(Into::into).collect();
        RouteSpec { parent_refs, hostnames: hostnames.into(), use_default_gateways, rules }
    }
}

/// Who serves, and its share: the kinds of routes differ in the filters that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields of the Gateway API")]
pub struct BackendRef<F> {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub port: Option<i64>,
    pub weight: Option<i64>,
    pub filters: F,
}

/// A reference of an HTTPRoute.
pub type HttpBackendRef = BackendRef<Vec<HttpRouteFilter>>;

impl<F> BackendRef<F> {
    /// The same with the filters of an HTTPRoute.
    fn into_http(self, filters: impl FnOnce(F) -> Vec<HttpRouteFilter>) -> HttpBackendRef {
        let BackendRef { group, kind, namespace, name, port, weight, filters: own } = self;
        BackendRef { group, kind, namespace, name, port, weight, filters: filters(own) }
    }
}

spec! {
    /// spec of a GatewayClass.
    struct GatewayClassSpec {
        controller_name: String,
        parameters_ref: Option<ObjectName>,
        description: Unread,
    }
    /// spec of a Gateway.
    struct GatewaySpec {
        gateway_class_name: String,
        listeners: Vec<Listener>,
        addresses: Vec<GatewayAddress>,
        infrastructure: GatewayInfrastructure,
        allowed_listeners: AllowedListeners,
        default_scope: Unread,
        tls: Option<GatewayTls>,
    }
    /// What would hold for objects that are made for a Gateway. None is made: one nginx serves all Gateways.
    struct GatewayInfrastructure {
        labels: Unread,
        annotations: Unread,
        parameters_ref: Option<ObjectName>,
    }
    /// How a Gateway speaks TLS beside what its listeners say.
    struct GatewayTls {
        frontend: Option<FrontendTls>,
        backend: Option<GatewayBackendTls>,
    }
    /// What endpoints are shown.
    struct GatewayBackendTls {
        client_certificate_ref: Option<ObjectName>,
    }
    /// What clients have to show, and on which ports something else.
    struct FrontendTls {
        default: FrontendTlsConfig,
        per_port: Vec<FrontendTlsPort>,
    }
    /// What clients have to show on one port.
    struct FrontendTlsPort {
        port: i64,
        tls: FrontendTlsConfig,
    }
    /// What clients have to show, if anything.
    struct FrontendTlsConfig {
        validation: Option<FrontendValidation>,
    }
    /// Which certificates of clients are valid, and what becomes of others.
    struct FrontendValidation {
        ca_certificate_refs: Vec<ObjectName>,
        mode: Option<String>,
    }
    /// The ListenerSets that may attach to a Gateway.
    struct AllowedListeners {
        namespaces: RouteNamespaces,
    }
    /// spec of a ListenerSet.
    struct ListenerSetSpec {
        parent_ref: ObjectName,
        listeners: Vec<Listener>,
    }
    /// An address that a Gateway asks for.
    struct GatewayAddress {
        r#type: Option<String>,
        value: String,
        routability: String,
    }
    /// A port, and who may use it.
    struct Listener {
        name: String,
        hostname: Option<String>,
        port: i64,
        protocol: String,
        tls: Option<ListenerTls>,
        allowed_routes: AllowedRoutes,
        filters: ListenerFilters,
    }
    /// What would be done with requests before a route is chosen.
    struct ListenerFilters {
        requests: Vec<serde_json::Value>,
    }
    /// How a listener speaks TLS.
    struct ListenerTls {
        mode: Option<String>,
        certificate_refs: Vec<ObjectName>,
        options: Unread,
    }
    /// The routes that may attach to a listener.
    struct AllowedRoutes {
        namespaces: RouteNamespaces,
        kinds: Vec<RouteKind>,
    }
    /// The namespaces of routes or ListenerSets that may attach.
    struct RouteNamespaces {
        from: Option<String>,
        selector: Option<LabelSelector>,
    }
    /// A kind of routes.
    struct RouteKind {
        group: Option<String>,
        kind: String,
    }
    /// Which labels an object has.
    struct LabelSelector {
        match_labels: BTreeMap<String, String>,
        match_expressions: Vec<LabelExpression>,
    }
    /// What one label is.
    struct LabelExpression {
        key: String,
        operator: String,
        values: Vec<String>,
    }
    /// The name of another object.
    struct ObjectName {
        group: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: String,
    }
    /// What a route attaches to.
    struct ParentRef {
        group: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: String,
        section_name: Option<String>,
        port: Option<i64>,
    }
    /// A rule of an HTTPRoute.
    struct HttpRouteRule {
        name: Option<String>,
        matches: Vec<HttpRouteMatch>,
        filters: Vec<HttpRouteFilter>,
        backend_refs: Vec<HttpBackendRef>,
        timeouts: Option<HttpRouteTimeouts>,
        retry: Option<HttpRouteRetry>,
        session_persistence: Option<serde_json::Value>,
    }
    /// Which requests a rule takes.
    struct HttpRouteMatch {
        path: Option<HttpPathMatch>,
        headers: Vec<HttpValueMatch>,
        query_params: Vec<HttpValueMatch>,
        method: Option<String>,
    }
    /// Which paths.
    struct HttpPathMatch {
        r#type: Option<String>,
        value: Option<String>,
    }
    /// Which value a header or a parameter has.
    struct HttpValueMatch {
        r#type: Option<String>,
        name: String,
        value: String,
    }
    /// What is done with a request or a response.
    struct HttpRouteFilter {
        r#type: String,
        request_header_modifier: Option<HeaderFilter>,
        response_header_modifier: Option<HeaderFilter>,
        request_redirect: Option<RedirectFilter>,
        url_rewrite: Option<RewriteFilter>,
        request_mirror: Option<MirrorFilter>,
        extension_ref: Option<ExtensionRef>,
        cors: Option<CorsFilter>,
        external_auth: Unread,
    }
    /// A filter that is an object of its own.
    struct ExtensionRef {
        group: String,
        kind: String,
        name: String,
    }
    /// A copy of requests.
    struct MirrorFilter {
        backend_ref: HttpBackendRef,
        percent: Option<u32>,
        fraction: Option<Fraction>,
    }
    /// A share.
    struct Fraction {
        numerator: u32,
        denominator: Option<u32>,
    }
    /// Who may read across origins.
    struct CorsFilter {
        allow_origins: Vec<String>,
        allow_methods: Vec<String>,
        allow_headers: Vec<String>,
        expose_headers: Vec<String>,
        allow_credentials: Option<bool>,
        max_age: Option<i64>,
    }
    /// Changes of headers.
    struct HeaderFilter {
        set: Vec<Header>,
        add: Vec<Header>,
        remove: Vec<String>,
    }
    /// A header.
    struct Header {
        name: String,
        value: String,
    }
    /// A redirect.
    struct RedirectFilter {
        scheme: Option<String>,
        hostname: Option<String>,
        path: Option<PathModifier>,
        port: Option<i64>,
        status_code: Option<i64>,
    }
    /// Another host and path for the endpoint.
    struct RewriteFilter {
        hostname: Option<String>,
        path: Option<PathModifier>,
    }
    /// A change of the path.
    struct PathModifier {
        r#type: String,
        replace_full_path: Option<String>,
        replace_prefix_match: Option<String>,
    }
    /// How long a request may take; Go's durations.
    struct HttpRouteTimeouts {
        request: Option<String>,
        backend_request: Option<String>,
    }
    /// When a request is made again.
    struct HttpRouteRetry {
        codes: Vec<i64>,
        attempts: Option<i64>,
        backoff: Option<String>,
    }
    /// spec of a ReferenceGrant.
    struct ReferenceGrantSpec {
        from: Vec<GrantFrom>,
        to: Vec<GrantTo>,
    }
    /// spec of a BackendTLSPolicy.
    struct BackendTlsPolicySpec {
        target_refs: Vec<PolicyTarget>,
        validation: BackendValidation,
        options: Unread,
    }
    /// spec of a ClusterTrustBundle: PEM.
    struct ClusterTrustBundleSpec {
        signer_name: Unread,
        trust_bundle: String,
    }
    /// What a policy is about.
    struct PolicyTarget {
        group: String,
        kind: String,
        name: String,
        section_name: Option<String>,
    }
    /// What the certificates of endpoints have to be.
    struct BackendValidation {
        ca_certificate_refs: Vec<ObjectName>,
        well_known_c_a_certificates: Unread,
        hostname: String,
        subject_alt_names: Vec<SubjectAltName>,
    }
    /// A name that a certificate may have.
    struct SubjectAltName {
        r#type: String,
        hostname: String,
        uri: String,
    }
    /// Who may refer.
    struct GrantFrom {
        group: String,
        kind: String,
        namespace: String,
    }
    /// To what.
    struct GrantTo {
        group: String,
        kind: String,
        name: Option<String>,
    }
}

/// The objects of the Gateway API that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the API's own names")]
pub struct GatewayObjects {
    pub classes: Objects<GatewayClass>,
    pub gateways: Objects<Gateway>,
    pub sets: Objects<ListenerSet>,
    pub routes: BTreeMap<ObjectRef, Arc<Route>>,
    pub grants: Objects<ReferenceGrant>,
    pub allowed: Allowed,
    pub tls_policies: Objects<BackendTlsPolicy>,
    pub trust_bundles: Objects<ClusterTrustBundle>,
    pub policies: Objects<Policy>,
    /// The routes and ListenerSets that are not among these, since their namespaces have too many.
    pub beyond: Beyond,
}

impl GatewayObjects {
    /// All of them.
    pub fn names(&self) -> BTreeSet<ObjectRef> {
        let GatewayObjects {
            classes,
            gateways,
            sets,
            routes,
            grants,
            tls_policies,
            trust_bundles,
            policies,
            beyond,
            allowed: _,
        } = self;
        let of = |kind| move |key: &Key| ObjectRef::new(kind, key.clone());
        let all = classes.keys().map(of(Kind::GatewayClass));
        let all = all.chain(gateways.keys().map(of(Kind::Gateway)));
        let all = all.chain(sets.keys().map(of(Kind::ListenerSet)));
        let all = all.chain(routes.keys().cloned()).chain(beyond.names());
        let all = all.chain(grants.keys().map(of(Kind::ReferenceGrant)));
        let all = all.chain(tls_policies.keys().map(of(Kind::BackendTLSPolicy)));
        let all = all.chain(trust_bundles.keys().map(of(Kind::ClusterTrustBundle)));
        all.chain(policies.keys().map(of(Kind::Policy))).collect()
    }
}

/// Objects of one kind.
pub type Objects<T> = BTreeMap<Key, Arc<T>>;

/// Those of a namespace.
pub fn of_namespace<'o, T>(
    all: &'o Objects<T>,
    namespace: &'o Name,
) -> impl Iterator<Item = (&'o Key, &'o Arc<T>)> {
    let all = all.range(Key::new(namespace, "")..);
    all.take_while(move |(key, _)| key.namespace == *namespace)
}
