//! ListenerSets: listeners that others than the owner of a Gateway bring to it.
//!
//! Order:   those of a Gateway come first, then those of its ListenerSets by age and name. Of two that cannot both be had the one that
//!          comes first stands, also between Gateways.
//! Tenancy: a set that its Gateway does not allow adds nothing. What it brings is its own namespace's: Secrets, routes, grants, limits.
//!          One of another namespace than its Gateway's takes no host from routes of others that name it, unless an older route of its
//!          own namespace does, and makes nobody the owner of a host.
//! Source:  ListenerSet of Gateway API v1.7.

use super::Built;
use super::address::{Place, Refusal};
use super::attach::{self, Attachment, admits};
use super::listener::{self, Counts, listener_status};
use super::ports::Older;
use super::room::Room;
use super::state::{GatewayState, Gateways, Home, ListenerState, SetState};
use super::status::{self, accepted, programmed};
use super::target::is_watched;
use crate::Options;
use crate::age::Age;
use crate::host::owner::HostOwnership;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{GatewayObjects, ListenerSet};
use oxigress_objects::gateway_status::{Condition, Content};
use oxigress_objects::{Key, Kind, World};
use std::collections::{BTreeMap, BTreeSet};

/// All of them, the oldest first.
pub fn by_age(objects: &GatewayObjects) -> Vec<(Home<'_>, &ListenerSet)> {
    let all = objects.sets.iter().map(|(key, set)| (Home::of_set(key, set), &**set));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(home, _)| *home);
    all
}

/// Listeners of sets, as they were read, with the Gateway of each set.
type Read<'w> = Vec<(Key, ListenerState<'w>)>;

/// A listener of a set: the set, and the name of the listener.
type Named<'w> = (&'w Key, &'w str);

/// Adds the ListenerSets to the Gateways that they name.
pub fn add<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    (counts, older): (&mut Counts<'w>, Older<'w>),
    built: &mut Built,
) {
    let mut read = Read::new();
    let mut selected: BTreeMap<Key, BTreeMap<_, _>> = BTreeMap::new();
    for (home, set) in by_age(&world.gateway_api) {
        let Some(gateway) = set.spec.gateway(&home.key.namespace) else { continue };
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        if !is_watched(world, options, &home.key.namespace) {
            continue;
        }
        let namespaces = &state.gateway.spec.allowed_listeners.namespaces;
        let from = namespaces.from.as_deref().unwrap_or("None");
        let asked = selected.entry(gateway.clone()).or_default();
        let by = (from, namespaces, &gateway.namespace);
        let is_allowed = admits(world, by, &home.key.namespace, asked);
        state.sets.push(SetState { key: home.key, set, is_allowed });
        for spec in &set.spec.listeners {
            let mut listener = listener::read(world, options, home, spec, counts, built);
            if matches!(state.place, Place::Nowhere(_)) {
                listener.port = None;
            }
            if is_allowed {
                read.push((gateway.clone(), listener));
            }
        }
    }
    if read.is_empty() {
        return;
    }
    let taken = match options.host_ownership {
        HostOwnership::Shared => BTreeMap::new(),
        HostOwnership::Settings | HostOwnership::Strict => {
            taken_hosts(world, options, gateways, &read)
        }
    };
    put(options, gateways, older, read, &taken);
}

/// Puts listeners to their Gateways, each unless one that comes first is in its way.
fn put<'w>(
    options: &Options,
    gateways: &mut Gateways<'w>,
    mut older: Older<'w>,
    read: Read<'w>,
    taken: &BTreeMap<Named<'w>, Condition>,
) {
    for (gateway, mut listener) in read {
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        listener.conflict = taken.get(&name_of(&listener)).cloned();
        if listener.conflict.is_none() {
            listener.conflict = conflict(options, state, &listener);
        }
        older.find_conflict(options, &state.addresses(), &mut listener);
        state.listeners.push(listener);
    }
}

fn name_of<'w>(listener: &ListenerState<'w>) -> Named<'w> {
    (listener.home.key, &listener.spec.name)
}

