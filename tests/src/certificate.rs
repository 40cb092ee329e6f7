//! Certificates for tests, made on the spot: rcgen writes them, OpenSSL has the keys, so that tests bring no second
//! cryptographic library.

use anyhow::{Result, ensure};
use openssl::bn::BigNumContext;
use openssl::ec::{EcGroup, EcKey, PointConversionForm};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use openssl::x509::X509Ref;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyIdMethod, PublicKeyData,
    SerialNumber, SignatureAlgorithm, SigningKey,
};
use std::ops::Range;
use time::OffsetDateTime;

#[derive(Clone)]
pub struct Key {
    /// The pair as OpenSSL holds it.
    pub private: PKey<Private>,
    point: Vec<u8>,
}

impl Key {
    pub fn generate() -> Result<Self> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = EcKey::generate(&group)?;
        let (form, mut context) = (PointConversionForm::UNCOMPRESSED, BigNumContext::new()?);
        let point = key.public_key().to_bytes(&group, form, &mut context)?;
        Ok(Key { private: PKey::from_ec_key(key)?, point })
    }

    /// The private key as PKCS #8 in PEM.
    pub fn pem(&self) -> Result<String> {
        Ok(String::from_utf8(self.private.private_key_to_pem_pkcs8()?)?)
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signer = Signer::new(MessageDigest::sha256(), &self.private);
        let signature = signer.and_then(|mut signer| signer.sign_oneshot_to_vec(message));
        signature.map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// A moment some days from now; negative days are past.
pub fn day(days: i64) -> Result<OffsetDateTime> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok(OffsetDateTime::from_unix_timestamp(i64::try_from(now)? + days * 86_400)?)
}

/// What a certificate says: its common name, its subject alternative names, and its validity in days from now.
pub fn params(name: &str, hosts: &[&str], days: Range<i64>) -> Result<CertificateParams> {
    let mut params =
        CertificateParams::new(hosts.iter().map(|host| String::from(*host)).collect::<Vec<_>>())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (day(days.start)?, day(days.end)?);
    Ok(params)
}

/// The same for a certificate authority.
pub fn authority(name: &str, days: Range<i64>) -> Result<CertificateParams> {
    let mut params = params(name, &[], days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params)
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Issued {
    /// What it says, its serial number included.
    pub params: CertificateParams,
    pub pem: String,
    pub key: Key,
}

impl Issued {
    /// Makes a key and has `issuer` sign the certificate; without an issuer it signs itself.
    pub fn new(params: CertificateParams, issuer: Option<&Issued>) -> Result<Self> {
        Self::with_key(params, Key::generate()?, issuer)
    }

    /// As [`Self::new`], with a key that is there.
    pub fn with_key(
        mut params: CertificateParams,
        key: Key,
        issuer: Option<&Issued>,
    ) -> Result<Self> {
        let mut serial = [0; 16];
        openssl::rand::rand_bytes(&mut serial)?;
        // Positive, and of sixteen bytes: no leading zero is cut off.
        serial[0] = serial[0] & 0x3f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        if params.is_ca != IsCa::NoCa {
            let id = openssl::sha::sha1(&key.point);
            params.key_identifier_method = KeyIdMethod::PreSpecified(id.into());
        }
        let made = match issuer {
            None => params.self_signed(&key)?,
            Some(issuer) => params.signed_by(&key, &issuer.issuer())?,
        };
        Ok(Issued { pem: made.pem(), params, key })
    }

    /// What signs certificates and revocation lists in its name.
    pub fn issuer(&self) -> Issuer<'_, &Key> {
        Issuer::from_params(&self.params, &self.key)
    }

    pub fn serial(&self) -> Vec<u8> {
        self.params.serial_number.as_ref().map(SerialNumber::to_bytes).unwrap_or_default()
    }
}

/// A self-signed certificate. Its common name is the name that tests call it by, which need not be
/// one of the hosts it is valid for: so two certificates of one host can be told apart.
#[derive(Clone)]
pub struct Certificate {
    pub name: String,
    pub chain: String,
    /// The private key in PEM.
    pub key: String,
    /// Serial number in upper-case hex, as OpenSSL prints it.
    pub serial: String,
}

impl Certificate {
    /// Valid for `hosts`, from yesterday to 30 days on.
    pub fn new(name: &str, hosts: &[&str]) -> Result<Self> {
        let made = Issued::new(params(name, hosts, -1..30)?, None)?;
        Ok(Certificate {
            name: name.into(),
            key: made.key.pem()?,
            serial: made.serial().iter().map(|byte| format!("{byte:02X}")).collect(),
            chain: made.pem,
        })
    }
}

/// Adds the groups of a Kubernetes user, which are organisations, to a certificate.
pub fn add_groups(params: &mut CertificateParams, groups: &[&str]) -> Result<()> {
    // rcgen writes one attribute a type; the same type by its number is a second one.
    let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    ensure!(groups.len() <= types.len(), "at most {} groups: {groups:?}", types.len());
    for (kind, group) in types.into_iter().zip(groups) {
        params.distinguished_name.push(kind, *group);
    }
    Ok(())
}

/// The common name of a certificate; empty if it has none.
pub fn common_name(certificate: &X509Ref) -> String {
    let names = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
    names.filter_map(|entry| entry.data().to_string().ok()).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::x509::X509;

    #[test]
    fn a_certificate_is_known_by_its_common_name_and_valid_for_its_hosts() {
        let made = Certificate::new("second", &["shop.test", "*.shop.test"]).unwrap();
        let read = X509::from_pem(made.chain.as_bytes()).unwrap();
        assert_eq!(common_name(&read), "second");
        assert_eq!(read.subject_alt_names().unwrap().len(), 2);
        let serial = read.serial_number().to_bn().unwrap().to_hex_str().unwrap().to_string();
        assert_eq!(serial, made.serial);
        assert!(read.verify(&read.public_key().unwrap()).unwrap());
    }

    #[test]
    fn an_authority_signs_users_with_two_groups_and_no_more() {
        let root = Issued::new(authority("root", 0..2).unwrap(), None).unwrap();
        let mut user = params("user", &[], 0..2).unwrap();
        add_groups(&mut user, &["one", "two"]).unwrap();
        assert!(add_groups(&mut user.clone(), &["one", "two", "three"]).is_err());
        let user = Issued::new(user, Some(&root)).unwrap();
        let (root, user) =
            [&root, &user].map(|made| X509::from_pem(made.pem.as_bytes()).unwrap()).into();
        assert!(user.verify(&root.public_key().unwrap()).unwrap());
        assert_eq!(root.issued(&user), openssl::x509::X509VerifyResult::OK);
        assert_eq!(user.subject_name().entries_by_nid(Nid::ORGANIZATIONNAME).count(), 2);
    }
}
