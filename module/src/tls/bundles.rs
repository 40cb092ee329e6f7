//! Bundles as a worker uses them: read once, however many hosts and policies name them and with whichever others, also
//! where reading fails.
//!
//! Reading a bundle takes a millisecond or two; `oxigress_pki` decodes its parts when handshakes ask for them.

use crate::worker::Worker;
use nginx::ssl::authorities::Authorities;
use oxigress_core::cache::Cache;
use oxigress_core::model::BundleId;
use oxigress_core::record::Kind;
use oxigress_pki::{Certificates, Revocations};
use oxigress_store::Guard;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

/// What one worker keeps of bundles of usual sizes: some 1,500 certificates.
const MAX_BYTES: usize = 24 * 1024 * 1024;
/// What it keeps of large ones, which push each other out, but nobody else's.
const MAX_LARGE_BYTES: usize = 16 * 1024 * 1024;
/// From here on a bundle is large: that of all public authorities is, with some 250,000 bytes of PEM.
const LARGE_BYTES: usize = 2 * 1024 * 1024;
/// What a bundle takes that cannot be used: that is remembered.
const UNUSABLE_BYTES: usize = 256;

/// The bundles of a worker.
pub type Parsed = RefCell<Bundles>;

/// The bundles that a worker has read.
pub struct Bundles {
    /// By the ids of both; `None` within: they cannot be used, and never will, since an id is the digest of a text.
    usual: Cache<Option<Rc<Authorities>>>,
    large: Cache<Option<Rc<Authorities>>>,
    /// Those that anything uses, a connection too: what was pushed out is not read twice while it is still there.
    certificates: Parts<Certificates>,
    revocations: Parts<Revocations>,
}

impl Default for Bundles {
    fn default() -> Self {
        Bundles {
            usual: Cache::new(MAX_BYTES),
            large: Cache::new(MAX_LARGE_BYTES),
            certificates: Parts(HashMap::new()),
            revocations: Parts(HashMap::new()),
        }
    }
}

/// Bundles by themselves.
struct Parts<T>(HashMap<BundleId, Weak<T>>);

impl<T> Parts<T> {
    fn get(&mut self, id: &BundleId, read: impl FnOnce() -> Option<T>) -> Option<Rc<T>> {
        if let Some(known) = self.0.get(id).and_then(Weak::upgrade) {
            return Some(known);
        }
        let new = Rc::new(read()?);
        self.0.retain(|_, known| known.strong_count() > 0);
        self.0.insert(id.clone(), Rc::downgrade(&new));
        Some(new)
    }
}

/// The authorities of a bundle with the revocations of another one; `None`: one of the two is not there or cannot be used.
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
        Some(id) => Some((id, value(id)?)),
        None => None,
    };
    let mut bundles = worker.part::<Parsed>().try_borrow_mut().ok()?;
    let Bundles { usual, large, certificates, revocations } = &mut *bundles;
    let key = [authorities.as_str(), revoked.map_or("", BundleId::as_str)].concat();
    for cache in [&mut *usual, &mut *large] {
        if let Some(known) = cache.find(key.as_bytes(), 0) {
            return known.clone();
        }
    }
    let mut made = || {
        let all = certificates.get(authorities, || Certificates::new(pem).ok())?;
        let lists = match lists {
            Some((id, pem)) => Some(revocations.get(id, || Revocations::new(pem).ok())?),
            None => None,
        };
        let bytes = all.weight() + lists.as_ref().map_or(0, |lists| lists.weight());
        Some((Rc::new(Authorities::new(all, lists).ok()?), bytes))
    };
    let (made, bytes) = made().map_or((None, UNUSABLE_BYTES), |(made, bytes)| (Some(made), bytes));
    nginx::ssl::clear_errors();
    let cache = if bytes > LARGE_BYTES { large } else { usual };
    cache.insert(key.as_bytes().into(), 0, made.clone(), bytes);
    made
}
