//! GRPCRoutes, and the routes of HTTP that they mean.
//!
//! Shape:   a call is `POST /SERVICE/METHOD`: names are a path, expressions a condition on the whole path. All else that the two
//!          kinds share is read by the same types.
//! Source:  Gateway API v1.7; gRPC over HTTP/2, "Requests".

use super::{
    BackendRef, ExtensionRef, HeaderFilter, HttpPathMatch, HttpRouteFilter, HttpRouteMatch,
    HttpRouteRule, HttpValueMatch, MirrorFilter, RouteSpec,
};
use oxigress_core::patterns::check_text;
use serde::Deserialize;

/// The type of a match whose names cannot be those of a call.
pub const NO_NAME: &str = "Exact with a slash";

/// spec of a GRPCRoute.
pub type GrpcRouteSpec = RouteSpec<GrpcRouteRule>;

spec! {
    /// A rule of a GRPCRoute.
    struct GrpcRouteRule {
        name: Option<String>,
        matches: Vec<GrpcRouteMatch>,
        filters: Vec<GrpcRouteFilter>,
        backend_refs: Vec<BackendRef<Vec<GrpcRouteFilter>>>,
        session_persistence: Option<serde_json::Value>,
    }
    /// Which calls a rule takes.
    struct GrpcRouteMatch {
        method: Option<GrpcMethodMatch>,
        headers: Vec<HttpValueMatch>,
    }
    /// Which services and methods.
    struct GrpcMethodMatch {
        r#type: Option<String>,
        service: Option<String>,
        method: Option<String>,
    }
    /// What is done with a call or its answer.
    struct GrpcRouteFilter {
        r#type: String,
        request_header_modifier: Option<HeaderFilter>,
        response_header_modifier: Option<HeaderFilter>,
        request_mirror: Option<MirrorFilter>,
        extension_ref: Option<ExtensionRef>,
    }
}

fn all<A, B: From<A>>(from: Vec<A>) -> Vec<B> {
    from.into_iter().map(B::from).collect()
}

impl From<GrpcRouteRule> for HttpRouteRule {
    fn from(from: GrpcRouteRule) -> Self {
        let GrpcRouteRule { name, matches, filters, backend_refs, session_persistence } = from;
        HttpRouteRule {
            name,
            matches: all(matches),
            filters: all(filters),
            backend_refs: backend_refs.into_iter().map(|one| one.into_http(all)).collect(),
            session_persistence,
            ..HttpRouteRule::default()
        }
    }
}

impl From<GrpcRouteFilter> for HttpRouteFilter {
    fn from(from: GrpcRouteFilter) -> Self {
        let GrpcRouteFilter { r#type, request_header_modifier, .. } = from;
        let is_known = matches!(
            &*r#type,
            "RequestHeaderModifier" | "ResponseHeaderModifier" | "RequestMirror" | "ExtensionRef"
        );
        HttpRouteFilter {
            // What HTTPRoutes alone have is as unknown as any other.
            r#type: if is_known { r#type } else { format!("{type} of a GRPCRoute") },
            request_header_modifier,
            response_header_modifier: from.response_header_modifier,
            request_mirror: from.request_mirror,
            extension_ref: from.extension_ref,
            ..HttpRouteFilter::default()
        }
    }
}

impl From<GrpcRouteMatch> for HttpRouteMatch {
    fn from(from: GrpcRouteMatch) -> Self {
        let GrpcRouteMatch { method, headers } = from;
        let path = method.and_then(path_of);
        HttpRouteMatch { path, headers, ..HttpRouteMatch::default() }
    }
}

/// The paths of calls; `None`: of all.
fn path_of(from: GrpcMethodMatch) -> Option<HttpPathMatch> {
    let service = from.service.filter(|name| !name.is_empty());
    let method = from.method.filter(|name| !name.is_empty());
    let path =
        |kind: &str, value| Some(HttpPathMatch { r#type: Some(kind.into()), value: Some(value) });
    let any = "[^/]+";
    let has_slash = || service.iter().chain(&method).any(|name| name.contains('/'));
    match (from.r#type.as_deref(), &service, &method) {
        (None | Some("Exact" | "RegularExpression"), None, None) => None,
        (None | Some("Exact"), _, _) if has_slash() => path(NO_NAME, "/".into()),
        (None | Some("Exact"), Some(service), Some(method)) => {
            path("Exact", format!("/{service}/{method}"))
        }
        (None | Some("Exact"), Some(service), None) => path("PathPrefix", format!("/{service}")),
        (None | Some("Exact"), _, Some(method)) => {
            path("RegularExpression", format!("/{any}/{}", literal(method)))
        }
        (Some("RegularExpression"), service, method) => {
            // A name that is no expression by itself stays without a group, which could make one of it: it is refused then.
            let group = |text: &String| match check_text(text) {
                Ok(()) => format!("(?:{text})"),
                Err(_) => text.clone(),
            };
            let part = |text: &Option<String>| text.as_ref().map_or_else(|| any.into(), group);
            path("RegularExpression", format!("/{}/{}", part(service), part(method)))
        }
        (Some(other), _, _) => path(other, "/".into()),
    }
}

/// An expression that matches this text alone.
fn literal(text: &str) -> String {
    let is_plain = |c: &char| c.is_alphanumeric() || *c == '_';
    text.chars().flat_map(|c| (!is_plain(&c)).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<(String, String)> {
        let found: GrpcRouteMatch = serde_json::from_str(text).unwrap();
        let path = HttpRouteMatch::from(found).path?;
        Some((path.r#type.unwrap(), path.value.unwrap()))
    }

    #[test]
    fn a_service_and_a_method_are_a_path() {
        for (text, kind, value) in [
            (r#"{"service": "a.B", "method": "C"}"#, "Exact", "/a.B/C"),
            (r#"{"type": "Exact", "service": "a.B"}"#, "PathPrefix", "/a.B"),
            (r#"{"method": "C.d"}"#, "RegularExpression", r"/[^/]+/C\.d"),
            (
                r#"{"type": "RegularExpression", "service": "a|b"}"#,
                "RegularExpression",
                "/(?:a|b)/[^/]+",
            ),
            (
                r#"{"type": "RegularExpression", "service": "a", "method": "C|D"}"#,
                "RegularExpression",
                "/(?:a)/(?:C|D)",
            ),
            (
                r#"{"type": "RegularExpression", "service": "a)|(?:b"}"#,
                "RegularExpression",
                "/a)|(?:b/[^/]+",
            ),
            (r#"{"service": "a/b", "method": "C"}"#, NO_NAME, "/"),
            (r#"{"method": "b/C"}"#, NO_NAME, "/"),
            (r#"{"type": "Other", "method": "C"}"#, "Other", "/"),
        ] {
            let expected = Some((kind.to_owned(), value.to_owned()));
            assert_eq!(path(&format!(r#"{{"method": {text}}}"#)), expected, "{text}");
        }
        for text in [r#"{}"#, r#"{"method": {}}"#, r#"{"method": {"service": ""}}"#] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn a_filter_that_only_httproutes_have_is_unknown() {
        let of = |kind: &str| {
            let filter = GrpcRouteFilter { r#type: kind.into(), ..GrpcRouteFilter::default() };
            HttpRouteFilter::from(filter).r#type
        };
        assert_eq!(of("RequestMirror"), "RequestMirror");
        assert_eq!(of("URLRewrite"), "URLRewrite of a GRPCRoute");
    }
}
