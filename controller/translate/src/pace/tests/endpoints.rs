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
fn slice(ports: u16, is_ready: bool) -> Seen {
    let all: Vec<_> = (1..=ports).map(|n| format!("{{ name: p{n}, port: {n} }}")).collect();
    let endpoints: Vec<_> = (1..100).map(|n| format!("{{ addresses: [10.0.0.{n}] }}")).collect();
    let mut found = objects(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: s-1, namespace: a, labels: {{ kubernetes.io/service-name: s }} }}\naddressType: IPv4\n\
         ports: [{}]\nendpoints: [{{ addresses: [10.0.1.1], conditions: {{ ready: {is_ready} }} }}, {}]\n",
        all.join(", "),
        endpoints.join(", "),
    ));
    found.remove(0)
}

/// They are read and sent for each port, and others wait meanwhile.
#[test]
fn endpoints_of_a_service_wait_where_there_are_more_than_five_thousand_on_its_ports() {
    for (ports, waits) in [(50, false), (60, true)] {
        let mut bench = Bench::new();
        bench.apply(service(ports).into_iter().chain([slice(ports, true)]));
        let edits = (0..1_000).take_while(|n| {
            let (id, object) = slice(ports, n % 2 == 0);
            bench.see(&id, object, 0)
        });
        assert_eq!(edits.count() < 1_000, waits, "{ports}");
    }
}
