//! Host and path to a rule.
//!
//! Precedence: the exact host, then `*.` in place of its first label, then the default server; within the
//! server an exact path, then the strongest of the patterns and the longest prefix ([`ServerView::rule`]). The
//! first server that names the host decides: a path it has no rule for does not fall through to a less specific
//! server.
//!
//! [`tls`] finds certificates and TLS policies by server name, [`session`] backends of TCP and UDP sessions.

pub mod session;
pub mod tls;

use crate::model::{HostPattern, ListenerHost};
use crate::patterns::{NoAnswer, Patterns};
use crate::record::{Kind, MatchedRule, NoParts, Records, ServerView, SettingsView};
use std::io::Write;
use std::net::IpAddr;

/// The rule for a request of which only host and path are known; `None`: no rule takes it, the default backend's turn.
///
/// `host` is lower-case, without port or trailing dot, as nginx leaves it in `$host`; empty if the request
/// named none. `path` is nginx's normal form.
pub fn route<'g>(
    records: &impl Records<'g>,
    host: &[u8],
    path: &[u8],
    patterns: &Patterns,
) -> Result<Option<MatchedRule<'g>>, NoAnswer> {
    match find_server(host, |pattern| records.value(Kind::Server, pattern)) {
        Some((server, _)) => ServerView::new(server).rule(path, &NoParts, patterns),
        None => Ok(None),
    }
}

/// How the server of a host was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMatch {
    /// It has the host's name.
    Exact,
    /// It has a star in the place of the host's first label.
    Wildcard,
    /// No server names the host.
    Default,
}

/// What `look` finds as the server of a host.
#[inline]
pub fn find_server<S>(host: &[u8], look: impl Fn(&[u8]) -> Option<S>) -> Option<(S, ServerMatch)> {
    let named = by_pattern(host, |pattern| {
        let found = match pattern.first() {
            Some(b'*') => ServerMatch::Wildcard,
            _ => ServerMatch::Exact,
        };
        Some((look(pattern)?, found))
    });
    named.or_else(|| Some((look(HostPattern::DEFAULT.as_bytes())?, ServerMatch::Default)))
}

/// What `look` finds as the server of a host on a port, and perhaps an address, where Gateways listen: `look` is asked for a name
/// and, for a listener's host, [`Kind::Listener`], else [`Kind::Server`]. The more specific name decides, of two equal ones the
/// listener's. A listener's host may have a star for one label, as a server has, or one for several ([`ListenerHost::is_deep`]).
/// On a port that `is_shared` with no other server, only listeners are looked for.
pub fn find_listener<S>(
    (port, address): (u16, Option<IpAddr>),
    host: &[u8],
    is_shared: bool,
    look: impl Fn(Kind, &[u8]) -> Option<S>,
) -> Option<(S, ServerMatch)> {
    let mut key = [0; ListenerHost::MAX_BYTES];
    let listener = |key: &mut [u8; ListenerHost::MAX_BYTES], star: &str, name: &[u8]| {
        let mut rest = &mut key[..];
        let place = match address {
            Some(address) => write!(rest, "{port}@{address}/{star}"),
            None => write!(rest, "{port}/{star}"),
        };
        place.and_then(|()| rest.write_all(name)).ok()?;
        let left = rest.len();
        look(Kind::Listener, key.get(..key.len() - left)?)
    };
    let server = |name: &[u8]| if is_shared { look(Kind::Server, name) } else { None };
    if !host.is_empty() && host.len() <= HostPattern::MAX_BYTES && host[0] != b'*' {
        let exact = listener(&mut key, "", host).or_else(|| server(host));
        if let Some(found) = exact {
            return Some((found, ServerMatch::Exact));
        }
        let dots = host.iter().enumerate().filter(|(at, byte)| **byte == b'.' && *at > 0);
        for (level, (dot, _)) in dots.take(MAX_LEVELS).enumerate() {
            let parent = host.get(dot..).unwrap_or_default();
            let one_label = if level == 0 { listener(&mut key, "*", parent) } else { None };
            let found = one_label.or_else(|| listener(&mut key, "**", parent));
            let above = || by_pattern(host, |name| name.starts_with(b"*").then(|| server(name))?);
            if let Some(found) = found.or_else(|| above().filter(|_| level == 0)) {
                return Some((found, ServerMatch::Wildcard));
            }
        }
    }
    let name = HostPattern::DEFAULT.as_bytes();
    let found = listener(&mut key, "", name).or_else(|| server(name));
    found.map(|found| (found, ServerMatch::Default))
}

/// Where a request or a handshake has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The port of nginx.
    pub port: u16,
    /// The address, if a Gateway has it for itself.
    pub own: Option<IpAddr>,
    /// Hosts of Ingresses are served there too.
    pub is_shared: bool,
}

impl Arrival {
    /// Where Gateways listen. `address` is asked only where they have some for themselves.
    pub fn of<'g>(
        records: &impl Records<'g>,
        port: u16,
        address: impl FnOnce() -> Option<IpAddr>,
    ) -> Self {
        let settings = SettingsView::of(records);
        let own = settings.has_listener_addresses().then(address).flatten();
        let own = own.filter(|address| settings.is_listener_address(*address));
        Arrival { port, own, is_shared: own.is_none() && !settings.is_listener_port(port) }
    }
}

/// Most labels that a star of a listener's host stands for.
pub(crate) const MAX_LEVELS: usize = 32;

/// A server names this host: it is not the default server's.
pub fn is_named<'g>(records: &impl Records<'g>, host: &[u8]) -> bool {
    by_host(records, Kind::Server, host).is_some()
}

