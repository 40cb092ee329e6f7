//! Raw lines for nginx.conf: never executed. What they protect stays closed.
//!
//! Shape:   the directives' names are found, nothing more: a closed dialect that honours some of them has its place
//!          here.
//! Source:  docs/differences/objects.md.

use super::reader::Reader;
use oxigress_core::model::shorten;
use oxigress_objects::verdict::Note;

/// Directives that keep nobody out; any other may.
const HARMLESS: [&str; 34] = [
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
/// Beginnings of more of them.
const HARMLESS_PREFIXES: [&str; 8] = [
    "brotli",
    "client_",
    "gzip",
    "keepalive_",
    "large_client_",
    "opentelemetry",
    "proxy_",
    "lingering_",
];

/// The snippets, by what they are about.
const SNIPPETS: [&str; 5] = [
    "auth-snippet",
    "configuration-snippet",
    "modsecurity-snippet",
    "server-snippet",
    "stream-snippet",
];

/// Says what is in them; answers whether one of them protects the whole host. `has_auth`: an auth server is asked, by
/// this Ingress or by the ConfigMap.
pub fn read(reader: &mut Reader<'_>, has_auth: bool) -> bool {
    let mut closes_host = false;
    for name in SNIPPETS {
        let Some(text) = reader.text(name).filter(|text| !text.is_empty()) else { continue };
        if name == "auth-snippet" && !has_auth {
            reader.warn(name, "has no effect without auth-url: no auth server is asked");
            continue;
        }
        let all = statements(text);
        let is_protecting = |statement: &&Vec<String>| protects(name, statement, text);
        let protecting = names(all.iter().filter(is_protecting));
        let all = names(all.iter());
        if protecting.is_empty() {
            reader.notes.push(Note::warning(format!(
                "annotation {name}: raw lines are never passed to nginx, served without them: {}",
                all
            )));
        } else {
            let why = format!(
                "raw lines are never passed to nginx, and some of them may protect ({})",
                protecting
            );
            reader.close(name, &why, "replace them with annotations, or remove them");
            closes_host |= name == "server-snippet";
        }
    }
    closes_host
}

/// The directives, once each; of many the first.
fn names<'s>(all: impl Iterator<Item = &'s Vec<String>>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in all.filter_map(|statement| statement.first()) {
        if !names.contains(&name.as_str()) && names.len() < 20 {
            names.push(name);
        }
    }
    shorten(&names.join(", ")).to_owned()
}

fn protects(snippet: &str, statement: &[String], text: &str) -> bool {
    let Some(directive) = statement.first() else { return false };
    let last = statement.last().map(String::as_str).unwrap_or_default();
    match snippet {
        // What the auth server is asked decides who comes in.
        "auth-snippet" => true,
        "stream-snippet" => false,
        "modsecurity-snippet" => {
            let text = text.to_ascii_lowercase();
            let words = ["secruleengine on", "deny", "drop", "block"];
            words.iter().any(|word| text.contains(word))
        }
        _ => match directive.as_str() {
            "return" => !statement.get(1).is_some_and(|code| {
                code.starts_with(['2', '3']) && code.len() == 3 || code.starts_with("http")
            }),
            // It takes a header of the client away.
            "proxy_set_header" => last.is_empty(),
            name => {
                !HARMLESS.contains(&name)
                    && !HARMLESS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            }
        },
    }
}

/// The words of all statements, also within blocks, in lower case and without quotes.
fn statements(text: &str) -> Vec<Vec<String>> {
    let plain = |word: &str| word.replace(['"', '\'', '\\'], "").to_ascii_lowercase();
    let text = without_comments(text);
    let statements = text.split([';', '{', '}']);
    let statements = statements.map(|text| text.split_whitespace().map(plain).collect::<Vec<_>>());
    statements.filter(|words| !words.is_empty()).collect()
}

/// A comment begins where a word could, outside of quotes, and goes to the end of its line.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut quote, mut is_escaped, mut is_comment, mut is_start) = (None, false, false, true);
    for c in text.chars() {
        is_comment &= c != '\n';
        is_comment |= c == '#' && is_start && quote.is_none();
        if is_comment {
            continue;
        }
        match quote {
            _ if is_escaped => {}
            Some(open) if c == open => quote = None,
            None if is_start && matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        is_start = c.is_whitespace() || matches!(c, ';' | '{' | '}');
        kept.push(c);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protecting(text: &str) -> bool {
        statements(text).iter().any(|words| protects("configuration-snippet", words, text))
    }

    #[test]
    fn directives_are_found_in_lines_and_blocks() {
        let text = "more_set_headers \"X: y\";\n# deny all;\nif ($x) { return 403; }\nproxy_set_header A b;";
        let all = statements(text);
        let found = names(all.iter());
        assert_eq!(found, "more_set_headers, if, return, proxy_set_header");
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
            "proxy_set_header X-User \"\";",
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
