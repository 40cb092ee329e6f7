//! What many routes cost, and what one namespace may ask of every rebuild.

mod beyond;
mod edits;
mod filters;
mod guests;
mod https;
mod known;
mod policies;
mod sessions;
mod wildcards;

pub use https::an_authority;

use super::work::{self, Step};
use crate::tests::options;
use crate::{Options, Translator};
use oxigress_core::model::{HostPattern, ListenerHost};
use oxigress_objects::document::{self, Found};
use oxigress_objects::gateway::{CONTROLLER, GROUP, Meta, Resource};
use oxigress_objects::gateway_status::{Condition, Content};
use oxigress_objects::secret::{Fields, Offer, Pair, Secret};
use oxigress_objects::{Changed, Key, Kind, Object, ObjectRef, Seen, World};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Bench {
    world: World,
    translator: Translator,
}

impl Bench {
    fn new(options: Options) -> Self {
        Bench { world: World::default(), translator: Translator::new(options) }
    }

    fn see(&mut self, seen: impl IntoIterator<Item = Seen>) {
        let mut changed = Changed::default();
        seen.into_iter().for_each(|seen| self.world.apply(seen, &mut changed));
        self.translator.update(&self.world, &changed);
    }

    /// What the status of a route says of its first parent.
    fn route(&self, namespace: &str, name: &str) -> &Condition {
        let object = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, name));
        let Content::Route { parents, .. } = &self.translator.statuses()[&object].content else {
            panic!("{object}")
        };
        &parents[0].conditions[0]
    }

    fn apply(&mut self, manifests: &str) -> Duration {
        let mut changed = Changed::default();
        for document in document::read(manifests, false) {
            for found in document.found.unwrap() {
                let Found::Object(id, object) = found else { panic!("{}", document.number) };
                self.world.apply((id, Some(object)), &mut changed);
            }
        }
        let start = Instant::now();
        self.translator.update(&self.world, &changed);
        start.elapsed()
    }
}

/// A route of its own namespace at one of fifty Gateways, with ten rules.
fn route(number: usize, path: &str) -> String {
    let mut text = format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: r, namespace: n{number} }}\n\
         spec:\n  parentRefs: [{{ name: g{}, namespace: infra }}]\n  hostnames: [h{number}.test]\n  rules:\n",
        number % 50
    );
    for rule in 0..10 {
        writeln!(
            text,
            "  - {{ matches: [{{ path: {{ type: PathPrefix, value: /{path}{rule} }} }}], backendRefs: [{{ name: s, port: 80 }}] }}"
        )
        .unwrap();
    }
    text
}

fn all(count: usize) -> String {
    let mut text = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                    spec: { controllerName: oxigress.io/gateway-controller }\n"
        .to_owned();
    for number in 0..50 {
        writeln!(
            text,
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{ name: g{number}, namespace: infra }}\n\
             spec:\n  gatewayClassName: oxigress\n  listeners:\n\
             \x20 - {{ name: http, port: 80, protocol: HTTP, allowedRoutes: {{ namespaces: {{ from: All }} }} }}"
        )
        .unwrap();
    }
    for number in 0..count {
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: s, namespace: n{number} }}\nspec: {{ ports: [{{ port: 80 }}] }}"
        )
        .unwrap();
        text += &route(number, "p");
    }
    text
}

/// Prints what one change takes beside others: `cargo test --release -- --ignored --nocapture many_routes`.
#[test]
#[ignore = "measures"]
fn many_routes() {
    for count in [100, 1_000, 5_000] {
        let mut bench = Bench::new(options(""));
        let first = bench.apply(&all(count));
        let mut edits: Vec<_> = (0..9).map(|n| bench.apply(&route(7, &format!("q{n}")))).collect();
        edits.sort();
        let slice = bench.apply(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: { name: s-1, namespace: n7, labels: { kubernetes.io/service-name: s } }\n\
             addressType: IPv4\nports: [{ port: 80, name: '' }]\nendpoints: [{ addresses: [10.0.0.1], conditions: { ready: true } }]",
        );
        println!("{count} routes: all {first:?}, an edit {:?}, endpoints {slice:?}", edits[4]);
    }
}

fn resource<S: serde::de::DeserializeOwned>(created: i64, spec: Value) -> Arc<Resource<S>> {
    let meta = Meta { created, generation: 1 };
    Arc::new(Resource { meta, spec: serde_json::from_value(spec).unwrap() })
}

