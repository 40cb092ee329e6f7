//! What limits ask of a request and set in it.

use crate::request::Request;
use crate::system::log;
use crate::worker;
use nginx::EventLoop;
use oxigress_core::policy::limits::{Admitted, Overload, Slot};
use std::cell::Cell;
use std::fmt::Arguments;
use std::net::IpAddr;

/// A request that a limit of connections counts, until its pool goes.
struct Counted {
    here: EventLoop,
    /// Of the zone it is counted in.
    birth: u64,
    /// `None`: it is not.
    held: Cell<Option<Slot>>,
    /// In the worker's ledger; `None`: given back.
    place: Cell<Option<u32>>,
}

impl Request<'_> {
    /// It is the client's own, and no subrequest.
    pub fn is_main(&self) -> bool {
        self.nginx().is_main()
    }

    /// Where the client is, by `ngx_http_realip_module` if that says so; an IPv4-mapped address is the IPv4 address.
    /// `None` over a unix socket.
    pub fn client(&self) -> Option<IpAddr> {
        self.nginx().connection().peer()?.ip().map(|address| address.ip().to_canonical())
    }

    /// Sends the response at so many bytes a second at most, from so many bytes on.
    pub fn limit_response(&self, rate: Option<u64>, after: Option<u64>) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(rate) = rate {
            self.nginx().set_limit_rate(bytes(rate));
            self.nginx().set_limit_rate_is_set(true);
        }
        if let Some(after) = after {
            self.nginx().set_limit_rate_after(bytes(after));
            self.nginx().set_limit_rate_after_is_set(true);
        }
    }

    /// Counts the request as under way for `key` until it ends, unless `limit` are. Says how many requests of
    /// another client were forgotten for it.
    pub fn begin_limited(&self, key: u64, limit: u32) -> Result<u64, Overload> {
        let Some(counts) = self.worker.counts() else { return Err(Overload) };
        let ledger = self.worker.ledger();
        let place = ledger.reserve_limited();
        let birth = counts.birth();
        let here = self.nginx().event_loop();
        // Before it is counted: what is counted has somebody who ends it.
        let counted = Counted { here, birth, held: Cell::new(None), place: Cell::new(Some(place)) };
        let Some(counted) = self.nginx().pool().keep(counted) else {
            ledger.clear_limited(place);
            return Err(Overload);
        };
        let begun =
            counts.connections().begin(key, limit, |held| ledger.write_limited(place, held));
        match begun {
            Ok(Admitted { slot, forgotten }) => {
                counted.held.set(Some(slot));
                Ok(forgotten)
            }
            Err(overload) => {
                // It is not counted, so the ledger needs no place for it while it lasts.
                counted.place.set(None);
                ledger.clear_limited(place);
                Err(overload)
            }
        }
    }

    /// Writes an error about the request, with what nginx adds about its client.
    pub fn log_error(&self, line: Arguments<'_>) {
        log::write(log::ERROR, self.nginx().log(), line);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Without a worker its ledger has ended the request.
        let Some(worker) = worker::current(self.here) else { return };
        // One process that took another configuration over may have another zone now.
        let counts = worker.counts().filter(|counts| counts.birth() == self.birth);
        if let Some(counts) = counts {
            if let Some(held) = self.held.get() {
                counts.connections().end(held);
            }
            if let Some(place) = self.place.get() {
                worker.ledger().clear_limited(place);
            }
        }
    }
}
