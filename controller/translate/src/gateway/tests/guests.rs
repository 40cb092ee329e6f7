//! What listeners that other namespaces bring to a Gateway leave to routes of others.

use super::*;
use crate::HeldPorts;
use oxigress_core::model::CertificateId;
use oxigress_objects::Name;

/// A listener on port 80 and one on 443 for a host.
fn listeners(host: &str, from: &str) -> Value {
    let listener = |name: &str, port: u16, protocol: &str| {
        let tls = json!({"certificateRefs": [{"name": "pair"}]});
        let routes = json!({"namespaces": {"from": from}});
        json!({"name": name, "port": port, "protocol": protocol, "hostname": host, "tls": tls, "allowedRoutes": routes})
    };
    json!([listener("http", 80, "HTTP"), listener("https", 443, "HTTPS")])
}

/// A route of a namespace at an object, with the host names that it has.
fn route(namespace: &str, created: i64, parent: Value, hosts: &[&str]) -> Seen {
    let spec = json!({"parentRefs": [parent], "hostnames": hosts, "rules": [{}]});
    let id = ObjectRef::new(Kind::HTTPRoute, Key::new(namespace, format!("r{created}")));
    (id, Some(Object::Route(resource(created, spec))))
}

/// A Gateway for all hosts, and a set of namespace `team` that has `*.team.test` at it.
fn bench() -> Bench {
    let mut bench = Bench::new(options(""));
    let all = json!({"namespaces": {"from": "All"}});
    let spec = json!({"gatewayClassName": "c", "listeners": listeners("", "All"), "allowedListeners": all});
    let gateway = Object::Gateway(resource(0, spec));
    let parent = json!({"name": "g0", "namespace": "infra"});
    let spec = json!({"parentRef": parent, "listeners": listeners("*.team.test", "Same")});
    let set = Object::ListenerSet(resource(1, spec));
    let id = |kind, namespace: &str, name| ObjectRef::new(kind, Key::new(namespace, name));
    bench.see([
        class(),
        pair("infra", "c"),
        pair("team", "c"),
        (id(Kind::Gateway, "infra", "g0"), Some(gateway)),
        (id(Kind::ListenerSet, "team", "set"), Some(set)),
    ]);
    bench
}

impl Bench {
    /// The namespaces that serve a host, and the certificate that it has of its own.
    fn served(&self, host: &str) -> (Vec<&str>, Option<&str>) {
        let snapshot = self.translator.snapshot();
        let host = HostPattern::parse(host).unwrap();
        let servers = snapshot.listener_servers.iter().filter(|(at, _)| at.host == host);
        let rules = servers.flat_map(|(_, server)| &server.rules);
        let mut all: Vec<_> = rules.map(|rule| rule.origin.namespace.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        (all, snapshot.names.get(&host).map(CertificateId::as_str))
    }
}

#[test]
fn nobody_closes_a_wildcard_of_a_guest_by_naming_a_host_below_it() {
    let mut bench = bench();
    let (set, gateway) = (
        json!({"kind": "ListenerSet", "name": "set"}),
        json!({"name": "g0", "namespace": "infra"}),
    );
    bench.see([
        route("team", 2, set.clone(), &["app.team.test"]),
        route("team", 3, set.clone(), &[]),
        route("team", 7, set, &["late.team.test"]),
    ]);
    let (team, shown) = (vec!["team"], Some("team/pair"));
    assert_eq!(bench.served("*.team.test"), (team.clone(), shown));
    assert_eq!(bench.served("app.team.test"), (team.clone(), None), "the wildcard's is shown");
    let named = ["app.team.test", "late.team.test", "z.team.test"];
    let evil = route("evil", 5, gateway, &named);
    let id = evil.0.clone();
    bench.see([evil]);
    assert_eq!(bench.served("*.team.test"), (team.clone(), shown));
    assert_eq!(bench.served("app.team.test"), (team.clone(), None), "an older route names it");
    // Neither may show the certificate of the guest.
    let by_default = Some(CertificateId::NONE);
    assert_eq!(bench.served("z.team.test"), (vec!["evil"], by_default), "nobody else names it");
    assert_eq!(
        bench.served("late.team.test"),
        (vec!["evil"], by_default),
        "a younger one names it"
    );
    bench.see([(id, None)]);
    assert_eq!(bench.served("late.team.test"), (team, None));
    assert_eq!(bench.served("z.team.test"), (vec![], None));
}

#[test]
fn a_host_that_a_guest_leaves_shows_the_certificate_of_the_gateway() {
    let mut bench = bench();
    let all = json!({"namespaces": {"from": "All"}});
    let spec = json!({"gatewayClassName": "c", "listeners": listeners("*.test", "All"), "allowedListeners": all});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec))))]);
    let gateway = json!({"name": "g0", "namespace": "infra"});
    bench.see([route("shop", 5, gateway, &["z.team.test", "y.test"])]);
    assert_eq!(bench.served("z.team.test"), (vec!["shop"], Some("infra/pair")));
    assert_eq!(bench.served("y.test"), (vec!["shop"], None));
    assert_eq!(bench.served("*.team.test"), (vec![], Some("team/pair")));
    assert_eq!(bench.served("*.test"), (vec![], Some("infra/pair")));
}

