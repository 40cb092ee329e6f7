//! Directives of a location to policies.
//!
//! Shape:   [`apply`] knows each directive by its name and its words, and puts what it says into the Ingress's policies. One
//!          that it does not know, or that says what policies cannot, is answered with its line and the reason.
//! Errors:  nothing here opens: lists of networks are added to those of annotations, and an answer of the snippet's own
//!          takes no place of an earlier one.
//! Source:  nginx's directives; docs/snippets.md.

use super::answers;
use super::cookies;
use super::headers;
use super::names::Names;
use super::networks::Networks;
use super::script;
use super::values::{At, Not, Result, flag, impossible, millis, size};
use crate::annotation::proxying;
use crate::patterns::Compiler;
use oxigress_core::http::header::is_alike;
use oxigress_core::model::policy::{
    Access, HeaderValue, HttpVersion, Limits, Policies, Protocol, Proxy, ProxyRedirect, Redirect,
    Replacement, Script, Template,
};
use oxigress_settings::grammar::directives::Directive;
use oxigress_settings::grammar::retries;

pub use super::values::{Left, Loss};

/// Puts what the directives say into the policies; answers their variables, and those that it leaves out. `defined`: variables of an
/// `http-snippet`.
pub fn apply<'d>(
    directives: &'d [Directive],
    defined: &Names,
    policies: &mut Policies,
    compiler: &mut Compiler<'_>,
) -> (Names, Vec<Left<'d>>) {
    let mut names = Names::of('l', directives);
    names.learn(defined);
    let mut left = Vec::new();
    if script::is_needed(directives) {
        let at = At::Location { has_rewrite: policies.rewrite.is_some() };
        let (steps, lost) = script::read_all(directives, &mut names, at, compiler);
        left = lost;
        if !steps.is_empty() {
            policies.script = Some(Box::new(Script { steps, ..Script::default() }));
        }
    }
    left.extend(apply_plain(directives, &names, policies));
    (names, left)
}

/// Puts what those directives say into the policies that are no steps.
pub fn apply_plain<'d>(
    directives: &'d [Directive],
    names: &Names,
    policies: &mut Policies,
) -> Vec<Left<'d>> {
    let (mut left, mut networks) = (Vec::new(), Networks::default());
    let mut is_answered = policies.denied.is_some() || policies.redirect.is_some();
    let has_steps = script::is_needed(directives);
    let is_grpc = speaks_grpc(policies);
    for directive in directives.iter().filter(|one| !has_steps || !script::is_step(one)) {
        let words = names.words(&directive.arguments);
        let read = match (&directive.block, &words) {
            (Some(_), _) => Err(Not::Known),
            (None, Err(why)) => impossible(why.clone()),
            (None, Ok(words)) => {
                let words: Vec<&str> = words.iter().map(|word| &**word).collect();
                match directive.name.as_str() {
                    "allow" => networks.add(true, &words),
                    "deny" => networks.add(false, &words),
                    "return" if is_answered => {
                        Err(Not::Needed("an earlier `return` or redirect already answers"))
                    }
                    "return" => answer(&words, policies).map(|()| is_answered = true),
                    "grpc_set_header" if !is_grpc => {
                        Err(Not::Needed("the endpoints do not speak gRPC"))
                    }
                    // nginx's list for gRPC is another one.
                    "proxy_set_header" if is_grpc && is_set_for_grpc(directives, &words) => Ok(()),
                    name => one(name, &words, policies),
                }
            }
        };
        left.extend(read.err().map(|not| Left::of(directive, not)));
    }
    headers::pass_all(directives, policies);
    headers::order(policies);
    left.extend(networks.finish(directives, policies));
    left
}

fn speaks_grpc(policies: &Policies) -> bool {
    let protocol = policies.proxy.as_ref().and_then(|proxy| proxy.protocol);
    matches!(protocol, Some(Protocol::Grpc | Protocol::Grpcs))
}

/// Whether a `grpc_set_header` sets the header of a `proxy_set_header` with these words.
fn is_set_for_grpc(directives: &[Directive], words: &[&str]) -> bool {
    let Some(name) = words.first() else { return false };
    let is_it = |one: &Directive| {
        let other = one.arguments.first().filter(|_| one.name == "grpc_set_header");
        other.is_some_and(|other| is_alike(other.as_bytes(), name.as_bytes()))
    };
    directives.iter().any(is_it)
}

