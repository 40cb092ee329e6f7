//! The rows of the keys, a file for each group of docs/configmap.md.

pub(crate) mod access;
pub(crate) mod listening;
pub(crate) mod logging;
pub(crate) mod others;
pub(crate) mod process;
pub(crate) mod proxying;
pub(crate) mod streams;
#[cfg(test)]
mod table;
pub(crate) mod tls;
pub(crate) mod tracing;

use crate::key::Key;

/// The groups of keys, in the order of docs/configmap/. The first four are about nginx itself.
pub const GROUPS: [(&str, &[Key]); 9] = [
    ("Logging", logging::KEYS),
    ("Processes, buffers, timeouts", process::KEYS),
    ("Listening, addresses, trust", listening::KEYS),
    ("TLS", tls::KEYS),
    ("Proxying and backends", proxying::KEYS),
    ("Access control and authentication", access::KEYS),
    ("Compression, geography, firewall", others::KEYS),
    ("Tracing", tracing::KEYS),
    ("TCP, UDP and snippets", streams::KEYS),
];

/// The keys of all groups.
pub fn all() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|(_, keys)| keys.iter())
}

/// The key of a name in lower case.
pub fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}
