//! The hosts of Gateways' listeners, by port.
//!
//! Layout: that of a server's record, then the text form of [`Server::listener`], empty without one, and its length (`u16`).

use super::definition::Record;
use super::server::{Servers, encode_server};
use crate::model::{ListenerHost, Server};

/// The kind of record that holds a host on one port, and its rules.
pub enum ListenerServers {}

impl Record for ListenerServers {
    type Key = ListenerHost;
    type Value = Server;

    fn encode(_: &ListenerHost, server: &Server) -> Option<Vec<u8>> {
        let mut value = encode_server(server);
        let listener = server.listener.as_ref().map(ToString::to_string).unwrap_or_default();
        value.extend(listener.as_bytes());
        value.extend((listener.len() as u16).to_le_bytes());
        Some(value)
    }

    /// As of any other server.
    fn closed() -> Option<Server> {
        Servers::closed()
    }
}

/// The listener of HTTPS that has the host of a record, as text; `None`: it is of no such listener.
pub fn listener_of(value: &[u8]) -> Option<&[u8]> {
    let (rest, length) = value.split_last_chunk()?;
    let start = rest.len().checked_sub(u16::from_le_bytes(*length).into())?;
    rest.get(start..).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{PathPattern, Rule};
    use crate::patterns::Patterns;
    use crate::record::{NoParts, ServerView, closed_rule};

    #[test]
    fn a_listener_is_read_behind_the_rules_and_damage_is_none() {
        let at = ListenerHost::parse("443/a.test").unwrap();
        let of = |listener: Option<&str>, rules: Vec<Rule>| {
            let listener = listener.map(|text| ListenerHost::parse(text).unwrap());
            ListenerServers::encode(&at, &Server { rules, listener }).unwrap()
        };
        let paths =
            [PathPattern::prefix("/"), PathPattern::exact("/b"), PathPattern::uncompiled("/c")];
        let rules: Vec<_> = paths.into_iter().filter_map(|path| closed_rule(path.ok()?)).collect();
        for rules in [Vec::new(), rules] {
            let with = of(Some("443@10.0.0.7/**.test"), rules.clone());
            assert_eq!(listener_of(&with), Some(&b"443@10.0.0.7/**.test"[..]));
            let without = of(None, rules.clone());
            assert_eq!(listener_of(&without), None);
            for value in [with, without] {
                let found = ServerView::new(&value).rule(b"/a", &NoParts, &Patterns::default());
                assert_eq!(found.unwrap().is_some(), !rules.is_empty());
            }
        }
        assert_eq!((listener_of(b""), listener_of(b"a\xff\xff")), (None, None));
    }
}
