//! The record of settings that hold for every server.
//!
//! Layout: [`Header`], then texts with a [`TextHead`] each: the id of the default backend, `Strict-Transport-Security`, and the
//! patterns of refused requests; last the ports and the addresses of listeners.

use super::{Kind, Records, short};
use crate::model::{RedirectCode, Settings};
use crate::patterns::Patterns;
use std::net::IpAddr;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    http_redirect_code: U16,
    /// A combination of [`BLOCKS`] and [`REJECTS_UNKNOWN_NAMES`].
    flags: u8,
}

const BLOCKS: u8 = 1;
const REJECTS_UNKNOWN_NAMES: u8 = 2;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct TextHead {
    /// A combination of [`BLOCKS_REFERER`] and [`IS_REGEX`].
    role: u8,
    bytes: U16,
}

const BLOCKS_REFERER: u8 = 1;
const IS_REGEX: u8 = 2;
/// The ports of [`Settings::listener_ports`], two bytes each; only where there are any.
const IS_PORTS: u8 = 4;
/// [`Settings::listener_addresses`] as IPv6 has them, 16 bytes each; only where there are any.
const IS_ADDRESSES: u8 = 8;

/// The [`Settings`] of a generation, read in place.
#[derive(Clone, Copy, Debug)]
pub struct SettingsView<'g> {
    header: Option<&'g Header>,
    texts: &'g [u8],
}

impl<'g> SettingsView<'g> {
    /// The settings of a generation; the defaults if it has none.
    pub fn of(records: &impl Records<'g>) -> Self {
        let value = records.value(Kind::Settings, b"").unwrap_or_default();
        match Header::ref_from_prefix(value) {
            Ok((header, texts)) => SettingsView { header: Some(header), texts },
            Err(_) => SettingsView { header: None, texts: &[] },
        }
    }

    /// The status of redirects to HTTPS.
    pub fn http_redirect_code(&self) -> RedirectCode {
        let code = self.header.map(|header| header.http_redirect_code.get());
        code.and_then(|code| code.try_into().ok()).unwrap_or(RedirectCode::PermanentRedirect)
    }

