//! Annotations that ask another server who may come in.
//!
//! Source:  ingress-nginx's annotations. The reference drops the whole group for an invalid auth-request-redirect,
//!          auth-always-set-cookie or auth-cache-duration, which opens the location: here each closes it.

use super::reader::{Reader, is_word, template};
use super::url::Url;
use super::value::parse_bool;
use oxigress_core::model::policy::{
    Access, AuthCache, ExternalAuth, HeaderName, RequestHeader, Template, Validity,
};
use oxigress_core::model::shorten;
use std::collections::BTreeMap;

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"];
const URL: &[u8] = b",?&=";
const URLVAR: &[u8] = b", ?&=$";

/// Those that say how the server of auth-url is asked, and nothing where they are empty.
pub const DETAILS: [&str; 8] = [
    "auth-method",
    "auth-signin",
    "auth-signin-redirect-param",
    "auth-response-headers",
    "auth-request-redirect",
    "auth-always-set-cookie",
    "auth-cache-key",
    "auth-cache-duration",
];

/// Reads them.
pub fn read(reader: &mut Reader<'_>, access: &mut Access) {
    reader.drop_empty(&DETAILS);
    let mut is_global = true;
    reader.flag("enable-global-auth", &mut is_global);
    if !is_global {
        access.external = None;
    }
    let Some(text) = reader.text("auth-url") else {
        let alone = ["auth-signin", "auth-response-headers", "auth-method", "auth-cache-key"];
        if let Some(name) = alone.into_iter().find(|name| reader.has(name)) {
            reader.warn(name, "has no effect without auth-url");
        }
        return;
    };
    let url = match Url::parse(text, URLVAR) {
        Ok(url) => url,
        Err(why) => return reader.close("auth-url", &why, "correct it"),
    };
    let root = || Template::parse("/").ok().filter(|_| url.target.as_str().is_empty());
    let mut auth = ExternalAuth {
        to: url.to.clone(),
        target: root().unwrap_or_else(|| url.target.clone()),
        method: None,
        signin: None,
        signin_parameter: None,
        response_headers: Vec::new(),
        headers: Vec::new(),
        request_redirect: None,
        always_sets_cookie: false,
        cache: None,
    };
    auth.method = reader.parsed_or_closed("auth-method", "a method such as GET", |text| {
        METHODS.contains(&text).then(|| text.to_owned())
    });
    auth.signin = reader.template("auth-signin", "a URL", URLVAR);
    let what = "a parameter's name";
    auth.signin_parameter = reader.parsed("auth-signin-redirect-param", what, |text| {
        super::value::is_plain(text, URL).then(|| text.to_owned())
    });
    if let Some(headers) =
        reader.parsed_or_closed("auth-response-headers", "a list of names of headers", header_names)
    {
        auth.response_headers = headers;
    }
    auth.request_redirect =
        reader.parsed_or_closed("auth-request-redirect", "a URL", |text| template(text, URL).ok());
    auth.always_sets_cookie = reader
        .parsed_or_closed("auth-always-set-cookie", "true or false", parse_bool)
        .unwrap_or_default();
    auth.headers = question_headers(reader);
    auth.cache = cache(reader);
    access.external = Some(auth);
}

/// The same from texts by the annotations' names, for all Ingresses: `global-auth-*`. The error says which cannot be
/// honoured, and why.
pub fn of_texts(
    texts: &BTreeMap<&'static str, String>,
) -> Result<Option<ExternalAuth>, (&'static str, String)> {
    fn parsed<T>(
        texts: &BTreeMap<&'static str, String>,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, (&'static str, String)> {
        let Some(text) = texts.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let odd = || (name, format!("{:?} is not {what}", shorten(text)));
        parse(text).map(Some).ok_or_else(odd)
    }
    let Some(url) = texts.get("auth-url").filter(|text| !text.is_empty()) else { return Ok(None) };
    let url = Url::parse(url, URLVAR).map_err(|why| ("auth-url", why))?;
    let a_template = |text: &str| template(text, URLVAR).ok();
    let a_key = |text: &str| Template::parse(text).ok();
    let valid = parsed(texts, "auth-cache-duration", "a list such as `200 202 10m`", durations)?;
    let usual = || vec![Validity { statuses: vec![200, 202, 401], seconds: 300 }];
    let key = parsed(texts, "auth-cache-key", "a text with variables", a_key)?;
    let cookie = parsed(texts, "auth-always-set-cookie", "true or false", parse_bool)?;
    let headers = parsed(texts, "auth-response-headers", "a list of headers", header_names)?;
    Ok(Some(ExternalAuth {
        to: url.to,
        target: url.target,
        method: parsed(texts, "auth-method", "a method such as GET", |text| {
            METHODS.contains(&text).then(|| text.to_owned())
        })?,
        signin: parsed(texts, "auth-signin", "a URL", a_template)?,
        signin_parameter: parsed(texts, "auth-signin-redirect-param", "a parameter", |text| {
            super::value::is_plain(text, URL).then(|| text.to_owned())
        })?,
        response_headers: headers.unwrap_or_default(),
        headers: Vec::new(),
        request_redirect: parsed(texts, "auth-request-redirect", "a URL", a_template)?,
        always_sets_cookie: cookie.unwrap_or_default(),
        cache: key.map(|key| AuthCache { key, valid: valid.unwrap_or_else(usual) }),
    }))
}

