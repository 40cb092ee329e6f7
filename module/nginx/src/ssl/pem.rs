//! What is read from PEM.

use super::clear_errors;
use crate::sys::{BIO, BIO_free, BIO_new_mem_buf, ERR_peek_last_error, PEM_read_bio_X509};
use foreign_types::ForeignType;
use openssl::pkey::{PKey, Private};
use openssl::stack::Stack;
use openssl::x509::X509;
use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// A chain has at most this many certificates.
const MAX_CHAIN: usize = 10;
/// `ERR_GET_REASON`, a macro
const ERROR_REASON_MASK: c_ulong = 0x7f_ffff;

/// Certificates as PEM being read. The crate `openssl` would ask for a password at a terminal.
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

    fn certificate(&mut self) -> Option<X509> {
        let (bio, password) = (self.bio.as_ptr(), Some(no_password as _));
        // SAFETY: the bio is alive. The password callback never asks, so nothing waits for a terminal. OpenSSL makes the
        // certificate, counted once for this; it has one layout in both sets of bindings.
        unsafe {
            let read = NonNull::new(PEM_read_bio_X509(bio, null_mut(), password, null_mut()));
            read.map(|read| X509::from_ptr(read.as_ptr().cast()))
        }
    }
}

impl Drop for Pem<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { BIO_free(self.bio.as_ptr()) };
    }
}

unsafe extern "C" fn no_password(_: *mut c_char, _: c_int, _: c_int, _: *mut c_void) -> c_int {
    0
}

/// The text of PEM came to its end: the one error that there should be after the last part was read.
fn ended_well() -> bool {
    // SAFETY: looks at this thread's queue.
    let reason = unsafe { ERR_peek_last_error() } & ERROR_REASON_MASK;
    reason == c_ulong::from(crate::sys::PEM_R_NO_START_LINE)
}

/// A certificate chain and its key, parsed.
pub struct KeyPair {
    pub(super) leaf: X509,
    pub(super) key: PKey<Private>,
    pub(super) chain: Stack<X509>,
}

impl KeyPair {
    /// Parses PEM. The reason of a failure names the part and the remedy.
    pub fn new(chain_pem: &[u8], key_pem: &[u8]) -> Result<KeyPair, String> {
        let parsed = Self::parse(chain_pem, key_pem);
        clear_errors();
        parsed
    }

    fn parse(chain_pem: &[u8], key_pem: &[u8]) -> Result<KeyPair, String> {
        let mut text = Pem::new(chain_pem)?;
        let leaf =
            text.certificate().ok_or("the chain has no certificate that can be read: send PEM")?;
        let key = PKey::private_key_from_pem_callback(key_pem, |_| Ok(0))
            .map_err(|_| "the private key cannot be read: send unencrypted PEM")?;
        let mut chain = Stack::new().map_err(|_| "out of memory")?;
        while let Some(next) = text.certificate() {
            chain.push(next).map_err(|_| "out of memory")?;
            if chain.len() >= MAX_CHAIN {
                return Err(format!(
                    "the chain has more than {MAX_CHAIN} certificates: shorten it"
                ));
            }
        }
        match ended_well() {
            true => Ok(KeyPair { leaf, key, chain }),
            false => Err("a certificate of the chain cannot be read: send PEM".into()),
        }
    }

    /// Bytes of memory, about: OpenSSL's structs take some ten times the DER.
    pub fn weight(chain_pem: &[u8], key_pem: &[u8]) -> usize {
        8 * (chain_pem.len() + key_pem.len())
    }
}
