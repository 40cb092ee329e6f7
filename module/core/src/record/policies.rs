//! Policies of rules, as JSON: a worker reads a record once and keeps the compiled form.

use super::definition::Record;
use super::definition::{Checks, Fault};
use super::encode_json;
use crate::model::policy::{Policies, PolicyId, UpstreamTls};

/// The kind of record that holds policies. A rule whose policies have no record answers 503.
pub enum PolicySets {}

impl Record for PolicySets {
    type Key = PolicyId;
    type Value = Policies;

    fn encode(_: &PolicyId, policies: &Policies) -> Option<Vec<u8>> {
        Some(encode_json(policies))
    }

    fn validate(_: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        match decode_policies(value) {
            Some(policies) => check_policies(&policies, checks),
            None => Err(Fault::new("", "these are no policies")),
        }
    }
}

/// [`Policies`] of a record; `None` for damaged bytes.
pub fn decode_policies(value: &[u8]) -> Option<Policies> {
    serde_json::from_slice(value).ok()
}

/// Checks the TLS settings toward endpoints.
pub fn check_policies(policies: &Policies, checks: &dyn Checks) -> Result<(), Fault> {
    let proxy = policies.proxy.as_ref();
    proxy.and_then(|proxy| proxy.tls.as_ref()).map_or(Ok(()), |tls| check_upstream_tls(tls, checks))
}

fn check_upstream_tls(tls: &UpstreamTls, checks: &dyn Checks) -> Result<(), Fault> {
    for word in &tls.protocols {
        checks.protocol(word).map_err(|error| Fault::new("/proxy/tls/protocols", error))?;
    }
    if let Some(ciphers) = &tls.ciphers {
        let checked = checks.cipher_list(ciphers.as_str());
        checked.map_err(|error| Fault::new("/proxy/tls/ciphers", error))?;
    }
    if !tls.certificate.is_empty() || !tls.key.is_empty() {
        let checked = checks.pair(tls.certificate.as_bytes(), tls.key.as_bytes());
        checked.map_err(|error| Fault::new("/proxy/tls/certificate", error))?;
    }
    Ok(())
}
