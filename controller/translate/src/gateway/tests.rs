//! What many routes cost.

use crate::testing::options;
use crate::{Options, Translator};
use oxigress_objects::document::{self, Found};
use oxigress_objects::{Changed, World};
use std::fmt::Write;
use std::time::{Duration, Instant};

struct Bench {
    world: World,
    translator: Translator,
}

impl Bench {
    fn new(options: Options) -> Self {
        Bench { world: World::default(), translator: Translator::new(options) }
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
