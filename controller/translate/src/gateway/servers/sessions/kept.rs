//! Hosts that are kept from whoever has the sessions of a wildcard above them, or of all server names: an older route of another
//! namespace names them, and who answers TLS for a name gets certificates for it (RFC 8737).
//!
//! Order:   by age, as everywhere: what is named later than the wildcard stays with that.
//! Shape:   a host that is kept has a place of its own: its sessions go to the HTTPS listener that has the host, or to Ingresses where
//!          these are served, or are closed.
//! Beside:  in the same way from an Ingress that has a wildcard passed through, on the port of HTTPS.
//! Bound:   [`MAX_KEPT`] hosts that one namespace names below what another one has, on all ports: beyond, nothing is kept.

use super::yields;
use crate::gateway::listeners::host::{Wildcards, is_wide};
use crate::gateway::listeners::isolation::Listeners;
use crate::gateway::listeners::state::seen_port;
use crate::gateway::servers::rank::Age;
use crate::gateway::{Beside, Built, KeptHost};
use crate::{HostOwnership, Options};
use oxigress_core::model::{
    HostPattern, ListenerHost, SessionPlace, SessionRoute, SessionWay, StreamPort,
};
use oxigress_objects::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

/// Most hosts that are kept from one namespace for another one.
const MAX_KEPT: usize = 2_000;

/// A port as nginx has it, and an address.
type Port = (NonZeroU16, Option<IpAddr>);

/// The routes that have the sessions of several server names, by port.
#[derive(Default)]
pub struct WidePlaces(BTreeMap<Port, BTreeMap<SessionPlace, Age>>);

impl WidePlaces {
    /// Notes which route has the sessions of a place.
    pub fn note(&mut self, at: &ListenerHost, place: &SessionPlace, route: &Age) {
        if place.host.as_ref().is_some_and(is_wide) {
            let of_port = self.0.entry((at.port, at.address)).or_default();
            of_port.insert(place.clone(), route.clone());
        }
    }

    /// The routes that have such sessions, by what they are of.
    pub fn holders(&self) -> BTreeMap<HostPattern, Vec<Age>> {
        let mut all: BTreeMap<_, Vec<Age>> = BTreeMap::new();
        for (place, route) in self.0.values().flatten() {
            let host = place.host.iter().cloned();
            host.for_each(|host| all.entry(host).or_default().push(route.clone()));
        }
        all
    }

    /// Keeps hosts from them.
    pub fn keep(
        &self,
        options: &Options,
        beside: &Beside<'_>,
        listeners: &Listeners,
        built: &mut Built,
    ) {
        if options.host_ownership == HostOwnership::Shared {
            return;
        }
        let mut spent: BTreeMap<(&Name, &Name), BTreeSet<&HostPattern>> = BTreeMap::new();
        for (port, had) in &self.0 {
            let Some(one) = had.keys().next() else { continue };
            let wide = Wide::of(one, &built.sessions);
            let mut kept = BTreeMap::new();
            for (host, claim) in beside.named {
                let named = claim.route.as_ref().map(|(age, _)| age);
                let Some((named, place)) = named.zip(wide.above(host)) else { continue };
                let Some((created, key, _)) = had.get(place) else { continue };
                let is_older = named.borrowed() < (*created, key);
                if !is_older || named.key.namespace == key.namespace {
                    continue;
                }
                built.kept_hosts.insert(host.clone(), KeptHost::of(beside, host));
                let own = SessionPlace { host: Some(host.clone()), ..place.clone() };
                let hosts = spent.entry((&key.namespace, &named.key.namespace)).or_default();
                let has_room = hosts.len() < MAX_KEPT || hosts.contains(host);
                if !has_room || built.sessions.contains_key(&own) {
                    continue;
                }
                hosts.insert(host);
                let at = ListenerHost::deep(port.0, port.1, host.clone());
                let of =
                    SessionPlace { host: listeners.most_specific(&at).cloned(), ..place.clone() };
                let is_http = built.sessions.get(&of).is_some_and(|of| of.way == SessionWay::Http);
                let yields = yields(options, &at);
                let way = if is_http || yields { SessionWay::Http } else { SessionWay::Forward };
                kept.insert(own, SessionRoute { way, yields, ..SessionRoute::default() });
            }
            built.sessions.extend(kept);
        }
    }
}