fn one(name: &str, words: &[&str], policies: &mut Policies) -> Result {
    if let Some(read) = headers::wherever(name, words, policies) {
        return read;
    }
    match (name, words) {
        ("proxy_set_header" | "grpc_set_header", [name, value]) => {
            headers::request(name, value, policies)
        }
        ("proxy_hide_header", [name]) => headers::hide(name, policies),
        ("proxy_pass_header", [name]) => headers::pass(name),
        // Of a `return` with a text, which may stand elsewhere.
        ("default_type", [_]) => Ok(()),
        (answers::SET, [name, value]) => answers::set(name, value, policies),
        ("access_log", ["off"]) => {
            policies.is_unlogged = true;
            Ok(())
        }
        ("limit_rate" | "limit_rate_after", [bytes]) => {
            let bytes = Some(size(bytes)?).filter(|bytes| *bytes > 0);
            let limits = policies.limits.get_or_insert_with(Limits::default);
            match name {
                "limit_rate" => limits.response_rate = bytes,
                _ => limits.response_rate_after = bytes,
            }
            policies.limits.take_if(|limits| *limits == Limits::default());
            Ok(())
        }
        ("satisfy", [word @ ("any" | "all")]) => {
            // As the annotation of this name.
            policies.access.get_or_insert_default().any = *word == "any";
            policies.access.take_if(|access| *access == Access::default());
            Ok(())
        }
        ("access_log" | "log_not_found" | "log_subrequest" | "error_log" | "rewrite_log", _) => {
            Err(Not::Needed("only the operator can change logs"))
        }
        ("server_tokens" | "resolver" | "resolver_timeout", _) => {
            Err(Not::Needed("it can only be set in the ConfigMap, for all hosts"))
        }
        ("etag" | "charset_types" | "sendfile" | "directio" | "tcp_nopush", _) => {
            Err(Not::Needed("it concerns files, and the gateway serves none"))
        }
        (name, _) if name.starts_with("http2_") => {
            Err(Not::Needed("it can only be set in the ConfigMap, for all hosts"))
        }
        _ => proxy(name, words, policies),
    }
}

/// Takes over a `return` directive.
fn answer(words: &[&str], policies: &mut Policies) -> Result {
    let is_url =
        |text: &str| ["http://", "https://", "$scheme"].iter().any(|start| text.starts_with(start));
    let (code, text) = match words {
        [url] if is_url(url) => (302, Some(*url)),
        [code] => (code.parse().map_err(|_| Not::Known)?, None),
        [code, text] => (code.parse().map_err(|_| Not::Known)?, Some(*text)),
        _ => return Err(Not::Known),
    };
    match (code, text) {
        (301 | 302 | 303 | 307 | 308, Some(text)) => {
            let location = Template::parse(text)?;
            policies.redirect = Some(Redirect { code, location, appends_target: false });
            Ok(())
        }
        (400..=599, None | Some("")) => {
            policies.denied = Some(code);
            Ok(())
        }
        // Whoever is kept out gets nginx's own page.
        (400..=599, Some(_)) => {
            policies.denied = Some(code);
            Err(Not::Needed("the status is answered with nginx's own page"))
        }
        _ => impossible("only redirects and statuses from 400 on are answered"),
    }
}

/// What nginx's proxy module says about one location.
fn proxy(name: &str, words: &[&str], policies: &mut Policies) -> Result {
    let mut proxy = policies.proxy.take().unwrap_or_default();
    let read = match words {
        [word] => of_one_word(name, word, &mut proxy),
        words => of_words(name, words, &mut proxy),
    };
    if read.is_ok() && !proxying::fits(&proxy) {
        policies.proxy = Some(proxy).filter(|proxy| *proxy != Proxy::default());
        return impossible("the buffers are more than the 16m that a response may take");
    }
    policies.proxy = Some(proxy).filter(|proxy| *proxy != Proxy::default());
    read
}

