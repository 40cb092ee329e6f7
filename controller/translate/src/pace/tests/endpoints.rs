//! What changes of endpoints cost.

use super::*;

fn objects(text: &str) -> Vec<Seen> {
    let found =
        document::read(text, false).into_iter().flat_map(|document| document.found.unwrap());
    let object = |found| match found {
        Found::Object(id, object) => (id, Some(object)),
        _ => panic!("a broken object in {text}"),
    };
    found.map(object).collect()
}

/// A Service with so many ports, each with a path that leads there.
fn service(ports: u16) -> Vec<Seen> {
    let all = |of: &dyn Fn(u16) -> String| (1..=ports).map(of).collect::<Vec<_>>().join(", ");
    let path = |n: u16| {
        format!(
            "{{ path: /{n}, pathType: Prefix, backend: {{ service: {{ name: s, port: {{ number: {n} }} }} }} }}"
        )
    };
    objects(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{ name: s, namespace: a }}\nspec: {{ ports: [{}] }}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: Ingress\n\
         metadata: {{ name: i, namespace: a, annotations: {{ {CLASS}: nginx }} }}\n\
         spec: {{ rules: [{{ host: a.test, http: {{ paths: [{}] }} }}] }}\n",
        all(&|n| format!("{{ name: p{n}, port: {n} }}")),
        all(&path),
    ))
}

/// A hundred endpoints on all of these ports, of which one may not be ready.
fn slice_of(name: &str, ports: u16, is_ready: bool) -> Seen {
    let all: Vec<_> = (1..=ports).map(|n| format!("{{ name: p{n}, port: {n} }}")).collect();
    let endpoints: Vec<_> = (1..100).map(|n| format!("{{ addresses: [10.0.0.{n}] }}")).collect();
    let mut found = objects(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}, namespace: a, labels: {{ kubernetes.io/service-name: s }} }}\naddressType: IPv4\n\
         ports: [{}]\nendpoints: [{{ addresses: [10.0.1.1], conditions: {{ ready: {is_ready} }} }}, {}]\n",
        all.join(", "),
        endpoints.join(", "),
    ));
    found.remove(0)
}

fn slice(ports: u16, is_ready: bool) -> Seen {
    slice_of("s-1", ports, is_ready)
}

/// A Service with a slice of a hundred endpoints on so many ports.
fn bench(ports: u16) -> Bench {
    let mut bench = Bench::new();
    bench.apply(service(ports).into_iter().chain([slice(ports, true)]));
    bench.forget_work();
    bench
}

/// How often a slice of so many ports is changed until that has to wait.
fn edits(bench: &mut Bench, ports: u16) -> usize {
    let both = [slice(ports, false), slice(ports, true)];
    (0..10_000).take_while(|n| bench.edit(both[n % 2].clone(), 0)).count()
}

/// They are read and sent for each port, and others wait meanwhile.
#[test]
fn endpoints_cost_what_they_are_on_all_ports_together() {
    for (ports, expected) in [(10, 395..=405), (100, 39..=42)] {
        let count = edits(&mut bench(ports), ports);
        assert!(expected.contains(&count), "{ports} ports: {count}");
    }
}

/// Whatever they are read for: a removal, a hash, another path that leads there.
#[test]
fn what_is_read_is_taken_from_the_share_of_the_service_s_namespace() {
    let taken = |of: &dyn Fn(&mut Bench) -> Duration| {
        let mut bench = bench(10);
        of(&mut bench);
        let work = bench.translator.take_endpoint_work();
        assert!(work.keys().all(|namespace| **namespace == *"a"), "{work:?}");
        work.values().sum::<u64>()
    };
    // A slice and a hundred endpoints for each port.
    let all = 10 * 101 * 5_000;
    assert_eq!(taken(&|bench| bench.apply([slice(10, false)])), all, "not ready is read, too");
    assert_eq!(taken(&|bench| bench.apply([service(10).remove(0)])), 0, "nothing is new");
    let with = |annotation: (&str, &str)| match &service(10)[1] {
        (id, Some(Object::Ingress(ingress))) => {
            (id.clone(), one(annotated((**ingress).clone(), &[annotation])))
        }
        other => panic!("{other:?}"),
    };
    let hashed = taken(&|bench| bench.apply([with(("x.io/upstream-hash-by", "$uri"))]));
    assert_eq!(hashed, all + 10 * 101 * 160 * 300, "and the points of ten rings");
    let (id, _) = slice(10, true);
    let both = |bench: &mut Bench| {
        bench.apply([(id.clone(), None)]);
        bench.apply([slice(10, true)])
    };
    assert_eq!(taken(&both), all + 10 * 5_000, "that there are none is read, too");
}

