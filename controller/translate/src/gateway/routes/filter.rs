//! Filters of routes to policies.

use oxigress_core::http::header;
use oxigress_core::model::PathPattern;
use oxigress_core::model::policy::{
    Condition, Cors, HeaderName, HeaderValue, PathEdit, Policies, Proxy, RedirectTo, RequestHeader,
    ResponseHeader, Template,
};
use oxigress_objects::gateway::{
    CorsFilter, HeaderFilter, HttpRouteFilter, HttpRouteRetry, HttpRouteRule, MirrorFilter,
    PathModifier, RedirectFilter, RewriteFilter,
};
use oxigress_validate::record;
use std::num::NonZeroU32;

/// Why a filter cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The rule is dropped.
    Unsupported(String),
    /// Its requests get 500.
    Unresolved(String),
}

impl<E: std::fmt::Display> From<E> for Refusal {
    fn from(why: E) -> Self {
        Refusal::Unsupported(format!("filters: {why}"))
    }
}

/// Adds what the filters say, as far as nginx takes all of it. Redirects name the listener, so they are answered apart.
pub fn apply<'r>(
    filters: &'r [HttpRouteFilter],
    path: &PathPattern,
    policies: &mut Policies,
) -> Result<Option<&'r RedirectFilter>, Refusal> {
    let redirect = add(filters, path, policies)?;
    if !filters.is_empty() {
        record::policies(policies).map_err(|fault| fault.error)?;
    }
    Ok(redirect)
}

fn add<'r>(
    filters: &'r [HttpRouteFilter],
    path: &PathPattern,
    policies: &mut Policies,
) -> Result<Option<&'r RedirectFilter>, Refusal> {
    let mut redirect = None;
    for filter in filters {
        match &*filter.r#type {
            "RequestHeaderModifier" => {
                if let Some(changes) = &filter.request_header_modifier {
                    request_headers(changes, policies)?;
                }
            }
            "ResponseHeaderModifier" => {
                if let Some(changes) = &filter.response_header_modifier {
                    response_headers(changes, policies)?;
                }
            }
            "RequestRedirect" => redirect = filter.request_redirect.as_ref().or(redirect),
            "URLRewrite" => {
                if let Some(rewrite) = &filter.url_rewrite {
                    rewrite_url(rewrite, path, policies)?;
                }
            }
            // Read apart: it names a Service.
            "RequestMirror" => {}
            "CORS" => {
                if let Some(filter) = &filter.cors {
                    policies.cors = Some(cors(filter)?);
                }
            }
            // Read apart: it is an object of its own.
            "ExtensionRef" if filter.policy().is_some() => {}
            "ExtensionRef" => {
                let message = "filters: an ExtensionRef is served of group oxigress.io and kind Policy alone: correct or remove it";
                return Err(Refusal::Unresolved(message.into()));
            }
            other => {
                let message = format!("filters: {other} is not served: remove it");
                return Err(Refusal::Unsupported(message));
            }
        }
    }
    Ok(redirect)
}

fn cors(filter: &CorsFilter) -> Result<Cors, Refusal> {
    let is_any = filter.allow_origins.iter().any(|origin| origin == "*");
    let origins = filter.allow_origins.iter().map(HeaderValue::parse);
    let list = |names: &[String]| HeaderValue::parse(names.join(", "));
    let methods = match filter.allow_methods.is_empty() {
        // Those that need no permission.
        true => HeaderValue::parse("GET, HEAD, POST")?,
        false => list(&filter.allow_methods)?,
    };
    Ok(Cors {
        origins: (!is_any).then(|| origins.collect()).transpose()?,
        methods,
        headers: list(&filter.allow_headers)?,
        exposed: match filter.expose_headers.is_empty() {
            true => None,
            false => Some(list(&filter.expose_headers)?),
        },
        credentials: filter.allow_credentials.unwrap_or_default(),
        max_age: filter.max_age.unwrap_or(5),
        is_of_route: true,
    })
}

