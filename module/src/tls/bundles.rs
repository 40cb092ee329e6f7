//! Bundles as a worker uses them: parsed once, however many hosts and policies name them and with whichever others, also
//! where parsing fails.

use crate::tls::handshake::Authorities;
use crate::tls::handshake::Certificates;
use crate::tls::handshake::Revocations;
use crate::worker::Worker;
use oxigress_core::cache::Cache;
use oxigress_core::model::BundleId;
use oxigress_core::record::Kind;
use oxigress_store::Guard;
use std::rc::Rc;

/// What one worker keeps parsed: some 1,500 authorities.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;
/// What a bundle takes that cannot be used: that is remembered.
const UNUSABLE_BYTES: usize = 256;

/// What is made of bundles; `None` within: they cannot be used, and never will, since an id is the digest of a text.
pub enum Made {
    Certificates(Option<Rc<Certificates>>),
    Revocations(Option<Rc<Revocations>>),
    /// Of both together.
    Authorities(Option<Rc<Authorities>>),
}

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
    let mut cache = worker.bundles().try_borrow_mut().ok()?;
    let cache = &mut *cache;
    let key = ["both ", authorities.as_str(), revoked.map_or("", BundleId::as_str)].concat();
    if let Some(Made::Authorities(known)) = cache.find(key.as_bytes(), 0) {
        return known.clone();
    }
    let bytes = |ids: &mut dyn Iterator<Item = &BundleId>| parsed_bytes(guard, ids);
    let certificates = part(cache, "authorities ", authorities, || {
        let made = Certificates::new(pem).ok().map(Rc::new);
        (Made::Certificates(made), bytes(&mut [authorities].into_iter()))
    });
    let Made::Certificates(certificates) = certificates? else { return None };
    let certificates = certificates.clone();
    let lists = match revoked.zip(lists) {
        Some((id, lists)) => {
            let made = part(cache, "revocations ", id, || {
                let made = Revocations::new(lists).ok().map(Rc::new);
                (Made::Revocations(made), bytes(&mut [id].into_iter()))
            });
            let Made::Revocations(made) = made? else { return None };
            Some(made.clone()?)
        }
        None => None,
    };
    let made = certificates.and_then(|all| Authorities::new(all, lists.as_deref()).ok());
    let made = made.map(Rc::new);
    let bytes = match &made {
        Some(_) => bytes(&mut [authorities].into_iter().chain(revoked)),
        None => UNUSABLE_BYTES,
    };
    cache.get(key.as_bytes(), 0, || Some((Made::Authorities(made.clone()), bytes)));
    made
}

/// A bundle by itself. What an id stands for never changes, whichever generation wrote it.
fn part<'c>(
    cache: &'c mut Cache<Made>,
    kind: &str,
    id: &BundleId,
    make: impl FnOnce() -> (Made, usize),
) -> Option<&'c Made> {
    cache.get([kind, id.as_str()].concat().as_bytes(), 0, || {
        let (made, bytes) = make();
        let is_usable = !matches!(
            made,
            Made::Certificates(None) | Made::Revocations(None) | Made::Authorities(None)
        );
        Some((made, if is_usable { bytes } else { UNUSABLE_BYTES }))
    })
}
