//! An `X509_STORE` of OpenSSL's that asks a bundle of `oxigress-pki`, which decodes the parts that a verification asks for.
//!
//! Rejected: an `X509_LOOKUP`, which puts what it finds into the store for good.

mod crl;
mod ffi;
#[cfg(test)]
mod tests;
mod verify;

use crate::basic::guard::caught;
use foreign_types::{ForeignType, ForeignTypeRef};
use libc::{c_int, c_long, c_void};
use openssl::asn1::{Asn1Time, Asn1TimeRef};
use openssl::x509::store::{X509Store, X509StoreRef};
use openssl::x509::{X509, X509Crl, X509NameRef, X509Ref, X509StoreContextRef};
use openssl_sys as sys;
use oxigress_pki::{Budget, Certificates, Revocations, microseconds};
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;
use std::sync::OnceLock;
use std::thread::{self, ThreadId};

/// `X509_V_FLAG_CRL_CHECK` and `X509_V_FLAG_CRL_CHECK_ALL`
const CHECK_REVOCATION: libc::c_ulong = 0x4 | 0x8;

/// Who vouches for others, and what they have revoked.
pub struct Authorities {
    store: X509Store,
    certificates: Rc<Certificates>,
}

/// What a store keeps, for its callbacks.
struct Bundles {
    certificates: Rc<Certificates>,
    revocations: Option<Rc<Revocations>>,
    /// What the running verification may still have decoded.
    budget: Budget,
    /// Nothing of it is used on another one, though OpenSSL counts stores on any.
    thread: ThreadId,
}

impl Bundles {
    fn is_here(&self) -> bool {
        self.thread == thread::current().id()
    }

    /// Takes what signatures cost that an issuer's key verifies: that of a certificate, and that of a revocation list.
    fn pays_for(&self, issuer: &X509Ref) -> bool {
        let signatures = 1 + u32::from(self.revocations.is_some());
        let cost = microseconds(issuer);
        cost.is_some_and(|cost| self.budget.spend(cost.saturating_mul(signatures)))
    }
}

impl Authorities {
    /// A store of these certificates and lists; without lists nothing is revoked.
    pub fn new(
        certificates: Rc<Certificates>,
        revocations: Option<Rc<Revocations>>,
    ) -> Result<Self, String> {
        let place = place().ok_or("out of memory")?;
        let checks_revocation = revocations.is_some();
        let kept = certificates.clone();
        let (budget, thread) = (Budget::default(), thread::current().id());
        let bundles = Bundles { certificates, revocations, budget, thread };
        // SAFETY: a new store, freed by its type.
        let store = unsafe {
            let store = NonNull::new(sys::X509_STORE_new()).ok_or("out of memory")?;
            X509Store::from_ptr(store.as_ptr())
        };
        let raw = store.as_ptr();
        let bundles = Box::into_raw(Box::new(bundles));
        // SAFETY: the store is alive. It frees what it was given when its last user is gone; handshakes count it, too.
        unsafe {
            if ffi::X509_STORE_set_ex_data(raw, place, bundles.cast()) != 1 {
                drop(Box::from_raw(bundles));
                return Err("out of memory".into());
            }
            ffi::X509_STORE_set_get_issuer(raw, Some(get_issuer));
            ffi::X509_STORE_set_lookup_certs(raw, Some(lookup::<X509>));
            ffi::X509_STORE_set_lookup_crls(raw, Some(lookup::<X509Crl>));
            ffi::X509_STORE_set_cleanup(raw, Some(end));
            if checks_revocation && sys::X509_STORE_set_flags(raw, CHECK_REVOCATION) != 1 {
                return Err("out of memory".into());
            }
        }
        Ok(Authorities { store, certificates: kept })
    }

    /// The store; whoever keeps it counts it.
    pub fn store(&self) -> &X509StoreRef {
        &self.store
    }

    /// Its certificates.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }
}

/// Where a store keeps its [`Bundles`].
fn place() -> Option<c_int> {
    static PLACE: OnceLock<c_int> = OnceLock::new();
    // SAFETY: asks for a place of a store's own data; the function is this program's.
    let new = || unsafe {
        let kind = ffi::CRYPTO_EX_INDEX_X509_STORE;
        sys::CRYPTO_get_ex_new_index(kind, 0, null_mut(), None, None, Some(free))
    };
    Some(*PLACE.get_or_init(new)).filter(|place| *place >= 0)
}

/// OpenSSL's callback when a store is freed.
unsafe extern "C" fn free(
    _: *mut c_void,
    bundles: *mut c_void,
    _: *mut sys::CRYPTO_EX_DATA,
    _: c_int,
    _: c_long,
    _: *mut c_void,
) {
    if bundles.is_null() {
        return;
    }
    // SAFETY: put there by `Authorities::new`, taken once.
    let bundles = unsafe { Box::from_raw(bundles.cast::<Bundles>()) };
    // Its counts are its thread's own; where that is another one they stay, and what they count.
    if !bundles.is_here() {
        std::mem::forget(bundles);
    }
}

/// Runs a callback's body; a panic must not cross C.
fn contain<T>(after_panic: T, body: impl FnOnce() -> Option<T>, none: T) -> T {
    caught(body).map_or(after_panic, |answer| answer.unwrap_or(none))
}