/// Keeps hosts of routes from wildcards that younger Ingresses of other namespaces have passed through: there TLS ends in nginx, which
/// has the listener's certificate. The star of an Ingress is not for a host that another one names.
pub fn keep_from_ingresses(options: &Options, beside: &Beside<'_>, built: &mut Built) {
    let port = NonZeroU16::new(options.tls_port).map(|port| seen_port(options, port));
    let Some(port) = port.filter(|_| options.host_ownership != HostOwnership::Shared) else {
        return;
    };
    let mut spent: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
    for (host, claim) in beside.named.iter().filter(|_| !beside.passed.is_empty()) {
        let above = host.wildcard_above().and_then(|above| beside.passed.get(&above));
        let Some(((named, _), by)) = claim.route.as_ref().zip(above) else { continue };
        let count = spent.entry((&by.key.namespace, &named.key.namespace)).or_default();
        if !named.takes_from(by) {
            continue;
        }
        built.kept_hosts.insert(host.clone(), KeptHost::of(beside, host));
        if beside.servers.contains_key(host) || *count >= MAX_KEPT {
            continue;
        }
        *count += 1;
        let place =
            SessionPlace { port: StreamPort::Tcp(port), address: None, host: Some(host.clone()) };
        let kept = SessionRoute { way: SessionWay::Http, ..SessionRoute::default() };
        let of_place = built.sessions.entry(place).or_insert(kept);
        of_place.yields &= of_place.way != SessionWay::Http;
    }
}

/// Whether a host that nobody has looked at may be to be kept as it is named now.
pub fn is_due(beside: &Beside<'_>, built: &Built, host: &HostPattern) -> bool {
    let route = beside.named.get(host).and_then(|claim| claim.route.as_ref());
    let Some((named, _)) = route else { return false };
    let is_above = |wide: &HostPattern| {
        let mut routes = built.wide_sessions.get(wide).into_iter().flatten();
        let takes_from = |(created, key, _): &Age| {
            named.borrowed() < (*created, key) && named.key.namespace != key.namespace
        };
        routes.any(takes_from)
    };
    let above = host.wildcard_above().and_then(|above| beside.passed.get(&above));
    if above.is_some_and(|by| named.takes_from(by)) {
        return true;
    }
    let mut text = host.as_str();
    let mut is_due = is_above(&HostPattern::default_host());
    while let Some((_, rest)) = text.split_once('.').filter(|_| !is_due) {
        is_due = HostPattern::parse(&format!("*.{rest}")).is_ok_and(|wide| is_above(&wide));
        text = rest;
    }
    is_due
}

/// The places of one port that are of several server names.
#[derive(Default)]
struct Wide<'s> {
    wildcards: Wildcards<&'s str, &'s SessionPlace>,
    all: Option<&'s SessionPlace>,
}

impl<'s> Wide<'s> {
    /// Those of the port of a place.
    fn of(one: &SessionPlace, sessions: &'s BTreeMap<SessionPlace, SessionRoute>) -> Self {
        let first = SessionPlace { host: None, ..one.clone() };
        let all = sessions.range(first..).map(|(place, _)| place);
        let all = all.take_while(|place| (place.port, place.address) == (one.port, one.address));
        let mut wide = Wide::default();
        for (place, host) in all.filter_map(|place| Some((place, place.host.as_ref()?))) {
            match host.as_str().strip_prefix('*') {
                Some(below) => wide.wildcards.insert(below, place),
                None if is_wide(host) => wide.all = Some(place),
                None => {}
            }
        }
        wide
    }

    /// What has the sessions of a host that has no place of its own.
    fn above(&self, host: &HostPattern) -> Option<&'s SessionPlace> {
        self.wildcards.above(host).next().copied().or(self.all)
    }
}
