//! How an object is named: kind, namespace, name.

use std::fmt;

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for IngressClass and Namespace, which have none.
    pub namespace: String,
    /// Unique within kind and namespace.
    pub name: String,
}

impl Key {
    /// Both parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
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
    ConfigMap,
    EndpointSlice,
    Ingress,
    IngressClass,
    Namespace,
    Secret,
    Service,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// What it is.
    pub kind: Kind,
    /// Which one.
    pub key: Key,
}

impl ObjectRef {
    /// Both parts.
    pub fn new(kind: Kind, key: Key) -> Self {
        ObjectRef { kind, key }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
