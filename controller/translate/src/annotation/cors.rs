//! Annotations of cross-origin resource sharing.
//!
//! Source:  ingress-nginx's annotations. The reference allows every origin where the list cannot be read, or where
//!          nothing of it is left: here nobody is allowed then.

use super::reader::Reader;
use oxigress_core::model::policy::{Cors, HeaderValue, Policies};
use oxigress_core::model::shorten;
use oxigress_settings::grammar::is_word;
use oxigress_settings::grammar::parse_bool;

/// Those that say nothing where they are empty.
const DETAILS: [&str; 6] = [
    "cors-allow-origin",
    "cors-allow-methods",
    "cors-allow-headers",
    "cors-expose-headers",
    "cors-allow-credentials",
    "cors-max-age",
];

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) {
    reader.drop_empty(&DETAILS);
    let mut is_on = policies.cors.is_some();
    reader.flag("enable-cors", &mut is_on);
    if !is_on {
        policies.cors = None;
        return;
    }
    let usual = |text: &str| HeaderValue::parse(text).ok();
    let (Some(methods), Some(headers)) = (
        usual("GET, PUT, POST, DELETE, PATCH, OPTIONS"),
        usual(
            "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization",
        ),
    ) else {
        return;
    };
    let mut cors = Cors {
        origins: origins(reader),
        methods,
        headers,
        exposed: None,
        credentials: true,
        max_age: 1_728_000,
        is_of_route: false,
    };
    let list = |text: &str, is_item: fn(&str) -> bool| {
        let is_list = text.split(',').all(|item| is_item(item.trim()));
        HeaderValue::parse(text).ok().filter(|_| is_list)
    };
    let is_method = |item: &str| item.bytes().all(|b| b.is_ascii_alphabetic()) && !item.is_empty();
    if let Some(methods) =
        reader.parsed("cors-allow-methods", "a list of methods", |text| list(text, is_method))
    {
        cors.methods = methods;
    }
    if let Some(headers) =
        reader
            .parsed("cors-allow-headers", "a list of names of headers", |text| list(text, is_word))
    {
        cors.headers = headers;
    }
    let is_exposed = |item: &str| item == "*" || is_word(item);
    cors.exposed = reader
        .parsed("cors-expose-headers", "a list of names of headers", |text| list(text, is_exposed));
    if let Some(credentials) = reader.parsed("cors-allow-credentials", "true or false", parse_bool)
    {
        cors.credentials = credentials;
    }
    if let Some(age) = reader.number("cors-max-age", -1, i64::from(i32::MAX)) {
        cors.max_age = age;
    }
    policies.cors = Some(cors);
}

/// The origins that are allowed; `None`: every origin.
fn origins(reader: &mut Reader<'_>) -> Option<Vec<HeaderValue>> {
    let name = "cors-allow-origin";
    let text = reader.text(name)?;
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let mut origins = Vec::new();
    for item in items {
        if item == "*" {
            return None;
        }
        match HeaderValue::parse(item) {
            Ok(origin) if is_origin(item) => origins.push(origin),
            _ => reader.warn(
                name,
                &format!("{:?} is not scheme://host, with a port or `*.`: left out", shorten(item)),
            ),
        }
    }
    if origins.is_empty() {
        reader.warn(name, "no origin is left, so none is allowed: correct it");
    }
    Some(origins)
}

/// `scheme://host[:port]`, with `*.` for one first label, or `null`.
fn is_origin(text: &str) -> bool {
    if text == "null" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let is_scheme = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let (host, port) = rest.split_once(':').unwrap_or((rest, "0"));
    let host = host.strip_prefix("*.").unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(is_scheme)
        && host.split('.').all(is_label)
        && port.bytes().all(|b| b.is_ascii_digit())
        && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_port() {
        for text in ["https://a.test", "http://*.a.test:8080", "null", "capacitor://localhost"] {
            assert!(is_origin(text), "{text}");
        }
        for text in [
            "a.test",
            "*",
            "https://",
            "https://a.*.test",
            "https://a.test/",
            "://a",
            "https://a:x",
            "https://a b",
        ] {
            assert!(!is_origin(text), "{text}");
        }
    }
}
