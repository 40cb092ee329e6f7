//! Which listeners a route attaches to, and what its status says of them.

use super::host::intersection;
use super::listener::{Gateways, ListenerState};
use super::route::CompiledRoute;
use super::target::is_watched;
use super::{Built, status};
use crate::Options;
use kube::core::{Expression, Selector, SelectorExt};
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{self, HttpRoute, LabelSelector, ParentRef};
use oxigress_objects::gateway_status::{Condition, Content, ParentStatus};
use oxigress_objects::{Key, Kind, World};
use std::collections::BTreeMap;

/// A route at one of its parents, which is ours.
pub struct Attachment<'w> {
    /// As the route names it.
    pub parent: &'w ParentRef,
    /// The Gateway.
    pub gateway: Key,
    /// The listeners, by their place.
    pub listeners: Listeners,
    /// Why there are none.
    pub refusal: Option<Condition>,
}

/// The parents of a route that are ours. Counts it at the listeners.
pub fn attach<'w>(
    world: &World,
    options: &Options,
    key: &Key,
    route: &'w HttpRoute,
    gateways: &mut Gateways<'_>,
) -> Vec<Attachment<'w>> {
    let mut all = Vec::new();
    if !is_watched(world, options, &key.namespace) {
        return all;
    }
    for parent in &route.spec.parent_refs {
        let is_gateway = parent.group.as_deref().is_none_or(|group| group == gateway::GROUP)
            && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
        let namespace = parent.namespace.as_deref().unwrap_or(&key.namespace);
        let gateway = Key::new(namespace, &parent.name);
        let Some(state) = gateways.get_mut(&gateway).filter(|_| is_gateway) else { continue };
        let found = at(world, &gateway, key, route, parent, &state.listeners);
        let (listeners, refusal) = match found {
            Ok(listeners) => (listeners, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        };
        for (place, _) in &listeners {
            if let Some(listener) = state.listeners.get_mut(*place) {
                listener.attached.insert(key.clone());
            }
        }
        all.push(Attachment { parent, gateway, listeners, refusal });
    }
    all
}

/// Notes the status of a route at each of its parents.
pub fn put_status(
    options: &Options,
    key: &Key,
    route: &HttpRoute,
    attached: &[Attachment<'_>],
    rules: &CompiledRoute,
    built: &mut Built,
) {
    let parents = attached.iter().map(|attachment| {
        let mut conditions = Vec::new();
        match (&attachment.refusal, &rules.invalid) {
            (Some(refusal), _) => conditions.push(refusal.clone()),
            (None, Some(invalid)) if rules.rules.is_empty() => {
                conditions.push(Condition::no("Accepted", "UnsupportedValue", invalid.clone()));
            }
            (None, Some(invalid)) => {
                conditions.push(status::accepted());
                conditions.push(Condition {
                    name: "PartiallyInvalid",
                    holds: true,
                    reason: "UnsupportedValue",
                    message: format!("Dropped Rule: {invalid}"),
                });
            }
            (None, None) => conditions.push(status::accepted()),
        }
        let resolved = || Condition::yes("ResolvedRefs", "ResolvedRefs");
        conditions.push(rules.unresolved.clone().unwrap_or_else(resolved));
        ParentStatus { parent: attachment.parent.clone(), conditions }
    });
    let controller = options.gateway_controller_name.clone();
    let content = Content::Route { controller, parents: parents.collect() };
    status::put(Kind::HTTPRoute, key, route.meta.generation, content, built);
}

/// Listeners of a Gateway, by their place, with the hosts that are served there, and which of the route's own each comes from.
type Listeners = Vec<(usize, Vec<(HostPattern, HostPattern)>)>;

fn at(
    world: &World,
    gateway: &Key,
    key: &Key,
    route: &HttpRoute,
    parent: &ParentRef,
    listeners: &[ListenerState<'_>],
) -> Result<Listeners, Condition> {
    let refuse = |reason, message: &str| Err(Condition::no("Accepted", reason, message));
    let is_named = |listener: &ListenerState<'_>| {
        parent.section_name.as_ref().is_none_or(|name| *name == listener.spec.name)
            && parent.port.is_none_or(|port| port == listener.spec.port)
            && listener.is_accepted()
    };
    let mut found: Vec<_> =
        listeners.iter().enumerate().filter(|(_, listener)| is_named(listener)).collect();
    if found.is_empty() {
        return refuse(
            "NoMatchingParent",
            "no valid listener of the Gateway has this name and port",
        );
    }
    found.retain(|(_, listener)| {
        listener.kinds.contains(&"HTTPRoute") && allows(world, gateway, key, listener)
    });
    if found.is_empty() {
        return refuse(
            "NotAllowedByListeners",
            "allowedRoutes of the Gateway's listeners leave it out",
        );
    }
    let mut hosts = Vec::new();
    for name in &route.spec.hostnames {
        match HostPattern::parse(name) {
            Ok(host) => hosts.push(host),
            Err(why) => return refuse("UnsupportedValue", &format!("hostnames: {why}")),
        }
    }
    if hosts.is_empty() {
        hosts.push(HostPattern::default_host());
    }
    let meet = |listener: &ListenerState<'_>| {
        let meet = hosts
            .iter()
            .filter_map(|host| Some((intersection(&listener.host, host)?, host.clone())));
        meet.collect::<Vec<_>>()
    };
    let found = found.into_iter().map(|(place, listener)| (place, meet(listener)));
    let found: Listeners = found.filter(|(_, hosts)| !hosts.is_empty()).collect();
    match found.is_empty() {
        true => refuse("NoMatchingListenerHostname", "no listener has one of its hostnames"),
        false => Ok(found),
    }
}

/// Whether routes of a namespace may attach to a listener. What cannot be read allows none.
fn allows(world: &World, gateway: &Key, route: &Key, listener: &ListenerState<'_>) -> bool {
    let namespaces = &listener.spec.allowed_routes.namespaces;
    match namespaces.from.as_deref() {
        Some("All") => true,
        None | Some("Same") => route.namespace == gateway.namespace,
        Some("Selector") => namespaces.selector.as_ref().is_some_and(|selector| {
            let known = world.namespaces.get(&Key::new("", &route.namespace));
            let mut labels = known.map(|known| known.labels.clone()).unwrap_or_default();
            // Kubernetes gives it to every namespace; in a folder nobody does.
            labels.insert("kubernetes.io/metadata.name".into(), route.namespace.to_string());
            matches(selector, &labels)
        }),
        Some(_) => false,
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut all = Selector::from_iter(
        selector
            .match_labels
            .iter()
            .map(|(key, value)| Expression::Equal(key.clone(), value.clone())),
    );
    for expression in &selector.match_expressions {
        let (key, values) = (expression.key.clone(), expression.values.iter().cloned().collect());
        all.extend([match &*expression.operator {
            "In" => Expression::In(key, values),
            "NotIn" => Expression::NotIn(key, values),
            "Exists" => Expression::Exists(key),
            "DoesNotExist" => Expression::DoesNotExist(key),
            _ => return false,
        }]);
    }
    all.matches(labels)
}
