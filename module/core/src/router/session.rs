//! A TCP or UDP session to its backend: by the port it came to, or by the server name of its TLS handshake.

use crate::model::{HostPattern, StreamPort};
use crate::record::{Kind, Records};
use crate::router::by_host;
use crate::router::tls::normal;
use std::io::Write;

/// The id of the backend that the listener of a port leads to.
pub fn backend_of_port<'g>(records: &impl Records<'g>, port: StreamPort) -> Option<&'g [u8]> {
    let mut key = [0; "tcp/65535".len()];
    let mut rest = key.as_mut_slice();
    write!(rest, "{port}").ok()?;
    let unused = rest.len();
    records.value(Kind::Port, key.get(..key.len() - unused)?)
}

/// The id of the backend to which the connections of a server name are passed through: the exact name, then `*.` in
/// place of its first label. A wildcard does not apply to a host with a server of its own, which terminates TLS and
/// is more specific.
pub fn passthrough<'g>(records: &impl Records<'g>, server_name: &[u8]) -> Option<&'g [u8]> {
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let name = normal(server_name, &mut buffer)?;
    // `_` is no server name, though a record may have this key.
    if name == HostPattern::DEFAULT.as_bytes() {
        return None;
    }
    let found = by_host(records, Kind::Passthrough, name)?;
    let is_exact = || records.value(Kind::Passthrough, name).is_some();
    (records.value(Kind::Server, name).is_none() || is_exact()).then_some(found)
}

/// Bytes of the `random` of a ClientHello.
pub const RANDOM: usize = 32;

/// The `random` of a ClientHello (RFC 8446, 4.1.2), which no two handshakes share, from the TLS records at the beginning of
/// a connection, however short these are; `None`: that is no ClientHello.
pub fn client_random(mut bytes: &[u8]) -> Option<[u8; RANDOM]> {
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;
    // Type and length of the message, then the version.
    const RANDOM_AT: usize = 4 + 2;
    let mut message = [0; RANDOM_AT + RANDOM];
    let mut filled = 0;
    while filled < message.len() {
        let ([HANDSHAKE, _, _, high, low], rest) = bytes.split_first_chunk()? else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (fragment, behind) = rest.split_at(length.min(rest.len()));
        let place = message.get_mut(filled..)?;
        let taken = fragment.len().min(place.len());
        place.get_mut(..taken)?.copy_from_slice(fragment.get(..taken)?);
        (filled, bytes) = (filled + taken, behind);
    }
    (message[0] == CLIENT_HELLO).then(|| message.last_chunk().copied())?
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
    fn the_random_of_a_hello_is_found_however_its_records_are_cut() {
        let message: Vec<u8> = [1, 0, 1, 0, 3, 3].into_iter().chain(100..140).collect();
        let random: [u8; RANDOM] = std::array::from_fn(|place| 100 + place as u8);
        for size in 1..=message.len() {
            let record = |part: &[u8]| [&[22, 3, 1, 0, part.len() as u8], part].concat();
            let bytes: Vec<u8> = message.chunks(size).flat_map(record).collect();
            assert_eq!(client_random(&bytes), Some(random), "records of {size}");
            assert_eq!(client_random(&bytes[..bytes.len() / 2]), None, "cut off");
        }
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"", &[22, 3, 1, 0, 0], &[22, 3, 1, 0, 1, 2]] {
            assert_eq!(client_random(other), None);
        }
        let server_hello = [&[22, 3, 3, 0, 46, 2, 0, 0, 42][..], &[3; 42]].concat();
        assert_eq!(client_random(&server_hello), None);
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
