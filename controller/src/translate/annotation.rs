//! Annotations of an Ingress to typed values.
//!
//! Source:  compat/annotations.md: §1 for the common rules, §3 for ssl-redirect and force-ssl-redirect.
//!
//! [`balancing`] and [`canary`] hold the two groups that say something together.
//!
//! What is not honoured yet is listed once an Ingress. A *protecting* annotation among them closes the
//! locations of its Ingress: a setting that keeps somebody out never opens by being unknown.

pub mod balancing;
pub mod canary;
mod value;

pub use value::parse_bool;

use super::settings::Settings;
use crate::verdict::Note;
use balancing::Balancing;
use canary::{Canary, Finished};
use std::collections::BTreeMap;
use std::sync::Arc;
use value::Value;

/// What the annotations of one Ingress say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// ssl-redirect, with the ConfigMap's default.
    pub ssl_redirect: bool,
    /// force-ssl-redirect, with the ConfigMap's default.
    pub force_ssl_redirect: bool,
    /// ssl-passthrough.
    pub ssl_passthrough: bool,
    /// How endpoints are chosen, if it says anything about it.
    pub balancing: Option<Arc<Balancing>>,
    /// canary*.
    pub canary: Option<Box<Canary>>,
    /// The Ingress is not served: it has a raw snippet, or nobody knows whether it is a canary.
    pub is_refused: bool,
    /// A protecting annotation that is not honoured yet.
    pub closing: Option<String>,
    /// One of them holds for the whole host, whichever Ingress its other locations come from.
    pub closes_host: bool,
}

/// Reads all annotations with `prefix`; notes what is invalid or not honoured.
pub fn parse(
    all: &BTreeMap<String, String>,
    prefix: &str,
    settings: &Settings,
) -> (Annotations, Vec<Note>) {
    let mut found = Annotations {
        ssl_redirect: settings.ssl_redirect,
        force_ssl_redirect: settings.force_ssl_redirect,
        ..Annotations::default()
    };
    let mut notes = Vec::new();
    let mut unsupported = Vec::new();
    let mut protecting = Vec::new();
    let mut snippets = Vec::new();
    let mut balancing = balancing::Draft::default();
    let mut canary = canary::Draft::default();
    for (key, text) in all {
        let Some(name) = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        if balancing.take(Value { name, text, notes: &mut notes })
            || canary.take(Value { name, text, notes: &mut notes })
        {
            continue;
        }
        let value = Value { name, text, notes: &mut notes };
        match name {
            "ssl-redirect" => value.flag(&mut found.ssl_redirect),
            "force-ssl-redirect" => value.flag(&mut found.force_ssl_redirect),
            "ssl-passthrough" => value.flag(&mut found.ssl_passthrough),
            name if name.ends_with("-snippet") => snippets.push(name),
            name if is_protecting(name) => {
                found.closes_host |= name.starts_with("auth-tls-");
                protecting.push(name);
            }
            name => unsupported.push(name),
        }
    }
    if !snippets.is_empty() {
        found.is_refused = true;
        notes.push(Note::rejected(format!(
            "raw snippets are never passed to nginx, so this Ingress is not served: remove {}",
            snippets.join(", ")
        )));
    }
    let mut balancing = balancing.finish(&mut notes);
    match canary.finish(&mut notes) {
        Finished::Main => {}
        Finished::Unclear => found.is_refused = true,
        Finished::Canary(canary) => {
            found.canary = Some(canary);
            // Its paths are the main Ingress's, and so is what holds for them and what protects them.
            let mut without = std::mem::take(&mut unsupported);
            without.append(&mut protecting);
            without.extend(balancing.affinity.take().map(|_| "affinity"));
            found.closes_host = false;
            if !without.is_empty() {
                notes.push(Note::remark(format!(
                    "on a canary there is no effect of {}: what the main Ingress says holds",
                    without.join(", ")
                )));
            }
        }
    }
    found.balancing = (!balancing.is_silent()).then(|| Arc::new(balancing));
    if !protecting.is_empty() {
        found.closing = Some(protecting.join(", "));
        notes.push(Note::rejected(format!(
            "annotations that protect and are not supported yet, so its locations answer 503: {}: remove \
             them to open it",
            protecting.join(", ")
        )));
    }
    if !unsupported.is_empty() {
        notes.push(Note::warning(format!(
            "annotations not supported yet, served without them: {}",
            unsupported.join(", ")
        )));
    }
    (found, notes)
}

fn is_protecting(name: &str) -> bool {
    name.starts_with("auth-")
        || name.starts_with("limit-")
        || matches!(
            name,
            "whitelist-source-range" | "allowlist-source-range" | "denylist-source-range"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, value: &str) -> (Annotations, Vec<Note>) {
        let all = BTreeMap::from([(format!("x.io/{name}"), value.to_owned())]);
        parse(&all, "x.io", &Settings::default())
    }

    #[test]
    fn an_invalid_boolean_leaves_the_default() {
        let (found, notes) = parsed("ssl-redirect", "no");
        assert!(found.ssl_redirect);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn what_protects_closes_and_what_does_not_is_only_named() {
        for name in ["auth-url", "auth-tls-secret", "limit-rps", "denylist-source-range"] {
            assert_eq!(parsed(name, "x").0.closing.as_deref(), Some(name));
        }
        assert_eq!(parsed("proxy-body-size", "8m").0.closing, None);
    }

    #[test]
    fn foreign_prefixes_are_not_read() {
        let all = BTreeMap::from([("y.io/auth-url".to_owned(), "x".to_owned())]);
        assert_eq!(parse(&all, "x.io", &Settings::default()).1, []);
    }
}
