//! TLS toward clients: the certificate of a server name, what a host asks of its clients, and the bundles of authorities that
//! hosts and policies share; and TLS toward endpoints.

pub mod bundles;
pub mod certificate;
pub mod client_certificate;
pub mod handshake;
pub mod upstream;

use crate::worker;
use nginx::EventLoop;
use nginx::ssl::Verifier;
use nginx::ssl::handshake::{ClientHello, Handshakes, ServerName};
use openssl::x509::X509StoreContextRef;

/// The handshakes of servers with `ingress_router`.
pub struct Clients;

impl Handshakes for Clients {
    type Verifier = Bounded;

    fn begin(here: EventLoop, hello: &ClientHello<'_>) -> bool {
        let worker = worker::current(here);
        worker.is_none_or(|worker| client_certificate::begin(worker, hello))
    }

    fn certificate(here: EventLoop, handshake: &ServerName<'_>) -> bool {
        let worker = worker::current(here);
        worker.is_none_or(|worker| certificate::choose(worker, handshake))
    }
}

/// The handshakes of servers with `ingress_decrypt`, which ask for no certificate.
pub struct Sessions;

impl Handshakes for Sessions {
    type Verifier = Bounded;

    fn begin(_: EventLoop, hello: &ClientHello<'_>) -> bool {
        handshake::begin_without_policy(hello)
    }

    fn certificate(here: EventLoop, handshake: &ServerName<'_>) -> bool {
        Clients::certificate(here, handshake)
    }
}

/// What peers send takes a bounded time to verify.
pub struct Bounded;

impl Verifier for Bounded {
    const MAX_SENT_BYTES: i64 = oxigress_pki::MAX_SENT_BYTES;

    fn verify(context: &mut X509StoreContextRef) -> bool {
        oxigress_pki::verify(context)
    }
}
