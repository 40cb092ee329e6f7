//! What the client of a connection has shown.

use super::clear_errors;
use crate::basic::text::bytes;
use crate::request::Request;
use crate::sys::{
    NGX_OK, SSL, SSL_SESSION, SSL_SESSION_get0_id_context, SSL_get_session, SSL_get_verify_result,
    SSL_get0_peer_certificate, ngx_connection_t, ngx_int_t, ngx_pool_t, ngx_ssl_get_client_verify,
    ngx_ssl_get_escaped_certificate, ngx_ssl_get_issuer_dn, ngx_ssl_get_subject_dn,
    ngx_ssl_remove_cached_session, ngx_str_t,
};
use std::ptr::NonNull;

type Describe =
    unsafe extern "C" fn(*mut ngx_connection_t, *mut ngx_pool_t, *mut ngx_str_t) -> ngx_int_t;

impl Request {
    /// The TLS connection; `None` without TLS.
    fn ssl(&self) -> Option<NonNull<SSL>> {
        NonNull::new(self.connection().tls()?.peek(|raw| raw.connection))
    }

    fn session(&self) -> Option<NonNull<SSL_SESSION>> {
        // SAFETY: the connection is alive, and so is its session.
        NonNull::new(unsafe { SSL_get_session(self.ssl()?.as_ptr()) })
    }

    /// The context of [`super::handshake::ClientHello::set_session_context`] that the connection began with, or the
    /// session that it goes on with; `None`: nginx's own.
    pub fn session_context(&self) -> Option<[u8; 32]> {
        let mut length = 0;
        let session = self.session()?.as_ptr();
        // SAFETY: the session of a live connection; null, or so many bytes of it.
        unsafe {
            let context = SSL_SESSION_get0_id_context(session, &raw mut length);
            // nginx's own context is a SHA-1 digest, of 20 bytes.
            let is_ours = !context.is_null() && length == 32;
            is_ours.then(|| context.cast::<[u8; 32]>().read_unaligned())
        }
    }

    /// What OpenSSL says of the client's certificate, `X509_V_OK` and the like; `None`: it has shown none. A resumed session
    /// has the result of its first handshake.
    pub fn certificate_result(&self) -> Option<u32> {
        let ssl = self.ssl()?.as_ptr();
        // SAFETY: the connection is alive.
        let result = unsafe {
            (!SSL_get0_peer_certificate(ssl).is_null()).then(|| SSL_get_verify_result(ssl))
        };
        Some(u32::try_from(result?).unwrap_or(u32::MAX))
    }

    /// The subject of the client's certificate as RFC 2253 writes it.
    pub fn certificate_subject(&self) -> Option<&[u8]> {
        self.describe(ngx_ssl_get_subject_dn)
    }

    /// Its issuer.
    pub fn certificate_issuer(&self) -> Option<&[u8]> {
        self.describe(ngx_ssl_get_issuer_dn)
    }

    /// `SUCCESS`, `NONE` or `FAILED:reason`.
    pub fn certificate_verdict(&self) -> Option<&[u8]> {
        self.describe(ngx_ssl_get_client_verify)
    }

    /// The certificate, URL-encoded PEM.
    pub fn certificate_escaped(&self) -> Option<&[u8]> {
        self.describe(ngx_ssl_get_escaped_certificate)
    }

    fn describe(&self, how: Describe) -> Option<&[u8]> {
        self.ssl()?;
        let mut text = ngx_str_t::empty();
        let (connection, pool) = (self.connection().as_ptr(), self.pool().as_ptr());
        // SAFETY: alive, over TLS; nginx writes the text to the request's pool, or has a literal for it.
        let text = unsafe {
            let answer = how(connection, pool, &raw mut text);
            (answer == NGX_OK as ngx_int_t).then(|| bytes(text))
        };
        clear_errors();
        text
    }

    /// The next connection does not go on with this one's session: a client may show another certificate then.
    pub fn forget_session(&self) {
        let Some(session) = self.session() else { return };
        let context = self.connection().tls().map(|tls| tls.peek(|raw| raw.session_ctx));
        if let Some(context) = context.and_then(NonNull::new) {
            // SAFETY: alive; nginx keeps the context of its session cache with the connection.
            unsafe { ngx_ssl_remove_cached_session(context.as_ptr(), session.as_ptr()) };
        }
    }
}
