//! Texts with an invariant: host patterns, path patterns and ids.

use crate::patterns::Allowance;
pub use crate::text::invalid::Invalid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU16;
use std::sync::Arc;

/// The hosts of a server.
///
/// Text form, also on the wire: `shop.example`, `*.example` or `_` for every other host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern(Arc<str>);

impl HostPattern {
    /// Longest host name (RFC 1035 §2.3.4).
    pub const MAX_BYTES: usize = 253;
    /// The pattern of hosts that no other server names.
    pub const DEFAULT: &'static str = "_";

    /// Hosts that no other server names.
    pub fn default_host() -> Self {
        HostPattern(Self::DEFAULT.into())
    }

    /// Lower-cases, drops one trailing dot; accepts an exact name, `*.` and a name, or `_`.
    ///
    /// Labels are 1–63 bytes of letters, digits, `-` and `_` (which DNS has and RFC 1123 does not).
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name == Self::DEFAULT {
            return Ok(HostPattern(name.into()));
        }
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > Self::MAX_BYTES || !labels.split('.').all(is_label) {
            return Err(Invalid::new(format!(
                "host {:?} is not a DNS name, `*.` and a DNS name, or `_`",
                shorten(text)
            )));
        }
        Ok(HostPattern(name.into()))
    }

    /// The pattern as it is written, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern is `*.name`, which matches exactly one label in place of the star.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// The wildcard that matches this host too; `None` if the pattern is a wildcard itself or has a single label.
    pub fn wildcard_above(&self) -> Option<Self> {
        let (label, parent) = self.0.split_once('.')?;
        (label != "*").then(|| HostPattern(format!("*.{parent}").into()))
    }
}

