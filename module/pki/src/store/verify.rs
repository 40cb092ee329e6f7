//! Verifications whose work is bounded, whatever a peer sends.
//!
//! OpenSSL compares each name of a certificate with each name constraint above it, and verifies signatures with keys of any
//! size: 64 KB of certificates, of nobody who is known, take it half a second. So a peer sends few certificates, with
//! keys whose signatures are verified quickly, and names and constraints that are few together.

use super::{bundles, contain, ffi};
use foreign_types::ForeignTypeRef;
use libc::c_int;
use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::stack::StackRef;
use openssl::x509::{X509, X509Ref, X509StoreContextRef, X509VerifyResult};
use openssl_sys as sys;
use std::ptr::NonNull;

/// The most bytes of certificates that a client may send: `SSL_CTRL_SET_MAX_CERT_LIST`. Usual chains have 1,000 to 6,000.
pub const MAX_SENT_BYTES: i64 = 16 * 1024;
/// The most certificates besides the peer's own that are looked at.
const MAX_SENT: usize = 9;
/// The longest RSA modulus, in bits, and its exponent: a signature takes half a millisecond.
const MAX_RSA_BITS: (u32, i32) = (8_192, 33);
/// The longest curve, in bits, but for P-521, which OpenSSL has fast code for: a signature takes half a millisecond.
const MAX_CURVE_BITS: u32 = 384;
/// Bytes of names times bytes of constraints: a comparison takes 45 nanoseconds, and 40 such units.
const MAX_COMPARISONS: u64 = 2_000_000;
const REFUSED: X509VerifyResult = X509VerifyResult::APPLICATION_VERIFICATION;
/// The errors that say no more than that nobody vouches for a certificate: `X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT`,
/// `..._DEPTH_ZERO_SELF_SIGNED_CERT`, `..._SELF_SIGNED_CERT_IN_CHAIN`, `..._UNABLE_TO_GET_ISSUER_CERT_LOCALLY`,
/// `..._UNABLE_TO_VERIFY_LEAF_SIGNATURE`. Another error behind them counts for more.
const UNVOUCHED: [c_int; 5] = [2, 18, 19, 20, 21];

/// Verifies in place of OpenSSL (`SSL_CTX_set_cert_verify_callback`), a verification that begins: `true`, and the result is in
/// the context, as with a callback that goes on after errors. Other stores than [`super::Authorities`] are verified as ever.
pub fn verify(context: &mut X509StoreContextRef) -> bool {
    let body = || {
        let Some(bundles) = bundles(context) else {
            return Some(context.verify_cert().unwrap_or(false));
        };
        bundles.budget.reset();
        let own = sent(context);
        // Its key is used once more, for the signature of the handshake (RFC 8446 §4.4.3): the handshake ends here.
        let Some((_, all)) = own.filter(|(own, _)| is_quick(own)) else {
            context.set_error(REFUSED);
            return Some(false);
        };
        // All that are not the peer's own may be issuers in its chain.
        let is_paid = |(place, one)| match place {
            0 => microseconds(one).is_some_and(|cost| bundles.budget.spend(cost)),
            _ => bundles.pays_for(one),
        };
        if !all.is_some_and(|all| all.enumerate().all(is_paid)) {
            context.set_error(REFUSED);
            return Some(true);
        }
        // SAFETY: the verification is alive, and `after` is a callback for one.
        unsafe { ffi::X509_STORE_CTX_set_verify_cb(context.as_ptr(), Some(after)) };
        let is_done = context.verify_cert().unwrap_or(false);
        if !is_done && context.error() == X509VerifyResult::OK {
            context.set_error(REFUSED);
        }
        Some(true)
    };
    contain(false, body, false)
}

/// Whether signatures of a certificate's key are verified in less than a millisecond.
pub fn is_quick(certificate: &X509Ref) -> bool {
    microseconds(certificate).is_some()
}

