//! What it takes to verify signatures with a key.

use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::x509::X509Ref;

/// The longest RSA modulus, in bits, and its exponent: a signature takes half a millisecond.
const MAX_RSA_BITS: (u32, i32) = (8_192, 33);
/// The longest curve, in bits, but for P-521, which OpenSSL has fast code for: a signature takes half a millisecond.
const MAX_CURVE_BITS: u32 = 384;

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
