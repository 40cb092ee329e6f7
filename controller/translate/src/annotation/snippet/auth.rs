//! An `auth-snippet`: what an auth server is asked, and steps that may answer in its place.
//!
//! Errors:  what cannot be carried out closes, unless it has no effect on an auth subrequest: it could decide who comes in.
//! Source:  the location of the subrequest in ingress-nginx's template, at whose end the snippet stands.

use super::headers;
use super::names::{Names, OF_AUTH};
use super::script;
use super::values::{At, Left, Not, Result, impossible};
use crate::patterns::Compiler;
use oxigress_core::model::policy::{ExternalAuth, Script};
use oxigress_settings::grammar::directives::Directive;
use oxigress_settings::grammar::external_auth::METHODS;

/// Puts what the directives say into the policy of the auth server. `known`: the variables of the same author's other texts.
pub fn apply<'d>(
    directives: &'d [Directive],
    known: Option<&Names>,
    external: &mut ExternalAuth,
    compiler: &mut Compiler<'_>,
) -> Vec<Left<'d>> {
    let mut names = Names::of(OF_AUTH, directives);
    if let Some(known) = known {
        names.learn(known);
    }
    let (steps, mut left) = script::read_all(directives, &mut names, At::Elsewhere, compiler);
    if !steps.is_empty() {
        external.script = Some(Box::new(Script { steps, ..Script::default() }));
    }
    for directive in directives.iter().filter(|one| !script::is_step(one)) {
        let read = match (&directive.block, names.words(&directive.arguments)) {
            (None, Ok(words)) => {
                let words: Vec<&str> = words.iter().map(|word| &**word).collect();
                one(&directive.name, &words, external)
            }
            (None, Err(why)) => impossible(why),
            (Some(_), _) => Err(Not::Known),
        };
        left.extend(read.err().map(|not| Left::of(directive, not)));
    }
    left
}

fn one(name: &str, words: &[&str], external: &mut ExternalAuth) -> Result {
    match (name, words) {
        ("proxy_set_header", [name, value]) => headers::of_auth(name, value, &mut external.headers),
        ("proxy_method", [method]) => match METHODS.contains(method) {
            true => {
                external.method.get_or_insert_with(|| (*method).to_owned());
                Ok(())
            }
            false => impossible("it is a method such as POST"),
        },
        ("grpc_set_header", _) => Err(Not::Needed("an auth server does not speak gRPC")),
        (name, _) if is_of_answers(name) => {
            Err(Not::Needed("the answer of an auth server is not sent to clients"))
        }
        (name, _) if is_of_access(name) => Err(Not::Needed(
            "nginx checks the access of a request once, and not of its auth request",
        )),
        ("access_log" | "error_log" | "log_not_found" | "log_subrequest" | "rewrite_log", _) => {
            Err(Not::Needed("only the operator can change logs"))
        }
        _ => Err(Not::Known),
    }
}

/// Whether a directive is about answers that clients get.
fn is_of_answers(name: &str) -> bool {
    matches!(
        name,
        "add_header"
            | "add_trailer"
            | "charset"
            | "chunked_transfer_encoding"
            | "default_type"
            | "etag"
            | "expires"
            | "limit_rate"
            | "limit_rate_after"
            | "more_clear_headers"
            | "more_set_headers"
            | "proxy_cookie_domain"
            | "proxy_cookie_flags"
            | "proxy_cookie_path"
            | "proxy_hide_header"
            | "proxy_pass_header"
            | "proxy_redirect"
            | "server_tokens"
    )
}

/// Whether a directive is one of nginx's access phase, which subrequests do not have.
fn is_of_access(name: &str) -> bool {
    matches!(
        name,
        "allow"
            | "auth_basic"
            | "auth_basic_user_file"
            | "auth_request"
            | "auth_request_set"
            | "deny"
            | "satisfy"
    )
}

#[cfg(test)]
mod tests {
    use super::super::values::Loss;
    use super::*;
    use oxigress_settings::grammar::directives::parse;

    /// Headers and steps as JSON, and what is left out with what is lost.
    fn read(text: &str) -> (String, Vec<String>) {
        let mut external: ExternalAuth =
            serde_json::from_str(r#"{"to": {"backend": "b", "host": "h"}, "target": "/"}"#)
                .unwrap();
        let before = parse("set $tenant blue;").unwrap();
        let known = Names::of('l', &before);
        let all = parse(text).unwrap();
        let left = apply(&all, Some(&known), &mut external, &mut Compiler::new([]));
        let lost = |loss| match loss {
            Loss::Nothing => "idle",
            Loss::AsNamed => "as named",
            Loss::Protection => "opens",
        };
        let left = left.iter().map(|one| format!("{} {}", one.directive.name, lost(one.loss)));
        let left = left.collect();
        let found = serde_json::to_value(&external).unwrap();
        (format!("{} {}", found["headers"], found["script"]["steps"]), left)
    }

    #[test]
    fn directives_are_headers_and_steps() {
        for (text, expected) in [
            (
                "proxy_set_header X-A $host; proxy_set_header X-Real-IP 1;",
                r#"[{"name":"X-A","value":"$host"},{"name":"X-Real-IP","value":"1"}] null"#,
            ),
            (
                "set $Tenant green; proxy_set_header X-A $tenant;",
                r#"[{"name":"X-A","value":"$snippet_a_tenant"}] [{"set":{"name":"snippet_a_tenant","value":"green"}}]"#,
            ),
            (
                "proxy_set_header X-A $tenant;",
                r#"[{"name":"X-A","value":"$snippet_l_tenant"}] null"#,
            ),
            (
                "proxy_set_header X-A a$args$1${arg_b}$is_args;",
                r#"[{"name":"X-A","value":"a"}] null"#,
            ),
            (
                "proxy_set_header X-A $uri$document_uri$request_uri;",
                r#"[{"name":"X-A","value":"$uri$document_uri$request_uri"}] null"#,
            ),
            (
                "if ($uri ~ ^/(open$|door/)) { return 200; } return 302 /in;",
                r#"null [{"if":{"test":{"pattern":"^/(open$|door/)","value":"$uri"},"then":[{"answer":{"code":204}}]}},{"answer":{"code":500}}]"#,
            ),
        ] {
            let (found, left) = read(text);
            assert_eq!((found.as_str(), left), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn what_could_decide_who_comes_in_is_not_left_out_quietly() {
        for (text, expected) in [
            ("proxy_set_header X-A $request_filename;", "proxy_set_header as named"),
            ("proxy_set_header X-A $unknown;", "proxy_set_header as named"),
            ("proxy_set_header X-A $snippet_s_token;", "proxy_set_header as named"),
            ("proxy_set_header Host $host;", "proxy_set_header as named"),
            ("proxy_pass_request_headers off;", "proxy_pass_request_headers as named"),
            ("set $host a;", "set opens"),
            ("rewrite ^ /x break;", "rewrite opens"),
            ("if (-f $request_uri) { return 200; }", "if opens"),
            ("if ($host) { proxy_set_header A b; }", "if opens"),
            ("if ($host) { more_clear_input_headers A; }", "if opens"),
            ("if ($host) { add_header A b; }", "add_header idle"),
            ("proxy_set_header Content-Length \"\";", "proxy_set_header idle"),
            ("proxy_pass_header Server;", "proxy_pass_header idle"),
            ("add_header A b;", "add_header idle"),
            ("deny all;", "deny idle"),
            ("access_log off;", "access_log idle"),
        ] {
            let (found, left) = read(text);
            assert_eq!(left, [expected], "{text}: {found}");
        }
    }
}
