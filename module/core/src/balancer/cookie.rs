//! Affinity cookies: reading the one a client sends, writing the one it gets.
//!
//! Shape:   a cookie's value is `key|tag`: the key leads to an endpoint, the tag names the backend.
//! Units:   `Expires` and `Max-Age` in seconds from now.
//! Errors:  what cannot be read is no cookie.
//! Source:  ingress-nginx's Lua balancer, sticky: same tags and keys, so that clients keep their cookies.

use crate::model::{Cookie, SameSite};
use crate::record::AffinityView;
use md5::{Digest, Md5};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// A longer value is no cookie.
pub const MAX_VALUE_BYTES: usize = 256;

/// The two parts of an affinity cookie's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// Balanced: hashed. Persistent: the endpoint's [`persistent_key`]. Never empty.
    pub key: &'a [u8],
    /// The [`tag`] of the backend it was made for; empty if there is none.
    pub tag: &'a [u8],
}

/// The value of the cookie `name` among the values of all `Cookie` headers. The last one of a name wins.
pub fn value<'a>(headers: impl IntoIterator<Item = &'a [u8]>, name: &[u8]) -> Option<&'a [u8]> {
    let values = headers.into_iter().filter_map(|header| last_value(header, name));
    values.last().filter(|value| value.len() <= MAX_VALUE_BYTES)
}

fn last_value<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let is_end = |byte: &u8| matches!(byte, b';' | b' ' | b'\t');
    // By the rarest thing there is, and from the end, since the last one wins.
    memchr::memrchr_iter(b'=', header).find_map(|equals| {
        let (before, after) = header.split_at_checked(equals)?;
        let rest = before.strip_suffix(name)?;
        if rest.last().is_some_and(|byte| !is_end(byte)) {
            return None;
        }
        let value = after.get(1..)?;
        value.get(..memchr::memchr3(b';', b' ', b'\t', value).unwrap_or(value.len()))
    })
}

/// The parts of a cookie's value; `None` if there is no key.
pub fn split(value: &[u8]) -> Option<Value<'_>> {
    let (key, rest) = divide(value);
    let tag = rest.map_or(&[][..], |rest| divide(rest).0);
    (!key.is_empty()).then_some(Value { key, tag })
}

/// Splits a value at its first `|`.
fn divide(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    let bar = memchr::memchr(b'|', value);
    let parts = bar.and_then(|at| Some((value.get(..at)?, value.get(at + 1..)?)));
    parts.map_or((value, None), |(before, after)| (before, Some(after)))
}

/// The tag of a backend in cookies, which does not reveal its name.
pub fn tag(backend: &[u8]) -> [u8; 32] {
    md5_hex(&[&md5_hex(&[backend]), backend])
}

/// The key of an endpoint (`address:port`) where a cookie names one.
pub fn persistent_key(backend: &[u8], endpoint: &[u8]) -> [u8; 32] {
    md5_hex(&[backend, endpoint])
}

/// A new key for a client without an endpoint. `attempt` makes the keys of one request differ.
pub fn balanced_key(now_ms: u64, attempt: u32, pid: u32, random: u64) -> String {
    let (seconds, millis) = (now_ms / 1_000 + u64::from(attempt), now_ms % 1_000);
    format!("{seconds}.{millis:03}.{pid}.{}", super::pick::below(999_999, random) + 1)
}

fn md5_hex(parts: &[&[u8]]) -> [u8; 32] {
    let mut md5 = Md5::new();
    parts.iter().for_each(|part| md5.update(part));
    let digest: [u8; 16] = md5.finalize().into();
    crate::text::hex::digits(digest)
}

/// What of a request matters for the cookie it is answered with.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Its host, lower case; `None` in the server of hosts that no other server names.
    pub host: Option<&'a [u8]>,
    /// The path of its rule, as the Ingress writes it.
    pub path: &'a [u8],
    /// Whether the request came over TLS.
    pub is_tls: bool,
    /// The value of `User-Agent`, which decides about `SameSite=None`.
    pub user_agent: Option<&'a [u8]>,
    /// The current time, in seconds since 1970.
    pub now_seconds: u64,
}

impl<'a> RequestView<'a> {
    // The root's path may be written as an empty text.
    fn path(&self) -> &'a [u8] {
        or_root(self.path)
    }
}

fn or_root(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"/" } else { path }
}

