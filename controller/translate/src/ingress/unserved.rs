//! Paths of an Ingress that restricts access, as far as they are not served.
//!
//! A request for one of them would come to a wider path of the same namespace, which may be open to everybody. What that
//! closes is decided where the paths of a host meet.

use crate::annotation::table;
use oxigress_core::model::HostPattern;
use oxigress_core::patterns::leading_text;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::small::SortedMap;
use std::collections::BTreeMap;

/// What an Ingress has that is not served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unserved {
    /// Paths that nobody has looked at, on each of its hosts.
    is_unknown: bool,
    by_host: SortedMap<HostPattern, Box<[Box<str>]>>,
}

/// The same, while an Ingress is read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub is_unknown: bool,
    by_host: BTreeMap<HostPattern, Vec<Box<str>>>,
}

impl Draft {
    /// Adds a path of a host; of an expression, the letters that it begins with count.
    pub fn add(&mut self, host: &HostPattern, written: &str, is_regex: bool) {
        let text = if is_regex { leading_text(written) } else { written };
        self.by_host.entry(host.clone()).or_default().push(text.to_ascii_lowercase().into());
    }

    /// `None`: everything is served.
    pub fn finish(self) -> Option<Box<Unserved>> {
        let Draft { is_unknown, by_host } = self;
        let by_host: BTreeMap<_, _> =
            by_host.into_iter().map(|(host, all)| (host, all.into())).collect();
        let is_any = is_unknown || !by_host.is_empty();
        is_any.then(|| Box::new(Unserved { is_unknown, by_host: by_host.into() }))
    }
}

impl Unserved {
    /// Paths that nobody has looked at.
    pub(super) fn unknown() -> Option<Box<Self>> {
        Draft { is_unknown: true, ..Draft::default() }.finish()
    }

    /// Whether there are paths that nobody has looked at.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The paths of a host in lower case.
    pub fn on(&self, host: &HostPattern) -> &[Box<str>] {
        self.by_host.get(host).map_or(&[], |all| all)
    }
}

/// Whether an annotation of an Ingress keeps somebody out.
pub(super) fn protects(ingress: &Ingress, prefix: &str) -> bool {
    let mut names = ingress.annotations.keys();
    names.any(|key| {
        let name = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(table::protects)
    })
}
