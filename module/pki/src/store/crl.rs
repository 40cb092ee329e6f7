//! Revocation lists whose entries are not decoded.
//!
//! OpenSSL decodes the list without its entries, which is short whatever was revoked. An `X509_CRL_METHOD` then looks
//! serial numbers up in the bytes, and verifies the signature over all of them.
//!
//! A client may send any number of forged issuers, one after the other. So the bytes are hashed once, and what was hashed is
//! compared with each key's signature. Keys that have verified one are remembered for speed alone: another key may verify the
//! same signature too, since one can be made for any signature, so no key is refused because of another one.

use super::{contain, ffi};
use crate::der::{self, List};
use crate::entries::Entries;
use foreign_types::{ForeignType, ForeignTypeRef};
use libc::c_int;
use openssl::hash::{DigestBytes, MessageDigest, hash};
use openssl::md::Md;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKeyRef, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::x509::X509Crl;
use openssl_sys as sys;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::OnceLock;

/// `V_ASN1_SEQUENCE`
const SEQUENCE: c_int = 16;
/// SHA-256 without instructions of its own for it.
const BYTES_PER_MICROSECOND: usize = 400;
/// `ENUMERATED` with its length and `removeFromCRL` (RFC 5280 §5.3.1), as the end of an entry.
const REMOVED: [u8; 3] = [0x0a, 0x01, 0x08];

/// What a list keeps beside its head.
struct Whole {
    /// Those of the bundle.
    bytes: Rc<[u8]>,
    /// What is signed.
    signed: Range<usize>,
    signature: Range<usize>,
    entries: Rc<Entries>,
    /// The kinds of digest and key that the list says it is signed with; `None`: others than can be hashed before.
    kinds: Option<(MessageDigest, Id)>,
    /// What is signed, hashed when the signature is asked for.
    digest: OnceCell<Option<DigestBytes>>,
    /// How many bytes were hashed, and how many keys tried.
    hashed: Cell<usize>,
    tried: Cell<usize>,
    /// The entry that was looked up last: OpenSSL reads it until it asks for another one.
    found: Cell<Option<Found>>,
    /// Stands for an entry that cannot be decoded: the certificate is revoked all the same.
    unknown: Found,
    /// The key that has signed the list, as DER, once it was verified: the bytes are not hashed again for it.
    signer: RefCell<Vec<u8>>,
}

struct Found(NonNull<sys::X509_REVOKED>);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: made by `d2i_X509_REVOKED`, freed once.
        unsafe { ffi::X509_REVOKED_free(self.0.as_ptr()) };
    }
}

/// OpenSSL's form of a method, which has no state and is never freed.
struct Method(NonNull<ffi::Method>);

// SAFETY: nothing writes to it after it was made.
unsafe impl Send for Method {}
// SAFETY: OpenSSL reads it only, from any thread.
unsafe impl Sync for Method {}

fn method() -> Option<&'static Method> {
    static METHOD: OnceLock<Option<Method>> = OnceLock::new();
    let new = || {
        // SAFETY: makes a method of functions of this program.
        let method =
            unsafe { ffi::X509_CRL_METHOD_new(None, Some(free), Some(look_up), Some(verify)) };
        NonNull::new(method).map(Method)
    };
    METHOD.get_or_init(new).as_ref()
}

/// The list that stands there among the bytes, without its entries; `None`: it cannot be read.
pub fn head(bytes: &Rc<[u8]>, place: Range<usize>, entries: Rc<Entries>) -> Option<X509Crl> {
    let begin = place.start;
    let List { signed, signature, head, .. } = der::list(bytes.get(place)?)?;
    let within = |range: Range<usize>| begin + range.start..begin + range.end;
    let (signed, signature) = (within(signed), within(signature));
    let method = method()?;
    // SAFETY: the method lives as long as the program, and OpenSSL's own follows it. Lists that another thread decodes
    // meanwhile have no `Whole`, and are treated as unusable by the callbacks.
    let list = unsafe {
        ffi::X509_CRL_set_default_method(method.0.as_ptr());
        let list = X509Crl::from_der(&head);
        ffi::X509_CRL_set_default_method(null_mut());
        list
    };
    let list = list.ok()?;
    // SAFETY: makes an empty entry, of no reason, which `Found` frees; the list is alive; `free` takes what it is given.
    unsafe {
        let unknown = Found(NonNull::new(sys::X509_REVOKED_new())?);
        let kinds = kinds(Nid::from_raw(ffi::X509_CRL_get_signature_nid(list.as_ptr())));
        let whole = Whole {
            bytes: bytes.clone(),
            signed,
            signature,
            entries,
            kinds,
            digest: OnceCell::new(),
            hashed: Cell::new(0),
            tried: Cell::new(0),
            found: Cell::new(None),
            unknown,
            signer: RefCell::default(),
        };
        ffi::X509_CRL_set_meth_data(list.as_ptr(), Box::into_raw(Box::new(whole)).cast());
    }
    Some(list)
}

