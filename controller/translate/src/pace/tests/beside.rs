//! What objects cost on hosts where others have many rules.

use super::*;
use serde_json::{Value, json};

fn resource<S: serde::de::DeserializeOwned + Default>(spec: Value) -> Arc<Resource<S>> {
    Arc::new(Resource { spec: serde_json::from_value(spec).unwrap(), ..Resource::default() })
}

/// The Gateway `g` of namespace `a` for all namespaces, with listeners for these hosts.
fn listening(hosts: &[&str]) -> Seen {
    let listener = |(n, host): (usize, &&str)| {
        json!({"name": format!("l{n}"), "port": 80, "protocol": "HTTP", "hostname": host,
            "allowedRoutes": {"namespaces": {"from": "All"}}})
    };
    let listeners: Vec<_> = hosts.iter().enumerate().map(listener).collect();
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    (ObjectRef::new(Kind::Gateway, Key::new("a", "g")), Some(Object::Gateway(resource(spec))))
}

fn route(namespace: &str, host: &str, count: usize) -> Seen {
    let path = |n: usize| json!({"path": {"type": "Exact", "value": format!("/{namespace}/{n}")}});
    let matches: Vec<_> = (0..count).map(path).collect();
    let spec = json!({"parentRefs": [{"name": "g", "namespace": "a"}], "hostnames": [host],
        "rules": [{"matches": matches}]});
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, "r"));
    (id, Some(Object::Route(resource(spec))))
}

fn price(bench: &Bench, (id, object): Seen) -> u64 {
    bench.price(&id, &object.unwrap())
}

fn bench(hosts: &[&str]) -> Bench {
    let mut bench = Bench::new();
    let [class, _] = gateway("a");
    bench.apply([class, listening(hosts), route("a", "big.test", 5_000)]);
    bench
}

#[test]
fn a_small_route_on_a_large_host_costs_what_merging_the_host_costs() {
    let bench = bench(&["big.test", "small.test"]);
    let large = price(&bench, route("b", "big.test", 1));
    assert!((25_000_000..40_000_000).contains(&large), "{large}");
    let small = price(&bench, route("b", "small.test", 1));
    assert!(small < 200_000, "{small}");
    let ingress = |host: &str| {
        let (id, object) = plain("b", "i", "x", 1);
        let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
        let mut ingress = (*ingress).clone();
        ingress.rules[0].host = host.into();
        (id, one(ingress))
    };
    assert!(price(&bench, ingress("big.test")) > 25_000_000);
    assert!(price(&bench, ingress("small.test")) < 200_000);
}

#[test]
fn a_gateway_costs_the_rules_on_the_hosts_of_listeners_that_change() {
    let bench = bench(&["big.test", "small.test"]);
    let more = price(&bench, listening(&["big.test", "small.test", "more.test"]));
    assert!(more < 200_000, "{more}");
    for hosts in [&["small.test"][..], &["other.test", "small.test"], &["*.test", "small.test"]] {
        let all = price(&bench, listening(hosts));
        assert!(all > 25_000_000, "{hosts:?}: {all}");
    }
    // One that goes takes them with it.
    let [_, (id, _)] = gateway("a");
    let gone = bench.prices().of_removal(&id).total();
    assert!(gone > 25_000_000, "{gone}");
    // What is attached and was not read costs that.
    let mut bench = Bench::new();
    let [class, _] = gateway("a");
    bench.apply([class, route("a", "big.test", 5_000)]);
    let first = price(&bench, listening(&["big.test"]));
    assert!(first > 60_000_000, "{first}");
}

#[test]
fn a_secret_that_a_listener_may_not_show_costs_its_namespace_nothing() {
    let mut bench = Bench::new();
    let [class, (id, _)] = gateway("b");
    let tls = json!({"certificateRefs": [{"name": "users", "namespace": "a"}]});
    let listeners: Vec<_> = (0..64)
        .map(|n| {
            json!({"name": format!("l{n}"), "port": 443, "protocol": "HTTPS",
            "hostname": format!("h{n}.test"), "tls": tls})
        })
        .collect();
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    let gateway = (id, Some(Object::Gateway(resource(spec))));
    bench.apply([class, gateway]);
    assert_eq!(price(&bench, users(0, "b")), 0);
    let secret = ObjectRef::new(Kind::Secret, Key::new("a", "users"));
    let named = |bench: &Bench| {
        let options = Options::default();
        let gateway = ObjectRef::new(Kind::Gateway, Key::new("b", "g"));
        let objects = &bench.world.gateway_api;
        crate::gateway::references_of(&options, objects, &gateway).contains(&secret)
    };
    assert!(!named(&bench), "nobody fetches it");
    let spec = json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "b"}],
        "to": [{"group": "", "kind": "Secret"}]});
    let grant = ObjectRef::new(Kind::ReferenceGrant, Key::new("a", "g"));
    bench.apply([(grant, Some(Object::ReferenceGrant(resource(spec))))]);
    assert!(named(&bench));
    assert!(price(&bench, users(0, "b")) >= 64 * 20_000, "it is granted");
}

