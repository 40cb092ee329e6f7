//! What a kind of record is made of: its key, its value, its bytes, its closed form and its checks.

use crate::model::BundleId;
use serde::de::DeserializeOwned;
use std::fmt;

/// What is particular to a kind of record.
pub trait Record {
    /// Identifies a record within its table.
    type Key: Ord + Clone + fmt::Display + TryFrom<String, Error: fmt::Display>;
    /// The model of a record.
    type Value: Clone + PartialEq + DeserializeOwned;
    /// The name in the counts of `GET /configuration`, for a kind that is not counted by the name of its table.
    const COUNTED_AS: Option<&'static str> = None;

    /// The bytes of a record; `None` for a record that is encoded together with another one.
    fn encode(key: &Self::Key, value: &Self::Value) -> Option<Vec<u8>>;

    /// The value that replaces a withheld record so that nothing opens without it. `None`: the absence of the record closes
    /// whatever names it.
    fn closed() -> Option<Self::Value> {
        None
    }

    /// Checks the bytes of a record beyond its types.
    fn validate(_key: &[u8], _value: &[u8], _checks: &dyn Checks) -> Result<(), Fault> {
        Ok(())
    }
}

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
