//! Annotations about how nginx talks to clients and endpoints.
//!
//! Source:  ingress-nginx's annotations. Sizes in bytes or with k, m, g behind; times in seconds. What is invalid is
//!          the default.

use super::reader::Reader;
use oxigress_core::model::policy::{
    ConnectionHeader, HeaderName, HeaderValue, HttpVersion, Policies, Protocol, Proxy,
    ProxyRedirect, Replacement, RequestHeader,
};
use oxigress_objects::Key;
use oxigress_settings::grammar::retries::{CONDITIONS, conditions, retry_non_idempotent};
use oxigress_settings::grammar::{is_plain, template};

/// Most seconds of a time: those of 68 years.
const MOST_SECONDS: i64 = i32::MAX as i64;
/// Largest buffer: it is there for each request.
pub(super) const MOST_BUFFER_BYTES: u64 = 64 * 1024 * 1024;
/// Most buffers of a request.
const MOST_BUFFERS: i64 = 1_024;
/// Most bytes of all buffers of a response: a client who does not read fills them, one request after the other.
const MOST_RESPONSE_BYTES: u64 = 16 * 1024 * 1024;
/// What nginx.conf gives: size and number.
const BUFFERS: (u32, u32) = (4 * 1024, 4);

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) {
    let mut proxy = policies.proxy.take().unwrap_or_default();
    read_protocol(reader, &mut proxy);
    read_times_and_sizes(reader, &mut proxy);
    read_retries(reader, &mut proxy);
    read_replacements(reader, &mut proxy);
    read_fastcgi(reader, &mut proxy);
    policies.proxy = Some(proxy).filter(|proxy| *proxy != Proxy::default());
}

/// As ingress-nginx before 0.21 had it.
fn old_protocol(reader: &Reader<'_>) -> Option<Protocol> {
    let says = |name| !reader.has("backend-protocol") && reader.text(name) == Some("true");
    match (says("grpc-backend"), says("secure-backends")) {
        (true, true) => Some(Protocol::Grpcs),
        (true, false) => Some(Protocol::Grpc),
        (false, true) => Some(Protocol::Https),
        (false, false) => None,
    }
}

fn read_protocol(reader: &mut Reader<'_>, proxy: &mut Proxy) {
    let protocol =
        reader.parsed("backend-protocol", "HTTP, HTTPS, AUTO_HTTP, GRPC, GRPCS or FCGI", |text| {
            match text.to_ascii_uppercase().as_str() {
                "HTTP" => Some(Protocol::Http),
                "HTTPS" => Some(Protocol::Https),
                "AUTO_HTTP" => Some(Protocol::AutoHttp),
                "GRPC" => Some(Protocol::Grpc),
                "GRPCS" => Some(Protocol::Grpcs),
                "FCGI" => Some(Protocol::Fastcgi),
                _ => None,
            }
        });
    let protocol = protocol.or_else(|| old_protocol(reader));
    proxy.protocol = protocol.filter(|protocol| *protocol != Protocol::Http).or(proxy.protocol);
    if let Some(value) = reader.value("proxy-http-version") {
        value.choice(
            &[("1.0", HttpVersion::V10), ("1.1", HttpVersion::V11)],
            &mut proxy.http_version,
        );
    }
    if let Some(value) = reader.value("connection-proxy-header") {
        let headers =
            &[("close", ConnectionHeader::Close), ("keep-alive", ConnectionHeader::KeepAlive)];
        value.choice(headers, &mut proxy.connection);
    }
}