/// What it takes to verify a signature with a certificate's key, about; `None`: more than a millisecond, or that is not known.
pub fn microseconds(certificate: &X509Ref) -> Option<u32> {
    let key = certificate.public_key().ok()?;
    match key.id() {
        Id::RSA | Id::RSA_PSS => {
            let (bits, exponent) = (key.bits(), key.rsa().map_or(0, |rsa| rsa.e().num_bits()));
            let is_quick = bits <= MAX_RSA_BITS.0 && exponent <= MAX_RSA_BITS.1;
            // As often as the exponent is long, and by the square of the modulus: 20 for 2,048 bits and the usual 65,537.
            let squares = bits.div_ceil(2_048).pow(2) * u32::try_from(exponent).ok()?.max(1);
            is_quick.then_some(squares * 20 / 17)
        }
        Id::EC => match key.ec_key().ok()?.group().curve_name()? {
            Nid::X9_62_PRIME256V1 => Some(60),
            Nid::SECP521R1 => Some(400),
            Nid::SECP384R1 => Some(500),
            _ => (key.bits() <= MAX_CURVE_BITS).then_some(600),
        },
        Id::ED25519 => Some(80),
        Id::ED448 => Some(200),
        _ => None,
    }
}

/// The peer's own certificate, and that with all that it has sent; `None` there: too much.
fn sent(
    context: &X509StoreContextRef,
) -> Option<(&X509Ref, Option<impl Iterator<Item = &X509Ref>>)> {
    let context = context.as_ptr();
    // SAFETY: the context has its certificates for as long as it is borrowed; both may be null.
    let (own, others): (Option<&X509Ref>, Option<&StackRef<X509>>) = unsafe {
        let own = NonNull::new(ffi::X509_STORE_CTX_get0_cert(context));
        let others = NonNull::new(ffi::X509_STORE_CTX_get0_untrusted(context));
        let own = own.map(|own| X509Ref::from_ptr(own.as_ptr()));
        (own, others.map(|others| StackRef::from_ptr(others.as_ptr())))
    };
    let own = own?;
    // The peer's own stands among them.
    let is_few = others.is_none_or(|others| others.len() <= MAX_SENT + 1);
    let others = others.into_iter().flatten().filter(move |one| one.as_ptr() != own.as_ptr());
    let all = std::iter::once(own).chain(others);
    Some((own, is_few.then_some(all)))
}

/// OpenSSL's callback after each step: 0 ends the verification.
unsafe extern "C" fn after(ok: c_int, context: *mut sys::X509_STORE_CTX) -> c_int {
    let body = || {
        // SAFETY: OpenSSL gives a running verification, which nobody else looks at during the callback.
        let context = unsafe { X509StoreContextRef::from_ptr_mut(context) };
        if ok == 0 && !UNVOUCHED.contains(&context.error().as_raw()) {
            return Some(0);
        }
        // The last signature was verified, and names come next.
        if ok == 1 && context.error_depth() == 0 && !has_few_names(context) {
            context.set_error(REFUSED);
            return Some(0);
        }
        Some(1)
    };
    contain(0, body, 0)
}

/// Whether the names of a chain are quickly compared with its constraints.
fn has_few_names(context: &X509StoreContextRef) -> bool {
    let Some(chain) = context.chain() else { return true };
    let sum = |bytes: fn(&X509Ref) -> u64| chain.iter().map(bytes).sum::<u64>();
    let constraints = sum(|one| extension_bytes(one, sys::NID_name_constraints));
    if constraints == 0 {
        return true;
    }
    let names = sum(|one| {
        let subject = one.subject_name().to_der().map_or(u64::MAX >> 8, |der| der.len() as u64);
        subject + extension_bytes(one, sys::NID_subject_alt_name)
    });
    names.saturating_mul(constraints) <= MAX_COMPARISONS
}

/// The bytes of an extension; 0: there is none.
fn extension_bytes(certificate: &X509Ref, nid: c_int) -> u64 {
    // SAFETY: the certificate is alive, and has its extensions.
    unsafe {
        let place = sys::X509_get_ext_by_NID(certificate.as_ptr(), nid, -1);
        if place < 0 {
            return 0;
        }
        let extension = sys::X509_get_ext(certificate.as_ptr(), place);
        let data = sys::X509_EXTENSION_get_data(extension);
        u64::try_from(sys::ASN1_STRING_length(data.cast())).unwrap_or(u64::MAX)
    }
}
