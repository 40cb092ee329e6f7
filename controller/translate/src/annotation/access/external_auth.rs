//! Annotations that ask another server who may come in.
//!
//! Source:  ingress-nginx's annotations. The reference drops the whole group for an invalid auth-request-redirect,
//!          auth-always-set-cookie or auth-cache-duration, which opens the location: here each closes it.

use crate::annotation::reader::Reader;
use oxigress_core::model::policy::{
    Access, AuthCache, ExternalAuth, HeaderName, RequestHeader, Template, Validity,
};
use oxigress_settings::grammar::external_auth::{METHODS, URL, URLVAR, durations, header_names};
use oxigress_settings::grammar::url::Url;
use oxigress_settings::grammar::{any_template, is_plain, is_word, parse_bool, template};

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

/// Reads the annotations of this group; what is invalid is noted.
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
        script: None,
        answer_variables: Vec::new(),
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
        is_plain(text, URL).then(|| text.to_owned())
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

fn question_headers(reader: &mut Reader<'_>) -> Vec<RequestHeader> {
    let name = "auth-proxy-set-headers";
    let Some(text) = reader.text(name).filter(|text| !text.is_empty()) else { return Vec::new() };
    let headers = reader.config_map(text).and_then(|(key, map)| {
        let header = |(name, value): (&String, &String)| {
            let name = HeaderName::parse(name).ok().filter(|_| is_word(name))?;
            Some(RequestHeader { name, value: any_template(value.trim()).ok()? })
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
        any_template(text).ok().filter(|_| is_plain)
    })?;
    let usual = Validity { statuses: vec![200, 202, 401], seconds: 300 };
    Some(AuthCache { key, valid: valid.unwrap_or_else(|| vec![usual]) })
}
