//! How an object is named: kind, namespace, name.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The name of a namespace or of an object, which its copies share: one object stands in many tables.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str> + ?Sized> PartialEq<T> for Name {
    fn eq(&self, other: &T) -> bool {
        *self.0 == *other.as_ref()
    }
}

impl PartialEq<Name> for str {
    fn eq(&self, other: &Name) -> bool {
        *self == *other.0
    }
}

impl PartialEq<Name> for String {
    fn eq(&self, other: &Name) -> bool {
        **self == *other.0
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.as_str().to_owned()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(text.into())
    }
}

impl From<&String> for Name {
    fn from(text: &String) -> Self {
        Name(text.as_str().into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name(text.into())
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Self {
        name.clone()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The namespace and the name of an object, which together identify it within its kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for the kinds that have none.
    pub namespace: Name,
    /// Unique within kind and namespace.
    pub name: Name,
}

impl Key {
    /// Makes the name of both parts, which are not checked.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }

    /// The text form `namespace/name` of flags.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let is_part = |part: &str| !part.is_empty() && !part.contains('/');
        (is_part(namespace) && is_part(name)).then(|| Key::new(namespace, name))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// The kinds that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "Kubernetes's own names")]
pub enum Kind {
    BackendTLSPolicy,
    ClusterTrustBundle,
    ConfigMap,
    EndpointSlice,
    GRPCRoute,
    Gateway,
    GatewayClass,
    HTTPRoute,
    Ingress,
    IngressClass,
    ListenerSet,
    Namespace,
    Policy,
    ReferenceGrant,
    Secret,
    Service,
    TCPRoute,
    TLSRoute,
    UDPRoute,
}

impl Kind {
    /// The kinds of the Gateway API and of what its routes name, whose definitions a cluster may lack.
    pub const GATEWAY_API: [Kind; 12] = [
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HTTPRoute,
        Kind::GRPCRoute,
        Kind::TLSRoute,
        Kind::TCPRoute,
        Kind::UDPRoute,
        Kind::ReferenceGrant,
        Kind::BackendTLSPolicy,
        Kind::Policy,
        Kind::ClusterTrustBundle,
    ];

    /// The kinds of routes.
    pub const ROUTES: [Kind; 5] =
        [Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute, Kind::TCPRoute, Kind::UDPRoute];

    /// Whether it is a kind of routes of requests, not of sessions.
    pub fn is_of_requests(self) -> bool {
        matches!(self, Kind::HTTPRoute | Kind::GRPCRoute)
    }

    /// Whether it is one of [`Self::ROUTES`].
    pub fn is_route(self) -> bool {
        Kind::ROUTES.contains(&self)
    }

    /// Whether objects of the kind have listeners.
    pub fn has_listeners(self) -> bool {
        matches!(self, Kind::Gateway | Kind::ListenerSet)
    }

    /// Whether objects of the kind have a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(
            self,
            Kind::ClusterTrustBundle | Kind::GatewayClass | Kind::IngressClass | Kind::Namespace
        )
    }

    /// Whether it is one of [`Self::GATEWAY_API`].
    pub fn is_of_gateway_api(self) -> bool {
        Kind::GATEWAY_API.contains(&self)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The kind, namespace and name of an object, which together identify it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind of the object.
    pub kind: Kind,
    /// The object within its kind.
    pub key: Key,
}

impl ObjectRef {
    /// Makes the name of both parts, which are not checked.
    pub fn new(kind: Kind, key: Key) -> Self {
        ObjectRef { kind, key }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
