//! A TCP or UDP session to its backend, for the stream part of nginx. Its attempts are [`crate::balancer::peer`]'s.

use crate::balancer::outcome::Outcome;
use crate::balancer::peer;
use crate::balancer::selection;
use crate::request::route::Found;
use crate::worker::Worker;
use crate::zone::records::Held;
use crate::zone::retired;
use oxigress_core::balancer::statistics::Failure;
use oxigress_core::model::StreamPort;
use oxigress_core::router::session;
use oxigress_core::text::template::Values;
use std::borrow::Cow;

/// The backend of the port that a session came to. `copy` takes its id out of shared memory.
pub fn backend_of_port<T>(
    worker: &Worker,
    port: StreamPort,
    copy: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    session::backend_of_port(&Held(&guard), port).map(copy)
}

/// The backend that connections for this server name are passed through to; `None`: nginx terminates them.
pub fn passthrough<T>(
    worker: &Worker,
    server_name: &[u8],
    copy: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let guard = worker.reader().read();
    session::passthrough(&Held(&guard), server_name).map(copy)
}

/// Finds the backend's endpoint set, and answers the hash of what its sessions are to be sent by; `None`: it says nothing. Cookies and
/// alternatives are of requests only.
pub fn hash<'v>(
    worker: &Worker,
    backend: &[u8],
    found: &mut Found,
    variable: impl Fn(&[u8]) -> Option<&'v [u8]>,
) -> Option<u32> {
    let guard = worker.reader().read();
    if !peer::find(worker, &guard, backend, found) {
        return None;
    }
    let key = retired::backend(&guard, backend, found.place.generation())?.hash_key()?;
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
    pub fn outcome(&self) -> Outcome {
        let is_connected = !self.is_udp && self.connect.is_some();
        let failure = match (self.is_failed, is_connected) {
            (false, _) => None,
            (true, true) => Some(Failure::Answer),
            (true, false) => Some(Failure::Connect),
        };
        let answer = self.first_byte.filter(|_| self.is_udp && !self.is_failed);
        let milliseconds = if self.is_failed { self.milliseconds } else { answer.unwrap_or(0) };
        let seconds = milliseconds as f32 / 1_000.0;
        Outcome { failure, seconds, is_answered: answer.is_some() }
    }
}
