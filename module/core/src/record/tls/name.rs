//! The certificate of a TLS server name.

use crate::model::{CertificateId, HostPattern};
use crate::record::definition::Record;

/// The kind of record that holds the certificate id of a TLS server name. Such a name counts as "has a certificate" for the redirect
/// to HTTPS even if the certificate itself is missing: then nginx's static one is used.
pub enum Names {}

impl Record for Names {
    type Key = HostPattern;
    type Value = CertificateId;

    fn encode(_: &HostPattern, id: &CertificateId) -> Option<Vec<u8>> {
        Some(id.as_str().into())
    }
}
