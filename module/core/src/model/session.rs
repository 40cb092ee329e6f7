//! Where the TCP, UDP and TLS sessions of Gateways' listeners go.

use super::policy::PolicyId;
use super::{BackendId, HostPattern, Invalid, ListenerHost, StreamPort, shorten};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Where sessions arrive: on a port of nginx's stream, on an address of a Gateway's own or on all others, and, where TLS is
/// told apart by it, for a server name.
///
/// Text form, also on the wire: `tcp/9000`, `udp/53@10.0.0.7`, `tcp/443/shop.example`, `tcp/443@10.0.0.7/**.example`. A star
/// stands for one or more labels; `tcp/443/_` is every other server name, and none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionPlace {
    /// The port that clients send to.
    pub port: StreamPort,
    /// The address on which they arrive; absent: any that no Gateway has for itself.
    pub address: Option<IpAddr>,
    /// The server names; absent: nobody looks for one.
    pub host: Option<HostPattern>,
}

impl SessionPlace {
    /// Most bytes of the text form.
    pub const MAX_BYTES: usize = ListenerHost::MAX_BYTES + "tcp/".len();

    /// Reads a port, perhaps `@` and an address, perhaps a slash and server names.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let odd = || {
            let text = shorten(text);
            Invalid::new(format!(
                "session place {text:?} is not a port such as tcp/9000, perhaps `@` and an address, perhaps `/` and a server \
                 name, whose star is written `**.`"
            ))
        };
        let (protocol, rest) = text.split_once('/').ok_or_else(odd)?;
        let (place, host) = match rest.split_once('/') {
            Some((place, host)) => (place, Some(host)),
            None => (rest, None),
        };
        let (number, address) = match place.split_once('@') {
            Some((number, address)) => (number, Some(address.parse().map_err(|_| odd())?)),
            None => (place, None),
        };
        let port = StreamPort::parse(&format!("{protocol}/{number}")).map_err(|_| odd())?;
        let host = host.map(|host| {
            let is_deep = host.starts_with("**.");
            let host = host.get(usize::from(is_deep)..).unwrap_or_default();
            HostPattern::parse(host).ok().filter(|host| host.is_wildcard() == is_deep)
        });
        match host {
            Some(None) => Err(odd()),
            host => Ok(SessionPlace { port, address, host: host.flatten() }),
        }
    }
}

impl TryFrom<String> for SessionPlace {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        SessionPlace::parse(&text)
    }
}

impl From<SessionPlace> for String {
    fn from(place: SessionPlace) -> String {
        place.to_string()
    }
}

impl fmt::Display for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.port)?;
        if let Some(address) = self.address {
            write!(f, "@{address}")?;
        }
        match &self.host {
            Some(host) if host.is_wildcard() => write!(f, "/*{host}"),
            Some(host) => write!(f, "/{host}"),
            None => Ok(()),
        }
    }
}

crate::model::object::objects!(SessionRoute, SessionTarget);

/// What is done with the sessions of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct SessionRoute {
    /// Whether the sessions go to the targets as they come or decrypted, or are routed by their HTTP requests.
    pub way: SessionWay,
    /// Ingresses have hosts on the port too: a server name that one of them has, and that is more specific, is left to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// Who serves them, by weight. Without any they are closed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<SessionTarget>,
    /// The namespace of the route that says so; empty: none does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name of the TCPRoute, TLSRoute or UDPRoute.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub route: String,
}

/// Who takes the sessions of a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionWay {
    /// The targets, as they come.
    #[default]
    Forward,
    /// The targets, without TLS, which ends here.
    Decrypt,
    /// The requests in them are routed.
    Http,
}

/// A backend, or nobody, that gets a share of the sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct SessionTarget {
    /// Its share, in relation to the sum of all weights of the route.
    pub weight: u32,
    /// Who serves them; absent: they are closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendId>,
    /// How TLS is spoken to its endpoints (`proxy.tls`), where that of the sessions ends here; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<PolicyId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        for text in [
            "tcp/9000",
            "udp/53@10.0.0.7",
            "tcp/443/shop.example",
            "tcp/443@2001:db8::1/**.example",
            "tcp/443/_",
        ] {
            assert_eq!(SessionPlace::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "tcp", "tcp/0", "sctp/1", "tcp/1@x", "tcp/1/*.a.test", "tcp/1/", "tcp/1/a b"]
        {
            assert!(SessionPlace::parse(text).is_err(), "{text}");
        }
    }
}