/// Sets of a namespace with 64 listeners each, at the Gateway of [`bench`].
fn many_sets(count: usize) -> impl Iterator<Item = Seen> {
    let listener = |n: usize| json!({"name": format!("l{n}"), "port": 80, "protocol": "HTTP", "hostname": format!("l{n}.evil.test")});
    let listeners: Vec<_> = (0..64).map(listener).collect();
    let parent = json!({"name": "g0", "namespace": "infra"});
    let spec = json!({"parentRef": parent, "listeners": listeners});
    (0..count).map(move |n| {
        let id = ObjectRef::new(Kind::ListenerSet, Key::new("evil", format!("s{n:03}")));
        (id, Some(Object::ListenerSet(resource(9, spec.clone()))))
    })
}

#[test]
fn of_sets_without_end_a_namespace_has_some_read_and_others_pay_for_no_more() {
    let mut bench = bench();
    let Some(Object::Route(review)) = route("shop", 1, json!({}), &[]).1 else { panic!() };
    let price = |bench: &Bench| {
        let prices =
            crate::pace::price::Prices { translator: &bench.translator, world: &bench.world };
        prices.of_review(&ObjectRef::new(Kind::HTTPRoute, Key::new("shop", "r1")), &review.spec)
    };
    let before = price(&bench);
    work::take(Step::Listener);
    bench.see(many_sets(200));
    // Once for who owns which host, and once for what is served.
    assert_eq!(work::take(Step::Listener), 2 * (2 + 1_024), "of 12,800");
    let told = |name: &str| {
        let id = ObjectRef::new(Kind::ListenerSet, Key::new("evil", name));
        let Content::ListenerSet { conditions, .. } = &bench.translator.statuses()[&id].content
        else {
            panic!("{id}")
        };
        (conditions[0].holds, conditions[0].message.clone())
    };
    assert!(told("s000").0, "{:?}", told("s000"));
    let (holds, message) = told("s199");
    assert!(!holds && message.contains("more than 1024 listeners"), "{message}");
    // 4 microseconds each.
    assert_eq!(price(&bench) - before, 1_024 * 4_000);
    // A route is compared with the listeners of its parents, and not with all that are there.
    work::take(Step::Parent);
    let parent = json!({"kind": "ListenerSet", "name": "s001"});
    bench.see([route("evil", 5, parent, &["l1.evil.test"])]);
    let compared = work::take(Step::Parent);
    assert!((64..500).contains(&compared), "{compared}");
}

#[test]
fn a_gateway_that_allows_no_sets_has_none_read() {
    let mut bench = bench();
    let spec = json!({"gatewayClassName": "c", "listeners": listeners("", "All")});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec))))]);
    work::take(Step::Listener);
    bench.see(many_sets(3));
    assert_eq!(work::take(Step::Listener), 0);
}

/// Whoever has many routes below a listener of a guest must not make the reviews of all others dear.
#[test]
fn the_review_of_a_route_attaches_no_other_routes() {
    let mut bench = bench();
    let gateway = json!({"name": "g0", "namespace": "infra"});
    let host = |n: i64| format!("h{n}.team.test");
    bench.see((0..100).map(|n| route("shop", 100 + n, gateway.clone(), &[&host(n)])));
    let review = |created: i64, host: &str| {
        let (id, object) = route("evil", created, gateway.clone(), &[host]);
        let Some(Object::Route(route)) = object else { panic!() };
        let reviews = &mut crate::Reviews::default();
        bench.translator.review_route(&bench.world, (&id, &route), reviews, Instant::now()).denial
    };
    for step in [Step::Place, Step::Parent] {
        work::take(step);
        assert_eq!(review(300, "a.test"), None);
        let count = work::take(step);
        assert!(count < 20, "{count}");
    }
    // What the guest's listener leaves is known all the same.
    let said = review(50, "h7.team.test").unwrap();
    assert!(said.contains("belongs to namespace shop"), "{said}");
    let set = json!({"kind": "ListenerSet", "name": "set"});
    let (id, object) = route("team", 50, set, &["h7.team.test"]);
    let Some(Object::Route(own)) = object else { panic!() };
    let reviews = &mut crate::Reviews::default();
    let said = bench.translator.review_route(&bench.world, (&id, &own), reviews, Instant::now());
    assert!(said.denial.is_some_and(|said| said.contains("belongs to namespace shop")));
}

