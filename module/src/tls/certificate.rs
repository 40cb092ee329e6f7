//! The certificate of a handshake: by server name, from the newest generation.
//!
//! Parsing a key costs more than the rest of a handshake, so each worker keeps what it has parsed.

use crate::worker::Worker;
use crate::zone::records::GuardedRecords;
use nginx::ssl::handshake::ServerName;
use nginx::ssl::pem::KeyPair;
use oxigress_core::cache::Cache;
use oxigress_core::record::{CertificateView, Kind};
use oxigress_core::router::tls;
use std::cell::RefCell;

/// What one worker keeps parsed: some 2,000 RSA certificates.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The certificates that a worker has parsed.
pub type Parsed = RefCell<Cache<KeyPair>>;

/// None so far.
pub fn parsed() -> Parsed {
    RefCell::new(Cache::new(MAX_BYTES))
}

/// Presents the certificate for the handshake's server name; the one in nginx.conf stays if there is none.
/// `false` ends the handshake.
pub fn choose(worker: &Worker, handshake: &ServerName<'_>) -> bool {
    let guard = worker.reader().read();
    let Some(id) = tls::certificate_id(&GuardedRecords(&guard), handshake.name()) else {
        return true;
    };
    let Some(record) = guard.get(Kind::Certificate as u8, id) else { return true };
    let Ok(mut cache) = worker.part::<Parsed>().try_borrow_mut() else { return false };
    let parsed = cache.get(id, record.generation(), || parse(CertificateView(record.value())));
    // One that was published can be parsed: it was checked.
    parsed.is_some_and(|parsed| handshake.present(parsed))
}

fn parse(view: CertificateView<'_>) -> Option<(KeyPair, usize)> {
    let (chain, key) = (view.chain()?, view.key()?);
    let parsed = KeyPair::new(chain, key).ok()?;
    Some((parsed, KeyPair::weight(chain, key)))
}
