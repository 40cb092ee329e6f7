//! Who answers on a host that objects of several namespaces name.

mod kinds;

use crate::tests::options;
use crate::{Options, Translator};
use oxigress_core::model::{HostPattern, ListenerHost};
use oxigress_core::patterns::Patterns;
use oxigress_core::record::{Kind as Record, NoParts, ServerView, snapshot_records};
use oxigress_objects::document::{self, Found};
use oxigress_objects::{Changed, World};

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: { name: oxigress }\n\
                     spec: { controllerName: oxigress.io/gateway-controller }";

/// `listeners`: a port and a host each, which may be empty.
fn gateway(namespace: &str, year: u16, listeners: &[(u16, &str)]) -> String {
    let listener = |(number, (port, host)): (usize, &(u16, &str))| {
        let host = if host.is_empty() { String::new() } else { format!("hostname: '{host}', ") };
        format!(
            "{{ name: l{number}, port: {port}, protocol: HTTP, {host}allowedRoutes: {{ namespaces: {{ from: All }} }} }}"
        )
    };
    let listeners: Vec<_> = listeners.iter().enumerate().map(listener).collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{ name: {namespace}, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ gatewayClassName: oxigress, listeners: [{}] }}",
        listeners.join(", ")
    )
}

/// `parent`: the Gateway, with `/l0` for one of its listeners. `host` may be empty.
fn route(namespace: &str, year: u16, parent: &str, host: &str, path: &str) -> String {
    let (gateway, section) = parent.split_once('/').unwrap_or((parent, ""));
    let section =
        if section.is_empty() { String::new() } else { format!(", sectionName: {section}") };
    let hosts = if host.is_empty() { String::new() } else { format!("hostnames: ['{host}'], ") };
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
         metadata: {{ name: r{year}, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z' }}\n\
         spec: {{ parentRefs: [{{ name: {gateway}, namespace: {gateway}{section} }}], {hosts}\
         rules: [{{ matches: [{{ path: {{ value: {path} }} }}], backendRefs: [{{ name: s, port: 80 }}] }}] }}"
    )
}

fn ingress(namespace: &str, year: u16, host: &str, path: &str, annotation: &str) -> String {
    let host = if host.is_empty() { String::new() } else { format!("host: '{host}', ") };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: i{year}, namespace: {namespace}, creationTimestamp: '{year}-01-01T00:00:00Z', \
         annotations: {{ {annotation} }} }}\n\
         spec: {{ rules: [{{ {host}http: {{ paths: [{{ path: '{path}', \
         pathType: ImplementationSpecific, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }}] }} }}] }}"
    )
}

struct Served(Translator);

impl Served {
    fn new(objects: &[String]) -> Self {
        let (mut world, mut changed) = (World::default(), Changed::default());
        for text in [CLASS.to_owned()].iter().chain(objects) {
            for document in document::read(text, false) {
                for found in document.found.unwrap() {
                    let Found::Object(id, object) = found else { panic!("{text}") };
                    world.apply((id, Some(object)), &mut changed);
                }
            }
        }
        let options = Options { watch_ingress_without_class: true, ..options("") };
        let mut translator = Translator::new(options);
        translator.update(&world, &changed);
        Served(translator)
    }

    /// The namespace whose rule has a path of a host on a port; empty: nobody's.
    fn who(&self, port: u16, host: &str, path: &str) -> String {
        let snapshot = self.0.snapshot();
        let host = match host {
            "" => HostPattern::default_host(),
            host => HostPattern::parse(host).unwrap(),
        };
        let is_there = |at: &&ListenerHost| at.port.get() == port && at.host == host;
        let at = snapshot.listener_servers.keys().find(is_there).unwrap();
        let name = at.to_string().into_bytes();
        let mut records = snapshot_records(snapshot.clone()).into_iter();
        let record = records.find(|it| it.kind == Record::Listener && it.key == name).unwrap();
        let record = record.value.unwrap();
        let found = ServerView::new(&record).rule(path.as_bytes(), &NoParts, &Patterns::default());
        let rule = found.unwrap().map(|found| found.rule);
        rule.map(|rule| String::from_utf8(rule.texts()[1].to_vec()).unwrap()).unwrap_or_default()
    }
}

