//! What a handshake asks of a client, and what the client of a connection has shown.
#![allow(unsafe_code)]

use crate::request::Request;
use crate::system::guard;
use crate::tls::Owned;
use crate::tls::clear_errors;
use crate::tls::client_certificate;
use crate::tls::sha256;
use crate::worker;
use nginx::EventLoop;
use nginx::sys::{
    NGX_OK, SSL, SSL_CLIENT_HELLO_ERROR, SSL_CLIENT_HELLO_SUCCESS, SSL_CTRL_SET_MAX_CERT_LIST,
    SSL_CTRL_SET_VERIFY_CERT_STORE, SSL_CTX_free, SSL_CTX_new, SSL_CTX_set_cipher_list,
    SSL_CTX_set_client_hello_cb, SSL_SESSION_get0_id_context, SSL_VERIFY_PEER, SSL_clear_options,
    SSL_client_hello_get0_ext, SSL_ctrl, SSL_dup_CA_list, SSL_get_session, SSL_get_verify_result,
    SSL_get0_peer_certificate, SSL_set_cipher_list, SSL_set_client_CA_list, SSL_set_options,
    SSL_set_session_id_context, SSL_set_verify, SSL_set_verify_depth, TLS_server_method,
    TLSEXT_TYPE_server_name, X509_STORE_CTX, X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT,
    X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT,
    X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE,
    X509_V_OK, ngx_connection_t, ngx_int_t, ngx_pool_t, ngx_ssl_get_client_verify,
    ngx_ssl_get_escaped_certificate, ngx_ssl_get_issuer_dn, ngx_ssl_get_subject_dn,
    ngx_ssl_remove_cached_session, ngx_ssl_t, ngx_str_t,
};
use oxigress_core::gateway::Shown;
use oxigress_core::model::policy::{ClientCertificates, TlsPolicy, VerifyClient};
use oxigress_core::router::tls;
use oxigress_pki::Authorities;
use std::ffi::{CString, c_int, c_long, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null, null_mut};

/// `SSL_OP_CIPHER_SERVER_PREFERENCE`, a macro
const CIPHER_SERVER_PREFERENCE: u64 = 1 << 22;

/// From now on every handshake on `ssl` begins with [`client_certificate::begin`].
///
/// # Safety
/// `ssl` has a context, which nginx made for a server.
pub unsafe fn begin_handshakes(ssl: *mut ngx_ssl_t) {
    // SAFETY: vouched for by the caller.
    unsafe { SSL_CTX_set_client_hello_cb((*ssl).ctx, Some(hello_callback), null_mut()) };
    // SAFETY: as above.
    unsafe { bound_verification((*ssl).ctx) };
}

/// From now on what peers send takes a bounded time to verify.
///
/// # Safety
/// The context is alive.
pub unsafe fn bound_verification(context: *mut nginx::sys::SSL_CTX) {
    // SAFETY: the caller promises a live context; the callback takes what OpenSSL gives it, which has one layout in both
    // sets of bindings. Without certificates of a peer neither is used.
    unsafe {
        let verify = std::mem::transmute::<
            unsafe extern "C" fn(_, _) -> _,
            unsafe extern "C" fn(*mut X509_STORE_CTX, *mut c_void) -> c_int,
        >(oxigress_pki::verify);
        nginx::sys::SSL_CTX_set_cert_verify_callback(context, Some(verify), null_mut());
        let (control, most) = (SSL_CTRL_SET_MAX_CERT_LIST, oxigress_pki::MAX_SENT_BYTES);
        nginx::sys::SSL_CTX_ctrl(context, control as c_int, most as c_long, null_mut());
    }
}

