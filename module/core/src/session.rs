//! A TCP or UDP session to its backend: by the port it came to, or by the server name of its TLS handshake.

use crate::model::{HostPattern, StreamPort};
use crate::record::{Kind, Records};
use crate::router::by_host;
use crate::tls::normal;
use std::io::Write;

/// The id of the backend that the listener of a port leads to.
pub fn backend_of_port<'g>(records: &impl Records<'g>, port: StreamPort) -> Option<&'g [u8]> {
    let mut key = [0; "tcp/65535".len()];
    let mut rest = key.as_mut_slice();
    write!(rest, "{port}").ok()?;
    let unused = rest.len();
    records.value(Kind::Port, key.get(..key.len() - unused)?)
}

/// The id of the backend that connections for a server name are passed through to: the exact name, then `*.` in
/// place of its first label. A host with a server of its own is not taken by a wildcard: who terminates its TLS has
/// said so more closely.
pub fn passthrough<'g>(records: &impl Records<'g>, server_name: &[u8]) -> Option<&'g [u8]> {
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let name = normal(server_name, &mut buffer)?;
    // No server name, though a record may have this key.
    if name == HostPattern::DEFAULT.as_bytes() {
        return None;
    }
    let found = by_host(records, Kind::Passthrough, name)?;
    let is_exact = || records.value(Kind::Passthrough, name).is_some();
    (records.value(Kind::Server, name).is_none() || is_exact()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BackendId, Server, Snapshot};
    use crate::record::snapshot_records;
    use std::collections::BTreeMap;

    fn records(snapshot: Snapshot) -> BTreeMap<(Kind, Vec<u8>), Vec<u8>> {
        let all = snapshot_records(snapshot).into_iter();
        all.map(|change| ((change.kind, change.key), change.value.unwrap())).collect()
    }

    #[test]
    fn the_same_number_is_two_ports_one_a_protocol() {
        let mut snapshot = Snapshot::default();
        for port in ["tcp/53", "udp/53", "tcp/65535"] {
            let id = BackendId::parse(port).unwrap();
            snapshot.ports.insert(StreamPort::parse(port).unwrap(), id);
        }
        let records = records(snapshot);
        for port in ["tcp/53", "udp/53", "tcp/65535"] {
            let found = backend_of_port(&&records, StreamPort::parse(port).unwrap());
            assert_eq!(found, Some(port.as_bytes()));
        }
        assert_eq!(backend_of_port(&&records, StreamPort::parse("udp/65535").unwrap()), None);
        assert_eq!(backend_of_port(&&records, StreamPort::parse("tcp/5").unwrap()), None);
    }

    #[test]
    fn a_server_name_is_passed_through_by_itself_or_a_wildcard_that_takes_no_server() {
        let mut snapshot = Snapshot::default();
        for name in ["a.test", "*.test", "*.example", "_"] {
            let id = BackendId::parse(name).unwrap();
            snapshot.passthrough.insert(HostPattern::parse(name).unwrap(), id);
        }
        for host in ["a.test", "own.test", "*.example"] {
            snapshot.servers.insert(HostPattern::parse(host).unwrap(), Server::default());
        }
        let records = records(snapshot);
        let found = |name: &str| {
            let id = passthrough(&&records, name.as_bytes());
            id.map(|id| String::from_utf8(id.to_vec()).unwrap())
        };
        assert_eq!(found("A.Test.").as_deref(), Some("a.test"));
        assert_eq!(found("b.test").as_deref(), Some("*.test"));
        assert_eq!(found("own.test"), None);
        assert_eq!(found("b.example").as_deref(), Some("*.example"));
        for name in ["", ".", "_", "test", "x.b.test", "*.test", &"a".repeat(300)] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
