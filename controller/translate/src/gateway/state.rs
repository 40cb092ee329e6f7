//! Gateways of ours and their listeners, as far as is known of them.

use super::address::Place;
use super::protocol::Protocol;
use crate::Options;
use oxigress_core::model::{CertificateId, HostPattern, SessionPlace, StreamPort};
use oxigress_objects::gateway::{Gateway, Listener};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

/// A Gateway of ours.
pub struct GatewayState<'w> {
    /// As it is written.
    pub gateway: &'w Gateway,
    /// Where it is served.
    pub place: Place,
    /// In its order.
    pub listeners: Vec<ListenerState<'w>>,
}

/// The Gateways of ours.
pub type Gateways<'w> = BTreeMap<&'w Key, GatewayState<'w>>;

/// A listener.
pub struct ListenerState<'w> {
    /// As it is written.
    pub spec: &'w Listener,
    /// What it speaks; `None`: nothing that is served.
    pub protocol: Option<Protocol>,
    /// Its hosts.
    pub host: HostPattern,
    /// The port of nginx; `None`: nothing listens for it.
    pub port: Option<NonZeroU16>,
    /// The certificate that it shows.
    pub certificate: Option<CertificateId>,
    /// Kinds of routes that it takes.
    pub kinds: Vec<Kind>,
    /// The routes that are attached.
    pub attached: BTreeSet<ObjectRef>,
    /// Whether its selector has a namespace, as far as that was asked.
    pub selected: BTreeMap<Name, bool>,
    /// Why it does not stand.
    pub refusal: Option<Condition>,
    /// What else of its Gateway is in its way.
    pub conflict: Option<Condition>,
    /// What is referred to and cannot be used.
    pub unresolved: Option<Condition>,
}

impl GatewayState<'_> {
    /// The addresses in the names of its hosts; `None` stands for those that it shares.
    pub fn addresses(&self) -> Vec<Option<IpAddr>> {
        match self.place.own() {
            [] => vec![None],
            own => own.iter().copied().map(Some).collect(),
        }
    }
}

impl<'w> ListenerState<'w> {
    /// One of which nothing is known.
    pub fn new(spec: &'w Listener) -> Self {
        ListenerState {
            spec,
            protocol: None,
            host: HostPattern::default_host(),
            port: None,
            certificate: None,
            kinds: Vec::new(),
            attached: BTreeSet::new(),
            selected: BTreeMap::new(),
            refusal: None,
            conflict: None,
            unresolved: None,
        }
    }

    /// Requests over TLS come to it.
    pub fn is_https(&self) -> bool {
        self.protocol == Some(Protocol::Https)
    }

    /// Requests come to it.
    pub fn is_http(&self) -> bool {
        self.protocol.is_some_and(Protocol::is_http)
    }

    /// Routes may attach to it.
    pub fn is_accepted(&self) -> bool {
        self.refusal.is_none() && self.conflict.is_none()
    }

    /// It serves what is attached to it.
    pub fn is_serving(&self) -> bool {
        let needs = self.protocol.is_some_and(Protocol::has_certificate);
        self.is_accepted() && self.port.is_some() && (!needs || self.certificate.is_some())
    }

    /// Its port among those of TCP and UDP.
    pub fn at(&self) -> Option<StreamPort> {
        Some(self.protocol?.at(self.port?))
    }

    /// Where sessions for a host come to it. The port is the one that clients see.
    pub fn session_place(
        &self,
        options: &Options,
        address: Option<IpAddr>,
        host: &HostPattern,
    ) -> Option<SessionPlace> {
        let (protocol, port) = (self.protocol?, self.port?);
        let is_inside = protocol != Protocol::Udp && is_of_https(options, port);
        let seen = if is_inside { NonZeroU16::new(options.https_port)? } else { port };
        let port = protocol.at(seen);
        let host = protocol.has_hosts().then(|| host.clone());
        Some(SessionPlace { port, address, host })
    }
}

/// Whether a port of nginx is the one on which requests over TLS arrive by default.
pub fn is_of_https(options: &Options, port: NonZeroU16) -> bool {
    port.get() == options.tls_port
}

/// Gateways, the oldest first.
pub fn by_age<'w>(gateways: &Gateways<'w>) -> Vec<&'w Key> {
    let mut all: Vec<_> = gateways.keys().copied().collect();
    all.sort_by_key(|key| (gateways.get(key).map(|state| state.gateway.meta.created), *key));
    all
}
