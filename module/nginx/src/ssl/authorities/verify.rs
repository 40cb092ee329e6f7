//! Verifications whose work is bounded, whatever a peer sends.
//!
//! OpenSSL compares each name of a certificate with each name constraint above it, and verifies signatures with keys of any
//! size: 64 KB of certificates, of nobody who is known, take it half a second. So a peer sends few certificates, with
//! keys whose signatures are verified quickly, and names and constraints that are few together.

use super::{Authorities, bundles, contain, ffi};
use crate::ssl::Verifier;
use foreign_types::ForeignTypeRef;
use libc::c_int;
use openssl::stack::StackRef;
use openssl::x509::{X509, X509Ref, X509StoreContextRef, X509VerifyResult};
use openssl_sys as sys;
use oxigress_pki::{is_quick, microseconds};
use std::ptr::NonNull;

/// The most certificates besides the peer's own that are looked at.
const MAX_SENT: usize = 9;
/// Bytes of names times bytes of constraints: a comparison takes 45 nanoseconds, and 40 such units.
const MAX_COMPARISONS: u64 = 2_000_000;
const REFUSED: X509VerifyResult = X509VerifyResult::APPLICATION_VERIFICATION;
/// The errors that say no more than that nobody vouches for a certificate: `X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT`,
/// `..._DEPTH_ZERO_SELF_SIGNED_CERT`, `..._SELF_SIGNED_CERT_IN_CHAIN`, `..._UNABLE_TO_GET_ISSUER_CERT_LOCALLY`,
/// `..._UNABLE_TO_VERIFY_LEAF_SIGNATURE`. Another error behind them counts for more.
const UNVOUCHED: [c_int; 5] = [2, 18, 19, 20, 21];

impl Verifier for Authorities {
    /// Usual chains have 1,000 to 6,000.
    const MAX_SENT_BYTES: i64 = 16 * 1024;

    /// As with a callback that goes on after errors. Other stores than [`Authorities`] are verified as ever.
    fn verify(context: &mut X509StoreContextRef) -> bool {
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
