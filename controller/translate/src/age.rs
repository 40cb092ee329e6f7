//! Which of two Ingresses decides where both say something.

use oxigress_objects::Key;

/// Which of two Ingresses decides: the older one, then the first by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age {
    /// metadata.creationTimestamp
    pub created: i64,
    /// The Ingress.
    pub key: Key,
}
