//! Which certificate a host gets.
//!
//! Source:  ingress-nginx's controller. The oldest Ingress of the host that has a tls section decides, also
//!          when what it names cannot be used: then the default certificate is shown, and the host still
//!          counts as one with a certificate, so the redirect to HTTPS stays on.

use crate::Options;
use crate::host::owner::Owner;
use oxigress_core::model::{CertificateId, HostPattern};
use oxigress_objects::ingress::Tls;
use oxigress_objects::secret::{Offer, Pair};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, ObjectRef, World};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What becomes of one host.
#[derive(Debug, Default)]
pub struct Chosen {
    /// None: no Ingress of the host has a tls section.
    pub certificate: Option<CertificateId>,
    /// The Secrets that were looked at: a change of any may change the choice.
    pub secrets: BTreeSet<Key>,
    /// What there is to say.
    pub notes: Vec<(ObjectRef, Note)>,
}

impl Chosen {
    /// For a host that follows another: a certificate that is not for it would be nobody's wish.
    pub fn restrict_to_valid(&mut self) {
        if !self.notes.is_empty() {
            self.certificate = None;
            self.notes.clear();
        }
    }
}

/// As the Ingresses say whose settings hold for the host.
pub fn choose(world: &World, options: &Options, host: &HostPattern, owner: &Owner<'_>) -> Chosen {
    let mut chosen = Chosen::default();
    // Handshakes without a known name always get the default certificate.
    let with_tls = owner.settings().find(|(_, settings)| !settings.tls.is_empty());
    let (Some((by, settings)), false) = (with_tls, *host == HostPattern::default_host()) else {
        return chosen;
    };
    let result = secret_of(world, host, &by.key, &settings.tls, &mut chosen.secrets);
    chosen.certificate = Some(match result {
        Ok(id) => id,
        Err(why) => {
            let message = format!("spec.tls: host {host} gets the default certificate: {why}");
            let object = ObjectRef::new(Kind::Ingress, by.key.clone());
            let absent = chosen.secrets.iter().find(|key| !world.secrets.contains_key(*key));
            let cause = absent.map(|key| ObjectRef::new(Kind::Secret, key.clone()));
            chosen.notes.push((object, Note { cause, ..Note::warning(message) }));
            chosen.secrets.extend(options.default_ssl_certificate.clone());
            default_id(world, options)
        }
    });
    chosen
}

/// Stands for a host without a certificate below a wildcard that has one which is not for it.
pub fn none() -> CertificateId {
    CertificateId::parse(CertificateId::NONE)
        .unwrap_or_else(|_| unreachable!("a fixed text is a valid id"))
}

fn secret_of(
    world: &World,
    host: &HostPattern,
    by: &Key,
    all: &[Tls],
    looked_at: &mut BTreeSet<Key>,
) -> Result<CertificateId, String> {
    let host = host.as_str();
    let key_of = |secret: &str| Key::new(&by.namespace, secret);
    let names_host = |names: &Vec<String>| names.iter().any(|n| n.trim_end_matches('.') == host);
    if let Some(tls) = all.iter().find(|tls| names_host(&tls.hosts)) {
        if tls.secret.is_empty() {
            return Err("its secretName is empty: name a Secret".into());
        }
        let key = key_of(&tls.secret);
        looked_at.insert(key.clone());
        let pair = usable(world, &key)?;
        if !pair.is_valid_for(host) {
            let names: Vec<_> = pair.names.iter().take(10).map(String::as_str).collect();
            return Err(format!(
                "the certificate of Secret {key} is valid for [{}] only: replace it",
                names.join(", ")
            ));
        }
        return id_of(&key);
    }
    for tls in all.iter().filter(|tls| !tls.secret.is_empty()) {
        let key = key_of(&tls.secret);
        looked_at.insert(key.clone());
        if usable(world, &key).is_ok_and(|pair| pair.is_valid_for(host)) {
            return id_of(&key);
        }
    }
    Err("no spec.tls entry lists the host, and no listed certificate is valid for it: add the host to an entry".into())
}

fn usable<'w>(world: &'w World, key: &Key) -> Result<&'w Arc<Pair>, String> {
    let history = world.secrets.get(key);
    let history = history.ok_or_else(|| format!("Secret {key} does not exist: create it"))?;
    match (&history.last_good, &history.secret.offer) {
        (Some(pair), _) => Ok(pair),
        (None, Offer::Unusable(why)) => Err(format!("Secret {key}: {why}")),
        (None, _) => Err(format!("Secret {key} has no tls.crt and tls.key: add them")),
    }
}

fn id_of(secret: &Key) -> Result<CertificateId, String> {
    CertificateId::parse(secret.to_string()).map_err(|why| why.to_string())
}

/// The Secret behind a certificate id.
pub fn secret_behind(id: &CertificateId) -> Option<Key> {
    Key::parse(id.as_str())
}

/// The id of the default certificate: the operator's, else one that does not exist, which leaves nginx's
/// static self-signed one.
pub fn default_id(world: &World, options: &Options) -> CertificateId {
    default_certificate(world, options).unwrap_or_else(self_signed)
}

/// The id of the operator's default certificate, if it can be used.
pub fn default_certificate(world: &World, options: &Options) -> Option<CertificateId> {
    let key = options.default_ssl_certificate.as_ref()?;
    usable(world, key).ok()?;
    id_of(key).ok()
}

fn self_signed() -> CertificateId {
    CertificateId::parse("self-signed")
        .unwrap_or_else(|_| unreachable!("a fixed text is a valid id"))
}

/// What there is to say about a Secret that somebody refers to.
pub fn notes_on(world: &World, key: &Key, is_default: bool) -> Vec<(ObjectRef, Note)> {
    let note = match world.secrets.get(key) {
        None if is_default => Note::rejected(
            "does not exist, but --default-ssl-certificate names it: create it, until then a \
             self-signed certificate is served",
        ),
        None => return Vec::new(),
        Some(history) => match (&history.secret.offer, &history.last_good) {
            (Offer::Usable(_), _) => return Vec::new(),
            (Offer::Unusable(why), Some(_)) => {
                Note::rejected(format!("{why}; the previous certificate is served until then"))
            }
            (Offer::WithoutPair, Some(_)) => Note::rejected(
                "tls.crt and tls.key are gone: add them, the previous certificate is served until \
                 then",
            ),
            (Offer::Unusable(why), None) => Note::rejected(why.clone()),
            (Offer::WithoutPair, None) => {
                Note::rejected("has no tls.crt and tls.key, but a tls section names it: add them")
            }
        },
    };
    vec![(ObjectRef::new(Kind::Secret, key.clone()), note)]
}
