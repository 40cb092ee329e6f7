//! Secrets: a certificate and its key, checked when they arrive, and what annotations look for.
//!
//! Errors:  a text that names the field and the remedy, never a part of the key.
//! Source:  ingress-nginx's controller for what is usable; the limits are ours.

use openssl::asn1::Asn1Time;
use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::x509::X509;
use oxigress_core::model::MAX_PEM_BYTES;
use oxigress_validate::tls::{self, Named, PairError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

const MAX_NAMES: usize = 1_000;

/// A Secret as translate reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The key pair in `tls.crt` and `tls.key`, usable or not.
    pub offer: Offer,
    /// All other fields, by name.
    pub fields: Arc<Fields>,
}

/// The fields of a Secret that are no pair: password files, authorities.
#[derive(Clone, Default)]
pub struct Fields {
    all: BTreeMap<String, Vec<u8>>,
    /// Read once, however many Ingresses name the Secret.
    authorities: OnceLock<Result<Named, String>>,
    revocations: OnceLock<Result<Option<Named>, String>>,
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        // The rest follows from the fields.
        self.all == other.all
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Fields {
    /// Takes the fields of a Secret over.
    pub fn new(all: BTreeMap<String, Vec<u8>>) -> Self {
        Fields { all, ..Fields::default() }
    }

    /// The names of the fields, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// Whether there is a field of this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// How many bytes the fields have, names included.
    pub fn bytes(&self) -> usize {
        self.all.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The text of a field; `None` also if it is no text.
    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.all.get(name)?).ok()
    }

    /// The certificates of `ca.crt`. An error names the field.
    pub fn authorities(&self) -> Result<Named, String> {
        let read = || tls::normal_authorities(self.pem("ca.crt")?.as_bytes());
        let named = self.authorities.get_or_init(read).clone();
        named.map_err(|error| format!("ca.crt: {error}"))
    }

    /// The revocation lists of `ca.crl`, if there is such a field.
    pub fn revocations(&self) -> Result<Option<Named>, String> {
        let read = || tls::normal_revocations(self.pem("ca.crl")?.as_bytes());
        let named = self.revocations.get_or_init(read).clone();
        named.map_err(|error| format!("ca.crl: {error}"))
    }

    fn pem(&self, name: &str) -> Result<&str, String> {
        match (self.has(name), self.text(name)) {
            (false, _) => Ok(""),
            (true, Some(text)) => Ok(text),
            (true, None) => Err("it is no text: send PEM".into()),
        }
    }
}

impl Secret {
    /// The pair, if it can be served.
    pub fn pair(&self) -> Option<&Arc<Pair>> {
        self.offer.pair()
    }
}

/// What a Secret offers to TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// No `tls.crt` and no `tls.key`: some other kind of Secret, which is nobody's mistake.
    WithoutPair,
    /// A pair that cannot be served, and why.
    Unusable(String),
    /// A pair that can be served.
    Usable(Arc<Pair>),
}

impl Offer {
    /// Checks the two fields of a Secret.
    pub fn of(certificate: Option<&[u8]>, key: Option<&[u8]>) -> Offer {
        match (certificate, key) {
            (None, None) => Offer::WithoutPair,
            (Some(_), None) => Offer::Unusable("tls.key is missing: add the private key".into()),
            (None, Some(_)) => Offer::Unusable("tls.crt is missing: add the certificate".into()),
            (Some(certificate), Some(key)) => match Pair::parse(certificate, key) {
                Ok(pair) => Offer::Usable(Arc::new(pair)),
                Err(why) => Offer::Unusable(why),
            },
        }
    }

    /// The pair, if it can be served.
    pub fn pair(&self) -> Option<&Arc<Pair>> {
        match self {
            Offer::Usable(pair) => Some(pair),
            _ => None,
        }
    }
}

/// A certificate chain and the key of its leaf, which belong together.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The chain as PEM, the leaf first.
    pub chain: String,
    /// The private key as PEM. It is never printed.
    pub key: String,
    /// Lower-case DNS names: the alternative names, or the common name if there are none.
    pub names: BTreeSet<String>,
    /// What is told about it.
    pub leaf: Leaf,
}

/// Facts about a certificate, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// When it expires, in seconds since 1970.
    pub expires: i64,
    /// The serial number of the leaf, decimal.
    pub serial: String,
    /// The serial number in the issuer's name.
    pub issuer_serial: String,
    /// The organization in the issuer's name.
    pub issuer_organization: String,
    /// The common name in the issuer's name.
    pub issuer_common_name: String,
    /// The algorithm of the public key, as Go names it.
    pub algorithm: &'static str,
}

