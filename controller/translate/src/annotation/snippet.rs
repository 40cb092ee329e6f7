//! Lines of nginx.conf: a dialect of them becomes policies, and none is ever passed to nginx. What the others protect
//! stays closed.
//!
//! Shape:   [`read`] reads a text by nginx's grammar. Where snippets are allowed [`location`] puts what a
//!          `configuration-snippet` says into policies; what is left, and the other snippets, are looked through for what
//!          may keep somebody out.
//! Source:  docs/snippets.md, docs/differences/objects.md.

mod answers;
mod auth;
mod cookies;
mod headers;
mod if_block;
mod levels;
mod location;
mod names;
mod networks;
mod script;
mod server;
pub mod settings;
mod speaker;
mod values;

pub use server::{MOST_BYTES_OF_LOCATIONS, ServerSnippet};
pub use settings::Common;

use super::reader::Reader;
use crate::patterns::Compiler;
use location::{Left, Loss};
use names::Names;
use oxigress_core::model::policy::Policies;
use oxigress_core::model::shorten;
use oxigress_objects::verdict::Note;
use oxigress_settings::grammar::directives::{self, Directive, Unreadable};
use server::Author;
use speaker::{OfAnnotation, Speaker};
use std::sync::Arc;

/// Directives that keep nobody out; any other may.
const HARMLESS: [&str; 35] = [
    "absolute_redirect",
    "access_log",
    "add_header",
    "break",
    "charset",
    "chunked_transfer_encoding",
    "default_type",
    "error_log",
    "error_page",
    "etag",
    "expires",
    // Its client's own is taken away.
    "grpc_set_header",
    "http2_push_preload",
    "if",
    "location",
    "log_not_found",
    "log_subrequest",
    "more_clear_headers",
    "more_set_headers",
    "port_in_redirect",
    "rewrite",
    "rewrite_log",
    "send_timeout",
    "sendfile",
    "server_name_in_redirect",
    "server_tokens",
    "set",
    "sub_filter",
    "sub_filter_once",
    "sub_filter_types",
    "tcp_nodelay",
    "tcp_nopush",
    "try_files",
    "types",
    "underscores_in_headers",
];
/// What is harmless of nginx's proxy module: not what leads elsewhere, verifies endpoints or keeps a request's parts from them.
const HARMLESS_OF_PROXY: [&str; 29] = [
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_connect_timeout",
    "proxy_cookie_domain",
    "proxy_cookie_flags",
    "proxy_cookie_path",
    "proxy_force_ranges",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_hide_header",
    "proxy_http_version",
    "proxy_ignore_client_abort",
    "proxy_intercept_errors",
    "proxy_limit_rate",
    "proxy_max_temp_file_size",
    "proxy_next_upstream",
    "proxy_next_upstream_timeout",
    "proxy_next_upstream_tries",
    "proxy_pass_header",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_request_buffering",
    "proxy_send_timeout",
    // Its client's own is taken away.
    "proxy_set_header",
    "proxy_socket_keepalive",
    "proxy_ssl_name",
    "proxy_ssl_server_name",
];
/// Beginnings of more of them.
const HARMLESS_PREFIXES: [&str; 8] = [
    "brotli",
    "client_",
    "gzip",
    "keepalive_",
    "large_client_",
    "lingering_",
    "opentelemetry",
    "proxy_cache",
];

/// The snippets, in the order in which they are read: that of an auth server knows the variables of its locations.
const SNIPPETS: [&str; 5] = [
    "configuration-snippet",
    "auth-snippet",
    "modsecurity-snippet",
    "server-snippet",
    "stream-snippet",
];

/// Most directives of a snippet that are named.
const MOST_NAMED: usize = 50;

/// What snippets say about the hosts of an Ingress.
#[derive(Debug, Default)]
pub struct OfHosts {
    /// One of them protects the whole host, and cannot be honoured.
    pub closes_host: bool,
    /// What the server-snippet says.
    pub server: Option<Arc<ServerSnippet>>,
}

