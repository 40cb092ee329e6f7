//! All headers and texts with variables of a set of policies, for what holds of them together.

use super::script::Set;
use super::{
    Access, AuthCache, AuthHost, ExternalAuth, InputEdit, Limits, Mirror, Policies, Proxy,
    Redirect, RequestHeader, ResponseEdit, Rewrite, Template, Tracing,
};

impl Policies {
    /// How many headers it sets, adds and takes away; parameters of FastCGI, headers of auth requests and variables of their
    /// answers included.
    pub fn header_count(&self) -> usize {
        let external = self.access.as_ref().and_then(|access| access.external.as_ref());
        let of_auth = external.map_or(0, |auth| {
            auth.headers.len() + auth.response_headers.len() + auth.answer_variables.len()
        });
        self.input_edits.len()
            + self.request_headers.len()
            + self.added_request_headers.len()
            + self.beside_own_headers.len()
            + self.response_headers.len()
            + self.added_response_headers.len()
            + self.removed_response_headers.len()
            + self.response_edits.len()
            + self.proxy.as_ref().map_or(0, |proxy| {
                proxy.fastcgi_params.len() + proxy.cookie_flags.as_ref().map_or(0, Vec::len)
            })
            + self.script.as_ref().map_or(0, |script| script.header_count())
            + of_auth
    }

    /// Whether some of its texts have variables that are worked out of others.
    pub fn uses_definitions(&self) -> bool {
        self.definitions.is_none() && self.templates().iter().any(|text| text.uses_definitions())
    }

    /// Each text with variables that a request may have expanded.
    pub fn templates(&self) -> Vec<&Template> {
        let Policies {
            redirect,
            rewrite,
            script,
            definitions,
            upstream_host,
            access,
            limits,
            proxy,
            request_headers,
            added_request_headers,
            response_edits,
            input_edits,
            beside_own_headers,
            tracing,
            mirror: _,
            more_mirrors: _,
            // Without variables.
            denied: _,
            redirect_to: _,
            path_edit: _,
            keeps_trailing_slash: _,
            redirect_port: _,
            relative_redirects: _,
            cors: _,
            response_headers: _,
            added_response_headers: _,
            removed_response_headers: _,
            errors: _,
            fallback: _,
            is_unlogged: _,
        } = self;
        let mut all = Vec::new();
        let headers = [request_headers, added_request_headers, beside_own_headers];
        all.extend(headers.into_iter().flatten().map(|RequestHeader { name: _, value }| value));
        all.extend(input_edits.iter().map(|InputEdit { value, .. }| value));
        all.extend(response_edits.iter().map(|ResponseEdit { value, .. }| value));
        all.extend(redirect.iter().map(|Redirect { location, .. }| location));
        if let Some(Rewrite { target, forwarded_prefix }) = rewrite {
            all.extend([target].into_iter().chain(forwarded_prefix));
        }
        all.extend(script.iter().flat_map(|script| script.templates()));
        all.extend(definitions.iter().flat_map(|definitions| definitions.templates()));
        all.extend(upstream_host);
        all.extend(limits.iter().filter_map(|Limits { key, .. }| key.as_ref()));
        all.extend(tracing.iter().filter_map(|Tracing { operation, .. }| operation.as_ref()));
        if let Some(Proxy { fastcgi_params, .. }) = proxy {
            all.extend(fastcgi_params.iter().map(|RequestHeader { name: _, value }| value));
        }
        for Mirror { to, target, .. } in self.mirrors() {
            all.push(target);
            all.extend(of_host(to));
        }
        if let Some(Access { external: Some(external), .. }) = access {
            all.extend(of_auth(external));
        }
        all
    }
}

fn of_host(
    AuthHost { variable_host, backend: _, host: _, https: _ }: &AuthHost,
) -> Option<&Template> {
    variable_host.as_ref()
}

fn of_auth(external: &ExternalAuth) -> impl Iterator<Item = &Template> {
    let ExternalAuth {
        to,
        target,
        method: _,
        signin,
        signin_parameter: _,
        response_headers: _,
        headers,
        script,
        answer_variables,
        request_redirect,
        always_sets_cookie: _,
        cache,
    } = external;
    let key = cache.iter().map(|AuthCache { key, valid: _ }| key);
    let headers = headers.iter().map(|RequestHeader { name: _, value }| value);
    let steps = script.iter().flat_map(|script| script.templates());
    let of_answer = answer_variables.iter().map(|Set { name: _, value }| value);
    [target]
        .into_iter()
        .chain(of_host(to))
        .chain(signin)
        .chain(request_redirect)
        .chain(key)
        .chain(headers)
        .chain(steps)
        .chain(of_answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_with_variables_is_counted() {
        let policies: Policies = serde_json::from_value(serde_json::json!({
            "redirect": {"code": 301, "location": "$host"},
            "rewrite": {"target": "$host", "forwarded_prefix": "$host"},
            "script": {"steps": [
                {"if": {"test": {"value": "$host", "equals": "$host"}, "then": [
                    {"answer": {"code": 301, "location": "$host"}},
                ], "location": {
                    "response_edits": [{"name": "A", "action": "add", "value": "$host"}],
                    "input_edits": [{"name": "A", "value": "$host"}],
                }}},
                {"set": {"name": "snippet_a", "value": "$host"}},
                {"rewrite": {"pattern": "a", "target": "$host"}},
            ]},
            "definitions": {"variables": {
                "snippet_h_a": {"map": {
                    "source": "$host", "default": "$host", "texts": {"a": "$host"}, "heads": {"a": "$host"},
                    "tails": {"a": "$host"}, "patterns": [["a", "$host"]],
                }},
                "snippet_h_b": {"geo": {"source": "$host", "ranges": [], "values": []}},
                "snippet_h_c": {"split": {"source": "$host", "parts": []}},
            }},
            "upstream_host": "$host",
            "limits": {"owner": "o", "key": "$host"},
            "tracing": {"operation": "$host", "sampling": 1},
            "proxy": {"fastcgi_params": [{"name": "A", "value": "$host"}]},
            "input_edits": [{"name": "A", "value": "$host"}],
            "request_headers": [{"name": "A", "value": "$host"}],
            "added_request_headers": [{"name": "A", "value": "$host"}],
            "beside_own_headers": [{"name": "A", "value": "$host"}],
            "response_edits": [{"name": "A", "action": "add", "value": "$host"}],
            "mirror": {"to": {"backend": "b", "host": "h", "variable_host": "$host"}, "target": "$host"},
            "more_mirrors": [{"to": {"backend": "b", "host": "h"}, "target": "$host"}],
            "access": {"external": {
                "to": {"backend": "b", "host": "h", "variable_host": "$host"},
                "target": "$host", "signin": "$host", "request_redirect": "$host",
                "headers": [{"name": "A", "value": "$host"}],
                "script": {"steps": [{"set": {"name": "snippet_a_b", "value": "$host"}}]},
                "answer_variables": [{"name": "snippet_l_a", "value": "$host"}],
                "cache": {"key": "$host", "valid": []},
            }},
        }))
        .unwrap();
        let written = serde_json::to_string(&policies).unwrap().matches("$host").count();
        assert_eq!((policies.templates().len(), written), (38, 38));
    }
}
