//! Annotations of an Ingress to typed values.
//!
//! Source:  compat/annotations.md: §1 for the common rules, §3 for ssl-redirect and force-ssl-redirect.
//!
//! What is not honoured yet is listed once an Ingress. A *protecting* annotation among them closes the
//! locations of its Ingress: a setting that keeps somebody out never opens by being unknown.

use super::settings::Settings;
use crate::verdict::Note;
use std::collections::BTreeMap;

/// What the annotations of one Ingress say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// ssl-redirect, with the ConfigMap's default.
    pub ssl_redirect: bool,
    /// force-ssl-redirect, with the ConfigMap's default.
    pub force_ssl_redirect: bool,
    /// canary.
    pub is_canary: bool,
    /// A raw snippet is there: the Ingress is not served.
    pub has_snippet: bool,
    /// A protecting annotation that is not honoured yet.
    pub closing: Option<String>,
    /// One of them holds for the whole host, whichever Ingress its other locations come from.
    pub closes_host: bool,
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
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
    for (key, value) in all {
        let Some(name) = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')) else {
            continue;
        };
        let mut flag = |into: &mut bool| match parse_bool(value) {
            Some(flag) => *into = flag,
            None => notes.push(Note::warning(format!(
                "annotation {name}: {value:?} is not true or false: the default is used"
            ))),
        };
        match name {
            "ssl-redirect" => flag(&mut found.ssl_redirect),
            "force-ssl-redirect" => flag(&mut found.force_ssl_redirect),
            "canary" => flag(&mut found.is_canary),
            name if name.ends_with("-snippet") => snippets.push(name),
            name if is_protecting(name) => {
                found.closes_host |= name.starts_with("auth-tls-");
                protecting.push(name);
            }
            name => unsupported.push(name),
        }
    }
    if !snippets.is_empty() {
        found.has_snippet = true;
        notes.push(Note::rejected(format!(
            "raw snippets are never passed to nginx, so this Ingress is not served: remove {}",
            snippets.join(", ")
        )));
    }
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
    fn booleans_are_read_as_go_reads_them() {
        for text in ["yes", "on", "tRUE", " true", ""] {
            assert_eq!(parse_bool(text), None, "{text:?}");
        }
        assert_eq!(parse_bool("T"), Some(true));
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
