//! Annotations about what clients get: headers, error pages, the default backend; and the access log.
//!
//! Source:  ingress-nginx's annotations.

use super::reader::Reader;
use crate::claim::backend_ref::{BackendRef, first_port};
use oxigress_core::model::BackendId;
use oxigress_core::model::policy::{Errors, HeaderName, HeaderValue, Policies, ResponseHeader};
use oxigress_objects::{Key, Kind, ObjectRef};
use oxigress_settings::grammar::is_word;

/// Reads them; answers the Service of default-backend.
pub fn read(reader: &mut Reader<'_>, policies: &mut Policies) -> Option<BackendRef> {
    let mut is_logged = !policies.is_unlogged;
    reader.flag("enable-access-log", &mut is_logged);
    policies.is_unlogged = !is_logged;
    headers(reader, policies);
    let default_backend = default_backend(reader);
    errors(reader, policies, default_backend.as_ref());
    policies.fallback = default_backend.as_ref().map(|backend_ref| backend_ref.backend.clone());
    default_backend
}

fn headers(reader: &mut Reader<'_>, policies: &mut Policies) {
    let name = "custom-headers";
    let Some(text) = reader.text(name).filter(|text| !text.is_empty()) else { return };
    let allowed = reader.context.defaults.allowed_response_headers.clone();
    let headers = reader.config_map(text).and_then(|(key, map)| {
        let mut headers = Vec::new();
        for (header, value) in &map.data {
            if !allowed.contains(&header.to_ascii_lowercase()) {
                return Err(format!(
                    "header {:?} of ConfigMap {key} is not in global-allowed-response-headers",
                    oxigress_core::model::shorten(header)
                ));
            }
            let pair = (HeaderName::parse(header), HeaderValue::parse(value.trim()));
            match pair {
                (Ok(name), Ok(value)) if is_word(header) => {
                    headers.push(ResponseHeader { name, value });
                }
                _ => return Err(format!("ConfigMap {key} has an entry that is no header")),
            }
        }
        Ok(headers)
    });
    match headers {
        Ok(headers) => policies.response_headers.extend(headers),
        Err(why) => reader.close(name, &why, "correct it"),
    }
}

fn default_backend(reader: &mut Reader<'_>) -> Option<BackendRef> {
    let name = "default-backend";
    let service = reader.parsed(name, "the name of a Service", |text| {
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_label = text.len() <= 63 && text.bytes().all(is_plain);
        is_label.then(|| text.to_owned())
    })?;
    let service = Key::new(&reader.context.ingress.namespace, service);
    reader.referred.insert(ObjectRef::new(Kind::Service, service.clone()));
    let Some(port) =
        reader.context.world.services.get(&service).and_then(|found| first_port(found))
    else {
        reader.warn(name, &format!("Service {service} does not exist or has no port: create it"));
        return None;
    };
    let backend = BackendId::parse(format!("{service}/{port}")).ok()?;
    Some(BackendRef { service, port, backend })
}

fn errors(reader: &mut Reader<'_>, policies: &mut Policies, to: Option<&BackendRef>) {
    let mut own_only = false;
    reader.flag("disable-proxy-intercept-errors", &mut own_only);
    let what = "a list of codes from 400 to 599";
    let codes = reader.parsed("custom-http-errors", what, |text| {
        let code = |item: &str| {
            let code = item.trim().parse().ok().filter(|code| (400..=599).contains(code));
            code.filter(|_| item.trim().len() == 3)
        };
        let codes: Option<std::collections::BTreeSet<u16>> = text.split(',').map(code).collect();
        codes.map(|codes| codes.into_iter().collect())
    });
    let backend = to.map(|backend_ref| backend_ref.backend.clone());
    match (codes, &mut policies.errors) {
        (Some(codes), errors) => *errors = Some(Errors { codes, backend, own_only }),
        (None, Some(errors)) if backend.is_some() => errors.backend = backend,
        _ => {}
    }
}
