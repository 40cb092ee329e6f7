//! What besides backend and endpoint decides which connection a request may use.
#![allow(unsafe_code)]

use crate::system::memory;
use crate::tls::upstream::context_number;
use nginx::sys::{
    NGX_OK, ngx_http_complex_value, ngx_http_complex_value_t, ngx_http_request_t, ngx_int_t,
    ngx_str_t,
};
use siphasher::sip::SipHasher13;
use std::hash::{Hash, Hasher};

/// Makes identities: a keyed hash, so that nobody can choose a server name that collides with another's.
pub struct Identifier([u64; 2]);

impl Default for Identifier {
    fn default() -> Self {
        Identifier([memory::random(), memory::random()])
    }
}

impl Identifier {
    /// What decided the TLS handshake and the local address of this request's connections; 0 for plain ones
    /// that the kernel gives an address. `None` when memory is out.
    ///
    /// # Safety
    /// The request is alive and has an upstream with a configuration.
    #[inline]
    pub unsafe fn of(&self, request: *mut ngx_http_request_t) -> Option<u64> {
        // SAFETY: the caller has a live request with an upstream.
        let upstream = unsafe { &*(*request).upstream };
        if upstream.ssl() == 0 && upstream.peer.local.is_null() {
            return Some(0);
        }
        // SAFETY: as above.
        unsafe { self.hash(request, upstream) }
    }

    /// # Safety
    /// `upstream` is the request's.
    unsafe fn hash(
        &self,
        request: *mut ngx_http_request_t,
        upstream: &nginx::sys::ngx_http_upstream_s,
    ) -> Option<u64> {
        let [a, b] = self.0;
        let mut hasher = SipHasher13::new_with_keys(a, b);
        if upstream.ssl() != 0 {
            // SAFETY: an upstream has a configuration from its location, which the request holds.
            let conf = unsafe { &*upstream.conf };
            // Protocols, ciphers, trust and a certificate without variables. Never another's: that of nginx.conf
            // stays as long as the cycle, and so longer than the pool, and that of a policy has a number.
            // SAFETY: the request's location holds it.
            match unsafe { context_number(conf.ssl.cast()) } {
                Some(number) => (0_u8, number).hash(&mut hasher),
                None => (1_u8, conf.ssl.addr()).hash(&mut hasher),
            }
            hasher.write_u8(u8::from(conf.ssl_verify != 0));
            hasher.write_u8(u8::from(conf.ssl_server_name != 0));
            if conf.ssl_server_name != 0 || conf.ssl_verify != 0 {
                // SAFETY: a value of the configuration, or a string of the request.
                let name = unsafe { value(request, conf.ssl_name, upstream.ssl_name) }?;
                write(&mut hasher, name);
            }
            let nothing = nginx::sys::ngx_str_t { len: 0, data: std::ptr::null_mut() };
            for file in [conf.ssl_certificate, conf.ssl_certificate_key] {
                // SAFETY: null, or a value of the configuration.
                write(&mut hasher, unsafe { value(request, file, nothing) }?);
            }
        }
        // SAFETY: null, or what `proxy_bind` says for this request.
        if let Some(local) = unsafe { upstream.peer.local.as_ref() } {
            let address = ngx_str_t { len: local.socklen as usize, data: local.sockaddr.cast() };
            // SAFETY: nginx's addresses are as long as they say.
            write(&mut hasher, unsafe { memory::bytes(address) });
            hasher.write_u8(upstream.peer.transparent() as u8);
        }
        // Not that of plain connections.
        Some(hasher.finish().max(1))
    }
}

/// With its length, so that two texts are not taken for two others.
fn write(hasher: &mut SipHasher13, text: &[u8]) {
    hasher.write_usize(text.len());
    hasher.write(text);
}

/// # Safety
/// The request is alive; `complex` is null or a value of the configuration; `otherwise` is of the request.
unsafe fn value<'r>(
    request: *mut ngx_http_request_t,
    complex: *mut nginx::sys::ngx_http_complex_value_t,
    otherwise: nginx::sys::ngx_str_t,
) -> Option<&'r [u8]> {
    let mut text = ngx_str_t { len: otherwise.len, data: otherwise.data };
    if !complex.is_null() {
        let complex: *mut ngx_http_complex_value_t = complex.cast();
        // SAFETY: the caller has a live request with an upstream.
        let got = unsafe { ngx_http_complex_value(request, complex, &raw mut text) };
        if got != NGX_OK as ngx_int_t {
            return None;
        }
    }
    // SAFETY: a string of the configuration or of the request's pool.
    Some(unsafe { memory::bytes(text) })
}