/// OpenSSL's callback when a client's hello has come; for a second hello too.
unsafe extern "C" fn hello_callback(
    ssl: *mut SSL,
    _alert: *mut c_int,
    _argument: *mut c_void,
) -> c_int {
    const GO_ON: c_int = SSL_CLIENT_HELLO_SUCCESS as c_int;
    // nginx's own callback finds the server by name, and what that says about clients goes before ours.
    #[cfg(nginx_has_client_hello)]
    {
        // SAFETY: as OpenSSL called us, in whose place nginx's stood.
        let answer = unsafe { nginx::sys::ngx_ssl_client_hello_callback(ssl, _alert, _argument) };
        if answer != GO_ON {
            return answer;
        }
    }
    guard::contain("client_hello", SSL_CLIENT_HELLO_ERROR as c_int, || {
        // SAFETY: a handshake runs on the event loop.
        let Some(worker) = (unsafe { worker::current(EventLoop::here()) }) else { return GO_ON };
        let hello = ClientHello { ssl, callback: PhantomData };
        match client_certificate::begin(worker, &hello) {
            true => GO_ON,
            false => SSL_CLIENT_HELLO_ERROR as c_int,
        }
    })
}

/// A handshake that begins.
pub struct ClientHello<'h> {
    ssl: *mut SSL,
    callback: PhantomData<&'h ()>,
}

impl<'h> ClientHello<'h> {
    /// The server name the client sent.
    pub fn server_name(&self) -> Option<&'h [u8]> {
        let (mut data, mut length) = (null(), 0);
        // SAFETY: OpenSSL gives the handshake of this callback.
        let found = unsafe {
            SSL_client_hello_get0_ext(
                self.ssl,
                TLSEXT_TYPE_server_name,
                &raw mut data,
                &raw mut length,
            )
        };
        // SAFETY: lies in the hello, which stays during the callback.
        (found == 1)
            .then(|| unsafe { std::slice::from_raw_parts(data, length) })
            .and_then(tls::server_name)
    }

    /// Goes on with these settings, and the authorities of the bundles that they name; `false`: OpenSSL does not take
    /// them.
    pub fn apply(&self, with: &Handshake, authorities: Option<&Authorities>) -> bool {
        let context = with.context;
        // SAFETY: the handshake of this callback; OpenSSL copies what it is given, and counts the store.
        let is_set = unsafe {
            SSL_set_session_id_context(self.ssl, context.as_ptr(), context.len() as c_uint) == 1
                && with
                    .ciphers
                    .as_ref()
                    .is_none_or(|list| SSL_set_cipher_list(self.ssl, list.as_ptr()) == 1)
                && with.client.as_ref().is_none_or(|client| {
                    authorities.is_some_and(|authorities| client.apply(self.ssl, authorities))
                })
        };
        match with.prefers_server_ciphers {
            // SAFETY: as above.
            Some(true) => unsafe { SSL_set_options(self.ssl, CIPHER_SERVER_PREFERENCE) },
            // SAFETY: as above.
            Some(false) => unsafe { SSL_clear_options(self.ssl, CIPHER_SERVER_PREFERENCE) },
            None => 0,
        };
        clear_errors();
        is_set
    }
}

/// What a handshake says and asks by a host's policy.
pub struct Handshake {
    context: [u8; 32],
    client: Option<Client>,
    ciphers: Option<CString>,
    prefers_server_ciphers: Option<bool>,
}

impl Handshake {
    /// Refuses what OpenSSL would not take.
    pub fn new(policy: &TlsPolicy) -> Result<Self, String> {
        let made = Self::make(policy);
        clear_errors();
        made
    }

    fn make(policy: &TlsPolicy) -> Result<Self, String> {
        let client = policy.client.as_ref().map(Client::new);
        let ciphers = policy.ciphers.as_ref();
        let ciphers = ciphers.map(|list| cipher_list(list.as_str())).transpose()?;
        let client = client.filter(|client| client.verify != VerifyClient::Off);
        let prefers_server_ciphers = policy.prefers_server_ciphers;
        let asks = policy.client.as_ref().filter(|_| client.is_some());
        let asks = asks.map_or([0; 16], digest_of_client);
        let list = ciphers.as_ref().map_or(&b""[..], |list| list.as_bytes());
        let order: u8 = prefers_server_ciphers.map_or(2, u8::from);
        // A session keeps its cipher: what differs is not resumed either.
        let rest = digest(&[&asks, list, &[order]]);
        let mut context = [0; 32];
        let (first, second) = context.split_at_mut(16);
        first.copy_from_slice(&asks);
        second.copy_from_slice(&rest);
        Ok(Handshake { context, client, ciphers, prefers_server_ciphers })
    }

