//! `POST /configuration/servers`: certificates and the hosts that use them.

use crate::model::{Certificate, CertificateId, HostPattern, Invalid, MAX_PEM_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

crate::model::object::objects!(Servers);

/// The body of `POST /configuration/servers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct Servers {
    /// PEM by uid: leaf, chain, private key.
    #[serde(deserialize_with = "crate::wire::unique_map")]
    pub certificates: BTreeMap<CertificateId, Pem>,
    /// Uid by host; [`Servers::NO_CERTIFICATE`] for a host that has none.
    #[serde(deserialize_with = "crate::wire::unique_map")]
    pub servers: BTreeMap<String, CertificateId>,
}

impl Servers {
    /// The uid of a host without a certificate.
    pub const NO_CERTIFICATE: &'static str = "-1";

    /// Certificates and the names that use them. Hosts that are no DNS names (regular expressions among
    /// server aliases) are left out and returned apart.
    #[allow(clippy::type_complexity, reason = "three parts, named here")]
    pub fn into_model(
        self,
    ) -> (BTreeMap<CertificateId, Certificate>, BTreeMap<HostPattern, CertificateId>, Vec<String>)
    {
        let certificates = self.certificates.into_iter().map(|(id, pem)| (id, pem.0)).collect();
        let mut names = BTreeMap::new();
        let mut left_out = Vec::new();
        for (host, id) in self.servers {
            match HostPattern::parse(&host) {
                _ if id.as_str() == Self::NO_CERTIFICATE => {}
                Ok(name) => drop(names.insert(name, id)),
                Err(_) => left_out.push(host),
            }
        }
        (certificates, names, left_out)
    }
}

/// A certificate chain and its key in one PEM text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pem(pub Certificate);

impl TryFrom<String> for Pem {
    type Error = Invalid;

    /// Splits at the PEM blocks (RFC 7468); the one whose label ends in `PRIVATE KEY` is the key.
    fn try_from(text: String) -> Result<Self, Invalid> {
        if text.len() > 2 * MAX_PEM_BYTES {
            return Err(Invalid::new(format!("{} bytes of PEM: too long", text.len())));
        }
        let (mut chain, mut key, mut block, mut label) =
            (String::new(), String::new(), String::new(), None);
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("-----BEGIN ") {
                label = Some(rest.trim_end_matches('-').to_owned());
                block.clear();
            }
            if label.is_some() {
                block.push_str(line);
                block.push('\n');
            }
            if line.starts_with("-----END ") {
                match label.take() {
                    Some(label) if label.ends_with("PRIVATE KEY") => key.push_str(&block),
                    Some(label) if label.ends_with("CERTIFICATE") => chain.push_str(&block),
                    _ => {}
                }
            }
        }
        if chain.is_empty() || key.is_empty() {
            return Err(Invalid::new("PEM text needs a CERTIFICATE and a PRIVATE KEY block"));
        }
        Ok(Pem(Certificate { chain, key }))
    }
}

impl From<Pem> for String {
    fn from(Pem(Certificate { chain, key }): Pem) -> String {
        chain + &key
    }
}
