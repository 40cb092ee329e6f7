//! A TCP or UDP session to its backend: by the port it came to, or by the server name of its TLS handshake.

use crate::model::{HostPattern, SessionPlace, SessionWay, StreamPort};
use crate::record::{ChosenTarget, Kind, Records, SessionView, SettingsView};
use crate::router::tls::normal;
use crate::router::{MAX_LEVELS, by_host, by_pattern};
use std::io::Write;
use std::net::IpAddr;

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'g> {
    /// It goes to the backend with this id, as it comes.
    Forward(&'g [u8]),
    /// The session's TLS ends here, and nginx decrypts it.
    Terminate,
    /// The session is closed, since no backend serves its server name.
    Close,
}

/// Where a session has come to.
pub struct Arrival<'a> {
    /// The port of this machine.
    pub port: StreamPort,
    /// The address of this machine. Asked only where Gateways have addresses for themselves.
    pub address: &'a dyn Fn() -> Option<IpAddr>,
    /// Random bits, by which weighted targets are chosen.
    pub random: u64,
}

impl Arrival<'_> {
    /// The address, if a Gateway has it for itself.
    fn own_address<'g>(&self, records: &impl Records<'g>) -> Option<IpAddr> {
        let settings = SettingsView::of(records);
        let address = settings.has_listener_addresses().then(|| (self.address)()).flatten();
        address.filter(|address| settings.is_listener_address(*address))
    }
}

/// The id of the backend of a session that came to a port: that of a Gateway's listener there, or of the port.
pub fn backend<'g>(records: &impl Records<'g>, arrival: &Arrival<'_>) -> Option<&'g [u8]> {
    let mut key = PlaceKey::new(arrival.port, arrival.own_address(records))?;
    match key.find(records, None) {
        Some(session) => session.choose(arrival.random).map(|target| target.backend),
        None => backend_of_port(records, arrival.port),
    }
}

/// Who takes a session whose TLS has ended here.
pub fn target_of_decrypted<'g>(
    records: &impl Records<'g>,
    arrival: &Arrival<'_>,
    server_name: &[u8],
) -> Option<ChosenTarget<'g>> {
    let found = by_server_name(records, arrival, server_name)?;
    let is_decrypted = found.way() == SessionWay::Decrypt;
    is_decrypted.then(|| found.choose(arrival.random)).flatten()
}

/// What becomes of a TLS session with this server name, before anything is decrypted. On a port that only Gateways' listeners
/// have, what no listener has is closed.
pub fn of_tls<'g>(
    records: &impl Records<'g>,
    arrival: &Arrival<'_>,
    server_name: &[u8],
) -> Verdict<'g> {
    let forward = |target: Option<ChosenTarget<'g>>| {
        target.map_or(Verdict::Close, |target| Verdict::Forward(target.backend))
    };
    let by_ingresses =
        || passthrough(records, server_name).map_or(Verdict::Terminate, Verdict::Forward);
    if let Some(found) = by_server_name(records, arrival, server_name) {
        return match found.way() {
            SessionWay::Forward => forward(found.choose(arrival.random)),
            SessionWay::Http if found.yields() => by_ingresses(),
            SessionWay::Decrypt | SessionWay::Http => Verdict::Terminate,
        };
    }
    let is_gateways = match arrival.port {
        StreamPort::Tcp(port) => SettingsView::of(records).is_listener_port(port.get()),
        StreamPort::Udp(_) => true,
    };
    match is_gateways {
        true => Verdict::Close,
        false => by_ingresses(),
    }
}

/// The session of the most specific server name: the exact one, then a star for as many labels as are needed, then that of all
/// others.
fn by_server_name<'g>(
    records: &impl Records<'g>,
    arrival: &Arrival<'_>,
    server_name: &[u8],
) -> Option<SessionView<'g>> {
    let address = arrival.own_address(records);
    let mut key = PlaceKey::new(arrival.port, address)?;
    let mut buffer = [0; HostPattern::MAX_BYTES];
    let name = normal(server_name, &mut buffer);
    let name =
        name.filter(|name| *name != HostPattern::DEFAULT.as_bytes() && !name.starts_with(b"*"));
    let name = name.unwrap_or_default();
    if let Some(found) = key.find(records, Some(("", name))).filter(|_| !name.is_empty()) {
        return Some(found);
    }
    // No Ingress is served on a Gateway's own address.
    let is_left = |found: SessionView<'_>, level| {
        found.yields() && address.is_none() && has_closer(records, name, level)
    };
    let dots = name.iter().enumerate().filter(|(at, byte)| **byte == b'.' && *at > 0);
    for (level, (dot, _)) in dots.take(MAX_LEVELS).enumerate() {
        let parent = name.get(dot..).unwrap_or_default();
        if let Some(found) = key.find(records, Some(("**", parent))) {
            return Some(found).filter(|found| !is_left(*found, level));
        }
    }
    let found = key.find(records, Some(("", HostPattern::DEFAULT.as_bytes())))?;
    Some(found).filter(|found| !is_left(*found, MAX_LEVELS))
}

