//! Who may say what to the API server: an authority, the server's certificate, users' certificates and kubeconfigs.

use anyhow::Result;
use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::base64::encode_block;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509NameBuilder};
use serde_json::{Value, json};

/// A certificate with its key.
pub struct Credential {
    certificate: X509,
    key: PKey<Private>,
}

/// What a certificate is for.
pub enum Purpose<'p> {
    /// Signing the others.
    Authority,
    /// The API server on loopback.
    Server,
    /// A user of these groups: Kubernetes reads the common name and the organisations.
    User(&'p [&'p str]),
}

impl Credential {
    /// A new one, signed by `authority` or, without one, by itself.
    pub fn new(name: &str, purpose: &Purpose<'_>, authority: Option<&Credential>) -> Result<Self> {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
        let key = PKey::from_ec_key(EcKey::generate(&group)?)?;
        let mut subject = X509NameBuilder::new()?;
        subject.append_entry_by_nid(Nid::COMMONNAME, name)?;
        if let Purpose::User(groups) = purpose {
            for group in *groups {
                subject.append_entry_by_nid(Nid::ORGANIZATIONNAME, group)?;
            }
        }
        let subject = subject.build();
        let mut serial = BigNum::new()?;
        serial.rand(127, MsbOption::ONE, false)?;

        let mut builder = X509::builder()?;
        builder.set_version(2)?;
        builder.set_serial_number(Asn1Integer::from_bn(&serial)?.as_ref())?;
        builder.set_subject_name(&subject)?;
        builder.set_issuer_name(authority.map_or(&subject, |a| a.certificate.subject_name()))?;
        builder.set_pubkey(&key)?;
        builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
        builder.set_not_after(Asn1Time::days_from_now(2)?.as_ref())?;
        match purpose {
            Purpose::Authority => {
                builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
            }
            Purpose::Server => {
                let mut names = SubjectAlternativeName::new();
                names.ip("127.0.0.1").dns("localhost").dns("kubernetes.default.svc");
                let issuer = authority.map(|authority| authority.certificate.as_ref());
                let names = names.build(&builder.x509v3_context(issuer, None))?;
                builder.append_extension(names)?;
            }
            Purpose::User(_) => {}
        }
        builder
            .sign(authority.map_or(&key, |authority| &authority.key), MessageDigest::sha256())?;
        Ok(Credential { certificate: builder.build(), key })
    }

    /// The certificate, PEM.
    pub fn certificate(&self) -> Result<Vec<u8>> {
        Ok(self.certificate.to_pem()?)
    }

    /// The key, PEM.
    pub fn key(&self) -> Result<Vec<u8>> {
        Ok(self.key.private_key_to_pem_pkcs8()?)
    }
}

/// A kubeconfig of this user; JSON is YAML, too.
pub fn kubeconfig(server: &str, authority: &Credential, user: &Credential) -> Result<Value> {
    let named = |key: &str, value: Value| json!([{"name": "test", key: value}]);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", json!({
            "server": server,
            "certificate-authority-data": encode_block(&authority.certificate()?),
        })),
        "users": named("user", json!({
            "client-certificate-data": encode_block(&user.certificate()?),
            "client-key-data": encode_block(&user.key()?),
        })),
        "contexts": named("context", json!({"cluster": "test", "user": "test"})),
        "current-context": "test",
    }))
}
