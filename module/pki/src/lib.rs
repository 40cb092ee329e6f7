//! Bundles of authorities and revocation lists, read as far as a verification asks for them.
//!
//! OpenSSL takes some 120 microseconds to decode a certificate and a microsecond for each entry of a revocation list. A
//! bundle of 200 certificates would keep a worker's loop for 25 milliseconds. So a bundle is read once as far as the
//! subjects of its certificates and the issuers of its lists; a verification decodes the certificates that its chain asks
//! for, at most [`MAX_DECODED`], and they stay decoded. Of a list, entries are found by their bytes, and never decoded; its
//! bytes are hashed once, whoever is said to have signed them.
//!
//! Bounds:  those of a bundle are checked before it is published and when it is read; each verification has a [`Budget`] of
//!          [`MAX_MICROSECONDS`].
//! Errors:  texts with the remedy; a part that cannot be decoded when it is asked for vouches for nobody.
//! Rejected: reading on a thread, since no version of nginx lets a handshake wait for one.
//!
//! The store of OpenSSL's that asks a bundle is `ssl::authorities` of `oxigress-nginx`.
#![forbid(unsafe_code)]

mod budget;
mod certificates;
pub mod der;
mod entries;
mod keys;
mod names;
mod pem;
mod revocations;
#[cfg(test)]
mod tests;

pub use budget::{Budget, MAX_DECODED, MAX_MICROSECONDS};
pub use certificates::Certificates;
pub use keys::{is_quick, microseconds};
pub use names::{MAX_NAME_BYTES, MAX_NAME_PARTS};
pub use revocations::{Revocations, list::List};

/// The most bytes of one certificate in a bundle, as DER. Usual ones have 500 to 2,000.
pub const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;

/// OpenSSL's structs of a certificate take about so many times its DER.
const DECODED_FACTOR: usize = 10;
