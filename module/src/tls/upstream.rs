//! TLS toward endpoints as policies say it, in place of what nginx.conf says.
//!
//! What decides a handshake stands in a context of OpenSSL's, which is shared by all locations of a worker that say
//! the same, and goes with the last of them; connections that wait for their next request hold it too. Each context
//! has a number that no other one of the process ever has, and by that the idle pool tells whose connection it is:
//! another context may come to lie at the same address. TLS sessions are not kept, so none is gone on with under
//! another identity (`set_session` of `module/nginx`).

use crate::tls::bundles;
use crate::worker;
use nginx::EventLoop;
use nginx::ssl::authorities::Authorities;
use nginx::ssl::context::{Context, LocationTls};
use nginx::ssl::pem::KeyPair;
use nginx::ssl::{Ciphers, clear_errors, sha256};
use nginx::sys::{NGX_SSL_TLSv1_2, NGX_SSL_TLSv1_3};
use oxigress_core::model::policy::UpstreamTls;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};

thread_local! {
    /// Contexts in use, by a digest of what they say.
    static CONTEXTS: RefCell<HashMap<[u8; 32], Weak<Context>>> = RefCell::default();
}

/// TLS toward the endpoints of a location. `None`: as for [`context`].
pub fn of(here: EventLoop, from: &UpstreamTls, is_h2: bool) -> Option<LocationTls> {
    let context = context(here, from, is_h2)?;
    let name = from.name.as_ref().map(|name| name.as_str());
    Some(LocationTls::new(context, name, from.server_name, from.verify))
}

/// A context that says this, and perhaps that HTTP/2 is spoken, in use already or new. `None`: it cannot be used, though it was
/// checked before it was published.
pub fn context(here: EventLoop, from: &UpstreamTls, is_h2: bool) -> Option<Rc<Context>> {
    let digest = digest(from, is_h2);
    CONTEXTS.with(|contexts| {
        let mut contexts = contexts.try_borrow_mut().ok()?;
        if let Some(context) = contexts.get(&digest).and_then(Weak::upgrade) {
            return Some(context);
        }
        let context = new_context(here, from, is_h2);
        clear_errors();
        let context = Rc::new(context?);
        contexts.retain(|_, known| known.strong_count() > 0);
        contexts.insert(digest, Rc::downgrade(&context));
        Some(context)
    })
}

fn new_context(here: EventLoop, from: &UpstreamTls, is_h2: bool) -> Option<Context> {
    let list = Ciphers::new(ciphers(from)).ok()?;
    let depth = from.verify_depth.clamp(1, 100) as i32;
    let context = Context::new(here, protocols(from), &list, depth, is_h2)?;
    if let Some(id) = &from.authorities {
        let worker = worker::current(here)?;
        let authorities = bundles::find(worker, &worker.reader().read(), id, None)?;
        context.trust::<Authorities>(authorities.store());
    }
    if !from.certificate.is_empty() {
        let pair = KeyPair::new(from.certificate.as_bytes(), from.key.as_bytes()).ok()?;
        context.present(&pair).then_some(())?;
    }
    Some(context)
}

/// Of all that a context says. A name is not of the context: the idle pool tells names apart by themselves.
fn digest(from: &UpstreamTls, is_h2: bool) -> [u8; 32] {
    let UpstreamTls { certificate, key, authorities, verify_depth, .. } = from;
    let protocols = protocols(from).to_le_bytes();
    let depth = verify_depth.to_le_bytes();
    let parts: [&[u8]; 7] = [
        certificate.as_bytes(),
        key.as_bytes(),
        // The id of a bundle is a digest of what it says.
        authorities.as_ref().map_or("", |id| id.as_str()).as_bytes(),
        &depth,
        ciphers(from).as_bytes(),
        &protocols,
        &[is_h2.into()],
    ];
    let mut text = Vec::new();
    for part in parts {
        text.extend(part.len().to_le_bytes());
        text.extend(part);
    }
    sha256(&text)
}

fn ciphers(from: &UpstreamTls) -> &str {
    from.ciphers.as_ref().map_or("DEFAULT", |list| list.as_str())
}

fn protocols(from: &UpstreamTls) -> u32 {
    let known = from.protocols.iter().filter_map(|word| protocol(word));
    match known.fold(0, |all, one| all | one) {
        0 => NGX_SSL_TLSv1_2,
        some => some,
    }
}

fn protocol(word: &str) -> Option<u32> {
    match word {
        "TLSv1.2" => Some(NGX_SSL_TLSv1_2),
        "TLSv1.3" => Some(NGX_SSL_TLSv1_3),
        _ => None,
    }
}