fn of_one_word(name: &str, word: &str, proxy: &mut Proxy) -> Result {
    let seconds = |word: &str| -> Result<Option<u32>> {
        Ok(Some(u32::try_from(millis(word)?.div_ceil(1_000))?))
    };
    let buffer = |word: &str| -> Result<Option<u32>> {
        let bytes = size(word)?;
        match (1_024..=proxying::MOST_BUFFER_BYTES).contains(&bytes) {
            true => Ok(Some(u32::try_from(bytes)?)),
            false => impossible("a buffer has from 1k to 64m"),
        }
    };
    match name {
        "proxy_connect_timeout" => proxy.connect_timeout_seconds = seconds(word)?,
        "proxy_send_timeout" | "grpc_send_timeout" => proxy.send_timeout_seconds = seconds(word)?,
        "proxy_read_timeout" | "grpc_read_timeout" => proxy.read_timeout_seconds = seconds(word)?,
        "grpc_connect_timeout" => proxy.connect_timeout_seconds = seconds(word)?,
        "proxy_next_upstream_timeout" => proxy.next_upstream_timeout_seconds = seconds(word)?,
        "proxy_next_upstream_tries" => {
            let tries = word.parse().map_err(|_| Not::Known)?;
            match tries {
                0..=1_000 => proxy.next_upstream_tries = Some(tries),
                _ => return impossible("there are at most 1000 attempts"),
            }
        }
        "proxy_buffering" => proxy.buffering = Some(flag(word)?),
        "proxy_request_buffering" => proxy.request_buffering = Some(flag(word)?),
        "proxy_buffer_size" | "grpc_buffer_size" => proxy.buffer_bytes = buffer(word)?,
        "proxy_busy_buffers_size" => proxy.busy_buffers_bytes = buffer(word)?,
        "client_body_buffer_size" => proxy.body_buffer_bytes = buffer(word)?,
        "client_max_body_size" => proxy.max_body_bytes = Some(size(word)?),
        "proxy_max_temp_file_size" => proxy.max_temp_file_bytes = Some(size(word)?),
        "proxy_http_version" => {
            proxy.http_version = Some(match word {
                "1.0" => HttpVersion::V10,
                "1.1" => HttpVersion::V11,
                _ => return impossible("it is 1.0 or 1.1"),
            });
        }
        "proxy_cookie_path" | "proxy_cookie_domain" if word == "off" => match name {
            "proxy_cookie_path" => proxy.cookie_path = None,
            _ => proxy.cookie_domain = None,
        },
        "proxy_cookie_flags" if word == "off" => _ = proxy.cookie_flags.get_or_insert_default(),
        "proxy_redirect" if word == "off" => proxy.redirect = Some(ProxyRedirect::Off),
        "proxy_redirect" if word == "default" => proxy.redirect = Some(ProxyRedirect::Default),
        "proxy_next_upstream" => return of_words(name, &[word], proxy),
        _ => return Err(Not::Known),
    }
    Ok(())
}

fn of_words(name: &str, words: &[&str], proxy: &mut Proxy) -> Result {
    match (name, words) {
        ("proxy_buffers", [count, bytes]) => {
            let count = count.parse().map_err(|_| Not::Known)?;
            if !(2..=1_024).contains(&count) {
                return impossible("there are from 2 to 1024 buffers");
            }
            of_one_word("proxy_buffer_size", bytes, proxy)?;
            proxy.buffer_count = Some(count);
        }
        ("proxy_next_upstream", words) => match retries::conditions(&words.join(" ")) {
            Some(conditions) => proxy.next_upstream = Some(conditions),
            None => return impossible(format!("it is not {}", retries::CONDITIONS)),
        },
        ("proxy_cookie_flags", [cookie, flags @ ..]) => cookies::flags(cookie, flags, proxy)?,
        ("proxy_cookie_path", [from, to]) => proxy.cookie_path = Some(replacement(from, to)?),
        ("proxy_cookie_domain", [from, to]) => proxy.cookie_domain = Some(replacement(from, to)?),
        ("proxy_redirect", [from, to]) => {
            proxy.redirect = Some(ProxyRedirect::Replace(replacement(from, to)?));
        }
        _ => return Err(Not::Known),
    }
    Ok(())
}

