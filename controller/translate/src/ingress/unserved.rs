//! Paths of an Ingress that restricts access, as far as they are not served.
//!
//! A request for one of them would come to another path of the same namespace, which may be open to everybody. What that
//! closes is decided where the paths of a host meet.

use crate::annotation::table;
use oxigress_core::model::HostPattern;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::small::SortedMap;
use oxigress_settings::Settings;
use std::collections::BTreeMap;

/// Most such paths of an Ingress that are looked at one by one: no limit of paths bounds them.
const MOST: usize = 256;

/// A path that is not served.
#[derive(Clone, Debug, PartialEq)]
pub struct UnservedPath {
    /// As the Ingress writes it, in lower case.
    pub text: Box<str>,
    /// It is a regular expression.
    pub is_regex: bool,
}

/// The paths of a host that are not served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnservedOn {
    /// Those that are looked at one by one.
    pub paths: Vec<UnservedPath>,
    /// There are more.
    pub has_more: bool,
}

/// What an Ingress has that is not served.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unserved {
    /// Paths that nobody has looked at, on each of its hosts.
    is_unknown: bool,
    by_host: SortedMap<HostPattern, UnservedOn>,
}

/// The same, while an Ingress is read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub is_unknown: bool,
    count: usize,
    by_host: BTreeMap<HostPattern, UnservedOn>,
}

impl Draft {
    /// Adds a path of a host.
    pub fn add(&mut self, host: &HostPattern, written: &str, is_regex: bool) {
        self.count += 1;
        let of_host = self.by_host.entry(host.clone()).or_default();
        if self.count > MOST {
            of_host.has_more = true;
            return;
        }
        let text = written.to_ascii_lowercase().into();
        of_host.paths.push(UnservedPath { text, is_regex });
    }

    /// `None`: everything is served.
    pub fn finish(self) -> Option<Box<Unserved>> {
        let Draft { is_unknown, by_host, .. } = self;
        let is_any = is_unknown || !by_host.is_empty();
        is_any.then(|| Box::new(Unserved { is_unknown, by_host: by_host.into() }))
    }
}

impl Unserved {
    /// Paths that nobody has looked at.
    pub(super) fn unknown() -> Option<Box<Self>> {
        Draft { is_unknown: true, ..Draft::default() }.finish()
    }

    /// Whether there are paths that nobody has looked at, on each host.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The paths of a host.
    pub fn on(&self, host: &HostPattern) -> Option<&UnservedOn> {
        self.by_host.get(host)
    }
}

/// Whether an Ingress that is not read may restrict who has access, by itself or by the ConfigMap.
pub(super) fn may_restrict(ingress: &Ingress, prefix: &str, settings: &Settings) -> bool {
    settings.defaults.policies.access.is_some() || has(ingress, prefix, table::restricts_access)
}

/// Whether an Ingress may restrict who has access to whole hosts.
pub(super) fn holds_for_hosts(ingress: &Ingress, prefix: &str) -> bool {
    has(ingress, prefix, |name| ["auth-tls-secret", "server-snippet"].contains(&name))
}

fn has(ingress: &Ingress, prefix: &str, is_one: impl Fn(&str) -> bool) -> bool {
    let names = ingress.annotations.keys();
    let mut names = names.filter_map(|key| key.strip_prefix(prefix)?.strip_prefix('/'));
    names.any(is_one)
}
