//! ListenerSets: listeners that others than the owner of a Gateway bring to it.
//!
//! Order:   those of a Gateway come first, then those of its ListenerSets by age and name. Of two that cannot both be had the one that
//!          comes first stands, also between Gateways.
//! Tenancy: a set that its Gateway does not allow adds nothing. What it brings is its own namespace's: Secrets, routes, grants, limits.
//!          One of another namespace than its Gateway's takes no host from routes of others that name it, unless an older route of its
//!          own namespace does, and makes nobody the owner of a host: see [`guests`].
//! Source:  ListenerSet of Gateway API v1.7.

mod guests;

pub use guests::have as guests_have;

use super::listener::{self, Counts, listener_status};
use crate::Options;
use crate::gateway::Built;
use crate::gateway::listeners::address::{Place, Refusal};
use crate::gateway::listeners::left::Left;
use crate::gateway::listeners::ports::Older;
use crate::gateway::listeners::protocol::Protocol;
use crate::gateway::listeners::state::{GatewayState, Gateways, Home, ListenerState, SetState};
use crate::gateway::routes::attach::admits;
use crate::gateway::routes::target::is_watched;
use crate::gateway::status::{self, accepted, programmed};
use crate::gateway::work::{self, Step};
use crate::host::owner::HostOwnership;
use oxigress_core::model::HostPattern;
use oxigress_objects::gateway::{GatewayObjects, ListenerSet};
use oxigress_objects::gateway_status::{Condition, Content};
use oxigress_objects::{Key, Kind, World};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

/// All of them, the oldest first.
pub fn by_age(objects: &GatewayObjects) -> Vec<(Home<'_>, &ListenerSet)> {
    let all = objects.sets.iter().map(|(key, set)| (Home::of_set(key, set), &**set));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(home, _)| *home);
    all
}

/// Listeners of sets, as they were read, with the Gateway of each set.
type Read<'w> = Vec<(Key, ListenerState<'w>)>;

/// Adds the ListenerSets to the Gateways that they name. What they leave to others is told by all routes, unless it is `known`.
pub fn add<'w>(
    world: &'w World,
    options: &Options,
    gateways: &mut Gateways<'w>,
    (counts, older, known): (&mut Counts<'w>, Older<'w>, Option<&Arc<Left>>),
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
        // Whoever brings sets without end, or to a Gateway that allows none, has nothing of them read.
        let is_over = counts.is_full(home);
        state.sets.push(SetState { home, set, is_allowed, is_over });
        if is_over || !is_allowed {
            counts.pass_over(home, set.spec.listeners.len());
            continue;
        }
        for spec in &set.spec.listeners {
            work::count(Step::Listener);
            let mut listener = listener::read(world, options, home, spec, counts, built);
            if matches!(state.place, Place::Nowhere(_)) {
                listener.port = None;
            }
            read.push((gateway.clone(), listener));
        }
    }
    if read.is_empty() {
        return;
    }
    let left = match (options.host_ownership, known) {
        (HostOwnership::Shared, _) => Arc::default(),
        (HostOwnership::Settings | HostOwnership::Strict, Some(known)) => known.clone(),
        (HostOwnership::Settings | HostOwnership::Strict, None) => {
            Arc::new(guests::left(world, options, gateways, &read))
        }
    };
    built.notes.extend(guests::notes(&left, &read));
    built.left = left.clone();
    put(options, gateways, older, read, &left);
}

/// Puts listeners to their Gateways, each unless one that comes first is in its way.
fn put<'w>(
    options: &Options,
    gateways: &mut Gateways<'w>,
    mut older: Older<'w>,
    read: Read<'w>,
    left: &Arc<Left>,
) {
    let mut standing: BTreeMap<Key, Standing> = BTreeMap::new();
    for (gateway, mut listener) in read {
        let Some(state) = gateways.get_mut(&gateway) else { continue };
        guests::apply(left, &gateway, &mut listener);
        let standing = standing.entry(gateway).or_insert_with(|| {
            let mut standing = Standing::default();
            state.accepted().for_each(|other| standing.add(options, other));
            standing
        });
        if listener.conflict.is_none() {
            listener.conflict = standing.conflict(options, &listener);
        }
        older.find_conflict(options, &state.addresses(), &mut listener);
        if listener.is_accepted() {
            standing.add(options, &listener);
        }
        state.listeners.push(listener);
    }
}