/// The record of an exact host, or of the wildcard one label above it.
pub(crate) fn by_host<'g>(records: &impl Records<'g>, kind: Kind, host: &[u8]) -> Option<&'g [u8]> {
    by_pattern(host, |pattern| records.value(kind, pattern))
}

/// What `look` finds under an exact host, or under the wildcard one label above it.
pub(crate) fn by_pattern<T>(host: &[u8], look: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    // A star is ours to put there: a client that sends one names no wildcard record.
    if host.is_empty() || host.len() > HostPattern::MAX_BYTES || host[0] == b'*' {
        return None;
    }
    look(host).or_else(|| {
        // The star stands for a label, and a label is not empty.
        let dot = host.iter().position(|&byte| byte == b'.').filter(|dot| *dot > 0)?;
        let mut wildcard = [0; HostPattern::MAX_BYTES + 1];
        wildcard[0] = b'*';
        let parent = host.get(dot..)?;
        wildcard.get_mut(1..=parent.len())?.copy_from_slice(parent);
        look(wildcard.get(..=parent.len())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BackendId, PathPattern, Rule, Server, Snapshot};
    use crate::record::snapshot_records;
    use std::collections::BTreeMap;

    fn records(hosts: &[&str]) -> BTreeMap<(Kind, Vec<u8>), Vec<u8>> {
        let mut snapshot = Snapshot::default();
        for host in hosts {
            let rule = Rule {
                path: PathPattern::prefix("/in").unwrap(),
                backend: Some(BackendId::parse(*host).unwrap()),
                origin: Default::default(),
                policy: Default::default(),
                policies: None,
                selection: None,
            };
            snapshot.servers.insert(HostPattern::parse(host).unwrap(), Server::of(vec![rule]));
        }
        let all = snapshot_records(snapshot).into_iter();
        all.map(|change| ((change.kind, change.key), change.value.unwrap())).collect()
    }

    fn winner(hosts: &[&str], host: &str, path: &str) -> Option<String> {
        let records = records(hosts);
        let patterns = Patterns::default();
        let route = route(&&records, host.as_bytes(), path.as_bytes(), &patterns).unwrap()?;
        Some(String::from_utf8(route.rule.backend().unwrap().to_vec()).unwrap())
    }

    #[test]
    fn an_exact_host_wins_over_a_wildcard_and_that_over_the_default() {
        let hosts = ["a.test", "*.test", "_"];
        assert_eq!(winner(&hosts, "a.test", "/in").as_deref(), Some("a.test"));
        assert_eq!(winner(&hosts, "b.test", "/in").as_deref(), Some("*.test"));
        assert_eq!(winner(&hosts, "a.b.test", "/in").as_deref(), Some("_"));
        assert_eq!(winner(&hosts, "test", "/in").as_deref(), Some("_"));
        assert_eq!(winner(&hosts, "", "/in").as_deref(), Some("_"));
    }

    #[test]
    fn an_unmatched_path_of_a_known_host_does_not_fall_through() {
        assert_eq!(winner(&["a.test", "*.test", "_"], "a.test", "/out"), None);
    }

    #[test]
    fn a_star_in_a_request_is_no_wildcard_key_of_ours() {
        assert_eq!(winner(&["*.test"], &format!("{}.test", "a".repeat(300)), "/in"), None);
        assert_eq!(winner(&["*.test"], ".test", "/in"), None);
        assert_eq!(winner(&["*.test"], "*.test", "/in"), None);
    }

    #[test]
    fn a_listener_s_host_comes_before_the_same_host_of_all_ports() {
        let find_at = |known: &[&str], at, host: &str, is_shared| {
            let look = |kind, key: &[u8]| {
                let key = str::from_utf8(key).unwrap().to_owned();
                let is_kind = key.contains('/') == (kind == Kind::Listener);
                (is_kind && known.contains(&&*key)).then_some(key)
            };
            find_listener(at, host.as_bytes(), is_shared, look).map(|(found, _)| found)
        };
        let find = |known: &[&str], port, host: &str, is_shared| {
            find_at(known, (port, None), host, is_shared)
        };
        let address = Some("10.0.0.7".parse().unwrap());
        let own = ["80/a.test", "80@10.0.0.7/**.test"];
        let found = find_at(&own, (80, address), "a.test", false);
        assert_eq!(found.as_deref(), Some("80@10.0.0.7/**.test"));
        assert_eq!(find(&own, 80, "b.test", true), None);
        let known =
            ["80/a.test", "a.test", "b.test", "80/**.test", "*.c.test", "80/*.d.test", "80/_", "_"];
        for (port, host, expected) in [
            (80, "a.test", "80/a.test"),
            (81, "a.test", "a.test"),
            (80, "b.test", "b.test"),
            (80, "x.test", "80/**.test"),
            (80, "x.y.test", "80/**.test"),
            (80, "x.c.test", "*.c.test"),
            (80, "x.y.c.test", "80/**.test"),
            (80, "x.d.test", "80/*.d.test"),
            (80, "x.y.d.test", "80/**.test"),
            (80, "test", "80/_"),
            (80, "", "80/_"),
            (80, "*.test", "80/_"),
            (81, "test", "_"),
        ] {
            assert_eq!(find(&known, port, host, true).as_deref(), Some(expected), "{port} {host}");
        }
        assert_eq!(find(&known, 81, "a.test", false), None);
        assert_eq!(find(&known, 80, "b.test", false).as_deref(), Some("80/**.test"));
        assert_eq!(find(&["_"], 80, &".a".repeat(120), false), None);
    }
}
