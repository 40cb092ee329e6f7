//! Lines of access logs.
//!
//! Shape:   JSON objects; lines with the quoted request of nginx's and Apache's `combined` format, with or without the
//!          virtual host before them; ingress-nginx's own format, which has no host but the name of the upstream.
//! Errors:  the reason why a line is no request, which is counted.

use crate::requests::{Defaults, Request};
use crate::routes::Routes;
use serde_json::{Map, Value};

const NO_REQUEST: &str = "a line without a request";
const NO_HOST: &str = "a line without a host: give --host, or the Ingress objects";

/// The request of a line.
pub fn read(line: &str, defaults: &Defaults, routes: &Routes) -> Result<Request, &'static str> {
    if line.starts_with('{') {
        let object: Map<String, Value> = serde_json::from_str(line).map_err(|_| NO_REQUEST)?;
        return of_json(&object, defaults);
    }
    let (before, quoted, after) = quoted_request(line).ok_or(NO_REQUEST)?;
    let (method, target, host) = parse_request(quoted).ok_or(NO_REQUEST)?;
    let path = target.split('?').next().unwrap_or_default();
    let host = host
        .or_else(|| virtual_host(before))
        .or_else(|| upstream(after).and_then(|upstream| routes.host_of(upstream, path)))
        .or_else(|| defaults.host.clone())
        .ok_or(NO_HOST)?;
    Ok(Request { method, is_https: defaults.is_https, host, target })
}

/// The first quoted text that is a request line, what stands before it, and what stands behind it.
fn quoted_request(line: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let begin = from + line.get(from..)?.find('"')? + 1;
        let mut end = begin + line.get(begin..)?.find('"')?;
        while line.get(..end)?.ends_with('\\') {
            end += 1 + line.get(end + 1..)?.find('"')?;
        }
        let text = line.get(begin..end)?;
        if parse_request(text).is_some() {
            return Some((line.get(..begin - 1)?, text, line.get(end + 1..)?));
        }
        from = end + 1;
    }
}

/// Method, target and the host of an absolute target, of `GET /a HTTP/1.1`.
fn parse_request(text: &str) -> Option<(String, String, Option<String>)> {
    let mut words = text.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !version.starts_with("HTTP/") || words.next().is_some() {
        return None;
    }
    match target.split_once("://") {
        _ if target.starts_with('/') => Some((method.into(), target.into(), None)),
        Some((_, rest)) => {
            let at = rest.find('/').unwrap_or(rest.len());
            let (host, target) = rest.split_at(at);
            let target = if target.is_empty() { "/" } else { target };
            Some((method.into(), target.into(), Some(host.into())))
        }
        None => None,
    }
}

/// The first word of Apache's `vhost_combined`, `shop.test:443`, which an address follows.
fn virtual_host(before: &str) -> Option<String> {
    let mut words = before.split_whitespace();
    let (first, second) = (words.next()?, words.next()?);
    let is_address = |text: &str| text.parse::<std::net::IpAddr>().is_ok();
    let name = first.split(':').next()?;
    (is_address(second) && !is_address(first) && name.contains('.')).then(|| name.to_owned())
}

/// `[namespace-service-port]` of ingress-nginx's format.
fn upstream(after: &str) -> Option<&str> {
    let (_, rest) = after.rsplit_once('"')?;
    let (_, rest) = rest.split_once('[')?;
    rest.split_once(']').map(|(name, _)| name).filter(|name| !name.is_empty())
}

fn of_json(object: &Map<String, Value>, defaults: &Defaults) -> Result<Request, &'static str> {
    let text = |names: &[&str]| {
        let values = names.iter().filter_map(|name| object.get(*name));
        values.filter_map(Value::as_str).find(|text| !text.is_empty() && *text != "-")
    };
    let mut host = text(&[
        "host",
        "http_host",
        "vhost",
        "authority",
        ":authority",
        "server_name",
        "RequestHost",
    ])
    .map(str::to_owned);
    let (method, mut target) = match text(&["request"]).and_then(parse_request) {
        Some((method, target, absolute)) => {
            host = absolute.or(host);
            (method, target)
        }
        None => {
            let method =
                text(&["method", "request_method", "requestMethod", "verb", "RequestMethod"]);
            let target = text(&["request_uri", "requestUri", "uri", "url", "path", "RequestPath"]);
            (method.unwrap_or("GET").to_ascii_uppercase(), target.ok_or(NO_REQUEST)?.to_owned())
        }
    };
    if let Some(query) = text(&["args", "query", "query_string", "request_query"])
        && !target.contains('?')
    {
        target = format!("{target}?{}", query.trim_start_matches('?'));
    }
    let is_https = match text(&["scheme", "request_scheme", "x-forwarded-proto", "RequestScheme"]) {
        Some(scheme) => scheme.eq_ignore_ascii_case("https"),
        None => defaults.is_https,
    };
    let host = host.or_else(|| defaults.host.clone()).ok_or(NO_HOST)?;
    Ok(Request { method, is_https, host, target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::tests::shop;

    fn found(line: &str) -> Result<String, &'static str> {
        let defaults = Defaults { host: Some("default.test".into()), is_https: false };
        read(line, &defaults, &shop()).map(|request| request.to_string())
    }

    #[test]
    fn the_common_formats_are_read() {
        for (line, expected) in [
            // nginx and Apache, combined.
            (
                r#"10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /a?b=1 HTTP/1.1" 200 5 "-" "curl/8 \"x\"""#,
                "GET http://default.test/a?b=1",
            ),
            // Apache, vhost_combined.
            (
                r#"shop.test:443 10.0.0.1 - - [x] "POST /cart HTTP/2.0" 200 5 "https://a/" "Mozilla""#,
                "POST http://shop.test/cart",
            ),
            // ingress-nginx: the host of the upstream's route.
            (
                r#"10.0.0.1 - - [x] "GET /cart/1 HTTP/1.1" 200 5 "-" "curl" 93 0.002 [shop-cart-80] [] 10.1.0.1:80 5 0.002 200 abc"#,
                "GET http://shop.test/cart/1",
            ),
            (r#"10.0.0.1 - - [x] "GET http://abs.test/a HTTP/1.1" 200 5"#, "GET http://abs.test/a"),
            (
                r#"{"host":"shop.test","request_method":"GET","uri":"/a","args":"b=1","scheme":"https"}"#,
                "GET https://shop.test/a?b=1",
            ),
            (
                r#"{"http_host":"shop.test","request":"HEAD /a HTTP/1.1"}"#,
                "HEAD http://shop.test/a",
            ),
        ] {
            assert_eq!(found(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_request_says_why() {
        assert_eq!(found("nothing here"), Err(NO_REQUEST));
        assert_eq!(found(r#"10.0.0.1 - - [x] "\x16\x03\x01" 400 150 "-" "-""#), Err(NO_REQUEST));
        assert_eq!(found("{\"a\":1}"), Err(NO_REQUEST));
        let line = r#"10.0.0.1 - - [x] "GET / HTTP/1.1" 200 5"#;
        let without = read(line, &Defaults::default(), &Routes::default());
        assert_eq!(without, Err(NO_HOST));
    }
}
