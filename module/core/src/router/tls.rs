//! Server name to certificate, and to the host's TLS policy.

use crate::model::{CertificateId, HostPattern};
use crate::record::{Kind, Records, listener_of};
use crate::router::{Arrival, ServerMatch, by_host, by_pattern, find_listener};

/// The id of the certificate for a handshake: the exact name, `*.` in place of its first label, else the
/// default's. `None`: the certificate in nginx.conf stays.
pub fn certificate_id<'g>(
    records: &impl Records<'g>,
    server_name: Option<&[u8]>,
) -> Option<&'g [u8]> {
    server_name
        .and_then(|name| has_certificate_name(records, name))
        .or_else(|| records.value(Kind::Name, HostPattern::DEFAULT.as_bytes()))
}

/// Whether a host has a certificate of its own or of its wildcard, which turns the redirect to HTTPS on.
pub fn has_certificate<'g>(records: &impl Records<'g>, host: &[u8]) -> bool {
    has_certificate_name(records, host).is_some()
}

/// The id of the certificate of exactly this name.
pub fn exact_certificate_id<'g>(records: &impl Records<'g>, name: &[u8]) -> Option<&'g [u8]> {
    records.value(Kind::Name, name.to_ascii_lowercase().as_slice())
}

/// The name in the body of a hello's server name extension (RFC 6066 §3).
pub fn server_name(extension: &[u8]) -> Option<&[u8]> {
    let sized = |bytes: &'_ [u8]| -> Option<usize> {
        Some(usize::from(u16::from_be_bytes(*bytes.first_chunk()?)))
    };
    let list = extension.get(2..)?.get(..sized(extension)?)?;
    // One name, of the only kind there is.
    let (0, rest) = list.split_first().map(|(kind, rest)| (*kind, rest))? else { return None };
    rest.get(2..)?.get(..sized(rest)?).filter(|name| !name.is_empty())
}

/// The policy of a handshake's server name, or of a request's host: the same for both, or a client could request a
/// host without its policy. It is the policy of the host pattern that serves: a host with a server of its own does
/// not have the policy of a wildcard. `or_default`: without one of its own a host has that of all hosts; not where a listener
/// has it, since what an Ingress says about all hosts is not about the hosts of others.
pub fn policy<'g>(
    records: &impl Records<'g>,
    name: Option<&[u8]>,
    or_default: bool,
) -> Option<&'g [u8]> {
    find_policy(name, or_default, |kind, key| records.value(kind, key))
}

/// [`policy`], in the form that `look` returns for a record.
pub fn find_policy<P>(
    name: Option<&[u8]>,
    or_default: bool,
    look: impl Fn(Kind, &[u8]) -> Option<P>,
) -> Option<P> {
    let of = |pattern: &[u8]| match look(Kind::Tls, pattern) {
        Some(policy) => Some(Some(policy)),
        None => look(Kind::Server, pattern).map(|_| None),
    };
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let named = name.and_then(|name| by_pattern(normal(name, &mut buffer)?, of));
    let default = || of(HostPattern::DEFAULT.as_bytes()).filter(|_| or_default);
    named.or_else(default).flatten()
}

/// Whether a host of ours has a handshake's server name: by a server, a certificate or a TLS policy of this name or of its
/// wildcard; where Gateways listen (`at`), also by a listener, and one without a hostname has all names and none. The default
/// server of Ingresses and the default certificate count for nothing, as in the reference.
pub fn is_of_ours<'g>(
    records: &impl Records<'g>,
    at: Option<&Arrival>,
    name: Option<&[u8]>,
) -> bool {
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let look = |kind, key: &[u8]| records.value(kind, key);
    let has_listener = at.is_some_and(|at| {
        let found =
            find_by_name(&Arrival { is_shared: false, ..*at }, name.unwrap_or_default(), look);
        found.is_some()
    });
    let is_shared = at.is_none_or(|at| at.is_shared);
    // The default server's own name is no host.
    let name = name.and_then(|name| normal(name, &mut buffer));
    let name = name.filter(|name| *name != HostPattern::DEFAULT.as_bytes());
    has_listener
        || is_shared
            && name.is_some_and(|name| {
                [Kind::Server, Kind::Name, Kind::Tls]
                    .iter()
                    .any(|kind| by_host(records, *kind, name).is_some())
            })
}

