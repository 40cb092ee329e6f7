//! TLS toward clients: the certificate of a server name, what a host asks of its clients, and the bundles of authorities that
//! hosts and policies share; and TLS toward endpoints.

pub mod bundles;
pub mod certificate;
pub mod client_certificate;
pub mod handshake;
pub mod upstream;

use crate::worker;
use nginx::EventLoop;
use nginx::ssl::authorities::Authorities;
use nginx::ssl::handshake::{Beginning, ClientHello, Handshakes, ServerName};

/// The handshakes of servers with `ingress_router`.
pub struct Clients;

impl Handshakes for Clients {
    type Verifier = Authorities;

    fn begin(here: EventLoop, hello: &ClientHello<'_>) -> Beginning {
        let worker = worker::current(here);
        worker.map_or(Beginning::GoesOn, |worker| client_certificate::begin(worker, hello))
    }

    fn certificate(here: EventLoop, handshake: &ServerName<'_>) -> bool {
        let worker = worker::current(here);
        worker.is_none_or(|worker| certificate::choose(worker, handshake))
    }
}

/// The handshakes of servers with `ingress_decrypt`, which ask for no certificate.
pub struct Sessions;

impl Handshakes for Sessions {
    type Verifier = Authorities;

    fn begin(_: EventLoop, hello: &ClientHello<'_>) -> Beginning {
        handshake::begin_without_policy(hello).into()
    }

    fn certificate(here: EventLoop, handshake: &ServerName<'_>) -> bool {
        Clients::certificate(here, handshake)
    }
}
