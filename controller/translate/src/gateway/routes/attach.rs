//! Which listeners a route attaches to, and what its status says of them.

use super::room::{self, Room, Taken};
use super::route::CompiledRoute;
use super::target::is_watched;
use crate::Options;
use crate::gateway::listeners::host::intersection;
use crate::gateway::listeners::protocol::Protocol;
use crate::gateway::listeners::state::{Gateways, Home, ListenerState};
use crate::gateway::work::{self, Step};
use crate::gateway::{Built, status};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{LabelSelector, ParentRef, Route, RouteNamespaces};
use oxigress_objects::gateway_status::{Condition, Content, ParentStatus};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A route at one of its parents, which is ours.
pub struct Attachment {
    /// The place of the parent among those that the route names.
    pub parent: usize,
    /// The Gateway.
    pub gateway: Key,
    /// The listeners, by their place.
    pub listeners: Listeners,
    /// Why there are none.
    pub refusal: Option<Condition>,
    /// Its namespace has places for it.
    pub has_places: bool,
}

/// The Gateways of a route by which BackendTLSPolicies say how its endpoints are spoken to: not those that pass its TLS through.
pub fn with_tls_policies<'a>(
    kind: Kind,
    attached: &'a [Attachment],
    gateways: &Gateways<'_>,
) -> BTreeSet<&'a Key> {
    let is_decrypted = |attachment: &Attachment| {
        let listeners = gateways.get(&attachment.gateway).map(|state| &state.listeners);
        attachment.listeners.iter().any(|(place, _)| {
            let listener = listeners.and_then(|listeners| listeners.get(*place));
            listener.is_some_and(|it| it.protocol == Some(Protocol::Terminate))
        })
    };
    let asked = attached.iter().filter(|at| kind.is_of_requests() || is_decrypted(at));
    asked.map(|attachment| &attachment.gateway).collect()
}

/// A route with its parents that are ours.
pub struct Attached<'w> {
    /// Its name.
    pub id: &'w ObjectRef,
    /// The route.
    pub route: &'w Arc<Route>,
    /// Its parents.
    pub at: Vec<Attachment>,
    /// The places that it asks for.
    pub taken: Taken,
}

/// The routes with parents that are ours, the oldest first: the newest are over the limits of their namespaces. Counts them at
/// the listeners.
pub fn all<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'_>,
    room: &mut Room,
) -> Vec<Attached<'w>> {
    let mut routes: Vec<_> = world.gateway_api.routes.iter().collect();
    routes.sort_by_key(|(id, route)| (route.meta.created, &id.key, id.kind));
    let all = routes.into_iter().map(|(id, route)| {
        let before = room.of(&id.key.namespace);
        let at = attach(world, options, id, route, gateways, room);
        Attached { id, route, at, taken: room.of(&id.key.namespace).since(before) }
    });
    all.filter(|attached| !attached.at.is_empty()).collect()
}

