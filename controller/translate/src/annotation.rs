//! Annotations of an Ingress to typed values.
//!
//! Shape:   a file a group; [`table`] has a line for each annotation, [`reader`] reads one and knows the objects that
//!          annotations name. What they say about requests becomes [`Policies`], about TLS a part of a host's
//!          `TlsPolicy`.
//! Errors:  an invalid value is the default and noted. Where it *protects* the locations of the Ingress answer 503:
//!          a setting that keeps somebody out never opens by being wrong or unknown.
//! Source:  ingress-nginx's annotations.

mod access;
pub mod balancing;
pub mod canary;
mod cors;
mod mirror;
pub mod proxying;
mod reader;
mod redirects;
mod responses;
pub mod route;
pub mod snippet;
pub mod table;
mod tls;
mod tracing;

pub use reader::IngressContext;
pub use redirects::{Hosts, counterpart, is_of_names};
pub use snippet::{Common, ServerSnippet};
pub use tls::client::ClientTls;

use crate::claim::backend_ref::BackendRef;
use crate::patterns::Compiler;
use balancing::Balancing;
use canary::{Canary, Finished};
use oxigress_core::model::policy::{Access, Policies};
use oxigress_core::model::{Bundle, BundleId};
use oxigress_objects::ObjectRef;
use oxigress_objects::ingress::Tls;
use oxigress_objects::verdict::Note;
use oxigress_settings::Settings;
use reader::Reader;
use reader::value::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::old;

/// What the annotations of one Ingress say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// ssl-redirect, with the ConfigMap's default.
    pub ssl_redirect: bool,
    /// force-ssl-redirect, with the ConfigMap's default.
    pub force_ssl_redirect: bool,
    /// How endpoints are chosen, if it says anything about it.
    pub balancing: Option<Arc<Balancing>>,
    /// What the annotations canary* say.
    pub canary: Option<Box<Canary>>,
    /// What is decided per request, whatever the path.
    pub policies: Arc<Policies>,
    /// The Service that the annotation default-backend names.
    pub default_backend: Option<BackendRef>,
    /// The annotation use-regex.
    pub use_regex: bool,
    /// proxy-ssl-* asks for verification and cannot be honoured, also for other paths of its hosts.
    pub has_lost_upstream_tls: bool,
    /// Nobody knows whether it is a canary, so it is not served.
    pub is_refused: bool,
    /// What protects and cannot be honoured.
    pub closing: Option<String>,
}

/// What an Ingress says about its hosts as wholes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSettings {
    /// The entries of spec.tls, with their hosts in lower case.
    pub tls: Vec<Tls>,
    /// The names and redirects of the hosts.
    pub hosts: Hosts,
    /// How TLS is spoken with clients.
    pub client_tls: ClientTls,
    /// TLS connections go to the Service of the root unread.
    pub ssl_passthrough: bool,
    /// All locations answer 503, also those of other Ingresses.
    pub closes_host: bool,
    /// What its server-snippet says.
    pub server: Option<Arc<ServerSnippet>>,
    /// ingress-nginx would compare all paths as regular expressions.
    pub has_regex: bool,
}

impl HostSettings {
    /// It may restrict who has access to its hosts.
    pub fn may_restrict_access(&self) -> bool {
        self.client_tls.client.is_some()
            || self.server.as_ref().is_some_and(|server| server.protects)
    }
}

/// What there is to say about the annotations of one Ingress.
#[derive(Debug, Default)]
pub struct Read {
    /// What they say about its own paths.
    pub annotations: Annotations,
    /// What they say about its hosts.
    pub host: HostSettings,
    /// What is invalid or not honoured.
    pub notes: Vec<Note>,
    /// The objects that they name: a change of any may change what they say.
    pub referred: BTreeSet<ObjectRef>,
    /// The bundles that annotations and host settings name.
    pub bundles: BTreeMap<BundleId, Bundle>,
}