/// A cookie is given out here: the host's paths, or else those of its first label's wildcard, have this one.
pub fn is_given(affinity: &AffinityView<'_>, request: &RequestView<'_>) -> bool {
    let host = request.host.unwrap_or(b"_");
    let is_host = |pattern: &[u8]| pattern == host;
    let parent = host.iter().position(|byte| *byte == b'.').and_then(|dot| host.get(dot..));
    let is_wildcard = |pattern: &[u8]| parent.is_some() && pattern.strip_prefix(b"*") == parent;
    let paths = affinity.locations().find(|(pattern, _)| is_host(pattern));
    match paths.or_else(|| affinity.locations().find(|(pattern, _)| is_wildcard(pattern))) {
        Some((_, mut paths)) => paths.any(|path| or_root(path) == request.path()),
        None => false,
    }
}

/// The value of `Set-Cookie` for a client that was given `key`.
pub fn set_cookie(affinity: &AffinityView<'_>, request: &RequestView<'_>, key: &[u8]) -> String {
    let mut text = format!("{}={}|{}", utf8(affinity.name()), utf8(key), utf8(affinity.tag()));
    if let Some(expires) = affinity.expires() {
        let _ = write!(
            text,
            "; Expires={}",
            cookie_time(request.now_seconds.saturating_add_signed(expires))
        );
    }
    if let Some(max_age) = affinity.max_age() {
        let _ = write!(text, "; Max-Age={max_age}");
    }
    if let Some(domain) = affinity.domain() {
        let _ = write!(text, "; Domain={}", utf8(domain));
    }
    let path = affinity.path().unwrap_or(request.path());
    // A rule's path may have a `;`, which would begin an attribute.
    let path = str::from_utf8(path).ok().filter(|path| Cookie::check_attribute(path).is_ok());
    let _ = write!(text, "; Path={}", path.unwrap_or("/"));
    if affinity.secure() == Some(true) || affinity.secure().is_none() && request.is_tls {
        text.push_str("; Secure");
    }
    text.push_str("; HttpOnly");
    let takes_none_for_strict = || request.user_agent.is_some_and(takes_none_for_strict);
    match affinity.same_site() {
        None => {}
        Some(SameSite::None)
            if affinity.conditional_same_site_none() && takes_none_for_strict() => {}
        Some(same_site) => drop(write!(text, "; SameSite={}", same_site.as_str())),
    }
    text
}

// The names were checked when they were posted, keys are ours.
fn utf8(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

/// Browsers of 2018 and before that treat `SameSite=None` as `Strict` (the list of ingress-nginx).
fn takes_none_for_strict(user_agent: &[u8]) -> bool {
    let has = |text: &str| user_agent.windows(text.len()).any(|part| part == text.as_bytes());
    let old = ["Chrome/4", "Chrome/5", "Chrome/6", "CPU iPhone OS 12", "iPad; CPU OS 12"];
    old.into_iter().any(has)
        || has("Macintosh") && has("Intel Mac OS X 10_14") && has("Safari") && !has("Chrome")
}

/// `Mon, 02-Jan-06 15:04:05 GMT`; four digits after 2037, as nginx writes it, since a year of two digits
/// would be read as one of the last century (RFC 6265 §5.1.1).
fn cookie_time(seconds: u64) -> String {
    const LAST_OF_9999: u64 = 253_402_300_799;
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_OF_9999));
    let text = httpdate::fmt_http_date(time);
    let parts: Vec<_> = text.split(' ').collect();
    let &[weekday, day, month, year, clock, zone] = &*parts else { return text };
    let year = match year.parse() {
        Ok(1900..=2037) => year.get(2..).unwrap_or(year),
        _ => year,
    };
    format!("{weekday} {day}-{month}-{year} {clock} {zone}")
}

/// Draws balanced keys until one leads to an endpoint that `leads_to` accepts, at most 20 times.
pub fn draw_balanced_key<T>(
    now_ms: u64,
    pid: u32,
    random: &mut impl FnMut() -> u64,
    mut leads_to: impl FnMut(u32) -> Option<T>,
) -> Option<(String, T)> {
    (1..=20).find_map(|attempt| {
        let key = balanced_key(now_ms, attempt, pid, random());
        let endpoint = leads_to(super::ring::hash(key.as_bytes()))?;
        Some((key, endpoint))
    })
}

#[cfg(test)]
mod tests;
