//! What a handshake asks of a client, and what the client of a connection has shown.

use crate::request::Request;
use nginx::ssl::authorities::Authorities;
use nginx::ssl::handshake::ClientHello;
use nginx::ssl::{Ciphers, clear_errors, sha256};
use nginx::sys::{
    X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN,
    X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY,
    X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, X509_V_OK,
};
use oxigress_core::decision::Shown;
use oxigress_core::model::policy::{ClientCertificates, TlsPolicy, VerifyClient};
use std::sync::LazyLock;

/// What a handshake says and asks by a host's policy.
pub struct Handshake {
    context: [u8; 32],
    client: Option<Client>,
    ciphers: Option<Ciphers>,
    prefers_server_ciphers: Option<bool>,
}

impl Handshake {
    /// Refuses what OpenSSL would not take.
    pub fn new(policy: &TlsPolicy) -> Result<Self, String> {
        let made = Self::make(policy);
        clear_errors();
        made
    }

    fn make(policy: &TlsPolicy) -> Result<Self, String> {
        let client = policy.client.as_ref().map(Client::new);
        let ciphers = policy.ciphers.as_ref();
        let ciphers = ciphers.map(|list| Ciphers::new(list.as_str())).transpose()?;
        let client = client.filter(|client| client.verify != VerifyClient::Off);
        let prefers_server_ciphers = policy.prefers_server_ciphers;
        let asks = policy.client.as_ref().filter(|_| client.is_some());
        let asks = asks.map_or([0; 16], digest_of_client);
        let list = ciphers.as_ref().map_or(&b""[..], |list| list.as_bytes());
        let context = context(asks, list, prefers_server_ciphers);
        Ok(Handshake { context, client, ciphers, prefers_server_ciphers })
    }

    /// A certificate is asked for.
    pub fn is_mutual(&self) -> bool {
        self.client.is_some()
    }

    /// Stands for what certificate is asked for; zeroes: none is.
    pub fn asks(&self) -> [u8; 16] {
        asks(&self.context)
    }

    /// A handshake goes on with these settings, and the authorities of the bundles that they name; `false`: OpenSSL does not
    /// take them.
    pub fn apply(&self, hello: &ClientHello<'_>, authorities: Option<&Authorities>) -> bool {
        let is_set = hello.set_session_context(&self.context)
            && self.ciphers.as_ref().is_none_or(|list| hello.set_ciphers(list))
            && self.client.as_ref().is_none_or(|client| {
                authorities.is_some_and(|authorities| client.ask(hello, authorities))
            });
        if let Some(prefers) = self.prefers_server_ciphers {
            hello.prefer_server_ciphers(prefers);
        }
        clear_errors();
        is_set
    }
}

/// The handshake of a host without a policy goes on. Its session has the context of a policy that says nothing: nginx's own
/// context has a digest of the default certificate, which is another one in each replica.
pub fn begin_without_policy(hello: &ClientHello<'_>) -> bool {
    static CONTEXT: LazyLock<[u8; 32]> = LazyLock::new(|| context([0; 16], b"", None));
    hello.set_session_context(&CONTEXT)
}

/// The context of sessions: what certificate is asked for, then a digest of all that is not negotiated again.
fn context(asks: [u8; 16], ciphers: &[u8], prefers_server_ciphers: Option<bool>) -> [u8; 32] {
    let order: u8 = prefers_server_ciphers.map_or(2, u8::from);
    // A session keeps its cipher: what differs is not resumed either.
    let rest = digest(&[&asks, ciphers, &[order]]);
    let mut context = [0; 32];
    let (first, second) = context.split_at_mut(16);
    first.copy_from_slice(&asks);
    second.copy_from_slice(&rest);
    context
}

/// The part of a session's context that stands for what certificate is asked for.
fn asks(context: &[u8; 32]) -> [u8; 16] {
    *context.first_chunk().unwrap_or(&[0; 16])
}

/// Of all that decides what a certificate is checked against.
fn digest_of_client(client: &ClientCertificates) -> [u8; 16] {
    let verify = [client.verify as u8];
    let depth = client.depth.to_le_bytes();
    // Ids of bundles are digests of what they say.
    let revoked = client.revoked.as_ref().map_or("", |id| id.as_str());
    digest(&[client.authorities.as_str().as_bytes(), revoked.as_bytes(), &verify, &depth])
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut text = Vec::new();
    for part in parts {
        // With its length, so that two texts are not taken for two others.
        text.extend((part.len() as u64).to_le_bytes());
        text.extend(*part);
    }
    *sha256(&text).first_chunk().unwrap_or(&[0; 16])
}

/// What a client has to show.
struct Client {
    verify: VerifyClient,
    depth: i32,
}

impl Client {
    fn new(from: &ClientCertificates) -> Self {
        // More certificates than that are in no chain; 0 means 1, as in the reference.
        let depth = from.depth.clamp(1, 100) as i32;
        Client { verify: from.verify, depth }
    }

    /// `false`: OpenSSL does not take it.
    fn ask(&self, hello: &ClientHello<'_>, authorities: &Authorities) -> bool {
        let subjects = authorities.certificates().subjects();
        hello.ask_for_certificate(authorities.store(), subjects, self.depth)
    }
}

impl<'r> Request<'r> {
    /// What [`Handshake::asks`] was when the connection began, or the session that it goes on with; zeroes: for
    /// nothing.
    pub fn asked_for_certificate(&self) -> [u8; 16] {
        self.nginx().session_context().map_or([0; 16], |context| asks(&context))
    }

    /// What the client has shown.
    pub fn certificate_shown(&self) -> Shown {
        match self.nginx().certificate_result() {
            None => Shown::Nothing,
            Some(X509_V_OK) => Shown::Valid,
            // As nginx's `optional_no_ca` has them.
            Some(
                X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT
                | X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN
                | X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY
                | X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT
                | X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE,
            ) => Shown::Unvouched,
            Some(_) => Shown::Invalid,
        }
    }

    /// The next connection does not go on with this one's session: a client may show another certificate then.
    pub fn forget_session(&self) {
        self.nginx().forget_session();
    }

    /// The connection is not kept.
    pub fn close_after_answer(&self) {
        self.nginx().set_keepalive(false);
    }

    /// nginx sent it here, by an error page or an internal redirect.
    pub fn is_internal(&self) -> bool {
        self.nginx().is_internal()
    }
}
