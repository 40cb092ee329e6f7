//! Certificates for tests, made on the spot.

use anyhow::Result;
use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder, X509Ref};

/// A self-signed P-256 certificate. Its common name is the name that tests call it by, which need not be
/// one of the hosts it is valid for: so two certificates of one host can be told apart.
#[derive(Clone)]
pub struct Certificate {
    /// Common name.
    pub name: String,
    /// The chain, PEM.
    pub chain: String,
    /// The private key, PEM.
    pub key: String,
    /// Serial number in upper-case hex, as OpenSSL prints it.
    pub serial: String,
}

impl Certificate {
    /// Valid for `hosts`, from yesterday to 30 days on.
    pub fn new(name: &str, hosts: &[&str]) -> Result<Self> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
        let mut subject = X509NameBuilder::new()?;
        subject.append_entry_by_nid(Nid::COMMONNAME, name)?;
        let subject = subject.build();
        let mut serial = BigNum::new()?;
        serial.rand(127, MsbOption::ONE, false)?;

        let mut builder = X509::builder()?;
        builder.set_version(2)?;
        builder.set_serial_number(Asn1Integer::from_bn(&serial)?.as_ref())?;
        builder.set_subject_name(&subject)?;
        builder.set_issuer_name(&subject)?;
        builder.set_pubkey(&key)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
        let yesterday = i64::try_from(now)? - 86_400;
        builder.set_not_before(Asn1Time::from_unix(yesterday)?.as_ref())?;
        builder.set_not_after(Asn1Time::days_from_now(30)?.as_ref())?;
        if !hosts.is_empty() {
            let mut names = SubjectAlternativeName::new();
            for host in hosts {
                names.dns(host);
            }
            let names = names.build(&builder.x509v3_context(None, None))?;
            builder.append_extension(names)?;
        }
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Certificate {
            name: name.into(),
            chain: String::from_utf8(builder.build().to_pem()?)?,
            key: String::from_utf8(key.private_key_to_pem_pkcs8()?)?,
            serial: serial.to_hex_str()?.to_string(),
        })
    }
}

/// The common name of a certificate; empty if it has none.
pub fn common_name(certificate: &X509Ref) -> String {
    let names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    names.filter_map(|entry| entry.data().to_string().ok()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_known_by_its_common_name_and_valid_for_its_hosts() {
        let made = Certificate::new("second", &["shop.test", "*.shop.test"]).unwrap();
        let read = X509::from_pem(made.chain.as_bytes()).unwrap();
        assert_eq!(common_name(&read), "second");
        assert_eq!(read.subject_alt_names().unwrap().len(), 2);
    }
}