/// What else of its Gateway is in the way of a listener.
fn conflict(
    options: &Options,
    state: &GatewayState<'_>,
    listener: &ListenerState<'_>,
) -> Option<Condition> {
    let protocol = listener.protocol?;
    let number = listener.number(options)?;
    let others = state.accepted().filter(|other| other.number(options) == Some(number));
    let transport = |of: &ListenerState<'_>| {
        Some(of.protocol?.transport(options, of.port.or(listener.port).unwrap_or(number.1)))
    };
    let others: Vec<_> = others.collect();
    let own = transport(listener);
    let reason = match () {
        () if others.iter().any(|other| transport(other) != own) => "ProtocolConflict",
        () if others.iter().any(|other| other.host == listener.host) => "HostnameConflict",
        () => return None,
    };
    let what = match (reason, protocol.has_hosts()) {
        ("ProtocolConflict", _) => "for another protocol".to_owned(),
        (_, true) => format!("and host {}", listener.host),
        (_, false) => "too".to_owned(),
    };
    let message = format!(
        "a listener of the Gateway or of an older ListenerSet has port {} {what}: use another one",
        listener.spec.port
    );
    Some(Condition { name: "Conflicted", holds: true, reason, message })
}

/// Listeners of sets of other namespaces than their Gateways', by their hosts. One for all hosts is the least specific, which takes
/// none from others.
#[derive(Default)]
struct Guests<'w> {
    all: Vec<(Named<'w>, Home<'w>)>,
    exact: BTreeMap<HostPattern, Vec<usize>>,
    /// The wildcards, by what follows the star.
    below: BTreeMap<Box<str>, Vec<usize>>,
}

impl<'w> Guests<'w> {
    fn of(read: &Read<'w>) -> Self {
        let mut guests = Guests::default();
        let is_guest = |(gateway, listener): &&(Key, ListenerState<'w>)| {
            listener.home.key.namespace != gateway.namespace
        };
        for (_, listener) in read.iter().filter(is_guest) {
            let (host, number) = (&listener.host, guests.all.len());
            if *host == HostPattern::default_host() {
                continue;
            }
            guests.all.push((name_of(listener), listener.home));
            match host.as_str().strip_prefix('*') {
                Some(below) => guests.below.entry(below.into()).or_default().push(number),
                None => guests.exact.entry(host.clone()).or_default().push(number),
            }
        }
        guests
    }

    /// Those to which requests for a host would come.
    fn over(&self, host: &HostPattern) -> impl Iterator<Item = usize> {
        let name = host.as_str().trim_start_matches('*');
        let parents = name.match_indices('.').filter_map(move |(dot, _)| name.get(dot..));
        let below = parents.filter_map(|parent| self.below.get(parent));
        self.exact.get(host).into_iter().chain(below).flatten().copied()
    }
}

/// The oldest routes that name a host which a listener would have.
#[derive(Default)]
struct Claims {
    /// Of the listener's own namespace, by that listener.
    own: Option<Age>,
    /// Of others, by other listeners.
    foreign: Option<Age>,
}

/// The listeners of guests that would take a host from routes of others, with what there is to say. A route is attached as if no
/// listener of a set was in the way of another one: who has a host is decided by the routes that name it, and not by the age of
/// sets, which may name a host any time.
fn taken_hosts<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    read: &Read<'w>,
) -> BTreeMap<Named<'w>, Condition> {
    let guests = Guests::of(read);
    let mut claims: BTreeMap<(usize, HostPattern), Claims> = BTreeMap::new();
    if guests.all.is_empty() {
        return BTreeMap::new();
    }
    for (gateway, listener) in read {
        if let Some(state) = gateways.get_mut(gateway) {
            state.listeners.push(listener.clone());
        }
    }
    let room = &mut Room::default();
    for (id, route) in &world.gateway_api.routes {
        let hosts = route.spec.hostnames.iter().filter_map(|name| HostPattern::parse(name).ok());
        if !hosts.into_iter().any(|host| guests.over(&host).next().is_some()) {
            continue;
        }
        let attached = attach::attach(world, options, id, route, gateways, room);
        let (hosts, by) = named(&attached, gateways);
        let age = Age { created: route.meta.created, key: id.key.clone() };
        for (host, number) in
            hosts.iter().flat_map(|host| guests.over(host).map(move |n| (host, n)))
        {
            let Some((name, home)) = guests.all.get(number) else { continue };
            let claims = claims.entry((number, host.clone())).or_default();
            match (id.key.namespace == home.key.namespace, by.contains(name)) {
                (true, true) => {
                    claims.own = claims.own.take().into_iter().chain([age.clone()]).min();
                }
                (false, false) => {
                    claims.foreign = claims.foreign.take().into_iter().chain([age.clone()]).min();
                }
                _ => {}
            }
        }
    }
    for state in gateways.values_mut() {
        state.listeners.retain(|listener| listener.home.kind == Kind::Gateway);
        state.listeners.iter_mut().for_each(|listener| listener.attached.clear());
    }
    let lost = claims.into_iter().filter_map(|((number, host), Claims { own, foreign })| {
        let age = foreign?;
        let (name, _) = guests.all.get(number)?;
        if own.is_some_and(|own| own < age) {
            return None;
        }
        let message = format!(
            "a route of another namespace names host {host}, which the listener would take from it: write another hostname, or \
             name the host in an older route of the set's namespace"
        );
        Some((*name, Condition { name: "Conflicted", holds: true, reason: "HostnameConflict", message }))
    });
    lost.collect()
}