    /// A certificate is asked for.
    pub fn is_mutual(&self) -> bool {
        self.client.is_some()
    }

    /// Stands for what certificate is asked for; zeroes: none is.
    pub fn asks(&self) -> [u8; 16] {
        *self.context.first_chunk().unwrap_or(&[0; 16])
    }
}

/// Of all that decides what a certificate is checked against.
fn digest_of_client(client: &ClientCertificates) -> [u8; 16] {
    let verify = [client.verify as u8];
    let depth = client.depth.to_le_bytes();
    // Ids of bundles are digests of what they say.
    let revoked = client.revoked.as_ref().map_or("", |id| id.as_str());
    digest(&[client.authorities.as_str().as_bytes(), revoked.as_bytes(), &verify, &depth])
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut text = Vec::new();
    for part in parts {
        // With its length, so that two texts are not taken for two others.
        text.extend((part.len() as u64).to_le_bytes());
        text.extend(*part);
    }
    *sha256(&text).first_chunk().unwrap_or(&[0; 16])
}

/// As OpenSSL takes it; refuses what it would not take.
pub(crate) fn cipher_list(text: &str) -> Result<CString, String> {
    let list = CString::new(text).map_err(|_| "the cipher list has a NUL")?;
    // SAFETY: makes a context.
    let context = NonNull::new(unsafe { SSL_CTX_new(TLS_server_method()) });
    let context = Owned(context.ok_or("out of memory")?, SSL_CTX_free);
    // SAFETY: the context is alive, the list a C string.
    match unsafe { SSL_CTX_set_cipher_list(context.0.as_ptr(), list.as_ptr()) } {
        1 => Ok(list),
        _ => Err("OpenSSL knows no cipher of the list: name one that it has".into()),
    }
}

/// What a client has to show.
struct Client {
    verify: VerifyClient,
    depth: c_int,
}

impl Client {
    fn new(from: &ClientCertificates) -> Self {
        // More certificates than that are in no chain; 0 means 1, as in the reference.
        let depth = from.depth.clamp(1, 100) as c_int;
        Client { verify: from.verify, depth }
    }

    /// # Safety
    /// `ssl` is in a handshake.
    unsafe fn apply(&self, ssl: *mut SSL, authorities: &Authorities) -> bool {
        let store = authorities.store().cast();
        // SAFETY: vouched for by the caller; OpenSSL counts the store (the 1) and owns the copy of the names.
        unsafe {
            SSL_set_verify(ssl, SSL_VERIFY_PEER as c_int, Some(go_on));
            SSL_set_verify_depth(ssl, self.depth);
            let names = SSL_dup_CA_list(authorities.certificates().subjects().cast());
            if names.is_null() {
                return false;
            }
            SSL_set_client_CA_list(ssl, names);
            SSL_ctrl(ssl, SSL_CTRL_SET_VERIFY_CERT_STORE as c_int, 1 as c_long, store) == 1
        }
    }
}

/// As nginx's own: a handshake does not fail, its requests do, with a page that says why.
pub(crate) unsafe extern "C" fn go_on(_: c_int, _: *mut X509_STORE_CTX) -> c_int {
    1
}

type Describe =
    unsafe extern "C" fn(*mut ngx_connection_t, *mut ngx_pool_t, *mut ngx_str_t) -> ngx_int_t;

impl<'r> Request<'r> {
    /// The TLS connection; `None` without TLS.
    fn ssl(&self) -> Option<*mut SSL> {
        // SAFETY: a request has a connection until it is freed.
        let ssl = unsafe { (*(*self.as_ptr()).connection).ssl.as_ref() }?;
        Some(ssl.connection).filter(|ssl| !ssl.is_null())
    }

