//! What an attempt to reach an endpoint keeps outside of shared memory, for requests and sessions alike.
//!
//! All of it lies in the pool of the request or session, and nginx points at it.

use crate::balancer::choose::StartedAttempt;
use crate::balancer::destinations;
use crate::balancer::outcome::{self, AttemptOutcome};
use crate::system::log;
use crate::system::memory;
use crate::worker::Worker;
use nginx::log::Log;
use nginx::{PeerName, Pool};
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::destinations::Denial;
use oxigress_core::balancer::statistics::Failure;
use oxigress_core::record::EndpointView;
use oxigress_store::CellPlace;
use std::net::SocketAddr;

/// Endpoints that a request may be denied before it is told that there is none.
pub const MAX_DENIED: usize = 64;

/// An endpoint that was chosen, copied out of shared memory. More than 128 bytes are moved by a call, for each request.
pub struct ChosenEndpoint<'r> {
    pub address: SocketAddr,
    pub identity: Identity,
    pub started: StartedAttempt,
    pub untried: u32,
    /// `None` when memory is out. It lies in the pool of the request or session.
    pub name: Option<&'r PeerName>,
}

impl<'r> ChosenEndpoint<'r> {
    pub fn copy(
        pool: &'r Pool,
        endpoint: EndpointView<'_>,
        started: StartedAttempt,
        untried: usize,
    ) -> Self {
        ChosenEndpoint {
            address: endpoint.socket_address(),
            identity: *endpoint.identity(),
            started,
            untried: u32::try_from(untried).unwrap_or(u32::MAX),
            name: PeerName::copy(pool, endpoint.name()),
        }
    }
}

const _: () = assert!(size_of::<ChosenEndpoint<'_>>() <= 128);

/// The attempt that is under way, as it is counted.
#[derive(Default)]
pub struct InFlight {
    cell: u32,
    index: u32,
    hash: u64,
    place: CellPlace,
    is_by_latency: bool,
    /// Its place in the worker's ledger.
    ledger: u32,
    /// When it began, in milliseconds.
    began: u64,
}

impl InFlight {
    #[inline]
    pub fn begin(&mut self, worker: &Worker, started: &StartedAttempt) {
        self.ledger = worker.ledger().write(started.backend, started.index, started.cell);
        (self.hash, self.place) = (started.backend, started.place);
        self.is_by_latency = started.is_by_latency;
        (self.index, self.cell) = (started.index, started.cell);
        self.began = memory::now_milliseconds();
    }

    /// What is under way; `None`: nothing.
    pub fn started(&self) -> Option<StartedAttempt> {
        let InFlight { hash: backend, place, is_by_latency, index, cell, .. } = *self;
        let started = StartedAttempt { backend, place, is_by_latency, index, cell, new_key: None };
        (cell != 0).then_some(started)
    }

    /// An endpoint that was chosen is not connected to: it counts as one that does not answer, and the log says why.
    pub fn deny(
        &mut self,
        worker: &Worker,
        choice: &ChosenEndpoint<'_>,
        denial: Denial,
        backend: &[u8],
        log: &Log,
    ) {
        self.begin(worker, &choice.started);
        destinations::log_denial(log, backend, choice.address, denial);
        self.end(worker, choice.name, log, |_| {
            let failure = Some(Failure::Connect);
            AttemptOutcome { failure, seconds: 0.0, is_answered: false }
        });
    }

    /// Counts the end of what is under way. `outcome` is told when it began; `name` and `log` are for the line that
    /// the endpoint is left out.
    #[inline]
    pub fn end(
        &mut self,
        worker: &Worker,
        name: Option<&PeerName>,
        log: &Log,
        outcome: impl FnOnce(u64) -> AttemptOutcome,
    ) {
        let Some(started) = self.started() else { return };
        self.cell = 0;
        worker.ledger().clear(self.ledger);
        if let Some(milliseconds) = outcome::end(worker, &started, &outcome(self.began)) {
            let name = name.map_or(&[][..], PeerName::bytes).escape_ascii();
            let line =
                format_args!("endpoint {name} failed too often: left out for {milliseconds} ms");
            log::write(log::WARN, log, line);
        }
    }
}

/// Endpoints that have failed: a list in the pool of the request or session.
#[derive(Default)]
pub struct Tried<'r> {
    list: &'r mut [Identity],
    count: usize,
    /// Those that no connection may lead to come first.
    denied: usize,
}

impl<'r> Tried<'r> {
    pub fn as_slice(&self) -> &[Identity] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// Those that no connection may lead to.
    pub fn denied(&self) -> &[Identity] {
        self.list.get(..self.denied).unwrap_or_default()
    }

    /// All endpoints may be asked again, except those that no connection may lead to.
    pub fn restart(&mut self) {
        self.count = self.denied;
    }

    /// Keeps an endpoint that no connection may lead to.
    pub fn deny(&mut self, pool: &'r Pool, identity: Identity) {
        let last = self.count;
        self.push(pool, identity);
        if self.count > last {
            self.list.swap(self.denied, last);
            self.denied += 1;
        }
    }

    /// The endpoint may be asked again, unless no connection may lead to it.
    pub fn forget(&mut self, identity: Identity) {
        let place = self.as_slice().iter().rposition(|tried| *tried == identity);
        let place = place.filter(|place| *place >= self.denied);
        let (Some(place), Some(last)) = (place, self.count.checked_sub(1)) else { return };
        self.list.swap(place, last);
        self.count = last;
    }

    /// Keeps an endpoint; out of memory, it may be asked again.
    pub fn push(&mut self, pool: &'r Pool, identity: Identity) {
        if self.count == self.list.len() {
            let capacity = (self.count * 2).max(4);
            let Some(larger) = pool.alloc_slice(capacity, identity) else { return };
            for (place, identity) in larger.iter_mut().zip(self.as_slice()) {
                *place = *identity;
            }
            self.list = larger;
        }
        if let Some(place) = self.list.get_mut(self.count) {
            *place = identity;
            self.count += 1;
        }
    }
}
