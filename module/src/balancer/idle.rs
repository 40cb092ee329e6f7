//! Upstream connections that wait for their next request, in router mode.
//!
//! Shape:   one [`Pools`] a worker; in it one [`Idle`] for each upstream with `ingress_balancer`, made when the upstream
//!          first keeps a connection.
//! Rules:   a connection is used again for the same backend, endpoint, protocol and TLS identity only, and
//!          only while nothing has arrived on it; it is closed when its endpoint leaves the backend. Whether something has
//!          arrived is looked up, by a system call, where the request may be sent once only or the connection has waited.
//! Ends:    no timer of its own: the oldest entry is the first that has waited too long, and the worker's tick
//!          looks at it. A timer each would be put into nginx's tree and taken out again for every request.
//! Room:    where nginx would close idle clients to make room, the oldest of these are closed. They are not
//!          marked `reusable`: that counts them as waiting clients in `stub_status`, by two writes to
//!          memory that all workers share for every request.
//! Source:  ngx_http_upstream_keepalive_module.c, which knows neither TLS identities nor removed endpoints.

pub mod identity;

pub use identity::Identifier;

use crate::balancer::choose;
use crate::conf::Keepalive;
use crate::worker;
use crate::worker::Worker;
use nginx::sys::ngx_msec_t;
use nginx::{Cycle, EventLoop, now_milliseconds};
use oxigress_core::balancer::idle::{Idle, IdleKey, IdleSlot, needs_look};
use oxigress_store::Reader;
use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;

/// Connections closed by one tick: each costs a system call.
const CLOSED_A_TICK: u32 = 64;
/// Endpoints compared by one tick, a tenth of a millisecond: a large change is looked at in several.
const COMPARED_A_TICK: usize = 50_000;
/// What looking one backend up counts as.
const LOOK_UP: usize = 50;

/// The idle connections of a worker.
#[derive(Default)]
pub struct Pools {
    pools: RefCell<Vec<Option<Pool>>>,
    purge: Cell<Purge>,
    identifier: Identifier,
}

struct Pool {
    idle: Idle<IdleConnection>,
    timeout_msec: ngx_msec_t,
}

#[derive(Debug)]
struct IdleConnection {
    connection: nginx::Idle,
    since_msec: ngx_msec_t,
}

/// How far the search for endpoints that have left has come.
#[derive(Clone, Copy, Debug, Default)]
struct Purge {
    /// What has waited since then leads to endpoints that this generation has.
    done: u64,
    /// The generation that is being compared with; 0: none.
    current: u64,
    /// A connection came in that was chosen from an older generation.
    is_outdated: bool,
    pool: usize,
    place: u32,
}

impl Worker {
    /// The idle connections to endpoints that this worker keeps.
    #[inline]
    pub fn pools(&self) -> &Pools {
        self.part()
    }
}

/// All of these are called on the event loop's thread.
impl Pools {
    /// What hashes the TLS handshake and local address that a kept connection was made with.
    pub fn identifier(&self) -> &Identifier {
        &self.identifier
    }

    /// An idle connection for this key; `None` if there is none. `is_repeated`: nginx sends the request again where the
    /// endpoint has closed the connection.
    #[inline]
    pub fn take(
        &self,
        here: EventLoop,
        number: usize,
        key: &IdleKey,
        is_repeated: bool,
    ) -> Option<nginx::Idle> {
        while let Some(kept) = self.with(number, |pool| pool.idle.take(key)).flatten() {
            // The endpoint may have closed it, by an event that waits behind the one being handled.
            let waited = now_milliseconds().saturating_sub(kept.since_msec as u64);
            if !needs_look(waited, is_repeated) || kept.connection.is_quiet() {
                return Some(kept.connection);
            }
        }
        if is_scarce(here) {
            self.close_oldest(number);
        }
        None
    }

    /// Keeps a connection whose request is over, or closes it where it cannot be kept.
    ///
    /// `generation` is the one its endpoint was chosen from.
    #[inline]
    pub fn put(
        &self,
        settings: &Keepalive,
        key: IdleKey,
        generation: u64,
        connection: nginx::Open,
    ) {
        let kept = IdleConnection {
            connection: connection.rest(),
            since_msec: now_milliseconds() as ngx_msec_t,
        };
        let Some((place, given_up)) = self.insert(settings, key, kept) else { return };
        drop(given_up);
        let mut purge = self.purge.get();
        if generation < purge.done.max(purge.current) {
            purge.is_outdated = true;
            self.purge.set(purge);
        }
        let (number, name) = (settings.number, settings.number << 32 | place.0 as usize);
        let goes_on = self.with(number, |pool| {
            let kept = pool.idle.at(place).map(|(_, kept)| &kept.connection);
            kept.is_some_and(|connection| connection.watch::<Self>(name))
        });
        if goes_on != Some(true) {
            self.close_at(number, place);
        }
    }

