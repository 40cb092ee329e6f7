//! One listener of a Gateway or a ListenerSet: what it speaks, where, with which certificate, and for which kinds of routes.

use super::identity;
use crate::Options;
use crate::gateway::Built;
use crate::gateway::listeners::protocol::Protocol;
use crate::gateway::listeners::state::{Home, ListenerState};
use crate::gateway::routes::target::is_granted;
use crate::gateway::status::{accepted, pending, programmed};
use oxigress_core::model::{CertificateId, HostPattern};
use oxigress_objects::gateway::{self, GatewayObjects, Listener};
use oxigress_objects::gateway_status::{Condition, ListenerStatus};
use oxigress_objects::{Key, Kind, Name, World};
use std::collections::BTreeMap;

/// Most listeners of the Gateways and ListenerSets of one namespace, those of Gateways and of older objects first: every rebuild
/// looks at each.
pub const MAX_LISTENERS: usize = 1_024;

/// The number of listeners of each namespace.
#[derive(Default)]
pub struct Counts<'k>(BTreeMap<&'k Name, usize>);

impl<'k> Counts<'k> {
    /// Counts a listener for the namespace of its object; answers whether it is within the limit.
    pub fn is_read(&mut self, home: Home<'k>) -> bool {
        let count = self.0.entry(&home.key.namespace).or_default();
        *count += 1;
        *count <= MAX_LISTENERS
    }

    /// Counts listeners that are not read.
    pub fn pass_over(&mut self, home: Home<'k>, count: usize) {
        *self.0.entry(&home.key.namespace).or_default() += count;
    }

    /// Whether the namespace of an object has no room for another listener.
    pub fn is_full(&self, home: Home<'_>) -> bool {
        self.0.get(&home.key.namespace).is_some_and(|count| *count >= MAX_LISTENERS)
    }
}

/// What a namespace is told that has too many.
pub fn too_many(home: Home<'_>) -> String {
    format!(
        "the Gateways and ListenerSets of namespace {} have more than {MAX_LISTENERS} listeners, of which those of Gateways and \
         of older objects are served: use fewer",
        home.key.namespace
    )
}

/// The Secret that a listener names and may show: what it may not show is nothing that its namespace has to know of.
pub fn shown(objects: &GatewayObjects, home: Home<'_>, spec: &Listener) -> Option<Key> {
    let name = spec.tls.as_ref()?.certificate_refs.first()?;
    let secret = name.key(&home.key.namespace);
    is_granted(objects, from(home), ("", "Secret"), &secret).then_some(secret)
}

fn from(home: Home<'_>) -> (&str, Kind, &str) {
    (gateway::GROUP, home.kind, &home.key.namespace)
}

/// Reads a listener, if its namespace has not too many of them, and notes the Secret that it may show.
pub fn read<'w>(
    world: &World,
    options: &Options,
    home: Home<'w>,
    spec: &'w Listener,
    counts: &mut Counts<'w>,
    built: &mut Built,
) -> ListenerState<'w> {
    if !counts.is_read(home) {
        return over_limit(home, spec);
    }
    if let Some(secret) = shown(&world.gateway_api, home, spec) {
        let (count, objects) = built.shown.entry(secret).or_default();
        *count += 1;
        objects.insert(home.object());
    }
    state(world, options, home, spec)
}

/// One that is not read, since its namespace has too many.
fn over_limit<'w>(home: Home<'w>, spec: &'w Listener) -> ListenerState<'w> {
    let message = too_many(home);
    let reason =
        if home.kind == Kind::ListenerSet { "TooManyListeners" } else { "UnsupportedValue" };
    let refusal = Some(Condition::no("Accepted", reason, message));
    ListenerState { refusal, ..ListenerState::new(spec, home) }
}

