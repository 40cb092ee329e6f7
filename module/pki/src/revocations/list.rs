//! A revocation list whose entries are not decoded.
//!
//! A client may send any number of forged issuers, one after the other. So the bytes are hashed once, and what was hashed is
//! compared with each key's signature. Keys that have verified one are remembered for speed alone: another key may verify the
//! same signature too, since one can be made for any signature, so no key is refused because of another one.

use crate::der;
use crate::entries::Entries;
use openssl::hash::{DigestBytes, MessageDigest, hash};
use openssl::md::Md;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKeyRef, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// SHA-256 without instructions of its own for it.
const BYTES_PER_MICROSECOND: usize = 400;
/// `ENUMERATED` with its length and `removeFromCRL` (RFC 5280 §5.3.1), as the end of an entry.
const REMOVED: [u8; 3] = [0x0a, 0x01, 0x08];

/// What a list has beside its head.
pub struct List {
    /// Those of the bundle.
    bytes: Rc<[u8]>,
    /// What is signed.
    signed: Range<usize>,
    signature: Range<usize>,
    entries: Rc<Entries>,
    /// What is signed, hashed when the signature is asked for.
    digest: OnceCell<Option<DigestBytes>>,
    /// How many bytes were hashed, and how many keys tried.
    hashed: Cell<usize>,
    tried: Cell<usize>,
    /// The key that has signed the list, as DER, once it was verified: the bytes are not hashed again for it.
    signer: RefCell<Vec<u8>>,
}

impl List {
    /// The list that stands there among the bytes, and its head: the list without its entries, which is short whatever was
    /// revoked. `None`: it cannot be read.
    pub(super) fn new(
        bytes: &Rc<[u8]>,
        place: Range<usize>,
        entries: Rc<Entries>,
    ) -> Option<(Vec<u8>, Self)> {
        let begin = place.start;
        let der::List { signed, signature, head, .. } = der::list(bytes.get(place)?)?;
        let within = |range: Range<usize>| begin + range.start..begin + range.end;
        let list = List {
            bytes: bytes.clone(),
            signed: within(signed),
            signature: within(signature),
            entries,
            digest: OnceCell::new(),
            hashed: Cell::new(0),
            tried: Cell::new(0),
            signer: RefCell::default(),
        };
        Some((head, list))
    }

    /// What it takes to verify the signature beside the key, about: nothing where the bytes were hashed.
    pub(super) fn microseconds(&self) -> u32 {
        match self.digest.get() {
            Some(_) => 0,
            None => u32::try_from(self.signed.len() / BYTES_PER_MICROSECOND).unwrap_or(u32::MAX),
        }
    }

    /// How many bytes were hashed so far, and how many keys tried.
    pub(super) fn work(&self) -> (usize, usize) {
        (self.hashed.get(), self.tried.get())
    }

    /// The entry that revokes a serial number, as DER as the number is; `None`: it is not revoked. No two issuers share a
    /// list here, so the number alone tells the certificate.
    pub fn find(&self, serial: &[u8]) -> Option<&[u8]> {
        let entry = self.entries.find(&self.bytes, serial)?.whole;
        Some(entry).filter(|entry| !entry.ends_with(&REMOVED))
    }

    /// Whether a key has signed the list, which says that it is signed by `algorithm`. Where that is not one of a digest,
    /// `verify` gets what is signed.
    pub fn is_signed_by(
        &self,
        key: &PKeyRef<Public>,
        algorithm: Nid,
        verify: impl FnOnce(&[u8]) -> Option<bool>,
    ) -> Option<bool> {
        let spki = key.public_key_to_der().ok()?;
        if *self.signer.borrow() == spki {
            return Some(true);
        }
        self.tried.set(self.tried.get() + 1);
        let is_signed = match kinds(algorithm) {
            Some((_, kind)) if key.id() != kind => false,
            Some((digest, kind)) => self.has_signed(key, digest, kind).unwrap_or(false),
            None => verify(self.signed()?)?,
        };
        if is_signed {
            self.signer.replace(spki);
        }
        Some(is_signed)
    }

    fn signed(&self) -> Option<&[u8]> {
        let signed = self.bytes.get(self.signed.clone())?;
        self.hashed.set(self.hashed.get() + signed.len());
        Some(signed)
    }

    /// Whether the signature of the digest is a key's.
    fn has_signed(&self, key: &PKeyRef<Public>, digest: MessageDigest, kind: Id) -> Option<bool> {
        let new = || hash(digest, self.signed()?).ok();
        let hashed = self.digest.get_or_init(new).as_ref()?;
        let mut context = PkeyCtx::new(key).ok()?;
        context.verify_init().ok()?;
        if kind == Id::RSA {
            context.set_rsa_padding(Padding::PKCS1).ok()?;
        }
        context.set_signature_md(Md::from_nid(digest.type_())?).ok()?;
        context.verify(hashed, self.bytes.get(self.signature.clone())?).ok()
    }
}

/// The digest and the key of a kind of signature that is one of a digest; `None`: it is of another kind.
fn kinds(signature: Nid) -> Option<(MessageDigest, Id)> {
    let parts = signature.signature_algorithms()?;
    let key = match parts.pkey {
        Nid::RSAENCRYPTION => Id::RSA,
        Nid::X9_62_ID_ECPUBLICKEY => Id::EC,
        _ => return None,
    };
    Some((MessageDigest::from_nid(parts.digest)?, key))
}