/// Whether an Ingress has a server name in a more specific way than by a star for `level` labels and one.
fn has_closer<'g>(records: &impl Records<'g>, name: &[u8], level: usize) -> bool {
    let has = |pattern: &[u8]| {
        let is_closer = level > 0 || !pattern.starts_with(b"*");
        let kinds = [Kind::Server, Kind::Passthrough];
        let is_there = kinds.iter().any(|kind| records.value(*kind, pattern).is_some());
        (is_closer && is_there).then_some(())
    };
    by_pattern(name, has).is_some()
}

/// The key of a session's record, as far as it is the same for all server names.
struct PlaceKey {
    bytes: [u8; SessionPlace::MAX_BYTES],
    length: usize,
}

impl PlaceKey {
    fn new(port: StreamPort, address: Option<IpAddr>) -> Option<Self> {
        let mut bytes = [0; SessionPlace::MAX_BYTES];
        let mut rest = bytes.as_mut_slice();
        match address {
            Some(address) => write!(rest, "{port}@{address}").ok()?,
            None => write!(rest, "{port}").ok()?,
        }
        let left = rest.len();
        Some(PlaceKey { length: bytes.len() - left, bytes })
    }

    /// The record for a server name behind a star, or for none.
    fn find<'g>(
        &mut self,
        records: &impl Records<'g>,
        name: Option<(&str, &[u8])>,
    ) -> Option<SessionView<'g>> {
        let mut rest = self.bytes.get_mut(self.length..)?;
        if let Some((star, name)) = name {
            write!(rest, "/{star}").ok()?;
            rest.write_all(name).ok()?;
        }
        let left = rest.len();
        let key = self.bytes.get(..self.bytes.len() - left)?;
        records.value(Kind::Session, key).map(SessionView::new)
    }
}

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
    use crate::record::table::Operations;
    use crate::wire::native::Patch;
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

    fn gateways(sessions: serde_json::Value) -> Snapshot {
        let text = serde_json::json!({
            "settings": {"listener_ports": [8443], "listener_addresses": ["10.0.0.7"]},
            "sessions": sessions, "ports": {"tcp/9000": "port", "tcp/9001": "port"},
            "servers": {"own.test": {}, "*.deep.test": {}, "*.test": {}}, "passthrough": {"old.test": "old", "through.test": "through"},
        });
        serde_json::from_value(text).unwrap()
    }

    fn to(backend: &str) -> serde_json::Value {
        serde_json::json!({"targets": [{"weight": 1, "backend": backend}]})
    }

    fn beside(backend: &str) -> serde_json::Value {
        serde_json::json!({"yields": true, "targets": [{"weight": 1, "backend": backend}]})
    }

    fn told(records: &BTreeMap<(Kind, Vec<u8>), Vec<u8>>, place: &str, name: &str) -> String {
        let (port, address) = place.split_once('@').unwrap_or((place, ""));
        let address = || address.parse().ok();
        let port = StreamPort::parse(port).unwrap();
        match of_tls(&records, &Arrival { port, address: &address, random: 0 }, name.as_bytes()) {
            Verdict::Forward(id) => String::from_utf8(id.to_vec()).unwrap(),
            Verdict::Terminate => "terminate".into(),
            Verdict::Close => "close".into(),
        }
    }

    #[test]
    fn the_most_specific_server_name_decides_and_an_ingress_keeps_what_it_names_closer() {
        let records = records(gateways(serde_json::json!({
            "tcp/443/**.test": beside("wild"), "tcp/443/a.test": beside("a"), "tcp/443/http.test": {"way": "http", "yields": true},
            "tcp/443/through.test": {"way": "http", "yields": true},
            "tcp/443/closed.test": {},
            "tcp/443@10.0.0.7/**.test": to("other"), "tcp/443@10.0.0.7/_": {},
            "tcp/8443/**.b.test": to("b"), "tcp/8443/own.test": {"way": "decrypt"},
        })));
        for (place, name, expected) in [
            ("tcp/443", "A.test.", "a"),
            ("tcp/443", "x.test", "wild"),
            ("tcp/443", "x.y.test", "wild"),
            ("tcp/443", "own.test", "terminate"),
            ("tcp/443", "x.deep.test", "terminate"),
            ("tcp/443", "x.y.deep.test", "wild"),
            ("tcp/443", "old.test", "old"),
            ("tcp/443", "http.test", "terminate"),
            ("tcp/443", "through.test", "through"),
            ("tcp/443", "closed.test", "close"),
            ("tcp/443", "example", "terminate"),
            ("tcp/443", "", "terminate"),
            ("tcp/443@10.0.0.8", "a.test", "a"),
            ("tcp/443@10.0.0.7", "a.test", "other"),
            ("tcp/443@10.0.0.7", "own.test", "other"),
            ("tcp/443@10.0.0.7", "example", "close"),
            ("tcp/443@10.0.0.7", "", "close"),
            ("tcp/8443", "x.b.test", "b"),
            ("tcp/8443", "own.test", "terminate"),
            ("tcp/8443", "old.test", "close"),
            ("tcp/8443", "", "close"),
        ] {
            assert_eq!(told(&records, place, name), expected, "{place} {name}");
        }
    }

    /// A namespace that has more than it may have must not close what others have, on any port.
    #[test]
    fn a_withheld_session_closes_its_own_server_names_and_no_others() {
        let mut patch = Patch::of_whole(gateways(serde_json::json!({})));
        for place in ["tcp/443/**.test", "tcp/443/_", "tcp/443@10.0.0.7/_", "tcp/8443/_"] {
            assert!((Operations::of_kind(Kind::Session).unwrap().withhold)(&mut patch, place));
        }
        let records = records(patch.into_whole());
        for (place, name, expected) in [
            ("tcp/443", "own.test", "terminate"),
            ("tcp/443", "through.test", "through"),
            ("tcp/443", "x.deep.test", "terminate"),
            ("tcp/443", "x.test", "close"),
            ("tcp/443", "example", "close"),
            ("tcp/443@10.0.0.7", "own.test", "close"),
            ("tcp/443@10.0.0.7", "through.test", "close"),
            ("tcp/8443", "own.test", "close"),
        ] {
            assert_eq!(told(&records, place, name), expected, "{place} {name}");
        }
    }

    #[test]
    fn a_session_without_a_server_name_goes_where_the_listener_of_its_address_leads() {
        let records = records(gateways(serde_json::json!({
            "tcp/9000": to("all"), "tcp/9000@10.0.0.7": to("own"), "udp/9000": {},
            "tcp/8443/a.test": {"way": "decrypt", "targets": [{"weight": 1, "backend": "plain"}]},
            "tcp/8443/tls.test": {"way": "decrypt", "targets": [{"weight": 1, "backend": "secure", "policies": "p"}]},
        })));
        let found = |port: &str, address: &str| {
            let address = || address.parse().ok();
            let port = StreamPort::parse(port).unwrap();
            let arrival = Arrival { port, address: &address, random: u64::MAX };
            backend(&&records, &arrival).map(|id| String::from_utf8(id.to_vec()).unwrap())
        };
        assert_eq!(found("tcp/9000", "10.0.0.1").as_deref(), Some("all"));
        assert_eq!(found("tcp/9000", "10.0.0.7").as_deref(), Some("own"));
        assert_eq!(found("tcp/9001", "10.0.0.1").as_deref(), Some("port"));
        assert_eq!(found("udp/9000", "10.0.0.1"), None);
        let port = StreamPort::parse("tcp/8443").unwrap();
        let arrival = Arrival { port, address: &|| None, random: 0 };
        let decrypted = |name: &str| {
            let target = target_of_decrypted(&&records, &arrival, name.as_bytes())?;
            Some((target.backend, target.policies))
        };
        assert_eq!(decrypted("a.test"), Some((&b"plain"[..], &b""[..])));
        assert_eq!(decrypted("tls.test"), Some((&b"secure"[..], &b"p"[..])));
        assert_eq!(decrypted("b.test"), None);
    }
}
