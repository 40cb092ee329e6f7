//! Bundles: authorities or revocation lists that hosts and policies name, as PEM.

use crate::model::{Bundle, BundleId};
use crate::record::definition::{Checks, Fault, Record};

/// The kind of record that holds a bundle under the digest of its text. A host or policy whose bundle has no record is
/// closed.
pub enum Bundles {}

impl Record for Bundles {
    type Key = BundleId;
    type Value = Bundle;

    fn encode(_: &BundleId, bundle: &Bundle) -> Option<Vec<u8>> {
        Some(bundle.as_str().into())
    }

    /// Workers cache a parsed bundle by its id, so the id must be the digest of the text.
    fn validate(id: &[u8], pem: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        let text = str::from_utf8(pem).map_err(|_| Fault::new("", "this is no text: send PEM"))?;
        match checks.bundle_id(text).as_str().as_bytes() == id {
            true => checks.bundle(pem).map_err(|error| Fault::new("", error)),
            false => {
                Err(Fault::new("", "its key is not the SHA-256 of its text: send it under that"))
            }
        }
    }
}
