//! The hosts of Gateways' listeners, by port.
//!
//! Layout: that of a server's record, then the text form of [`Server::listener`] and [`Server::tls`] as JSON, each empty where it
//! is absent, and the length of each (`u32`).

use super::definition::{Checks, Fault, Record};
use super::server::{Servers, encode_server};
use super::{check_json, check_tls_policy, encode_json, length};
use crate::model::{ListenerHost, Server};

/// The kind of record that holds a host on one port, and its rules.
pub enum ListenerServers {}

impl Record for ListenerServers {
    type Key = ListenerHost;
    type Value = Server;

    fn encode(_: &ListenerHost, server: &Server) -> Option<Vec<u8>> {
        let mut value = encode_server(server);
        let listener = server.listener.as_ref().map(ToString::to_string).unwrap_or_default();
        let tls = server.tls.as_deref().filter(|_| server.listener.is_some()).map(encode_json);
        let tls = tls.unwrap_or_default();
        value.extend([listener.as_bytes(), &tls].concat());
        value.extend(
            [listener.len(), tls.len()].map(|bytes| length(bytes).to_le_bytes()).as_flattened(),
        );
        Some(value)
    }

    /// As of any other server.
    fn closed() -> Option<Server> {
        Servers::closed()
    }

    fn validate(_: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        let Some(policy) = listener_policy(value) else { return Ok(()) };
        let checked =
            check_json(policy, "this is no policy", |policy| check_tls_policy(policy, checks));
        checked.map_err(|fault| Fault::new("/tls", fault.error))
    }
}

/// The two texts behind a server.
fn texts(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, of_tls) = value.split_last_chunk()?;
    let (rest, of_listener) = rest.split_last_chunk()?;
    let (rest, tls) = split_end(rest, *of_tls)?;
    Some((split_end(rest, *of_listener)?.1, tls))
}

fn split_end(bytes: &[u8], length: [u8; 4]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(bytes.len().checked_sub(u32::from_le_bytes(length) as usize)?)
}

/// The listener of HTTPS that has the host of a record, as text; `None`: it is of no such listener.
pub fn listener_of(value: &[u8]) -> Option<&[u8]> {
    texts(value).map(|(listener, _)| listener).filter(|text| !text.is_empty())
}

/// What that listener asks of its connections, as JSON; `None`: nothing.
pub fn listener_policy(value: &[u8]) -> Option<&[u8]> {
    texts(value).map(|(_, tls)| tls).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::TlsPolicy;
    use crate::model::{PathPattern, Rule};
    use crate::patterns::Patterns;
    use crate::record::{NoParts, ServerView, closed_rule};

    #[test]
    fn a_listener_is_read_behind_the_rules_and_damage_is_none() {
        let at = ListenerHost::parse("443/a.test").unwrap();
        let of = |listener: Option<&str>, rules: Vec<Rule>| {
            let listener = listener.map(|text| ListenerHost::parse(text).unwrap());
            let tls = Some(Box::new(TlsPolicy { denied: true, ..TlsPolicy::default() }));
            let tls = tls.filter(|_| listener.is_some());
            ListenerServers::encode(&at, &Server { rules, listener, tls }).unwrap()
        };
        let paths =
            [PathPattern::prefix("/"), PathPattern::exact("/b"), PathPattern::uncompiled("/c")];
        let rules: Vec<_> = paths.into_iter().filter_map(|path| closed_rule(path.ok()?)).collect();
        for rules in [Vec::new(), rules] {
            let with = of(Some("443@10.0.0.7/**.test"), rules.clone());
            assert_eq!(listener_of(&with), Some(&b"443@10.0.0.7/**.test"[..]));
            let policy: TlsPolicy =
                serde_json::from_slice(listener_policy(&with).unwrap()).unwrap();
            assert!(policy.denied);
            let without = of(None, rules.clone());
            assert_eq!((listener_of(&without), listener_policy(&without)), (None, None));
            for value in [with, without] {
                let found = ServerView::new(&value).rule(b"/a", &NoParts, &Patterns::default());
                assert_eq!(found.unwrap().is_some(), !rules.is_empty());
            }
        }
        for damaged in [&b""[..], b"a\x09\0\0\0\0\0\0\0", b"a\0\0\0\0\xff\xff\xff\xff"] {
            assert_eq!((listener_of(damaged), listener_policy(damaged)), (None, None));
        }
    }
}
