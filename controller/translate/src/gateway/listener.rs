//! GatewayClasses and Gateways of ours, and their listeners; [`super::listener_set`] adds those of ListenerSets.
//!
//! All Gateways are served by one nginx: listeners of several Gateways on one port and host are one, whose routes come after each
//! other by age, unless the Gateways have addresses of their own.

use super::address::{self, Place, Refusal};
use super::protocol::Protocol;
use super::state::{GatewayState, Gateways, Home, ListenerState};
use super::status::{self, accepted, programmed};
use super::target::{is_granted, is_watched};
use super::{Built, listener_set, ports, tls_policy};
use crate::Options;
use oxigress_core::model::{CertificateId, HostPattern, StreamPort};
use oxigress_objects::gateway::{self, Gateway, GatewayObjects, Listener, ObjectName};
use oxigress_objects::gateway_status::{Condition, Content, ListenerStatus};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

/// Most listeners of the Gateways and ListenerSets of one namespace, those of Gateways and of older objects first: every rebuild
/// looks at each.
pub const MAX_LISTENERS: usize = 1_024;

/// The names of GatewayClasses of ours that are accepted.
pub fn classes(options: &Options, objects: &GatewayObjects, built: &mut Built) -> BTreeSet<String> {
    let mut ours = BTreeSet::new();
    for (key, class) in &objects.classes {
        if class.spec.controller_name != options.gateway_controller_name {
            continue;
        }
        let condition = match &class.spec.parameters_ref {
            None => {
                ours.insert(key.name.to_string());
                Condition::yes("Accepted", "Accepted")
            }
            Some(_) => Condition::no(
                "Accepted",
                "InvalidParameters",
                "spec.parametersRef is not read: remove it, and set flags or the ConfigMap",
            ),
        };
        let conditions = vec![condition];
        let content = Content::Class { conditions, features: status::features(options) };
        status::put(Kind::GatewayClass, key, class.meta.generation, content, built);
    }
    ours
}

/// The Secrets that listeners of ours show, and the ConfigMaps that policies of backends name.
pub fn references(options: &Options, objects: &GatewayObjects) -> BTreeSet<ObjectRef> {
    let is_ours = |gateway: &Gateway| {
        let class = objects.classes.get(&Key::new("", &gateway.spec.gateway_class_name));
        class.is_some_and(|class| class.spec.controller_name == options.gateway_controller_name)
    };
    let gateways = objects.gateways.iter().filter(|(_, gateway)| is_ours(gateway));
    let mut gateways: Vec<_> = gateways.collect();
    gateways.sort_by_key(|(key, gateway)| (gateway.meta.created, *key));
    let of_gateways = gateways
        .iter()
        .map(|(key, gateway)| (Home::of_gateway(key, gateway), gateway.spec.listeners.as_slice()));
    let is_parent = |key: &Key| objects.gateways.get(key).is_some_and(|gateway| is_ours(gateway));
    let sets = listener_set::by_age(objects);
    let of_sets = sets.iter().filter(|(home, set)| {
        set.spec.gateway(&home.key.namespace).is_some_and(|gateway| is_parent(&gateway))
    });
    let of_sets = of_sets.map(|(home, set)| (*home, set.spec.listeners.as_slice()));
    let mut counts = Counts::default();
    let mut all = BTreeSet::new();
    for (home, listeners) in of_gateways.chain(of_sets) {
        let read = listeners.iter().filter(|_| counts.is_read(home));
        let secrets = read.filter_map(|spec| shown(objects, home, spec));
        all.extend(secrets.map(|key| ObjectRef::new(Kind::Secret, key)));
    }
    let maps = tls_policy::references(objects);
    all.extend(maps.map(|key| ObjectRef::new(Kind::ConfigMap, key)));
    all
}

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
}

/// The Secret that a listener names and may show: what it may not show is nothing that its namespace has to know of.
fn shown(objects: &GatewayObjects, home: Home<'_>, spec: &Listener) -> Option<Key> {
    let name = spec.tls.as_ref()?.certificate_refs.first()?;
    let secret = secret_key(home, name);
    let from = (gateway::GROUP, home.kind, &*home.key.namespace);
    is_granted(objects, from, ("", "Secret"), &secret).then_some(secret)
}

fn secret_key(home: Home<'_>, name: &ObjectName) -> Key {
    Key::new(name.namespace.as_deref().unwrap_or(&home.key.namespace), &name.name)
}

