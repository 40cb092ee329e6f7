//! Certificate chains with their keys.
//!
//! Layout: the length of the chain (`u32`), the chain, the key; both PEM.

use crate::model::{Certificate, CertificateId};
use crate::record::definition::{Checks, Fault, Record};
use crate::record::length;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// The kind of record that holds a certificate with its key.
pub enum Certificates {}

impl Record for Certificates {
    type Key = CertificateId;
    type Value = Certificate;

    fn encode(_: &CertificateId, certificate: &Certificate) -> Option<Vec<u8>> {
        let length = length(certificate.chain.len()).to_le_bytes();
        Some([&length[..], certificate.chain.as_bytes(), certificate.key.as_bytes()].concat())
    }

    fn validate(_: &[u8], value: &[u8], checks: &dyn Checks) -> Result<(), Fault> {
        let view = CertificateView(value);
        let (chain, key) = (view.chain().unwrap_or_default(), view.key().unwrap_or_default());
        checks.pair(chain, key).map_err(|error| Fault::new("", error))
    }
}

/// A [`Certificate`] that is read in place.
#[derive(Clone, Copy)]
pub struct CertificateView<'g>(pub &'g [u8]);

impl<'g> CertificateView<'g> {
    /// The chain as PEM: the leaf first, then intermediates.
    pub fn chain(&self) -> Option<&'g [u8]> {
        self.parts().map(|(chain, _)| chain)
    }

    /// The private key of the leaf as PEM.
    pub fn key(&self) -> Option<&'g [u8]> {
        self.parts().map(|(_, key)| key)
    }

    fn parts(&self) -> Option<(&'g [u8], &'g [u8])> {
        let (bytes, rest) = U32::ref_from_prefix(self.0).ok()?;
        rest.split_at_checked(bytes.get() as usize)
    }
}