/// The digest and the key of a kind of signature that is one of a digest.
fn kinds(signature: Nid) -> Option<(MessageDigest, Id)> {
    let parts = signature.signature_algorithms()?;
    let key = match parts.pkey {
        Nid::RSAENCRYPTION => Id::RSA,
        Nid::X9_62_ID_ECPUBLICKEY => Id::EC,
        _ => return None,
    };
    Some((MessageDigest::from_nid(parts.digest)?, key))
}

/// What it takes to verify the list's signature beside the key, about: nothing where it was hashed.
pub fn microseconds(list: &X509Crl) -> u32 {
    let unhashed = kept(list).filter(|whole| whole.digest.get().is_none());
    match unhashed {
        None => 0,
        Some(whole) => {
            u32::try_from(whole.signed.len() / BYTES_PER_MICROSECOND).unwrap_or(u32::MAX)
        }
    }
}

/// How many bytes of a list were hashed so far, and how many keys tried.
#[cfg(test)]
pub fn work(list: &X509Crl) -> (usize, usize) {
    kept(list).map_or((0, 0), |whole| (whole.hashed.get(), whole.tried.get()))
}

/// What a list keeps beside its head.
fn kept(list: &X509Crl) -> Option<&Whole> {
    // SAFETY: a list that `head` made, which lives as long as the answer.
    unsafe { whole(list.as_ptr()) }
}

impl Whole {
    fn signed(&self) -> Option<&[u8]> {
        let signed = self.bytes.get(self.signed.clone())?;
        self.hashed.set(self.hashed.get() + signed.len());
        Some(signed)
    }

    /// Whether the signature is a key's; `None` where the list says that it is not one of a digest.
    fn is_signed_by(&self, key: &PKeyRef<Public>) -> Option<bool> {
        let (kind, of) = self.kinds?;
        if key.id() != of {
            return Some(false);
        }
        let new = || hash(kind, self.signed()?).ok();
        let verified = || {
            let digest = self.digest.get_or_init(new).as_ref()?;
            let mut context = PkeyCtx::new(key).ok()?;
            context.verify_init().ok()?;
            if of == Id::RSA {
                context.set_rsa_padding(Padding::PKCS1).ok()?;
            }
            context.set_signature_md(Md::from_nid(kind.type_())?).ok()?;
            context.verify(digest, self.bytes.get(self.signature.clone())?).ok()
        };
        Some(verified().unwrap_or(false))
    }
}

/// Another count of a list.
pub fn counted(list: &X509Crl) -> X509Crl {
    // SAFETY: the list is alive; the count goes with the new value.
    unsafe {
        sys::X509_CRL_up_ref(list.as_ptr());
        X509Crl::from_ptr(list.as_ptr())
    }
}

/// # Safety
/// OpenSSL calls a callback of the method; the answer is used during the callback.
unsafe fn whole<'c>(list: *mut sys::X509_CRL) -> Option<&'c Whole> {
    // SAFETY: the list lives during the callback, and its data with it.
    unsafe { ffi::X509_CRL_get_meth_data(list).cast::<Whole>().as_ref() }
}

unsafe extern "C" fn free(list: *mut sys::X509_CRL) -> c_int {
    // SAFETY: put there by `head`, freed once; a list of another thread has none.
    let whole = unsafe { ffi::X509_CRL_get_meth_data(list) }.cast::<Whole>();
    if !whole.is_null() {
        // SAFETY: `head` made it of a box and gave it to this list alone, which OpenSSL frees once.
        drop(unsafe { Box::from_raw(whole) });
    }
    1
}