/// A Secret `pair` with this chain.
fn pair(namespace: &str, chain: &str) -> Seen {
    let (chain, key) = (chain.to_owned(), "k".into());
    let pair = Pair { chain, key, names: Default::default(), leaf: Default::default() };
    let fields = Arc::new(Fields::new(Default::default()));
    let secret = Object::Secret(Secret { offer: Offer::Usable(Arc::new(pair)), fields });
    (ObjectRef::new(Kind::Secret, Key::new(namespace, "pair")), Some(secret))
}

fn class() -> Seen {
    let class = Object::GatewayClass(resource(0, json!({ "controllerName": CONTROLLER })));
    (ObjectRef::new(Kind::GatewayClass, Key::new("", "c")), Some(class))
}

/// A Gateway of the namespace `infra` with these listeners, each with what they have in common.
fn gateway(name: usize, listeners: impl Iterator<Item = Value>, common: &Value) -> Seen {
    let listeners = listeners.enumerate().map(|(number, mut listener)| {
        listener["name"] = json!(format!("l{number}"));
        listener["protocol"] = json!("HTTP");
        listener["allowedRoutes"] = json!({ "namespaces": common });
        listener
    });
    let spec = json!({"gatewayClassName": "c", "listeners": listeners.collect::<Vec<_>>()});
    let key = Key::new("infra", format!("g{name}"));
    let created = name.try_into().unwrap();
    (ObjectRef::new(Kind::Gateway, key), Some(Object::Gateway(resource(created, spec))))
}

/// A route at so many Gateways.
fn http_route(
    (namespace, name): (&str, &str),
    created: i64,
    gateways: usize,
    hosts: &[String],
    rules: &Value,
) -> Seen {
    let parent = |number| json!({"name": format!("g{number}"), "namespace": "infra"});
    let parents: Vec<_> = (0..gateways).map(parent).collect();
    let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, name));
    (id, Some(Object::Route(resource(created, spec))))
}

/// So many Gateways of 64 listeners for hosts of their own, on port 80.
fn hosts(gateways: usize, common: &Value) -> impl Iterator<Item = Seen> {
    (0..gateways).map(move |number| {
        let host = |n| json!({"port": 80, "hostname": format!("*.h{number}-{n}.test")});
        gateway(number, (0..64).map(host), common)
    })
}

#[test]
fn what_a_route_asks_for_is_counted_before_it_is_multiplied() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see(hosts(16, &all).chain([class()]));
    work::take(Step::Place);
    let names: Vec<_> = (0..16).map(|n| format!("x.h0-{n}.test")).collect();
    let many = |n: i64| http_route(("evil", &format!("r{n}")), n, 16, &names, &json!([{}]));
    let other = http_route(("other", "r"), 99, 1, &names[..1], &json!([{}]));
    bench.see((0..10).map(many).chain([other]));
    // Once for whose a host is, and once for who is served there, after what was tried with these routes alone.
    let places = work::take(Step::Place);
    assert!((150_000..=3 * (100_000 + 64)).contains(&places), "{places}");
    assert!(bench.route("evil", "r5").holds, "16 times 64 times 16, six times");
    assert!(bench.route("other", "r").holds);
    let refused = bench.route("evil", "r6");
    assert!(!refused.holds && refused.message.contains("name one listener in sectionName"));
    let host = HostPattern::parse("x.h0-0.test").unwrap();
    assert_eq!(bench.translator.owner_of(&host).unwrap().0.name.as_str(), "r0");
}

#[test]
fn parents_count_also_where_they_name_no_listener() {
    let mut bench = Bench::new(options(""));
    bench.see(hosts(16, &json!({"from": "All"})).chain([class()]));
    let parent = |n: usize| json!({"name": format!("g{}", n % 16), "namespace": "infra", "sectionName": format!("no{n}")});
    let spec = json!({"parentRefs": (0..32).map(parent).collect::<Vec<_>>(), "rules": [{}]});
    let route = |n: i64| {
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("evil", format!("r{n}")));
        (id, Some(Object::Route(resource(n, spec.clone()))))
    };
    bench.see((0..1_000).map(route));
    let told = bench.translator.statuses().values().map(|wanted| match &wanted.content {
        Content::Route { parents, .. } => parents.len(),
        _ => 0,
    });
    assert_eq!(told.sum::<usize>(), 781 * 32 + (1_000 - 781), "100,000 places are 781 routes");
    assert_eq!(bench.route("evil", "r781").reason, "NoMatchingParent");
}

