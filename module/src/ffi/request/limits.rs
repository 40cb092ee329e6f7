//! What limits ask of a request and set in it.

use super::{Context, Request};
use crate::ffi::{guard, log, worker};
use nginx::sys::{AF_INET, AF_INET6, ngx_pool_cleanup_add, sockaddr_in, sockaddr_in6};
use oxigress_core::policy::limits::{Admitted, Overload, Slot};
use std::ffi::c_void;
use std::fmt::Arguments;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A request that a limit of connections counts, until its pool goes.
#[repr(C)]
struct Counted {
    /// Of the zone it is counted in.
    birth: u64,
    /// 0: it is not.
    held: u64,
    /// In the worker's ledger.
    place: u32,
}

impl Request<'_> {
    /// It is the client's own, and no subrequest.
    pub fn is_main(&self) -> bool {
        std::ptr::eq(self.raw, self.raw().main)
    }

    /// Where the client is, by `ngx_http_realip_module` if that says so; an IPv4-mapped address is the IPv4 address.
    /// `None` over a unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        // SAFETY: a request has a connection until it is freed.
        let address = unsafe { (*self.raw().connection).sockaddr };
        // SAFETY: null or an address; nginx's addresses are as long as their family says.
        unsafe {
            match u32::from(address.as_ref()?.sa_family) {
                AF_INET => {
                    let v4 = (*address.cast::<sockaddr_in>()).sin_addr.s_addr;
                    Some(Ipv4Addr::from(v4.to_ne_bytes()).into())
                }
                AF_INET6 => {
                    let v6 =
                        (&raw const (*address.cast::<sockaddr_in6>()).sin6_addr).cast::<[u8; 16]>();
                    Some(Ipv6Addr::from(*v6).to_canonical())
                }
                _ => None,
            }
        }
    }

    /// `true` the first time, also if it was redirected internally since.
    pub fn is_unlimited_yet(&self) -> bool {
        self.context().is_some_and(|context: &Context| !context.is_limited.replace(true))
    }

    /// Sends the response at so many bytes a second at most, from so many bytes on.
    pub fn limit_response(&self, rate: Option<u64>, after: Option<u64>) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: alive, and no reference to the request is in use.
        unsafe {
            if let Some(rate) = rate {
                (*self.raw).limit_rate = bytes(rate);
                (*self.raw).set_limit_rate_set(1);
            }
            if let Some(after) = after {
                (*self.raw).limit_rate_after = bytes(after);
                (*self.raw).set_limit_rate_after_set(1);
            }
        }
    }

    /// Counts the request as under way for `key` until it ends, unless `limit` are. Says how many requests of
    /// another client were forgotten for it.
    pub fn begin_limited(&self, key: u64, limit: u32) -> Result<u64, Overload> {
        let Some(counts) = self.worker.counts() else { return Err(Overload) };
        // SAFETY: the request's pool is alive.
        let cleanup = unsafe { ngx_pool_cleanup_add(self.raw().pool, size_of::<Counted>()) };
        // SAFETY: null, or a new clean-up with room for what was asked for.
        let Some(cleanup) = (unsafe { cleanup.as_mut() }) else { return Err(Overload) };
        let ledger = self.worker.ledger();
        let place = ledger.reserve_limited();
        let begun =
            counts.connections().begin(key, limit, |held| ledger.write_limited(place, held));
        match begun {
            Ok(Admitted { slot: held, forgotten }) => {
                let counted = Counted { birth: counts.birth(), held: held.to_bits(), place };
                // SAFETY: as above; the handler that reads it is set afterwards.
                unsafe { cleanup.data.cast::<Counted>().write(counted) };
                cleanup.handler = Some(end);
                Ok(forgotten)
            }
            Err(overload) => {
                ledger.clear_limited(place);
                Err(overload)
            }
        }
    }

    /// Writes an error about the request, with what nginx adds about its client.
    pub fn log_error(&self, line: Arguments<'_>) {
        // SAFETY: a request has a connection with a log.
        unsafe { log::write(log::ERROR, (*self.raw().connection).log, line) };
    }
}

/// nginx's callback when the pool of a request goes.
unsafe extern "C" fn end(data: *mut c_void) {
    guard::contain("end", (), || {
        // SAFETY: what `begin_limited` put there.
        let Counted { birth, held, place } = unsafe { data.cast::<Counted>().read() };
        // SAFETY: a request ends on the event loop. Without a worker its ledger has ended the request.
        let Some(worker) = (unsafe { worker::current() }) else { return };
        // One process that took another configuration over may have another zone now.
        let Some(counts) = worker.counts().filter(|counts| counts.birth() == birth) else { return };
        if let Some(held) = Slot::from_bits(held) {
            counts.connections().end(held);
        }
        worker.ledger().clear_limited(place);
    });
}
