//! The bytes of a record.

use crate::{Fault, tls};
use oxigress_core::model::policy::{Policies, TlsPolicy, UpstreamTls};
use oxigress_core::record::table::Kind;
use oxigress_core::record::{CertificateView, decode_policies, decode_tls};
use oxigress_core::text::template::Part;

/// Checks a record's bytes beyond their types.
pub fn check(kind: Kind, key: &[u8], value: &[u8]) -> Result<(), Fault> {
    match kind {
        Kind::Certificate => {
            let view = CertificateView(value);
            let pair = tls::pair(view.chain().unwrap_or_default(), view.key().unwrap_or_default());
            pair.map(drop).map_err(|error| Fault::new("", error.to_string()))
        }
        Kind::Tls => match decode_tls(value) {
            Some(policy) => tls_policy(&policy),
            None => Err(Fault::new("", "this is no policy")),
        },
        Kind::Policies => match decode_policies(value) {
            Some(all) => policies(&all),
            None => Err(Fault::new("", "these are no policies")),
        },
        Kind::Bundle => bundle(key, value),
        Kind::Settings
        | Kind::Server
        | Kind::Backend
        | Kind::Endpoints
        | Kind::Name
        | Kind::General
        | Kind::Passthrough
        | Kind::Port => Ok(()),
    }
}

/// How a host speaks TLS. Its pattern is compiled where patterns are charged: by the translation, and by the module on a
/// thread (`oxigress_core::wire::patterns`).
pub fn tls_policy(policy: &TlsPolicy) -> Result<(), Fault> {
    if let Some(ciphers) = &policy.ciphers {
        tls::cipher_list(ciphers.as_str()).map_err(|error| Fault::new("/ciphers", error))?;
    }
    let Some(client) = &policy.client else { return Ok(()) };
    // A path that a client has a say in would be a way around the certificate.
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

/// Authorities or revocation lists, under the digest of their text: workers keep what they have made of it under that.
fn bundle(id: &[u8], pem: &[u8]) -> Result<(), Fault> {
    let text = str::from_utf8(pem).map_err(|_| Fault::new("", "this is no text: send PEM"))?;
    match tls::bundle_id(text).as_str().as_bytes() == id {
        true => tls::bundle(pem).map_err(|error| Fault::new("", error)),
        false => Err(Fault::new("", "its key is not the SHA-256 of its text: send it under that")),
    }
}

/// What is decided per request.
pub fn policies(policies: &Policies) -> Result<(), Fault> {
    let proxy = policies.proxy.as_ref();
    proxy.and_then(|proxy| proxy.tls.as_ref()).map_or(Ok(()), upstream_tls)
}

/// TLS toward endpoints.
fn upstream_tls(from: &UpstreamTls) -> Result<(), Fault> {
    for word in &from.protocols {
        tls::protocol(word).map_err(|error| Fault::new("/proxy/tls/protocols", error))?;
    }
    if let Some(ciphers) = &from.ciphers {
        tls::cipher_list(ciphers.as_str())
            .map_err(|error| Fault::new("/proxy/tls/ciphers", error))?;
    }
    if !from.certificate.is_empty() || !from.key.is_empty() {
        tls::pair(from.certificate.as_bytes(), from.key.as_bytes())
            .map_err(|error| Fault::new("/proxy/tls/certificate", error.to_string()))?;
    }
    Ok(())
}
