//! Hosts that are kept from whoever has the sessions of a wildcard above them, or of all server names: another namespace names
//! them, and who answers TLS for a name gets certificates for it (RFC 8737).
//!
//! Shape:   a host that is kept has a place of its own: its sessions go to the HTTPS listener that has the host, or are closed.
//! Bound:   [`MAX_KEPT`] places for what each namespace has; where it would need more it has no sessions of such a name on the port.
//! Cost:    for each port with such sessions a look or two for each host that routes and listeners name.

use super::{is_wide, yields};
use crate::gateway::host::levels;
use crate::gateway::isolation::Listeners;
use crate::gateway::merge::{self, Place};
use crate::gateway::{Beside, Built};
use crate::{HostOwnership, Options};
use oxigress_core::model::{HostPattern, ListenerHost, SessionPlace, SessionRoute, SessionWay};
use oxigress_objects::verdict::Note;
use oxigress_objects::{Key, Kind, Name, ObjectRef};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

/// Most places of hosts that are kept from one namespace.
const MAX_KEPT: usize = 10_000;

/// A port as nginx has it, and an address.
type Port = (NonZeroU16, Option<IpAddr>);

/// Keeps hosts from those who have the sessions of these places.
pub fn keep(
    options: &Options,
    beside: &Beside<'_>,
    listeners: &Listeners,
    wide: &BTreeMap<Port, SessionPlace>,
    built: &mut Built,
) {
    if options.host_ownership == HostOwnership::Shared {
        return;
    }
    let mut spent: BTreeMap<String, usize> = BTreeMap::new();
    for (port, one) in wide {
        let wide = Wide::of(one, &built.sessions);
        let (mut kept, mut closed) = (BTreeMap::new(), BTreeSet::new());
        for (host, claim) in beside.named {
            let Some((place, route)) = wide.above(host).filter(|(_, route)| has_targets(route))
            else {
                continue;
            };
            let by = claim.route.as_ref().map_or(&claim.age, |(age, _)| age);
            built.session_hosts.insert(host.clone());
            let own = SessionPlace { host: Some(host.clone()), ..place.clone() };
            if *by.key.namespace == *route.namespace || built.sessions.contains_key(&own) {
                continue;
            }
            let at = ListenerHost::deep(port.0, port.1, host.clone());
            if !is_foreign(options, beside, &at, &route.namespace) {
                continue;
            }
            let count = spent.entry(route.namespace.clone()).or_default();
            *count += 1;
            if *count > MAX_KEPT {
                closed.insert(place.clone());
                continue;
            }
            let of = listeners.most_specific(&at).cloned();
            let of = built.sessions.get(&SessionPlace { host: of, ..place.clone() });
            let way = of.map(|of| of.way).filter(|way| *way == SessionWay::Http);
            let way = way.unwrap_or(SessionWay::Forward);
            kept.insert(
                own,
                SessionRoute { way, yields: yields(options, &at), ..SessionRoute::default() },
            );
        }
        for place in closed {
            close(&place, built);
        }
        built.sessions.extend(kept);
    }
}

fn has_targets(route: &SessionRoute) -> bool {
    !route.targets.is_empty()
}

/// Whether another namespace has a host.
fn is_foreign(options: &Options, beside: &Beside<'_>, at: &ListenerHost, namespace: &str) -> bool {
    let parents = &BTreeSet::new();
    let owner: Option<Name> =
        merge::owner_of(options, beside, &Place { at, parents, eldest: None });
    owner.is_some_and(|owner| *owner != *namespace)
}

fn close(place: &SessionPlace, built: &mut Built) {
    let Some(route) = built.sessions.get_mut(place) else { return };
    let object =
        ObjectRef::new(Kind::TLSRoute, Key::new(route.namespace.as_str(), route.route.as_str()));
    route.targets.clear();
    let message = format!(
        "sessions of {place} are closed: more than {MAX_KEPT} hosts that other namespaces name lie below the server names that routes \
         of this namespace have: use server names of your own"
    );
    built.notes.push((object, Note::rejected(message)));
}

/// The sessions of one port that are of wildcards and of all names.
#[derive(Default)]
struct Wide<'s> {
    /// By what follows the star, those of one length together.
    wildcards: BTreeMap<usize, BTreeMap<&'s str, (&'s SessionPlace, &'s SessionRoute)>>,
    all: Option<(&'s SessionPlace, &'s SessionRoute)>,
}

impl<'s> Wide<'s> {
    /// Those of the port of a place.
    fn of(one: &SessionPlace, sessions: &'s BTreeMap<SessionPlace, SessionRoute>) -> Self {
        let first = SessionPlace { host: None, ..one.clone() };
        let all = sessions.range(first..);
        let all =
            all.take_while(|(place, _)| (place.port, place.address) == (one.port, one.address));
        let mut wide = Wide::default();
        for (place, route) in all.filter(|(place, _)| is_wide(place)) {
            let Some(host) = &place.host else { continue };
            match host.as_str().strip_prefix('*') {
                Some(below) => {
                    wide.wildcards.entry(below.len()).or_default().insert(below, (place, route));
                }
                None => wide.all = Some((place, route)),
            }
        }
        wide
    }

    /// Who has the sessions of a host that has no place of its own.
    fn above(&self, host: &HostPattern) -> Option<(&'s SessionPlace, &'s SessionRoute)> {
        if *host == HostPattern::default_host() {
            return None;
        }
        let longest = self.wildcards.last_key_value().map_or(0, |(length, _)| *length);
        let own = host.as_str().strip_prefix('*');
        let mut parents =
            levels(host).filter(|parent| parent.len() <= longest && Some(*parent) != own);
        let wildcard =
            parents.find_map(|parent| self.wildcards.get(&parent.len())?.get(parent).copied());
        wildcard.or(self.all)
    }
}