/// Reads all annotations with `prefix`.
pub fn parse(
    context: IngressContext<'_>,
    all: &BTreeMap<String, String>,
    prefix: &str,
    settings: &Settings,
    compiler: &mut Compiler<'_>,
) -> Read {
    let mut found = Annotations {
        ssl_redirect: settings.ssl_redirect,
        force_ssl_redirect: settings.force_ssl_redirect,
        ..Annotations::default()
    };
    let mut reader = Reader::new(context, prefix, all);
    reader.flag("ssl-redirect", &mut found.ssl_redirect);
    reader.flag("force-ssl-redirect", &mut found.force_ssl_redirect);
    let mut host = HostSettings::default();
    reader.flag("ssl-passthrough", &mut host.ssl_passthrough);
    let mut balancing = balancing::Draft::default();
    let mut canary = canary::Draft::default();
    for (name, text) in reader.all() {
        let notes = &mut reader.notes;
        if !balancing.take(Value { name, text, notes }) {
            canary.take(Value { name, text, notes }, compiler);
        }
    }
    let mut balancing = balancing.finish(&mut reader.notes);
    match canary.finish(&mut reader.notes) {
        Finished::Main => {}
        Finished::Unclear => found.is_refused = true,
        Finished::Canary(canary) => {
            found.canary = Some(canary);
            // Its paths are the main Ingress's, and so is what holds for them and what protects them.
            let mut without = others(&reader);
            without.extend(balancing.affinity.take().map(|_| "affinity"));
            if !without.is_empty() {
                reader.notes.push(Note::remark(format!(
                    "{} {} no effect on a canary: the main Ingress's values apply",
                    without.join(", "),
                    if without.len() == 1 { "has" } else { "have" }
                )));
            }
        }
    }
    found.balancing = (!balancing.is_silent()).then(|| Arc::new(balancing));
    if found.canary.is_none() && !found.is_refused {
        read_policies(&mut reader, &mut found, &mut host, compiler);
        name_unsupported(&mut reader);
    }
    reader.closing.dedup();
    found.closing = (!reader.closing.is_empty()).then(|| reader.closing.join(", "));
    let Reader { notes, referred, bundles, .. } = reader;
    Read { annotations: found, host, notes, referred, bundles }
}

/// What the annotations say about the names of hosts, as [`parse`] reads it; `None`: it is a canary, or may be one, and has no
/// names of its own.
pub fn names(
    context: IngressContext<'_>,
    all: &BTreeMap<String, String>,
    prefix: &str,
) -> Option<Hosts> {
    let mut reader = Reader::new(context, prefix, all);
    let mut canary = canary::Draft::default();
    for (name, text) in reader.all() {
        let value = Value { name, text, notes: &mut reader.notes };
        canary.take(value, &mut Compiler::over_budget());
    }
    let is_main = canary.finish(&mut reader.notes) == Finished::Main;
    is_main.then(|| redirects::names(&mut reader))
}

fn read_policies(
    reader: &mut Reader<'_>,
    found: &mut Annotations,
    host: &mut HostSettings,
    compiler: &mut Compiler<'_>,
) {
    let mut policies = reader.context.defaults.policies.clone();
    reader.flag("use-regex", &mut found.use_regex);
    host.hosts = redirects::read(reader, &mut policies);
    proxying::read(reader, &mut policies);
    found.has_lost_upstream_tls = tls::upstream::read(reader, &mut policies);
    let mut access = policies.access.take().unwrap_or_default();
    access::read(reader, &mut access);
    access::external_auth::read(reader, &mut access);
    // The ConfigMap's auth server has a snippet of the ConfigMap.
    let has_auth = reader.has("auth-url");
    policies.access = Some(access).filter(|access| *access != Access::default());
    access::limits::read(reader, &mut policies);
    cors::read(reader, &mut policies);
    found.default_backend = responses::read(reader, &mut policies);
    tracing::read(reader, &mut policies);
    mirror::read(reader, &mut policies);
    host.client_tls = tls::client::read(reader, compiler);
    let snippets = snippet::read(reader, has_auth, &mut policies, compiler);
    (host.closes_host, host.server) = (snippets.closes_host, snippets.server);
    host.has_regex = found.use_regex || policies.rewrite.is_some();
    found.policies = Arc::new(policies);
}

/// Annotations that say nothing about balancing and canaries.
fn others<'a>(reader: &Reader<'a>) -> Vec<&'a str> {
    let is_other = |name: &&str| {
        table::find(name).is_none_or(|row| {
            use table::Group::{Balancing, Canary};
            !matches!(row.group, Balancing | Canary)
                && !row.name.starts_with("ssl-")
                && !row.name.ends_with("ssl-redirect")
        })
    };
    reader.all().map(|(name, _)| name).filter(is_other).collect()
}

/// What is not honoured, beside snippets, which say it themselves.
fn name_unsupported(reader: &mut Reader<'_>) {
    let mut unknown = Vec::new();
    for (name, text) in reader.all() {
        if table::find(name).is_none()
            && !table::protects(name)
            && let Some(old) = old::find(name)
        {
            name_old(reader, name, text, old);
            continue;
        }
        match table::find(name) {
            Some(row) if row.group == table::Group::Snippets => {}
            Some(table::Row { status: table::Status::Unsupported(why), .. }) => {
                // Switched off, as it is anyway.
                if text != "false" {
                    reader.warn(name, &format!("not supported: {why}"));
                }
            }
            Some(_) => {}
            None if table::protects(name) => {
                let remedy = match table::nearest(name) {
                    Some(nearest) => format!("did you mean {nearest}? Correct or remove it"),
                    None => "remove it".into(),
                };
                reader.close(
                    name,
                    "it is unknown, and its name suggests that it restricts access",
                    &remedy,
                );
            }
            None => unknown.push(match table::nearest(name) {
                Some(nearest) => format!("{name} (did you mean {nearest}?)"),
                None => name.to_owned(),
            }),
        }
    }
    if !unknown.is_empty() {
        let names = oxigress_core::model::shorten(&unknown.join(", ")).to_owned();
        reader.notes.push(Note::warning(format!("unknown annotations are ignored: {names}")));
    }
}

