//! A host on a listener of a Gateway.

use super::{HostPattern, Invalid, shorten};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU16;

/// A host on one port of nginx.
///
/// Text form, also on the wire: `8080/shop.example`. The star of `8080/*.example` stands for one or more labels, as the Gateway
/// API has it; `8080/_` is every other host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ListenerHost {
    /// The port of nginx on which the requests arrive.
    pub port: NonZeroU16,
    /// The hosts.
    pub host: HostPattern,
}

impl ListenerHost {
    /// Most bytes of the text form.
    pub const MAX_BYTES: usize = HostPattern::MAX_BYTES + 8;

    /// Reads a port, a slash and a host pattern.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let (port, host) = text.split_once('/').unwrap_or_default();
        match port.parse() {
            Ok(port) => Ok(ListenerHost { port, host: HostPattern::parse(host)? }),
            Err(_) => Err(Invalid::new(format!(
                "listener host {:?} is not a port from 1 to 65535, `/` and a host",
                shorten(text)
            ))),
        }
    }
}

impl TryFrom<String> for ListenerHost {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        ListenerHost::parse(&text)
    }
}

impl From<ListenerHost> for String {
    fn from(host: ListenerHost) -> String {
        host.to_string()
    }
}

impl fmt::Display for ListenerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.host)
    }
}
