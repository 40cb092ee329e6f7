//! How a host speaks TLS, as JSON: during a handshake there is no rule yet. Below are the other
//! records of a handshake: certificates, the server names that have one, and bundles of authorities
//! or revocation lists.

pub(super) mod bundle;
pub(super) mod certificate;
pub(super) mod name;

use super::definition::Record;
use super::definition::{Checks, Fault};
use super::{check_json, decode_json, encode_json};
use crate::model::HostPattern;
use crate::model::policy::TlsPolicy;
use crate::text::template::Part;

/// The kind of record that holds the TLS policy of a host, for TLS server names and for the hosts of requests.
pub enum TlsPolicies {}

impl Record for TlsPolicies {
    type Key = HostPattern;
    type Value = TlsPolicy;

    fn encode(_: &HostPattern, policy: &TlsPolicy) -> Option<Vec<u8>> {
        Some(encode_json(policy))
    }

    fn closed() -> Option<TlsPolicy> {
        Some(TlsPolicy { denied: true, ..TlsPolicy::default() })
    }

    fn validate(_: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        check_json(value, "this is no policy", |policy| check_tls_policy(policy, checks))
    }
}

/// The [`TlsPolicy`] of a record; `None` for damaged bytes.
pub fn decode_tls(value: &[u8]) -> Option<TlsPolicy> {
    decode_json(value)
}

/// Checks a policy, except for its patterns: the translation compiles these under a budget, and the module on a thread
/// ([`crate::wire::patterns`]).
pub fn check_tls_policy(policy: &TlsPolicy, checks: &dyn Checks) -> Result<(), Fault> {
    if let Some(ciphers) = &policy.ciphers {
        let checked = checks.cipher_list(ciphers.as_str());
        checked.map_err(|error| Fault::new("/ciphers", error))?;
    }
    let Some(client) = &policy.client else { return Ok(()) };
    // A client that could influence the path could get around the certificate.
    let is_variable = |part| !matches!(part, Part::Literal(_));
    if let Some(page) = &client.error_page
        && page.as_str().starts_with('/')
        && page.parts().any(is_variable)
    {
        let error = "the path of an error page has no variables: send a URL or a plain path";
        return Err(Fault::new("/client/error_page", error));
    }
    Ok(())
}
