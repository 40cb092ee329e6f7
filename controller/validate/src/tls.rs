//! Checks of texts that OpenSSL reads: cipher lists, groups, certificates, revocation lists, key pairs.

use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, PKeyRef, Private};
use openssl::ssl::{SslContextBuilder, SslMethod};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509Crl};
use oxigress_core::model::{Bundle, BundleId};
use oxigress_pki::{Certificates, Revocations};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The most certificates of a bundle of authorities. Public bundles have about 150. Reading their subjects costs a worker
/// about a millisecond, and each one that a chain asks for a tenth of a millisecond, once.
pub const MAX_AUTHORITIES: usize = 200;
/// Most revocation lists of a bundle.
pub const MAX_LISTS: usize = 200;
/// The most certificates that all lists of a bundle revoke together. To look through so many costs a worker half a
/// millisecond a handshake.
pub const MAX_REVOKED: usize = 20_000;
/// The most certificates of a chain.
pub const MAX_CHAIN: usize = 10;
/// The lengths of RSA keys, in bits, that are accepted.
pub const RSA_BITS: RangeInclusive<u32> = 2048..=4096;

/// A chain and the key of its first certificate, which belong together.
pub struct Pair {
    /// The certificates, the leaf first, then intermediates.
    pub chain: Vec<X509>,
    /// The private key of the leaf.
    pub key: PKey<Private>,
}

/// Whether OpenSSL has a cipher of this list.
pub fn cipher_list(text: &str) -> Result<(), String> {
    let unknown = "OpenSSL knows no cipher of the list: name one that it has";
    check_list("cipher list", text, |context| context.set_cipher_list(text), unknown)
}

/// Whether OpenSSL knows every group of this list.
pub fn groups(text: &str) -> Result<(), String> {
    let unknown = "OpenSSL does not know every group of the list: name those that it has";
    check_list("list of groups", text, |context| context.set_groups_list(text), unknown)
}

/// Checks a list by setting it; `unknown` is the error if OpenSSL refuses.
fn check_list(
    what: &str,
    text: &str,
    set: impl FnOnce(&mut SslContextBuilder) -> Result<(), ErrorStack>,
    unknown: &str,
) -> Result<(), String> {
    let mut context = SslContextBuilder::new(SslMethod::tls()).map_err(|_| "out of memory")?;
    if text.contains('\0') {
        return Err(format!("the {what} has a NUL"));
    }
    set(&mut context).map_err(|_| unknown.into())
}

/// Whether a word is a protocol for connections to endpoints.
pub fn protocol(word: &str) -> Result<(), String> {
    match word {
        "TLSv1.2" | "TLSv1.3" => Ok(()),
        _ => {
            let shown = oxigress_core::model::shorten(word);
            Err(format!("{shown:?} is not TLSv1.2 or TLSv1.3"))
        }
    }
}

/// The certificates of a bundle of authorities: at least one, every block readable, each usable in a store.
pub fn authorities(pem: &[u8]) -> Result<Vec<X509>, String> {
    check_length(pem)?;
    let count = blocks(pem);
    if count > MAX_AUTHORITIES {
        return Err(format!(
            "{count} certificates, at most {MAX_AUTHORITIES} are accepted: keep the authorities that issue your peers' certificates"
        ));
    }
    let all = X509::stack_from_pem(pem).map_err(|_| "a certificate cannot be read: send PEM")?;
    if all.is_empty() {
        return Err("there is no certificate that can be read: send PEM".into());
    }
    let mut store = X509StoreBuilder::new().map_err(|_| "out of memory")?;
    for certificate in &all {
        if !oxigress_pki::is_quick(certificate) {
            return Err("a certificate's key takes long to verify with: use RSA of at most 8192 bits, ECDSA or EdDSA".into());
        }
        let added = store.add_cert(certificate.clone());
        added.map_err(|_| "a certificate cannot be used as an authority: remove it")?;
    }
    // What a worker reads of them, with its bounds.
    match Certificates::new(pem)?.count() == all.len() {
        true => Ok(all),
        false => {
            Err("a block is labelled as something else than CERTIFICATE: send certificates".into())
        }
    }
}