/// A route at its parents that are ours, as far as there is room. Counts it at the listeners.
pub fn attach(
    world: &World,
    options: &Options,
    id: &ObjectRef,
    route: &Route,
    gateways: &mut Gateways<'_>,
    room: &mut Room,
) -> Vec<Attachment> {
    let key = &id.key;
    if !is_watched(world, options, &key.namespace) {
        return Vec::new();
    }
    let parents = route.spec.parent_refs.iter().enumerate().filter_map(|(place, parent)| {
        let object = parent.object(&key.namespace)?;
        let gateway = gateway_of(world, &object)?;
        let state = gateways.get(&gateway)?;
        let home = match object.kind {
            Kind::ListenerSet => {
                Home::of_set(&object.key, world.gateway_api.sets.get(&object.key)?)
            }
            _ => Home::of_gateway(&object.key, state.gateway),
        };
        let is_known = is_watched(world, options, &object.key.namespace);
        is_known.then(|| (place, gateway, named(parent, home, &state.listeners)))
    });
    let mut parents: Vec<_> = parents.collect();
    if parents.is_empty() {
        return Vec::new();
    }
    // Nothing is multiplied before there is room for all of it.
    let listeners = parents.iter().map(|(_, _, named)| named.len()).sum::<usize>();
    let of_one = route.spec.hostnames.iter().map(|name| room::places_of(name)).sum::<usize>();
    let of_listeners = listeners.saturating_mul(of_one.max(1));
    let has_places =
        room.has_places(key, room::of_parents(parents.len()).saturating_add(of_listeners));
    let hosts = match has_places {
        true => hosts_of(route),
        // One parent is told, since each costs as much as any other.
        false => {
            parents.truncate(1);
            Err(Condition::no("Accepted", "UnsupportedValue", room::no_places()))
        }
    };
    let mut all = Vec::new();
    for (parent, gateway, named) in parents {
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        let found = at(world, id, named, &hosts, &mut state.listeners);
        let (listeners, refusal) = match found {
            Ok(listeners) => (listeners, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        all.push(Attachment { parent, gateway, listeners, refusal, has_places });
    }
    count(&all, gateways);
    all
}

/// Counts a route at the listeners to which it is attached.
fn count(attached: &[Attachment], gateways: &mut Gateways<'_>) {
    for (gateway, place) in listeners_of(attached) {
        let state = gateways.get_mut(gateway);
        if let Some(listener) = state.and_then(|state| state.listeners.get_mut(place)) {
            listener.attached += 1;
        }
    }
}

/// The listeners to which a route is attached, by their Gateway and their place there.
pub fn listeners_of(attached: &[Attachment]) -> BTreeSet<(&Key, usize)> {
    let of_one = |at| {
        let Attachment { gateway, listeners, .. }: &Attachment = at;
        listeners.iter().map(move |(place, _)| (gateway, *place))
    };
    attached.iter().flat_map(of_one).collect()
}

/// The Gateway by which the listeners of a parent are served.
pub fn gateway_of(world: &World, parent: &ObjectRef) -> Option<Key> {
    match parent.kind {
        Kind::ListenerSet => {
            let set = world.gateway_api.sets.get(&parent.key)?;
            set.spec.gateway(&parent.key.namespace)
        }
        _ => Some(parent.key.clone()),
    }
}

/// The accepted listeners that a parent names, by their place. All are in the order of the objects in which they stand: there may
/// be thousands of sets, and a parent each.
fn named(parent: &ParentRef, home: Home<'_>, listeners: &[ListenerState<'_>]) -> Vec<usize> {
    let first = listeners.partition_point(|listener| listener.home < home);
    let all = listeners.iter().enumerate().skip(first);
    let own = all.take_while(|(_, listener)| {
        work::count(Step::Parent);
        listener.home == home
    });
    own.filter(|(_, listener)| listener.is_accepted() && names(parent, listener))
        .map(|(place, _)| place)
        .collect()
}

/// Whether a parent that is the object of a listener names this one.
pub fn names(parent: &ParentRef, listener: &ListenerState<'_>) -> bool {
    parent.section_name.as_ref().is_none_or(|name| *name == listener.spec.name)
        && parent.port.is_none_or(|port| port == listener.spec.port)
}

/// The hosts that a route is for; all requests where it names none.
pub fn hosts_of(route: &Route) -> Result<Vec<HostPattern>, Condition> {
    if route.spec.hostnames.is_empty() {
        return Ok(vec![HostPattern::default_host()]);
    }
    let hosts = route.spec.hostnames.iter().map(|name| HostPattern::parse(name));
    hosts
        .collect::<Result<_, _>>()
        .map_err(|why| Condition::no("Accepted", "UnsupportedValue", format!("hostnames: {why}")))
}

/// Notes the status of a route at each of its parents. `refusals`: why it is served nowhere there, by the place of the attachment.
pub fn put_status(
    options: &Options,
    (id, route): (&ObjectRef, &Route),
    attached: &[Attachment],
    refusals: &BTreeMap<usize, Condition>,
    rules: &CompiledRoute,
    built: &mut Built,
) {
    let parents = attached.iter().enumerate().filter_map(|(place, attachment)| {
        let mut conditions = Vec::new();
        let refusal = refusals.get(&place).or(attachment.refusal.as_ref());
        match (refusal, &rules.invalid) {
            (Some(refusal), _) => conditions.push(refusal.clone()),
            (None, Some(invalid)) if !rules.has_rules => {
                conditions.push(Condition::no("Accepted", "UnsupportedValue", invalid.clone()));
            }
            (None, Some(invalid)) => {
                conditions.push(status::accepted());
                conditions.push(Condition {
                    message: format!("Dropped Rule: {invalid}"),
                    ..Condition::yes("PartiallyInvalid", "UnsupportedValue")
                });
            }
            (None, None) => conditions.push(status::accepted()),
        }
        let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
        conditions.push(rules.unresolved.clone().unwrap_or_else(resolved));
        conditions.extend(rules.applied());
        let parent = route.spec.parent_refs.get(attachment.parent)?.clone();
        Some(ParentStatus { parent, conditions })
    });
    let controller = options.gateway_controller_name.clone();
    let content = Content::Route { controller, parents: parents.collect() };
    status::put(id.kind, &id.key, route.meta.generation, content, built);
}

/// Listeners of a Gateway, by their place, with the hosts that are served there, and which of the route's own each comes from.
type Listeners = Vec<(usize, Vec<(HostPattern, HostPattern)>)>;

fn at(
    world: &World,
    id: &ObjectRef,
    named: Vec<usize>,
    hosts: &Result<Vec<HostPattern>, Condition>,
    listeners: &mut [ListenerState<'_>],
) -> Result<Listeners, Condition> {
    let refuse = |reason, message: &str| Err(Condition::no("Accepted", reason, message));
    if named.is_empty() {
        return refuse(
            "NoMatchingParent",
            "no valid listener of the parent has this name and port",
        );
    }
    let may_attach = |place: &usize| {
        listeners.get_mut(*place).is_some_and(|listener| takes(world, id, listener))
    };
    let allowed: Vec<usize> = named.into_iter().filter(may_attach).collect();
    if allowed.is_empty() {
        return refuse(
            "NotAllowedByListeners",
            "allowedRoutes of the parent's listeners leave it out",
        );
    }
    let hosts = hosts.as_ref().map_err(Clone::clone)?;
    let mut found = Listeners::new();
    for place in allowed {
        let Some(listener) = listeners.get(place) else { continue };
        let meet = hosts.iter().filter_map(|host| {
            work::count(Step::Place);
            Some((intersection(&listener.host, host)?, host.clone()))
        });
        let meet: Vec<_> = meet.collect();
        if !meet.is_empty() {
            found.push((place, meet));
        }
    }
    match found.is_empty() {
        true => refuse("NoMatchingListenerHostname", "no listener has one of its hostnames"),
        false => Ok(found),
    }
}

/// Whether routes of the kind and the namespace of this one may attach to a listener.
pub fn takes(world: &World, id: &ObjectRef, listener: &mut ListenerState<'_>) -> bool {
    let ObjectRef { kind, key: route } = id;
    if !listener.kinds.contains(kind) {
        return false;
    }
    let namespaces = &listener.spec.allowed_routes.namespaces;
    let from = namespaces.from.as_deref().unwrap_or("Same");
    let by = (from, namespaces, &listener.home.key.namespace);
    admits(world, by, &route.namespace, &mut listener.selected)
}

/// Whether an object of a namespace lets those of another one attach. What cannot be read allows none.
pub fn admits(
    world: &World,
    (from, namespaces, home): (&str, &RouteNamespaces, &Name),
    guest: &Name,
    selected: &mut BTreeMap<Name, bool>,
) -> bool {
    match (from, &namespaces.selector) {
        ("All", _) => true,
        ("Same", _) => guest == home,
        // It may be long, so it is asked once for all objects of a namespace.
        ("Selector", Some(selector)) => {
            *selected.entry(guest.clone()).or_insert_with(|| selects(world, guest, selector))
        }
        _ => false,
    }
}

fn selects(world: &World, namespace: &Name, selector: &LabelSelector) -> bool {
    work::count(Step::Selector);
    let known = world.namespaces.get(&Key::new("", namespace));
    let label = |key: &str| match key {
        // Kubernetes gives it to every namespace; in a folder nobody does.
        "kubernetes.io/metadata.name" => Some(namespace.as_str()),
        _ => known.and_then(|known| known.labels.get(key)).map(String::as_str),
    };
    // It may be as long as an object is, so nothing of it is copied.
    let mut labels = selector.match_labels.iter();
    let mut expressions = selector.match_expressions.iter();
    labels.all(|(key, value)| label(key) == Some(value))
        && expressions.all(|expression| {
            let value = label(&expression.key);
            let is_among =
                |value: &str| expression.values.iter().any(|text| text.as_str() == value);
            match &*expression.operator {
                "In" => value.is_some_and(is_among),
                "NotIn" => !value.is_some_and(is_among),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
