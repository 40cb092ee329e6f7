//! GatewayClasses and Gateways of ours, and their listeners.
//!
//! All Gateways are served by one nginx: listeners of several Gateways on one port and host are one, whose routes come after each
//! other by age, unless the Gateways have addresses of their own.

use super::Built;
use super::address::{self, Place, Refusal};
use super::status::{self, accepted, programmed};
use super::target::{is_granted, is_watched};
use crate::Options;
use oxigress_core::model::{CertificateId, HostPattern};
use oxigress_objects::gateway::{self, Gateway, GatewayObjects, Listener, ObjectName};
use oxigress_objects::gateway_status::{Condition, Content, ListenerStatus};
use oxigress_objects::{Key, Kind, Name, ObjectRef, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU16;

/// Most ports of all Gateways together: each is a socket of every worker, and a new one is a reload.
const MAX_PORTS: usize = 256;
/// Most listeners of the Gateways of one namespace, the oldest Gateway's first: every rebuild looks at each.
const MAX_LISTENERS: usize = 1_024;

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
    /// Its hosts.
    pub host: HostPattern,
    /// The port of nginx; `None`: nothing listens for it.
    pub port: Option<NonZeroU16>,
    /// It speaks TLS.
    pub is_tls: bool,
    /// The certificate that it shows.
    pub certificate: Option<CertificateId>,
    /// Kinds of routes that it takes.
    pub kinds: Vec<Kind>,
    /// The routes that are attached.
    pub attached: BTreeSet<ObjectRef>,
    /// Whether its selector has a namespace, as far as that was asked.
    pub selected: BTreeMap<Name, bool>,
    /// Why it does not stand.
    refusal: Option<Condition>,
    conflict: Option<Condition>,
    unresolved: Option<Condition>,
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
    /// One that is not read, since its namespace has too many.
    fn over_limit(namespace: &str, spec: &'w Listener) -> Self {
        let message = format!(
            "the Gateways of namespace {namespace} have more than {MAX_LISTENERS} listeners, of which the oldest are served: \
             use fewer"
        );
        ListenerState {
            spec,
            host: HostPattern::default_host(),
            port: None,
            is_tls: false,
            certificate: None,
            kinds: Vec::new(),
            attached: BTreeSet::new(),
            selected: BTreeMap::new(),
            refusal: Some(Condition::no("Accepted", "UnsupportedValue", message)),
            conflict: None,
            unresolved: None,
        }
    }

    /// Routes may attach to it.
    pub fn is_accepted(&self) -> bool {
        self.refusal.is_none() && self.conflict.is_none()
    }

    /// It serves what is attached to it.
    pub fn is_serving(&self) -> bool {
        self.is_accepted() && self.port.is_some() && (!self.is_tls || self.certificate.is_some())
    }
}

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
                return ListenerState::over_limit(&key.namespace, spec);
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
        find_conflicts(&mut state.listeners);
    }
    find_port_conflicts(&mut gateways);
    let own = [options.http_port, options.tls_port];
    for listener in gateways.values().flat_map(|state| &state.listeners) {
        let port =
            listener.port.filter(|port| listener.is_accepted() && !own.contains(&port.get()));
        built.ports.extend(port.map(|port| (port.get(), listener.is_tls)));
    }
    gateways
}

fn state<'w>(world: &World, options: &Options, key: &Key, spec: &'w Listener) -> ListenerState<'w> {
    let is_tls = spec.protocol == "HTTPS";
    let refuse = |reason, message: String| Some(Condition::no("Accepted", reason, message));
    let (mut host, mut refusal) = (HostPattern::default_host(), None);
    match spec.hostname.as_deref().filter(|name| !name.is_empty()).map(HostPattern::parse) {
        Some(Ok(name)) => host = name,
        Some(Err(why)) => refusal = refuse("UnsupportedValue", format!("hostname: {why}")),
        None => {}
    }
    let mut port = None;
    match port_of(options, spec, is_tls) {
        Ok(number) => port = NonZeroU16::new(number),
        Err(why) => refusal = refuse("PortUnavailable", why),
    }
    if !matches!(&*spec.protocol, "HTTP" | "HTTPS") {
        let message = format!("protocol {} is not served: use HTTP or HTTPS", spec.protocol);
        refusal = refuse("UnsupportedProtocol", message);
    }
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref());
    if is_tls && mode.is_some_and(|mode| mode != "Terminate") {
        refusal = refuse("UnsupportedValue", "tls.mode: HTTPS has Terminate alone".into());
    }
    let (kinds, mut unresolved) = kinds(spec, refusal.is_none());
    let mut certificate = None;
    if is_tls {
        match certificate_of(world, key, spec) {
            Ok(id) => certificate = Some(id),
            Err(condition) => unresolved = unresolved.or(Some(condition)),
        }
    }
    let attached = BTreeSet::new();
    ListenerState {
        spec,
        host,
        port: port.filter(|_| refusal.is_none()),
        is_tls,
        certificate,
        kinds,
        attached,
        selected: BTreeMap::new(),
        refusal,
        conflict: None,
        unresolved,
    }
}