/// A name that was an annotation, or is a key of the ConfigMap. One that is off asks for nothing.
fn name_old(reader: &mut Reader<'_>, name: &str, text: &str, old: old::Old) {
    let message = match old {
        _ if text == "false" => return,
        old::Old::Anyway => return,
        old::Old::For(new, value) if reader.has(new) => {
            format!(
                "it is a former name of {new}, which is set and takes precedence: remove it (its value means {value})"
            )
        }
        old::Old::For(new, value) if text == "true" => {
            format!("it is an old name, taken as {new}: {value}: write that")
        }
        old::Old::For(new, value) => {
            format!("{text:?} is not true: write {new}: {value} if it is meant")
        }
        old::Old::Gone(what) => format!("has no effect, {what}"),
        old::Old::Key => {
            "has no effect: it is a key of the main ConfigMap (--configmap)".to_owned()
        }
    };
    reader.warn(name, &message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patterns::Compiler;
    use oxigress_objects::{ConfigMap, Key, World};
    use oxigress_settings::Defaults;

    fn parsed(name: &str, value: &str) -> (Annotations, Vec<Note>) {
        let all = BTreeMap::from([(format!("x.io/{name}"), value.to_owned())]);
        read(&all)
    }

    fn read(all: &BTreeMap<String, String>) -> (Annotations, Vec<Note>) {
        read_with(&Defaults::default(), all)
    }

    fn read_with(defaults: &Defaults, all: &BTreeMap<String, String>) -> (Annotations, Vec<Note>) {
        let (world, ingress) = (World::default(), Key::new("n", "a"));
        let context =
            IngressContext { world: &world, ingress: &ingress, defaults, https_port: 443 };
        let settings = Settings::default();
        let read = parse(context, all, "x.io", &settings, &mut Compiler::new([]));
        (read.annotations, read.notes)
    }

    #[test]
    fn an_invalid_boolean_leaves_the_default() {
        let (found, notes) = parsed("ssl-redirect", "no");
        assert!(found.ssl_redirect);
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn what_protects_and_is_invalid_closes_and_what_does_not_is_the_default() {
        for (name, text) in [
            ("auth-url", "x"),
            ("auth-url", "http://$nginx_version/"),
            ("auth-type", "digest"),
            ("auth-tls-secret", "n/b"),
            ("auth-tls-match-cn", "x"),
            ("limit-rps", "x"),
            ("limit-connections", "-1"),
            ("denylist-source-range", ""),
            ("whitelist-source-range", "10.0.0.0/33"),
            ("allowlist-source-range", "10.0.0.1,x"),
            ("server-snippet", "deny all;"),
            ("auth-of-tomorrow", "x"),
        ] {
            let (found, notes) = parsed(name, text);
            assert_eq!(found.closing.as_deref(), Some(name), "{text}");
            assert!(
                notes
                    .iter()
                    .any(|note| note.severity == oxigress_objects::verdict::Severity::Rejected)
            );
        }
        for (name, text) in
            [("proxy-body-size", "8mb"), ("limit-rps", "0"), ("rewrite-target", "x")]
        {
            let (found, _) = parsed(name, text);
            assert_eq!((found.closing, &*found.policies), (None, &Policies::default()), "{name}");
        }
    }

    #[test]
    fn a_value_over_the_limit_is_the_default_or_closes() {
        let long = "a".repeat(65 * 1024);
        assert_eq!(parsed("rewrite-target", &long).0.closing, None);
        assert!(parsed("auth-url", &long).0.closing.is_some());
    }

    #[test]
    fn an_alias_counts_while_the_first_name_says_nothing() {
        let both = |first: &str, alias: &str| {
            let all = [("allowlist-source-range", first), ("whitelist-source-range", alias)];
            let all = all.map(|(name, text)| (format!("x.io/{name}"), text.to_owned()));
            let found = read(&BTreeMap::from(all)).0;
            let access = found.policies.access.clone();
            (found.closing.is_some(), access.and_then(|a| a.allow).map(|all| all[0].to_string()))
        };
        assert_eq!(both("", "10.0.0.1"), (false, Some("10.0.0.1/32".into())));
        assert_eq!(both("10.0.0.2", "10.0.0.1"), (false, Some("10.0.0.2/32".into())));
        assert!(both("", "").0);
    }

    #[test]
    fn what_an_auth_server_is_asked_has_no_variables_of_a_snippet() {
        let mut world = World::default();
        let map = ConfigMap { data: [("X-A".into(), "${snippet_s_token}".into())].into() };
        world.config_maps.insert(Key::new("n", "headers"), std::sync::Arc::new(map));
        let all = [
            ("x.io/auth-url", "http://a.test/"),
            ("x.io/auth-cache-key", "$snippet_s_token"),
            ("x.io/auth-proxy-set-headers", "headers"),
        ];
        let all = all.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let (ingress, defaults) = (Key::new("n", "a"), Defaults::default());
        let context = IngressContext {
            world: &world,
            ingress: &ingress,
            defaults: &defaults,
            https_port: 443,
        };
        let read = parse(context, &all, "x.io", &Settings::default(), &mut Compiler::new([]));
        assert_eq!(read.annotations.closing.as_deref(), Some("auth-proxy-set-headers"));
        let json = serde_json::to_string(&*read.annotations.policies).unwrap();
        assert!(json.contains("a.test") && !json.contains("snippet_"), "{json}");
    }

    #[test]
    fn details_of_the_auth_server_that_are_empty_are_absent() {
        let bare = [("auth-url", "http://10.0.0.1/"), ("auth-cache-key", "$host")];
        let empty = access::external_auth::DETAILS.iter().filter(|name| **name != "auth-cache-key");
        let full = bare.iter().copied().chain(empty.map(|name| (*name, " ")));
        let read_all = |all: Vec<(&str, &str)>| {
            let all = all.iter().map(|(name, text)| (format!("x.io/{name}"), (*text).to_owned()));
            read(&all.collect())
        };
        assert_eq!(read_all(full.collect()), read_all(bare.to_vec()));
        assert!(read_all(bare.to_vec()).0.closing.is_none());
    }

    #[test]
    fn the_configmap_s_retries_of_every_method_hold_beside_the_annotation_s_conditions() {
        use oxigress_core::model::policy::Condition::{Error, Http502, NonIdempotent};
        let flag = [("retry-non-idempotent".to_owned(), "true".to_owned())];
        let map = oxigress_objects::ConfigMap { data: flag.into() };
        let retrying = oxigress_settings::parse(Some(&map), &BTreeMap::new()).0.defaults;
        for (text, expected) in [
            ("error http_502", vec![Error, Http502, NonIdempotent]),
            ("non_idempotent error", vec![NonIdempotent, Error]),
            ("off", vec![]),
        ] {
            let all = [("x.io/proxy-next-upstream".to_owned(), text.to_owned())].into();
            let (found, notes) = read_with(&retrying, &all);
            let found = found.policies.proxy.as_ref().and_then(|proxy| proxy.next_upstream.clone());
            assert_eq!((found, notes), (Some(expected), vec![]), "{text}");
        }
    }

    #[test]
    fn an_auth_snippet_closes_beside_its_auth_url_where_snippets_are_not_allowed() {
        let asked = [("global-auth-url".to_owned(), "http://10.0.0.1/".to_owned())];
        let map = oxigress_objects::ConfigMap { data: asked.into() };
        let global = oxigress_settings::parse(Some(&map), &BTreeMap::new()).0.defaults;
        let allowing = Defaults { allows_snippets: true, ..Defaults::default() };
        for (defaults, more, is_closed) in [
            (&Defaults::default(), None, false),
            (&Defaults::default(), Some(("auth-url", "http://10.0.0.1/")), true),
            // The ConfigMap's auth server has a snippet of the ConfigMap.
            (&global, None, false),
            (&global, Some(("auth-url", "http://10.0.0.1/")), true),
            (&global, Some(("enable-global-auth", "false")), false),
            (&allowing, Some(("auth-url", "http://10.0.0.1/")), false),
        ] {
            let snippet = ("auth-snippet", "proxy_set_header X-A b;");
            let all = [snippet].into_iter().chain(more);
            let all = all.map(|(name, text)| (format!("x.io/{name}"), text.to_owned())).collect();
            let (found, notes) = read_with(defaults, &all);
            let count = usize::from(!defaults.allows_snippets);
            assert_eq!((found.closing.is_some(), notes.len()), (is_closed, count), "{more:?}");
        }
    }

    #[test]
    fn foreign_prefixes_are_not_read() {
        let all = BTreeMap::from([("y.io/auth-url".to_owned(), "x".to_owned())]);
        assert_eq!(read(&all).1, []);
    }
}