/// Says what is in them. `has_auth`: the Ingress names an auth server.
pub fn read(
    reader: &mut Reader<'_>,
    has_auth: bool,
    policies: &mut Policies,
    compiler: &mut Compiler<'_>,
) -> OfHosts {
    let (mut hosts, mut names) = (OfHosts::default(), None);
    for name in SNIPPETS {
        let Some(text) = reader.text(name).filter(|text| !text.is_empty()) else { continue };
        if name == "auth-snippet" && !has_auth {
            reader.warn(name, "has no effect without auth-url");
            continue;
        }
        match name {
            "configuration-snippet" if reader.context.defaults.allows_snippets => {
                names = translate(reader, text, policies, compiler);
            }
            "auth-snippet" if reader.context.defaults.allows_snippets => {
                translate_auth(reader, text, names.as_ref(), policies, compiler);
            }
            "server-snippet" if reader.context.defaults.allows_snippets => {
                let read = translate_server(reader, text, compiler);
                hosts.closes_host |= read.is_none();
                hosts.server = read.flatten().map(Arc::new);
            }
            "stream-snippet" => name_each(&mut OfAnnotation { reader, name }, text),
            _ => {
                let closes = leave_out(reader, name, text, policies);
                hosts.closes_host |= closes && name == "server-snippet";
            }
        }
    }
    hosts
}

/// Says what a snippet has that is not in the dialect as a whole; whether it closes.
fn leave_out(
    reader: &mut Reader<'_>,
    name: &'static str,
    text: &str,
    policies: &mut Policies,
) -> bool {
    let (all, protecting) = match directives::parse(text) {
        _ if name == "modsecurity-snippet" => rules(text),
        Ok(directives) => {
            if name == "configuration-snippet" {
                withhold_headers(&mut OfAnnotation { reader, name }, &directives, policies);
            }
            found(name, &directives)
        }
        Err(why) => {
            close_invalid(reader, name, &why);
            return true;
        }
    };
    if protecting.is_empty() {
        reader.notes.push(Note::warning(format!(
            "annotation {name}: directives are not passed to nginx and are ignored: {all}"
        )));
        return false;
    }
    let why = format!(
        "directives are not passed to nginx, and some of them may restrict access ({protecting})"
    );
    reader.close(name, &why, "replace them with annotations, or remove them");
    true
}

/// Names each directive of a level that has no part in what locations serve, with what says the same.
fn name_each(to: &mut dyn Speaker, text: &str) {
    let all = match directives::parse(text) {
        Ok(all) => all,
        Err(why) => {
            let why = format!("it is ignored, because it is not valid nginx syntax: {why}");
            return to.warn(&why);
        }
    };
    for Directive { line, name, .. } in all.iter().take(MOST_NAMED) {
        let (shown, remedy) = (shorten(name), levels::remedy(name));
        to.warn(&format!("line {line}: {shown} is ignored: {remedy}"));
    }
    if all.len() > MOST_NAMED {
        to.warn(&format!("{} more directives are ignored", all.len() - MOST_NAMED));
    }
}

/// The variables that the ConfigMap's http-snippet defines.
fn defined(reader: &Reader<'_>) -> Names {
    Names::of_definitions(reader.context.defaults.variables.iter())
}

/// Puts what a text says about locations into the policies, and says what it leaves out.
fn translate(
    reader: &mut Reader<'_>,
    text: &str,
    policies: &mut Policies,
    compiler: &mut Compiler<'_>,
) -> Option<Names> {
    let name = "configuration-snippet";
    let all = match directives::parse(text) {
        Ok(all) => all,
        Err(why) => {
            close_invalid(reader, name, &why);
            return None;
        }
    };
    let defined = defined(reader);
    let (names, left) = location::apply(&all, &defined, policies, compiler);
    say(reader, name, left, Some(policies));
    Some(names)
}