const TOKEN: &str = "/.well-known/acme-challenge/token";

#[test]
fn a_listener_leaves_its_host_to_the_oldest_object_that_names_it() {
    let infra = || gateway("infra", 2019, &[(80, "shop.test")]);
    let evil = |year| route("evil", year, "infra", "shop.test", TOKEN);
    let victim = ingress("victim", 2024, "shop.test", "/", "");
    let served = Served::new(&[infra(), victim, evil(2025)]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "victim", "its Ingress is older");
    let team = || route("team", 2024, "infra", "shop.test", "/");
    let served = Served::new(&[infra(), team(), evil(2025)]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "team", "its route is older");
    let solver = route("infra", 2026, "infra", "shop.test", TOKEN);
    let served = Served::new(&[infra(), team(), evil(2025), solver]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "infra", "it has the listener");
    assert_eq!(served.who(80, "shop.test", "/"), "team");
    let victim = ingress("victim", 2024, "shop.test", "/", "");
    let solver = route("infra", 2026, "infra", "shop.test", TOKEN);
    let served = Served::new(&[infra(), victim, solver]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "infra", "it has the listener");
    let old = route("evil", 2018, "infra", "", TOKEN);
    let served = Served::new(&[infra(), team(), old]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "team", "a route without hosts names none");
}

#[test]
fn challenges_are_answered_on_another_port_than_the_owners() {
    let infra = || gateway("infra", 2019, &[(80, ""), (8_443, "shop.test")]);
    let team = route("team", 2018, "infra/l1", "shop.test", "/");
    let solver = |by: &str| route(by, 2026, "infra/l0", "shop.test", TOKEN);
    let served = Served::new(&[infra(), team.clone(), solver("infra")]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "infra");
    let served = Served::new(&[infra(), team, solver("evil")]);
    assert_eq!(served.who(80, "shop.test", TOKEN), "");
}

#[test]
fn a_route_owns_no_host_where_it_is_not_served() {
    // The listener of all hosts takes none of the requests for shop.test, which has a listener of its own.
    let all = [
        gateway("infra", 2019, &[(80, ""), (80, "shop.test")]),
        route("evil", 2020, "infra/l0", "shop.test", "/"),
        route("team", 2024, "infra/l1", "shop.test", "/"),
    ];
    let served = Served::new(&all);
    assert_eq!(served.who(80, "shop.test", "/x"), "team");
    assert_eq!(served.who(80, "shop.test", TOKEN), "team");
}

#[test]
fn ingresses_of_others_take_no_challenges_and_no_literal_paths_of_a_routes_owner() {
    let infra = || gateway("infra", 2019, &[(80, "")]);
    let team = || route("team", 2020, "infra", "", "/app");
    let of_evil = |path: &str, annotation: &str| ingress("evil", 2024, "", path, annotation);
    let served = Served::new(&[infra(), team(), of_evil(TOKEN, "")]);
    assert_eq!(served.who(80, "", TOKEN), "", "the owner's route has nothing there");
    let regex = "nginx.ingress.kubernetes.io/use-regex: 'true'";
    let served = Served::new(&[infra(), team(), of_evil("/(app|x).*", regex)]);
    assert_eq!(served.who(80, "", "/app/1"), "team", "an expression yields to the owner");
    assert_eq!(served.who(80, "", "/xyz"), "evil");
}