fn header_names(text: &str) -> Option<Vec<HeaderName>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| HeaderName::parse(name).ok().filter(|_| is_word(name))).collect()
}

fn question_headers(reader: &mut Reader<'_>) -> Vec<RequestHeader> {
    let name = "auth-proxy-set-headers";
    let Some(text) = reader.text(name).filter(|text| !text.is_empty()) else { return Vec::new() };
    let headers = reader.config_map(text).and_then(|(key, map)| {
        let header = |(name, value): (&String, &String)| {
            let name = HeaderName::parse(name).ok().filter(|_| is_word(name))?;
            Some(RequestHeader { name, value: Template::parse(value.trim()).ok()? })
        };
        let headers: Option<Vec<_>> = map.data.iter().map(header).collect();
        headers.ok_or_else(|| format!("ConfigMap {key} has an entry that is no header"))
    });
    headers.unwrap_or_else(|why| {
        reader.close(name, &why, "correct it");
        Vec::new()
    })
}

fn cache(reader: &mut Reader<'_>) -> Option<AuthCache> {
    let valid = reader.parsed_or_closed(
        "auth-cache-duration",
        "a list such as `200 202 10m, 401 1m`",
        durations,
    );
    let key = reader.parsed("auth-cache-key", "a text with variables", |text| {
        let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_${} ".contains(&b));
        Template::parse(text).ok().filter(|_| is_plain)
    })?;
    let usual = Validity { statuses: vec![200, 202, 401], seconds: 300 };
    Some(AuthCache { key, valid: valid.unwrap_or_else(|| vec![usual]) })
}

/// Items of statuses and one duration.
pub fn durations(text: &str) -> Option<Vec<Validity>> {
    let item = |item: &str| {
        let mut words: Vec<&str> = item.split_ascii_whitespace().collect();
        let seconds = seconds(words.pop()?)?;
        let status = |word: &&str| word.parse().ok().filter(|code| (100..600).contains(code));
        let statuses: Option<Vec<u16>> = words.iter().map(status).collect();
        Some(Validity { statuses: statuses.filter(|all| !all.is_empty())?, seconds })
    };
    text.split(',').map(|text| item(text.trim())).collect()
}

fn seconds(text: &str) -> Option<u32> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let seconds = match text.strip_prefix(digits)? {
        "ms" => number / 1_000,
        "" | "s" => number,
        "m" => number.checked_mul(60)?,
        "h" => number.checked_mul(3_600)?,
        "d" => number.checked_mul(86_400)?,
        "w" => number.checked_mul(7 * 86_400)?,
        "M" => number.checked_mul(30 * 86_400)?,
        "y" => number.checked_mul(365 * 86_400)?,
        _ => return None,
    };
    u32::try_from(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_statuses_and_a_time() {
        let all = durations("200 202 10m, 401 30s").unwrap();
        assert_eq!(all[0], Validity { statuses: vec![200, 202], seconds: 600 });
        assert_eq!(all[1], Validity { statuses: vec![401], seconds: 30 });
        for text in ["", "10m", "200", "200 x", "200 10q", "20 10m", "200 10m,", "200 -1s"] {
            assert_eq!(durations(text), None, "{text}");
        }
    }
}
