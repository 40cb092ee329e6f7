//! Policies as they may be shown: what they say, and nothing that opens a door.

use crate::model::policy::{
    Access, HeaderName, HeaderValue, Policies, Proxy, Template, UpstreamTls,
};
use serde_json::Value;

const HIDDEN: &str = "(hidden)";

/// Headers whose values are often credentials: names that hold one of these.
const SECRET_NAMES: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "key", "credential", "signature"];

/// The policies as JSON, without keys, password hashes, queries of auth servers and mirrors, and values of headers that may
/// be credentials; certificates by their length.
pub fn shown(policies: &Policies) -> Value {
    let mut policies = policies.clone();
    policies.response_headers.retain_mut(|header| {
        let Ok(hidden) = HeaderValue::parse(HIDDEN) else { return false };
        if is_secret(&header.name) {
            header.value = hidden;
        }
        true
    });
    hide(policies.request_headers.iter_mut().map(|header| (&header.name, &mut header.value)));
    if let Some(Access { basic, external, .. }) = &mut policies.access {
        if let Some(basic) = basic {
            basic.users = format!("({} lines, hidden)", basic.users.lines().count());
        }
        if let Some(external) = external {
            hide_query(&mut external.target);
            hide(external.headers.iter_mut().map(|header| (&header.name, &mut header.value)));
        }
    }
    if let Some(mirror) = &mut policies.mirror {
        hide_query(&mut mirror.target);
    }
    if let Some(Proxy { fastcgi_params, tls, .. }) = &mut policies.proxy {
        hide(fastcgi_params.iter_mut().map(|param| (&param.name, &mut param.value)));
        if let Some(UpstreamTls { certificate, key, .. }) = tls {
            if !key.is_empty() {
                *key = HIDDEN.into();
            }
            if !certificate.is_empty() {
                *certificate = format!("(PEM, {} bytes)", certificate.len());
            }
        }
    }
    // Maps with text keys and lists: nothing that JSON cannot hold.
    serde_json::to_value(&policies).unwrap_or_default()
}

fn hide<'h>(headers: impl Iterator<Item = (&'h HeaderName, &'h mut Template)>) {
    for (name, value) in headers {
        if is_secret(name) && !value.as_str().is_empty() {
            *value = Template::parse(HIDDEN).unwrap_or_else(|_| Template::empty());
        }
    }
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

fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str().to_ascii_lowercase();
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
        ] {
            assert!(shown.contains(seen), "{seen} in {shown}");
        }
    }
}