/// The paths that a rule matches.
///
/// A prefix covers whole segments: `/cart` matches `/cart` and `/cart/1`, not `/carts`. A trailing slash of a prefix
/// has no meaning (Kubernetes: `/cart/` equals `/cart`), so it is dropped on parsing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawPath", into = "RawPath")]
pub enum PathPattern {
    /// This path only, byte for byte.
    Exact(String),
    /// This path and everything below; the root is the empty text.
    Prefix(String),
    /// Paths that begin with a match of this regular expression, upper and lower case alike.
    Regex(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawPath {
    Exact(String),
    Prefix(String),
    Regex(String),
}

impl PathPattern {
    /// Longest path of a rule.
    pub const MAX_BYTES: usize = 4_096;

    /// A pattern that matches exactly `path`.
    pub fn exact(path: &str) -> Result<Self, Invalid> {
        Ok(PathPattern::Exact(Self::check(path)?.into()))
    }

    /// `path` and everything below it.
    pub fn prefix(path: &str) -> Result<Self, Invalid> {
        Ok(PathPattern::Prefix(Self::check(path)?.trim_end_matches('/').into()))
    }

    /// Paths that begin with a match of `pattern`, which begins with a slash itself. Compiles it.
    pub fn regex(pattern: &str, allowance: Allowance) -> Result<Self, Invalid> {
        let written = Self::uncompiled(pattern)?;
        crate::patterns::path_is_valid(pattern, allowance)?;
        Ok(written)
    }

    /// As [`Self::regex`], of a pattern that is compiled elsewhere: there it may turn out to be none.
    pub fn uncompiled(pattern: &str) -> Result<Self, Invalid> {
        crate::patterns::check_length(Self::check(pattern)?)?;
        Ok(PathPattern::Regex(pattern.into()))
    }

    fn check(path: &str) -> Result<&str, Invalid> {
        if !path.starts_with('/') {
            return Err(Invalid::new(format!("path {:?} does not begin with `/`", shorten(path))));
        }
        if path.len() > Self::MAX_BYTES {
            return Err(Invalid::new(format!(
                "path of {} bytes, at most {} are served: shorten it",
                path.len(),
                Self::MAX_BYTES
            )));
        }
        refuse_control_bytes("path", path)?;
        Ok(path)
    }
}

impl TryFrom<RawPath> for PathPattern {
    type Error = Invalid;

    fn try_from(raw: RawPath) -> Result<Self, Invalid> {
        match raw {
            RawPath::Exact(path) => PathPattern::exact(&path),
            RawPath::Prefix(path) => PathPattern::prefix(&path),
            // `wire::patterns` compiles it, off the event loop.
            RawPath::Regex(pattern) => PathPattern::uncompiled(&pattern),
        }
    }
}

impl From<PathPattern> for RawPath {
    fn from(path: PathPattern) -> Self {
        match path {
            PathPattern::Exact(path) => RawPath::Exact(path),
            PathPattern::Prefix(path) if path.is_empty() => RawPath::Prefix("/".into()),
            PathPattern::Prefix(path) => RawPath::Prefix(path),
            PathPattern::Regex(pattern) => RawPath::Regex(pattern),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathPattern::Exact(path) => write!(f, "{path} (Exact)"),
            PathPattern::Prefix(path) if path.is_empty() => write!(f, "/ (Prefix)"),
            PathPattern::Prefix(path) => write!(f, "{path} (Prefix)"),
            PathPattern::Regex(pattern) => write!(f, "{pattern} (regular expression)"),
        }
    }
}

/// To and from `String`, as `serde(try_from = "String", into = "String")` wants it.
macro_rules! as_string {
    ($name:ident, |$text:ident| $parse:expr, |$value:ident| $write:expr) => {
        impl TryFrom<String> for $name {
            type Error = $crate::model::Invalid;

            fn try_from($text: String) -> Result<Self, $crate::model::Invalid> {
                $parse
            }
        }

        impl From<$name> for String {
            fn from($value: $name) -> String {
                $write
            }
        }
    };
}
pub(crate) use as_string;

/// A port that nginx's stream module listens on.
///
/// Text form, also on the wire: `tcp/9000` or `udp/53`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StreamPort {
    /// A TCP port of 1 to 65535.
    Tcp(NonZeroU16),
    /// A UDP port of 1 to 65535.
    Udp(NonZeroU16),
}

impl StreamPort {
    /// Reads `tcp/` or `udp/` and a port.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (protocol, number) = text.split_once('/').unwrap_or_default();
        let number = number.parse().map_err(|_| protocol);
        match (protocol, number) {
            ("tcp", Ok(number)) => Ok(StreamPort::Tcp(number)),
            ("udp", Ok(number)) => Ok(StreamPort::Udp(number)),
            _ => Err(Invalid::new(format!(
                "port {:?} is neither `tcp/` nor `udp/` and a number from 1 to 65535",
                shorten(text)
            ))),
        }
    }
}

as_string!(StreamPort, |text| StreamPort::parse(&text), |port| port.to_string());

impl fmt::Display for StreamPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamPort::Tcp(number) => write!(f, "tcp/{number}"),
            StreamPort::Udp(number) => write!(f, "udp/{number}"),
        }
    }
}