#[test]
fn what_leads_to_many_endpoints_newly_pays_for_them() {
    let mut bench = Bench::new();
    let all = service(50);
    bench.apply([all[0].clone(), slice(50, true)]);
    let price = |bench: &Bench, (id, object): &Seen| bench.price(id, object.as_ref().unwrap());
    assert!(price(&bench, &all[1]) >= 50 * 100 * 5_000);
    bench.apply([all[1].clone()]);
    let (id, Some(Object::Ingress(ingress))) = &all[1] else { panic!("an Ingress") };
    let mut more = (**ingress).clone();
    more.rules[0].paths[0].path = "/other".into();
    let more = (id.clone(), one(more));
    assert!(price(&bench, &more) < 50 * 100 * 5_000, "it leads there already");
}

/// Other changes of a namespace that has spent its time keep its endpoints from nobody, nor these those.
#[test]
fn endpoints_wait_for_endpoints_alone() {
    let mut bench = bench(100);
    let spent = (0..1_000).take_while(|n| bench.see(&id("a", "dear"), one(dear(*n)), 0)).count();
    assert!((1..1_000).contains(&spent));
    assert!(bench.edit(slice(100, false), 0), "endpoints do not wait");
    assert!(edits(&mut bench, 100) < 1_000, "they do now");
    assert!(bench.edit(plain("b", "other", "x", 1), 0), "others' changes do not");
}

/// However many slices of a Service change, all of its endpoints are read once, removals too.
#[test]
fn slices_that_wait_are_taken_over_together() {
    let mut bench = bench(100);
    let of = |n: u16| slice_of(&format!("s-{n}"), 100, true);
    assert!(edits(&mut bench, 100) < 50);
    assert!(bench.pace.waiting() == 1 && !bench.edit(of(2), 0) && !bench.edit(of(3), 0));
    let (gone, _) = slice(100, true);
    assert!(!bench.edit((gone.clone(), None), 0), "a removal is read, too");
    assert_eq!((bench.pace.waiting(), bench.catch_up(0)), (3, 0));
    assert_eq!(bench.catch_up(2), 3);
    assert!(bench.world.slice(&gone.key).is_none());
    assert_eq!(bench.pace.due_at(), None);
    // What is as it was does not wait any more.
    let more = (0..100).take_while(|n| bench.edit(slice_of("s-4", 100, n % 2 == 0), 2)).count();
    assert!(more < 100 && !bench.edit((of(2).0, None), 2));
    assert_eq!(bench.pace.waiting(), 2);
    assert!(bench.edit(of(2), 2));
    assert_eq!(bench.pace.waiting(), 1);
}

/// Who has more read than its share has none of its changes taken over, whatever they are.
#[test]
fn a_namespace_that_owes_much_waits_with_everything() {
    let mut bench = bench(100);
    let of = |n: usize| {
        let (id, object) = service(100).remove(1);
        let Some(Object::Ingress(ingress)) = object else { panic!("an Ingress") };
        let hashes = [("x.io/upstream-hash-by", ["$uri", "$arg_a"][n % 2])];
        (id, annotated((*ingress).clone(), &hashes))
    };
    let mut count = 0;
    for n in 0..100 {
        let (id, ingress) = of(n);
        bench.apply([(id, one(ingress))]);
        bench.pace.spend(bench.translator.take_endpoint_work(), true, bench.start);
        count += usize::from(bench.edit(plain("a", &format!("small{n}"), "x", 1), 0));
    }
    assert!((5..20).contains(&count), "{count}: of four seconds, of which each took half of one");
    assert!(bench.edit(plain("b", "other", "x", 1), 0));
}

