//! The file with the operator's key of TLS session tickets. Nginxes with the same key resume each other's sessions.
//!
//! Shape:   the name has a digest of the key: another key is another nginx.conf, also for a role that was down when the
//!          key changed, and the file that a running nginx.conf names is never written over.

use crate::runtime::Runtime;
use oxigress_settings::StaticConfig;
use oxigress_settings::form::ticket_key_bytes;
use std::fs;
use std::path::PathBuf;

const KEY: &str = "ssl-session-ticket-key";
const PREFIX: &str = "tickets-";

/// The file of the key and its bytes, if there is a key.
pub fn file(runtime: &Runtime, keys: &StaticConfig) -> Option<(PathBuf, Vec<u8>)> {
    let bytes = ticket_key_bytes(&keys.text(KEY))?;
    let digest = openssl::sha::sha256(&bytes);
    let digest: String = digest.iter().take(8).map(|b| format!("{b:02x}")).collect();
    Some((runtime.file(&format!("{PREFIX}{digest}.key")), bytes))
}

/// The directive; empty without a key: nginx makes one of its own then.
pub fn line(runtime: &Runtime, keys: &StaticConfig) -> String {
    let path = file(runtime, keys).map(|(path, _)| path.display().to_string());
    path.map(|path| format!("ssl_session_ticket_key {path};")).unwrap_or_default()
}

/// Removes the files of former keys: nginx reads them only while it reads nginx.conf.
pub fn remove_others(runtime: &Runtime, keys: &StaticConfig) {
    let current = file(runtime, keys).map(|(path, _)| path);
    for entry in fs::read_dir(runtime.folder()).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_ours && Some(entry.path()) != current {
            let _ = fs::remove_file(entry.path());
        }
    }
}
