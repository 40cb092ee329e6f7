//! Handshakes of clients.

use super::pem::KeyPair;
use super::{Ciphers, Verifier, clear_errors, verify_by};
use crate::basic::event_loop::EventLoop;
use crate::basic::guard::contain;
use crate::basic::text::bytes;
use crate::conf::Server;
use crate::connection::Connection;
use crate::sys::{
    SSL, SSL_AD_UNRECOGNIZED_NAME, SSL_CLIENT_HELLO_ERROR, SSL_CLIENT_HELLO_SUCCESS,
    SSL_CTRL_SET_VERIFY_CERT_STORE, SSL_CTX_set_cert_cb, SSL_CTX_set_client_hello_cb,
    SSL_VERIFY_PEER, SSL_certs_clear, SSL_clear_options, SSL_client_hello_get0_ext, SSL_ctrl,
    SSL_dup_CA_list, SSL_get_ex_data, SSL_get_servername, SSL_set_cipher_list,
    SSL_set_client_CA_list, SSL_set_options, SSL_set_session_id_context, SSL_set_verify,
    SSL_set_verify_depth, SSL_use_cert_and_key, TLSEXT_NAMETYPE_host_name, TLSEXT_TYPE_server_name,
    X509_STORE_CTX, ngx_ssl_connection_index, ngx_ssl_t, ngx_str_t,
};
use foreign_types::{ForeignType, ForeignTypeRef};
use openssl::stack::StackRef;
use openssl::x509::X509Name;
use openssl::x509::store::X509StoreRef;
use std::ffi::{CStr, c_int, c_long, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::{null, null_mut};

/// `SSL_OP_CIPHER_SERVER_PREFERENCE`, a macro
const CIPHER_SERVER_PREFERENCE: u64 = 1 << 22;

/// Says how handshakes go on.
pub trait Handshakes: 'static {
    /// Verifies the certificates of clients.
    type Verifier: Verifier;
    /// A client's hello has come; for a second hello too.
    fn begin(here: EventLoop, hello: &ClientHello<'_>) -> Beginning;
    /// A handshake needs a certificate. `false`: it ends.
    fn certificate(here: EventLoop, handshake: &ServerName<'_>) -> bool;
}

/// What becomes of a handshake after its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It goes on.
    GoesOn,
    /// It ends, with an alert that says nothing of why.
    Ends,
    /// It ends with the alert `unrecognized_name` (RFC 6066 §3).
    EndsAsUnrecognized,
}

impl From<bool> for Beginning {
    fn from(goes_on: bool) -> Self {
        if goes_on { Beginning::GoesOn } else { Beginning::Ends }
    }
}

impl Server {
    /// From now on every handshake asks `H`. `false`: the server has no TLS.
    pub fn ask_handshakes<H: Handshakes>(&self) -> bool {
        self.tls().is_some_and(|tls| ask::<H>(&tls.ssl))
    }
}

/// From now on every handshake of a server asks `H`. `false`: the server has no TLS.
pub(crate) fn ask<H: Handshakes>(tls: &ngx_ssl_t) -> bool {
    let context = tls.ctx;
    if context.is_null() {
        return false;
    }
    // SAFETY: a context that nginx has made for the server.
    unsafe {
        SSL_CTX_set_cert_cb(context, Some(certificate_callback::<H>), null_mut());
        SSL_CTX_set_client_hello_cb(context, Some(hello_callback::<H>), null_mut());
        verify_by::<H::Verifier>(context);
    }
    true
}

/// OpenSSL's callback when a client's hello has come.
unsafe extern "C" fn hello_callback<H: Handshakes>(
    ssl: *mut SSL,
    alert: *mut c_int,
    _argument: *mut c_void,
) -> c_int {
    const GO_ON: c_int = SSL_CLIENT_HELLO_SUCCESS as c_int;
    // nginx's own callback finds the server by name, and what that says about clients goes before ours.
    #[cfg(nginx_has_client_hello)]
    {
        // SAFETY: as OpenSSL called us, in whose place nginx's stood.
        let answer = unsafe { crate::sys::ngx_ssl_client_hello_callback(ssl, alert, _argument) };
        if answer != GO_ON {
            return answer;
        }
    }
    contain("client_hello", SSL_CLIENT_HELLO_ERROR as c_int, || {
        // SAFETY: a handshake runs on the event loop, and nginx keeps with it the connection that it is of, which lives as long;
        // OpenSSL gives a place for the alert, its own until this returns.
        let (here, connection, alert) = unsafe {
            let connection = SSL_get_ex_data(ssl, ngx_ssl_connection_index);
            (EventLoop::here(), Connection::from_nullable(connection.cast()), alert.as_mut())
        };
        let beginning = H::begin(here, &ClientHello { ssl, connection, callback: PhantomData });
        match (beginning, alert) {
            (Beginning::GoesOn, _) => return GO_ON,
            (Beginning::EndsAsUnrecognized, Some(alert)) => {
                *alert = SSL_AD_UNRECOGNIZED_NAME as c_int;
            }
            _ => {}
        }
        SSL_CLIENT_HELLO_ERROR as c_int
    })
}

/// OpenSSL's callback when a handshake needs a certificate: 1 goes on.
unsafe extern "C" fn certificate_callback<H: Handshakes>(ssl: *mut SSL, _: *mut c_void) -> c_int {
    // After a panic the certificate in nginx.conf stays.
    contain("certificate_callback", 1, || {
        // SAFETY: a handshake runs on the event loop.
        let here = unsafe { EventLoop::here() };
        c_int::from(H::certificate(here, &ServerName { ssl, callback: PhantomData }))
    })
}

/// A handshake that needs a certificate, during the callback that says so.
pub struct ServerName<'h> {
    ssl: *mut SSL,
    callback: PhantomData<&'h ()>,
}