    fn insert(
        &self,
        settings: &Keepalive,
        key: IdleKey,
        kept: IdleConnection,
    ) -> Option<(IdleSlot, Option<IdleConnection>)> {
        let mut pools = self.pools.try_borrow_mut().ok()?;
        if pools.len() <= settings.number {
            pools.resize_with(settings.number + 1, || None);
        }
        let place = pools.get_mut(settings.number)?;
        if place.is_none() {
            let idle = Idle::new(NonZeroU32::new(settings.connections)?);
            *place = Some(Pool { idle, timeout_msec: settings.timeout_msec });
        }
        place.as_mut().map(|pool| pool.idle.put(key, kept))
    }

    #[inline]
    fn with<T>(&self, number: usize, act: impl FnOnce(&mut Pool) -> T) -> Option<T> {
        // Nothing below calls back, so it is never borrowed twice; if it were, nothing would be kept.
        let mut pools = self.pools.try_borrow_mut().ok()?;
        pools.get_mut(number)?.as_mut().map(act)
    }

    fn close_oldest(&self, number: usize) -> bool {
        self.with(number, |pool| pool.idle.pop_oldest()).flatten().is_some()
    }

    /// The worker's tick: closes what has waited too long, what stands in the way of others, and what leads to
    /// endpoints that have left.
    ///
    /// Answers whether there is more to do soon.
    pub fn look_after(&self, here: EventLoop, reader: &Reader) -> bool {
        let count = self.pools.try_borrow().map_or(0, |pools| pools.len());
        for number in 0..count {
            for _ in 0..CLOSED_A_TICK {
                if !(is_scarce(here) || self.has_expired(number)) || !self.close_oldest(number) {
                    break;
                }
            }
        }
        if count > 0 {
            self.purge(reader, count);
        }
        self.purge.get().current != 0
    }

    fn has_expired(&self, number: usize) -> bool {
        let now_msec = now_milliseconds() as ngx_msec_t;
        self.with(number, |pool| {
            let oldest = pool.idle.oldest();
            oldest.is_some_and(|kept| now_msec.wrapping_sub(kept.since_msec) >= pool.timeout_msec)
        })
        .unwrap_or(false)
    }

    /// One step of comparing all that waits with a generation.
    fn purge(&self, reader: &Reader, count: usize) {
        let held = reader.read();
        let mut purge = self.purge.get();
        if purge.current == 0 {
            if purge.done == held.generation() && !purge.is_outdated {
                return;
            }
            purge = Purge { done: purge.done, current: held.generation(), ..Purge::default() };
        }
        let mut left = COMPARED_A_TICK;
        let mut last = None;
        while purge.pool < count {
            let found = self.with(purge.pool, |pool| {
                let place = IdleSlot(purge.place);
                (place.0 < pool.idle.places()).then(|| pool.idle.at(place).map(|(key, _)| *key))
            });
            let Some(Some(key)) = found else {
                (purge.pool, purge.place) = (purge.pool + 1, 0);
                continue;
            };
            if left == 0 {
                break;
            }
            if let Some(key) = key {
                let endpoints = match last {
                    Some((backend, endpoints)) if backend == key.backend => endpoints,
                    _ => choose::endpoints_by_hash(&held, key.backend),
                };
                last = Some((key.backend, endpoints));
                left = left.saturating_sub(LOOK_UP + endpoints.len());
                if !endpoints.contains(&key.endpoint) {
                    self.close_at(purge.pool, IdleSlot(purge.place));
                }
            }
            purge.place += 1;
        }
        if purge.pool >= count {
            (purge.done, purge.current) = (purge.current, 0);
        }
        self.purge.set(purge);
    }

    fn close_at(&self, number: usize, place: IdleSlot) {
        drop(self.with(number, |pool| pool.idle.remove(place)));
    }

    /// Closes all of them, before the worker goes.
    pub fn close_all(&self) {
        let count = self.pools.try_borrow().map_or(0, |pools| pools.len());
        (0..count).for_each(|number| while self.close_oldest(number) {});
    }
}

impl nginx::Keeper for Pools {
    fn give_up(here: EventLoop, number: usize) -> Option<nginx::Idle> {
        let (pool, place) = (number >> 32, IdleSlot(number as u32));
        let pools = worker::current(here)?.pools();
        let kept = pools.with(pool, |pool| pool.idle.remove(place)).flatten();
        kept.map(|kept| kept.connection)
    }
}

/// As few connections are left as nginx wants before it closes idle clients.
fn is_scarce(here: EventLoop) -> bool {
    Cycle::with_current(here, |cycle| cycle.free_connections() <= cycle.connections() / 16)
}