    /// What [`Handshake::asks`] was when the connection began, or the session that it goes on with; zeroes: for
    /// nothing.
    pub fn asked_for_certificate(&self) -> [u8; 16] {
        let Some(ssl) = self.ssl() else { return [0; 16] };
        // SAFETY: the connection is alive, and so is its session.
        let session = unsafe { SSL_get_session(ssl) };
        if session.is_null() {
            return [0; 16];
        }
        let mut length = 0;
        // SAFETY: as above.
        let context = unsafe { SSL_SESSION_get0_id_context(session, &raw mut length) };
        // nginx's own context is a SHA-1 digest, of 20 bytes.
        if context.is_null() || length != 32 {
            return [0; 16];
        }
        // SAFETY: that many bytes of the session.
        unsafe { context.cast::<[u8; 16]>().read_unaligned() }
    }

    /// What the client has shown.
    pub fn certificate_shown(&self) -> Shown {
        let Some(ssl) = self.ssl() else { return Shown::Nothing };
        // SAFETY: the connection is alive.
        if unsafe { SSL_get0_peer_certificate(ssl) }.is_null() {
            return Shown::Nothing;
        }
        // SAFETY: as above. A resumed session has the result of its first handshake.
        match u32::try_from(unsafe { SSL_get_verify_result(ssl) }).unwrap_or(u32::MAX) {
            X509_V_OK => Shown::Valid,
            // As nginx's `optional_no_ca` has them.
            X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT
            | X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN
            | X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY
            | X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT
            | X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE => Shown::Unvouched,
            _ => Shown::Invalid,
        }
    }

    /// The subject of the client's certificate as RFC 2253 writes it.
    pub fn certificate_subject(&self) -> Option<&'r [u8]> {
        self.describe(ngx_ssl_get_subject_dn)
    }

    /// Its issuer.
    pub fn certificate_issuer(&self) -> Option<&'r [u8]> {
        self.describe(ngx_ssl_get_issuer_dn)
    }

    /// `SUCCESS`, `NONE` or `FAILED:reason`.
    pub fn certificate_verdict(&self) -> Option<&'r [u8]> {
        self.describe(ngx_ssl_get_client_verify)
    }

    /// The certificate, URL-encoded PEM.
    pub fn certificate_escaped(&self) -> Option<&'r [u8]> {
        self.describe(ngx_ssl_get_escaped_certificate)
    }

    fn describe(&self, how: Describe) -> Option<&'r [u8]> {
        self.ssl()?;
        let raw = self.as_ptr();
        let mut text = ngx_str_t { len: 0, data: null_mut() };
        // SAFETY: alive, over TLS; nginx writes the text to the request's pool.
        let answer = unsafe { how((*raw).connection, (*raw).pool, &raw mut text) };
        clear_errors();
        // SAFETY: as above.
        (answer == NGX_OK as ngx_int_t).then(|| unsafe { crate::system::memory::bytes(text) })
    }

    /// The next connection does not go on with this one's session: a client may show another certificate then.
    pub fn forget_session(&self) {
        let Some(ssl) = self.ssl() else { return };
        // SAFETY: alive; nginx keeps the context of its session cache with the connection.
        unsafe {
            let context = (*(*(*self.as_ptr()).connection).ssl).session_ctx;
            let session = SSL_get_session(ssl);
            if !context.is_null() && !session.is_null() {
                ngx_ssl_remove_cached_session(context, session);
            }
        }
    }

    /// The connection is not kept.
    pub fn close_after_answer(&self) {
        // SAFETY: alive.
        unsafe { (*self.as_ptr()).set_keepalive(0) };
    }

    /// nginx sent it here, by an error page or an internal redirect.
    pub fn is_internal(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.as_ptr()).internal() != 0 }
    }
}