fn read_times_and_sizes(reader: &mut Reader<'_>, proxy: &mut Proxy) {
    let defaults = (proxy.buffer_bytes, proxy.buffer_count);
    for (name, into) in [
        ("proxy-connect-timeout", &mut proxy.connect_timeout_seconds),
        ("proxy-send-timeout", &mut proxy.send_timeout_seconds),
        ("proxy-read-timeout", &mut proxy.read_timeout_seconds),
        ("proxy-next-upstream-timeout", &mut proxy.next_upstream_timeout_seconds),
    ] {
        *into = reader.number(name, 0, MOST_SECONDS).or(*into);
    }
    reader.switch("proxy-buffering", &mut proxy.buffering);
    reader.switch("proxy-request-buffering", &mut proxy.request_buffering);
    for (name, into) in [
        ("proxy-buffer-size", &mut proxy.buffer_bytes),
        ("proxy-busy-buffers-size", &mut proxy.busy_buffers_bytes),
        ("client-body-buffer-size", &mut proxy.body_buffer_bytes),
    ] {
        let (least, what) = (Proxy::LEAST_BUFFER_BYTES, "a size from 1k to 64m, such as 8k");
        let size = reader.parsed(name, what, |text| size(text, least.into(), MOST_BUFFER_BYTES));
        *into = size.and_then(|bytes| u32::try_from(bytes).ok()).or(*into);
    }
    for (name, into) in [
        ("proxy-max-temp-file-size", &mut proxy.max_temp_file_bytes),
        ("proxy-body-size", &mut proxy.max_body_bytes),
    ] {
        let what = "a size such as 8m; 0 for no limit";
        *into = reader.parsed(name, what, |text| size(text, 0, i64::MAX as u64)).or(*into);
    }
    proxy.buffer_count =
        reader.number("proxy-buffers-number", 2, MOST_BUFFERS).or(proxy.buffer_count);
    if (proxy.buffer_bytes, proxy.buffer_count) != defaults {
        limit_buffers(reader, proxy, defaults);
    }
}

/// Size and number of buffers that are too much together are those of before, the operator's.
fn limit_buffers(reader: &mut Reader<'_>, proxy: &mut Proxy, defaults: (Option<u32>, Option<u32>)) {
    if fits(proxy) {
        return;
    }
    let (bytes, count) = buffers(proxy);
    (proxy.buffer_bytes, proxy.buffer_count) = defaults;
    let names = ["proxy-buffers-number", "proxy-buffer-size"];
    let name = names.into_iter().find(|name| reader.has(name)).unwrap_or(names[0]);
    let message = format!(
        "{count} buffers of {bytes} bytes are more than the 16m that a response may take: the defaults are used"
    );
    reader.warn(name, &message);
}

/// The size and the number of the buffers of a response.
fn buffers(proxy: &Proxy) -> (u32, u32) {
    (proxy.buffer_bytes.unwrap_or(BUFFERS.0), proxy.buffer_count.unwrap_or(BUFFERS.1))
}

/// Whether the buffers of a response are not too much together.
pub(super) fn fits(proxy: &Proxy) -> bool {
    let (bytes, count) = buffers(proxy);
    u64::from(bytes) * u64::from(count) <= MOST_RESPONSE_BYTES
}

/// Digits and perhaps b, k, m or g.
pub(super) fn size(text: &str, least: u64, most: u64) -> Option<u64> {
    let unit = match text.as_bytes().last()?.to_ascii_lowercase() {
        b'k' => 1 << 10,
        b'm' => 1 << 20,
        b'g' => 1 << 30,
        _ => 1,
    };
    let digits = text.trim_end_matches(|c: char| "bkmgBKMG".contains(c));
    let is_number = text.len() - digits.len() <= 1 && digits.bytes().all(|b| b.is_ascii_digit());
    let bytes = digits.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(unit)?;
    (least..=most).contains(&bytes).then_some(bytes)
}

fn read_retries(reader: &mut Reader<'_>, proxy: &mut Proxy) {
    if let Some(mut conditions) = reader.parsed("proxy-next-upstream", CONDITIONS, conditions) {
        if reader.context.defaults.retry_non_idempotent {
            retry_non_idempotent(&mut conditions);
        }
        proxy.next_upstream = Some(conditions);
    }
    let tries = reader.number("proxy-next-upstream-tries", 0, 1_000);
    proxy.next_upstream_tries = tries.or(proxy.next_upstream_tries);
}

