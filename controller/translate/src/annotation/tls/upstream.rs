//! Annotations about TLS toward endpoints.
//!
//! Source:  ingress-nginx's annotations. All of them hang on proxy-ssl-secret, as in the reference.

use crate::annotation::reader::Reader;
use oxigress_core::model::policy::{HeaderValue, Policies, UpstreamTls};
use oxigress_settings::grammar::is_plain;

/// Reads them. Answers whether they ask for verification and cannot be honoured.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) -> bool {
    let secret = "proxy-ssl-secret";
    let Some(text) = reader.text(secret) else {
        let name = ["proxy-ssl-verify", "proxy-ssl-name", "proxy-ssl-server-name"];
        if let Some(name) = name.into_iter().find(|name| reader.has(name)) {
            reader.warn(name, "has no effect without proxy-ssl-secret, as in ingress-nginx");
        }
        return false;
    };
    let wants_verification = reader.text("proxy-ssl-verify").is_some_and(|word| word != "off");
    let mut tls = match material(reader, text) {
        Ok(tls) => tls,
        Err(why) => {
            reader.close(secret, &why, "create or correct it");
            return wants_verification;
        }
    };
    let on = |text: &str| match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    // The reference does not verify where the word is not `on`.
    tls.verify = reader.parsed_or_closed("proxy-ssl-verify", "on or off", on).unwrap_or_default();
    let is_lost = wants_verification && !tls.verify;
    tls.verify_depth = reader.number("proxy-ssl-verify-depth", 0, 100).unwrap_or_default();
    tls.server_name = reader.parsed("proxy-ssl-server-name", "on or off", on).unwrap_or_default();
    tls.name = reader.parsed("proxy-ssl-name", "a host's name", |text| {
        HeaderValue::parse(text).ok().filter(|_| is_plain(text, b"*"))
    });
    tls.ciphers =
        reader.parsed("proxy-ssl-ciphers", "a list of OpenSSL's ciphers", super::client::ciphers);
    let protocols = reader.parsed("proxy-ssl-protocols", "some of TLSv1.2 TLSv1.3", |text| {
        let known = ["TLSv1.2", "TLSv1.3"].into_iter();
        let known = known.filter(|known| text.split_ascii_whitespace().any(|word| word == *known));
        Some(known.map(str::to_owned).collect::<Vec<_>>()).filter(|all| !all.is_empty())
    });
    tls.protocols = protocols.unwrap_or_default();
    if tls.verify && tls.authorities.is_none() {
        reader.warn(
            "proxy-ssl-verify",
            "the Secret has no ca.crt, so no endpoint is trusted: add it",
        );
    }
    policies.proxy.get_or_insert_default().tls = Some(tls);
    is_lost
}

fn material(reader: &mut Reader<'_>, text: &str) -> Result<UpstreamTls, String> {
    let (key, history) = reader.secret(text)?;
    let mut tls = UpstreamTls::default();
    if let Some(pair) = history.secret.pair().or(history.last_good.as_ref()) {
        tls.certificate = pair.chain.clone();
        tls.key = pair.key.clone();
    } else if let oxigress_objects::secret::Offer::Unusable(why) = &history.secret.offer {
        return Err(format!("Secret {key}: {why}"));
    }
    let fields = &history.secret.fields;
    if fields.has("ca.crt") {
        let named = fields.authorities().map_err(|error| format!("Secret {key}, {error}"))?;
        tls.authorities = Some(reader.bundle(named));
    }
    match tls.certificate.is_empty() && tls.authorities.is_none() {
        true => Err(format!("Secret {key} has neither tls.crt and tls.key nor ca.crt")),
        false => Ok(tls),
    }
}