#[test]
fn a_name_of_many_labels_counts_for_more_places_and_is_compared_no_deeper_than_listeners_go() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see(hosts(1, &all).chain([class()]));
    let deep = |n: usize| format!("{}h0-{n}.test", "a.".repeat(100));
    let names: Vec<_> = (0..16).map(deep).collect();
    let route = |n: i64| http_route(("evil", &format!("r{n}")), n, 1, &names, &json!([{}]));
    work::take(Step::Level);
    bench.see((0..10).map(route));
    assert!(bench.route("evil", "r6").holds && !bench.route("evil", "r7").holds, "13 places each");
    let levels = work::take(Step::Level);
    assert!((7 * 16..7 * 16 * 5).contains(&levels), "{levels}");
}

#[test]
fn a_selector_is_asked_once_for_all_routes_of_a_namespace() {
    let mut bench = Bench::new(options(""));
    let labels = json!({"kubernetes.io/metadata.name": "a"});
    let common = json!({"from": "Selector", "selector": {"matchLabels": labels}});
    bench.see(hosts(1, &common).chain([class()]));
    work::take(Step::Selector);
    let names = ["x.h0-0.test".to_owned()];
    let route = |n: i64| http_route(("a", &format!("r{n}")), n, 1, &names, &json!([{}]));
    bench.see((0..100).map(route));
    assert!(bench.route("a", "r0").holds && bench.route("a", "r99").holds);
    assert_eq!(work::take(Step::Selector), 64);
}

#[test]
fn nothing_is_made_of_a_route_where_its_namespace_has_no_room_for_it() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let ports = |first: usize, count: usize| {
        let port = move |port: usize| json!({"port": port, "hostname": "a.test"});
        (0..4).map(move |n| (n, (0..count).map(move |i| port(first + n * 100 + i))))
    };
    let gateways = |first, count| ports(first, count).map(|(n, all_of)| gateway(n, all_of, &all));
    bench.see(gateways(1_000, 64).chain([class()]).collect::<Vec<_>>());
    let redirect = json!({"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}});
    let path = |n: usize| json!({"path": {"type": "Exact", "value": format!("/{n}")}});
    let paths: Vec<_> = (0..1_000).map(path).collect();
    let rules = json!([{"matches": paths, "filters": [redirect]}]);
    work::take(Step::Served);
    bench.see([http_route(("a", "r"), 0, 4, &["a.test".to_owned()], &rules)]);
    assert_eq!(work::take(Step::Served), 20, "of 256 ports, 1,000 rules each");
    bench.see(gateways(1_000, 64).chain([class()]).collect::<Vec<_>>());
    assert_eq!(work::take(Step::Served), 0, "they are known");
    // What was made for a port is not kept when that is gone.
    bench.see(gateways(2_000, 1).collect::<Vec<_>>());
    bench.see(gateways(1_000, 1).collect::<Vec<_>>());
    assert_eq!(work::take(Step::Served), 4 + 4);
}

#[test]
fn beyond_the_most_listeners_of_a_namespace_those_of_the_newest_gateways_are_refused() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see(hosts(17, &all).chain([class()]));
    let accepted = |name: usize| {
        let object = ObjectRef::new(Kind::Gateway, Key::new("infra", format!("g{name}")));
        let Content::Gateway { listeners, .. } = &bench.translator.statuses()[&object].content
        else {
            panic!("{object}")
        };
        listeners.iter().filter(|listener| listener.conditions[0].holds).count()
    };
    assert_eq!((accepted(0), accepted(15), accepted(16)), (64, 64, 0));
    assert_eq!(bench.translator.snapshot().listener_servers.len(), 1_024);
}

#[test]
fn a_change_of_grants_reads_the_routes_again_that_asked_about_them() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see(hosts(1, &all).chain([class()]));
    let grant = |name: &str, service: Option<&str>| {
        let spec = json!({"from": [{"group": GROUP, "kind": "HTTPRoute", "namespace": "a"}],
            "to": [{"group": "", "kind": "Service", "name": service}]});
        let id = ObjectRef::new(Kind::ReferenceGrant, Key::new("b", name));
        (id, Some(Object::ReferenceGrant(resource(0, spec))))
    };
    let to =
        |service: &str| json!([{"backendRefs": [{"name": service, "namespace": "b", "port": 80}]}]);
    let route = |name: &str, service: &str| {
        http_route(("a", name), 0, 1, &["x.h0-0.test".to_owned()], &to(service))
    };
    bench.see((0..5).map(|n| route(&format!("r{n}"), if n < 2 { "s" } else { "t" })));
    work::take(Step::Read);
    for (name, service, read) in [("g", Some("s"), 2), ("h", Some("other"), 0), ("i", None, 5)] {
        bench.see([grant(name, service)]);
        assert_eq!(work::take(Step::Read), read, "{name} comes");
        bench.see([(ObjectRef::new(Kind::ReferenceGrant, Key::new("b", name)), None)]);
        assert_eq!(work::take(Step::Read), read, "{name} goes");
    }
    let elsewhere = (ObjectRef::new(Kind::ReferenceGrant, Key::new("c", "g")), grant("g", None).1);
    bench.see([elsewhere]);
    assert_eq!(work::take(Step::Read), 0, "another namespace's");
}

