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

/// So many endpoints on all of these ports, of which one may not be ready.
fn slice_of(service: &str, name: &str, ports: u16, count: u16, is_ready: bool) -> Seen {
    let all: Vec<_> = (1..=ports).map(|n| format!("{{ name: p{n}, port: {n} }}")).collect();
    let address = |n: u16| format!("{{ addresses: [10.1.{}.{}] }}", n / 250, n % 250);
    let endpoints: Vec<_> = (1..count).map(address).collect();
    let mut found = objects(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}, namespace: a, labels: {{ kubernetes.io/service-name: {service} }} }}\naddressType: IPv4\n\
         ports: [{}]\nendpoints: [{{ addresses: [10.0.1.1], conditions: {{ ready: {is_ready} }} }}, {}]\n",
        all.join(", "),
        endpoints.join(", "),
    ));
    found.remove(0)
}

fn slice(ports: u16, is_ready: bool) -> Seen {
    slice_of("s", "s-1", ports, 100, is_ready)
}

fn price(bench: &Bench, seen: &Seen) -> u64 {
    bench.price(&seen.0, seen.1.as_ref().unwrap())
}

/// How often a slice of so many ports is changed until that has to wait.
fn edits(bench: &mut Bench, ports: u16) -> usize {
    let both = [slice(ports, true), slice(ports, false)];
    let all = (0..10_000).take_while(|n| {
        let (id, object) = &both[n % 2];
        bench.see(id, object.clone(), 0)
    });
    all.count()
}

/// They are read and sent for each port, and others wait meanwhile.
#[test]
fn endpoints_cost_what_they_are_on_all_ports_together() {
    for (ports, most) in [(1, 4_200), (10, 420), (100, 42)] {
        let mut bench = Bench::new();
        bench.apply(service(ports).into_iter().chain([slice(ports, true)]));
        let count = edits(&mut bench, ports);
        assert!((most / 10 * 8..=most).contains(&count), "{ports} ports: {count}");
    }
}

#[test]
fn endpoints_that_come_anew_cost_as_those_that_change() {
    let mut bench = Bench::new();
    bench.apply(service(50));
    let first = price(&bench, &slice(50, true));
    assert!(first >= 50 * 100 * 5_000, "{first}: nobody had any");
    bench.apply([slice(50, true)]);
    assert_eq!(price(&bench, &slice(50, true)), 0, "it is as it was");
    assert_eq!(price(&bench, &slice(50, false)), first);
    // Those that leave a Service are read there.
    let (id, _) = slice(50, true);
    let (_, moved) = slice_of("other", "s-1", 50, 100, true);
    assert_eq!(price(&bench, &(id.clone(), moved)), first);
    bench.apply([(id, None)]);
    assert_eq!(price(&bench, &slice(50, true)), first);
}

#[test]
fn points_of_rings_are_charged() {
    let mut bench = Bench::new();
    let plain = service(1);
    let hashed = |seen: &Seen| match seen {
        (id, Some(Object::Ingress(ingress))) => {
            let hashes = [("x.io/upstream-hash-by", "$uri")];
            (id.clone(), one(annotated((**ingress).clone(), &hashes)))
        }
        other => other.clone(),
    };
    bench.apply(plain.iter().cloned().chain([slice(1, true)]));
    let without = price(&bench, &slice(1, false));
    let to_hash = price(&bench, &hashed(&plain[1]));
    bench.apply(plain.iter().map(hashed));
    let with = price(&bench, &slice(1, false));
    assert!(with >= without + 100 * 160 * 300, "{without}, {with}");
    assert!(to_hash >= 100 * 160 * 300, "{to_hash}: who asks for it pays for it first");
}

#[test]
fn what_leads_to_many_endpoints_newly_pays_for_them() {
    let mut bench = Bench::new();
    let all = service(50);
    bench.apply([all[0].clone(), slice(50, true)]);
    assert!(price(&bench, &all[1]) >= 50 * 100 * 5_000);
    bench.apply([all[1].clone()]);
    let (id, Some(Object::Ingress(ingress))) = &all[1] else { panic!("an Ingress") };
    let mut more = (**ingress).clone();
    more.rules[0].paths[0].path = "/other".into();
    assert!(price(&bench, &(id.clone(), one(more))) < 50 * 100 * 5_000, "it leads there already");
}

/// Other changes of a namespace that has spent its time keep its endpoints from nobody, nor these those.
#[test]
fn endpoints_wait_for_endpoints_alone() {
    let mut bench = Bench::new();
    bench.apply(service(100).into_iter().chain([slice(100, true)]));
    let spent = (0..).take_while(|n| bench.see(&id("a", "dear"), one(dear(*n)), 0)).count();
    assert!(spent > 0);
    let (slice_id, changed) = slice(100, false);
    assert!(bench.see(&slice_id, changed, 0), "endpoints do not wait");
    assert!(edits(&mut bench, 100) < 1_000, "they do now");
    let (other, object) = plain("b", "other", "x", 1);
    assert!(bench.see(&other, object, 0), "of other namespaces neither");
}

/// However many slices of a Service change, all of its endpoints are read once.
#[test]
fn slices_of_a_service_that_wait_are_taken_over_together() {
    let mut bench = Bench::new();
    let of = |n: u16, is_ready: bool| slice_of("s", &format!("s-{n}"), 100, 100, is_ready);
    bench.apply(service(100).into_iter().chain((0..10).map(|n| of(n, true))));
    let first = of(0, false);
    let price = price(&bench, &first);
    assert!(price >= 500_000_000, "{price}");
    for _ in 0..2 {
        for n in 0..10 {
            let (id, object) = of(n, false);
            bench.see(&id, object, 0);
        }
    }
    assert_eq!(bench.pace.waiting(), 7, "there was enough for three, and each waits once");
    assert_eq!(bench.due(0).len(), 0);
    assert_eq!(bench.due(1).len(), 7, "for the price of one");
    assert_eq!(bench.pace.due_at(), None);
    // One that is another Service's meanwhile waits there, and one that is gone not at all.
    while bench.see(&first.0, of(0, true).1, 12) && bench.see(&first.0, of(0, false).1, 12) {}
    let (id, moved) = slice_of("other", "s-0", 100, 100, true);
    bench.see(&id, moved, 12);
    let (gone, object) = of(1, true);
    bench.see(&gone, object, 12);
    let before = bench.pace.waiting();
    assert!(bench.see(&gone, None, 12), "removals never wait");
    assert_eq!(bench.pace.waiting(), before - 1);
    bench.due(600);
    assert_eq!((bench.pace.waiting(), bench.pace.due_at()), (0, None));
}
