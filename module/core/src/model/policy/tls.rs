//! TLS toward clients by host: a handshake is over before there is a request.
//!
//! Source: ingress-nginx's annotations; 421 for another host's session: RFC 9110, 15.5.20.

use super::{HeaderValue, Template, is_false};
use crate::model::BundleId;
use serde::{Deserialize, Serialize};

crate::model::object::objects!(TlsPolicy, ClientCertificates);

/// The TLS settings of a host; for an absent field the value of nginx.conf holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[serde(remote = "Self")]
pub struct TlsPolicy {
    /// The accepted ciphers, in the format of OpenSSL's cipher list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ciphers: Option<HeaderValue>,
    /// The server's order of ciphers counts, not the client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefers_server_ciphers: Option<bool>,
    /// Verification of client certificates; absent: none are requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientCertificates>,
    /// Every request of the host is answered with 403: its client certificates cannot be checked.
    #[serde(skip_serializing_if = "is_false")]
    pub denied: bool,
}

/// How client certificates are verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ClientCertificates {
    /// The bundle of trusted authorities. A bundle without a record closes the host.
    pub authorities: BundleId,
    /// The bundle of revocation lists; absent: nothing is revoked. One that is not there closes the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<BundleId>,
    /// What a certificate has to be.
    pub verify: VerifyClient,
    /// Certificates between the client's and the authority's.
    pub depth: u32,
    /// Where a client without one is sent (302), or an internal path; absent: 400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_page: Option<Template>,
    /// The namespace to whose rules alone such a path leads; absent: to any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_page_of: Option<Box<str>>,
    /// `ssl-client-cert` for endpoints: URL-encoded PEM.
    #[serde(default, skip_serializing_if = "is_false")]
    pub passes_certificate: bool,
    /// What is found in the subject, or 403: a regular expression, not anchored, that begins with `CN=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<HeaderValue>,
}

impl TlsPolicy {
    /// The bundles that it names.
    pub fn bundles(&self) -> impl Iterator<Item = &BundleId> {
        let client = self.client.iter();
        client.flat_map(|client| [Some(&client.authorities), client.revoked.as_ref()]).flatten()
    }
}

/// What a client's certificate has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyClient {
    /// Client certificates are not requested.
    Off,
    /// A request needs a client certificate that verifies.
    On,
    /// Valid, if there is one.
    Optional,
    /// A request needs no certificate; endpoints learn whether one was presented and whether it verifies.
    OptionalNoCa,
    /// As [`VerifyClient::On`], and a connection without such a certificate is closed without an answer.
    Strict,
    /// A request needs no certificate, and one that is not valid passes too; endpoints learn what was presented.
    Any,
}
