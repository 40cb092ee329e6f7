//! The checks of records that need OpenSSL.

use crate::tls;
use oxigress_core::model::BundleId;
use oxigress_core::model::policy::{Policies, TlsPolicy};
use oxigress_core::record::{self, Checks, Fault, Kind};

/// The [`Checks`] of both programs.
pub struct OpenSsl;

impl Checks for OpenSsl {
    fn pair(&self, chain: &[u8], key: &[u8]) -> Result<(), String> {
        tls::pair(chain, key).map(drop).map_err(|error| error.to_string())
    }

    fn cipher_list(&self, text: &str) -> Result<(), String> {
        tls::cipher_list(text)
    }

    fn protocol(&self, word: &str) -> Result<(), String> {
        tls::protocol(word)
    }

    fn bundle(&self, pem: &[u8]) -> Result<(), String> {
        tls::bundle(pem)
    }

    fn bundle_id(&self, text: &str) -> BundleId {
        tls::bundle_id(text)
    }
}

/// Checks the bytes of a record beyond its types.
pub fn check(kind: Kind, key: &[u8], value: &[u8]) -> Result<(), Fault> {
    record::check(kind, key, value, &OpenSsl)
}

/// Checks how a host speaks TLS, except for its patterns, which are compiled elsewhere.
pub fn tls_policy(policy: &TlsPolicy) -> Result<(), Fault> {
    record::check_tls_policy(policy, &OpenSsl)
}

/// Checks the policies of rules.
pub fn policies(policies: &Policies) -> Result<(), Fault> {
    record::check_policies(policies, &OpenSsl)
}
