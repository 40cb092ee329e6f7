//! Contexts for handshakes with endpoints.

use super::handshake::go_on;
use super::pem::KeyPair;
use super::{Ciphers, Tls, Verifier, verify_by};
use crate::basic::event_loop::EventLoop;
use crate::basic::handle::fields;
use crate::conf::kept::NamedModule;
use crate::cycle::Cycle;
use crate::location::NewLocation;
use crate::stock::UpstreamConf;
use crate::sys::{
    NGX_OK, SSL_CTX, SSL_CTX_free, SSL_CTX_set_alpn_protos, SSL_CTX_set_cipher_list,
    SSL_CTX_set_ex_data, SSL_CTX_set_verify, SSL_CTX_set_verify_depth, SSL_CTX_set1_cert_store,
    SSL_CTX_use_cert_and_key, SSL_VERIFY_NONE, ngx_http_complex_value_t, ngx_int_t, ngx_ssl_create,
    ngx_ssl_t, ngx_str_t, ngx_uint_t,
};
use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::x509::store::X509StoreRef;
use std::ffi::{c_int, c_uint};
use std::ptr::{NonNull, null_mut, without_provenance_mut};
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

fields! { UpstreamConf {
    /// What TLS to endpoints is made of.
    option tls: Tls = ssl;
}}

/// OpenSSL leaves this place to the application; nginx asks for places of its own.
pub(super) const NUMBER: c_int = 0;

/// Numbers of contexts so far.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// A context of OpenSSL's, with a number that no other one of the process ever has: another may come to lie at the same
/// address. Connections count it on their own.
pub struct Context {
    /// nginx's form of it.
    ssl: Box<ngx_ssl_t>,
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `Context::new`, and counted once for this.
        unsafe { SSL_CTX_free(self.ssl.ctx) };
    }
}

impl Context {
    /// One for these protocols, `NGX_SSL_TLSv1_2` and the like, and ciphers; `is_h2`: endpoints are told that HTTP/2 is spoken,
    /// which servers of gRPC ask for. A handshake does not fail by what is verified: nginx asks for the result. `None`: OpenSSL
    /// does not take it.
    pub fn new(
        here: EventLoop,
        protocols: u32,
        ciphers: &Ciphers,
        verify_depth: c_int,
        is_h2: bool,
    ) -> Option<Self> {
        let h2 = b"\x02h2";
        let log = Cycle::current(here).log().as_ptr();
        let mut ssl = Box::new(ngx_ssl_t { log, ..ngx_ssl_t::default() });
        // SAFETY: nginx makes the context, with its own options. It is alive from then on, and nobody else's yet; the list is a C
        // string, and OpenSSL copies the name of HTTP/2, which is as long as it is told.
        let (this, made, is_set) = unsafe {
            let made = ngx_ssl_create(&raw mut *ssl, protocols as ngx_uint_t, null_mut());
            let context = NonNull::new(ssl.ctx)?.as_ptr();
            let this = Context { ssl };
            let number = without_provenance_mut(NUMBERS.fetch_add(1, Relaxed) + 1);
            SSL_CTX_set_verify(context, SSL_VERIFY_NONE as c_int, Some(go_on));
            SSL_CTX_set_verify_depth(context, verify_depth);
            let is_set = SSL_CTX_set_cipher_list(context, ciphers.as_ptr()) == 1
                && SSL_CTX_set_ex_data(context, NUMBER, number) == 1
                && (!is_h2
                    || SSL_CTX_set_alpn_protos(context, h2.as_ptr(), h2.len() as c_uint) == 0);
            (this, made, is_set)
        };
        (made == NGX_OK as ngx_int_t && is_set).then_some(this)
    }

    fn as_ptr(&self) -> *mut SSL_CTX {
        self.ssl.ctx
    }

    /// nginx's form of it, which stays as long as this.
    pub(crate) fn as_nginx(&self) -> *mut ngx_ssl_t {
        (&raw const *self.ssl).cast_mut()
    }

    /// A store vouches for endpoints, as `V` verifies.
    pub fn trust<V: Verifier>(&self, store: &X509StoreRef) {
        // SAFETY: both are alive, in one layout in both sets of bindings; OpenSSL counts the store.
        unsafe {
            SSL_CTX_set1_cert_store(self.as_ptr(), store.as_ptr().cast());
            verify_by::<V>(self.as_ptr());
        }
    }

    /// Endpoints are shown this certificate; `false`: OpenSSL does not take it.
    pub fn present(&self, pair: &KeyPair) -> bool {
        let (leaf, key) = (pair.leaf.as_ptr().cast(), pair.key.as_ptr().cast());
        let chain = pair.chain.as_ptr().cast();
        // SAFETY: all are alive, in one layout in both sets of bindings; OpenSSL counts the last three.
        unsafe { SSL_CTX_use_cert_and_key(self.as_ptr(), leaf, key, chain, 1) == 1 }
    }
}

/// TLS toward the endpoints of a location.
pub struct LocationTls {
    context: Rc<Context>,
    /// Verified and sent; `None`: what nginx.conf says.
    name: Option<Box<ngx_http_complex_value_t>>,
    /// What `name` points at.
    _text: Box<str>,
    server_name: bool,
    verify: bool,
}

impl LocationTls {
    /// `name` is verified and sent in place of what nginx.conf says.
    pub fn new(context: Rc<Context>, name: Option<&str>, server_name: bool, verify: bool) -> Self {
        let text: Box<str> = name.unwrap_or_default().into();
        // A value without `lengths` is a plain text.
        let value = ngx_str_t::of(text.as_bytes());
        let value = ngx_http_complex_value_t { value, ..ngx_http_complex_value_t::default() };
        let name = name.map(|_| Box::new(value));
        LocationTls { context, name, _text: text, server_name, verify }
    }

    /// Puts it into the settings of a location, which keep it.
    fn change(&self, conf: &UpstreamConf) {
        let ssl = self.context.as_nginx();
        let name = self.name.as_ref().map(|name| (&raw const **name).cast_mut());
        conf.poke(|raw| {
            raw.ssl = ssl;
            raw.ssl_server_name = self.server_name.into();
            raw.ssl_verify = self.verify.into();
            raw.ssl_name = name.unwrap_or(raw.ssl_name);
            // Those of nginx.conf would be read for each connection.
            raw.ssl_certificate = null_mut();
            raw.ssl_certificate_key = null_mut();
        });
    }
}

impl NewLocation<'_> {
    /// TLS toward the endpoints of `N`, whose settings `of` finds; `None`: nginx was built without it.
    pub fn set_tls<N: NamedModule>(
        &mut self,
        of: fn(&N::Location) -> &UpstreamConf,
        tls: LocationTls,
    ) -> Option<()> {
        self.change::<N>(|conf| tls.change(of(conf)))?;
        self.keep(tls);
        Some(())
    }
}