    /// The backend for requests that match no rule.
    pub fn default_backend(&self) -> Option<&'g [u8]> {
        self.texts().next().map(|(_, text)| text).filter(|id| !id.is_empty())
    }

    /// `Strict-Transport-Security` of responses over TLS.
    pub fn hsts(&self) -> Option<&'g [u8]> {
        self.texts().nth(1).map(|(_, text)| text).filter(|value| !value.is_empty())
    }

    /// Whether only listeners of Gateways are served on a port.
    pub fn is_listener_port(&self, port: u16) -> bool {
        self.list(IS_PORTS).chunks_exact(2).any(|bytes| *bytes == port.to_le_bytes())
    }

    /// Whether Gateways have addresses for themselves.
    pub fn has_listener_addresses(&self) -> bool {
        !self.list(IS_ADDRESSES).is_empty()
    }

    /// Whether a Gateway has this address for itself.
    pub fn is_listener_address(&self, address: IpAddr) -> bool {
        self.list(IS_ADDRESSES).chunks_exact(16).any(|bytes| *bytes == octets(address))
    }

    fn list(&self, role: u8) -> &'g [u8] {
        self.texts().find(|(found, _)| *found == role).map(|(_, text)| text).unwrap_or_default()
    }

    /// Whether a handshake for a server name that no host has is refused.
    #[inline]
    pub fn rejects_unknown_names(&self) -> bool {
        self.header.is_some_and(|header| header.flags & REJECTS_UNKNOWN_NAMES != 0)
    }

    /// Whether any `User-Agent` or `Referer` is refused.
    #[inline]
    pub fn has_blocked(&self) -> bool {
        self.header.is_some_and(|header| header.flags & BLOCKS != 0)
    }

    /// Whether a request with these two headers is refused. A pattern that exceeds its budget refuses, since it protects.
    pub fn is_blocked(&self, patterns: &Patterns, agent: &[u8], referer: &[u8]) -> bool {
        let mut all = self.texts().skip(2).filter(|(role, _)| *role < IS_PORTS);
        all.any(|(role, text)| {
            let value = if role & BLOCKS_REFERER == 0 { agent } else { referer };
            match role & IS_REGEX == 0 {
                true => text.eq_ignore_ascii_case(value),
                false => patterns.is_match(text, value).unwrap_or(true),
            }
        })
    }

    /// The role of each text and the text, in the order of the encoding.
    fn texts(&self) -> impl Iterator<Item = (u8, &'g [u8])> + use<'g> {
        let mut rest = self.texts;
        std::iter::from_fn(move || {
            let (head, after) = TextHead::ref_from_prefix(rest).ok()?;
            let (text, after) = after.split_at_checked(head.bytes.get().into())?;
            rest = after;
            Some((head.role, text))
        })
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub(super) fn encode_settings(settings: &Settings) -> Vec<u8> {
    let (agents, referers) = (&settings.blocked_user_agents, &settings.blocked_referers);
    let has_blocked = !agents.is_empty() || !referers.is_empty();
    let header = Header {
        http_redirect_code: u16::from(settings.http_redirect_code).into(),
        flags: if has_blocked { BLOCKS } else { 0 }
            | if settings.rejects_unknown_names { REJECTS_UNKNOWN_NAMES } else { 0 },
    };
    let mut value = header.as_bytes().to_vec();
    let mut put_bytes = |role: u8, text: &[u8]| {
        let head = TextHead { role, bytes: (text.len() as u16).into() };
        value.extend(head.as_bytes());
        value.extend(text);
    };
    let ports: Vec<u8> =
        settings.listener_ports.iter().flat_map(|port| port.to_le_bytes()).collect();
    let addresses: Vec<u8> =
        settings.listener_addresses.iter().flat_map(|address| octets(*address)).collect();
    let mut put = |role: u8, text: &str| put_bytes(role, short(text));
    put(0, settings.default_backend.as_ref().map_or("", |id| id.as_str()));
    put(0, settings.hsts.as_ref().map_or("", |hsts| hsts.as_str()));
    let referers = referers.iter().map(|pattern| (BLOCKS_REFERER, pattern));
    for (role, pattern) in agents.iter().map(|pattern| (0, pattern)).chain(referers) {
        match pattern.regex() {
            Some(regex) => put(role | IS_REGEX, &regex),
            None => put(role, pattern.as_str()),
        }
    }
    if !ports.is_empty() {
        put_bytes(IS_PORTS, &ports);
    }
    if !addresses.is_empty() {
        put_bytes(IS_ADDRESSES, &addresses);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::{HeaderPattern, HeaderValue};

    struct One(Vec<u8>);

    impl<'g> Records<'g> for &'g One {
        fn value(&self, _: Kind, _: &[u8]) -> Option<&'g [u8]> {
            Some(&self.0)
        }
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let pattern = |text: &str| {
            HeaderPattern::parse(text, crate::patterns::Allowance::unlimited()).unwrap()
        };
        let settings = Settings {
            hsts: Some(HeaderValue::parse("max-age=5").unwrap()),
            blocked_user_agents: vec![pattern("Bad Agent"), pattern("~*^curl/")],
            blocked_referers: vec![pattern("~spam")],
            rejects_unknown_names: true,
            listener_ports: [8_080].into(),
            listener_addresses: ["10.0.0.7".parse().unwrap()].into(),
            ..Settings::default()
        };
        let one = One(encode_settings(&settings));
        let view = SettingsView::of(&&one);
        assert_eq!((view.default_backend(), view.hsts()), (None, Some(&b"max-age=5"[..])));
        assert!(view.has_blocked() && view.rejects_unknown_names());
        let blocked = |agent: &str, referer: &str| {
            view.is_blocked(&Patterns::default(), agent.as_bytes(), referer.as_bytes())
        };
        assert!(view.is_listener_port(8_080) && !view.is_listener_port(80));
        assert!(view.has_listener_addresses());
        assert!(view.is_listener_address("10.0.0.7".parse().unwrap()));
        assert!(!view.is_listener_address("10.0.0.8".parse().unwrap()));
        assert!(blocked("bad agent", "") && blocked("CURL/8", "") && blocked("", "a spam b"));
        assert!(!blocked("a bad agent", "SPAM") && !blocked("", "curl/8"));
        let none = One(encode_settings(&Settings::default()));
        let view = SettingsView::of(&&none);
        assert!(!view.rejects_unknown_names());
        assert!(!view.has_blocked() && view.hsts().is_none() && view.default_backend().is_none());
    }
}
