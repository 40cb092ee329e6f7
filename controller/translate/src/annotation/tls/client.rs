//! Annotations about TLS toward clients: they hold for whole hosts.
//!
//! Source:  ingress-nginx's annotations. A Secret without authorities switches the check off in the reference;
//!          here it closes the host.

use crate::annotation::reader::Reader;
use crate::patterns::{Compiler, Searched};
use oxigress_core::model::policy::{ClientCertificates, HeaderValue, VerifyClient};
use oxigress_core::model::{BundleId, shorten};
use oxigress_settings::grammar::parse_bool;
use oxigress_settings::grammar::template;
use oxigress_validate::tls;

/// What an Ingress says about its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The annotation ssl-ciphers.
    pub ciphers: Option<HeaderValue>,
    /// The annotation ssl-prefer-server-ciphers.
    pub prefers_server_ciphers: Option<bool>,
    /// auth-tls-*; an error: nobody comes in.
    pub client: Option<Result<ClientCertificates, ()>>,
}

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, compiler: &mut Compiler<'_>) -> ClientTls {
    let mut prefers_server_ciphers = None;
    reader.flag("ssl-prefer-server-ciphers", &mut prefers_server_ciphers);
    let ciphers = reader.parsed("ssl-ciphers", "a list of OpenSSL's ciphers", ciphers);
    let closing = reader.closing.len();
    let client = client(reader, compiler).map(|client| match reader.closing.len() == closing {
        true => client,
        false => Err(()),
    });
    ClientTls { ciphers, prefers_server_ciphers, client }
}

/// A cipher list of which OpenSSL has at least one cipher.
pub fn ciphers(text: &str) -> Option<HeaderValue> {
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || b"!:+-_@=".contains(&b);
    let is_known = || tls::cipher_list(text).is_ok();
    HeaderValue::parse(text).ok().filter(|_| text.bytes().all(is_fine) && is_known())
}

fn client(
    reader: &mut Reader<'_>,
    compiler: &mut Compiler<'_>,
) -> Option<Result<ClientCertificates, ()>> {
    let secret = "auth-tls-secret";
    let subject = subject(reader, compiler);
    let Some(text) = reader.text(secret) else {
        let all = ["auth-tls-verify-client", "auth-tls-match-cn"];
        let name = all.into_iter().find(|name| reader.has(name))?;
        // The reference checks the subject also without the Secret, and nobody has one.
        if name == "auth-tls-match-cn" {
            reader.close_hosts(name, "there is no auth-tls-secret to check against", "add it");
            return Some(Err(()));
        }
        reader.warn(name, "has no effect without auth-tls-secret");
        return None;
    };
    let (authorities, revoked) = match authorities(reader, text) {
        Ok(found) => found,
        Err(why) => {
            reader.close_hosts(secret, &why, "create or correct it");
            return Some(Err(()));
        }
    };
    let mut verify = None;
    if let Some(value) = reader.value("auth-tls-verify-client") {
        let all = &[
            ("on", VerifyClient::On),
            ("off", VerifyClient::Off),
            ("optional", VerifyClient::Optional),
            ("optional_no_ca", VerifyClient::OptionalNoCa),
        ];
        value.choice(all, &mut verify);
    }
    let depth = reader.number("auth-tls-verify-depth", 0, 100).filter(|depth| *depth > 0);
    let what = "a URL or a path; named locations do not exist";
    let error_page = reader.parsed("auth-tls-error-page", what, |text| {
        let is_target =
            text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://");
        template(text, b"?&=$").ok().filter(|_| is_target)
    });
    let name = "auth-tls-pass-certificate-to-upstream";
    let passes = reader.parsed(name, "true or false", parse_bool);
    Some(Ok(ClientCertificates {
        authorities,
        revoked,
        verify: verify.unwrap_or(VerifyClient::On),
        depth: depth.unwrap_or(1),
        error_page,
        error_page_of: None,
        passes_certificate: passes.unwrap_or_default(),
        subject,
    }))
}

fn subject(reader: &mut Reader<'_>, compiler: &mut Compiler<'_>) -> Option<HeaderValue> {
    let name = Searched::Subject.annotation();
    let text = reader.text(name)?;
    let subject = HeaderValue::parse(text).ok().filter(|_| text.starts_with("CN="));
    if subject.is_none() {
        let why = format!("{:?} is not CN= and a regular expression", shorten(text));
        reader.close_hosts(name, &why, "correct it");
        return None;
    }
    if let Err(why) = compiler.value(Searched::Subject, text) {
        reader.close_hosts(
            name,
            &format!("{:?} is not served: {why}", shorten(text)),
            "correct it",
        );
        return None;
    }
    subject
}

fn authorities(
    reader: &mut Reader<'_>,
    text: &str,
) -> Result<(BundleId, Option<BundleId>), String> {
    let (key, fields) = reader.fields(text)?;
    let authorities = fields.authorities().map_err(|error| format!("Secret {key}, {error}"))?;
    let revoked = fields.revocations().map_err(|error| format!("Secret {key}, {error}"))?;
    Ok((reader.bundle(authorities), revoked.map(|named| reader.bundle(named))))
}
