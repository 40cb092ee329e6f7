//! What is read of bundles: those of these tests are made by hand, and signed by nobody.

use super::*;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::rsa::RsaPrivateKeyBuilder;
use openssl::x509::{X509, X509Name};

fn pem(label: &str, der: &[u8]) -> String {
    let text = openssl::base64::encode_block(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn name(common: &str) -> Vec<u8> {
    let mut name = X509Name::builder().unwrap();
    name.append_entry_by_text("CN", common).unwrap();
    name.build().to_der().unwrap()
}

const TIME: &[u8] = b"\x17\x0d260101000000Z";
/// `BIT STRING` of no bits
const NO_SIGNATURE: &[u8] = &[3, 1, 0];

/// SEQUENCE { SEQUENCE { serial 1, algorithm, issuer, validity, subject }, algorithm, signature }
fn certificate(subject: &str) -> String {
    let subject = name(subject);
    let parts = [b"\x02\x01\x01", &der::wrap(&[])[..], &subject, &der::wrap(&[]), &subject];
    let signed = der::wrap(&parts);
    pem("CERTIFICATE", &der::wrap(&[&signed, &der::wrap(&[]), NO_SIGNATURE]))
}

/// SEQUENCE { SEQUENCE { algorithm, issuer, time, SEQUENCE { entries } }, algorithm, signature }
fn list(serials: &[u8]) -> Vec<u8> {
    let entry = |serial: &u8| der::wrap(&[&[2, 1, *serial], TIME]);
    let entries: Vec<u8> = serials.iter().flat_map(entry).collect();
    let parts = [&der::wrap(&[])[..], &name("ours"), TIME, &der::wrap(&[&entries])];
    let signed = der::wrap(&parts);
    der::wrap(&[&signed, &der::wrap(&[]), NO_SIGNATURE])
}

#[test]
fn a_bundle_beyond_its_bounds_is_refused() {
    let error = |text: &[u8]| Certificates::new(text).map(drop).unwrap_err();
    assert!(error(b"").contains("no certificate"));
    let ours = certificate("ours");
    // Cut off, a character that is none of base64, and another tag.
    let with = |first| ours.replacen("\nM", &format!("\n{first}"), 1);
    for text in [ours[..ours.len() - 20].into(), with('!'), with('A')] {
        assert!(error(text.as_bytes()).contains("cannot be read"), "{text}");
    }
    // OpenSSL takes 64 characters in each attribute.
    let many = certificate(&"x".repeat(64)).repeat(MAX_NAME_BYTES / 70);
    assert!(error(many.as_bytes()).contains("the names in all certificates"));
    let der = der::wrap(&[&[0; MAX_CERTIFICATE_BYTES]]);
    let large = pem("CERTIFICATE", &der);
    assert!(error(large.as_bytes()).contains("at most 16384"));
    assert!(Revocations::new(b"x").is_err() && Revocations::new(ours.as_bytes()).is_err());
}

#[test]
fn an_entry_with_a_critical_extension_makes_a_list_unusable() {
    let text = pem("X509 CRL", &list(&[2]));
    assert_eq!(Revocations::new(text.as_bytes()).unwrap().check_entries(), Ok(()));
    // SEQUENCE { serial 5, time, SEQUENCE { SEQUENCE { OID, TRUE, OCTET STRING } } }
    let extension = der::wrap(&[b"\x06\x03\x55\x1d\x1d", b"\x01\x01\xff", b"\x04\x02\x30\x00"]);
    let entry = der::wrap(&[b"\x02\x01\x05", TIME, &der::wrap(&[&extension])]);
    let error = |length| entries::Entries::within(&entry, 0..length).err().unwrap();
    assert!(error(entry.len()).contains("critical"));
    assert!(error(entry.len() - 1).contains("cannot be read"));
}

/// The first entry counts, though they are sorted.
#[test]
fn of_two_entries_for_a_number_the_first_counts() {
    for count in [2, 40] {
        let der = list(&vec![5; count]);
        let entries = entries::Entries::new(&der, 0..der.len()).unwrap();
        let found = entries.find(&der, &[2, 1, 5]).unwrap();
        let first = der.windows(3).position(|bytes| bytes == [2, 1, 5]).unwrap();
        assert_eq!(found.serial.as_ptr(), der[first..].as_ptr());
        assert!(entries.find(&der, &[2, 1, 6]).is_none());
    }
}

#[test]
fn keys_whose_signatures_take_long_are_refused() {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let signer = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let is_quick = |key: &PKey<Private>| {
        let mut builder = X509::builder().unwrap();
        builder.set_pubkey(key).unwrap();
        // Signed with another key than this, as its own one takes long.
        builder.sign(&signer, MessageDigest::sha256()).unwrap();
        is_quick(&builder.build())
    };
    let rsa = |bits: i32, exponent: &str| {
        let mut modulus = BigNum::from_u32(1).unwrap();
        modulus.set_bit(bits - 1).unwrap();
        let e = BigNum::from_hex_str(exponent).unwrap();
        let d = BigNum::from_u32(3).unwrap();
        let key = RsaPrivateKeyBuilder::new(modulus, e, d).unwrap().build();
        is_quick(&PKey::from_rsa(key).unwrap())
    };
    assert!(rsa(2_048, "10001") && rsa(8_192, "10001"));
    assert!(!rsa(16_384, "10001") && !rsa(4_096, "F000000000000001"));
    assert!(is_quick(&signer));
}