fn replacement(from: &str, to: &str) -> Result<Replacement> {
    if from.starts_with('~') || from.contains('$') || to.contains('$') {
        return impossible("texts are replaced literally: write it without patterns and variables");
    }
    Ok(Replacement { from: HeaderValue::parse(from)?, to: HeaderValue::parse(to)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_settings::grammar::directives::parse;

    /// The policies as JSON, and what is left out with the reason's beginning.
    fn read(text: &str) -> (String, Vec<String>) {
        read_onto(Policies::default(), text)
    }

    fn read_onto(mut policies: Policies, text: &str) -> (String, Vec<String>) {
        let all = parse(text).unwrap();
        let (_, left) = apply(&all, &Names::of('h', &[]), &mut policies, &mut Compiler::new([]));
        let left = left.into_iter().map(|left| {
            let why = left.why.as_deref().unwrap_or("not known").to_owned();
            let loss = match left.loss {
                Loss::Nothing => "idle ",
                Loss::AsNamed => "",
                Loss::Protection => "opens ",
            };
            format!("{} {} {loss}{why}", left.directive.line, left.directive.name)
        });
        (serde_json::to_string(&policies).unwrap(), left.collect())
    }

    #[test]
    fn directives_are_policies() {
        for (text, expected) in [
            (
                "proxy_set_header X-A $host; proxy_set_header x_a 2;",
                r#"{"request_headers":[{"name":"X-A","value":"$host"}],"added_request_headers":[{"name":"x_a","value":"2"}]}"#,
            ),
            (
                "proxy_set_header X-Forwarded-Proto https;",
                r#"{"beside_own_headers":[{"name":"X-Forwarded-Proto","value":"https"}]}"#,
            ),
            ("proxy_set_header Host $host;", r#"{"upstream_host":"$host"}"#),
            ("proxy_set_header Connection close;", r#"{"proxy":{"connection":"close"}}"#),
            (
                "add_header A 1 always; more_clear_headers B*; proxy_hide_header C;",
                r#"{"response_edits":[{"name":"C","action":"hide"},{"name":"B*","action":"remove"},{"name":"A","action":"add","value":"1"}]}"#,
            ),
            ("return 403;", r#"{"denied":403}"#),
            (
                "if ($arg_a != b) { return 403; }",
                r#"{"script":{"steps":[{"if":{"test":{"value":"$arg_a","equals":"b","negated":true},"then":[{"answer":{"code":403}}]}}]}}"#,
            ),
            (
                "set $A 1; rewrite ^/a(.*)$ /b$1 last; proxy_set_header X-A ${a}x;",
                r#"{"script":{"steps":[{"set":{"name":"snippet_l_a","value":"1"}},{"rewrite":{"pattern":"^/a(.*)$","target":"/b$1","then":"last"}}]},"request_headers":[{"name":"X-A","value":"${snippet_l_a}x"}]}"#,
            ),
            (
                "return 301 https://$host/x; return 403;",
                r#"{"redirect":{"code":301,"location":"https://$host/x"}}"#,
            ),
            ("deny 10.0.0.1; allow all;", r#"{"access":{"deny":["10.0.0.1/32"]}}"#),
            ("deny all;", r#"{"access":{"allow":[]}}"#),
            (
                "proxy_read_timeout 1m; client_max_body_size 8m;",
                r#"{"proxy":{"read_timeout_seconds":60,"max_body_bytes":8388608}}"#,
            ),
            ("limit_rate 1k;", r#"{"limits":{"owner":"","response_rate":1024}}"#),
            ("access_log off;", r#"{"is_unlogged":true}"#),
        ] {
            let (found, left) = read(text);
            assert_eq!(found, expected, "{text}: {left:?}");
        }
    }

    #[test]
    fn directives_of_headers_more_and_of_answers_are_policies() {
        for (text, expected) in [
            (
                "add_header A 1; expires -1h; more_set_headers B:2; expires max;",
                r#"{"response_edits":[{"name":"B","action":"set","value":"2"},{"name":"Expires","action":"date","value":"-3600","statuses":[200,201,204,206,301,302,303,304,307,308]},{"name":"Cache-Control","action":"set","value":"no-cache","statuses":[200,201,204,206,301,302,303,304,307,308]},{"name":"Expires","action":"set","value":"Thu, 31 Dec 2037 23:55:55 GMT","statuses":[200,201,204,206,301,302,303,304,307,308]},{"name":"Cache-Control","action":"set","value":"max-age=315360000","statuses":[200,201,204,206,301,302,303,304,307,308]},{"name":"A","action":"add","value":"1","statuses":[200,201,204,206,301,302,303,304,307,308]}]}"#,
            ),
            (
                "more_set_input_headers -r 'A: $host' 'B:'; more_clear_input_headers X-*;",
                r#"{"input_edits":[{"name":"A","value":"$host","replaces_only":true},{"name":"B","replaces_only":true},{"name":"X-*"}]}"#,
            ),
            (
                "proxy_pass_header x-a; proxy_hide_header X-A; proxy_hide_header B;",
                r#"{"response_edits":[{"name":"B","action":"hide"}]}"#,
            ),
            (
                "proxy_cookie_flags a Secure secure SameSite=Lax; proxy_cookie_flags ~ nohttponly;",
                r#"{"proxy":{"cookie_flags":[{"cookie":"a","secure":true,"same_site":"lax"},{"http_only":false}]}}"#,
            ),
            ("proxy_cookie_flags off;", r#"{"proxy":{"cookie_flags":[]}}"#),
            (
                "if ($arg_a) { set $b 1; add_header A $b always; more_set_input_headers C:1; access_log off; limit_rate 0; limit_rate_after 1k; }",
                r#"{"script":{"steps":[{"if":{"test":{"value":"$arg_a"},"then":[{"set":{"name":"snippet_l_b","value":"1"}}],"location":{"input_edits":[{"name":"C","value":"1"}],"response_edits":[{"name":"A","action":"add","value":"$snippet_l_b"}],"is_unlogged":true,"response_rate":0,"response_rate_after":1024}}}]}}"#,
            ),
            (
                "return 204; limit_except get { deny all; }",
                r#"{"script":{"steps":[{"if":{"test":{"value":"$request_method","equals":"HEAD","negated":true},"then":[{"if":{"test":{"value":"$request_method","equals":"GET","negated":true},"then":[{"answer":{"code":403}}]}}]}},{"answer":{"code":204}}]}}"#,
            ),
        ] {
            let (found, left) = read(text);
            assert_eq!(found, expected, "{text}: {left:?}");
        }
    }

    #[test]
    fn what_is_left_out_is_named_with_its_line() {
        for (text, expected) in [
            ("\nsub_filter a b;", "2 sub_filter not known"),
            ("if ($x) { return 403; }", "1 if opens variable $x cannot"),
            ("if ($host) { sub_filter a b; }", "1 if sub_filter is not supported within if"),
            ("if ($host) { proxy_set_header A b; }", "1 if proxy_set_header is not supported"),
            ("if ($host) { add_header A $unknown; }", "1 if variable $unknown cannot"),
            ("if ($a ~ b) { add_header A $1; }", "1 if "),
            ("if ($host) {\nadd_header Content-Length 0; }", "2 add_header idle the gateway says"),
            ("if ($host) {\naccess_log /x; }", "2 access_log idle only the operator"),
            ("set $a b; if (-f $a) { return 403; }", "1 if opens it is ($variable)"),
            ("rewrite ^/a( /b;", "1 rewrite "),
            ("location /a { deny all; }", "1 location not known"),
            ("allow 10.0.0.1; deny 10.0.0.0/8;", "1 allow opens a network is allowed before"),
            ("deny x;", "1 deny \"x\" is no address"),
            ("proxy_buffers 1024 64m;", "1 proxy_buffers the buffers are more"),
            ("proxy_set_header Transfer-Encoding chunked;", "1 proxy_set_header Transfer-Encoding"),
            ("proxy_set_header A $realpath_root;", "1 proxy_set_header variable $realpath_root"),
            ("add_header Content-Length 1;", "1 add_header Content-Length controls"),
            ("add_header A \"b\nc\";", "1 add_header value"),
            ("more_set_headers -t text/html 'A: b';", "1 more_set_headers the flag -t"),
            ("return 100 hello;", "1 return only redirects"),
            ("proxy_cookie_path ~/x /y;", "1 proxy_cookie_path texts are replaced literally"),
            ("resolver 10.0.0.1;", "1 resolver idle"),
            ("root /etc;", "1 root not known"),
            ("grpc_set_header A b;", "1 grpc_set_header idle the endpoints do not speak gRPC"),
            ("expires modified 1h;", "1 expires a time after Last-Modified"),
            ("expires @15h;", "1 expires a time of the day"),
            ("expires $a;", "1 expires it has no variables"),
            ("expires 1h500ms;", "1 expires it is whole seconds"),
            ("proxy_pass_header Date;", "1 proxy_pass_header nginx keeps"),
            ("proxy_pass_header X-Accel-Redirect;", "1 proxy_pass_header nginx keeps"),
            ("proxy_cookie_flags ~a secure;", "1 proxy_cookie_flags cookies are named"),
            ("proxy_cookie_flags a secure nosecure;", "1 proxy_cookie_flags its flags contradict"),
            ("proxy_cookie_flags a strict;", "1 proxy_cookie_flags a flag is secure"),
            ("more_set_input_headers -t a 'A: b';", "1 more_set_input_headers the flag -t"),
            ("more_clear_input_headers -r A;", "1 more_clear_input_headers the flag -r"),
            ("more_set_input_headers 'Host: a';", "1 more_set_input_headers Host controls"),
            ("more_set_input_headers 'X-Real-IP: a';", "1 more_set_input_headers the gateway"),
            ("more_set_input_headers 'X-*: a';", "1 more_set_input_headers a star stands"),
            ("limit_except GET { allow ::1; deny all; }", "1 limit_except opens its block is"),
            ("limit_except BREW { deny all; }", "1 limit_except opens not known"),
            ("if ($host) { limit_except GET { deny all; } }", "1 if opens limit_except is not"),
            ("include /etc/passwd;", "1 include not known"),
        ] {
            let (found, left) = read(text);
            assert_eq!(left.len(), 1, "{text}: {found}");
            assert!(!found.contains("cookie_flags"), "{text}: {found}");
            assert!(left[0].starts_with(expected), "{text}: {left:?}");
        }
    }

    #[test]
    fn over_grpc_a_header_of_nginx_s_list_for_grpc_comes_first() {
        let grpc: Policies = serde_json::from_str(r#"{"proxy":{"protocol":"grpcs"}}"#).unwrap();
        let text = "proxy_set_header x-a 1; grpc_set_header X_A 2; proxy_set_header B 3;";
        let (found, left) = read_onto(grpc, text);
        let expected = r#"[{"name":"X_A","value":"2"},{"name":"B","value":"3"}]"#;
        assert!(found.contains(&format!(r#""request_headers":{expected}"#)), "{found}");
        assert!(left.is_empty(), "{left:?}");
        let (found, _) = read(text);
        assert!(found.contains(r#"[{"name":"x-a","value":"1"},{"name":"B""#), "{found}");
    }

    #[test]
    fn beyond_the_most_changes_the_clients_own_does_not_pass() {
        let words: String = (0..201).map(|n| format!(" X-{n}")).collect();
        let (found, left) = read(&format!("more_clear_input_headers{words};"));
        assert_eq!(found, "{}");
        assert!(left[0].starts_with("1 more_clear_input_headers opens more than 200"), "{left:?}");
        let cookies: String =
            (0..101).map(|n| format!("proxy_cookie_flags a{n} secure;")).collect();
        let (_, left) = read(&cookies);
        assert_eq!(left, ["1 proxy_cookie_flags more than 100 of them are too many"]);
    }

    #[test]
    fn a_header_whose_value_cannot_be_had_is_not_the_client_s_own() {
        let (found, left) = read("proxy_set_header X-User $my_user;");
        assert_eq!(found, r#"{"request_headers":[{"name":"X-User","value":""}]}"#);
        assert!(left[0].ends_with("no such header is sent"), "{left:?}");
    }

    #[test]
    fn beyond_the_most_headers_the_clients_own_does_not_pass() {
        let headers: String = (0..200).map(|n| format!("proxy_set_header X-{n} 1;")).collect();
        let (_, left) = read(&format!("{headers}proxy_set_header X-User fixed;"));
        assert_eq!(left, ["1 proxy_set_header opens more than 200 headers are too many"]);
    }

    #[test]
    fn nothing_opens_what_was_closed_before() {
        let closed: Policies = serde_json::from_str(
            r#"{"denied":503,"access":{"allow":["10.0.0.0/8"],"deny":["10.0.0.1/32"]}}"#,
        )
        .unwrap();
        let before = serde_json::to_string(&closed).unwrap();
        for text in
            ["allow all;", "return 301 https://x/;", "allow 0.0.0.0/0; deny all;", "deny ::1;"]
        {
            let (found, left) = read_onto(closed.clone(), text);
            assert_eq!((found, left.len()), (before.clone(), 1), "{text}");
        }
        let open = Policies { denied: None, redirect: None, ..closed };
        let (found, _) = read_onto(open, "allow all; return 404;");
        assert!(found.contains(r#""allow":["10.0.0.0/8"]"#), "{found}");
    }
}
