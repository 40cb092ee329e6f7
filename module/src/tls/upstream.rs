//! TLS toward endpoints as policies say it, in place of what nginx.conf says.
//!
//! What decides a handshake stands in a context of OpenSSL's, which is shared by all locations of a worker that say
//! the same, and goes with the last of them; connections that wait for their next request hold it too. Each context
//! has a number that no other one of the process ever has, and by that the idle pool tells whose connection it is:
//! another context may come to lie at the same address. TLS sessions are not kept, so none is gone on with under
//! another identity (`set_session` in `balancer/upstream.rs`).
#![allow(unsafe_code)]

use crate::tls::Parsed;
use crate::tls::bundles;
use crate::tls::clear_errors;
use crate::tls::handshake::bound_verification;
use crate::tls::handshake::cipher_list;
use crate::tls::handshake::go_on;
use crate::tls::sha256;
use crate::worker;
use nginx::EventLoop;
use nginx::sys::{
    NGX_OK, NGX_SSL_TLSv1_2, NGX_SSL_TLSv1_3, SSL_CTX_free, SSL_CTX_get_ex_data,
    SSL_CTX_set_cipher_list, SSL_CTX_set_ex_data, SSL_CTX_set_verify, SSL_CTX_set_verify_depth,
    SSL_CTX_set1_cert_store, SSL_CTX_use_cert_and_key, SSL_VERIFY_NONE, ngx_cycle, ngx_int_t,
    ngx_ssl_create, ngx_ssl_t, ngx_uint_t,
};
use oxigress_core::model::policy::UpstreamTls;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::rc::{Rc, Weak};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// OpenSSL leaves this place to the application; nginx asks for places of its own.
const NUMBER: c_int = 0;

/// Numbers of contexts so far.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Contexts in use, by a digest of what they say.
    static CONTEXTS: RefCell<HashMap<[u8; 32], Weak<Context>>> = RefCell::default();
}

/// A context of OpenSSL's with what a policy says.
struct Context {
    /// nginx's form of it.
    ssl: Box<ngx_ssl_t>,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `Context::new`; connections count it on their own.
        unsafe { SSL_CTX_free(self.ssl.ctx) };
    }
}

/// TLS toward the endpoints of a location.
pub struct Upstream {
    context: Rc<Context>,
    /// Verified and sent; null: what nginx.conf says.
    name: Option<Box<nginx::sys::ngx_http_complex_value_t>>,
    /// What `name` points at.
    _text: Box<str>,
    server_name: bool,
    verify: bool,
}

impl Upstream {
    /// `None`: it cannot be used, though it was checked before it was published.
    pub fn new(from: &UpstreamTls) -> Option<Self> {
        let context = Context::of(from)?;
        let text: Box<str> = from.name.as_ref().map_or("", |name| name.as_str()).into();
        let name = from.name.is_some().then(|| {
            // SAFETY: numbers and pointers. A value without `lengths` is a plain text.
            let mut value: Box<nginx::sys::ngx_http_complex_value_t> =
                Box::new(unsafe { std::mem::zeroed() });
            value.value = nginx::sys::ngx_str_t { len: text.len(), data: text.as_ptr().cast_mut() };
            value
        });
        let (server_name, verify) = (from.server_name, from.verify);
        Some(Upstream { context, name, _text: text, server_name, verify })
    }

    /// Puts it into the settings of a location, which does not outlive it.
    pub fn change(&self, conf: &mut nginx::sys::ngx_http_upstream_conf_t) {
        conf.ssl = (&raw const *self.context.ssl).cast_mut().cast();
        conf.ssl_server_name = self.server_name.into();
        conf.ssl_verify = self.verify.into();
        if let Some(name) = &self.name {
            conf.ssl_name = (&raw const **name).cast_mut();
        }
        // Those of nginx.conf would be read for each connection.
        conf.ssl_certificate = null_mut();
        conf.ssl_certificate_key = null_mut();
    }
}

impl Context {
    /// One that says this, in use already or new.
    fn of(from: &UpstreamTls) -> Option<Rc<Self>> {
        let digest = digest(from);
        CONTEXTS.with(|contexts| {
            let mut contexts = contexts.try_borrow_mut().ok()?;
            if let Some(context) = contexts.get(&digest).and_then(Weak::upgrade) {
                return Some(context);
            }
            let context = Self::new(from);
            clear_errors();
            let context = Rc::new(context?);
            contexts.retain(|_, known| known.strong_count() > 0);
            contexts.insert(digest, Rc::downgrade(&context));
            Some(context)
        })
    }

