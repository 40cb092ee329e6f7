//! Checks of a record's content beyond its types.

use super::table::{Kind, Operations};
use crate::model::BundleId;

/// Why a record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The JSON pointer of the field, relative to the record; empty for the whole record.
    pub field: &'static str,
    /// The problem and its remedy, never with a part of a key.
    pub error: String,
}

impl Fault {
    /// A fault of a field.
    pub fn new(field: &'static str, error: impl Into<String>) -> Self {
        Fault { field, error: error.into() }
    }
}

/// The checks that need a TLS library. `oxigress-validate` implements them with OpenSSL, for the controller and for the
/// module, so that both accept the same records. Errors name the remedy.
pub trait Checks {
    /// Whether a PEM chain and a key belong together and can be used.
    fn pair(&self, chain: &[u8], key: &[u8]) -> Result<(), String>;
    /// Whether a cipher list has a known cipher.
    fn cipher_list(&self, text: &str) -> Result<(), String>;
    /// Whether a word is a TLS version for connections to endpoints.
    fn protocol(&self, word: &str) -> Result<(), String>;
    /// Whether the certificates or revocation lists of a bundle can be used.
    fn bundle(&self, pem: &[u8]) -> Result<(), String>;
    /// The id under which a bundle is stored.
    fn bundle_id(&self, text: &str) -> BundleId;
}

/// Checks the key and the value of a record of any kind.
pub fn check(kind: Kind, key: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
    Operations::of_kind(kind).map_or(Ok(()), |table| (table.validate)(key, value, checks))
}
