//! How nginx talks to endpoints: mostly what annotations say, where none does.

use crate::Settings;
use crate::form::{Form, Value, any, bytes, header_name, reference};
use crate::grammar::load_balance::{LOAD_BALANCE, LoadBalance};
use crate::grammar::retries;
use crate::key::{How, Key, Take, key};
use oxigress_core::model::policy::{
    Condition, Errors, HeaderValue, HttpVersion, Ipv6Prefix, Limits, Proxy, ProxyRedirect,
    Replacement, Template,
};

const SECONDS: Form = Form::Number(0, 31_536_000);
const ON_OFF: Form = Form::Word(&["on", "off"]);
const TWO: &str = "off, or two words: what is replaced and by what";
const HASHES: How = How::NoEffect("as in ingress-nginx: annotate the Ingress");
const CONDITIONS: Form = Form::Text(retries::CONDITIONS, |text| {
    retries::conditions(text).filter(|_| !text.is_empty()).map(|_| text.to_owned())
});

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("proxy-connect-timeout", SECONDS, "5", How::Data(|to, v| { to.proxy().connect_timeout_seconds = Some(v.short()); Ok(()) })),
    key("proxy-read-timeout", SECONDS, "60", How::Data(|to, v| { to.proxy().read_timeout_seconds = Some(v.short()); Ok(()) })),
    key("proxy-send-timeout", SECONDS, "60", How::Data(|to, v| { to.proxy().send_timeout_seconds = Some(v.short()); Ok(()) })),
    key("proxy-buffering", ON_OFF, "off", How::Data(|to, v| { to.proxy().buffering = Some(v.text() == "on"); Ok(()) })),
    key("proxy-buffers-number", Form::Number(2, 65_536), "4", How::Data(|to, v| { to.proxy().buffer_count = Some(v.short()); Ok(()) })),
    key("proxy-buffer-size", Form::Size, "4k", How::Data(|to, v| { to.proxy().buffer_bytes = Some(size(v)?); Ok(()) })),
    key("proxy-busy-buffers-size", Form::Size, "", How::Data(|to, v| { to.proxy().busy_buffers_bytes = Some(size(v)?); Ok(()) })),
    key("proxy-max-temp-file-size", Form::Size, "1024m", How::Data(|to, v| { to.proxy().max_temp_file_bytes = bytes(v.text()); Ok(()) })),
    key("proxy-request-buffering", ON_OFF, "on", How::Data(|to, v| { to.proxy().request_buffering = Some(v.text() == "on"); Ok(()) })),
    key("proxy-body-size", Form::Size, "1m", How::Data(|to, v| { to.proxy().max_body_bytes = bytes(v.text()); Ok(()) })),
    key("proxy-http-version", Form::Word(&["1.0", "1.1"]), "1.1", How::Data(|to, v| {
        to.proxy().http_version = Some(if v.text() == "1.0" { HttpVersion::V10 } else { HttpVersion::V11 });
        Ok(())
    })),
    key("proxy-cookie-domain", Form::Text(TWO, any), "off", How::Data(|to, v| { to.proxy().cookie_domain = replacement(v)?; Ok(()) })),
    key("proxy-cookie-path", Form::Text(TWO, any), "off", How::Data(|to, v| { to.proxy().cookie_path = replacement(v)?; Ok(()) })),
    key("proxy-redirect-from", Form::Text("off, default or a text", any), "off", How::Data(REDIRECT_FROM)),
    key("proxy-redirect-to", Form::Text("a text", any), "off", How::Data(REDIRECT_TO)),
    key("proxy-next-upstream", CONDITIONS, "error timeout", How::Data(NEXT_UPSTREAM)),
    key("proxy-next-upstream-timeout", SECONDS, "0", How::Data(|to, v| { to.proxy().next_upstream_timeout_seconds = Some(v.short()); Ok(()) })),
    key("proxy-next-upstream-tries", Form::Number(0, 65_535), "3", How::Data(|to, v| { to.proxy().next_upstream_tries = Some(v.short()); Ok(()) })),
    key("retry-non-idempotent", Form::Flag, "false", How::Data(RETRY)),
    key("upstream-keepalive-connections", Form::Number(0, 65_535), "320", How::Conf),
    key("upstream-keepalive-time", Form::Time, "1h", How::Conf),
    key("upstream-keepalive-timeout", Form::Number(1, 31_536_000), "60", How::Conf),
    key("upstream-keepalive-requests", Form::Number(1, 1 << 31), "10000", How::Conf),
    key("load-balance", Form::Word(&["round_robin", "ewma", "least_conn", "p2c"]), "round_robin", How::Data(LOAD)),
    key("service-upstream", Form::Flag, "false", How::Data(|to, v| { to.service_upstream = v.flag(); Ok(()) })),
    key("upstream-hash-by", Form::Text("text", any), "", HASHES),
    key("upstream-hash-by-subset", Form::Text("text", any), "", HASHES),
    key("upstream-hash-by-subset-size", Form::Text("text", any), "", HASHES),
    key("app-root", Form::Text("text", any), "", HASHES),
    key("use-port-in-redirects", Form::Flag, "false", How::Data(|to, v| { to.use_port_in_redirects = v.flag(); Ok(()) })),
    key("relative-redirects", Form::Flag, "false", How::Data(|to, v| { to.defaults.policies.relative_redirects = v.flag(); Ok(()) })),
    key("custom-http-errors", Form::List("numbers from 300 to 599", status), "", How::Data(|to, v| { to.errors().codes = statuses(v); Ok(()) })),
    key("disable-proxy-intercept-errors", Form::Flag, "false", How::Data(|to, v| { to.errors().own_only = v.flag(); Ok(()) })),
    key("proxy-set-headers", Form::Text("NAMESPACE/NAME of a ConfigMap", reference), "", How::Data(|to, v| { to.request_headers_from = key_of(v); Ok(()) })),
    key("add-headers", Form::Text("NAMESPACE/NAME of a ConfigMap", reference), "", How::Data(|to, v| { to.response_headers_from = key_of(v); Ok(()) })),
    key("global-allowed-response-headers", Form::List("header names", header_name), "", How::Data(|to, v| { to.defaults.allowed_response_headers = v.list().iter().map(|name| name.to_ascii_lowercase()).collect(); Ok(()) })),
    key("limit-rate", Form::Number(0, 1 << 30), "0", How::Data(|to, v| { to.limits().response_rate = Some(v.number() << 10); Ok(()) })),
    key("limit-rate-after", Form::Number(0, 1 << 30), "0", How::Data(|to, v| { to.limits().response_rate_after = Some(v.number() << 10); Ok(()) })),
    key("limit-req-status-code", Form::Number(400, 599), "503", How::Data(|to, v| { to.defaults.limit_request_status = v.short() as u16; Ok(()) })),
    key("limit-conn-status-code", Form::Number(400, 599), "503", How::Data(|to, v| { to.defaults.limit_connection_status = v.short() as u16; Ok(()) })),
    key("limit-conn-zone-variable", Form::Text("text with variables", any), "$binary_remote_addr", How::Data(|to, v| {
        let key = Template::parse(v.text()).map_err(|error| format!("is not usable: {error}"))?;
        // The client's address, of which limit-ipv6-prefix says how much counts.
        let is_address = ["$remote_addr", "${remote_addr}", "$binary_remote_addr", "${binary_remote_addr}"].contains(&v.text());
        to.limits().key = (!is_address).then_some(key);
        Ok(())
    })),
    key("limit-ipv6-prefix", Form::Number(1, 128), "64", How::Data(|to, v| {
        to.limits().ipv6_prefix = u8::try_from(v.number()).ok().and_then(|bits| Ipv6Prefix::try_from(bits).ok()).unwrap_or_default();
        Ok(())
    })),
];

