//! A host on a listener of a Gateway.

use super::text::as_string;
use super::{HostPattern, Invalid, shorten};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

/// A host on one port of nginx, on an address of a Gateway's own or on all others.
///
/// Text form, also on the wire: `8080/shop.example`, `8080@10.0.0.7/shop.example`. The star of `8080/*.example` stands for one
/// label, as that of an Ingress does; `8080/**.example` is one or more labels, as the Gateway API has it; `8080/_` is every other
/// host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ListenerHost {
    /// The port of nginx on which the requests arrive.
    pub port: NonZeroU16,
    /// The address on which they arrive; absent: any that no Gateway has for itself.
    pub address: Option<IpAddr>,
    /// The host, or wildcard, that the listener is for.
    pub host: HostPattern,
    /// The star of the host stands for one or more labels; false where there is no star.
    pub is_deep: bool,
}

impl ListenerHost {
    /// Most bytes of the text form.
    pub const MAX_BYTES: usize = HostPattern::MAX_BYTES + 49;

    /// The hosts that the Gateway API means by `host`: its star stands for one or more labels.
    pub fn deep(port: NonZeroU16, address: Option<IpAddr>, host: HostPattern) -> Self {
        ListenerHost { port, address, is_deep: host.is_wildcard(), host }
    }

    /// The hosts that an Ingress means by `host`, on all addresses: its star stands for one label.
    pub fn of_one_label(port: NonZeroU16, host: HostPattern) -> Self {
        ListenerHost { port, address: None, host, is_deep: false }
    }

    /// Reads a port, perhaps `@` and an address, a slash and a host pattern.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (place, host) = text.split_once('/').unwrap_or_default();
        let (port, address) = match place.split_once('@') {
            Some((port, address)) => (port, address.parse().map(Some)),
            None => (place, Ok(None)),
        };
        match (port.parse(), address) {
            (Ok(port), Ok(address)) => {
                let is_deep = host.starts_with("**.");
                let host =
                    HostPattern::parse(host.get(usize::from(is_deep)..).unwrap_or_default())?;
                Ok(ListenerHost { port, address, host, is_deep })
            }
            _ => Err(Invalid::new(format!(
                "listener host {:?} is not a port from 1 to 65535, perhaps `@` and an address, `/` and a host",
                shorten(text)
            ))),
        }
    }
}

as_string!(ListenerHost, |text| ListenerHost::parse(&text), |host| host.to_string());

impl fmt::Display for ListenerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_deep { "*" } else { "" };
        match self.address {
            Some(address) => write!(f, "{}@{address}/{star}{}", self.port, self.host),
            None => write!(f, "{}/{star}{}", self.port, self.host),
        }
    }
}
