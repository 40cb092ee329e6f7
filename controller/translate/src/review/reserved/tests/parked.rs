//! Names that are written while another namespace has the host, and who comes first of those that are kept.

use super::*;

/// The same object, with something else in it.
fn again(object: &Object) -> Object {
    match object {
        Object::Ingress(ingress) => {
            let mut ingress = Ingress::clone(ingress);
            let rule =
                Rule { host: format!("more-{}.test", ingress.rules.len()), paths: Vec::new() };
            ingress.rules.push(rule);
            Object::Ingress(Arc::new(ingress))
        }
        Object::Route(route) => {
            let mut route = Route::clone(route);
            route.meta.generation += 1;
            Object::Route(Arc::new(route))
        }
        other => other.clone(),
    }
}

#[test]
fn what_is_named_while_another_namespace_has_the_host_is_kept_from_nobody() {
    let parked: [fn() -> Seen; 3] = [
        || route_at(1, "pay.test", AT_SET),
        || route_at(1, "pay.test", "name: none"),
        || annotated(("evil", "e"), 5, "x.test", &[("server-alias", "pay.test")]),
    ];
    for parked in parked {
        let mut bench = Bench::new();
        let first = aliased("f", 1, "first.test");
        bench.see([class(), first, ingress("shop", 1, "pay.test"), parked()]);
        let gone = ingress("shop", 1, "pay.test").0;
        bench.see([(gone, None)]);
        assert_eq!(bench.denial("pay.test"), None, "its owner makes it again");
        let (id, object) = parked();
        let object = object.map(|object| again(&object));
        bench.see([(id, object)]);
        assert_eq!(bench.denial("pay.test"), None, "also where it is read again meanwhile");
        if parked().0.kind == Kind::Ingress {
            let (id, object) = parked();
            bench.delay([(id, object.map(|object| again(&again(&object))))]);
            assert_eq!(bench.denial("pay.test"), None, "and where an edit of it waits");
        }
        // Whoever names it while nobody has it does keep it.
        bench.see([(parked().0, None)]);
        bench.see([parked()]);
        assert!(bench.denial("pay.test").is_some());
    }
    let mut bench = Bench::new();
    bench.see([ingress("shop", 1, "pay.test")]);
    bench.delay([ingress("evil", 5, "pay.test")]);
    bench.see([(ingress("shop", 1, "pay.test").0, None)]);
    assert_eq!(bench.denial("pay.test"), None);
}

#[test]
fn a_route_at_other_parents_has_named_its_hosts_as_long_as_there_is_it() {
    let mut bench = Bench::new();
    let of = |namespace: &str, created: usize, gateway: &str| {
        read(&format!(
            "{{{API}, kind: HTTPRoute, metadata: {{name: r, namespace: {namespace}, creationTimestamp: \
             '1970-01-01T00:00:0{created}Z'}}, spec: {{parentRefs: [{{name: {gateway}, namespace: infra}}], \
             hostnames: [pay.test]}}}}"
        ))
    };
    bench.see([class(), of("shop", 1, "old"), of("evil", 2, "old")]);
    assert_eq!(bench.denial_of(of("shop", 1, "new")), None, "it is older than the other");
    assert!(bench.denial_of(of("evil", 2, "new")).is_some());
    assert!(bench.denial_of(of("shop", 3, "new")).is_some(), "it is made anew");
    // It was written while another namespace had the host.
    let mut bench = Bench::new();
    bench.see([class(), ingress("first", 1, "pay.test"), of("shop", 1, "old")]);
    bench.see([(ingress("first", 1, "pay.test").0, None), of("evil", 2, "old")]);
    assert_eq!(bench.denial_of(of("shop", 1, "new")), None);
}

#[test]
fn a_review_of_many_hosts_beside_many_that_wait_looks_at_each_once() {
    let hosts = |prefix: &str| {
        let (id, object) = ingress("evil", 5, "x.test");
        let Some(Object::Ingress(ingress)) = object else { panic!("{id}") };
        let mut ingress = Arc::unwrap_or_clone(ingress);
        let rule = |n| Rule { host: format!("{prefix}{n}.test"), paths: Vec::new() };
        ingress.rules = (0..20_000).map(rule).collect();
        (id, Some(Object::Ingress(Arc::new(ingress))))
    };
    let mut bench = Bench::new();
    bench.delay([hosts("a")]);
    let compared = crate::relation::compared();
    assert_eq!(bench.denial_of(hosts("b")), None);
    assert!(crate::relation::compared() - compared < 20_000 * 20);
}

#[test]
fn a_listener_that_names_a_host_takes_no_name_from_who_waits_for_it() {
    let mut bench = Bench::new();
    bench.see([class(), gateway("All", "pay.test")]);
    bench.delay([route(1, "pay.test")]);
    assert!(bench.denial("pay.test").is_some());
    let mut bench = Bench::new();
    bench.see([class(), gateway("All", "pay.test"), route(1, "pay.test")]);
    let (id, _) = gateway("All", "pay.test");
    bench.see([(id, None)]);
    assert!(bench.denial("pay.test").is_some(), "its Gateway is made again");
}

#[test]
fn who_becomes_the_owner_of_a_host_keeps_what_it_wrote_before() {
    let (id, object) = route(0, "pay.test");
    let Some(Object::Route(object)) = object else { panic!("{id}") };
    let mut object = Route::clone(&object);
    object.meta.created = 0;
    let id = ObjectRef::new(id.kind, Key::new("shop", id.key.name));
    let of_shop = (id, Some(Object::Route(Arc::new(object))));
    for first in [ingress("shop", 0, "pay.test"), of_shop] {
        let mut bench = Bench::new();
        bench.see([class(), gateway("All", "*.test"), first.clone()]);
        bench.see([route(1, "pay.test")]);
        assert_eq!(bench.owner("pay.test"), Some("shop"));
        bench.see([(first.0, None)]);
        assert_eq!(bench.owner("pay.test"), Some("evil"));
        bench.see([(gateway("All", "*.test").0, None)]);
        assert!(bench.denial("pay.test").is_some());
    }
}

#[test]
fn a_name_is_parked_when_its_object_is_written_again_while_another_namespace_has_the_host() {
    let mut bench = Bench::new();
    bench.see([class(), gateway("All", "*.infra"), route(1, "pay.test")]);
    bench.see([ingress("shop", 1, "pay.test")]);
    assert_eq!(bench.owner("pay.test"), Some("shop"));
    bench.see([route_at(1, "pay.test", "name: none")]);
    bench.see([(ingress("shop", 1, "pay.test").0, None)]);
    assert_eq!(bench.denial("pay.test"), None);
}