    fn new(from: &UpstreamTls) -> Option<Self> {
        // SAFETY: numbers and pointers.
        let mut ssl: Box<ngx_ssl_t> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: on the event loop, while a cycle runs; nginx makes the context, with its own options.
        let made = unsafe {
            ssl.log = (*ngx_cycle).log;
            ngx_ssl_create(&raw mut *ssl, protocols(from), null_mut())
        };
        let context = NonNull::new(ssl.ctx)?;
        let this = Context { ssl };
        if made != NGX_OK as ngx_int_t {
            return None;
        }
        let context = context.as_ptr();
        let list = cipher_list(ciphers(from)).ok()?;
        let number = NUMBERS.fetch_add(1, Relaxed) + 1;
        let depth = from.verify_depth.clamp(1, 100) as c_int;
        // SAFETY: the context is alive and nobody else's yet; the list is a C string. As nginx does, a handshake does
        // not fail by what is verified: nginx asks for the result.
        unsafe {
            SSL_CTX_set_verify(context, SSL_VERIFY_NONE as c_int, Some(go_on));
            SSL_CTX_set_verify_depth(context, depth);
            if SSL_CTX_set_cipher_list(context, list.as_ptr()) != 1
                || SSL_CTX_set_ex_data(context, NUMBER, without_provenance_mut(number)) != 1
            {
                return None;
            }
        }
        if let Some(id) = &from.authorities {
            // SAFETY: on the event loop, in a request.
            let worker = unsafe { worker::current(EventLoop::here()) }?;
            let authorities = bundles::find(worker, &worker.reader().read(), id, None)?;
            // SAFETY: as above; OpenSSL counts the store.
            unsafe {
                SSL_CTX_set1_cert_store(context, authorities.store().cast());
                bound_verification(context);
            }
        }
        if !from.certificate.is_empty() {
            let pair = Parsed::new(from.certificate.as_bytes(), from.key.as_bytes()).ok()?;
            let chain = pair.chain.as_ptr().cast();
            let (leaf, key) = (pair.leaf.as_ptr(), pair.key.as_ptr());
            // SAFETY: as above; OpenSSL counts all three.
            if unsafe { SSL_CTX_use_cert_and_key(context, leaf, key, chain, 1) } != 1 {
                return None;
            }
        }
        Some(this)
    }
}

/// Of all that a context says. A name is not of the context: the idle pool tells names apart by themselves.
fn digest(from: &UpstreamTls) -> [u8; 32] {
    let UpstreamTls { certificate, key, authorities, verify_depth, .. } = from;
    let protocols = protocols(from).to_le_bytes();
    let depth = verify_depth.to_le_bytes();
    let parts: [&[u8]; 6] = [
        certificate.as_bytes(),
        key.as_bytes(),
        // The id of a bundle is a digest of what it says.
        authorities.as_ref().map_or("", |id| id.as_str()).as_bytes(),
        &depth,
        ciphers(from).as_bytes(),
        &protocols,
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

fn protocols(from: &UpstreamTls) -> ngx_uint_t {
    let known = from.protocols.iter().filter_map(|word| protocol(word));
    match known.fold(0, |all, one| all | one) {
        0 => NGX_SSL_TLSv1_2 as ngx_uint_t,
        some => some as ngx_uint_t,
    }
}

fn protocol(word: &str) -> Option<u32> {
    match word {
        "TLSv1.2" => Some(NGX_SSL_TLSv1_2),
        "TLSv1.3" => Some(NGX_SSL_TLSv1_3),
        _ => None,
    }
}

/// The number of a location's context, if a policy made it: its address may have been another's before.
///
/// # Safety
/// `ssl` is null or alive.
pub unsafe fn context_number(ssl: *const ngx_ssl_t) -> Option<usize> {
    // SAFETY: vouched for by the caller.
    let context = unsafe { ssl.as_ref() }?.ctx;
    if context.is_null() {
        return None;
    }
    // SAFETY: as above.
    let number = unsafe { SSL_CTX_get_ex_data(context, NUMBER) };
    Some(number.addr()).filter(|number| *number != 0)
}