fn read_replacements(reader: &mut Reader<'_>, proxy: &mut Proxy) {
    let pair = |text: &str, more: &[u8]| {
        let mut words = text.split_whitespace();
        let (from, to) = (words.next()?, words.next()?);
        let is_pair = words.next().is_none() && is_plain(from, more) && is_plain(to, more);
        let value = |text: &str| HeaderValue::parse(text).ok();
        Some(Replacement { from: value(from).filter(|_| is_pair)?, to: value(to)? })
    };
    // `off` takes away what the ConfigMap says.
    for (name, more, into) in [
        ("proxy-cookie-domain", &b""[..], &mut proxy.cookie_domain),
        ("proxy-cookie-path", b",?&=", &mut proxy.cookie_path),
    ] {
        let what = "off, or two texts with a space between them";
        let read = |text: &str| match text {
            "off" => Some(None),
            text => pair(text, more).map(Some),
        };
        if let Some(replacement) = reader.parsed(name, what, read) {
            *into = replacement;
        }
    }
    let url = |text: &str| HeaderValue::parse(text).ok().filter(|_| is_plain(text, b",?&="));
    let from = reader.parsed("proxy-redirect-from", "off, default or a URL", url);
    let to = reader.parsed("proxy-redirect-to", "off or a URL", url);
    proxy.redirect = match (from, to) {
        (Some(from), _) if from.as_str() == "off" => Some(ProxyRedirect::Off),
        (Some(from), _) if from.as_str() == "default" => Some(ProxyRedirect::Default),
        // The reference renders nothing then, and nginx's default holds.
        (Some(_), Some(to)) if to.as_str() == "off" => Some(ProxyRedirect::Default),
        (Some(_), None) => Some(ProxyRedirect::Default),
        (Some(from), Some(to)) => Some(ProxyRedirect::Replace(Replacement { from, to })),
        (None, _) => proxy.redirect.take(),
    };
}

fn read_fastcgi(reader: &mut Reader<'_>, proxy: &mut Proxy) {
    let is_file =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    let index = reader.parsed("fastcgi-index", "a file's name", |text| {
        HeaderValue::parse(text).ok().filter(|_| is_file(text))
    });
    proxy.fastcgi_index = index.or(proxy.fastcgi_index.take());
    let name = "fastcgi-params-configmap";
    let Some(text) = reader.text(name) else { return };
    let own = reader.context.ingress.namespace.clone();
    let is_other = Key::parse(text).is_some_and(|key| key.namespace != own);
    let parameters = match reader.config_map(text) {
        // The reference looks in the Ingress's own namespace, whatever stands there.
        Ok((key, _)) if is_other => Err(format!("ConfigMap {key} is of another namespace")),
        Ok((key, map)) => {
            let parameters = map.data.iter().map(|(key, value)| parameter(key, value));
            parameters
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| format!("ConfigMap {key} has an entry that is no FastCGI parameter"))
        }
        Err(why) => Err(why),
    };
    match parameters {
        Ok(parameters) => proxy.fastcgi_params = parameters,
        Err(why) => reader.close(name, &why, "correct it"),
    }
}

fn parameter(key: &str, value: &str) -> Option<RequestHeader> {
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let value = value.trim();
    let is_value = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_${}/.".contains(&b));
    let name = HeaderName::parse(key).ok().filter(|_| is_key && is_value)?;
    Some(RequestHeader { name, value: template(value, b"${}").ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_digits_and_one_unit() {
        for (text, bytes) in
            [("0", 0), ("8m", 8 << 20), ("1G", 1 << 30), ("16k", 16 << 10), ("7b", 7)]
        {
            assert_eq!(size(text, 0, u64::MAX), Some(bytes), "{text}");
        }
        for text in ["", "m", "8mb", "8 m", "-1", "+1", "8M;", "1.5m", "99999999999999999999", "8é"]
        {
            assert_eq!(size(text, 0, u64::MAX), None, "{text}");
        }
    }
}