#[test]
fn hosts_of_ingresses_are_put_together_again_only_where_something_changes() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let host = |n: usize| json!({"port": 80, "hostname": format!("h{n}.test")});
    bench.see([class(), gateway(0, (0..50).map(host), &all)]);
    let ingress = |n: usize, path: &str| {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i{n}\n  namespace: n\n  annotations: {{ \
             kubernetes.io/ingress.class: nginx }}\nspec:\n  rules:\n  - host: h{n}.test\n    http: {{ paths: [{{ path: {path}, \
             pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }}\n"
        )
    };
    bench.apply(&(0..50).map(|n| ingress(n, "/")).collect::<String>());
    work::take(Step::Merged);
    for n in 0..3 {
        bench.see([http_route(("a", "r"), n, 1, &["h7.test".to_owned()], &json!([{}]))]);
        assert_eq!(work::take(Step::Merged), 1, "the host of the route");
    }
    bench.apply(&ingress(9, "/new"));
    assert_eq!(work::take(Step::Merged), 1, "the host of the Ingress");
    let at = ListenerHost::parse("80/h9.test").unwrap();
    let rules = &bench.translator.snapshot().listener_servers[&at].rules;
    assert!(rules.iter().any(|rule| rule.path.to_string().starts_with("/new")), "{rules:?}");
}

/// The GRPCRoute that an HTTPRoute without matches is but for its kind.
fn grpc_route(namespace: &str, created: i64, hosts: &[&str]) -> Seen {
    let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let (id, route) = http_route((namespace, "r"), created, 1, &hosts, &json!([{}]));
    (ObjectRef::new(Kind::GRPCRoute, id.key), route)
}

#[test]
fn of_routes_of_two_kinds_the_older_has_the_host_and_the_other_comes_back_with_its_end() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    bench.see([class(), gateway(0, [json!({"port": 80})].into_iter(), &all)]);
    let page =
        |created, host: &str| http_route(("a", "r"), created, 1, &[host.to_owned()], &json!([{}]));
    let call = ObjectRef::new(Kind::GRPCRoute, Key::new("b", "r"));
    let is_call_accepted = |bench: &Bench| {
        let Content::Route { parents, .. } = &bench.translator.statuses()[&call].content else {
            panic!()
        };
        parents[0].conditions[0].holds
    };
    let accepted = |bench: &Bench| (bench.route("a", "r").holds, is_call_accepted(bench));
    bench.see([grpc_route("b", 5, &["a.test"]), page(6, "a.test")]);
    assert_eq!(accepted(&bench), (false, true));
    assert_eq!(bench.route("a", "r").reason, "HostnameConflict");
    bench.see([page(4, "a.test")]);
    assert_eq!(accepted(&bench), (true, false), "it is the older one now");
    // Of one age the first by namespace and name has the host, whatever its kind is.
    bench.see([page(5, "a.test")]);
    assert_eq!(accepted(&bench), (true, false));
    bench.see([page(5, "b.test")]);
    assert_eq!(accepted(&bench), (true, true), "they have hosts of their own");
    // A name that covers the other one keeps it from nothing.
    for (host, hosts) in [("a.test", &["*.test"][..]), ("*.test", &["a.test"]), ("a.test", &[])] {
        bench.see([page(6, host), grpc_route("b", 5, hosts)]);
        assert_eq!(accepted(&bench), (true, true), "{host} {hosts:?}");
    }
    bench.see([page(6, "a.test"), grpc_route("b", 5, &["a.test"])]);
    assert_eq!(accepted(&bench), (false, true));
    bench.see([(call, None)]);
    assert!(bench.route("a", "r").holds, "nobody else has the host");
}