/// The revocation lists of a bundle: every block readable; none in an empty text.
pub fn revocations(pem: &[u8]) -> Result<Vec<X509Crl>, String> {
    check_length(pem)?;
    if pem.is_empty() {
        return Ok(Vec::new());
    }
    let text = str::from_utf8(pem).map_err(|_| "a revocation list cannot be read: send PEM")?;
    let count = blocks(pem);
    if count > MAX_LISTS {
        return Err(format!(
            "{count} revocation lists, at most {MAX_LISTS} are accepted: remove some"
        ));
    }
    let (mut all, mut revoked) = (Vec::new(), 0);
    for block in text.split_inclusive("-----END X509 CRL-----") {
        if !block.contains("-----BEGIN") {
            continue;
        }
        let list = X509Crl::from_pem(block.as_bytes());
        let list = list.map_err(|_| "a revocation list cannot be read: send PEM")?;
        revoked += list.get_revoked().map_or(0, |entries| entries.len());
        if revoked > MAX_REVOKED {
            return Err(format!(
                "the lists revoke more than {MAX_REVOKED} certificates, the most that is accepted: remove expired entries, \
                 or check revocation where certificates are issued"
            ));
        }
        all.push(list);
    }
    Revocations::new(pem)?.check_entries()?;
    Ok(all)
}

/// A bundle as hosts and policies name it.
pub type Named = (BundleId, Bundle);

/// The certificates of a bundle as PEM again: each once, without the text around them, so that a record has no more bytes
/// than its certificates need, and equal certificates make one record.
pub fn normal_authorities(pem: &[u8]) -> Result<Named, String> {
    let all = authorities(pem)?;
    joined(all.iter().map(|certificate| certificate.to_pem()))
}

/// The revocation lists of a bundle as PEM again, as [`normal_authorities`]; `None`: the text is empty.
pub fn normal_revocations(pem: &[u8]) -> Result<Option<Named>, String> {
    let all = revocations(pem)?;
    match all.is_empty() {
        true => Ok(None),
        false => joined(all.iter().map(|list| list.to_pem())).map(Some),
    }
}

fn joined(
    all: impl Iterator<Item = Result<Vec<u8>, openssl::error::ErrorStack>>,
) -> Result<Named, String> {
    let mut seen = BTreeSet::new();
    let mut text = String::new();
    for pem in all {
        let pem = pem.ok().and_then(|pem| String::from_utf8(pem).ok()).ok_or("out of memory")?;
        if seen.insert(pem.clone()) {
            text.push_str(&pem);
        }
    }
    let bundle = Bundle::parse(text).map_err(|invalid| invalid.to_string())?;
    Ok((bundle_id(bundle.as_str()), bundle))
}

/// The id of a bundle.
pub fn bundle_id(text: &str) -> BundleId {
    BundleId::of_digest(openssl::sha::sha256(text.as_bytes()))
}

/// Checks a bundle of authorities or of revocation lists.
pub fn bundle(pem: &[u8]) -> Result<(), String> {
    let begin = b"-----BEGIN X509 CRL-----";
    match pem.windows(begin.len()).any(|window| window == begin) {
        true => revocations(pem).map(drop),
        false => authorities(pem).map(drop),
    }
}

/// Counts blocks of PEM, complete or not.
fn blocks(pem: &[u8]) -> usize {
    pem.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"-----BEGIN ")).count()
}

fn check_length(pem: &[u8]) -> Result<(), String> {
    match pem.len() > Bundle::MAX_BYTES {
        true => Err(format!("{} bytes of PEM, at most {} are taken", pem.len(), Bundle::MAX_BYTES)),
        false => Ok(()),
    }
}

impl Pair {
    /// Chain and key as PEM, without text around them.
    pub fn to_pem(&self) -> Result<(String, String), String> {
        let text = |pem: Result<Vec<u8>, openssl::error::ErrorStack>| {
            pem.ok().and_then(|pem| String::from_utf8(pem).ok()).ok_or("out of memory")
        };
        let all: Result<Vec<_>, _> = self.chain.iter().map(|one| text(one.to_pem())).collect();
        Ok((all?.concat(), text(self.key.private_key_to_pem_pkcs8())?))
    }
}

