//! What besides backend and endpoint decides which connection a request may use.

use crate::system::memory;
use nginx::ssl::Tls;
use nginx::{ComplexValue, Request, Upstream};
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
    #[inline]
    pub fn of(&self, request: &Request, upstream: &Upstream) -> Option<u64> {
        if !upstream.is_tls() && upstream.local().is_none() {
            return Some(0);
        }
        self.hash(request, upstream)
    }

    fn hash(&self, request: &Request, upstream: &Upstream) -> Option<u64> {
        let [a, b] = self.0;
        let mut hasher = SipHasher13::new_with_keys(a, b);
        if upstream.is_tls() {
            let conf = upstream.conf()?;
            // Protocols, ciphers, trust and a certificate without variables. Never another's: that of nginx.conf
            // stays as long as the cycle, and so longer than the pool, and that of a policy has a number.
            match (conf.tls().and_then(Tls::number), conf.tls()) {
                (Some(number), _) => (0_u8, number).hash(&mut hasher),
                (None, tls) => (1_u8, tls.map_or(0, |tls| tls.as_ptr().addr())).hash(&mut hasher),
            }
            hasher.write_u8(u8::from(conf.verify() != 0));
            hasher.write_u8(u8::from(conf.server_name() != 0));
            if conf.server_name() != 0 || conf.verify() != 0 {
                write(&mut hasher, value(request, conf.tls_name(), upstream.tls_name())?);
            }
            for file in [conf.certificate(), conf.certificate_key()] {
                write(&mut hasher, value(request, file, &[])?);
            }
        }
        // What `proxy_bind` says for this request.
        if let Some(local) = upstream.local() {
            write(&mut hasher, local.bytes());
            hasher.write_u8(upstream.is_transparent().into());
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

/// The value for a request, or what holds without one; `None` when memory is out.
fn value<'r>(
    request: &'r Request,
    value: Option<&ComplexValue>,
    otherwise: &'r [u8],
) -> Option<&'r [u8]> {
    value.map_or(Some(otherwise), |value| value.evaluate(request))
}