/// What a text says about hosts: [`server::read`].
fn translate_server(
    reader: &mut Reader<'_>,
    text: &str,
    compiler: &mut Compiler<'_>,
) -> Option<Option<ServerSnippet>> {
    let (name, ingress) = ("server-snippet", reader.context.ingress);
    match directives::parse(text) {
        Ok(all) => {
            let defined = defined(reader);
            let author = Author { scope: 's', namespace: &ingress.namespace, defined: &defined };
            server::read(&mut OfAnnotation { reader, name }, author, all, compiler)
        }
        Err(why) => {
            close_invalid(reader, name, &why);
            None
        }
    }
}

/// Puts what a text says about auth subrequests into the policies. `names`: the variables of the Ingress's locations.
fn translate_auth(
    reader: &mut Reader<'_>,
    text: &str,
    names: Option<&Names>,
    policies: &mut Policies,
    compiler: &mut Compiler<'_>,
) {
    let name = "auth-snippet";
    let all = match directives::parse(text) {
        Ok(all) => all,
        Err(why) => return close_invalid(reader, name, &why),
    };
    // Without one the locations are closed already.
    let external = policies.access.as_mut().and_then(|access| access.external.as_mut());
    let Some(external) = external else { return };
    let mut known = defined(reader);
    known.learn_over(names);
    let left = auth::apply(&all, Some(&known), external, compiler);
    say(reader, name, left, None);
}

fn close_invalid(reader: &mut Reader<'_>, name: &'static str, why: &Unreadable) {
    let why = format!("it is not valid nginx syntax ({why}), and it may restrict access");
    reader.close(name, &why, "correct it");
}

/// Says what a snippet leaves out, and takes away the client's headers that would have been set in `policies`. Whether all stays
/// open.
fn say(
    reader: &mut Reader<'_>,
    name: &'static str,
    all: Vec<Left<'_>>,
    policies: Option<&mut Policies>,
) -> bool {
    say_to(&mut OfAnnotation { reader, name }, name, all, policies)
}

/// The same of a snippet of this kind, to whoever has it.
fn say_to(
    to: &mut dyn Speaker,
    name: &'static str,
    all: Vec<Left<'_>>,
    mut policies: Option<&mut Policies>,
) -> bool {
    let mut is_open = true;
    for left in all {
        let (directive, why) = (left.directive, left.reason());
        let (line, shown) = (directive.line, shown(&directive.name));
        let protecting = match left.loss {
            Loss::Nothing => String::new(),
            Loss::AsNamed => {
                if let Some(policies) = &mut policies {
                    withhold_headers(to, std::slice::from_ref(directive), policies);
                }
                found(name, std::slice::from_ref(directive)).1
            }
            Loss::Protection => shown.to_owned(),
        };
        if !protecting.is_empty() {
            let why = format!("line {line}: {shown}: {why}, and {protecting} may restrict access");
            to.close(&why, "replace it with annotations, or remove it");
            is_open = false;
        } else if left.loss == Loss::Nothing {
            to.remark(&format!("line {line}: {shown} has no effect: {why}"));
        } else {
            to.warn(&format!("line {line}: {shown} is ignored: {why}"));
        }
    }
    is_open
}

/// The name of a directive; of a word that cannot be one no character: it may be a part of a password.
fn shown(name: &str) -> &str {
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_name { shorten(name) } else { "(a word that is no directive's name)" }
}

/// Takes away the client's own headers where `proxy_set_header` is not carried out: endpoints may believe them.
fn withhold_headers(to: &mut dyn Speaker, all: &[Directive], policies: &mut Policies) {
    if !headers::withhold_all(all, policies) {
        let why = "it sets more than 200 headers, so the client's values cannot be removed";
        to.close(why, "set at most 200 headers");
    }
}

/// Whether directives of a snippet may keep somebody out; what cannot be read may.
pub(crate) fn may_protect(snippet: &str, text: &str) -> bool {
    directives::parse(text).map_or(true, |all| !found(snippet, &all).1.is_empty())
}

/// Whether an `if` of a snippet leads some requests elsewhere, or keeps them from what follows.
pub(crate) fn leads_some_elsewhere(text: &str) -> bool {
    let leads = |one: &Directive| matches!(&*one.name, "return" | "rewrite" | "break");
    let mut found = false;
    directives::each(&directives::parse(text).unwrap_or_default(), &mut |one| {
        found |= one.name == "if" && one.block.iter().flatten().any(leads);
    });
    found
}