impl<'h> ServerName<'h> {
    /// The server name the client sent.
    pub fn name(&self) -> Option<&'h [u8]> {
        // SAFETY: OpenSSL gives the handshake of this callback, and null or a C string that lives as long as its hello.
        unsafe {
            let name = SSL_get_servername(self.ssl, TLSEXT_NAMETYPE_host_name as c_int);
            (!name.is_null()).then(|| CStr::from_ptr(name).to_bytes())
        }
    }

    /// Answers with this certificate; `false`: OpenSSL does not take it, and the handshake cannot go on.
    pub fn present(&self, pair: &KeyPair) -> bool {
        let (leaf, key) = (pair.leaf.as_ptr().cast(), pair.key.as_ptr().cast());
        let chain = pair.chain.as_ptr().cast();
        // SAFETY: all four are alive, in one layout in both sets of bindings; OpenSSL takes references of its own. The
        // certificate of nginx.conf goes first: with a key of another kind it would stand beside ours, for clients to choose.
        let taken = unsafe {
            SSL_certs_clear(self.ssl);
            SSL_use_cert_and_key(self.ssl, leaf, key, chain, 1)
        };
        clear_errors();
        taken == 1
    }
}

/// A handshake that begins, during the callback that says so.
pub struct ClientHello<'h> {
    ssl: *mut SSL,
    connection: Option<&'h Connection>,
    callback: PhantomData<&'h ()>,
}

impl<'h> ClientHello<'h> {
    /// The connection that it came by.
    pub fn connection(&self) -> Option<&'h Connection> {
        self.connection
    }

    /// The extension with the server name, as the client sent it.
    pub fn server_name_extension(&self) -> Option<&'h [u8]> {
        let (mut data, mut length) = (null(), 0);
        let (data_at, length_at) = (&raw mut data, &raw mut length);
        // SAFETY: OpenSSL gives the handshake of this callback; what it finds lies in the hello, which stays as long.
        unsafe {
            let found =
                SSL_client_hello_get0_ext(self.ssl, TLSEXT_TYPE_server_name, data_at, length_at);
            (found == 1).then(|| bytes(ngx_str_t { len: length, data: data.cast_mut() }))
        }
    }

    /// A session is gone on with only under the context that it began with. `false`: OpenSSL does not take it.
    pub fn set_session_context(&self, context: &[u8; 32]) -> bool {
        let (start, length) = (context.as_ptr(), context.len() as c_uint);
        // SAFETY: the handshake of this callback; OpenSSL copies what it is given.
        unsafe { SSL_set_session_id_context(self.ssl, start, length) == 1 }
    }

    /// The ciphers that may be used. `false`: OpenSSL does not take them.
    pub fn set_ciphers(&self, list: &Ciphers) -> bool {
        // SAFETY: the handshake of this callback; OpenSSL copies what it is given.
        unsafe { SSL_set_cipher_list(self.ssl, list.as_ptr()) == 1 }
    }

    /// The server's order of ciphers goes before the client's, or not.
    pub fn prefer_server_ciphers(&self, prefers: bool) {
        let set = if prefers { SSL_set_options } else { SSL_clear_options };
        // SAFETY: the handshake of this callback.
        unsafe { set(self.ssl, CIPHER_SERVER_PREFERENCE) };
    }

    /// The client is asked for a certificate that a store vouches for, and told these subjects. The handshake does not fail
    /// by it, its requests do. `false`: OpenSSL does not take it.
    pub fn ask_for_certificate(
        &self,
        store: &X509StoreRef,
        subjects: &StackRef<X509Name>,
        depth: c_int,
    ) -> bool {
        let store = store.as_ptr().cast();
        // SAFETY: the handshake of this callback; OpenSSL counts the store (the 1) and owns the copy of the names. Both have
        // one layout in both sets of bindings.
        unsafe {
            SSL_set_verify(self.ssl, SSL_VERIFY_PEER as c_int, Some(go_on));
            SSL_set_verify_depth(self.ssl, depth);
            let names = SSL_dup_CA_list(subjects.as_ptr().cast());
            if names.is_null() {
                return false;
            }
            SSL_set_client_CA_list(self.ssl, names);
            SSL_ctrl(self.ssl, SSL_CTRL_SET_VERIFY_CERT_STORE as c_int, 1 as c_long, store) == 1
        }
    }
}

/// As nginx's own: a handshake does not fail, its requests do, with a page that says why.
pub(super) unsafe extern "C" fn go_on(_: c_int, _: *mut X509_STORE_CTX) -> c_int {
    1
}