fn size(value: &Value) -> Result<u32, String> {
    let bytes = bytes(value.text()).and_then(|bytes| u32::try_from(bytes).ok());
    let is_enough = |bytes: &u32| *bytes >= Proxy::LEAST_BUFFER_BYTES;
    bytes.filter(is_enough).ok_or_else(|| "is not a size from 1k to 4294967295".into())
}

fn replacement(value: &Value) -> Result<Option<Replacement>, String> {
    let words: Vec<_> = value.text().split_whitespace().collect();
    match words.as_slice() {
        ["off"] => Ok(None),
        [from, to] => Ok(Some(Replacement { from: literal(from)?, to: literal(to)? })),
        _ => Err(format!("is not {TWO}")),
    }
}

fn literal(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::parse(text).map_err(|error| format!("is not usable: {error}"))
}

// Read in the order of names: `from` comes before `to`.
const REDIRECT_FROM: Take = |to: &mut Settings, value: &Value| {
    to.proxy().redirect = match value.text() {
        "off" => Some(ProxyRedirect::Off),
        "default" => Some(ProxyRedirect::Default),
        from => {
            let to = HeaderValue::parse("").map_err(|error| error.to_string())?;
            Some(ProxyRedirect::Replace(Replacement { from: literal(from)?, to }))
        }
    };
    Ok(())
};

const REDIRECT_TO: Take = |settings: &mut Settings, value: &Value| {
    let to = literal(value.text())?;
    match &mut settings.proxy().redirect {
        Some(ProxyRedirect::Replace(replacement)) => replacement.to = to,
        _ if value.text() == "off" => {}
        _ => return Err("has nothing to replace: set proxy-redirect-from too".into()),
    }
    Ok(())
};

const NEXT_UPSTREAM: Take = |to: &mut Settings, value: &Value| {
    to.proxy().next_upstream = retries::conditions(value.text());
    Ok(())
};

// After proxy-next-upstream, in the order of names.
const RETRY: Take = |to: &mut Settings, value: &Value| {
    to.defaults.retry_non_idempotent = value.flag();
    if value.flag() {
        let usual = || vec![Condition::Error, Condition::Timeout];
        retries::retry_non_idempotent(to.proxy().next_upstream.get_or_insert_with(usual));
    }
    Ok(())
};

const LOAD: Take = |to: &mut Settings, value: &Value| {
    if let Some((_, LoadBalance::Algorithm(algorithm))) =
        LOAD_BALANCE.iter().find(|(name, _)| *name == value.text())
    {
        to.load_balance = *algorithm;
    }
    Ok(())
};

fn status(text: &str) -> Option<String> {
    let code: u16 = text.parse().ok()?;
    (300..=599).contains(&code).then(|| code.to_string())
}

fn statuses(value: &Value) -> Vec<u16> {
    let mut codes: Vec<u16> = value.list().iter().filter_map(|code| code.parse().ok()).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

fn key_of(value: &Value) -> Option<oxigress_objects::Key> {
    oxigress_objects::Key::parse(value.text())
}

impl Settings {
    fn proxy(&mut self) -> &mut oxigress_core::model::policy::Proxy {
        self.defaults.policies.proxy.get_or_insert_default()
    }

    fn limits(&mut self) -> &mut Limits {
        self.defaults.policies.limits.get_or_insert_default()
    }

    fn errors(&mut self) -> &mut Errors {
        self.defaults.policies.errors.get_or_insert_default()
    }
}
