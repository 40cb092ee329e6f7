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
    /// The field spec.ingressClassName of the object.
    pub class: Option<String>,
    /// The field spec.defaultBackend of the object.
    pub default_backend: Option<Target>,
    /// The field spec.rules of the object.
    pub rules: Vec<Rule>,
    /// The field spec.tls of the object.
    pub tls: Vec<Tls>,
}

impl Ingress {
    /// How many paths its rules have.
    pub fn count_paths(&self) -> usize {
        self.rules.iter().map(|rule| rule.paths.len()).sum()
    }
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
    /// How the path is compared with that of a request.
    pub path_type: PathType,
    /// The Service and port that requests go to.
    pub target: Target,
}

impl Path {
    /// The path that it means.
    pub fn written(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathType {
    /// The paths are equal byte for byte.
    Exact,
    /// The path is equal or lies below, by whole segments.
    Prefix,
    /// As [`Self::Prefix`], and the text may be anything.
    #[default]
    ImplementationSpecific,
}

/// What an Ingress points to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A Service of the same namespace and one of its ports.
    Service {
        /// The name of the Service.
        name: String,
        /// The port as the Ingress writes it.
        port: Port,
    },
    /// Something else, which is not served: its kind and name.
    Resource(String),
}

/// A port as an Ingress writes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// The field port.number.
    Number(u16),
    /// The field port.name.
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

/// An entry of spec.tls: hosts and the Secret with their certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The text as the user wrote it.
    pub hosts: Vec<String>,
    /// Empty if none is named.
    pub secret: String,
}

/// Who serves Ingresses of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressClass {
    /// The field spec.controller of the object.
    pub controller: String,
}
