//! The ConfigMaps of TCP and UDP services to listeners and backends.
//!
//! Shape:   a key is a port, a value `NAMESPACE/SERVICE:PORT[:PROXY[:PROXY]]`; a backend is called
//!          `tcp/NAMESPACE/SERVICE/PORT`, apart from those of HTTP, whose settings come from annotations.
//! Source:  ingress-nginx's ConfigMap. Differences: a listener stays when its last endpoint goes away, and a word that is
//!          not PROXY refuses the entry, which the reference takes for nothing.

use crate::Options;
use crate::claim::backend_ref::BackendRef;
use oxigress_core::model::{BackendId, StreamPort};
use oxigress_objects::ingress::Port;
use oxigress_objects::service::Protocol;
use oxigress_objects::verdict::Note;
use oxigress_objects::{ConfigMap, Key};
use oxigress_settings::conf_input::Listener;
use std::collections::BTreeMap;
use std::num::NonZeroU16;

/// A port and where it leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What stands in nginx.conf of it.
    pub listener: Listener,
    /// The Service's port that requests go to.
    pub backend_ref: BackendRef,
}

/// Reads one map; what is wrong is noted, the rest is served.
pub fn parse(
    map: &ConfigMap,
    protocol: Protocol,
    options: &Options,
) -> (BTreeMap<StreamPort, Entry>, Vec<Note>) {
    let mut entries = BTreeMap::new();
    let mut notes = Vec::new();
    for (key, value) in &map.data {
        match entry(key, value, protocol, options) {
            Ok((port, entry)) => drop(entries.insert(port, entry)),
            Err(why) => notes.push(Note::rejected(format!("data.{key}: {why}"))),
        }
    }
    (entries, notes)
}

fn entry(
    key: &str,
    value: &str,
    protocol: Protocol,
    options: &Options,
) -> Result<(StreamPort, Entry), String> {
    let number = key.parse::<NonZeroU16>().ok().filter(|number| number.to_string() == key);
    let number = number.ok_or("is no port: write a number from 1 to 65535 as the key")?;
    if let Some(flag) = options.reserved_ports.get(&number.get()) {
        return Err(format!("{flag} has this port: choose another one here or there"));
    }
    let form = match protocol {
        Protocol::Tcp => "NAMESPACE/SERVICE:PORT[:PROXY[:PROXY]]",
        Protocol::Udp => "NAMESPACE/SERVICE:PORT",
    };
    let odd = || format!("{value:?} is not of the form {form}");
    let parts: Vec<&str> = value.trim().split(':').collect();
    let (service, port, words) = match parts.as_slice() {
        [service, port, words @ ..] if words.len() <= 2 => (service, port, words),
        _ => return Err(odd()),
    };
    let service = Key::parse(service).filter(|key| is_name(&key.namespace) && is_name(&key.name));
    let service = service.ok_or_else(odd)?;
    let port = match port.parse::<NonZeroU16>() {
        Ok(number) => Port::Number(number.get()),
        Err(_) if is_name(port) && port.bytes().any(|b| b.is_ascii_lowercase()) => {
            Port::Name((*port).into())
        }
        Err(_) => return Err(odd()),
    };
    if protocol == Protocol::Udp && !words.is_empty() {
        return Err(format!("{value:?}: UDP has no PROXY protocol here: write {form}"));
    }
    let mut flags = [false; 2];
    for (flag, word) in flags.iter_mut().zip(words) {
        *flag = match word.trim() {
            "" => false,
            word if word.eq_ignore_ascii_case("PROXY") => true,
            word => return Err(format!("{value:?}: {word:?} is not PROXY: write {form}")),
        };
    }
    let [takes_proxy, sends_proxy] = flags;
    let listener = Listener { takes_proxy, sends_proxy, ..Listener::default() };
    let word = protocol.to_string().to_ascii_lowercase();
    let backend =
        BackendId::parse(format!("{word}/{service}/{port}")).map_err(|e| e.to_string())?;
    let at = match protocol {
        Protocol::Tcp => StreamPort::Tcp(number),
        Protocol::Udp => StreamPort::Udp(number),
    };
    Ok((at, Entry { listener, backend_ref: BackendRef { service, port, backend } }))
}

/// The name of an object or a port.
fn is_name(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b);
    (1..=253).contains(&text.len()) && text.bytes().all(is_plain)
}

/// What ingress-nginx calls the backend.
pub fn upstream_name(protocol: Protocol, backend_ref: &BackendRef) -> String {
    let word = protocol.to_string().to_ascii_lowercase();
    format!(
        "{word}-{}-{}-{}",
        backend_ref.service.namespace, backend_ref.service.name, backend_ref.port
    )
}

/// The protocol of a port.
pub fn protocol_of(port: &StreamPort) -> Protocol {
    match port {
        StreamPort::Tcp(_) => Protocol::Tcp,
        StreamPort::Udp(_) => Protocol::Udp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(protocol: Protocol, key: &str, value: &str) -> Result<(bool, bool, String), String> {
        let options =
            Options { reserved_ports: [(80, "--http-port")].into(), ..Options::default() };
        let (_, entry) = entry(key, value, protocol, &options)?;
        let Listener { takes_proxy, sends_proxy, .. } = entry.listener;
        Ok((takes_proxy, sends_proxy, entry.backend_ref.backend.to_string()))
    }

    #[test]
    fn the_reference_s_values_mean_what_they_mean_there() {
        let id = || "tcp/a/db/5432".to_owned();
        for (value, takes, sends) in [
            ("a/db:5432", false, false),
            ("a/db:5432:PROXY", true, false),
            ("a/db:5432:proxy:Proxy", true, true),
            ("a/db:5432::PROXY", false, true),
            ("a/db:5432:", false, false),
        ] {
            assert_eq!(parsed(Protocol::Tcp, "9000", value), Ok((takes, sends, id())), "{value}");
        }
        let named = parsed(Protocol::Udp, "53", "kube-system/kube-dns:dns").unwrap();
        assert_eq!(named, (false, false, "udp/kube-system/kube-dns/dns".into()));
    }

    #[test]
    fn what_is_malformed_is_refused_with_a_remedy() {
        for (key, value) in [
            ("80", "a/b:1"),
            ("0", "a/b:1"),
            ("09", "a/b:1"),
            ("+9", "a/b:1"),
            ("65536", "a/b:1"),
            ("x", "a/b:1"),
            ("9", ""),
            ("9", "a/b"),
            ("9", "b:1"),
            ("9", "a/b/c:1"),
            ("9", "a/b:0"),
            ("9", "a/b:"),
            ("9", "a/b:1:PROXY:PROXY:PROXY"),
            ("9", "a/b:1:PROXXY"),
            ("9", "a/b:1; listen 22"),
            ("9", "a/B:1"),
        ] {
            let error = parsed(Protocol::Tcp, key, value).unwrap_err();
            assert!(
                error.contains("form") || error.contains("write") || error.contains("choose"),
                "{error}"
            );
        }
        assert!(parsed(Protocol::Udp, "9", "a/b:1:PROXY").unwrap_err().contains("UDP"));
    }
}
