//! Upstream peers of sessions: nginx's callbacks around one attempt to reach an endpoint.

use crate::balancer::attempt::{ChosenEndpoint, InFlight, MAX_DENIED, Tried};
use crate::balancer::choose::{self, Search, SelectBy};
use crate::balancer::outcome;
use crate::balancer::peer::refuse_zone;
use crate::request::route::EndpointSetRef;
use crate::stream::passthrough::SessionBackend;
use crate::stream::sessions as stream;
use crate::stream::sessions::Arrived;
use crate::stream::{Stream, open, say, tls};
use crate::system::memory::now_milliseconds;
use crate::worker;
use crate::worker::Worker;
use nginx::stream::balancer::SessionBalancer;
use nginx::stream::{Session, SessionState, SessionUpstream, StreamBlock};
use nginx::{Attempt, Code, Outcome, PeerName, Refused};
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::sessions::{SessionOwner, namespace_of};
use oxigress_core::model::StreamPort;

/// Balances the sessions of upstreams with `ingress_balancer`.
pub struct Sessions;

/// A session's peer, in its pool: what is chosen and what was tried.
pub struct Peer<'s> {
    worker: &'static Worker,
    session: &'s Session,
    block: &'s StreamBlock,
    /// Empty: none, and the log has said so.
    backend: &'s [u8],
    /// Its endpoint set, as it was found first.
    endpoint_set: EndpointSetRef,
    attempts: usize,
    /// `proxy_next_upstream_tries`, if it is set.
    limit: usize,
    tried: Tried<'s>,
    name: Option<&'s PeerName>,
    current: Identity,
    in_flight: InFlight,
    /// The backend's sessions are sent by the hash of a key.
    hash: Option<u32>,
}

impl SessionBalancer for Sessions {
    const NAME: &'static str = "ingress_balancer";
    type Peer<'s> = Peer<'s>;

    fn init(block: &StreamBlock) -> Result<(), Refused> {
        refuse_zone(block.has_zone())
    }

    fn peer<'s>(session: &'s Session, block: &'s StreamBlock) -> Option<Peer<'s>> {
        let worker = worker::current(session.event_loop())?;
        let backend = backend(session, block, worker).filter(|backend| {
            let namespace = namespace_of(backend).into();
            open::begin(worker, session, SessionOwner { port: port_of(session), namespace })
        });
        let backend = backend.unwrap_or_default();
        let mut endpoint_set = EndpointSetRef::default();
        let value = |name: &[u8]| session.variable_by_name::<Stream>(name);
        let hash = stream::hash(worker, backend, &mut endpoint_set, value);
        Some(Peer {
            worker,
            session,
            block,
            backend,
            endpoint_set,
            attempts: 0,
            limit: 0,
            tried: Tried::default(),
            name: None,
            current: Identity::default(),
            in_flight: InFlight::default(),
            hash,
        })
    }
}

/// The backend of a session: by the variable, by the server name that was passed through, or by the port. `None`: there
/// is none, which the log says.
fn backend<'s>(session: &'s Session, block: &StreamBlock, worker: &Worker) -> Option<&'s [u8]> {
    if let Some(index) = block.conf::<Stream>().and_then(|conf| conf.variable) {
        let value = session.variable::<Stream>(index).filter(|value| !value.is_empty());
        if value.is_none() {
            let line = "the variable of \"ingress_balancer\" is empty";
            say(session, format_args!("no backend: {line}; session closed"));
        }
        return value;
    }
    if let Some(SessionBackend(backend)) = session.context::<Stream>() {
        return Some(backend);
    }
    let arrived = Arrived::of(session);
    let found = arrived.as_ref().and_then(|at| backend_at(session, at, worker));
    if found.is_none() {
        let port = arrived.map(|at| at.port().to_string());
        let port = port.as_deref().unwrap_or("of a Unix socket");
        say(session, format_args!("no backend for port {port}; session closed"));
    }
    found
}

/// The backend of a session that has come there, whose endpoints are spoken to as it wants.
fn backend_at<'s>(session: &'s Session, at: &Arrived<'_>, worker: &Worker) -> Option<&'s [u8]> {
    let copy = |id: &[u8]| session.pool().concat(&[id]);
    let Some(name) = session.server_conf::<Stream>().decrypted_name else {
        return at.backend(worker, copy)?;
    };
    // Of a server that ends TLS; a client may have sent no name.
    let name = session.variable::<Stream>(name).unwrap_or_default();
    let (backend, policies) = at.decrypted(worker, name, copy)?;
    if let Some(policies) = policies
        && tls::speak(session, &policies).is_none()
    {
        say(
            session,
            format_args!(
                "TLS cannot be spoken to the endpoints of this session as its route wants"
            ),
        );
        return None;
    }
    backend
}

