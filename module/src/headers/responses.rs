//! What policies say about responses: headers, and who may read them across origins.

use crate::request::Request;
use crate::request::policies::Compiled;
use crate::system::memory::wall_clock_milliseconds;
use crate::zone::records::GuardedRecords;
use oxigress_core::decision::CompiledPolicies;
use oxigress_core::http::{date, header};
use oxigress_core::model::policy::{Cors, EditAction, Policies, ResponseEdit};
use oxigress_core::policy::cors::{OriginDecision, Origins};
use oxigress_core::record::SettingsView;
use oxigress_core::text::template;

/// What is worked out of [`Cors`] once.
pub struct Sharing {
    /// The value of `Access-Control-Max-Age`, in seconds, as text.
    max_age: String,
}

impl Sharing {
    /// Prepares the header values of these settings once, for all responses.
    pub fn new(cors: &Cors) -> Self {
        Sharing { max_age: cors.max_age.to_string() }
    }
}

/// Writes the policies' headers into a response; `false`: it cannot be sent.
pub fn finish(request: &Request<'_>, policies: &Compiled) -> bool {
    let source = &policies.source;
    let mut is_done = true;
    edit_all(request, source, |action| action == EditAction::Hide);
    for header in &source.response_headers {
        let (name, value) = (header.name.as_str().as_bytes(), header.value.as_str().as_bytes());
        // One that nginx keeps to itself is left out.
        request.set_response_header(name, value);
    }
    for added in &source.added_response_headers {
        let (name, value) = (added.name.as_str().as_bytes(), added.value.as_str().as_bytes());
        if !header::is_reserved(name) {
            request.add_response_header(name, value);
        }
    }
    for name in &source.removed_response_headers {
        request.remove_response_header(name.as_str().as_bytes());
    }
    edit_all(request, source, |action| action != EditAction::Hide);
    let sharing = policies.part::<Option<Sharing>>();
    if let (Some(cors), Some(origins), Some(sharing)) = (&source.cors, policies.origins(), sharing)
    {
        is_done &= share(request, cors, origins, sharing);
    }
    is_done
}

/// Makes the changes of the policies' list whose action is one of those.
fn edit_all(request: &Request<'_>, source: &Policies, is_one: impl Fn(EditAction) -> bool) {
    let outer = &source.response_edits;
    match request.if_location() {
        None => edit(request, outer.iter().filter(|edit| is_one(edit.action))),
        Some(inner) => edit(request, inner.edits(outer).filter(|edit| is_one(edit.action))),
    }
}

fn edit<'e>(request: &Request<'_>, edits: impl Iterator<Item = &'e ResponseEdit>) {
    let status = u16::try_from(request.nginx().status()).unwrap_or_default();
    for edit in edits {
        let name = edit.name.as_str().as_bytes();
        if header::is_reserved(name) || !edit.applies(status) {
            continue;
        }
        // What turns out to have a line break is no value.
        let value = template::expand(edit.value.parts(), request).unwrap_or_default();
        match edit.action {
            EditAction::Set if !value.is_empty() => _ = request.set_response_header(name, &value),
            EditAction::Add if value.is_empty() => {}
            EditAction::Add => _ = request.add_response_header(name, &value),
            EditAction::Date => {
                let now = wall_clock_milliseconds() / 1_000;
                if let Some(date) = date::after(now, &value) {
                    request.set_response_header(name, date.as_bytes());
                }
            }
            EditAction::Hide | EditAction::Set | EditAction::Remove => remove(request, edit),
        }
    }
}

fn remove(request: &Request<'_>, edit: &ResponseEdit) {
    let name = edit.name.as_str();
    let Some(prefix) = edit.prefix() else {
        request.remove_response_header(name.as_bytes());
        if edit.action == EditAction::Remove && name.eq_ignore_ascii_case("server") {
            // nginx writes its own where there is none.
            _ = request.nginx().hide_server();
        }
        return;
    };
    let begins = |name: &[u8]| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    request.nginx().remove_response_headers(|name| begins(name) && !header::is_reserved(name));
}

/// Strict-Transport-Security, for what went over TLS.
pub fn secure(request: &Request<'_>) -> bool {
    let guard = request.worker().reader().read();
    match SettingsView::of(&GuardedRecords(&guard)).hsts() {
        Some(value) => request.set_response_header(b"Strict-Transport-Security", value),
        None => true,
    }
}

/// An endpoint's own headers stay where the origin may not read.
fn share(request: &Request<'_>, cors: &Cors, origins: &Origins, sharing: &Sharing) -> bool {
    let echoes = cors.is_of_route && cors.credentials;
    if (origins.vary() || echoes) && !request.has_response_header(b"Vary", varies_by_origin) {
        // The next client's answer is another one, also where this one's says nothing.
        if !request.add_response_header(b"Vary", b"Origin") {
            return false;
        }
    }
    let OriginDecision::Shared(origin) = origins.decide(request.header(b"origin")) else {
        return true;
    };
    let set = |name: &str, value: &[u8]| request.set_response_header(name.as_bytes(), value);
    if !cors.credentials {
        request.remove_response_header(b"Access-Control-Allow-Credentials");
    }
    // Browsers take no star for an answer where credentials are sent.
    let set_named = |name: &str, allowed: &[u8], header: &[u8]| match allowed {
        b"*" if echoes => set(name, request.header(header).unwrap_or(allowed)),
        _ => set(name, allowed),
    };
    let (methods, headers) = (cors.methods.as_str().as_bytes(), cors.headers.as_str().as_bytes());
    (!cors.credentials || set("Access-Control-Allow-Credentials", b"true"))
        && set_named("Access-Control-Allow-Origin", origin, b"origin")
        && set_named("Access-Control-Allow-Methods", methods, b"access-control-request-method")
        && (headers.is_empty()
            || set_named(
                "Access-Control-Allow-Headers",
                headers,
                b"access-control-request-headers",
            ))
        && cors
            .exposed
            .as_ref()
            .is_none_or(|names| set("Access-Control-Expose-Headers", names.as_str().as_bytes()))
        && set("Access-Control-Max-Age", sharing.max_age.as_bytes())
}

fn varies_by_origin(value: &[u8]) -> bool {
    let says = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"origin");
    value.split(|byte| *byte == b',').any(|name| says(name.trim_ascii()))
}