/// Its settings would be about every client that names no known host.
#[test]
fn a_young_ingress_without_a_host_asks_clients_of_older_routes_for_nothing() {
    let infra = || gateway("infra", 2019, &[(80, "")]);
    let ciphers = "nginx.ingress.kubernetes.io/ssl-ciphers: HIGH";
    let evil = || ingress("evil", 2024, "", "/evil", ciphers);
    let says = |objects: &[String]| {
        let served = Served::new(objects);
        served.0.snapshot().tls.contains_key(&HostPattern::default_host())
    };
    assert!(says(&[infra(), evil()]), "nobody is older");
    assert!(!says(&[infra(), route("shop", 2020, "infra", "", "/"), evil()]));
    assert!(says(&[infra(), route("shop", 2025, "infra", "", "/"), evil()]), "a younger route");
    assert!(says(&[infra(), route("shop", 2020, "infra", "a.test", "/"), evil()]), "of a host");
}

#[test]
fn what_stands_for_the_root_of_an_ingress_stands_for_no_routes() {
    // Of the Ingresses the default host is old's, whose root stands below /.well-known/. Of all objects it is the team's.
    let all = [
        gateway("infra", 2019, &[(80, "")]),
        route("team", 2018, "infra", "", "/app"),
        ingress("old", 2021, "", "/old", ""),
        ingress("guest", 2022, "", "/", ""),
        ingress("old", 2023, "", "/", ""),
    ];
    let served = Served::new(&all);
    assert_eq!(served.who(80, "", "/"), "guest");
    assert_eq!(served.who(80, "", TOKEN), "");
}

#[test]
fn who_has_requests_without_a_host_is_one_at_a_listener_for_all_who_ask() {
    let infra = gateway("infra", 2019, &[(80, ""), (8_080, "")]);
    let shop = route("shop", 2025, "infra/l0", "", "/");
    let young = ingress("evil", 2026, "", "/evil", "");
    let owner = |objects: &[String], port: u16| {
        let served = Served::new(objects);
        let at = ListenerHost::parse(&format!("{port}/_")).unwrap();
        served.0.owner_at(&at).map(|(key, _)| key.namespace.to_string())
    };
    let all = [infra.clone(), shop.clone(), young];
    assert_eq!(owner(&all, 80).as_deref(), Some("shop"), "the older one");
    assert_eq!(owner(&all, 8_080).as_deref(), Some("evil"), "the only one");
    let old = ingress("team", 2020, "", "/team", "");
    assert_eq!(owner(&[infra.clone(), shop, old], 80).as_deref(), Some("team"));
    assert_eq!(owner(&[infra], 80), None);
}

#[test]
fn a_host_that_a_listener_names_has_one_owner_for_all_who_ask() {
    let infra = gateway("infra", 2019, &[(80, "apps.test")]);
    let owner = |objects: &[String]| {
        let served = Served::new(objects);
        let at = ListenerHost::parse("80/apps.test").unwrap();
        served.0.owner_at(&at).map(|(key, _)| key.namespace.to_string())
    };
    assert_eq!(owner(std::slice::from_ref(&infra)).as_deref(), Some("infra"));
    let old = route("old", 2020, "infra", "", "/");
    assert_eq!(owner(&[infra.clone(), old.clone()]).as_deref(), Some("old"), "the oldest");
    let named = route("team", 2021, "infra", "apps.test", "/");
    assert_eq!(owner(&[infra, old, named]).as_deref(), Some("team"), "who names it");
}

#[test]
fn an_old_guest_that_adds_many_rules_keeps_no_young_one_out() {
    let path = |number: usize| format!("{{ path: {{ value: /evil/{number} }} }}");
    let many = (0..super::MAX_GUESTS + 100).map(path).collect::<Vec<_>>().join(", ");
    let evil = route("evil", 2021, "infra", "shop.test", "/evil");
    let evil = evil.replace("{ path: { value: /evil } }", &many);
    let all = [
        gateway("infra", 2019, &[(80, "")]),
        route("team", 2020, "infra", "shop.test", "/"),
        evil,
        route("young", 2024, "infra", "shop.test", "/young"),
    ];
    let served = Served::new(&all);
    assert_eq!(served.who(80, "shop.test", "/young"), "young");
    assert_eq!(served.who(80, "shop.test", "/evil/2498"), "evil");
    assert_eq!(served.who(80, "shop.test", "/evil/2499"), "team", "the young one has its share");
}