/// Sets how long an attempt may take, for which of both the shorter one counts, and all attempts together. `0s` is no limit.
/// Without `retry` what may have been done is not done again after a timeout of the endpoint.
pub fn timeouts(rule: &HttpRouteRule, policies: &mut Policies) -> Result<(), String> {
    /// As good as none.
    const DAY_MS: u32 = 24 * 60 * 60 * 1_000;
    let read = |name: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => duration_ms(text)
            .map(|ms| Some(if ms == 0 { DAY_MS } else { ms.min(DAY_MS) }))
            .ok_or_else(|| {
                format!("timeouts.{name}: {text} is no duration such as 500ms or 1m30s")
            }),
    };
    let Some(timeouts) = &rule.timeouts else { return Ok(()) };
    let request = read("request", &timeouts.request)?;
    let backend = read("backendRequest", &timeouts.backend_request)?;
    let shorter = request.into_iter().chain(backend).min();
    if let Some(ms) = shorter {
        let proxy = policies.proxy.get_or_insert_with(Proxy::default);
        proxy.timeout_ms = Some(ms);
        proxy.total_timeout_ms = match rule.retry {
            Some(_) => Some(request.unwrap_or_default()),
            None => request.map(|_| ms),
        };
    }
    Ok(())
}

/// Sets when a request is tried again: after an error of the connection, and after these codes. It goes to endpoints that have not
/// had it first. As nginx does it, one that may have had an effect is not made again, and none waits: who retries at once has to
/// refuse `backoff`.
pub fn retry(retry: &HttpRouteRetry, policies: &mut Policies) -> Result<(), String> {
    if retry.backoff.is_some() {
        return Err(
            "retry.backoff is not served, requests are tried again at once: remove it".into()
        );
    }
    let code = |code: &i64| match code {
        403 => Ok(Condition::Http403),
        404 => Ok(Condition::Http404),
        429 => Ok(Condition::Http429),
        500 => Ok(Condition::Http500),
        502 => Ok(Condition::Http502),
        503 => Ok(Condition::Http503),
        504 => Ok(Condition::Http504),
        code => Err(format!(
            "retry.codes: {code} is not served: use some of 403, 404, 429, 500, 502, 503 and 504"
        )),
    };
    let mut conditions = vec![Condition::Error, Condition::Timeout];
    for condition in retry.codes.iter().map(code) {
        let condition = condition?;
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    // What the API server writes where there is none.
    let attempts = u16::try_from(retry.attempts.unwrap_or(1));
    let attempts = attempts.map_err(|_| format!("retry.attempts is not from 0 to {}", u16::MAX))?;
    if attempts == 0 {
        conditions.clear();
    }
    let proxy = policies.proxy.get_or_insert_with(Proxy::default);
    proxy.next_upstream = Some(conditions);
    proxy.next_upstream_tries = Some(u32::from(attempts) + 1);
    proxy.next_upstream_repeats = attempts > 0;
    Ok(())
}

/// Numbers with the units h, m, s and ms.
fn duration_ms(text: &str) -> Option<u32> {
    let (mut rest, mut sum) = (text, 0_u32);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = rest.split_at(end);
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(end);
        let each = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u32>().ok()?.checked_mul(each)?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

/// The share of requests that a filter copies; `None`: all.
pub fn share(filter: &MirrorFilter) -> Result<Option<(u32, NonZeroU32)>, String> {
    let of = |part: u32, all: u32| match NonZeroU32::new(all).filter(|all| part <= all.get()) {
        Some(all) => Ok(Some((part, all))),
        None => Err(format!("filters: requestMirror: {part} of {all} is no share")),
    };
    match (&filter.percent, &filter.fraction) {
        (Some(percent), None) => of(*percent, 100),
        (None, Some(fraction)) => of(fraction.numerator, fraction.denominator.unwrap_or(100)),
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err("filters: requestMirror: percent and fraction exclude each other".into())
        }
    }
}

fn request_headers(changes: &HeaderFilter, policies: &mut Policies) -> Result<(), Refusal> {
    let header = |name: &str, value: &str| -> Result<RequestHeader, Refusal> {
        if header::is_managed(name.as_bytes()) {
            return Err(format!("{name} is set by the gateway alone: remove it").into());
        }
        Ok(RequestHeader { name: free_name(name)?, value: Template::literal(value)? })
    };
    for one in &changes.set {
        policies.request_headers.push(header(&one.name, &one.value)?);
    }
    for name in &changes.remove {
        policies.request_headers.push(header(name, "")?);
    }
    for one in &changes.add {
        policies.added_request_headers.push(header(&one.name, &one.value)?);
    }
    Ok(())
}

fn response_headers(changes: &HeaderFilter, policies: &mut Policies) -> Result<(), Refusal> {
    let header = |name: &str, value: &str| -> Result<ResponseHeader, Refusal> {
        Ok(ResponseHeader { name: free_name(name)?, value: HeaderValue::parse(value)? })
    };
    for one in &changes.set {
        policies.response_headers.push(header(&one.name, &one.value)?);
    }
    for one in &changes.add {
        policies.added_response_headers.push(header(&one.name, &one.value)?);
    }
    for name in &changes.remove {
        policies.removed_response_headers.push(free_name(name)?);
    }
    Ok(())
}

/// The name of a header that neither frames nor routes a message.
fn free_name(name: &str) -> Result<HeaderName, Refusal> {
    if header::is_reserved(name.as_bytes()) {
        return Err(format!("{name} frames or routes messages, so no filter changes it").into());
    }
    Ok(HeaderName::parse(name)?)
}

fn rewrite_url(
    rewrite: &RewriteFilter,
    path: &PathPattern,
    policies: &mut Policies,
) -> Result<(), Refusal> {
    if let Some(host) = &rewrite.hostname {
        policies.upstream_host = Some(Template::literal(host)?);
    }
    if let Some(change) = &rewrite.path {
        policies.path_edit = Some(path_edit(change, path)?);
    }
    Ok(())
}

fn path_edit(change: &PathModifier, path: &PathPattern) -> Result<PathEdit, Refusal> {
    let value = |text: &Option<String>| HeaderValue::parse(text.clone().unwrap_or_default());
    match (&*change.r#type, path) {
        ("ReplaceFullPath", _) => Ok(PathEdit::Full(value(&change.replace_full_path)?)),
        ("ReplacePrefixMatch", PathPattern::Prefix(prefix)) => Ok(PathEdit::Prefix {
            from: HeaderValue::parse(prefix.clone())?,
            to: value(&change.replace_prefix_match)?,
        }),
        ("ReplacePrefixMatch", _) => {
            Err("ReplacePrefixMatch wants a match of type PathPrefix".into())
        }
        (other, _) => Err(format!("path.type {other} is unknown").into()),
    }
}

/// A redirect at a listener that speaks TLS or not, on this port of its Gateway.
pub fn redirect(
    filter: &RedirectFilter,
    path: &PathPattern,
    is_tls: bool,
    listener_port: i64,
) -> Result<RedirectTo, Refusal> {
    let own = if is_tls { "https" } else { "http" };
    let scheme = filter.scheme.as_deref().unwrap_or(own);
    let known = match scheme {
        "http" => 80,
        "https" => 443,
        other => return Err(format!("requestRedirect.scheme {other} is unknown").into()),
    };
    let port = match (filter.port, &filter.scheme) {
        (Some(port), _) => port,
        (None, Some(_)) => known,
        (None, None) => listener_port,
    };
    let code = filter.status_code.unwrap_or(302);
    let code = u16::try_from(code).ok().filter(|code| matches!(code, 301 | 302 | 303 | 307 | 308));
    Ok(RedirectTo {
        code: code.ok_or("requestRedirect.statusCode is none of 301, 302, 303, 307, 308")?,
        scheme: HeaderValue::parse(scheme)?,
        host: filter.hostname.clone().map(HeaderValue::parse).transpose()?,
        port: u16::try_from(port).ok().filter(|_| port != known),
        path: filter.path.as_ref().map(|change| path_edit(change, path)).transpose()?,
    })
}
