//! Bundles as a worker uses them: parsed once, however many hosts and policies name them.

use crate::ffi::{Authorities, Worker};
use oxigress_core::model::BundleId;
use oxigress_core::record::Kind;
use oxigress_store::Guard;
use std::rc::Rc;

/// What one worker keeps parsed: some 1,500 authorities.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The authorities of a bundle with the revocations of another one; `None`: one of both is not there or cannot be used.
pub fn find(
    worker: &Worker,
    guard: &Guard<'_>,
    authorities: &BundleId,
    revoked: Option<&BundleId>,
) -> Option<Rc<Authorities>> {
    let value = |id: &BundleId| {
        let record = guard.get(Kind::Bundle as u8, id.as_str().as_bytes());
        record.map(|record| record.value())
    };
    let pem = value(authorities)?;
    let lists = match revoked {
        Some(id) => Some(value(id)?),
        None => None,
    };
    let key = [authorities.as_str(), revoked.map_or("", BundleId::as_str)].concat();
    let mut cache = worker.authorities().try_borrow_mut().ok()?;
    // What an id stands for never changes, whichever generation wrote it.
    let made = cache.get(key.as_bytes(), 0, || {
        let made = Authorities::new(pem, lists).ok()?;
        // OpenSSL's structs take some ten times the DER.
        let bytes = 8 * (pem.len() + lists.map_or(0, <[u8]>::len));
        Some((Rc::new(made), bytes))
    });
    made.cloned()
}
