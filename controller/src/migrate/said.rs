//! What the annotations of one Ingress say, sorted by what says it in the Gateway API.

use super::{Notes, hosts};
use oxigress_core::model::HostPattern;
use oxigress_objects::Key;
use oxigress_objects::ingress::Ingress;
use oxigress_settings::Settings;
use oxigress_settings::grammar::parse_bool;
use oxigress_translate::annotation::route;
use oxigress_translate::annotation::table::{self, Group, Status};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// When plain HTTP is redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHttps {
    Never,
    WithCertificate,
    Always,
}

/// What an Ingress says beside its paths.
#[derive(Debug)]
pub struct Said<'w> {
    pub key: &'w Key,
    pub ingress: &'w Ingress,
    /// Without their prefix.
    pub annotations: BTreeMap<&'w str, &'w str>,
    pub is_canary: bool,
    pub to_https: ToHttps,
    pub use_regex: bool,
    pub rewrite: Option<&'w str>,
    pub app_root: Option<&'w str>,
    pub from_to_www: bool,
    pub aliases: BTreeSet<HostPattern>,
    /// What its Policy says.
    pub policy: Map<String, Value>,
}

impl<'w> Said<'w> {
    /// Reads them; `None`: the Ingress is left out.
    pub fn of(
        key: &'w Key,
        ingress: &'w Ingress,
        settings: &Settings,
        prefix: &str,
        notes: &mut Notes,
    ) -> Option<Self> {
        let own = ingress.annotations.iter();
        let annotations: BTreeMap<&str, &str> = own
            .filter_map(|(name, text)| {
                Some((name.strip_prefix(prefix)?.strip_prefix('/')?, text.trim()))
            })
            .collect();
        name_foreign(key, ingress, prefix, notes);
        if let Some(why) = unsayable(&annotations) {
            notes.lost(key, format!("left out as a whole: {why}"));
            return None;
        }
        let flag = |name: &str| annotations.get(name).and_then(|text| parse_bool(text));
        let is_always = flag("force-ssl-redirect").unwrap_or(settings.force_ssl_redirect);
        let to_https = match flag("ssl-redirect").unwrap_or(settings.ssl_redirect) {
            _ if is_always => ToHttps::Always,
            true => ToHttps::WithCertificate,
            false => ToHttps::Never,
        };
        let filled = |name: &str| annotations.get(name).copied().filter(|text| !text.is_empty());
        let names = annotations.get("server-alias").copied().unwrap_or_default().split(',');
        let aliases = names.map(str::trim).filter(|name| !name.is_empty());
        let mut said = Said {
            key,
            ingress,
            is_canary: flag("canary") == Some(true),
            to_https,
            use_regex: flag("use-regex") == Some(true),
            rewrite: filled("rewrite-target"),
            app_root: filled("app-root"),
            from_to_www: flag("from-to-www-redirect") == Some(true),
            aliases: aliases.filter_map(hosts::parse).collect(),
            policy: Map::new(),
            annotations,
        };
        said.read_policy(notes);
        Some(said)
    }

    /// The hosts of its rules.
    pub fn hosts(&self) -> BTreeSet<HostPattern> {
        self.ingress.rules.iter().filter_map(|rule| hosts::parse(&rule.host)).collect()
    }

    /// Whether its redirects to HTTPS keep a slash at the end, as those of routes do.
    pub fn keeps_slash(&self) -> bool {
        self.annotations.get("preserve-trailing-slash").and_then(|text| parse_bool(text))
            == Some(true)
    }

    /// Whether it says how endpoints are chosen.
    pub fn balances(&self) -> bool {
        self.annotations
            .keys()
            .any(|name| table::find(name).is_some_and(|row| row.group == Group::Balancing))
    }

    fn read_policy(&mut self, notes: &mut Notes) {
        for (name, text) in &self.annotations {
            let row = table::find(name);
            let field = format!("annotation {name}");
            match row {
                Some(row) if is_said_elsewhere(row.name) || row.group == Group::Canary => {}
                Some(row)
                    if matches!(row.status, Status::Unsupported(_)) && !table::protects(name) =>
                {
                    if *text != "false" {
                        notes.lost(self.key, format!("{field}: it is not honoured today either"));
                    }
                }
                Some(_) if self.is_canary => {
                    notes.different(
                        self.key,
                        format!("{field}: of a canary it counts neither before nor after"),
                    );
                }
                Some(row) if route::refusal(row.name).is_some() => {
                    let why = route::refusal(row.name).unwrap_or_default();
                    notes.lost(self.key, format!("{field}: {why}"));
                }
                Some(row) if route::is_flag(row.name) => match parse_bool(text) {
                    Some(flag) => drop(self.policy.insert(row.name.into(), json!(flag))),
                    None => notes.lost(self.key, format!("{field}: {text:?} is no boolean")),
                },
                Some(row) => drop(self.policy.insert(row.name.into(), json!(text))),
                None if table::protects(name) => {
                    self.policy.insert((*name).into(), json!(text));
                }
                None => notes.lost(self.key, format!("{field}: it is unknown")),
            }
        }
    }
}

/// Annotations that become something else than a field of a Policy.
fn is_said_elsewhere(name: &str) -> bool {
    matches!(
        name,
        "app-root"
            | "force-ssl-redirect"
            | "from-to-www-redirect"
            | "preserve-trailing-slash"
            | "rewrite-target"
            | "server-alias"
            | "ssl-redirect"
            | "use-regex"
    )
}

/// What no route says, and keeps somebody out or moves the whole host elsewhere.
fn unsayable(annotations: &BTreeMap<&str, &str>) -> Option<String> {
    for (name, text) in annotations {
        let why = match *name {
            "auth-tls-secret" => "client certificates are not asked for by routes",
            "server-snippet" => "it holds for a whole host",
            "ssl-passthrough" if parse_bool(text) == Some(true) => {
                "write a TLSRoute at a listener with tls.mode: Passthrough"
            }
            _ => continue,
        };
        return Some(format!("annotation {name}: {why}"));
    }
    None
}

/// Whether an Ingress that is left out may protect its hosts as wholes.
pub fn guards_host(ingress: &Ingress, prefix: &str) -> bool {
    let mut names = ["auth-tls-secret", "server-snippet"].iter();
    names.any(|name| ingress.annotations.contains_key(&format!("{prefix}/{name}")))
}

/// Annotations of other programs, which look for them at a Gateway or a route.
fn name_foreign(key: &Key, ingress: &Ingress, prefix: &str, notes: &mut Notes) {
    let names = ingress.annotations.keys().filter(|name| {
        let before = name.split_once('/').map(|(before, _)| before).unwrap_or_default();
        before != prefix
            && !before.ends_with("kubectl.kubernetes.io")
            && *name != "kubernetes.io/ingress.class"
    });
    let names: Vec<_> = names.map(String::as_str).collect();
    if !names.is_empty() {
        notes.lost(
            key,
            format!(
                "annotations of other programs, which may want them at the Gateway or route: {}",
                names.join(", ")
            ),
        );
    }
}
