//! What objects cost that routes, listeners and hosts below wildcards depend on.

use super::*;
use crate::gateway::work::{self, Step};
use oxigress_objects::gateway::GROUP;
use serde_json::{Value, json};

fn resource<S: serde::de::DeserializeOwned + Default>(spec: Value) -> Arc<Resource<S>> {
    Arc::new(Resource { spec: serde_json::from_value(spec).unwrap(), ..Resource::default() })
}

/// Routes of namespace `a` at its Gateway, each with a hundred rules that lead to the Service `errors` of a namespace.
fn routes(count: usize, namespace: &'static str) -> impl Iterator<Item = Seen> {
    (0..count).map(move |number| {
        let path = |n: usize| json!({"path": {"type": "Exact", "value": format!("/{n}")}});
        let to = json!([{"name": "errors", "namespace": namespace, "port": 80}]);
        let matches: Vec<_> = (0..100).map(path).collect();
        let rules = json!([{"matches": matches, "backendRefs": to}]);
        let spec = json!({"parentRefs": [{"name": "g"}], "rules": rules});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("a", format!("r{number}")));
        (id, Some(Object::Route(resource(spec))))
    })
}

/// The Gateway `g` of namespace `a`, which shows the certificate `users` for a host.
fn secured(host: &str) -> [Seen; 2] {
    let [class, (id, _)] = gateway("a");
    let tls = json!({"certificateRefs": [{"name": "users"}]});
    let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": host, "tls": tls}]);
    let spec = json!({"gatewayClassName": "c", "listeners": listeners});
    [class, (id, Some(Object::Gateway(resource(spec))))]
}

#[test]
fn a_service_and_a_secret_that_the_gateway_api_names_cost_what_reading_again_costs() {
    let mut bench = Bench::new();
    let price = |bench: &Bench, (id, object): Seen| bench.price(&id, &object.unwrap());
    assert_eq!(price(&bench, service(81)), 0);
    bench.apply(secured("a.test").into_iter().chain(routes(100, "a")).chain([service(80)]));
    let all = price(&bench, service(81));
    assert!((100_000_000..200_000_000).contains(&all), "{all}: ten thousand rules");
    assert!((20_000..100_000).contains(&price(&bench, users(0, "b"))), "a listener names it");
    let toggles = (0..1_000).take_while(|n| {
        let (id, object) = service(80 + n % 2);
        bench.see(&id, object, 0)
    });
    assert!((10..30).contains(&toggles.count()));
    bench.apply(routes(100, "a").map(|(id, _)| (id, None)));
    assert_eq!(price(&bench, service(81)), 0, "nobody reads it any more");
}

/// Those of listeners that a Secret is for, each once, and none else.
#[test]
fn the_price_of_a_secret_is_told_by_the_routes_of_its_gateways() {
    let mut bench = Bench::new();
    let named = |name: &str, parent: &str| {
        let spec = json!({"parentRefs": vec![json!({"name": parent}); 32]});
        let id = ObjectRef::new(Kind::HTTPRoute, Key::new("a", name));
        (id, Some(Object::Route(resource(spec))))
    };
    let strangers = (0..1_000).map(|n| named(&format!("s{n}"), "none"));
    let own = (0..3).map(|n| named(&format!("r{n}"), "g"));
    bench.apply(secured("a.test").into_iter().chain(strangers).chain(own));
    work::take(Step::Priced);
    let (id, object) = users(0, "a");
    bench.price(&id, &object.unwrap());
    assert_eq!(work::take(Step::Priced), 3);
}

#[test]
fn a_grant_costs_what_the_routes_cost_that_asked_about_it() {
    let mut bench = Bench::new();
    bench.apply(gateway("a").into_iter().chain(routes(100, "b")));
    let grant = |name: &str, namespace: &str, service: Option<&str>| {
        let spec = json!({"from": [{"group": GROUP, "kind": "HTTPRoute", "namespace": namespace}],
            "to": [{"group": "", "kind": "Service", "name": service}]});
        let id = ObjectRef::new(Kind::ReferenceGrant, Key::new("b", name));
        (id, Object::ReferenceGrant(resource(spec)))
    };
    for (namespace, service, is_dear) in [
        ("a", None, true),
        ("a", Some("errors"), true),
        ("a", Some("error"), false),
        ("c", None, false),
    ] {
        let (id, object) = grant("g", namespace, service);
        let price = bench.price(&id, &object);
        assert_eq!(price > 100_000_000, is_dear, "{namespace} {service:?}: {price}");
        assert!(is_dear || price < 100_000);
    }
    let (id, object) = grant("g", "a", None);
    bench.apply([(id, Some(object))]);
    let (id, object) = grant("g", "c", None);
    assert!(bench.price(&id, &object) > 100_000_000, "what it allowed before is refused");
}

#[test]
fn who_may_change_the_certificate_of_a_wildcard_pays_for_the_hosts_below() {
    let mut bench = Bench::new();
    let below = (0..1_000).map(|number| {
        let host = format!("h{number}.test");
        let rules = vec![Rule { host, paths: Vec::new() }];
        let ingress = annotated(Ingress { rules, ..Ingress::default() }, &[]);
        (id("b", &format!("i{number}")), one(ingress))
    });
    let wildcard = |has_tls: bool, paths: usize| {
        let (id, object) = plain("a", "w", "x", paths);
        let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
        let mut ingress = (*ingress).clone();
        ingress.rules[0].host = "*.test".into();
        ingress.tls = has_tls.then(oxigress_objects::ingress::Tls::default).into_iter().collect();
        (id, one(ingress))
    };
    bench.apply(below.chain([wildcard(true, 1)]).chain(gateway("a")));
    let price = |bench: &Bench, (id, object): Seen| bench.price(&id, &object.unwrap());
    assert!(price(&bench, wildcard(false, 1)) > 20_000_000);
    assert!(price(&bench, wildcard(true, 2)) < 500_000, "its paths alone are others");
    let [_, wide] = secured("*.test");
    assert!(price(&bench, wide) > 20_000_000);
    let [_, narrow] = secured("*.other");
    assert!(price(&bench, narrow) < 500_000);
    let of_set = |host: &str| {
        let listener = json!({"name": "l", "port": 80, "protocol": "HTTP", "hostname": host});
        let parent = json!({"name": "g", "namespace": "a"});
        let spec = json!({"parentRef": parent, "listeners": [listener]});
        let id = ObjectRef::new(Kind::ListenerSet, Key::new("a", "s"));
        (id, Some(Object::ListenerSet(resource(spec))))
    };
    let (wide, narrow) = (price(&bench, of_set("*.test")), price(&bench, of_set("*.other")));
    assert!(wide > narrow + 19_000_000, "{wide} beside {narrow}");
}
