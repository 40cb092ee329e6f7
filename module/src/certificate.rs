//! The certificate of a handshake: by server name, from the newest generation.
//!
//! Parsing a key costs more than the rest of a handshake, so each worker keeps what it has parsed, up to
//! [`MAX_BYTES`], under the record's id and the generation that wrote it: a replaced certificate is another
//! entry, and the old one goes.

use crate::ffi::{Parsed, ServerName, Worker};
use crate::records::Held;
use oxigress_core::record::{CertificateView, Kind};
use oxigress_core::tls;
use std::collections::HashMap;

/// What one worker keeps parsed: some 2,000 RSA certificates.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Parsed certificates of one worker.
#[derive(Default)]
pub struct Cache {
    entries: HashMap<Vec<u8>, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    /// Of the record.
    generation: u64,
    parsed: Parsed,
    bytes: usize,
    last_use: u64,
}

/// Presents the certificate for the handshake's server name; the one in nginx.conf stays if there is none.
/// `false` ends the handshake.
pub fn choose(worker: &Worker, handshake: &ServerName<'_>) -> bool {
    let guard = worker.reader().read();
    let Some(id) = tls::certificate_id(&Held(&guard), handshake.name()) else { return true };
    let Some(record) = guard.get(Kind::Certificate as u8, id) else { return true };
    let Ok(mut cache) = worker.certificates().try_borrow_mut() else { return false };
    let parsed = cache.get(id, record.generation(), CertificateView(record.value()));
    // One that was published can be parsed: it was checked.
    parsed.is_some_and(|parsed| handshake.present(parsed))
}

impl Cache {
    fn get(&mut self, id: &[u8], generation: u64, view: CertificateView<'_>) -> Option<&Parsed> {
        self.uses += 1;
        if self.entries.get(id).is_none_or(|entry| entry.generation != generation) {
            let (chain, key) = (view.chain()?, view.key()?);
            // It was checked before it was published.
            let parsed = Parsed::new(chain, key).ok()?;
            self.put(
                id,
                Entry { generation, parsed, bytes: Parsed::weight(chain, key), last_use: 0 },
            );
        }
        let entry = self.entries.get_mut(id)?;
        entry.last_use = self.uses;
        Some(&entry.parsed)
    }

    fn put(&mut self, id: &[u8], entry: Entry) {
        self.bytes += entry.bytes;
        if let Some(old) = self.entries.insert(id.to_vec(), entry) {
            self.bytes -= old.bytes;
        }
        while self.bytes > MAX_BYTES && self.entries.len() > 1 {
            let others = self.entries.iter().filter(|(other, _)| other.as_slice() != id);
            let Some(oldest) = others.min_by_key(|(_, e)| e.last_use).map(|(id, _)| id.clone())
            else {
                return;
            };
            if let Some(old) = self.entries.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
    }
}
