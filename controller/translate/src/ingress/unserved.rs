//! Paths of an Ingress, as far as they are not served.
//!
//! Where the Ingress restricts access, or the host does, a request for one of them would come to another path of the same
//! namespace, which may be open to everybody. What that closes is decided where the paths of a host meet.

use crate::annotation::{snippet, table};
use oxigress_core::model::HostPattern;
use oxigress_core::model::policy::script::{If, Step};
use oxigress_core::model::policy::{Access, Policies, Script};
use oxigress_core::patterns::leading_text;
use oxigress_objects::ingress::Ingress;
use oxigress_objects::small::SortedMap;
use oxigress_settings::Settings;
use std::collections::BTreeMap;

/// Most such paths of a host in an Ingress that are looked at one by one: no limit of paths bounds them.
const MOST: usize = 256;

/// A path that is invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct UnservedPath {
    /// What requests for it begin with: the path, or of a regular expression what all its matches begin with.
    pub beginning: Box<str>,
    /// How many bytes the Ingress writes.
    pub length: usize,
    /// It is a regular expression.
    pub is_regex: bool,
}

impl UnservedPath {
    /// One that an Ingress writes so.
    pub fn of(written: &str, is_regex: bool) -> Self {
        let beginning = if is_regex { leading_text(written) } else { written };
        UnservedPath { beginning: beginning.into(), length: written.len(), is_regex }
    }
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
    /// It restricts access to its paths.
    restricts: bool,
    /// Paths that nobody has looked at, on each of its hosts.
    is_unknown: bool,
    by_host: SortedMap<HostPattern, UnservedOn>,
}

/// The same, while an Ingress is read.
#[derive(Debug)]
pub(super) struct Draft {
    /// The Ingress restricts access to its paths.
    pub restricts: bool,
    /// It is no canary, whose paths are those of others.
    is_main: bool,
    pub is_unknown: bool,
    by_host: BTreeMap<HostPattern, UnservedOn>,
}

impl Draft {
    /// Of an Ingress that restricts access to its paths, or of another one; `is_main`: it is no canary.
    pub fn of(restricts: bool, is_main: bool) -> Self {
        Draft { restricts, is_main, is_unknown: false, by_host: BTreeMap::new() }
    }

    /// Adds a path of a host.
    pub fn add(&mut self, host: &HostPattern, path: UnservedPath) {
        let of_host = self.by_host.entry(host.clone()).or_default();
        match of_host.paths.len() < MOST {
            true => of_host.paths.push(path),
            false => of_host.has_more = true,
        }
    }

    /// `None`: everything is served.
    pub fn finish(self) -> Option<Box<Unserved>> {
        let Draft { restricts, is_main, is_unknown, by_host } = self;
        let is_any = is_main && (is_unknown || !by_host.is_empty());
        is_any.then(|| Box::new(Unserved { restricts, is_unknown, by_host: by_host.into() }))
    }
}

impl Unserved {
    /// Paths that nobody has looked at, of an Ingress that may restrict access to them or does not.
    pub(super) fn unknown(restricts: bool) -> Option<Box<Self>> {
        Draft { is_unknown: true, ..Draft::of(restricts, true) }.finish()
    }

    /// Whether there are paths that nobody has looked at, on each host. `or_host`: the host restricts access to them.
    pub fn is_unknown(&self, or_host: bool) -> bool {
        self.is_unknown && (self.restricts || or_host)
    }

    /// The paths of a host.
    pub fn on(&self, host: &HostPattern) -> Option<&UnservedOn> {
        self.by_host.get(host)
    }
}

/// Whether an Ingress that is not read may restrict who has access, by itself or by the ConfigMap.
pub(super) fn may_restrict(ingress: &Ingress, prefix: &str, settings: &Settings) -> bool {
    settings.defaults.policies.access.is_some()
        || has(ingress, prefix, |name, text| {
            table::restricts_access(name) && !is_harmless(name, text)
        })
}

/// Whether an Ingress that is not read may restrict who has access to whole hosts.
pub(super) fn may_hold_for_hosts(ingress: &Ingress, prefix: &str) -> bool {
    has(ingress, prefix, |name, text| match name {
        "auth-tls-secret" => true,
        "server-snippet" => !is_harmless(name, text),
        _ => false,
    })
}

/// Who has access to the paths of an Ingress.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restriction<'a> {
    access: Option<&'a Access>,
    /// The status that everybody gets.
    denied: Option<u16>,
    /// One that may refuse requests.
    script: Option<&'a Script>,
    /// The lists of networks are the host's.
    has_lists_of_host: bool,
}

impl<'a> Restriction<'a> {
    /// As policies say it.
    pub fn of(policies: &'a Policies) -> Self {
        let Policies { access, denied, script, .. } = policies;
        let script = script.as_deref().filter(|script| may_refuse(&script.steps, false));
        Restriction { access: access.as_ref(), denied: *denied, script, has_lists_of_host: false }
    }

    /// On a host that has lists of networks, or on another one.
    pub fn on(self, host_has_lists: bool) -> Self {
        let inherits = self.access.is_none_or(Access::inherits_lists);
        Restriction { has_lists_of_host: host_has_lists && inherits, ..self }
    }

    /// Everybody has access.
    pub fn is_none(&self) -> bool {
        let Restriction { access, denied, script, has_lists_of_host } = self;
        (access, denied, script, has_lists_of_host) == (&None, &None, &None, &false)
    }

    /// Nobody has access to what has this one who has none to what has the other.
    pub fn covers(&self, other: &Restriction<'_>) -> bool {
        self.denied.is_some()
            || other.denied.is_none()
                && (!other.has_lists_of_host || self.has_lists_of_host)
                && (other.script.is_none() || self.script == other.script)
                && other
                    .access
                    .is_none_or(|other| self.access.is_some_and(|own| covers(own, other)))
    }
}

/// Whether all that one list asks for is asked for by another one.
fn covers(own: &Access, other: &Access) -> bool {
    let Access { allow, deny, basic, external, any: _ } = other;
    // One of several is enough: more of them admit more.
    if own.any {
        return own == other;
    }
    let has = |is_asked: bool, is_same: bool| !is_asked || is_same;
    has(allow.is_some(), own.allow == *allow)
        && has(!deny.is_empty() && !other.has_other_way(), own.deny == *deny)
        && has(basic.is_some(), own.basic == *basic)
        && has(external.is_some(), own.external == *external)
}

/// Whether one of these steps may refuse a request. One that sends only some requests elsewhere, as to a page where people sign
/// in, refuses them.
fn may_refuse(steps: &[Step], is_within_if: bool) -> bool {
    steps.iter().any(|step| match step {
        Step::If(If { then, .. }) => may_refuse(then, true),
        // 204 answers preflights.
        Step::Answer(answer) => answer.code >= 400 || is_within_if && answer.code != 204,
        // What follows a break is for others, too.
        Step::Rewrite(_) | Step::Break => is_within_if,
        Step::Set(_) => false,
    })
}

fn is_harmless(name: &str, text: &str) -> bool {
    name.ends_with("-snippet")
        && !snippet::may_protect(name, text)
        && !snippet::leads_some_elsewhere(text)
}

fn has(ingress: &Ingress, prefix: &str, is_one: impl Fn(&str, &str) -> bool) -> bool {
    let mut all = ingress.annotations.iter();
    all.any(|(key, text)| {
        let name = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
        name.is_some_and(|name| is_one(name, text))
    })
}