/// The port of nginx: 80 and 443 are those of the flags, where a Service may map them.
fn port_of(options: &Options, spec: &Listener, is_tls: bool) -> Result<u16, String> {
    let number = u16::try_from(spec.port).ok().filter(|number| *number != 0);
    let number = number.ok_or_else(|| format!("port {} is not from 1 to 65535", spec.port))?;
    let number = match number {
        80 => options.http_port,
        443 => options.https_port,
        number => number,
    };
    match (number == options.http_port, number == options.https_port) {
        (true, _) if is_tls => Err(format!("port {} speaks plain HTTP here", spec.port)),
        (_, true) if !is_tls => Err(format!("port {} speaks TLS here", spec.port)),
        (true, _) => Ok(number),
        (_, true) => Ok(options.tls_port),
        _ => match options.reserved_ports.get(&number) {
            Some(flag) => Err(format!("{flag} has port {number}: choose another one")),
            None => Ok(number),
        },
    }
}

fn kinds(spec: &Listener, is_known: bool) -> (Vec<Kind>, Option<Condition>) {
    let known = if is_known { Kind::ROUTES.to_vec() } else { Vec::new() };
    if spec.allowed_routes.kinds.is_empty() {
        return (known, None);
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
    let kept = known.into_iter().filter(|known| all.iter().any(|kind| is_of(kind, *known)));
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

/// Within one Gateway nobody wins.
fn find_conflicts(listeners: &mut [ListenerState<'_>]) {
    let mut by_port: BTreeMap<NonZeroU16, Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        if let Some(port) = listener.port {
            by_port.entry(port).or_default().push(index);
        }
    }
    for (port, indexes) in by_port {
        for index in &indexes {
            let others = indexes.iter().filter(|other| *other != index);
            let others = others.filter_map(|other| listeners.get(*other));
            let Some(own) = listeners.get(*index) else { continue };
            let mut reason = None;
            for other in others {
                if other.is_tls != own.is_tls {
                    reason = Some("ProtocolConflict");
                } else if other.host == own.host {
                    reason = reason.or(Some("HostnameConflict"));
                }
            }
            if let (Some(reason), Some(own)) = (reason, listeners.get_mut(*index)) {
                let message = format!("another listener of the Gateway has port {port} too");
                own.conflict = Some(Condition { name: "Conflicted", holds: true, reason, message });
            }
        }
    }
}

/// Gateways, the oldest first.
pub fn by_age<'w>(gateways: &Gateways<'w>) -> Vec<&'w Key> {
    let mut all: Vec<_> = gateways.keys().copied().collect();
    all.sort_by_key(|key| (gateways.get(key).map(|state| state.gateway.meta.created), *key));
    all
}

/// Between Gateways a port speaks what the oldest says; beyond [`MAX_PORTS`] those of the youngest are not opened.
fn find_port_conflicts(gateways: &mut Gateways<'_>) {
    let mut spoken: BTreeMap<NonZeroU16, (bool, &Key)> = BTreeMap::new();
    for key in by_age(gateways) {
        let Some(state) = gateways.get_mut(key) else { continue };
        for listener in &mut state.listeners {
            let Some(port) = listener.port.filter(|_| listener.is_accepted()) else { continue };
            if spoken.len() >= MAX_PORTS && !spoken.contains_key(&port) {
                let message = format!(
                    "the Gateways of this controller have {MAX_PORTS} ports already: use one of them, such as 443"
                );
                listener.refusal = Some(Condition::no("Accepted", "PortUnavailable", message));
                continue;
            }
            let (is_tls, first) = *spoken.entry(port).or_insert((listener.is_tls, key));
            if is_tls != listener.is_tls {
                let message = format!(
                    "Gateway {first}, which is older, has port {port} for the other protocol"
                );
                listener.refusal = Some(Condition::no("Accepted", "PortUnavailable", message));
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use oxigress_objects::gateway::GatewaySpec;

    #[test]
    fn beyond_the_most_ports_the_youngest_are_refused() {
        let gateway = |created: i64, ports: std::ops::Range<i64>| {
            let listener = |port: i64| Listener {
                name: format!("l{port}"),
                port,
                protocol: "HTTP".into(),
                ..Listener::default()
            };
            let spec = GatewaySpec {
                gateway_class_name: "c".into(),
                listeners: ports.map(listener).collect(),
                ..GatewaySpec::default()
            };
            let mut gateway = Gateway { spec, ..Gateway::default() };
            gateway.meta.created = created;
            gateway
        };
        let mut world = World::default();
        // By name the younger one comes first.
        let all = [("b", gateway(1, 1_000..1_200)), ("a", gateway(2, 1_150..1_400))];
        for (name, gateway) in all {
            world.gateway_api.gateways.insert(Key::new("n", name), gateway.into());
        }
        let mut built = Built::default();
        let classes = BTreeSet::from(["c".to_owned()]);
        let gateways = gateways(&world, &Options::default(), &classes, &mut built);
        let accepted = |name: &str| {
            let listeners = &gateways[&Key::new("n", name)].listeners;
            listeners.iter().filter(|listener| listener.is_accepted()).count()
        };
        assert_eq!((accepted("b"), accepted("a")), (200, 50 + 56));
        assert_eq!(built.ports.len(), MAX_PORTS);
    }
}
