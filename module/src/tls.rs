//! TLS handshakes and certificates, on nginx's own OpenSSL.
#![allow(unsafe_code)]

pub mod bundles;
pub mod certificate;
pub mod client_certificate;
pub mod handshake;
pub mod upstream;

use crate::system::guard;
use crate::worker;
use nginx::EventLoop;
use nginx::sys::{
    BIO, BIO_free, BIO_new_mem_buf, ERR_clear_error, ERR_peek_last_error, EVP_Digest, EVP_PKEY,
    EVP_PKEY_free, EVP_sha256, OPENSSL_STACK, OPENSSL_sk_new_null, OPENSSL_sk_pop_free,
    OPENSSL_sk_push, PEM_read_bio_PrivateKey, PEM_read_bio_X509, SSL, SSL_CTX_set_cert_cb,
    SSL_certs_clear, SSL_get_servername, SSL_use_cert_and_key, TLSEXT_NAMETYPE_host_name, X509,
    X509_free, ngx_ssl_t,
};
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// `ERR_GET_REASON`, a macro
const ERROR_REASON_MASK: std::ffi::c_ulong = 0x7f_ffff;
const PEM_R_NO_START_LINE: std::ffi::c_ulong = nginx::sys::PEM_R_NO_START_LINE as _;

/// A chain has at most this many certificates.
const MAX_CHAIN: i32 = 10;

/// From now on every handshake on `ssl` asks [`certificate::choose`].
///
/// # Safety
/// `ssl` has a context, which nginx made for a server.
pub unsafe fn choose_certificates(ssl: *mut ngx_ssl_t) {
    // SAFETY: vouched for by the caller.
    unsafe { SSL_CTX_set_cert_cb((*ssl).ctx, Some(certificate_callback), null_mut()) };
}

/// OpenSSL's callback when a handshake needs a certificate: 1 goes on.
unsafe extern "C" fn certificate_callback(ssl: *mut SSL, _: *mut c_void) -> c_int {
    // After a panic the certificate in nginx.conf stays.
    guard::contain("certificate_callback", 1, || {
        // SAFETY: a handshake runs on the event loop.
        let Some(worker) = (unsafe { worker::current(EventLoop::here()) }) else { return 1 };
        let handshake = ServerName { ssl, callback: PhantomData };
        c_int::from(certificate::choose(worker, &handshake))
    })
}

/// A handshake that needs a certificate.
pub struct ServerName<'h> {
    ssl: *mut SSL,
    callback: PhantomData<&'h ()>,
}

impl<'h> ServerName<'h> {
    /// The server name the client sent.
    pub fn name(&self) -> Option<&'h [u8]> {
        // SAFETY: OpenSSL gives the handshake of this callback.
        let name = unsafe { SSL_get_servername(self.ssl, TLSEXT_NAMETYPE_host_name as c_int) };
        // SAFETY: null or a C string that lives as long as the handshake's hello.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
    }

    /// Answers with this certificate; `false`: OpenSSL does not take it, and the handshake cannot go on.
    pub fn present(&self, parsed: &Parsed) -> bool {
        // SAFETY: all four are alive; OpenSSL takes references of its own. The certificate of nginx.conf
        // goes first: with a key of another kind it would stand beside ours, for clients to choose.
        let taken = unsafe {
            SSL_certs_clear(self.ssl);
            SSL_use_cert_and_key(
                self.ssl,
                parsed.leaf.as_ptr(),
                parsed.key.as_ptr(),
                parsed.chain.as_ptr().cast(),
                1,
            )
        };
        clear_errors();
        taken == 1
    }
}

/// A certificate chain and its key, parsed.
pub struct Parsed {
    leaf: NonNull<X509>,
    key: NonNull<EVP_PKEY>,
    chain: NonNull<OPENSSL_STACK>,
}

impl Parsed {
    /// Parses PEM. The reason of a failure names the part and the remedy.
    pub fn new(chain_pem: &[u8], key_pem: &[u8]) -> Result<Parsed, String> {
        let parsed = Self::parse(chain_pem, key_pem);
        clear_errors();
        parsed
    }