/// A set of a namespace with a TCP listener on each of these ports, at the Gateway of [`bench`].
fn ports_of(namespace: &str, ports: &[u16]) -> Seen {
    let listener =
        |port: &u16| json!({"name": format!("l{port}"), "port": port, "protocol": "TCP"});
    let listeners: Vec<_> = ports.iter().map(listener).collect();
    let parent = json!({"name": "g0", "namespace": "infra"});
    let id = ObjectRef::new(Kind::ListenerSet, Key::new(namespace, "ports"));
    let spec = json!({"parentRef": parent, "listeners": listeners});
    (id, Some(Object::ListenerSet(resource(2, spec))))
}

impl Bench {
    /// The ports that nginx.conf is to have, if they are others than when this was last asked.
    fn new_ports(&mut self) -> Option<Vec<String>> {
        let input = self.translator.take_conf_input()?;
        Some(input.listeners.keys().map(ToString::to_string).collect())
    }

    /// What is said of a set and of its first listener about their being programmed.
    fn programmed(&self, namespace: &str) -> Vec<&str> {
        let id = ObjectRef::new(Kind::ListenerSet, Key::new(namespace, "ports"));
        let Content::ListenerSet { conditions, listeners } =
            &self.translator.statuses()[&id].content
        else {
            panic!("{id}")
        };
        let all = conditions.iter().chain(&listeners[0].conditions);
        all.filter(|one| one.name == "Programmed").map(|one| one.reason).collect()
    }
}

/// Who has a host is looked up once, whatever number of wildcards of guests is above it.
#[test]
fn what_guests_leave_costs_no_look_at_each_of_their_wildcards() {
    let mut bench = bench();
    let wildcard = |n: usize| {
        let host = format!("*.{}deep.test", "a.".repeat(n));
        json!({"name": format!("l{n}"), "port": 80, "protocol": "HTTP", "hostname": host})
    };
    let spec = json!({"parentRef": {"name": "g0", "namespace": "infra"},
        "listeners": (0..40).map(wildcard).collect::<Vec<_>>()});
    for guest in ["one", "two", "three"] {
        let id = ObjectRef::new(Kind::ListenerSet, Key::new(guest, "deep"));
        bench.see([(id, Some(Object::ListenerSet(resource(1, spec.clone()))))]);
    }
    let at = || json!({"name": "g0", "namespace": "infra"});
    for n in 0..20 {
        let host = format!("h{n}.{}deep.test", "a.".repeat(60));
        bench.see([route("shop", 5 + n, at(), &[&host])]);
    }
    work::take(Step::Named);
    bench.see([route("other", 3, at(), &["other.test"])]);
    let looks = work::take(Step::Named);
    // 20 hosts, 40 wildcards and 3 guests: 2,400 each time that all are asked for all.
    assert!((1..1_000).contains(&looks), "{looks}");
}

/// For whose sets ports were opened.
fn taken(bench: &mut Bench) -> Vec<String> {
    bench.translator.take_opened_for_sets().iter().map(ToString::to_string).collect()
}

#[test]
fn ports_of_a_namespace_wait_while_those_of_others_are_opened() {
    let mut bench = bench();
    let held = HeldPorts { all: false, of: [Name::from("evil")].into() };
    bench.see([ports_of("evil", &[9_001])]);
    assert_eq!(bench.new_ports().unwrap(), ["tcp/9001"]);
    bench.translator.hold_ports(held);
    bench.see([ports_of("evil", &[9_002])]);
    assert_eq!((bench.new_ports(), bench.translator.has_pending_ports()), (None, true));
    bench.see([ports_of("team", &[9_003])]);
    assert_eq!(bench.new_ports().unwrap(), ["tcp/9003"], "closed with what is opened");
    assert_eq!(bench.programmed("evil"), ["Pending", "Pending"]);
    // Whoever takes a port away reloads nothing.
    bench.see([ports_of("team", &[])]);
    assert_eq!(bench.new_ports(), None);
}

