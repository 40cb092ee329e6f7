//! What an attempt to reach an endpoint keeps outside of shared memory, for requests and sessions alike.
//!
//! All of it lies in the pool of the request or session, and nginx points at it.
#![allow(unsafe_code)]

use crate::balancer::destinations;
use crate::balancer::peer;
use crate::balancer::peer::Begun;
use crate::balancer::peer::Outcome;
use crate::system::log;
use crate::system::memory;
use crate::worker::Worker;
use nginx::Pool;
use nginx::log::Log;
use nginx::sys::ngx_str_t;
use oxigress_core::balancer::Identity;
use oxigress_core::balancer::destinations::Denial;
use oxigress_core::balancer::statistics::Failure;
use oxigress_core::record::EndpointView;
use oxigress_store::Place;
use std::net::SocketAddr;
use std::ptr::{self, null_mut};

/// Endpoints that a request may be denied before it is told that there is none.
pub const MAX_DENIED: usize = 64;

/// The longest name, an IPv6 address in brackets with its port, has 47 bytes.
const NAME_BYTES: usize = 47;

/// An endpoint that was chosen, copied out of shared memory.
pub struct Choice {
    pub address: SocketAddr,
    pub identity: Identity,
    pub begun: Begun,
    pub untried: usize,
    pub generation: u64,
    /// Null when memory is out. It lies in the pool of the request or session.
    pub name: *mut Name,
}

impl Choice {
    pub fn copy(
        pool: &Pool,
        endpoint: EndpointView<'_>,
        begun: Begun,
        untried: usize,
        generation: u64,
    ) -> Choice {
        Choice {
            address: endpoint.socket_address(),
            identity: *endpoint.identity(),
            begun,
            untried,
            generation,
            name: Name::copy(pool, endpoint.name()).map_or(null_mut(), ptr::from_mut),
        }
    }
}

/// The name of an attempt's endpoint. nginx logs it for each attempt, so each has its own.
#[repr(C)]
pub struct Name {
    pub text: ngx_str_t,
    bytes: [u8; NAME_BYTES],
}

impl Name {
    #[inline]
    fn copy<'p>(pool: &'p Pool, text: &[u8]) -> Option<&'p mut Name> {
        let name = pool.alloc(Name { text: ngx_str_t::empty(), bytes: [0; NAME_BYTES] })?;
        let length = text.len().min(NAME_BYTES);
        if let (Some(place), Some(text)) = (name.bytes.get_mut(..length), text.get(..length)) {
            place.copy_from_slice(text);
            name.text = ngx_str_t::of(place);
        }
        Some(name)
    }
}

/// The attempt that is under way, as it is counted.
#[derive(Default)]
pub struct InFlight {
    cell: u32,
    index: u32,
    hash: u64,
    place: Place,
    /// Its place in the worker's ledger.
    ledger: u32,
    /// When it began, in milliseconds.
    began: u64,
}

impl InFlight {
    #[inline]
    pub fn begin(&mut self, worker: &Worker, begun: &Begun) {
        self.ledger = worker.ledger().write(begun);
        (self.hash, self.place) = (begun.backend, begun.place);
        (self.index, self.cell) = (begun.index, begun.cell);
        self.began = memory::now_milliseconds();
    }

    /// What is under way; `None`: nothing.
    pub fn begun(&self) -> Option<Begun> {
        let (backend, place) = (self.hash, self.place);
        let begun = Begun { backend, place, index: self.index, cell: self.cell, new_key: None };
        (self.cell != 0).then_some(begun)
    }

    /// An endpoint that was chosen is not connected to: it counts as one that does not answer, and the log says why.
    ///
    /// # Safety
    /// The choice was copied into a living pool.
    pub unsafe fn deny(
        &mut self,
        worker: &Worker,
        choice: &Choice,
        denial: Denial,
        backend: &[u8],
        log: &Log,
    ) {
        self.begin(worker, &choice.begun);
        // SAFETY: vouched for by the caller.
        unsafe {
            destinations::log_denial(log, backend, choice.address, denial);
            self.end(worker, choice.name, log, |_| {
                let failure = Some(Failure::Connect);
                Outcome { failure, seconds: 0.0, is_answered: false }
            });
        }
    }

    /// Counts the end of what is under way. `outcome` is told when it began; `name` and `log` are for the line that
    /// the endpoint is left out.
    ///
    /// # Safety
    /// `name` is null or of a living pool.
    #[inline]
    pub unsafe fn end(
        &mut self,
        worker: &Worker,
        name: *const Name,
        log: &Log,
        outcome: impl FnOnce(u64) -> Outcome,
    ) {
        let Some(begun) = self.begun() else { return };
        self.cell = 0;
        worker.ledger().clear(self.ledger);
        if let Some(milliseconds) = peer::end(worker, &begun, &outcome(self.began)) {
            // SAFETY: vouched for by the caller.
            unsafe {
                let text = name.as_ref().map_or(ngx_str_t::empty(), |name| name.text);
                let name = memory::bytes(text).escape_ascii();
                let line = format_args!(
                    "endpoint {name} failed too often: left out for {milliseconds} ms"
                );
                log::write(log::WARN, log, line);
            }
        }
    }
}

/// Endpoints that have failed: a list in the pool of the request or session.
pub struct Tried {
    list: *mut Identity,
    count: u32,
    capacity: u32,
}

impl Default for Tried {
    fn default() -> Self {
        Tried { list: null_mut(), count: 0, capacity: 0 }
    }
}

impl Tried {
    pub fn as_slice(&self) -> &[Identity] {
        if self.list.is_null() {
            return &[];
        }
        // SAFETY: that many were written, in a pool that outlives this.
        unsafe { std::slice::from_raw_parts(self.list, self.count as usize) }
    }

    /// The endpoint may be asked again.
    pub fn forget(&mut self, identity: Identity) {
        let place = self.as_slice().iter().position(|tried| *tried == identity);
        let (Some(place), Some(last)) = (place, self.count.checked_sub(1)) else { return };
        // SAFETY: both places are below the count, so they were written.
        unsafe { self.list.add(place).write(*self.list.add(last as usize)) };
        self.count = last;
    }

    /// Keeps an endpoint; out of memory, it may be asked again. `pool` is the same each time: that of the request or session
    /// that this is of.
    pub fn push(&mut self, pool: &Pool, identity: Identity) {
        if self.count == self.capacity {
            let capacity = (self.capacity * 2).max(4);
            let Some(larger) = pool.alloc_slice(capacity as usize, identity) else { return };
            for (place, identity) in larger.iter_mut().zip(self.as_slice()) {
                *place = *identity;
            }
            (self.list, self.capacity) = (larger.as_mut_ptr(), capacity);
        }
        // SAFETY: there is room for one more.
        unsafe { self.list.add(self.count as usize).write(identity) };
        self.count += 1;
    }
}