/// The Gateways of these classes.
pub fn gateways<'w>(
    world: &'w World,
    options: &Options,
    classes: &BTreeSet<String>,
    built: &mut Built,
) -> Gateways<'w> {
    let all = world.gateway_api.gateways.iter();
    let ours = all.filter(|(key, gateway)| {
        classes.contains(&gateway.spec.gateway_class_name)
            && is_watched(world, options, &key.namespace)
    });
    let mut ours: Vec<_> = ours.map(|(key, gateway)| (key, &**gateway)).collect();
    ours.sort_by_key(|(key, gateway)| (gateway.meta.created, *key));
    let places = address::assign(options, ours.iter().copied());
    let mut gateways: Gateways<'w> = BTreeMap::new();
    let mut counts = Counts::default();
    for ((key, gateway), (_, place)) in ours.into_iter().zip(places) {
        built.addresses.extend(place.own());
        let home = Home::of_gateway(key, gateway);
        let listeners = gateway.spec.listeners.iter();
        let listeners = listeners.map(|spec| read(world, options, home, spec, &mut counts, built));
        let mut listeners: Vec<_> = listeners.collect();
        if matches!(place, Place::Nowhere(_)) {
            listeners.iter_mut().for_each(|listener| listener.port = None);
        }
        gateways.insert(key, GatewayState { gateway, place, listeners, sets: Vec::new() });
    }
    for state in gateways.values_mut() {
        ports::find_conflicts(options, &mut state.listeners);
    }
    let taken = ports::of_services(world, options);
    let older = ports::find_port_conflicts(options, &taken, &mut gateways);
    listener_set::add(world, options, &mut gateways, (&mut counts, older), built);
    let own = [options.http_port, options.tls_port]
        .map(|port| NonZeroU16::new(port).map(StreamPort::Tcp));
    for listener in gateways.values().flat_map(|state| &state.listeners) {
        let port =
            listener.at().filter(|port| listener.is_accepted() && !own.contains(&Some(*port)));
        built.ports.extend(port.zip(listener.protocol.map(Protocol::listener)));
    }
    gateways
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
    let message = format!(
        "the Gateways and ListenerSets of namespace {} have more than {MAX_LISTENERS} listeners, of which those of Gateways and \
         of older objects are served: use fewer",
        home.key.namespace
    );
    let reason =
        if home.kind == Kind::ListenerSet { "TooManyListeners" } else { "UnsupportedValue" };
    let refusal = Some(Condition::no("Accepted", reason, message));
    ListenerState { refusal, ..ListenerState::new(spec, home) }
}

fn state<'w>(
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
    let is_secret = name.group.as_deref().unwrap_or_default().is_empty()
        && name.kind.as_deref().is_none_or(|kind| kind == "Secret");
    if !is_secret {
        return Err(invalid(format!("tls.certificateRefs: {} is no Secret", name.name)));
    }
    let secret = secret_key(home, name);
    let from = (gateway::GROUP, home.kind, &*home.key.namespace);
    if !is_granted(&world.gateway_api, from, ("", "Secret"), &secret) {
        let message = format!("no ReferenceGrant in namespace {} allows it", secret.namespace);
        return Err(refuse("RefNotPermitted", message));
    }
    let Some(history) = world.secrets.get(&secret) else {
        return Err(invalid(format!("Secret {secret} does not exist")));
    };
    if history.last_good.is_none() {
        return Err(invalid(format!("Secret {secret} has no pair of certificate and key")));
    }
    CertificateId::parse(secret.to_string()).map_err(|why| invalid(why.to_string()))
}

/// Says what became of the Gateways.
pub fn finish(gateways: &Gateways<'_>, built: &mut Built) {
    for (key, state) in gateways {
        let own: Vec<_> = state.listeners_of(Kind::Gateway, key).collect();
        let standing = own.iter().filter(|listener| listener.is_accepted()).count();
        let mut conditions = vec![match (standing == own.len(), standing) {
            (true, _) => accepted(),
            (false, 0) => Condition::no("Accepted", "ListenersNotValid", "no listener is valid"),
            (false, _) => Condition {
                message: "not every listener is valid".into(),
                reason: "ListenersNotValid",
                ..accepted()
            },
        }];
        conditions.push(match standing {
            0 => Condition::no("Programmed", "Invalid", "no listener is valid"),
            _ => programmed(),
        });
        match &state.place {
            Place::Nowhere(Refusal::Unsupported(why)) => {
                let not = Condition::no("Programmed", "Invalid", why.message.clone());
                conditions = vec![why.clone(), not];
            }
            Place::Nowhere(Refusal::Unusable(why)) => {
                conditions.retain(|condition| condition.name != why.name);
                conditions.push(why.clone());
            }
            Place::Shared | Place::Own(_) => {}
        }
        let listeners = own.into_iter().map(listener_status).collect();
        let sets = listener_set::finish(state, built);
        let addresses = state.place.published();
        let content = Content::Gateway { conditions, listeners, addresses, sets };
        status::put(Kind::Gateway, key, state.gateway.meta.generation, content, built);
    }
}

/// What is said about a listener.
pub fn listener_status(listener: &ListenerState<'_>) -> ListenerStatus {
    let conflict = listener.conflict.clone();
    let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
    let is_accepted = match (&listener.refusal, &conflict) {
        (_, Some(conflict)) => Condition::no("Accepted", conflict.reason, conflict.message.clone()),
        (Some(refusal), None) => refusal.clone(),
        (None, None) => accepted(),
    };
    let is_programmed = match (&conflict, listener.is_serving()) {
        (Some(conflict), _) => {
            Condition::no("Programmed", conflict.reason, conflict.message.clone())
        }
        (None, true) => programmed(),
        (None, false) => Condition::no("Programmed", "Invalid", "the listener is not valid"),
    };
    let none = Condition::no("Conflicted", "NoConflicts", "");
    ListenerStatus {
        name: listener.spec.name.clone(),
        kinds: listener.kinds.clone(),
        attached: listener.attached.len(),
        conditions: vec![
            is_accepted,
            is_programmed,
            listener.unresolved.clone().unwrap_or_else(resolved),
            conflict.unwrap_or(none),
        ],
    }
}
