//! The server of a host where Gateways have listeners, and whether a connection is for the listener that has the host.
//!
//! A connection is for the listener that has the server name of its handshake; without one, for the listener that has the
//! requests without a host. A request that it brings for a host of another listener gets 421, so that its client asks again
//! by a connection of its own (RFC 9110 §15.5.20). Hosts that no listener has, such as those of Ingresses, may be asked for by
//! any connection.

use super::{Answer, Decider, Facts, Generation, Reason, Trace};
use crate::record::{Kind, listener_of};
use crate::router::{Arrival, ServerMatch, find_listener, tls};

/// Misdirected Request.
pub(super) const MISDIRECTED: u16 = 421;

/// What was found for a request's host where Gateways listen.
pub(super) struct FoundHost<R> {
    at: Arrival,
    server: Option<(Kind, R, ServerMatch)>,
}

impl<R: Copy> FoundHost<R> {
    /// The record of the host, if a listener has it.
    pub(super) fn of_listener(&self) -> Option<R> {
        let (kind, record, _) = self.server?;
        (kind == Kind::Listener).then_some(record)
    }

    /// Whether hosts of Ingresses are served there too, with what these say about TLS.
    pub(super) fn is_shared(&self) -> bool {
        self.at.is_shared
    }

    /// Whether a listener has the host, and not as one of all hosts.
    pub(super) fn is_named_by_listener(&self) -> bool {
        let found = self.server.as_ref();
        found.is_some_and(|(kind, _, how)| *kind == Kind::Listener && *how != ServerMatch::Default)
    }
}

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// The server of the request's host.
    pub(super) fn find_server(&self) -> Option<(G::Record, ServerMatch)> {
        match self.generation.has_listeners() {
            false => self.generation.server(self.facts.host()),
            true => self.find_at_listeners().server.map(|(_, record, found)| (record, found)),
        }
    }

    /// The server of the request's host where Gateways listen.
    #[cold]
    pub(super) fn find_at_listeners(&self) -> FoundHost<G::Record> {
        let (generation, facts) = (self.generation, self.facts);
        let at = Arrival::of(generation, facts.port(), || facts.address());
        let look = |kind, key: &[u8]| Some((kind, generation.record(kind, key)?));
        let found = find_listener((at.port, at.own), facts.host(), at.is_shared, look);
        FoundHost { at, server: found.map(|((kind, record), found)| (kind, record, found)) }
    }

    /// The server that was found, unless the host is of another listener than the connection.
    #[cold]
    pub(super) fn server_or_421(
        &mut self,
        found: FoundHost<G::Record>,
    ) -> Result<Option<(G::Record, ServerMatch)>, Answer> {
        let host = found.of_listener().map(|record| self.generation.value_of(record));
        match host.and_then(listener_of).filter(|_| self.facts.is_tls()) {
            Some(listener) if self.is_of_another(&found.at, listener) => {
                Err(self.respond(MISDIRECTED, Reason::OtherListener))
            }
            _ => Ok(found.server.map(|(_, record, found)| (record, found))),
        }
    }

    /// The connection is for another listener than this one, which has the request's host.
    fn is_of_another(&self, at: &Arrival, listener: &[u8]) -> bool {
        let named = self.facts.server_name();
        let named = named.as_deref().unwrap_or_default();
        // Hosts of Ingresses are nobody's: of two in one listener each may be asked for by connections for the other.
        !tls::is_named(named, self.facts.host())
            && tls::listener_of_name(self.generation, at, named) != Some(listener)
    }
}
