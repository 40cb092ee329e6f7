//! ingress-nginx's wire format, field for field.
//!
//! Shape:   `POST /configuration/backends`: an array of [`Element`]; `POST /configuration/servers`: one
//!          [`Servers`]. Both are the complete state of their kind.
//! Source:  ingress-nginx's Lua balancer. Go writes absent lists as `null`, so `null` counts as absent.

mod convert;
mod servers;
#[cfg(test)]
mod tests;

pub use convert::Converted;
pub use servers::{Pem, Servers};

use super::null_is_default;
use crate::model::{BackendId, HostPattern, Invalid, object};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

object::objects!(Element, Address, SessionAffinity, CookieAffinity, HashBy, TrafficShaping);

/// One backend. `endpoints` are removed before the rest is stored for `GET`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct Element {
    pub name: BackendId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<serde_json::Value>,
    #[serde(default)]
    pub port: Port,
    #[serde(default, deserialize_with = "null_is_default")]
    pub ssl_passthrough: bool,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Address>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub session_affinity_config: SessionAffinity,
    #[serde(default, deserialize_with = "null_is_default")]
    pub upstream_hash_by_config: HashBy,
    #[serde(
        rename = "load-balance",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub load_balance: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub no_server: bool,
    #[serde(default, deserialize_with = "null_is_default")]
    pub traffic_shaping_policy: TrafficShaping,
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub alternative_backends: Vec<String>,
}

/// A port number or name; 0 when unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs, reason = "plain")]
pub enum Port {
    Number(u16),
    Name(String),
}

impl Default for Port {
    fn default() -> Self {
        Port::Number(0)
    }
}

/// An endpoint: the port is text on this wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "plain")]
#[serde(remote = "Self")]
pub struct Address {
    pub address: AddressText,
    pub port: PortText,
}

/// An IP address, or the host name of an ExternalName Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressText {
    /// IPv4 or IPv6, the latter with or without brackets.
    Ip(IpAddr),
    /// A host name, which the controller resolves.
    Name(HostPattern),
}

impl TryFrom<String> for AddressText {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(&text);
        if let Ok(ip) = bare.parse() {
            return Ok(AddressText::Ip(ip));
        }
        match HostPattern::parse(&text) {
            // A name whose last label is a number is a mistyped IPv4 address (WHATWG URL, "ends in a number").
            Ok(name) if !name.is_wildcard() && !ends_in_a_number(name.as_str()) => {
                Ok(AddressText::Name(name))
            }
            _ => Err(Invalid::new("address is neither an IP address nor a host name")),
        }
    }
}

fn ends_in_a_number(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
}

impl From<AddressText> for String {
    fn from(address: AddressText) -> String {
        match address {
            AddressText::Ip(ip) => ip.to_string(),
            AddressText::Name(name) => name.into(),
        }
    }
}

/// A port number that is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortText(pub NonZeroU16);

impl TryFrom<String> for PortText {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
            .map(PortText)
            .map_err(|_| Invalid::new("port is not a number from 1 to 65535, written as text"))
    }
}

impl From<PortText> for String {
    fn from(port: PortText) -> String {
        port.0.to_string()
    }
}

/// The cookie affinity of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct SessionAffinity {
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub mode: String,
    #[serde(deserialize_with = "null_is_default")]
    pub cookie_session_affinity: CookieAffinity,
}

/// Attributes of the affinity cookie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct CookieAffinity {
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxage: Option<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub locations: BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samesite: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conditional_samesite_none: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_on_failure: Option<bool>,
}

/// The consistent hashing of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct HashBy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by_subset: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_hash_by_subset_size: Option<u32>,
}

/// The canary rules of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "names and meanings are ingress-nginx's")]
#[serde(remote = "Self")]
pub struct TrafficShaping {
    #[serde(deserialize_with = "null_is_default")]
    pub weight: i64,
    #[serde(deserialize_with = "null_is_default")]
    pub weight_total: i64,
    #[serde(deserialize_with = "null_is_default")]
    pub header: String,
    #[serde(deserialize_with = "null_is_default")]
    pub header_value: String,
    #[serde(deserialize_with = "null_is_default")]
    pub header_pattern: String,
    #[serde(deserialize_with = "null_is_default")]
    pub cookie: String,
}
