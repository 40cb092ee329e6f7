//! OpenSSL's form of a revocation list whose entries are not decoded.
//!
//! OpenSSL decodes the list without its entries, which is short whatever was revoked. An `X509_CRL_METHOD` then has serial
//! numbers looked up in the bytes, and the signature verified over all of them, by a [`List`].

use super::{contain, ffi};
use foreign_types::{ForeignType, ForeignTypeRef};
use libc::c_int;
use openssl::nid::Nid;
use openssl::pkey::{PKeyRef, Public};
use openssl::x509::X509Crl;
use openssl_sys as sys;
use oxigress_pki::List;
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// `V_ASN1_SEQUENCE`
const SEQUENCE: c_int = 16;

/// What OpenSSL's form of a list keeps.
struct Whole {
    list: Rc<List>,
    /// The entry that was looked up last: OpenSSL reads it until it asks for another one.
    found: Cell<Option<Found>>,
    /// Stands for an entry that cannot be decoded: the certificate is revoked all the same.
    unknown: Found,
}

struct Found(NonNull<sys::X509_REVOKED>);

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: made by `d2i_X509_REVOKED` or `X509_REVOKED_new`, freed once.
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

/// While it is kept, no other thread changes the method that OpenSSL gives to the lists it decodes: there is one for the
/// whole program. A worker decodes for handshakes on one thread, tests on several. What checks a write decodes lists
/// without it on another thread, and neither verifies their signatures nor looks up numbers.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// OpenSSL's form of a list with this head; `None`: the head cannot be read.
pub fn decode(head: &[u8], list: Rc<List>) -> Option<X509Crl> {
    let method = method()?;
    // SAFETY: the method lives as long as the program, and OpenSSL's own follows it. Lists that another thread decodes
    // meanwhile without `alone` have no `Whole`, and are treated as unusable by the callbacks.
    let decoded = unsafe {
        let _alone = alone();
        ffi::X509_CRL_set_default_method(method.0.as_ptr());
        let decoded = X509Crl::from_der(head);
        ffi::X509_CRL_set_default_method(null_mut());
        decoded
    };
    let decoded = decoded.ok()?;
    // SAFETY: makes an empty entry, of no reason, which `Found` frees.
    let unknown = Found(NonNull::new(unsafe { sys::X509_REVOKED_new() })?);
    let whole = Box::new(Whole { list, found: Cell::new(None), unknown });
    // SAFETY: the list is alive; `free` takes what it is given.
    unsafe { ffi::X509_CRL_set_meth_data(decoded.as_ptr(), Box::into_raw(whole).cast()) };
    Some(decoded)
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
    // SAFETY: OpenSSL frees the list, whose data is what `decode` put there, or null for a list of another thread.
    let whole = unsafe { ffi::X509_CRL_get_meth_data(list) }.cast::<Whole>();
    if !whole.is_null() {
        // SAFETY: `decode` made it of a box and gave it to this list alone, which OpenSSL frees once.
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
        let Some(entry) = whole.list.find(&serial) else { return Some(0) };
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
        let (whole, public, algorithm) = unsafe {
            let algorithm = Nid::from_raw(ffi::X509_CRL_get_signature_nid(list));
            (whole(list)?, PKeyRef::<Public>::from_ptr(key), algorithm)
        };
        let undigested = |signed: &[u8]| {
            // SAFETY: both live during this callback.
            unsafe { is_signed(list, key, signed) }
        };
        let is_signed = whole.list.is_signed_by(public, algorithm, undigested)?;
        Some(c_int::from(is_signed))
    };
    contain(-1, body, 0)
}

/// Whether a key's signature over these bytes stands in a list; `None`: there is no memory for it.
///
/// # Safety
/// The list and the key are alive.
unsafe fn is_signed(
    list: *mut sys::X509_CRL,
    key: *mut sys::EVP_PKEY,
    signed: &[u8],
) -> Option<bool> {
    let length = c_int::try_from(signed.len()).ok()?;
    let (mut signature, mut algorithm) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the list is alive, as the caller promises, and owns what the pointers lead to. `any` holds the bytes that are
    // signed and writes them as they are; it frees the string.
    let verified = unsafe {
        ffi::X509_CRL_get0_signature(list, &raw mut signature, &raw mut algorithm);
        let any = NonNull::new(ffi::ASN1_TYPE_new())?.as_ptr();
        let string = sys::ASN1_STRING_type_new(SEQUENCE);
        let is_set =
            !string.is_null() && sys::ASN1_STRING_set(string, signed.as_ptr().cast(), length) == 1;
        ffi::ASN1_TYPE_set(any, SEQUENCE, string.cast());
        let verified = is_set.then(|| {
            ffi::ASN1_item_verify(ffi::ASN1_ANY_it(), algorithm, signature, any.cast(), key)
        });
        ffi::ASN1_TYPE_free(any);
        verified?
    };
    Some(verified == 1)
}