/// Why a chain and a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// The chain is no PEM certificates.
    #[error("a certificate of the chain cannot be read: send PEM")]
    Chain,
    /// The chain has no PEM block with a certificate.
    #[error("the chain has no certificate that can be read: send PEM")]
    NoCertificate,
    /// The chain is longer than [`MAX_CHAIN`]; this is its length.
    #[error("the chain has {0} certificates, at most {MAX_CHAIN} are taken: shorten it")]
    Length(usize),
    /// The key is no PEM, or has a passphrase.
    #[error("the private key cannot be read: send unencrypted PEM")]
    Key,
    /// OpenSSL does not know the kind of the certificate's key.
    #[error("the key in the certificate is of an unknown kind: use RSA or ECDSA")]
    PublicKey,
    /// The key does not belong to the certificate.
    #[error("the private key does not belong to the certificate: send the pair, the leaf first")]
    Mismatch,
    /// An RSA key whose number of bits is not accepted.
    #[error(
        "a private key of RSA and {0} bits is not accepted: use RSA of 2048 to 4096 bits or ECDSA"
    )]
    Bits(u32),
    /// The key is of an algorithm or curve that is not accepted.
    #[error("a private key of this kind is not accepted: use RSA, P-256, P-384, P-521 or Ed25519")]
    Kind,
}

/// A chain and its key, if they belong together and can be used for TLS.
pub fn pair(chain_pem: &[u8], key_pem: &[u8]) -> Result<Pair, PairError> {
    let chain = X509::stack_from_pem(chain_pem).map_err(|_| PairError::Chain)?;
    let leaf = chain.first().ok_or(PairError::NoCertificate)?;
    if chain.len() > MAX_CHAIN {
        return Err(PairError::Length(chain.len()));
    }
    // The empty passphrase keeps OpenSSL from prompting on a terminal.
    let key = PKey::private_key_from_pem_passphrase(key_pem, b"").map_err(|_| PairError::Key)?;
    check_strength(&key)?;
    let public = leaf.public_key().map_err(|_| PairError::PublicKey)?;
    match public.public_eq(&key) {
        true => Ok(Pair { chain, key }),
        false => Err(PairError::Mismatch),
    }
}