#[test]
fn an_expression_costs_what_is_compiled_of_it() {
    let bench = bench(&["big.test"]);
    let of = |text: &str| {
        let (id, object) = route("b", "small.test", 1);
        let Some(Object::Route(route)) = object else { panic!("a route") };
        let mut route = (*route).clone();
        let header = json!({"name": "x", "type": "RegularExpression", "value": text});
        route.spec.rules[0].matches[0].headers = serde_json::from_value(json!([header])).unwrap();
        price(&bench, (id, Some(Object::Route(Arc::new(route)))))
    };
    let (plain, wide, unbalanced) = (of("a"), of(r"(?:a)|(?:\pL)"), of(r"a)|(?:\pL"));
    assert!(wide > plain + 100_000, "{plain} {wide}");
    assert!(unbalanced < plain + 50_000, "{unbalanced} {plain}: it is refused by its text");
}

/// A host's owner pays for few of the paths that others add to it, and the others for the rest while they can.
#[test]
fn guests_of_a_host_leave_its_owner_his_changes() {
    let mut bench = Bench::new();
    let price = |bench: &Bench, name: &str, seen: Seen| {
        let (id, object) = seen;
        assert_eq!(id.key.name, *name);
        bench.prices().of_reading(&id, &object.unwrap())
    };
    bench.apply([plain("b", "owner", "x", 1), plain("c", "few", "x", 100)]);
    let before = price(&bench, "owner", plain("b", "owner", "x", 2));
    assert_eq!(before.of_guests, BTreeMap::new());
    bench.apply([plain("evil", "many", "x", 9_000)]);
    let after = price(&bench, "owner", plain("b", "owner", "x", 2));
    assert!(after.own - before.own <= 2_000 * 5_000, "{before:?}, {after:?}");
    let of_evil = after.of_guests[&Name::from("evil")];
    assert!((14_000_000..15_500_000).contains(&of_evil), "{after:?}: 3,000 of his 5,000");
    assert!(price(&bench, "many", plain("evil", "many", "x", 8_999)).own > 40_000_000, "his own");

    // Until half of it is spent, and then the owner pays for all.
    let edits = (0..1_000).take_while(|n| {
        let (id, object) = plain("b", "owner", ["x", "y"][n % 2], 2);
        bench.see(&id, object, 0)
    });
    let count = edits.count();
    assert!((90..140).contains(&count), "{count}: 3 seconds' worth, of two namespaces");
    let (id, object) = plain("evil", "small", "x", 1);
    assert!(bench.see(&id, object, 0), "it has kept something for its own");
}

#[test]
fn an_object_of_a_guest_pays_for_the_rules_beside_it() {
    let mut bench = Bench::new();
    let (guest, object) = plain("a", "guest", "x", 1);
    let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
    let named = annotated((*ingress).clone(), &[("x.io/custom-headers", "headers")]);
    bench.apply([(guest, one(named)), headers("a"), plain("0", "large", "x", 5_000)]);
    let (id, object) = headers("b");
    let price = bench.price(&id, &object.unwrap());
    assert!((20_000_000..30_000_000).contains(&price), "{price}: the host is merged again");
}

#[test]
fn a_new_ingress_pays_for_the_objects_that_it_names() {
    let mut bench = Bench::new();
    bench.apply([users(500_000, "a"), headers("a")]);
    let named = |name: &str, secret: &str| {
        let basic = [("x.io/auth-type", "basic"), ("x.io/auth-secret", secret)];
        (id("a", name), one(annotated(Ingress::default(), &basic)))
    };
    let edits = (0..5_000).take_while(|n| {
        let (id, object) = named(&format!("i{n}"), ["users", "a/users"][n % 2]);
        bench.see(&id, object, 0)
    });
    let count = edits.count();
    assert!((500..1_000).contains(&count), "{count}: each reads half a megabyte");
    let (id, object) = named("other", "nobody");
    assert!(bench.price(&id, &object.unwrap()) < 100_000);
}

/// A change of paths has only the hosts merged again whose paths are others.
#[test]
fn a_path_costs_the_rules_of_its_own_host_alone() {
    let of = |path: &str, annotations: &[(&str, &str)]| {
        let (id, object) = plain("a", "owner", "own", 1);
        let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
        let mut ingress = annotated((*ingress).clone(), annotations);
        let rule = ingress.rules.remove(0);
        ingress.rules = ["a.test", "b.test", "c.test"]
            .map(|host| Rule { host: host.into(), ..rule.clone() })
            .into();
        ingress.rules[0].paths[0].path = path.into();
        (id, one(ingress))
    };
    let mut bench = Bench::new();
    bench.apply([of("/x", &[])]);
    for host in ["a.test", "b.test", "c.test"] {
        let (id, object) = plain("b", host, "guest", 1_000);
        let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
        let mut ingress = (*ingress).clone();
        ingress.rules[0].host = host.into();
        bench.apply([(id, one(ingress))]);
    }
    let of_a_host = 1_000 * 5_000;
    let path = price(&bench, of("/y", &[]));
    assert!((of_a_host..of_a_host + 500_000).contains(&path), "{path}");
    let all = price(&bench, of("/x", &[("x.io/enable-cors", "true")]));
    assert!(all >= 3 * of_a_host, "{all}: what holds for all paths is merged everywhere");
    let with_patterns: &[_] = &[("x.io/use-regex", "true")];
    bench.apply([of("/x", with_patterns)]);
    let all = price(&bench, of("/y", with_patterns));
    assert!(all >= 3 * of_a_host, "{all}: another path may make patterns of all");
}
