//! Bundles as a worker uses them: parsed once, however many hosts and policies name them.

use crate::ffi::{Authorities, Worker};
use oxigress_core::model::BundleId;
use oxigress_core::record::Kind;
use oxigress_store::Guard;
use std::rc::Rc;

/// What one worker keeps parsed: some 1,500 authorities.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;

/// What bundles take when they are parsed. Whoever keeps them counts it as well: they stay as long as anybody does.
pub fn parsed_bytes<'b>(guard: &Guard<'_>, bundles: impl Iterator<Item = &'b BundleId>) -> usize {
    let bytes = |id: &BundleId| {
        guard
            .get(Kind::Bundle as u8, id.as_str().as_bytes())
            .map_or(0, |record| record.value().len())
    };
    // OpenSSL's structs take some ten times the DER.
    8 * bundles.map(bytes).sum::<usize>()
}

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
        Some((Rc::new(made), parsed_bytes(guard, [authorities].into_iter().chain(revoked))))
    });
    made.cloned()
}
