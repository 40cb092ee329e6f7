//! The server of a host where Gateways have listeners, and whether a connection is for the listener that has the host.
//!
//! A connection is for the listener that has the server name of its handshake; without one, for the listener that has the
//! requests without a host. A request that it brings for a host of another listener gets 421, so that its client asks again
//! by a connection of its own (RFC 9110 §15.5.20). Hosts that no listener has, such as those of Ingresses, may be asked for by
//! any connection.

use super::{Answer, Decider, Facts, Generation, Reason, Trace};
use crate::model::HostPattern;
use crate::record::{Kind, SettingsView, listener_of};
use crate::router::{self, ServerMatch, tls};
use std::net::IpAddr;

const MISDIRECTED: u16 = 421;

/// Where a request has arrived.
struct Arrival {
    port: u16,
    /// The address, if a Gateway has it for itself.
    own: Option<IpAddr>,
    /// Hosts of Ingresses are served there too.
    is_shared: bool,
}

impl<'g, G: Generation<'g>, F: Facts, T: Trace> Decider<'_, 'g, G, F, T> {
    /// The server of the request's host.
    pub(super) fn find_server(&self) -> Option<(G::Record, ServerMatch)> {
        match self.generation.has_listeners() {
            false => self.generation.server(self.facts.host()),
            true => self.find_listener(&self.arrival(), self.facts.host()).map(|(_, found)| found),
        }
    }

    /// The server of the request's host, unless the host is of another listener than the connection.
    #[cold]
    pub(super) fn find_listener_or_421(
        &mut self,
    ) -> Result<Option<(G::Record, ServerMatch)>, Answer> {
        let arrival = self.arrival();
        let Some((kind, found)) = self.find_listener(&arrival, self.facts.host()) else {
            return Ok(None);
        };
        let is_of_listener = kind == Kind::Listener && self.facts.is_tls();
        if is_of_listener && self.is_misdirected(arrival, self.generation.value_of(found.0)) {
            return Err(self.respond(MISDIRECTED, Reason::OtherListener));
        }
        Ok(Some(found))
    }

    fn arrival(&self) -> Arrival {
        let (port, settings) = (self.facts.port(), SettingsView::of(self.generation));
        let own = settings.has_listener_addresses().then(|| self.facts.address()).flatten();
        let own = own.filter(|address| settings.is_listener_address(*address));
        Arrival { port, own, is_shared: own.is_none() && !settings.is_listener_port(port) }
    }

    /// The server of a host, and whether it is of a listener or of Ingresses.
    fn find_listener(&self, to: &Arrival, host: &[u8]) -> Option<(Kind, (G::Record, ServerMatch))> {
        let look = |kind, key: &[u8]| Some((kind, self.generation.record(kind, key)?));
        let found = router::find_listener((to.port, to.own), host, to.is_shared, look);
        found.map(|((kind, record), found)| (kind, (record, found)))
    }

    /// The connection is for another listener than the one that has the host of this record.
    fn is_misdirected(&self, arrival: Arrival, host: &[u8]) -> bool {
        let Some(listener) = listener_of(host) else { return false };
        let (named, mut buffer) = (self.facts.server_name(), [0; HostPattern::MAX_BYTES]);
        let named = named.as_deref().and_then(|name| tls::normal(name, &mut buffer));
        let named = named.unwrap_or_default();
        if named == self.facts.host() {
            return false;
        }
        // Hosts of Ingresses are nobody's, so that of two in one listener each may be asked for by connections for the other.
        let found = self.find_listener(&Arrival { is_shared: false, ..arrival }, named);
        let of_connection = found.map(|(_, (record, _))| self.generation.value_of(record));
        of_connection.and_then(listener_of) != Some(listener)
    }
}