/// To and from text, for types with `parse` and one text within, which copies share.
macro_rules! text_form {
    ($($name:ident),*) => {$(
        $crate::model::text::as_string!($name, |text| $name::parse(&text), |value| {
            String::from(&*value.0)
        });

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
pub(crate) use text_form;

/// An identity: a text that copies share, and that a function checks.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $(#[$rule:meta])* $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            $(#[$rule])*
            pub fn parse(text: impl AsRef<str>) -> Result<Self, $crate::model::Invalid> {
                let text = text.as_ref();
                $check(text)?;
                Ok($name(text.into()))
            }

            /// The id as it is written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        $crate::model::text::text_form!($name);
    };
}
pub(crate) use id;

fn check_backend_id(text: &str) -> Result<(), Invalid> {
    check_id("backend id", text)
}

fn check_certificate_id(text: &str) -> Result<(), Invalid> {
    check_id("certificate id", text)
}

fn check_id(what: &str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() || text.len() > MAX_ID_BYTES {
        return Err(Invalid::new(format!(
            "{what} of {} bytes: 1 to {MAX_ID_BYTES} are accepted",
            text.len()
        )));
    }
    refuse_control_bytes(what, text)
}

id!(
    /// The identity of a backend. The controller writes `namespace/service/port`, where no part can hold a slash, so
    /// two Services never share one, with a suffix after `//` for separate backends of one port; ingress-nginx's wire
    /// format uses its own names.
    BackendId,
    /// Refuses an empty text, one over [`Self::MAX_BYTES`], and control bytes.
    check_backend_id
);
id!(
    /// The identity of a certificate. The controller writes `namespace/secret`; ingress-nginx's wire format a uid.
    CertificateId,
    /// Refuses an empty text, one over [`Self::MAX_BYTES`], and control bytes.
    check_certificate_id
);

/// The length of the longest id of a backend or a certificate, in bytes.
const MAX_ID_BYTES: usize = 512;

impl BackendId {
    /// The length of the longest id, in bytes.
    pub const MAX_BYTES: usize = MAX_ID_BYTES;

    /// The namespace and the name of the Service in an id of the controller. `None` for an id that names no Service.
    pub fn service_of(id: &[u8]) -> Option<(&[u8], &[u8])> {
        let mut parts = id.split(|byte| *byte == b'/');
        let (namespace, name) = (parts.next()?, parts.next()?);
        (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name))
    }

    /// The namespace with which an id of the controller begins; empty for the id of a URL's server.
    pub fn namespace_of(id: &[u8]) -> &[u8] {
        id.split(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

impl CertificateId {
    /// The length of the longest id, in bytes.
    pub const MAX_BYTES: usize = MAX_ID_BYTES;

    /// The id with which ingress-nginx marks a host without a certificate: the host presents the default one and is
    /// not redirected to HTTPS, whatever its wildcard has.
    pub const NONE: &'static str = "-1";
}

text_form!(HostPattern);

fn refuse_control_bytes(what: &str, text: &str) -> Result<(), Invalid> {
    match text.bytes().position(|b| b.is_ascii_control()) {
        None => Ok(()),
        Some(at) => Err(Invalid::new(format!(
            "{what} {:?} has a control byte at {at}: remove it",
            shorten(text)
        ))),
    }
}

/// At most 256 bytes of user text go into a message.
pub fn shorten(text: &str) -> &str {
    let mut end = text.len().min(256);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_lower_cased_and_loses_one_trailing_dot() {
        assert_eq!(HostPattern::parse("Shop.Example.").unwrap().as_str(), "shop.example");
    }

    #[test]
    fn odd_hosts_are_refused() {
        for text in [
            "",
            ".",
            "a..b",
            "*",
            "*.",
            "a.*.b",
            "a b",
            "~^x$",
            "a\u{0}",
            "[::1]",
            "a/b",
            &"a.".repeat(200),
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_loses_its_trailing_slash_and_an_exact_path_keeps_it() {
        assert_eq!(PathPattern::prefix("/cart/").unwrap(), PathPattern::Prefix("/cart".into()));
        assert_eq!(PathPattern::prefix("/").unwrap(), PathPattern::Prefix("".into()));
        assert_eq!(PathPattern::exact("/cart/").unwrap(), PathPattern::Exact("/cart/".into()));
    }

    #[test]
    fn an_id_says_which_service_it_is_of() {
        for (id, service, namespace) in [
            ("shop/cart/80", Some(("shop", "cart")), "shop"),
            ("shop/cart/80//canary/next", Some(("shop", "cart")), "shop"),
            ("denied//shop/cart", None, "denied"),
            ("//url/http/a.test/80", None, ""),
            ("upstream", None, "upstream"),
        ] {
            let service = service.map(|(a, b): (&str, &str)| (a.as_bytes(), b.as_bytes()));
            assert_eq!(BackendId::service_of(id.as_bytes()), service, "{id}");
            assert_eq!(BackendId::namespace_of(id.as_bytes()), namespace.as_bytes(), "{id}");
        }
    }

    #[test]
    fn a_path_without_slash_or_with_control_bytes_is_refused() {
        for path in ["", "cart", "/a\nb", "/\u{7f}"] {
            assert!(PathPattern::exact(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_long_value_is_cut_in_the_message() {
        let message = HostPattern::parse(&"é".repeat(5_000)).unwrap_err().to_string();
        assert!(message.len() < 700, "{message}");
    }
}
