//! A TCP or UDP session to its backend, for the stream part of nginx. Its attempts are [`crate::balancer::choose`]'s.

use crate::balancer::choose;
use crate::balancer::outcome::AttemptOutcome;
use crate::balancer::selection;
use crate::request::policies::{self, Compiled};
use crate::request::route::EndpointSetRef;
use crate::route;
use crate::worker::Worker;
use crate::zone::records::GuardedRecords;
use nginx::stream::Session;
use oxigress_core::balancer::statistics::Failure;
use oxigress_core::model::StreamPort;
use oxigress_core::router::session::{self, Verdict};
use oxigress_core::text::template::Values;
use std::borrow::Cow;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::rc::Rc;

/// Where a session has come to.
pub struct Arrived<'s> {
    session: &'s Session,
    port: StreamPort,
}

impl<'s> Arrived<'s> {
    /// `None`: to no port.
    pub fn of(session: &'s Session) -> Option<Self> {
        let is_udp = session.connection().kind() == libc::SOCK_DGRAM;
        let connection = session.connection();
        let number = match is_udp {
            // All clients have one socket, and nginx knows what each has sent to.
            true => connection.local_port()?,
            false => connection.kernels_local()?.port(),
        };
        let number = NonZeroU16::new(number)?;
        let port = if is_udp { StreamPort::Udp(number) } else { StreamPort::Tcp(number) };
        Some(Arrived { session, port })
    }

    /// The port of this machine that the client has sent to.
    pub fn port(&self) -> StreamPort {
        self.port
    }

    /// The address of this machine that the client has sent to.
    fn address(&self) -> Option<IpAddr> {
        let address = match self.port {
            StreamPort::Tcp(_) => self.session.connection().kernels_local()?,
            StreamPort::Udp(_) => self.session.connection().local()?.ip()?,
        };
        Some(address.ip().to_canonical())
    }

    /// What `find` finds for it in the newest generation.
    fn decide<T>(
        &self,
        worker: &Worker,
        find: impl FnOnce(&GuardedRecords<'_>, &session::Arrival<'_>) -> T,
    ) -> T {
        let guard = worker.reader().read();
        let (port, random) = (self.port, worker.random());
        find(
            &GuardedRecords(&guard),
            &session::Arrival { port, address: &|| self.address(), random },
        )
    }

    /// The backend that it goes to, by its port. `copy` takes the id out of shared memory.
    pub fn backend<T>(&self, worker: &Worker, copy: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.decide(worker, |records, arrival| session::backend(records, arrival).map(copy))
    }

    /// The backend that it goes to by its server name, where TLS has ended here, and the policies that say how TLS is spoken to
    /// its endpoints, if it is. `None`: there is none, or its policies are not there.
    pub fn decrypted<T>(
        &self,
        worker: &Worker,
        name: &[u8],
        copy: impl FnOnce(&[u8]) -> T,
    ) -> Option<(T, Option<Rc<Compiled>>)> {
        self.decide(worker, |records, arrival| {
            let target = session::target_of_decrypted(records, arrival, name)?;
            let policies = match target.policies {
                [] => None,
                id => Some(policies::find(worker, records.0, id)?),
            };
            Some((copy(target.backend), policies))
        })
    }

    /// What becomes of a TLS session with this server name.
    pub fn of_tls(&self, worker: &Worker, server_name: &[u8]) -> Tls {
        self.decide(worker, |records, arrival| {
            match session::of_tls(records, arrival, server_name) {
                Verdict::Forward(id) => Tls::Forward(id.to_vec()),
                Verdict::Terminate => Tls::Terminate,
                Verdict::Close => Tls::Close,
            }
        })
    }
}

/// What becomes of a TLS session before anything is decrypted.
pub enum Tls {
    /// It goes to a backend, as it comes.
    Forward(Vec<u8>),
    /// It is decrypted here.
    Terminate,
    /// It is closed.
    Close,
}

/// Finds the backend's endpoint set, and answers the hash of what its sessions are to be sent by; `None`: it says nothing. Cookies and
/// alternatives are of requests only.
pub fn hash<'v>(
    worker: &Worker,
    backend: &[u8],
    endpoint_set: &mut EndpointSetRef,
    variable: impl Fn(&[u8]) -> Option<&'v [u8]>,
) -> Option<u32> {
    let guard = worker.reader().read();
    if !choose::refresh_endpoint_set(worker, &guard, backend, endpoint_set) {
        return None;
    }
    let decided = endpoint_set.place.generation();
    let key = route::backend(worker, &guard, backend, decided)?.hash_key()?;
    Some(selection::hash(key, &Variables(variable)))
}

/// The variables of a session, which captures nothing.
struct Variables<F>(F);

impl<'v, F: Fn(&[u8]) -> Option<&'v [u8]>> Values for Variables<F> {
    fn variable(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.0(name).map(|value| Cow::Owned(value.to_vec()))
    }

    fn capture(&self, _: u8) -> &[u8] {
        &[]
    }
}

/// An attempt as nginx knows it when it is over. Times are in milliseconds, `None`: it did not come to that.
pub struct Attempt {
    /// nginx takes it for a failure.
    pub is_failed: bool,
    /// Each datagram says by itself whether anybody is there; TCP says so when it connects.
    pub is_udp: bool,
    /// All of it.
    pub milliseconds: u64,
    /// To the connection.
    pub connect: Option<u64>,
    /// To the first byte from the endpoint.
    pub first_byte: Option<u64>,
}

impl Attempt {
    /// What it says about its endpoint. How long a session lasts says nothing: what counts is how soon the endpoint
    /// takes a connection, or answers a datagram.
    pub fn outcome(&self) -> AttemptOutcome {
        let is_connected = !self.is_udp && self.connect.is_some();
        let failure = match (self.is_failed, is_connected) {
            (false, _) => None,
            (true, true) => Some(Failure::Answer),
            (true, false) => Some(Failure::Connect),
        };
        let answer = self.first_byte.filter(|_| self.is_udp && !self.is_failed);
        let milliseconds = if self.is_failed { self.milliseconds } else { answer.unwrap_or(0) };
        let seconds = milliseconds as f32 / 1_000.0;
        AttemptOutcome { failure, seconds, is_answered: answer.is_some() }
    }
}
