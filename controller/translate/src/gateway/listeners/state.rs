//! Gateways of ours and their listeners, as far as is known of them.

use super::address::Place;
use super::left::Leaves;
use super::protocol::Protocol;
use crate::Options;
use crate::claim::age::Age;
use oxigress_core::model::policy::TlsPolicy;
use oxigress_core::model::{CertificateId, HostPattern, SessionPlace, StreamPort};
use oxigress_objects::gateway::{Gateway, Listener, ListenerSet};
use oxigress_objects::gateway_status::Condition;
use oxigress_objects::secret::Pair;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// A Gateway of ours.
pub struct GatewayState<'w> {
    /// As it is written.
    pub gateway: &'w Gateway,
    /// Where it is served.
    pub place: Place,
    /// Its own in their order, then those of the ListenerSets that it allows.
    pub listeners: Vec<ListenerState<'w>>,
    /// The ListenerSets that name it, the oldest first.
    pub sets: Vec<SetState<'w>>,
    /// The certificate that it names for endpoints, or why it cannot show it; `None`: it names none.
    pub identity: Option<Result<Arc<Pair>, Condition>>,
}

/// A ListenerSet that names a Gateway of ours.
pub struct SetState<'w> {
    /// Its age and its name.
    pub home: Home<'w>,
    /// As it is written.
    pub set: &'w ListenerSet,
    /// The Gateway allows it.
    pub is_allowed: bool,
    /// Older objects of its namespace have as many listeners as one may have.
    pub is_over: bool,
}

/// The object in which a listener stands. Gateways come before ListenerSets, and of each kind the older ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home<'w> {
    /// Its kind: a Gateway or a ListenerSet.
    pub kind: Kind,
    /// Its creation, in seconds.
    pub created: i64,
    /// Its name.
    pub key: &'w Key,
}

impl<'w> Home<'w> {
    /// A Gateway.
    pub fn of_gateway(key: &'w Key, gateway: &Gateway) -> Self {
        Home { kind: Kind::Gateway, created: gateway.meta.created, key }
    }

    /// A ListenerSet.
    pub fn of_set(key: &'w Key, set: &ListenerSet) -> Self {
        Home { kind: Kind::ListenerSet, created: set.meta.created, key }
    }

    /// Whether it is this object.
    pub fn is(&self, kind: Kind, key: &Key) -> bool {
        self.kind == kind && self.key == key
    }

    /// The object.
    pub fn object(&self) -> ObjectRef {
        ObjectRef::new(self.kind, self.key.clone())
    }

    /// When it was created, and its name.
    pub fn age(&self) -> Age {
        Age { created: self.created, key: self.key.clone() }
    }
}

impl fmt::Display for Home<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// The Gateways of ours.
pub type Gateways<'w> = BTreeMap<&'w Key, GatewayState<'w>>;

/// A listener.
#[derive(Clone)]
pub struct ListenerState<'w> {
    /// As it is written.
    pub spec: &'w Listener,
    /// The object that has it: Secrets and routes are allowed to this one.
    pub home: Home<'w>,
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
    /// How many routes are attached.
    pub attached: usize,
    /// Whether its selector has a namespace, as far as that was asked.
    pub selected: BTreeMap<Name, bool>,
    /// Why it does not stand.
    pub refusal: Option<Condition>,
    /// What else of its Gateway is in its way.
    pub conflict: Option<Condition>,
    /// What is referred to and cannot be used.
    pub unresolved: Option<Condition>,
    /// The hosts below its wildcard that routes of others name, and that are theirs; `None`: it leaves none.
    pub leaves: Option<Leaves>,
    /// What its clients have to show.
    pub clients: Option<TlsPolicy>,
    /// What it shows to endpoints over TLS.
    pub identity: Option<Arc<Pair>>,
    /// Its port is not open yet.
    pub is_pending: bool,
    /// Why it stands and lets nobody in: what clients show cannot be checked.
    pub closed: Option<Condition>,
}

impl<'w> GatewayState<'w> {
    /// The listeners that stand in an object: the Gateway itself, or one of its ListenerSets.
    pub fn listeners_of(&self, kind: Kind, key: &Key) -> impl Iterator<Item = &ListenerState<'w>> {
        let is_of = move |listener: &&ListenerState<'w>| listener.home.is(kind, key);
        self.listeners.iter().filter(is_of)
    }

    /// The listeners that have their hosts and ports.
    pub fn standing(&self) -> impl Iterator<Item = &ListenerState<'w>> {
        self.listeners.iter().filter(|listener| listener.stands())
    }

    /// The listeners to which routes may attach.
    pub fn accepted(&self) -> impl Iterator<Item = &ListenerState<'w>> {
        self.listeners.iter().filter(|listener| listener.is_accepted())
    }

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
    pub fn new(spec: &'w Listener, home: Home<'w>) -> Self {
        ListenerState {
            spec,
            home,
            protocol: None,
            host: HostPattern::default_host(),
            port: None,
            certificate: None,
            kinds: Vec::new(),
            attached: 0,
            selected: BTreeMap::new(),
            refusal: None,
            conflict: None,
            unresolved: None,
            leaves: None,
            clients: None,
            identity: None,
            is_pending: false,
            closed: None,
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

    /// It has its host and its port.
    pub fn stands(&self) -> bool {
        self.refusal.is_none() && self.conflict.is_none()
    }

    /// Routes may attach to it.
    pub fn is_accepted(&self) -> bool {
        self.stands() && self.closed.is_none()
    }

    /// It serves what is attached to it.
    pub fn is_serving(&self) -> bool {
        let needs = self.protocol.is_some_and(Protocol::has_certificate);
        self.is_accepted() && self.port.is_some() && (!needs || self.certificate.is_some())
    }

    /// Whether it is of UDP, and the number of its port, which it has or was refused.
    pub fn number(&self, options: &Options) -> Option<(bool, NonZeroU16)> {
        let protocol = self.protocol?;
        let number = protocol.number(options, self.spec)?;
        Some((protocol == Protocol::Udp, number))
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
        let port = match protocol {
            Protocol::Udp => protocol.at(port),
            _ => protocol.at(seen_port(options, port)),
        };
        let host = protocol.has_hosts().then(|| host.clone());
        Some(SessionPlace { port, address, host })
    }
}

/// Whether a port of nginx is the one on which requests over TLS arrive by default.
pub fn is_of_https(options: &Options, port: NonZeroU16) -> bool {
    port.get() == options.tls_port
}

/// The port that clients see of one of nginx: that of HTTPS has another number inside where TLS is passed through.
pub fn seen_port(options: &Options, port: NonZeroU16) -> NonZeroU16 {
    let seen = NonZeroU16::new(options.https_port).filter(|_| is_of_https(options, port));
    seen.unwrap_or(port)
}

/// Gateways, the oldest first.
pub fn by_age<'w>(gateways: &Gateways<'w>) -> Vec<&'w Key> {
    let mut all: Vec<_> = gateways.keys().copied().collect();
    all.sort_by_key(|key| (gateways.get(key).map(|state| state.gateway.meta.created), *key));
    all
}
