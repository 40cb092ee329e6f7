//! GatewayClasses and Gateways of ours, and their listeners.
//!
//! All Gateways are served by one nginx: listeners of several Gateways on one port and host are one, whose routes come after each
//! other by age, unless the Gateways have addresses of their own.

use super::address::{self, Place, Refusal};
use super::protocol::Protocol;
use super::state::{GatewayState, Gateways, ListenerState};
use super::status::{self, accepted, programmed};
use super::target::{is_granted, is_watched};
use super::{Built, ports};
use crate::Options;
use oxigress_core::model::{CertificateId, HostPattern, StreamPort};
use oxigress_objects::gateway::{self, Gateway, GatewayObjects, Listener, ObjectName};
use oxigress_objects::gateway_status::{Condition, Content, ListenerStatus};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

/// Most listeners of the Gateways of one namespace, the oldest Gateway's first: every rebuild looks at each.
const MAX_LISTENERS: usize = 1_024;

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

/// The Secrets that listeners of ours show.
pub fn references(options: &Options, objects: &GatewayObjects) -> BTreeSet<ObjectRef> {
    let is_ours = |gateway: &Gateway| {
        let class = objects.classes.get(&Key::new("", &gateway.spec.gateway_class_name));
        class.is_some_and(|class| class.spec.controller_name == options.gateway_controller_name)
    };
    let gateways = objects.gateways.iter().filter(|(_, gateway)| is_ours(gateway));
    let mut gateways: Vec<_> = gateways.collect();
    gateways.sort_by_key(|(key, gateway)| (gateway.meta.created, *key));
    let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (key, gateway) in gateways {
        let read = gateway.spec.listeners.iter().filter(|_| is_read(&mut counts, key));
        let secrets = read.filter_map(|spec| shown(objects, key, spec));
        all.extend(secrets.map(|key| ObjectRef::new(Kind::Secret, key)));
    }
    all
}

/// Counts a listener for its Gateway's namespace; answers whether it is within the limit.
fn is_read<'k>(counts: &mut BTreeMap<&'k Name, usize>, gateway: &'k Key) -> bool {
    let count = counts.entry(&gateway.namespace).or_default();
    *count += 1;
    *count <= MAX_LISTENERS
}

/// The Secret that a listener names and may show: what it may not show is nothing that its namespace has to know of.
fn shown(objects: &GatewayObjects, gateway: &Key, spec: &Listener) -> Option<Key> {
    let name = spec.tls.as_ref()?.certificate_refs.first()?;
    let secret = secret_key(gateway, name);
    let from = (gateway::GROUP, Kind::Gateway, &*gateway.namespace);
    is_granted(objects, from, ("", "Secret"), &secret).then_some(secret)
}

fn secret_key(gateway: &Key, name: &ObjectName) -> Key {
    Key::new(name.namespace.as_deref().unwrap_or(&gateway.namespace), &name.name)
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
    let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
    for ((key, gateway), (_, place)) in ours.into_iter().zip(places) {
        built.addresses.extend(place.own());
        let listeners = gateway.spec.listeners.iter().map(|spec| {
            if !is_read(&mut counts, key) {
                return over_limit(&key.namespace, spec);
            }
            if let Some(secret) = shown(&world.gateway_api, key, spec) {
                let (count, gateways) = built.shown.entry(secret).or_default();
                *count += 1;
                gateways.insert(key.clone());
            }
            state(world, options, key, spec)
        });
        let mut listeners: Vec<_> = listeners.collect();
        if matches!(place, Place::Nowhere(_)) {
            listeners.iter_mut().for_each(|listener| listener.port = None);
        }
        gateways.insert(key, GatewayState { gateway, place, listeners });
    }
    for state in gateways.values_mut() {
        ports::find_conflicts(options, &mut state.listeners);
    }
    ports::find_port_conflicts(options, &ports::of_services(world, options), &mut gateways);
    let own = [options.http_port, options.tls_port]
        .map(|port| NonZeroU16::new(port).map(StreamPort::Tcp));
    for listener in gateways.values().flat_map(|state| &state.listeners) {
        let port =
            listener.at().filter(|port| listener.is_accepted() && !own.contains(&Some(*port)));
        built.ports.extend(port.zip(listener.protocol.map(Protocol::listener)));
    }
    gateways
}

/// One that is not read, since its namespace has too many.
fn over_limit<'w>(namespace: &str, spec: &'w Listener) -> ListenerState<'w> {
    let message = format!(
        "the Gateways of namespace {namespace} have more than {MAX_LISTENERS} listeners, of which the oldest are served: \
         use fewer"
    );
    let refusal = Some(Condition::no("Accepted", "UnsupportedValue", message));
    ListenerState { refusal, ..ListenerState::new(spec) }
}

fn state<'w>(world: &World, options: &Options, key: &Key, spec: &'w Listener) -> ListenerState<'w> {
    let refuse = |reason, message: String| Some(Condition::no("Accepted", reason, message));
    let mut state = ListenerState::new(spec);
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
        match certificate_of(world, key, spec) {
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

fn certificate_of(world: &World, key: &Key, spec: &Listener) -> Result<CertificateId, Condition> {
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
    let secret = secret_key(key, name);
    let gateway = (gateway::GROUP, Kind::Gateway, &*key.namespace);
    if !is_granted(&world.gateway_api, gateway, ("", "Secret"), &secret) {
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
        let standing = state.listeners.iter().filter(|listener| listener.is_accepted()).count();
        let mut conditions = vec![match (standing == state.listeners.len(), standing) {
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
        let listeners = state.listeners.iter().map(listener_status).collect();
        let addresses = state.place.published();
        let content = Content::Gateway { conditions, listeners, addresses };
        status::put(Kind::Gateway, key, state.gateway.meta.generation, content, built);
    }
}

fn listener_status(listener: &ListenerState<'_>) -> ListenerStatus {
    let refusal = listener.refusal.clone();
    let conflict = listener.conflict.clone();
    let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
    let is_accepted = match (&refusal, &conflict) {
        (Some(refusal), _) => refusal.clone(),
        (None, Some(conflict)) => {
            Condition::no("Accepted", conflict.reason, conflict.message.clone())
        }
        (None, None) => accepted(),
    };
    let is_programmed = match listener.is_serving() {
        true => programmed(),
        false => Condition::no("Programmed", "Invalid", "the listener is not valid"),
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