#[test]
fn ports_of_sets_wait_while_they_are_held_and_those_of_gateways_do_not() {
    let mut bench = bench();
    bench.translator.hold_ports(HeldPorts::default());
    bench.see([ports_of("team", &[9_001])]);
    assert_eq!(bench.new_ports().unwrap(), ["tcp/9001"]);
    assert_eq!(taken(&mut bench), ["team"]);
    bench.translator.hold_ports(HeldPorts { all: true, ..HeldPorts::default() });
    for n in 0..20_u16 {
        bench.see([ports_of("evil", &[9_002 + n % 2])]);
    }
    bench.see([ports_of("team", &[9_004])]);
    assert_eq!(bench.new_ports(), None);
    assert!(bench.translator.has_pending_ports());
    assert_eq!(bench.programmed("evil"), ["Pending", "Pending"]);
    // A Gateway's is opened at once, and all that waits with it; what nobody asks for is closed.
    let all = json!({"namespaces": {"from": "All"}});
    let tcp = json!([{"name": "tcp", "port": 9_100, "protocol": "TCP"}]);
    let spec = json!({"gatewayClassName": "c", "listeners": tcp, "allowedListeners": all});
    let id = ObjectRef::new(Kind::Gateway, Key::new("infra", "g0"));
    bench.see([(id, Some(Object::Gateway(resource(0, spec))))]);
    assert_eq!(bench.new_ports().unwrap(), ["tcp/9003", "tcp/9004", "tcp/9100"]);
    assert_eq!(taken(&mut bench), [""; 0]);
    assert_eq!(bench.programmed("evil"), ["Programmed", "Programmed"]);
    // Others are opened as soon as they are no longer held, whatever changes.
    bench.see([ports_of("evil", &[9_005])]);
    assert_eq!(bench.new_ports(), None);
    bench.translator.hold_ports(HeldPorts::default());
    bench.see([]);
    assert_eq!(bench.new_ports().unwrap(), ["tcp/9004", "tcp/9005", "tcp/9100"]);
    assert_eq!(taken(&mut bench), ["evil"]);
    assert!(!bench.translator.has_pending_ports());
}

#[test]
fn a_port_that_nginx_reloads_for_is_charged_to_the_namespace_of_the_set() {
    let mut bench = bench();
    let price = |bench: &Bench, ports: &[u16]| {
        let (id, object) = ports_of("evil", ports);
        let (translator, world) = (&bench.translator, &bench.world);
        let prices = crate::pace::price::Prices { translator, world };
        prices.of_reading(&id, &object.unwrap()).total()
    };
    assert!(price(&bench, &[9_001, 9_002]) > 500_000_000);
    assert!(price(&bench, &[80]) < 10_000_000, "a port that is there");
    bench.see([ports_of("team", &[9_001])]);
    assert!(price(&bench, &[9_001]) < 10_000_000, "a port that another set has");
}

#[test]
fn who_has_a_host_is_decided_again_when_a_tcp_service_takes_the_port_of_a_listener() {
    let mut bench = Bench::new(options("--tcp-services-configmap=ops/tcp"));
    let api = "apiVersion: gateway.networking.k8s.io/v1";
    bench.see([class()]);
    bench.apply(&format!(
        "{api}\nkind: Gateway\nmetadata: {{ name: g, namespace: a, creationTimestamp: '1970-01-01T00:00:01Z' }}\nspec: {{ \
         gatewayClassName: c, listeners: [{{ name: l, port: 9000, protocol: HTTP, hostname: h.test }}] }}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: i, namespace: b, annotations: {{ \
         kubernetes.io/ingress.class: nginx }}, creationTimestamp: '1970-01-01T00:00:09Z' }}\nspec: {{ rules: [{{ host: \
         h.test, http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: 80 \
         }} }} }} }}] }} }}] }}"
    ));
    let host = HostPattern::parse("h.test").unwrap();
    let owner = |bench: &Bench| bench.translator.owner_of(&host).unwrap().0.namespace.clone();
    assert_eq!(*owner(&bench), *"a");
    let map = |ports: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: tcp, namespace: ops }}\ndata: {{ {ports} }}"
        )
    };
    bench.apply(&map("'9000': x/s:80"));
    assert_eq!(*owner(&bench), *"b", "the listener does not stand");
    bench.apply(&map(""));
    assert_eq!(*owner(&bench), *"a");
}