/// Whether a server name of a handshake is this host, which is in lower case and has no trailing dot.
pub fn is_named(server_name: &[u8], host: &[u8]) -> bool {
    normal(server_name, &mut [0; HostPattern::MAX_BYTES]) == Some(host)
}

/// The listener of HTTPS that has a server name, as its hosts' records name it; an empty name is none.
pub fn listener_of_name<'g>(
    records: &impl Records<'g>,
    at: &Arrival,
    name: &[u8],
) -> Option<&'g [u8]> {
    let look = |kind, key: &[u8]| records.value(kind, key);
    find_by_name(&Arrival { is_shared: false, ..*at }, name, look)
        .and_then(|(_, host, _)| listener_of(host))
}

/// What `look` finds for the host that has a server name, its kind, and how the host was found.
pub fn find_by_name<R>(
    at: &Arrival,
    name: &[u8],
    look: impl Fn(Kind, &[u8]) -> Option<R>,
) -> Option<(Kind, R, ServerMatch)> {
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let name = normal(name, &mut buffer).unwrap_or_default();
    let look = |kind, key: &[u8]| Some((kind, look(kind, key)?));
    let found = find_listener((at.port, at.own), name, at.is_shared, look);
    found.map(|((kind, record), how)| (kind, record, how))
}

fn has_certificate_name<'g>(records: &impl Records<'g>, name: &[u8]) -> Option<&'g [u8]> {
    let id = by_host(records, Kind::Name, normal(name, &mut [0; HostPattern::MAX_BYTES])?);
    id.filter(|id| *id != CertificateId::NONE.as_bytes())
}

