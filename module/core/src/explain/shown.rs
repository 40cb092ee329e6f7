//! Policies as they may be shown: what they say, and nothing that opens a door.

use crate::model::policy::{Access, Policies, Template, UpstreamTls};
use serde_json::Value;

/// Stands for what is not shown.
pub const HIDDEN: &str = "(hidden)";

/// Headers whose values are often credentials: names that hold one of these.
const SECRET_NAMES: [&str; 12] = [
    "auth",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "key",
    "pass",
    "pwd",
    "secret",
    "session",
    "signature",
    "token",
];

/// The policies as JSON, without keys, password hashes, queries of auth servers, mirrors and rewrites, the texts of scripts, and values of
/// headers that may be credentials; certificates by their length.
pub fn shown(policies: &Policies) -> Value {
    let mut policies = policies.clone();
    if let Some(Access { basic, external, .. }) = &mut policies.access {
        if let Some(basic) = basic {
            basic.users = format!("({} lines, hidden)", basic.users.lines().count());
        }
        if let Some(external) = external {
            hide_query(&mut external.target);
        }
    }
    policies.rewrite.iter_mut().for_each(|rewrite| hide_query(&mut rewrite.target));
    policies.mirror.iter_mut().for_each(|mirror| hide_query(&mut mirror.target));
    policies.more_mirrors.iter_mut().for_each(|mirror| hide_query(&mut mirror.target));
    if let Some(UpstreamTls { certificate, key, .. }) =
        policies.proxy.as_mut().and_then(|proxy| proxy.tls.as_mut())
    {
        if !key.is_empty() {
            *key = HIDDEN.into();
        }
        if !certificate.is_empty() {
            *certificate = format!("(PEM, {} bytes)", certificate.len());
        }
    }
    // Maps with text keys and lists: nothing that JSON cannot hold.
    let mut shown = serde_json::to_value(&policies).unwrap_or_default();
    hide(&mut shown, false);
    shown
}

/// Hides the values of names that may be credentials, in whatever list they stand, and all texts of scripts: these compare with
/// what lets a request in.
fn hide(shown: &mut Value, is_script: bool) {
    match shown {
        Value::Array(all) => all.iter_mut().for_each(|one| hide(one, is_script)),
        Value::Object(members) => {
            let name = members.get("name").and_then(Value::as_str);
            let hides = is_script || name.is_some_and(is_secret);
            for (member, value) in members {
                match value {
                    Value::String(text) if !text.is_empty() && hides && is_text(member) => {
                        *text = HIDDEN.into();
                    }
                    _ => hide(value, is_script || member == "script" || member == "steps"),
                }
            }
        }
        _ => {}
    }
}

/// Whether a member of a header or of a step has a text that its author wrote, and is no name.
fn is_text(member: &str) -> bool {
    ["value", "equals", "pattern", "target", "location"].contains(&member)
}

/// A query may have what a server lets the gateway in by. That of a sign-in page is what every client gets.
fn hide_query(target: &mut Template) {
    if let Some((path, query)) = target.as_str().split_once('?')
        && !query.is_empty()
    {
        let hidden = Template::parse(format!("{path}?{HIDDEN}"));
        *target = hidden.unwrap_or_else(|_| Template::empty());
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_hashes_are_not_shown() {
        let policies: Policies = serde_json::from_value(serde_json::json!({
            "access": {
                "basic": {"realm": "shop", "users": "ann:$apr1$SECRET\nbob:{SHA}SECRET"},
                "external": {
                    "to": {"backend": "auth", "host": "auth.test"},
                    "target": "/check?key=SECRET&to=$host",
                    "headers": [{"name": "X-Api-Key", "value": "SECRET"}, {"name": "X-Seen", "value": "$host"}],
                },
            },
            "mirror": {"to": {"backend": "copy", "host": "copy.test"}, "target": "/copy$request_uri?token=SECRET"},
            "proxy": {
                "tls": {"certificate": "SECRET-CHAIN", "key": "SECRET"},
                "fastcgi_params": [{"name": "DB_PASSWORD", "value": "SECRET"}],
            },
            "request_headers": [{"name": "Authorization", "value": "Bearer SECRET"}],
            "added_request_headers": [{"name": "Authorization", "value": "Bearer SECRET"}],
            "beside_own_headers": [{"name": "X-Token", "value": "SECRET"}, {"name": "X-Auth", "value": "SECRET"}],
            "rewrite": {"target": "/to?api_key=SECRET"},
            "response_edits": [{"name": "X-Api-Key", "action": "set", "value": "SECRET"}],
            "more_mirrors": [{"to": {"backend": "copy", "host": "copy.test"}, "target": "/?token=SECRET"}],
            "script": {"steps": [
                {"set": {"name": "snippet_l_t", "value": "SECRET"}},
                {"if": {
                    "test": {"value": "$http_x", "equals": "SECRET"},
                    "then": [{"answer": {"code": 302, "location": "/SECRET"}}],
                }},
                {"rewrite": {"pattern": "^/SECRET", "target": "/SECRET", "then": "last"}},
            ]},
            "response_headers": [{"name": "Set-Cookie", "value": "SECRET"}, {"name": "X-Seen", "value": "yes"}],
        }))
        .unwrap();
        let shown = shown(&policies).to_string();
        assert!(!shown.contains("SECRET"), "{shown}");
        for seen in [
            "(2 lines, hidden)",
            "(PEM, 12 bytes)",
            "$host",
            "yes",
            "realm",
            "/check?(hidden)",
            "$request_uri?(hidden)",
            "snippet_l_t",
            "302",
        ] {
            assert!(shown.contains(seen), "{seen} in {shown}");
        }
    }
}
