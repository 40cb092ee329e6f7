//! Ingress and IngressClass as translate reads them.

use std::collections::BTreeMap;
use std::fmt;

/// Rules of one object. Texts are as the user wrote them: translate checks and reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// Seconds since 1970; an object without a timestamp counts as oldest, so that among the objects of
    /// a folder, which have none, the name decides.
    pub created: i64,
    /// All of them, also those with foreign prefixes.
    pub annotations: BTreeMap<String, String>,
    /// spec.ingressClassName.
    pub class: Option<String>,
    /// spec.defaultBackend.
    pub default_backend: Option<Target>,
    /// spec.rules.
    pub rules: Vec<Rule>,
    /// spec.tls.
    pub tls: Vec<Tls>,
}

/// A host and its paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Empty: hosts that no other rule names.
    pub host: String,
    /// Empty also for a rule without an `http` section.
    pub paths: Vec<Path>,
}

/// A path and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// As written; empty means `/`.
    pub path: String,
    /// How it is compared.
    pub path_type: PathType,
    /// Where it leads.
    pub target: Target,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathType {
    /// Byte for byte.
    Exact,
    /// By whole segments.
    Prefix,
    /// As [`Self::Prefix`], and the text may be anything.
    #[default]
    ImplementationSpecific,
}

/// What an Ingress points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Service of the same namespace and one of its ports.
    Service {
        /// Its name.
        name: String,
        /// The port as written.
        port: Port,
    },
    /// Something else, which is not served: its kind and name.
    Resource(String),
}

/// A port as an Ingress writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// port.number
    Number(u16),
    /// port.name
    Name(String),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Port::Number(number) => write!(f, "{number}"),
            Port::Name(name) => f.write_str(name),
        }
    }
}

/// One entry of spec.tls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// As written.
    pub hosts: Vec<String>,
    /// Empty if none is named.
    pub secret: String,
}

/// Who serves Ingresses of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressClass {
    /// spec.controller.
    pub controller: String,
}
