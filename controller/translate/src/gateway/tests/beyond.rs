//! What becomes of objects of which a namespace has too many.

use super::*;
use crate::pace::price::{Price, Prices};
use oxigress_objects::gateway::{MAX_ROUTES, MAX_SETS};

fn id(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::new(kind, Key::new(namespace, name))
}

/// A Gateway that all namespaces may bring listeners to.
fn bench() -> Bench {
    let mut bench = Bench::new(options(""));
    let all = json!({"namespaces": {"from": "All"}});
    let listener = json!({"name": "l", "port": 80, "protocol": "HTTP", "hostname": "*.test", "allowedRoutes": all});
    let spec = json!({"gatewayClassName": "c", "listeners": [listener], "allowedListeners": all});
    let gateway = Object::Gateway(resource(0, spec));
    bench.see([class(), (id(Kind::Gateway, "infra", "g0"), Some(gateway))]);
    bench
}

impl Bench {
    pub(super) fn serves(&self, host: &str) -> bool {
        let at = ListenerHost::parse(&format!("80/{host}")).unwrap();
        self.translator.snapshot().listener_servers.contains_key(&at)
    }

    /// What is said about an object; none of what is served or not has a note here.
    fn note(&self, id: &ObjectRef) -> Option<&str> {
        let mut notes = self.translator.notes().filter(|(object, _)| *object == id);
        notes.next().map(|(_, note)| note.message.as_str())
    }
}

#[test]
fn routes_beyond_the_limit_of_their_namespace_are_not_served_and_no_build_looks_at_them() {
    let mut bench = bench();
    let filler = |n: usize| id(Kind::GRPCRoute, "a", &format!("f{n}"));
    let object = || Some(Object::Route(resource(0, json!({}))));
    bench.see((0..MAX_ROUTES - 1).map(|n| (filler(n), object())));
    let route = |namespace: &str, created: i64, path: &str| {
        let rules = json!([{"matches": [{"path": {"value": path}}]}]);
        let host = [format!("{namespace}{created}.test")];
        http_route((namespace, &format!("r{created}")), created, 1, &host, &rules)
    };
    bench.see((1..50).map(|created| route("a", created, "/")));
    assert!(bench.serves("a1.test") && !bench.serves("a2.test"));
    let (beyond, object) = route("a", 2, "/new");
    assert!(!bench.translator.statuses().contains_key(&beyond));
    let note = bench.note(&beyond).unwrap();
    assert!(note.contains("namespace a has more than 10000 routes"), "{note}");
    work::take(Step::Built);
    bench.see([(beyond.clone(), object)]);
    assert_eq!(work::take(Step::Built), 0);
    let prices = Prices { translator: &bench.translator, world: &bench.world };
    assert_eq!(prices.of_removal(&beyond), Price::default());
    let gateway = id(Kind::Gateway, "infra", "g0");
    assert_eq!(bench.translator.routes_at(&gateway).count(), 1);
    work::take(Step::Place);
    bench.see([route("b", 99, "/")]);
    assert_eq!(work::take(Step::Place), 1, "of b99");
    // There is room again.
    bench.see([(filler(7), None)]);
    assert!(bench.serves("a2.test") && !bench.serves("a3.test"));
    let at = ListenerHost::parse("80/a2.test").unwrap();
    let rules = &bench.translator.snapshot().listener_servers[&at].rules;
    assert!(rules[0].path.to_string().starts_with("/new"), "its newest form");
    assert_eq!(bench.note(&beyond), None);
    // An older one has the newest of all others left out.
    bench.see([(filler(7), Some(Object::Route(resource(0, json!({})))))]);
    assert!(!bench.serves("a2.test") && bench.note(&beyond).is_some());
    assert!(!bench.translator.statuses().contains_key(&beyond));
}

#[test]
fn sets_beyond_the_limit_of_their_namespace_bring_no_listener() {
    let mut bench = bench();
    let set = |name: &str, created: i64, gateway: &str| {
        let host = format!("{name}.example");
        let listener = json!({"name": "l", "port": 80, "protocol": "HTTP", "hostname": host});
        let parent = json!({"name": gateway, "namespace": "infra"});
        let spec = json!({"parentRef": parent, "listeners": [listener]});
        let set = Object::ListenerSet(resource(created, spec));
        (id(Kind::ListenerSet, "a", name), Some(set))
    };
    bench.see((0..MAX_SETS - 1).map(|n| set(&format!("f{n}"), 0, "none")));
    bench.see([set("within", 1, "g0")]);
    work::take(Step::Listener);
    bench.see((2..50).map(|n| set(&format!("s{n}"), n, "g0")));
    assert_eq!(work::take(Step::Listener), 0);
    assert!(bench.serves("within.example") && !bench.serves("s2.example"));
    let beyond = id(Kind::ListenerSet, "a", "s2");
    let note = bench.note(&beyond).unwrap();
    assert!(note.contains("namespace a has more than 1024 ListenerSets"), "{note}");
    assert!(!bench.translator.statuses().contains_key(&beyond));
    bench.see([(id(Kind::ListenerSet, "a", "f0"), None)]);
    assert!(bench.serves("s2.example") && !bench.serves("s3.example"));
    assert_eq!(bench.note(&beyond), None);
}

#[test]
fn a_route_is_told_that_its_host_is_a_listeners_to_which_it_is_not_attached() {
    let mut bench = Bench::new(options(""));
    let all = json!({"from": "All"});
    let open = || gateway(0, [json!({"port": 80})].into_iter(), &all);
    let named = |host: &str| gateway(1, [json!({"port": 80, "hostname": host})].into_iter(), &all);
    let hosts = ["a.test", "b.test"].map(str::to_owned);
    let told = |bench: &Bench| -> Vec<String> {
        let notes = bench.translator.notes().filter(|(object, _)| object.kind == Kind::HTTPRoute);
        notes.map(|(_, note)| note.message.clone()).collect()
    };
    bench.see([class(), open(), http_route(("n", "r"), 0, 1, &hosts, &json!([{}]))]);
    assert_eq!(told(&bench), [""; 0]);
    for host in ["b.test", "*.test"] {
        bench.see([named(host)]);
        let [why] = &told(&bench)[..] else { panic!("{host}: {:?}", told(&bench)) };
        let expected = "requests come to a listener of another Gateway or ListenerSet";
        assert!(why.contains(expected) && bench.route("n", "r").holds, "{why}");
    }
    // At both Gateways it is served by the second one.
    bench.see([http_route(("n", "r"), 1, 2, &hosts, &json!([{}]))]);
    assert_eq!(told(&bench), [""; 0]);
}