    fn parse(chain_pem: &[u8], key_pem: &[u8]) -> Result<Parsed, String> {
        let mut chain = Pem::new(chain_pem)?;
        let leaf =
            chain.certificate().ok_or("the chain has no certificate that can be read: send PEM")?;
        // From here on `parsed` frees what there is.
        let leaf = Owned(leaf, X509_free);
        let key = Pem::new(key_pem)?
            .key()
            .ok_or("the private key cannot be read: send unencrypted PEM")?;
        let key = Owned(key, EVP_PKEY_free);
        // SAFETY: makes an empty stack.
        let stack = NonNull::new(unsafe { OPENSSL_sk_new_null() }).ok_or("out of memory")?;
        let parsed = Parsed { leaf: leaf.take(), key: key.take(), chain: stack };
        while let Some(next) = chain.certificate() {
            // SAFETY: the stack is alive and takes the certificate over.
            let count = unsafe { OPENSSL_sk_push(stack.as_ptr(), next.as_ptr().cast()) };
            if count == 0 {
                // SAFETY: not taken over.
                unsafe { X509_free(next.as_ptr()) };
                return Err("out of memory".into());
            }
            if count >= MAX_CHAIN {
                return Err(format!(
                    "the chain has more than {MAX_CHAIN} certificates: shorten it"
                ));
            }
        }
        // SAFETY: looks at this thread's queue. The end of the text is the one error there should be.
        let reason = unsafe { ERR_peek_last_error() } & ERROR_REASON_MASK;
        if reason != PEM_R_NO_START_LINE {
            return Err("a certificate of the chain cannot be read: send PEM".into());
        }
        Ok(parsed)
    }

    /// Bytes of memory, about: OpenSSL's structs take some ten times the DER.
    pub fn weight(chain_pem: &[u8], key_pem: &[u8]) -> usize {
        8 * (chain_pem.len() + key_pem.len())
    }
}

impl Drop for Parsed {
    fn drop(&mut self) {
        unsafe extern "C" fn free(certificate: *mut c_void) {
            // SAFETY: the stack holds certificates.
            unsafe { X509_free(certificate.cast()) };
        }
        // SAFETY: made by `parse`, freed once.
        unsafe {
            OPENSSL_sk_pop_free(self.chain.as_ptr(), Some(free));
            EVP_PKEY_free(self.key.as_ptr());
            X509_free(self.leaf.as_ptr());
        }
    }
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    // SAFETY: the digest has 32 bytes.
    let done = unsafe {
        EVP_Digest(
            bytes.as_ptr().cast(),
            bytes.len(),
            digest.as_mut_ptr(),
            null_mut(),
            EVP_sha256(),
            null_mut(),
        )
    };
    assert!(done == 1, "OpenSSL has no SHA-256");
    digest
}

/// An error left in OpenSSL's queue would be blamed on the next connection.
pub fn clear_errors() {
    // SAFETY: the queue is this thread's own.
    unsafe { ERR_clear_error() };
}

/// A pointer with the function that frees it.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    fn take(self) -> NonNull<T> {
        let pointer = self.0;
        std::mem::forget(self);
        pointer
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by OpenSSL, freed once.
        unsafe { (self.1)(self.0.as_ptr()) };
    }
}

/// PEM text being read.
struct Pem<'p> {
    bio: NonNull<BIO>,
    text: PhantomData<&'p [u8]>,
}

impl<'p> Pem<'p> {
    fn new(text: &'p [u8]) -> Result<Self, String> {
        let length = c_int::try_from(text.len()).map_err(|_| "the PEM text is too long")?;
        // SAFETY: OpenSSL reads the text in place while the bio is alive, which borrows it.
        let bio = NonNull::new(unsafe { BIO_new_mem_buf(text.as_ptr().cast(), length) });
        Ok(Pem { bio: bio.ok_or("out of memory")?, text: PhantomData })
    }

    fn certificate(&mut self) -> Option<NonNull<X509>> {
        // SAFETY: the bio is alive. The password callback never asks, so nothing waits for a terminal.
        NonNull::new(unsafe {
            PEM_read_bio_X509(self.bio.as_ptr(), null_mut(), Some(no_password), null_mut())
        })
    }

    fn key(&mut self) -> Option<NonNull<EVP_PKEY>> {
        // SAFETY: as above.
        NonNull::new(unsafe {
            PEM_read_bio_PrivateKey(self.bio.as_ptr(), null_mut(), Some(no_password), null_mut())
        })
    }
}

impl Drop for Pem<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { BIO_free(self.bio.as_ptr()) };
    }
}

unsafe extern "C" fn no_password(
    _: *mut std::ffi::c_char,
    _: c_int,
    _: c_int,
    _: *mut c_void,
) -> c_int {
    0
}