/// The hosts that a route names where it is attached, and the listeners to which it is.
fn named<'w>(
    attached: &[Attachment<'_>],
    gateways: &Gateways<'w>,
) -> (BTreeSet<HostPattern>, BTreeSet<Named<'w>>) {
    let (mut hosts, mut by) = (BTreeSet::new(), BTreeSet::new());
    for attachment in attached {
        let Some(state) = gateways.get(&attachment.gateway) else { continue };
        for (place, names) in &attachment.listeners {
            let named = names.iter().filter(|(host, own)| host == own);
            hosts.extend(named.map(|(host, _)| host.clone()));
            by.extend(state.listeners.get(*place).map(name_of));
        }
    }
    (hosts, by)
}

/// Says what became of the ListenerSets of a Gateway; answers how many are attached.
pub fn finish(state: &GatewayState<'_>, built: &mut Built) -> usize {
    let mut count = 0;
    for SetState { key, set, is_allowed } in &state.sets {
        let all: Vec<_> = state.listeners_of(Kind::ListenerSet, key).collect();
        let standing = all.iter().filter(|listener| listener.is_serving()).count();
        let no = |reason, message: &str| {
            let of = |name| Condition::no(name, reason, message);
            vec![of("Accepted"), of("Programmed")]
        };
        let conditions = match &state.place {
            _ if !is_allowed => no("NotAllowed", "allowedListeners of the Gateway leave it out"),
            Place::Nowhere(Refusal::Unsupported(_)) => {
                no("ParentNotAccepted", "the Gateway is not accepted")
            }
            Place::Nowhere(Refusal::Unusable(_)) => vec![
                accepted(),
                Condition::no("Programmed", "ParentNotProgrammed", "the Gateway is served nowhere"),
            ],
            Place::Shared | Place::Own(_) if standing == 0 => {
                no("ListenersNotValid", "no listener is valid")
            }
            Place::Shared | Place::Own(_) if standing < all.len() => {
                let message = "not every listener is valid".into();
                vec![Condition { message, reason: "ListenersNotValid", ..accepted() }, programmed()]
            }
            Place::Shared | Place::Own(_) => vec![accepted(), programmed()],
        };
        count += usize::from(conditions.iter().any(|one| one.name == "Accepted" && one.holds));
        let listeners = all.into_iter().map(listener_status).collect();
        let content = Content::ListenerSet { conditions, listeners };
        status::put(Kind::ListenerSet, key, set.meta.generation, content, built);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::gateways::gateways;
    use oxigress_objects::ObjectRef;
    use oxigress_objects::gateway::Resource;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn resource<S: serde::de::DeserializeOwned>(created: i64, spec: Value) -> Arc<Resource<S>> {
        let mut resource = Resource { spec: serde_json::from_value(spec).unwrap(), ..no_meta() };
        resource.meta.created = created;
        Arc::new(resource)
    }

    fn no_meta<S: serde::de::DeserializeOwned>() -> Resource<S> {
        Resource { meta: Default::default(), spec: serde_json::from_value(json!({})).unwrap() }
    }

    /// A Gateway of namespace `infra` that allows all, with sets, each of a namespace and an age with listeners.
    fn world(sets: &[(&str, i64, Vec<Value>)]) -> World {
        let mut world = World::default();
        let gateway = json!({"gatewayClassName": "c", "allowedListeners": {"namespaces": {"from": "All"}},
            "listeners": [{"name": "own", "port": 80, "protocol": "HTTP",
                "allowedRoutes": {"namespaces": {"from": "All"}}}]});
        world.gateway_api.gateways.insert(Key::new("infra", "web"), resource(0, gateway));
        for (namespace, created, listeners) in sets {
            let parent = json!({"name": "web", "namespace": "infra"});
            let set = resource(*created, json!({"parentRef": parent, "listeners": listeners}));
            world.gateway_api.sets.insert(Key::new(*namespace, "s"), set);
        }
        world
    }

    fn listener(name: &str, port: i64, hostname: &str) -> Value {
        json!({"name": name, "port": port, "protocol": "HTTP", "hostname": hostname})
    }

    /// The names of the listeners of sets that stand, each with its namespace.
    fn standing(world: &World, options: &Options) -> Vec<String> {
        let classes = BTreeSet::from(["c".to_owned()]);
        let gateways = gateways(world, options, &classes, &mut Built::default());
        let accepted = gateways.values().flat_map(GatewayState::accepted);
        let of_sets = accepted.filter(|listener| listener.home.kind == Kind::ListenerSet);
        of_sets
            .map(|listener| format!("{}/{}", listener.home.key.namespace, listener.spec.name))
            .collect()
    }

    #[test]
    fn the_sets_of_a_namespace_open_few_ports_of_their_own() {
        let many = |first: i64, host| {
            (first..first + 40).map(|port| listener("l", port, host)).collect::<Vec<_>>()
        };
        let own = vec![listener("http", 80, "c.test")];
        let (a, b) = (many(9_000, "a.test"), many(9_010, "b.test"));
        let world = world(&[("a", 1, a), ("b", 2, b), ("c", 3, own)]);
        let standing = standing(&world, &Options::default());
        let count = |of: &str| standing.iter().filter(|name| name.starts_with(of)).count();
        // Of the ports of `a` the second one has six that it need not open, and then sixteen more.
        assert_eq!((count("a/"), count("b/"), count("c/")), (16, 6 + 16, 1), "{standing:?}");
    }

    #[test]
    fn a_guest_takes_no_host_from_routes_of_others() {
        let route = |world: &mut World, namespace: &str, created, host: &str, parents: &Value| {
            let spec = json!({"parentRefs": parents, "hostnames": [host]});
            let id = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, "r"));
            world.gateway_api.routes.insert(id, resource(created, spec));
        };
        let by_gateway = json!({"name": "web", "namespace": "infra"});
        let by_set = json!({"kind": "ListenerSet", "name": "s", "namespace": "guest"});
        let (gateway, both) = (json!([by_gateway]), json!([by_gateway, by_set]));
        for (host, of_route, namespace, parents, own, expected) in [
            ("a.test", "a.test", "shop", &gateway, None, false),
            ("*.test", "a.test", "shop", &gateway, None, false),
            ("*.test", "*.a.test", "shop", &gateway, None, false),
            ("*.a.test", "*.test", "shop", &gateway, None, true),
            ("a.test", "*.test", "shop", &gateway, None, true),
            ("b.test", "a.test", "shop", &gateway, None, true),
            ("a.test", "a.test", "guest", &gateway, None, true),
            ("a.test", "a.test", "shop", &both, None, true),
            ("a.test", "a.test", "shop", &gateway, Some((4, "a.test")), true),
            ("a.test", "a.test", "shop", &gateway, Some((6, "a.test")), false),
            ("*.test", "a.test", "shop", &gateway, Some((4, "b.test")), false),
        ] {
            let mut spec = listener("l", 80, host);
            spec["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
            // The age of the set is of no account.
            let mut world = world(&[("guest", 1, vec![spec])]);
            route(&mut world, namespace, 5, of_route, parents);
            if let Some((created, host)) = own {
                route(&mut world, "guest", created, host, &json!([by_set]));
            }
            let standing = |options: &Options| !standing(&world, options).is_empty();
            let told = format!("{host} beside {of_route} of {namespace}, {own:?}");
            assert_eq!(standing(&Options::default()), expected, "{told}");
            let shared = Options { host_ownership: HostOwnership::Shared, ..Options::default() };
            assert!(standing(&shared), "{told}, shared");
        }
    }

    #[test]
    fn an_older_set_takes_no_host_from_a_set_whose_routes_name_it() {
        let of = |host| vec![listener("l", 80, host)];
        let mut world = world(&[("evil", 1, of("a.test")), ("team", 2, of("a.test"))]);
        assert_eq!(standing(&world, &Options::default()), ["evil/l"]);
        let spec =
            json!({"parentRefs": [{"kind": "ListenerSet", "name": "s"}], "hostnames": ["a.test"]});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("team", "r"));
        world.gateway_api.routes.insert(id, resource(3, spec));
        assert_eq!(standing(&world, &Options::default()), ["team/l"]);
    }
}
