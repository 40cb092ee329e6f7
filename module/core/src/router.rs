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

use crate::model::HostPattern;
use crate::patterns::{NoAnswer, Patterns};
use crate::record::{Kind, Records, Route, ServerView};

/// The rule for a request; `None`: no rule takes it, the default backend's turn.
///
/// `host` is lower-case, without port or trailing dot, as nginx leaves it in `$host`; empty if the request
/// named none. `path` is nginx's normal form.
pub fn route<'g>(
    records: &impl Records<'g>,
    host: &[u8],
    path: &[u8],
    patterns: &Patterns,
) -> Result<Option<Route<'g>>, NoAnswer> {
    match find_server(host, |pattern| records.value(Kind::Server, pattern)) {
        Some((server, _)) => ServerView::new(server).rule(path, patterns),
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
            };
            snapshot
                .servers
                .insert(HostPattern::parse(host).unwrap(), Server { rules: vec![rule] });
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
}
