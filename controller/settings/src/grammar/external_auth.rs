//! What `auth-*` annotations and `global-auth-*` keys of the ConfigMap may say.
//!
//! Source:  ingress-nginx's annotations.

use super::url::Url;
use super::{any_template, is_plain, is_word, parse_bool, template};
use oxigress_core::model::policy::{AuthCache, ExternalAuth, HeaderName, Validity};
use oxigress_core::model::shorten;
use std::collections::BTreeMap;

/// The methods that an auth server may be asked with.
pub const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"];
/// The characters of a URL without variables, beside those that [`is_plain`](super::is_plain) takes.
pub const URL: &[u8] = b",?&=";
/// The characters of a URL with variables.
pub const URLVAR: &[u8] = b", ?&=$";

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
    let a_key = |text: &str| any_template(text).ok();
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
            is_plain(text, URL).then(|| text.to_owned())
        })?,
        response_headers: headers.unwrap_or_default(),
        headers: Vec::new(),
        script: None,
        answer_variables: Vec::new(),
        request_redirect: parsed(texts, "auth-request-redirect", "a URL", a_template)?,
        always_sets_cookie: cookie.unwrap_or_default(),
        cache: key.map(|key| AuthCache { key, valid: valid.unwrap_or_else(usual) }),
    }))
}

/// Reads a list of header names with commas; an empty item is left out.
pub fn header_names(text: &str) -> Option<Vec<HeaderName>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| HeaderName::parse(name).ok().filter(|_| is_word(name))).collect()
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
    fn no_key_has_the_variables_of_a_snippet() {
        let of = |key: &str| {
            let all = [("auth-url", "http://a.test/"), ("auth-cache-key", key)];
            of_texts(&all.map(|(name, text)| (name, text.to_owned())).into()).is_ok()
        };
        assert!(of("$remote_user ,") && !of("a$Snippet_s_token"));
    }

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
