//! What one verification may do.

use std::cell::Cell;

/// The most certificates and lists that one verification has decoded: three milliseconds. A chain asks for as many as it is
/// long, and for more where a bundle has several of one name. Those stay decoded, so a later handshake gets further.
pub const MAX_DECODED: usize = 24;

/// What one verification may take: decoding, hashing revocation lists, and verifying signatures with the keys of its chain.
/// A chain of a P-256 or RSA key and two authorities takes less than 500, one with P-384 keys and lists 3,000.
pub const MAX_MICROSECONDS: u32 = 4_000;

/// What OpenSSL takes to decode a certificate or the head of a list.
const DECODING_MICROSECONDS: u32 = 120;

/// What a verification may still do.
pub struct Budget {
    /// Certificates that it may have decoded.
    certificates: Cell<usize>,
    /// Time that it may take, by the estimates of this crate.
    microseconds: Cell<u32>,
}

impl Default for Budget {
    /// That of a verification which begins.
    fn default() -> Self {
        Budget { certificates: Cell::new(MAX_DECODED), microseconds: Cell::new(MAX_MICROSECONDS) }
    }
}

impl Budget {
    /// The next verification begins.
    pub fn reset(&self) {
        self.certificates.set(MAX_DECODED);
        self.microseconds.set(MAX_MICROSECONDS);
    }

    /// Takes what decoding a certificate costs; `false`: there is not so much left.
    pub(crate) fn decode_certificate(&self) -> bool {
        let left = self.certificates.get();
        self.certificates.set(left.saturating_sub(1));
        left > 0 && self.spend(DECODING_MICROSECONDS)
    }

    /// Takes what decoding the head of a list costs; `false`: there is not so much left.
    pub(crate) fn decode_list(&self) -> bool {
        self.spend(DECODING_MICROSECONDS)
    }

    /// Takes so much time; `false`: there is not so much left, and from here on none.
    pub fn spend(&self, microseconds: u32) -> bool {
        let left = self.microseconds.get().checked_sub(microseconds);
        self.microseconds.set(left.unwrap_or(0));
        left.is_some()
    }
}