impl Leaf {
    fn of(leaf: &X509) -> Leaf {
        let of_issuer = |nid| {
            let mut entries = leaf.issuer_name().entries_by_nid(nid);
            let text = entries.next().and_then(|entry| entry.data().to_string().ok());
            text.unwrap_or_default()
        };
        let since_1970 = Asn1Time::from_unix(0).and_then(|start| start.diff(leaf.not_after()));
        let serial = leaf.serial_number().to_bn().and_then(|number| number.to_dec_str());
        Leaf {
            expires: since_1970.map_or(0, |d| i64::from(d.days) * 86_400 + i64::from(d.secs)),
            serial: serial.map(|text| text.to_string()).unwrap_or_default(),
            issuer_serial: of_issuer(Nid::SERIALNUMBER),
            issuer_organization: of_issuer(Nid::ORGANIZATIONNAME),
            issuer_common_name: of_issuer(Nid::COMMONNAME),
            algorithm: match leaf.public_key().map(|key| key.id()) {
                Ok(Id::RSA | Id::RSA_PSS) => "RSA",
                Ok(Id::EC) => "ECDSA",
                Ok(Id::ED25519) => "Ed25519",
                _ => "",
            },
        }
    }

    /// What tells it from its successor.
    pub fn identifier(&self) -> String {
        format!("{}-{}", self.issuer_serial, self.serial)
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("names", &self.names).finish_non_exhaustive()
    }
}

impl Pair {
    /// Refuses what nginx could not serve.
    pub fn parse(certificate: &[u8], key: &[u8]) -> Result<Pair, String> {
        for (field, value) in [("tls.crt", certificate), ("tls.key", key)] {
            if value.len() > MAX_PEM_BYTES {
                return Err(format!(
                    "{field} has {} bytes, at most {MAX_PEM_BYTES} are taken: shorten the chain",
                    value.len()
                ));
            }
        }
        let pair = tls::pair(certificate, key).map_err(|error| explain(&error))?;
        let Some(leaf) = pair.chain.first() else { return Err(explain(&PairError::NoCertificate)) };
        let names = names_of(leaf);
        if names.len() > MAX_NAMES {
            return Err(format!(
                "tls.crt names {} hosts, at most {MAX_NAMES} are taken: split it",
                names.len()
            ));
        }
        let leaf = Leaf::of(leaf);
        // Written anew: what stands around certificates and key takes no memory of nginx's.
        let (chain, key) = pair.to_pem()?;
        if chain.len() > MAX_PEM_BYTES {
            return Err("tls.crt is too long: shorten the chain".into());
        }
        Ok(Pair { chain, key, names, leaf })
    }

    /// Whether the certificate may be shown to clients of `host`, which is lower-case and may be a
    /// wildcard itself.
    pub fn is_valid_for(&self, host: &str) -> bool {
        self.names.contains(host)
            || host.split_once('.').is_some_and(|(_, parent)| {
                !parent.is_empty() && self.names.contains(&format!("*.{parent}"))
            })
    }
}

fn names_of(leaf: &X509) -> BTreeSet<String> {
    let normal = |name: &str| name.trim_end_matches('.').to_ascii_lowercase();
    // Alternative names of any kind switch the common name off (RFC 6125 §6.4.4).
    if let Some(alternatives) = leaf.subject_alt_names() {
        return alternatives.iter().filter_map(|name| name.dnsname()).map(normal).collect();
    }
    let mut common = leaf.subject_name().entries_by_nid(Nid::COMMONNAME);
    let common = common.next().and_then(|entry| entry.data().to_string().ok());
    common.iter().map(|name| normal(name)).collect()
}

/// Names the field of the Secret.
fn explain(error: &PairError) -> String {
    match error {
        PairError::Chain => "tls.crt is not PEM certificates: replace it".into(),
        PairError::NoCertificate => "tls.crt holds no certificate: replace it".into(),
        PairError::Length(count) => format!(
            "tls.crt holds {count} certificates, at most {} are taken: leave out the rest",
            tls::MAX_CHAIN
        ),
        PairError::Key => "tls.key is not an unencrypted PEM private key: replace it".into(),
        PairError::PublicKey => "the key in tls.crt is of an unknown kind: use RSA or ECDSA".into(),
        PairError::Mismatch => {
            "tls.key does not match the first certificate of tls.crt: put the leaf \
                                first, or replace the one that is of another pair"
                .into()
        }
        PairError::Bits(bits) => format!(
            "tls.key is RSA of {bits} bits: use {} to {}, or ECDSA",
            tls::RSA_BITS.start(),
            tls::RSA_BITS.end()
        ),
        PairError::Kind => {
            "tls.key is of an unknown kind: use RSA, P-256, P-384, P-521 or Ed25519".into()
        }
    }
}
