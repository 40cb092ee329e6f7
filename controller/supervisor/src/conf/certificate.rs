//! The certificate for clients whose server name has none: self-signed, new at each start.
//!
//! Source:  ingress-nginx's controller, with the names that monitoring of ingress-nginx knows it by.

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::extension::{
    BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName,
};
use openssl::x509::{X509, X509NameBuilder};

/// Certificate and key, both PEM.
pub fn self_signed() -> Result<(Vec<u8>, Vec<u8>), ErrorStack> {
    let key = PKey::from_rsa(Rsa::generate(2048)?)?;
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_text("O", "Acme Co")?;
    name.append_entry_by_text("CN", "Kubernetes Ingress Controller Fake Certificate")?;
    let name = name.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;

    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*serial.to_asn1_integer()?)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    builder.set_pubkey(&key)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(365)?)?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    let usage = KeyUsage::new().critical().digital_signature().key_encipherment().build()?;
    builder.append_extension(usage)?;
    builder.append_extension(ExtendedKeyUsage::new().server_auth().build()?)?;
    let names = SubjectAlternativeName::new()
        .dns("ingress.local")
        .build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok((builder.build().to_pem()?, key.private_key_to_pem_pkcs8()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::secret::Pair;

    #[test]
    fn the_default_certificate_is_one_that_we_would_take_ourselves() {
        let (certificate, key) = self_signed().unwrap();
        let pair = Pair::parse(&certificate, &key).unwrap();
        assert!(pair.is_valid_for("ingress.local"));
    }
}
