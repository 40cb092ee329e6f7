//! Annotations that send a copy of each request elsewhere.
//!
//! Source:  ingress-nginx's annotations. A mirror that cannot be reached is none: nothing is lost with it but the copy.

use super::reader::Reader;
use oxigress_core::model::policy::{HeaderValue, Mirror, Policies};
use oxigress_settings::grammar::url::Url;

/// Reads the annotations of this group; what is invalid is noted.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) {
    let Some(text) = reader.text("mirror-target") else { return };
    let url = match Url::parse(text, br"^$[](){}*+?&=\|") {
        Ok(url) => url,
        Err(why) => {
            return reader.warn("mirror-target", &format!("{why}: requests are not mirrored"));
        }
    };
    let mut has_body = None;
    reader.switch("mirror-request-body", &mut has_body);
    let host = reader.parsed("mirror-host", "a host's name without variables", |text| {
        HeaderValue::parse(text).ok().filter(|_| oxigress_settings::grammar::is_plain(text, b"[]"))
    });
    let without_body = has_body == Some(false);
    policies.mirror =
        Some(Mirror { to: url.to, target: url.target, host, without_body, share: None });
}
