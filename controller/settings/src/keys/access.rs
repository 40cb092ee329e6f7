//! Access control for all hosts. A setting that denies access and cannot be honoured closes every location.

use crate::Settings;
use crate::form::{Form, Value, any, network};
use crate::key::{How, Key, key};
use ipnet::IpNet;
use oxigress_core::model::policy::{Access, HeaderPattern};
use oxigress_core::patterns::Allowance;

const NETWORKS: Form = Form::List("networks", network);
const PATTERNS: Form = Form::List("texts, or ~ and a regular expression", pattern);
const PATHS: Form = Form::List("paths", any);
/// As long as those of annotations; they are read where they are translated.
pub const SNIPPET: Form = Form::Text("directives of nginx.conf", |text| {
    (text.len() <= 64 * 1024).then(|| text.to_owned())
});
const GRAMMAR: How = How::NoEffect(
    "every annotation has a closed grammar here, and no raw text gets into nginx.conf",
);

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("whitelist-source-range", NETWORKS, "", How::Protecting(|to, v| {
        // An empty list lets everybody in, as if there were none.
        to.access().allow = Some(networks(v)).filter(|all| !all.is_empty());
        Ok(())
    })),
    key("denylist-source-range", NETWORKS, "", How::Protecting(|to, v| { to.access().deny = networks(v); Ok(()) })),
    key("block-cidrs", NETWORKS, "", How::ProtectingConf),
    key("block-user-agents", PATTERNS, "", How::Protecting(|to, v| { to.blocked_user_agents = patterns(v)?; Ok(()) })),
    key("block-referers", PATTERNS, "", How::Protecting(|to, v| { to.blocked_referers = patterns(v)?; Ok(()) })),
    key("global-auth-url", Form::Text("a URL with http or https and a host", url), "", How::Protecting(|to, v| global(to, "auth-url", v))),
    key("global-auth-method", Form::Word(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"]), "", How::Data(|to, v| global(to, "auth-method", v))),
    key("global-auth-signin", Form::Text("a URL with http or https and a host", url), "", How::Data(|to, v| global(to, "auth-signin", v))),
    key("global-auth-signin-redirect-param", Form::Text("text", any), "", How::Data(|to, v| global(to, "auth-signin-redirect-param", v))),
    key("global-auth-response-headers", Form::Text("header names with commas between", any), "", How::Data(|to, v| global(to, "auth-response-headers", v))),
    key("global-auth-request-redirect", Form::Text("text", any), "", How::Data(|to, v| global(to, "auth-request-redirect", v))),
    key("global-auth-snippet", SNIPPET, "", How::Protecting(|to, v| { to.snippets.auth = v.text().to_owned(); Ok(()) })),
    key("global-auth-cache-key", Form::Text("text with variables", any), "", How::Data(|to, v| global(to, "auth-cache-key", v))),
    key("global-auth-cache-duration", Form::Text("statuses and times", any), "", How::Data(|to, v| global(to, "auth-cache-duration", v))),
    key("global-auth-always-set-cookie", Form::Flag, "false", How::Data(|to, v| {
        to.global_auth.insert("auth-always-set-cookie", v.flag().to_string());
        Ok(())
    })),
    key("no-auth-locations", PATHS, "/.well-known/acme-challenge", How::Data(|to, v| { to.defaults.no_auth_locations = v.list().to_vec(); Ok(()) })),
    key("allow-snippet-annotations", Form::Flag, "false", How::Data(|to, v| {
        (to.admission.allows_snippets, to.defaults.allows_snippets) = (v.flag(), v.flag());
        Ok(())
    })),
    key("annotations-risk-level", Form::Word(&["Critical", "High", "Medium", "Low"]), "High", GRAMMAR),
    key("annotation-value-word-blocklist", Form::Text("words with commas between", any), "", How::Admission(|to, v| {
        let words = v.text().split(',').map(str::trim);
        // The reference finds the empty word behind a last comma in every value.
        to.admission.blocked_words = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Ok(())
    })),
    key("allow-cross-namespace-resources", Form::Flag, "false", How::Data(|to, v| { to.defaults.cross_namespace = v.flag(); Ok(()) })),
    key("strict-validate-path-type", Form::Flag, "true", How::Admission(|to, v| { to.admission.strict_path_type = v.flag(); Ok(()) })),
];

fn networks(value: &Value) -> Vec<IpNet> {
    value.list().iter().filter_map(|network| network.parse().ok()).collect()
}

fn pattern(text: &str) -> Option<String> {
    HeaderPattern::parse(text, Allowance::unlimited()).ok().map(|_| text.to_owned())
}

/// Most patterns of a list: a request may run all of them.
const MAX_PATTERNS: usize = 100;

fn patterns(value: &Value) -> Result<Vec<HeaderPattern>, String> {
    if value.list().len() > MAX_PATTERNS {
        return Err(format!("has more than {MAX_PATTERNS} items: join some"));
    }
    Ok(value
        .list()
        .iter()
        .filter_map(|text| HeaderPattern::parse(text, Allowance::unlimited()).ok())
        .collect())
}

/// What the annotation's own parser decides about; here only what tells a URL from a slip.
fn url(text: &str) -> Option<String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
    let is_host =
        rest.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b"[$".contains(&b));
    is_host.then(|| any(text)).flatten()
}

/// The annotation that says the same for one Ingress reads it.
fn global(to: &mut Settings, annotation: &'static str, value: &Value) -> Result<(), String> {
    to.global_auth.insert(annotation, value.text().to_owned());
    Ok(())
}

impl Settings {
    fn access(&mut self) -> &mut Access {
        self.defaults.policies.access.get_or_insert_default()
    }
}