fn check_strength(key: &PKeyRef<Private>) -> Result<(), PairError> {
    let curves = [Nid::X9_62_PRIME256V1, Nid::SECP384R1, Nid::SECP521R1];
    let curve = || key.ec_key().ok()?.group().curve_name();
    match key.id() {
        Id::RSA | Id::RSA_PSS if RSA_BITS.contains(&key.bits()) => Ok(()),
        Id::RSA | Id::RSA_PSS => Err(PairError::Bits(key.bits())),
        Id::EC if curve().is_some_and(|curve| curves.contains(&curve)) => Ok(()),
        Id::ED25519 => Ok(()),
        _ => Err(PairError::Kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::bn::BigNum;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::rsa::RsaPrivateKeyBuilder;

    /// A key with the right length only, because generating a real one of 8192 bits costs seconds.
    fn rsa(bits: i32) -> PKey<Private> {
        let mut modulus = BigNum::from_u32(1).unwrap();
        modulus.set_bit(bits - 1).unwrap();
        let small = || BigNum::from_u32(65_537).unwrap();
        let key = RsaPrivateKeyBuilder::new(modulus, small(), small()).unwrap().build();
        PKey::from_rsa(key).unwrap()
    }

    fn ec(curve: Nid) -> PKey<Private> {
        let group = EcGroup::from_curve_name(curve).unwrap();
        PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
    }

    #[test]
    fn common_kinds_of_keys_are_taken() {
        let good = [
            rsa(2048),
            rsa(3072),
            rsa(4096),
            ec(Nid::X9_62_PRIME256V1),
            ec(Nid::SECP384R1),
            ec(Nid::SECP521R1),
            PKey::generate_ed25519().unwrap(),
        ];
        for key in good {
            assert_eq!(check_strength(&key), Ok(()), "{:?} of {} bits", key.id(), key.bits());
        }
        for bits in [1024, 2047, 4097, 8192] {
            assert_eq!(check_strength(&rsa(bits)), Err(PairError::Bits(bits as u32)));
        }
        for key in [ec(Nid::SECP256K1), PKey::generate_ed448().unwrap()] {
            assert_eq!(check_strength(&key), Err(PairError::Kind));
        }
    }

    #[test]
    fn a_list_without_a_known_cipher_is_refused() {
        for text in ["foo", "", "ALL:!ALL", "a\0b", ":::"] {
            assert!(cipher_list(text).is_err(), "{text:?}");
        }
        for text in ["ECDHE-RSA-AES128-GCM-SHA256", "HIGH:!aNULL", "foo:AES128-SHA256", "DEFAULT"] {
            assert_eq!(cipher_list(text), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn a_list_with_an_unknown_group_is_refused() {
        for text in ["foo", "", "auto", "X25519:foo", "a\0b", "1"] {
            assert!(groups(text).is_err(), "{text:?}");
        }
        for text in ["X25519", "P-256:X25519", "prime256v1"] {
            assert_eq!(groups(text), Ok(()), "{text:?}");
        }
    }

    fn certificate(key: &PKey<Private>) -> String {
        let mut builder = X509::builder().unwrap();
        builder.set_pubkey(key).unwrap();
        // Without dates OpenSSL writes what it does not read.
        let day = openssl::asn1::Asn1Time::from_unix(86_400).unwrap();
        builder.set_not_before(&day).unwrap();
        builder.set_not_after(&day).unwrap();
        builder.sign(key, openssl::hash::MessageDigest::sha256()).unwrap();
        String::from_utf8(builder.build().to_pem().unwrap()).unwrap()
    }

    /// An unsigned list: RFC 5280 §5.1.
    fn list(entries: usize) -> String {
        fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            [&[tag, 0x84], &length[..], content].concat()
        }
        let algorithm = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
        let time = b"\x17\x0d260101000000Z";
        let entry = |n: usize| {
            // DER writes numbers and their lengths without leading zeros; others are refused.
            let number = u32::try_from(n + (1 << 24)).unwrap().to_be_bytes();
            let serial = [&[2, 4][..], &number].concat();
            tagged(0x30, &[&serial[..], time].concat())
        };
        let revoked = tagged(0x30, &(0..entries).flat_map(entry).collect::<Vec<_>>());
        let body = [&b"\x02\x01\x01"[..], algorithm, b"\x30\x00", time, &revoked].concat();
        let all = [&tagged(0x30, &body)[..], algorithm, b"\x03\x02\x00\x00"].concat();
        let der = tagged(0x30, &all);
        let text = openssl::base64::encode_block(&der);
        let lines: Vec<_> =
            text.as_bytes().chunks(64).map(|l| str::from_utf8(l).unwrap()).collect();
        format!("-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n", lines.join("\n"))
    }

    #[test]
    fn a_bundle_has_so_many_certificates_and_entries_and_no_more() {
        let one = certificate(&ec(Nid::X9_62_PRIME256V1));
        assert_eq!(
            authorities(one.repeat(MAX_AUTHORITIES).as_bytes()).map(|all| all.len()),
            Ok(200)
        );
        let refused =
            authorities(one.repeat(MAX_AUTHORITIES + 1).as_bytes()).map(drop).unwrap_err();
        assert!(refused.contains("201 certificates, at most 200"), "{refused}");
        assert!(bundle(one.repeat(MAX_AUTHORITIES + 1).as_bytes()).is_err(), "the module's check");

        assert_eq!(revocations(list(MAX_REVOKED).as_bytes()).map(|all| all.len()), Ok(1));
        let both = list(MAX_REVOKED / 2) + &list(MAX_REVOKED / 2 + 1);
        for (text, why) in
            [(both, "more than 20000 certificates"), (list(1).repeat(201), "201 revocation lists")]
        {
            let refused = revocations(text.as_bytes()).map(drop).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            assert!(bundle(text.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_bundle_has_each_certificate_once_and_nothing_else() {
        let one = certificate(&ec(Nid::X9_62_PRIME256V1));
        let padding = "# a comment\n".repeat(80_000);
        let bundle = format!("{padding}{one}{one}");
        let (id, normal) = normal_authorities(bundle.as_bytes()).unwrap();
        assert_eq!(normal.as_str(), one);
        assert_eq!(normal_authorities(one.as_bytes()).unwrap().0, id);
        assert_eq!(normal_revocations(b""), Ok(None));
    }

    #[test]
    fn a_bundle_is_read_whole_or_refused() {
        assert!(authorities(b"").is_err() && authorities(b"no PEM").is_err());
        assert!(authorities(&vec![b' '; Bundle::MAX_BYTES + 1]).is_err());
        assert!(revocations(b"").is_ok_and(|all| all.is_empty()));
        for text in ["x", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"] {
            assert!(revocations(text.as_bytes()).is_err(), "{text}");
        }
    }
}