/// The port of a session that no server name tells apart from others of the port.
fn port_of(session: &Session) -> Option<StreamPort> {
    let has_name = session.context::<Stream>().is_some()
        || session.server_conf::<Stream>().decrypted_name.is_some();
    Arrived::of(session).filter(|_| !has_name).map(|at| at.port())
}

fn is_udp(session: &Session) -> bool {
    session.connection().kind() == libc::SOCK_DGRAM
}

impl<'s> nginx::Peer<'s> for Peer<'s> {
    fn get(&mut self, attempt: &Attempt<'s>) -> Code {
        if self.attempts == 0 {
            self.limit = attempt.nginx().tries();
        }
        let Some(choice) = self.choose_allowed() else {
            self.say_no_endpoint();
            // nginx ends the session with 502, without a line of its own.
            attempt.nginx().set_tries(0);
            // For `$upstream_addr`.
            attempt.name_text(self.block.name());
            return Code::DECLINED;
        };
        self.in_flight.begin(self.worker, &choice.started);
        (self.name, self.current) = (choice.name, choice.identity);
        let Some(name) = choice.name else {
            // The attempt has not begun for nginx, so nobody else ends it.
            self.end(true);
            return Code::ERROR;
        };
        attempt.nginx().set_tries(self.attempts_left(choice.untried as usize));
        attempt.lead_to(choice.address, name);
        Code::OK
    }

    /// After an attempt that failed, and at the end of the session.
    fn free(&mut self, attempt: &Attempt<'s>, ended: Outcome) {
        self.end(ended.is_failed());
        if !ended.is_failed() {
            return;
        }
        self.attempts = self.attempts.saturating_add(1);
        self.tried.push(self.session.pool(), self.current);
        let untried = choose::untried(self.worker, &self.search());
        attempt.nginx().set_tries(self.attempts_left(untried));
    }

    /// With UDP it says nothing.
    fn connected(&mut self) {
        let connect = self.state().and_then(SessionState::connect_milliseconds);
        let connect = connect.filter(|_| self.session.connection().kind() == libc::SOCK_STREAM);
        if let Some((started, milliseconds)) = self.in_flight.started().zip(connect) {
            outcome::connected(self.worker, &started, milliseconds as f32 / 1_000.0);
        }
    }
}

impl<'s> Peer<'s> {
    fn choose(&self) -> Option<ChosenEndpoint<'s>> {
        if self.backend.is_empty() {
            return None;
        }
        let pool = self.session.pool();
        choose::endpoint(self.worker, &self.search(), |endpoint, started, untried| {
            ChosenEndpoint::copy(pool, endpoint, started, untried)
        })
    }

    /// Chooses, and passes over endpoints that no connection may lead to.
    fn choose_allowed(&mut self) -> Option<ChosenEndpoint<'s>> {
        for _ in 0..=MAX_DENIED {
            let choice = self.choose()?;
            let Some(denial) = self.worker.denial(choice.address) else { return Some(choice) };
            let connection = self.session.connection();
            self.in_flight.deny(self.worker, &choice, denial, self.backend, connection.log());
            self.tried.deny(self.session.pool(), choice.identity);
        }
        None
    }

    fn search(&self) -> Search<'_> {
        let key = self.hash.map_or(SelectBy::None, SelectBy::Hash);
        Search {
            backend: self.backend,
            endpoint_set: self.endpoint_set,
            tried: self.tried.as_slice(),
            key,
        }
    }

    /// The attempt that is under way.
    fn state(&self) -> Option<&'s SessionState> {
        self.session.upstream().and_then(SessionUpstream::state)
    }

    /// The attempt that is under way has ended: counts it.
    fn end(&mut self, is_failed: bool) {
        let (session, state) = (self.session, self.state());
        let connect = state.and_then(SessionState::connect_milliseconds);
        let first_byte = state.and_then(SessionState::first_byte_milliseconds);
        let (log, is_udp) = (session.connection().log(), is_udp(session));
        self.in_flight.end(self.worker, self.name, log, |began| {
            let milliseconds = now_milliseconds().saturating_sub(began);
            stream::Attempt { is_failed, is_udp, milliseconds, connect, first_byte }.outcome()
        });
    }

    /// Attempts that may still be made when `untried` endpoints are left.
    fn attempts_left(&self, untried: usize) -> usize {
        untried.min(self.limit.saturating_sub(self.attempts))
    }

    fn say_no_endpoint(&self) {
        let backend = self.backend.escape_ascii();
        if !self.backend.is_empty() {
            let line = format_args!("no endpoint is left in backend \"{backend}\"; session closed");
            say(self.session, line);
        }
    }
}
