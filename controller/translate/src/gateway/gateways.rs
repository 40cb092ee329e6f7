//! GatewayClasses and Gateways of ours, and their listeners; [`listener_set`] adds those of ListenerSets.
//!
//! All Gateways are served by one nginx: listeners of several Gateways on one port and host are one, whose routes come after each
//! other by age, unless the Gateways have addresses of their own.

pub(super) mod frontend;
pub(super) mod identity;
pub(super) mod listener;
pub(super) mod listener_set;

use super::Built;
use super::listeners::address::{self, Place, Refusal};
use super::listeners::left::Left;
use super::listeners::ports;
use super::listeners::protocol::Protocol;
use super::listeners::state::{GatewayState, Gateways, Home};
use super::routes::target::is_watched;
use super::routes::tls_policy;
use super::status::{self, accepted, programmed};
use super::work::{self, Step};
use crate::Options;
use listener::{Counts, listener_status, read, shown};
use oxigress_core::model::StreamPort;
use oxigress_objects::gateway::{GatewayObjects, Listener, of_namespace};
use oxigress_objects::gateway_status::{Condition, Content};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

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

/// The ConfigMaps that Gateways of ours name for their clients' authorities.
pub fn authorities_of_ours(options: &Options, objects: &GatewayObjects) -> BTreeSet<ObjectRef> {
    let gateways = objects.gateways.iter().filter(|(key, _)| is_ours(options, objects, key));
    gateways.flat_map(|(key, gateway)| frontend::authorities_of(objects, key, gateway)).collect()
}

/// The Secrets and ConfigMaps of one object; of a Gateway or a ListenerSet of others none.
pub fn references_of(
    options: &Options,
    objects: &GatewayObjects,
    id: &ObjectRef,
) -> BTreeSet<ObjectRef> {
    let gateway = match id.kind {
        Kind::Gateway => Some(id.key.clone()),
        Kind::ListenerSet => {
            let set = objects.sets.get(&id.key);
            set.and_then(|set| set.spec.gateway(&id.key.namespace))
        }
        _ => None,
    };
    let is_of_others = gateway.is_some_and(|key| !is_ours(options, objects, &key));
    if is_of_others {
        return BTreeSet::new();
    }
    work::count(Step::Referred);
    named_by(objects, id)
}

/// The Gateways and the ListenerSets of a namespace.
pub fn with_listeners(objects: &GatewayObjects, namespace: &str) -> BTreeSet<ObjectRef> {
    let namespace = Name::from(namespace);
    let gateways = of_namespace(&objects.gateways, &namespace).map(|(key, _)| (Kind::Gateway, key));
    let sets = of_namespace(&objects.sets, &namespace).map(|(key, _)| (Kind::ListenerSet, key));
    gateways.chain(sets).map(|(kind, key)| ObjectRef::new(kind, key.clone())).collect()
}

/// A ClusterTrustBundle is watched, whether something names it or not.
fn is_map(id: &ObjectRef) -> bool {
    id.kind == Kind::ConfigMap
}

/// Whether the class of a Gateway is ours.
pub fn is_ours(options: &Options, objects: &GatewayObjects, gateway: &Key) -> bool {
    objects.gateways.get(gateway).is_some_and(|gateway| {
        let class = objects.classes.get(&Key::new("", &gateway.spec.gateway_class_name));
        class.is_some_and(|class| class.spec.controller_name == options.gateway_controller_name)
    })
}

/// The Secrets and ConfigMaps that one object names and may, whether something is served from them or not.
fn named_by(objects: &GatewayObjects, id: &ObjectRef) -> BTreeSet<ObjectRef> {
    let (mut secrets, mut authorities): (Vec<Key>, Vec<ObjectRef>) = Default::default();
    let of_listeners = |home: Home<'_>, listeners: &[Listener]| -> Vec<Key> {
        listeners.iter().filter_map(|spec| shown(objects, home, spec)).collect()
    };
    match id.kind {
        Kind::Gateway => {
            let Some(gateway) = objects.gateways.get(&id.key) else { return BTreeSet::new() };
            secrets = of_listeners(Home::of_gateway(&id.key, gateway), &gateway.spec.listeners);
            secrets.extend(identity::secret_of(objects, &id.key, gateway));
            authorities.extend(frontend::authorities_of(objects, &id.key, gateway));
        }
        Kind::ListenerSet => {
            let Some(set) = objects.sets.get(&id.key) else { return BTreeSet::new() };
            secrets = of_listeners(Home::of_set(&id.key, set), &set.spec.listeners);
        }
        Kind::BackendTLSPolicy => {
            let policy = objects.tls_policies.get(&id.key);
            let named = policy.and_then(|policy| tls_policy::authorities_of(&id.key, policy));
            authorities.extend(named);
        }
        _ => {}
    }
    let secrets = secrets.into_iter().map(|key| ObjectRef::new(Kind::Secret, key));
    secrets.chain(authorities.into_iter().filter(is_map)).collect()
}

/// The Gateways of these classes; `known`: what listeners of guests leave to others, if all routes are those by which that was told.
pub fn gateways<'w>(
    world: &'w World,
    options: &Options,
    classes: &BTreeSet<String>,
    known: Option<&Arc<Left>>,
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
        gateways.insert(
            key,
            GatewayState { gateway, place, listeners, sets: Vec::new(), identity: None },
        );
    }
    for state in gateways.values_mut() {
        ports::find_conflicts(options, &mut state.listeners);
    }
    let taken = ports::of_services(world, options);
    let older = ports::find_port_conflicts(options, &taken, &mut gateways);
    listener_set::add(world, options, &mut gateways, (&mut counts, older, known), built);
    let own = [options.http_port, options.tls_port]
        .map(|port| NonZeroU16::new(port).map(StreamPort::Tcp));
    for listener in gateways.values().flat_map(|state| &state.listeners) {
        let port =
            listener.at().filter(|port| listener.is_accepted() && !own.contains(&Some(*port)));
        built.ports.extend(port.zip(listener.protocol.map(Protocol::listener)));
    }
    gateways
}

/// Says what became of a Gateway and its ListenerSets.
pub fn put_status(key: &Key, state: &GatewayState<'_>, built: &mut Built) {
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
    conditions.extend(identity::condition(state));
    if frontend::is_insecure(&state.gateway.spec) {
        conditions.push(Condition {
            message: "tls.frontend: clients are let in whatever they show".into(),
            ..Condition::yes("InsecureFrontendValidationMode", "ConfigurationChanged")
        });
    }
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
