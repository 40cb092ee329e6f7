//! TLS: handshakes, certificates and contexts, on the OpenSSL that nginx itself runs with.
//!
//! What stands alone has the types of the crate `openssl`: certificates, keys, stores. What belongs to a connection or a
//! server of nginx's has handles, as nginx itself has.

pub mod authorities;
pub mod context;
pub mod handshake;
pub mod pem;
pub mod request;

use crate::basic::guard::contain;
use crate::basic::handle::handle;
use crate::sys::{
    OPENSSL_thread_stop, SSL_CTRL_SET_MAX_CERT_LIST, SSL_CTX, SSL_CTX_ctrl, SSL_CTX_get_ex_data,
    SSL_CTX_set_cert_verify_callback, X509_STORE_CTX,
};
use foreign_types::ForeignTypeRef;
use openssl::error::ErrorStack;
use openssl::ssl::{SslContext, SslMethod};
use openssl::x509::X509StoreContextRef;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::ptr::{NonNull, null_mut};

pub use openssl::sha::sha256;

/// An error left in OpenSSL's queue would be blamed on the next connection.
pub fn clear_errors() {
    drop(ErrorStack::get());
}

/// Frees what OpenSSL keeps for this thread. nginx does not wait for its threads: one that ends while the main thread exits would
/// free it a second time (openssl/openssl#6214).
pub fn leave_thread() {
    // SAFETY: OpenSSL makes it again when the thread next asks for something.
    unsafe { OPENSSL_thread_stop() };
}

/// A list of ciphers as OpenSSL takes it.
#[derive(Clone, Debug)]
pub struct Ciphers(CString);

impl Ciphers {
    /// Refuses what OpenSSL would not take.
    pub fn new(text: &str) -> Result<Self, String> {
        let list = CString::new(text).map_err(|_| "the cipher list has a NUL")?;
        let context = SslContext::builder(SslMethod::tls_server());
        let mut context = context.map_err(|_| "out of memory")?;
        match context.set_cipher_list(text) {
            Ok(()) => Ok(Ciphers(list)),
            Err(_) => Err("OpenSSL knows no cipher of the list: name one that it has".into()),
        }
    }

    /// The list.
    pub fn as_bytes(&self) -> &[u8] {
        self.as_c_str().to_bytes()
    }

    fn as_c_str(&self) -> &CStr {
        &self.0
    }

    fn as_ptr(&self) -> *const c_char {
        self.as_c_str().as_ptr()
    }
}

/// Verifies what peers send, in place of OpenSSL.
pub trait Verifier: 'static {
    /// The most bytes of certificates that a peer may send: `SSL_CTRL_SET_MAX_CERT_LIST`.
    const MAX_SENT_BYTES: i64;
    /// A verification begins. `true`: it was carried out, and the result is in the context.
    fn verify(context: &mut X509StoreContextRef) -> bool;
}

/// From now on what peers send is verified by `V`.
///
/// # Safety
/// The context is alive.
unsafe fn verify_by<V: Verifier>(context: *mut SSL_CTX) {
    let (control, most) = (SSL_CTRL_SET_MAX_CERT_LIST as c_int, V::MAX_SENT_BYTES as c_long);
    // SAFETY: the context is alive, as the contract says, and nobody but nginx has it yet; the callback takes what OpenSSL gives
    // it, and has no argument.
    unsafe {
        SSL_CTX_set_cert_verify_callback(context, Some(verify_callback::<V>), null_mut());
        SSL_CTX_ctrl(context, control, most, null_mut());
    }
}

/// OpenSSL's callback in place of its own verification: 1, and the result is in the context.
unsafe extern "C" fn verify_callback<V: Verifier>(
    context: *mut X509_STORE_CTX,
    _: *mut c_void,
) -> c_int {
    contain("verify_callback", 0, || {
        // SAFETY: OpenSSL gives a verification, which lives during the callback and which nobody else has.
        let context = unsafe { X509StoreContextRef::from_ptr_mut(context.cast()) };
        c_int::from(V::verify(context))
    })
}

handle! {
    /// What nginx makes handshakes of: a context of OpenSSL's, and what nginx keeps beside it.
    Tls of ngx_ssl_t
}

impl Tls {
    /// The number of its context, if a [`context::Context`] gave it one: its address may have been another's before.
    #[inline]
    pub fn number(&self) -> Option<usize> {
        let context = NonNull::new(self.peek(|raw| raw.ctx))?;
        // SAFETY: the context of a live struct.
        let number = unsafe { SSL_CTX_get_ex_data(context.as_ptr(), context::NUMBER) };
        Some(number.addr()).filter(|number| *number != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::x509::X509;

    #[test]
    fn a_thread_that_is_left_keeps_nothing_of_openssl() {
        let fail = || X509::from_pem(b"odd").unwrap_err().put();
        fail();
        assert!(!ErrorStack::get().errors().is_empty());
        fail();
        leave_thread();
        assert!(ErrorStack::get().errors().is_empty());
        // It may go on.
        fail();
        assert!(!ErrorStack::get().errors().is_empty());
    }
}