/// A listener, as it is by itself.
pub fn state<'w>(
    world: &World,
    options: &Options,
    home: Home<'w>,
    spec: &'w Listener,
) -> ListenerState<'w> {
    let refuse = |reason, message: String| Some(Condition::no("Accepted", reason, message));
    let mut state = ListenerState::new(spec, home);
    match Protocol::of(spec) {
        Ok(protocol) => state.protocol = Some(protocol),
        Err(refusal) => state.refusal = Some(refusal),
    }
    // TCP and UDP have no names of hosts, whatever is written.
    let has_hosts = state.protocol.is_none_or(Protocol::has_hosts);
    let hostname = spec.hostname.as_deref().filter(|name| has_hosts && !name.is_empty());
    match hostname.map(HostPattern::parse) {
        Some(Ok(name)) => state.host = name,
        Some(Err(why)) => state.refusal = refuse("UnsupportedValue", format!("hostname: {why}")),
        None => {}
    }
    if !spec.filters.requests.is_empty() {
        // Such a filter may decide who is let in.
        let message = "filters.requests are not served: remove them, and name a Policy in the rules of routes";
        state.refusal = refuse("UnsupportedValue", message.into());
    }
    match state.protocol.map(|protocol| protocol.port(options, spec)) {
        Some(Ok(port)) => state.port = Some(port).filter(|_| state.refusal.is_none()),
        Some(Err(why)) => state.refusal = refuse("PortUnavailable", why),
        None => {}
    }
    let known = state.protocol.filter(|_| state.refusal.is_none());
    (state.kinds, state.unresolved) = kinds(spec, known.map(Protocol::kinds).unwrap_or_default());
    if state.protocol.is_some_and(Protocol::has_certificate) {
        match certificate_of(world, home, spec) {
            Ok(id) => state.certificate = Some(id),
            Err(condition) => state.unresolved = state.unresolved.or(Some(condition)),
        }
    }
    state
}

fn kinds(spec: &Listener, known: &[Kind]) -> (Vec<Kind>, Option<Condition>) {
    if spec.allowed_routes.kinds.is_empty() {
        return (known.to_vec(), None);
    }
    let is_of = |kind: &gateway::RouteKind, known: Kind| {
        kind.kind == known.to_string()
            && kind.group.as_deref().is_none_or(|group| group == gateway::GROUP)
    };
    let all = &spec.allowed_routes.kinds;
    let odd = all.iter().find(|kind| !known.iter().any(|known| is_of(kind, *known)));
    let condition = odd.map(|odd| {
        let message = format!("allowedRoutes.kinds: {} is not served here", odd.kind);
        Condition::no("ResolvedRefs", "InvalidRouteKinds", message)
    });
    let kept = known.iter().copied().filter(|known| all.iter().any(|kind| is_of(kind, *known)));
    (kept.collect(), condition)
}

fn certificate_of(
    world: &World,
    home: Home<'_>,
    spec: &Listener,
) -> Result<CertificateId, Condition> {
    let refuse = |reason, message: String| Condition::no("ResolvedRefs", reason, message);
    let invalid = |message: String| refuse("InvalidCertificateRef", message);
    let names = spec.tls.as_ref().map(|tls| tls.certificate_refs.as_slice()).unwrap_or_default();
    let Some(name) = names.first() else {
        return Err(invalid("tls.certificateRefs is empty: name a Secret".into()));
    };
    if !name.is_secret() {
        return Err(invalid(format!("tls.certificateRefs: {} is no Secret", name.name)));
    }
    let secret = name.key(&home.key.namespace);
    identity::pair_of(world, from(home), &secret).map_err(|bad| {
        refuse(bad.reason("InvalidCertificateRef"), bad.why).because_of(bad.absent)
    })?;
    CertificateId::parse(secret.to_string()).map_err(|why| invalid(why.to_string()))
}

/// What is said about a listener.
pub fn listener_status(listener: &ListenerState<'_>) -> ListenerStatus {
    let conflict = listener.conflict.clone();
    let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
    let is_accepted = match (&listener.refusal, &conflict) {
        (_, Some(conflict)) => Condition::no("Accepted", conflict.reason, conflict.message.clone()),
        (Some(refusal), None) => refusal.clone(),
        (None, None) => listener.closed.clone().unwrap_or_else(accepted),
    };
    let is_programmed = match (&conflict, listener.is_serving()) {
        (Some(conflict), _) => {
            Condition::no("Programmed", conflict.reason, conflict.message.clone())
        }
        (None, true) if listener.is_pending => pending(),
        (None, true) => programmed(),
        (None, false) => {
            let cause = listener.unresolved.as_ref().and_then(|why| why.cause.clone());
            Condition::no("Programmed", "Invalid", "the listener is not valid").because_of(cause)
        }
    };
    let none = Condition::no("Conflicted", "NoConflicts", "");
    ListenerStatus {
        name: listener.spec.name.clone(),
        kinds: listener.kinds.clone(),
        attached: listener.attached,
        conditions: vec![
            is_accepted,
            is_programmed,
            listener.unresolved.clone().unwrap_or_else(resolved),
            conflict.unwrap_or(none),
        ],
    }
}