/// The accepted listeners of a Gateway, by the number of their ports.
#[derive(Default)]
struct Standing(BTreeMap<(bool, NonZeroU16), Taken>);

/// What the listeners of a port have.
#[derive(Default)]
struct Taken {
    hosts: BTreeSet<HostPattern>,
    /// What they speak, on which port of nginx: few, however many listeners there are.
    spoken: Vec<(Protocol, Option<NonZeroU16>)>,
}

impl Standing {
    fn add(&mut self, options: &Options, listener: &ListenerState<'_>) {
        let (Some(number), Some(protocol)) = (listener.number(options), listener.protocol) else {
            return;
        };
        let taken = self.0.entry(number).or_default();
        taken.hosts.insert(listener.host.clone());
        let spoken = (protocol, listener.port);
        if !taken.spoken.contains(&spoken) {
            taken.spoken.push(spoken);
        }
    }

    /// What else of its Gateway is in the way of a listener.
    fn conflict(&self, options: &Options, listener: &ListenerState<'_>) -> Option<Condition> {
        let protocol = listener.protocol?;
        let number = listener.number(options)?;
        let taken = self.0.get(&number)?;
        let transport = |of: Protocol, port: Option<NonZeroU16>| {
            work::count(Step::Conflict);
            of.transport(options, port.or(listener.port).unwrap_or(number.1))
        };
        let own = transport(protocol, listener.port);
        let reason = match () {
            () if taken.spoken.iter().any(|(of, port)| transport(*of, *port) != own) => {
                "ProtocolConflict"
            }
            () if taken.hosts.contains(&listener.host) => "HostnameConflict",
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
        Some(Condition { message, ..Condition::yes("Conflicted", reason) })
    }
}

/// Says what became of the ListenerSets of a Gateway; answers how many are attached.
pub fn finish(state: &GatewayState<'_>, built: &mut Built) -> usize {
    let mut count = 0;
    for SetState { home, set, is_allowed, is_over } in &state.sets {
        let key = home.key;
        let all: Vec<_> = match *is_allowed && !*is_over {
            // All are in the order of the objects in which they stand.
            true => {
                let first = state.listeners.partition_point(|listener| listener.home < *home);
                let all = state.listeners.iter().skip(first);
                all.take_while(|listener| listener.home == *home).collect()
            }
            false => Vec::new(),
        };
        let standing = all.iter().filter(|listener| listener.is_serving()).count();
        let pending = all.iter().filter(|listener| listener.is_serving() && listener.is_pending);
        let is_programmed =
            if pending.count() < standing { programmed() } else { status::pending() };
        let no = |reason, message: &str| {
            let of = |name| Condition::no(name, reason, message);
            vec![of("Accepted"), of("Programmed")]
        };
        let conditions = match &state.place {
            _ if !is_allowed => no("NotAllowed", "allowedListeners of the Gateway leave it out"),
            _ if *is_over => no("ListenersNotValid", &listener::too_many(*home)),
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
                vec![
                    Condition { message, reason: "ListenersNotValid", ..accepted() },
                    is_programmed,
                ]
            }
            Place::Shared | Place::Own(_) => vec![accepted(), is_programmed],
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
    use crate::gateway::routes::room;
    use oxigress_objects::ObjectRef;
    use oxigress_objects::gateway::Resource;
    use serde_json::{Value, json};

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
        let gateways = gateways(world, options, &classes, None, &mut Built::default());
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
        let (refused, stands, leaves) = (None, Some(false), Some(true));
        for (host, of_route, namespace, parents, own, expected) in [
            ("a.test", "a.test", "shop", &gateway, None, refused),
            ("*.test", "*.test", "shop", &gateway, None, refused),
            ("*.test", "a.test", "shop", &gateway, None, leaves),
            ("*.test", "*.a.test", "shop", &gateway, None, leaves),
            ("*.a.test", "*.test", "shop", &gateway, None, stands),
            ("a.test", "*.test", "shop", &gateway, None, stands),
            ("b.test", "a.test", "shop", &gateway, None, stands),
            ("a.test", "a.test", "guest", &gateway, None, stands),
            ("a.test", "a.test", "shop", &both, None, stands),
            ("a.test", "a.test", "shop", &gateway, Some((4, "a.test")), stands),
            ("*.test", "a.test", "shop", &gateway, Some((4, "a.test")), stands),
            ("a.test", "a.test", "shop", &gateway, Some((6, "a.test")), refused),
            ("*.test", "a.test", "shop", &gateway, Some((6, "a.test")), leaves),
            ("*.test", "a.test", "shop", &gateway, Some((4, "b.test")), leaves),
        ] {
            let mut spec = listener("l", 80, host);
            spec["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
            // The age of the set is of no account.
            let mut world = world(&[("guest", 1, vec![spec])]);
            route(&mut world, namespace, 5, of_route, parents);
            if let Some((created, host)) = own {
                route(&mut world, "guest", created, host, &json!([by_set]));
            }
            let leaves = |options: &Options| {
                let classes = BTreeSet::from(["c".to_owned()]);
                let gateways = gateways(&world, options, &classes, None, &mut Built::default());
                let accepted = gateways.values().flat_map(GatewayState::accepted);
                let mut of_sets = accepted.filter(|one| one.home.kind == Kind::ListenerSet);
                let of = HostPattern::parse(of_route).unwrap();
                of_sets.next().map(|one| one.leaves.as_ref().is_some_and(|all| all.has(&of)))
            };
            let told = format!("{host} beside {of_route} of {namespace}, {own:?}");
            assert_eq!(leaves(&Options::default()), expected, "{told}");
            let shared = Options { host_ownership: HostOwnership::Shared, ..Options::default() };
            assert_eq!(leaves(&shared), stands, "{told}, shared");
        }
    }

    /// One claim for each namespace that has listeners over a host, and not for each of its listeners.
    #[test]
    fn listeners_of_one_host_cost_what_one_costs() {
        let many = (0..1_000).map(|n| listener(&format!("l{n}"), 80, "*.test")).collect();
        let mut world = world(&[("guest", 1, many)]);
        let parents = json!([{"name": "web", "namespace": "infra"}]);
        for n in 0..1_000 {
            let spec = json!({"parentRefs": parents, "hostnames": [format!("h{n}.test")]});
            let id = ObjectRef::new(Kind::HTTPRoute, Key::new("shop", format!("r{n}")));
            world.gateway_api.routes.insert(id, resource(5, spec));
        }
        guests::CLAIMS.set(0);
        assert_eq!(standing(&world, &Options::default()), ["guest/l0"]);
        assert_eq!(guests::CLAIMS.get(), 1_000);
    }

    /// A name of many labels lies below many wildcards, and is not claimed at each.
    #[test]
    fn a_deep_name_costs_its_places_however_many_wildcards_are_above_it() {
        let deep = |n: usize| format!("h{n}.{}t", "a.".repeat(100));
        let wild = |n| listener("l", 80, &format!("*.{}t", "a.".repeat(n)));
        let mut world = world(&[("guest", 1, (0..100).map(wild).collect())]);
        let parents = json!([{"name": "web", "namespace": "infra"}]);
        for n in 0..100 {
            let spec = json!({"parentRefs": parents, "hostnames": [deep(n)]});
            let id = ObjectRef::new(Kind::HTTPRoute, Key::new("shop", format!("r{n}")));
            world.gateway_api.routes.insert(id, resource(5, spec));
        }
        guests::CLAIMS.set(0);
        assert_eq!(standing(&world, &Options::default()).len(), 100);
        let places: usize = (0..100).map(|n| room::places_of(&deep(n))).sum();
        assert!(guests::CLAIMS.get() <= 2 * places, "{} of {places}", guests::CLAIMS.get());
    }

    /// Each is compared with what its port has, and not with all others.
    #[test]
    fn listeners_are_not_compared_with_all_others_of_their_port() {
        let of = |n: usize| {
            (0..64).map(|l| listener("l", 80, &format!("h{l}.n{n}.test"))).collect::<Vec<_>>()
        };
        let names: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
        let sets: Vec<_> = names.iter().enumerate().map(|(n, name)| (&**name, 1, of(n))).collect();
        let world = world(&sets);
        work::take(Step::Conflict);
        assert_eq!(standing(&world, &Options::default()).len(), 8 * 64);
        let compared = work::take(Step::Conflict);
        assert!(compared <= 2 * 8 * 64, "{compared}");
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