/// 1: the serial number is revoked, by the entry in `found`, or whether it is cannot be told; 0: it is not.
unsafe extern "C" fn look_up(
    list: *mut sys::X509_CRL,
    found: *mut *mut sys::X509_REVOKED,
    serial: *const sys::ASN1_INTEGER,
    _issuer: *const sys::X509_NAME,
) -> c_int {
    // SAFETY: OpenSSL gives a list of ours and a number, which live during the callback.
    let (whole, serial) = unsafe { (whole(list), encoded(serial)) };
    // Of a list without data nobody verifies the signature.
    let Some(whole) = whole else { return 0 };
    let answer = |entry: &Found| {
        if !found.is_null() {
            // SAFETY: OpenSSL's place for the answer.
            unsafe { *found = entry.0.as_ptr() };
        }
    };
    answer(&whole.unknown);
    let body = || {
        let serial = serial?;
        // No two issuers share a list here, so the number alone tells the certificate.
        let entry = whole.entries.find(&whole.bytes, &serial);
        let Some(entry) = entry.map(|entry| entry.whole).filter(|it| !it.ends_with(&REMOVED))
        else {
            return Some(0);
        };
        let mut data = entry.as_ptr();
        // SAFETY: the entry's bytes.
        let entry = unsafe {
            ffi::d2i_X509_REVOKED(null_mut(), &raw mut data, entry.len() as libc::c_long)
        };
        let entry = Found(NonNull::new(entry)?);
        answer(&entry);
        whole.found.set(Some(entry));
        Some(1)
    };
    contain(1, body, 1)
}

/// # Safety
/// The number is alive.
unsafe fn encoded(number: *const sys::ASN1_INTEGER) -> Option<Vec<u8>> {
    // SAFETY: the caller promises a live number; without a place OpenSSL answers the length.
    let length = unsafe { ffi::i2d_ASN1_INTEGER(number, null_mut()) };
    let mut der = vec![0; usize::try_from(length).ok()?];
    let mut to = der.as_mut_ptr();
    // SAFETY: there is room for that many bytes.
    let written = unsafe { ffi::i2d_ASN1_INTEGER(number, &raw mut to) };
    (written == length).then_some(der)
}

/// 1: the signature is the key's.
unsafe extern "C" fn verify(list: *mut sys::X509_CRL, key: *mut sys::EVP_PKEY) -> c_int {
    let body = || {
        // SAFETY: OpenSSL gives a list of ours and a key, which live during the callback; the key keeps its count.
        let (whole, public) = unsafe { (whole(list)?, PKeyRef::<Public>::from_ptr(key)) };
        let spki = public.public_key_to_der().ok()?;
        if *whole.signer.borrow() == spki {
            return Some(1);
        }
        whole.tried.set(whole.tried.get() + 1);
        if let Some(is_signed) = whole.is_signed_by(public) {
            if is_signed {
                whole.signer.replace(spki);
            }
            return Some(c_int::from(is_signed));
        }
        let signed = whole.signed()?;
        let length = c_int::try_from(signed.len()).ok()?;
        let (mut signature, mut algorithm) = (std::ptr::null(), std::ptr::null());
        // SAFETY: OpenSSL gives a live list to this callback, which owns what the pointers lead to. `any` holds the bytes that
        // are signed and writes them as they are; it frees the string.
        unsafe {
            ffi::X509_CRL_get0_signature(list, &raw mut signature, &raw mut algorithm);
            let any = NonNull::new(ffi::ASN1_TYPE_new())?.as_ptr();
            let string = sys::ASN1_STRING_type_new(SEQUENCE);
            let is_set = !string.is_null()
                && sys::ASN1_STRING_set(string, signed.as_ptr().cast(), length) == 1;
            ffi::ASN1_TYPE_set(any, SEQUENCE, string.cast());
            let verified = match is_set {
                true => {
                    ffi::ASN1_item_verify(ffi::ASN1_ANY_it(), algorithm, signature, any.cast(), key)
                }
                false => -1,
            };
            ffi::ASN1_TYPE_free(any);
            if verified == 1 {
                whole.signer.replace(spki);
            }
            Some(verified)
        }
    };
    contain(-1, body, 0)
}
