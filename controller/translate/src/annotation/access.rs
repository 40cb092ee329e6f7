//! Annotations that say who may come in: networks and passwords; below, auth servers, and how often
//! and how fast.
//!
//! Source:  ingress-nginx's annotations. All of them protect: what cannot be honoured closes.

pub(super) mod external_auth;
pub(super) mod limits;

use super::reader::Reader;
use oxigress_core::model::policy::{Access, BasicAuth};
use oxigress_core::model::shorten;

/// A longer password file is refused.
const MAX_PASSWORD_BYTES: usize = 1024 * 1024;

/// Reads lists and basic authentication.
pub fn read(reader: &mut Reader<'_>, access: &mut Access) {
    let allow = reader.name_or_alias("allowlist-source-range", "whitelist-source-range");
    if let Some(networks) = reader.networks(allow) {
        access.allow = Some(networks);
    }
    if let Some(networks) = reader.networks("denylist-source-range") {
        access.deny = networks;
    }
    if let Some(any) = reader.parsed("satisfy", "any or all", |text| match text {
        "any" => Some(true),
        "all" => Some(false),
        _ => None,
    }) {
        access.any = any;
    }
    basic(reader, access);
}

fn basic(reader: &mut Reader<'_>, access: &mut Access) {
    let Some(kind) = reader.text("auth-type") else {
        if reader.has("auth-secret") {
            reader.warn("auth-secret", "it has no effect without auth-type: \"basic\"");
        }
        return;
    };
    match kind {
        "basic" => {}
        "digest" => {
            let why = "digest authentication is not supported";
            return reader.close("auth-type", why, "use basic over HTTPS");
        }
        other => {
            let why = format!("{:?} is not basic", shorten(other));
            return reader.close("auth-type", &why, "correct it");
        }
    }
    let realm = match reader.text("auth-realm").unwrap_or_default() {
        realm if oxigress_settings::grammar::is_plain(realm, b" ") => realm.to_owned(),
        _ => {
            let why = "may contain only letters, digits, spaces and `- . _ ~ / :`";
            reader.warn("auth-realm", &format!("{why}: no realm is sent"));
            String::new()
        }
    };
    match users(reader) {
        Ok(users) => access.basic = Some(BasicAuth { realm, users }),
        Err((name, why)) => reader.close(name, &why, "create or correct it"),
    }
}

fn users(reader: &mut Reader<'_>) -> Result<String, (&'static str, String)> {
    let is_map = match reader.text("auth-secret-type") {
        None | Some("auth-file") => false,
        Some("auth-map") => true,
        Some(other) => {
            let why = format!("{:?} is neither auth-file nor auth-map", shorten(other));
            return Err(("auth-secret-type", why));
        }
    };
    let name = "auth-secret";
    let text = reader.text(name).filter(|text| !text.is_empty());
    let text = text.ok_or((name, "is required by auth-type".to_owned()))?;
    let (key, fields) = reader.fields(text).map_err(|why| (name, why))?;
    let users = match is_map {
        false => fields.text("auth").map(str::to_owned),
        true => {
            let lines = fields.names().map(|user| {
                let hash = fields.text(user)?.trim();
                let is_line = !user.contains([':', '\n']) && !hash.contains('\n');
                is_line.then(|| format!("{user}:{hash}\n"))
            });
            lines.collect()
        }
    };
    match users {
        Some(users) if users.len() <= MAX_PASSWORD_BYTES => Ok(users),
        Some(_) => Err((name, format!("Secret {key} has more than {MAX_PASSWORD_BYTES} bytes"))),
        None if is_map => Err((name, format!("Secret {key} has an entry that is no hash"))),
        None => Err((name, format!("Secret {key} has no field auth, or it is no text"))),
    }
}