/// A server name of a handshake as records have it: lower-case, without a trailing dot. `None`: too long
/// for any.
pub(crate) fn normal<'b>(
    name: &[u8],
    buffer: &'b mut [u8; HostPattern::MAX_BYTES],
) -> Option<&'b [u8]> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn names() -> BTreeMap<(Kind, Vec<u8>), Vec<u8>> {
        let name =
            |host: &str, id: &str| ((Kind::Name, host.as_bytes().to_vec()), id.as_bytes().to_vec());
        BTreeMap::from([name("a.test", "exact"), name("*.test", "wildcard"), name("_", "default")])
    }

    #[test]
    fn a_name_is_compared_without_case_and_trailing_dot() {
        let names = names();
        let id =
            |name| certificate_id(&&names, name).map(|id| String::from_utf8(id.to_vec()).unwrap());
        assert_eq!(id(Some(b"A.Test.")).as_deref(), Some("exact"));
        assert_eq!(id(Some(b"b.test")).as_deref(), Some("wildcard"));
        assert_eq!(id(Some(b"a.b.test")).as_deref(), Some("default"));
        assert_eq!(id(None).as_deref(), Some("default"));
        assert_eq!(id(Some(&[b'a'; 300])).as_deref(), Some("default"));
    }

    #[test]
    fn a_server_name_is_read_and_damage_is_no_name() {
        let whole = b"\x00\x09\x00\x00\x06a.test";
        assert_eq!(server_name(whole), Some(&b"a.test"[..]));
        for end in 0..whole.len() {
            assert_eq!(server_name(&whole[..end]), None, "{end} bytes");
        }
        assert_eq!(server_name(b"\x00\x03\x00\x00\x00"), None);
        assert_eq!(server_name(b"\x00\x09\x01\x00\x06a.test"), None, "another kind of name");
    }

    #[test]
    fn a_policy_is_that_of_the_pattern_that_serves_the_host() {
        let record =
            |kind, host: &str| ((kind, host.as_bytes().to_vec()), host.as_bytes().to_vec());
        let records = BTreeMap::from([
            record(Kind::Tls, "*.test"),
            record(Kind::Tls, "a.example"),
            record(Kind::Tls, "_"),
            record(Kind::Server, "*.test"),
            record(Kind::Server, "*.example"),
            record(Kind::Server, "open.test"),
        ]);
        let of = |name| {
            policy(&&records, name, true).map(|key| String::from_utf8(key.to_vec()).unwrap())
        };
        assert_eq!(of(Some(b"A.test.")).as_deref(), Some("*.test"));
        assert_eq!(of(Some(b"open.test")), None, "it has a server of its own");
        assert_eq!(of(Some(b"a.example")).as_deref(), Some("a.example"), "no server, but a policy");
        assert_eq!(of(Some(b"b.example")), None, "the wildcard serves it");
        assert_eq!(of(Some(b"else.where")).as_deref(), Some("_"));
        assert_eq!(of(Some(b"*.test")).as_deref(), Some("_"), "a star of the client's");
        assert_eq!(of(None).as_deref(), Some("_"));
    }

    #[test]
    fn a_server_name_is_of_ours_by_a_host_or_a_listener_and_not_by_the_default() {
        let of_ours = |known: &[(Kind, &str)], at: Option<(u16, bool)>, name: Option<&str>| {
            let records: BTreeMap<_, _> = known
                .iter()
                .map(|(kind, key)| ((*kind, key.as_bytes().to_vec()), b"any".to_vec()))
                .collect();
            let at = at.map(|(port, is_shared)| Arrival { port, own: None, is_shared });
            is_of_ours(&&records, at.as_ref(), name.map(str::as_bytes))
        };
        let known = [
            (Kind::Server, "a.test"),
            (Kind::Name, "*.b.test"),
            (Kind::Server, "_"),
            (Kind::Name, "_"),
        ];
        for (name, expected) in [
            (Some("a.test"), true),
            (Some("A.test."), true),
            (Some("x.b.test"), true),
            (Some("b.test"), false),
            (Some("x.a.test"), false),
            (Some("_"), false),
            (None, false),
        ] {
            assert_eq!(of_ours(&known, None, name), expected, "{name:?}");
        }
        let listeners = [(Kind::Listener, "443/c.test"), (Kind::Server, "a.test")];
        assert!(of_ours(&listeners, Some((443, true)), Some("c.test")));
        assert!(!of_ours(&listeners, Some((444, true)), Some("c.test")));
        assert!(of_ours(&listeners, Some((443, true)), Some("a.test")));
        assert!(!of_ours(&listeners, Some((443, false)), Some("a.test")), "only listeners there");
        assert!(!of_ours(&listeners, Some((443, true)), None));
        assert!(of_ours(&[(Kind::Listener, "443/_")], Some((443, true)), None), "all hosts");
    }

    #[test]
    fn a_host_without_a_certificate_does_not_have_its_wildcard_s() {
        let mut names = names();
        names.insert((Kind::Name, b"bare.test".to_vec()), CertificateId::NONE.into());
        assert_eq!(certificate_id(&&names, Some(b"bare.test")), Some(&b"default"[..]));
        assert!(!has_certificate(&&names, b"bare.test"));
        assert!(has_certificate(&&names, b"b.test"), "others have it");
        names.remove(&(Kind::Name, b"_".to_vec()));
        assert_eq!(certificate_id(&&names, Some(b"bare.test")), None);
    }

    #[test]
    fn the_default_certificate_does_not_count_as_the_hosts_own() {
        let names = names();
        assert!(has_certificate(&&names, b"b.test"));
        assert!(!has_certificate(&&names, b"other.example"));
    }
}
