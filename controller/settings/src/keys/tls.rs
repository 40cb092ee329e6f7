//! TLS toward clients, and who is sent to it.

use crate::Settings;
use crate::form::{
    Form, Value, any, buffer, ciphers, curves, reference, session_cache, ticket_key,
};
use crate::key::{How, Key, Take, key};
use oxigress_core::model::RedirectCode;

const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
                       ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
                       ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:\
                       DHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-GCM-SHA256";

const PROTOCOLS: Form = Form::Words(&["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]);

#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("ssl-protocols", PROTOCOLS, "TLSv1.2 TLSv1.3", How::Conf),
    key("ssl-ciphers", Form::Text("a cipher list of OpenSSL", ciphers), CIPHERS, How::Conf),
    key("ssl-ecdh-curve", Form::Text("names of curves with colons between", curves), "auto", How::Conf),
    key("ssl-dh-param", Form::Text("NAMESPACE/NAME", reference), "", How::Unsupported("ciphers that begin with DHE are not offered: ECDHE ones are")),
    key("ssl-early-data", Form::Flag, "false", How::Conf),
    key("ssl-session-cache", Form::Flag, "true", How::Conf),
    key("ssl-session-cache-size", Form::Text("a size from 64k to 1g", session_cache), "10m", How::Conf),
    key("ssl-session-timeout", Form::Time, "10m", How::Conf),
    key("ssl-session-tickets", Form::Flag, "false", How::Conf),
    key("ssl-session-ticket-key", Form::Secret("the base64 of 48 or 80 bytes", ticket_key), "", How::Conf),
    key("ssl-buffer-size", Form::Text("a size from 256 to 1g", buffer), "4k", How::Conf),
    key("ssl-reject-handshake", Form::Flag, "false", How::Data(|to, value| { to.rejects_unknown_names = value.flag(); Ok(()) })),
    key("ssl-redirect", Form::Flag, "true", How::Data(|to, value| { to.ssl_redirect = value.flag(); Ok(()) })),
    key("force-ssl-redirect", Form::Flag, "false", How::Data(|to, value| { to.force_ssl_redirect = value.flag(); Ok(()) })),
    key("preserve-trailing-slash", Form::Flag, "false", How::Data(|to, value| { to.defaults.policies.keeps_trailing_slash = value.flag(); Ok(()) })),
    key("no-tls-redirect-locations", Form::List("paths", any), "/.well-known/acme-challenge", How::Data(|to, value| { to.no_tls_redirect_locations = value.list().to_vec(); Ok(()) })),
    key("http-redirect-code", Form::Number(300, 399), "308", How::Data(REDIRECT_CODE)),
    key("hsts", Form::Flag, "true", How::Data(|to, value| { to.hsts.is_on = value.flag(); Ok(()) })),
    key("hsts-max-age", Form::Number(0, 1 << 40), "31536000", How::Data(|to, value| { to.hsts.max_age = value.number(); Ok(()) })),
    key("hsts-include-subdomains", Form::Flag, "true", How::Data(|to, value| { to.hsts.with_subdomains = value.flag(); Ok(()) })),
    key("hsts-preload", Form::Flag, "false", How::Data(|to, value| { to.hsts.preload = value.flag(); Ok(()) })),
    key("enable-ocsp", Form::Flag, "false", How::Unsupported("no OCSP response is stapled")),
    key("use-http2", Form::Flag, "true", How::Conf),
    key("proxy-ssl-location-only", Form::Flag, "false", How::Data(|to, value| { to.proxy_ssl_location_only = value.flag(); Ok(()) })),
];

const REDIRECT_CODE: Take = |to: &mut Settings, value: &Value| {
    let code =
        u16::try_from(value.number()).ok().and_then(|code| RedirectCode::try_from(code).ok());
    to.http_redirect_code = code.ok_or("is not one of 301, 302, 307, 308")?;
    Ok(())
};

/// The keys `hsts*`, which are fields of one response header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the keys' own names")]
pub struct Hsts {
    pub is_on: bool,
    pub max_age: u64,
    pub with_subdomains: bool,
    pub preload: bool,
}

impl Default for Hsts {
    fn default() -> Self {
        Hsts { is_on: true, max_age: 31_536_000, with_subdomains: true, preload: false }
    }
}

impl Hsts {
    /// The header's value, if there is to be one.
    pub fn header(&self) -> Option<String> {
        let subdomains = if self.with_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload { "; preload" } else { "" };
        self.is_on.then(|| format!("max-age={}{subdomains}{preload}", self.max_age))
    }
}