/// A headless Service has no address that could stand for its endpoints.
#[test]
fn what_is_read_in_spite_of_service_upstream_is_counted() {
    let taken = |cluster_ip: &str| {
        let mut bench = bench(1);
        let (id, _) = service(1).remove(1);
        bench.apply(objects(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{ name: s, namespace: a }}\n\
             spec: {{ clusterIP: {cluster_ip}, ports: [{{ name: p1, port: 1 }}] }}\n"
        )));
        let ingress = bench.world.ingresses[&id.key].as_ref().clone();
        let upstream = annotated(ingress, &[("x.io/service-upstream", "true")]);
        bench.apply([(id, one(upstream))]);
        bench.forget_work();
        bench.apply([slice(1, false)]);
        bench.translator.take_endpoint_work().values().sum::<u64>()
    };
    assert_eq!((taken("None"), taken("10.0.0.1")), (101 * 5_000, 5_000));
}

/// Ports and slices are looked at, too.
#[test]
fn a_service_without_endpoints_is_not_read_for_nothing() {
    let mut bench = Bench::new();
    bench.apply(service(500));
    bench.forget_work();
    bench.apply([slice_of("s-1", 500, true)]);
    bench.forget_work();
    let (gone, _) = slice(500, true);
    bench.apply([(gone, None)]);
    // For each port: the Service's ports, and that there is no slice.
    let taken: u64 = bench.translator.take_endpoint_work().values().sum();
    assert_eq!(taken, 500 * (1 + 500 / 100) * 5_000);
}

/// Who owns a host has its guests' backends dropped and read again; that is not the guests' doing.
#[test]
fn what_a_stranger_has_read_is_the_stranger_s() {
    let mut bench = bench(10);
    let owner = |tls: &str| {
        let mut ingress = plain("evil", "owner", "own", 1);
        if let Some(Object::Ingress(ingress)) = &mut ingress.1 {
            let ingress = Arc::make_mut(ingress);
            ingress.created = -1;
            ingress.rules[0].host = "a.test".into();
            *ingress = annotated(ingress.clone(), &[("x.io/auth-tls-secret", tls)]);
        }
        ingress
    };
    bench.apply([owner("evil/gone")]);
    bench.forget_work();
    let (id, Some(Object::Ingress(closing))) = owner("evil/gone") else { panic!("an Ingress") };
    let mut open = (*closing).clone();
    open.annotations.remove("x.io/auth-tls-secret");
    bench.apply([(id, one(open))]);
    let work = bench.translator.take_endpoint_work();
    assert!(!work.contains_key("a"), "{work:?}");
    assert!(work["evil"] >= 10 * 101 * 5_000, "{work:?}");
}

/// A namespace has a limit for all of its backends together.
#[test]
fn backends_beyond_the_limit_of_a_namespace_are_not_read() {
    let mut bench = bench(100);
    let more: Vec<Seen> = (1..=61).map(|n| slice_of(&format!("more-{n}"), 100, true)).collect();
    // The same addresses again and again: they are looked at all the same.
    bench.apply(more);
    let read = |bench: &Bench| {
        let sets = bench.translator.snapshot().endpoints.values();
        sets.filter(|set| !set.as_slice().is_empty()).count()
    };
    let expected = 600_000 / (62 * 101);
    assert!((expected - 2..=expected).contains(&read(&bench)), "{} of 100", read(&bench));
    let (_, told) =
        bench.translator.notes().find(|(_, note)| note.message.contains("together")).unwrap();
    assert!(
        told.message.contains("namespace a have more than 600000 endpoints"),
        "{}",
        told.message
    );
    let gone = (1..=61).map(|n| (slice_of(&format!("more-{n}"), 1, true).0, None));
    bench.apply(gone);
    assert_eq!(read(&bench), 100);
}