/// What the store of a verification keeps; `None`: it is not one of ours, or of another thread, where nobody is vouched for.
fn bundles(context: &X509StoreContextRef) -> Option<&Bundles> {
    let place = place()?;
    // SAFETY: the store lives as long as the context, and its data as long as the store. Only `Authorities::new` puts anything
    // into this place; another thread looks at nothing but the id.
    let bundles = unsafe {
        let store = NonNull::new(ffi::X509_STORE_CTX_get0_store(context.as_ptr()))?;
        ffi::X509_STORE_get_ex_data(store.as_ptr(), place).cast::<Bundles>().as_ref()?
    };
    bundles.is_here().then_some(bundles)
}

/// A certificate that may have issued another: as `X509_STORE_CTX_get1_issuer`, one that is valid now, else the one that
/// was valid last. 1: there is one; 0: there is none; -1: an error.
unsafe extern "C" fn get_issuer(
    issuer: *mut *mut sys::X509,
    context: *mut sys::X509_STORE_CTX,
    of: *mut sys::X509,
) -> c_int {
    let body = || {
        // SAFETY: OpenSSL gives a running verification and a certificate of it, which live during the callback.
        let (running, child, is_issuer) = unsafe {
            *issuer = null_mut();
            let check = ffi::X509_STORE_CTX_get_check_issued(context)?;
            let is_issuer = move |by: &X509Ref| check(context, of, by.as_ptr()) != 0;
            (X509StoreContextRef::from_ptr(context), X509Ref::from_ptr(of), is_issuer)
        };
        let bundles = bundles(running)?;
        let now = Asn1Time::days_from_now(0).ok()?;
        let mut best: Option<&X509> = None;
        for known in bundles.certificates.of_subject(child.issuer_name(), &bundles.budget) {
            if !is_issuer(known) {
                continue;
            }
            if is_valid(known, &now) {
                best = Some(known);
                break;
            }
            if best.is_none_or(|best| is_before(best.not_after(), known.not_after())) {
                best = Some(known);
            }
        }
        let found = best.filter(|found| bundles.pays_for(found))?.clone();
        // SAFETY: OpenSSL takes over the count that the clone has.
        unsafe { *issuer = found.as_ptr() };
        std::mem::forget(found);
        Some(1)
    };
    contain(-1, body, 0)
}

fn is_valid(certificate: &X509Ref, now: &Asn1TimeRef) -> bool {
    !is_before(now, certificate.not_before()) && !is_before(certificate.not_after(), now)
}

fn is_before(a: &Asn1TimeRef, b: &Asn1TimeRef) -> bool {
    a.compare(b).is_ok_and(|order| order.is_lt())
}

/// What a store finds by name, counted for OpenSSL.
trait Found: ForeignType {
    /// `None`: there is none, or one of them cannot be read.
    fn find(bundles: &Bundles, name: &X509NameRef) -> Option<Vec<Self>>;
}

/// Finds all certificates of a subject; OpenSSL looks for one of them that it has.
impl Found for X509 {
    fn find(bundles: &Bundles, subject: &X509NameRef) -> Option<Vec<X509>> {
        Some(bundles.certificates.of_subject(subject, &bundles.budget).cloned().collect())
    }
}

/// Finds all lists of an issuer.
impl Found for X509Crl {
    fn find(bundles: &Bundles, issuer: &X509NameRef) -> Option<Vec<X509Crl>> {
        let all = bundles.revocations.as_ref()?.of_issuer(issuer, &bundles.budget, crl::decode)?;
        Some(all.into_iter().map(crl::counted).collect())
    }
}

/// Answers null where nothing is found: without a certificate or a list nobody passes.
unsafe extern "C" fn lookup<T: Found>(
    context: *mut sys::X509_STORE_CTX,
    name: *const sys::X509_NAME,
) -> *mut sys::OPENSSL_STACK {
    let body = || {
        // SAFETY: OpenSSL gives a running verification and a name, which live during the callback.
        let (running, name) = unsafe {
            (X509StoreContextRef::from_ptr(context), X509NameRef::from_ptr(name.cast_mut()))
        };
        let all = T::find(bundles(running)?, name)?;
        stack(all, |found| found.as_ptr().cast(), sys::OPENSSL_sk_push)
    };
    contain(null_mut(), body, null_mut())
}

/// `OPENSSL_sk_push`, or what a test has in its place.
type Push = unsafe extern "C" fn(*mut sys::OPENSSL_STACK, *const c_void) -> c_int;

/// A stack of counted objects, which OpenSSL frees; `None` when memory is out for any of them: a chain that is judged by
/// some of an issuer's revocation lists would pass where another one refuses it.
fn stack<T>(
    all: Vec<T>,
    pointer: fn(&T) -> *const c_void,
    push: Push,
) -> Option<*mut sys::OPENSSL_STACK> {
    // SAFETY: the stack is new. What is pushed is alive, and is the stack's when all of it is there; else the stack alone
    // is freed here, and `all` frees the rest.
    unsafe {
        let stack = NonNull::new(sys::OPENSSL_sk_new_null())?.as_ptr();
        if !all.iter().all(|one| push(stack, pointer(one)) > 0) {
            sys::OPENSSL_sk_free(stack);
            return None;
        }
        all.into_iter().for_each(std::mem::forget);
        Some(stack)
    }
}

/// A verification is over: the next one has a budget of its own.
unsafe extern "C" fn end(context: *mut sys::X509_STORE_CTX) -> c_int {
    let body = || {
        // SAFETY: OpenSSL gives a verification that ends, which lives during the callback.
        let ended = unsafe { X509StoreContextRef::from_ptr(context) };
        bundles(ended)?.budget.reset();
        Some(1)
    };
    contain(1, body, 1)
}