/// The names of all directives, and of those that may protect.
fn found(snippet: &str, directives: &[Directive]) -> (String, String) {
    let (mut all, mut protecting) = (Vec::new(), Vec::new());
    directives::each(directives, &mut |directive| {
        all.push(directive);
        if protects(snippet, directive) {
            protecting.push(directive);
        }
    });
    let names = |found: &[&Directive]| names(found.iter().map(|one| one.name.as_str()));
    (names(&all), names(&protecting))
}

/// The directives of a firewall, and again if some of them may protect.
fn rules(text: &str) -> (String, String) {
    let text = text.to_ascii_lowercase();
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let all = names(lines.filter_map(|line| line.split_whitespace().next()));
    let words = ["secruleengine on", "deny", "drop", "block"];
    let protecting =
        if words.iter().any(|word| text.contains(word)) { all.clone() } else { String::new() };
    (all, protecting)
}

/// The names, once each; of many the first.
fn names<'s>(all: impl Iterator<Item = &'s str>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in all {
        if !names.contains(&name) && names.len() < 20 {
            names.push(name);
        }
    }
    shorten(&names.join(", ")).to_owned()
}

fn protects(snippet: &str, directive: &Directive) -> bool {
    let arguments = &directive.arguments;
    match (snippet, directive.name.as_str()) {
        // What the auth server is asked, and whether it is, decides who comes in.
        (
            "auth-snippet",
            "break" | "error_page" | "if" | "location" | "proxy_cache_key" | "proxy_set_header"
            | "return" | "rewrite" | "set" | "try_files",
        ) => true,
        ("http-snippet", name) if levels::is_definition(name) => false,
        (_, "return") => !arguments.first().is_some_and(|code| {
            code.starts_with(['2', '3']) && code.len() == 3 || code.starts_with("http")
        }),
        (_, name) => {
            !HARMLESS.contains(&name)
                && !HARMLESS_OF_PROXY.contains(&name)
                && !HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protecting(text: &str) -> bool {
        !found("configuration-snippet", &directives::parse(text).unwrap()).1.is_empty()
    }

    #[test]
    fn directives_are_found_in_lines_and_blocks() {
        let text = "more_set_headers \"X: y\";\n# deny all;\nif ($x) { return 403; }\nproxy_set_header A b;";
        let (all, protecting) = found("configuration-snippet", &directives::parse(text).unwrap());
        assert_eq!(all, "more_set_headers, if, return, proxy_set_header");
        assert_eq!(protecting, "return");
    }

    #[test]
    fn what_is_quoted_is_no_directive() {
        assert!(!protecting("more_set_headers 'X: a; deny all; }';"));
        assert!(!protecting(
            "add_header Content-Security-Policy \"default-src 'self'; deny all\";"
        ));
    }

    #[test]
    fn what_is_not_known_to_be_harmless_may_protect() {
        for text in [
            "more_set_headers \"X-Frame-Options: DENY\";",
            "proxy_set_header X-A $host;\nadd_header X-B c always;",
            "if ($host = a.test) { return 301 https://b.test$request_uri; }",
            "# deny all;",
            "rewrite ^/a /b break;",
        ] {
            assert!(!protecting(text), "{text}");
        }
        for text in [
            "deny all;",
            "location /x { deny all; }",
            "if ($x) { return 403; }",
            "'deny' all;",
            "d\\eny all;",
            "\"deny\" all;",
            "proxy_pass http://auth.test;",
            "proxy_pass_request_headers off;",
            "proxy_ssl_verify on;",
            "auth_basic \"x\";",
            "limit_req zone=a;",
            "something_new on;",
            "return 444;",
            "set $x 1; # harmless\ndeny all;",
            "set $x \" # \"; deny all;",
            "set $x a#; deny all;",
        ] {
            assert!(protecting(text), "{text}");
        }
    }
}
