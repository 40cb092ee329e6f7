//! GRPCRoutes from a folder: which calls each rule takes, and what is done with them, over plain HTTP/2 and over TLS.

use anyhow::{Context, Result, ensure};
use oxigress_tests::controller::Controller;
use oxigress_tests::pass;
use oxigress_tests::protocol::grpc::{Channel, GrpcEndpoint};
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::block_on;
use std::net::{Ipv4Addr, SocketAddr};

const GATEWAY: &str = "$SECRET(tls: calls)\n---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n\
    metadata: { name: oxigress }\nspec: { controllerName: oxigress.io/gateway-controller }\n---\n\
    apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: web, namespace: default }\n\
    spec:\n  gatewayClassName: oxigress\n  listeners:\n  - { name: http, port: 80, protocol: HTTP }\n\
    \x20 - { name: https, port: 443, protocol: HTTPS, tls: { certificateRefs: [{ name: tls }] } }\n";

/// A Service of this name, whose endpoint speaks gRPC.
fn service(name: &str, endpoint: &GrpcEndpoint) -> String {
    let port = endpoint.listener.address.port();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: {name}, namespace: default }}\n\
         spec: {{ ports: [{{ port: 80, targetPort: {port} }}] }}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: {name}-1, namespace: default, labels: {{ kubernetes.io/service-name: {name} }} }}\n\
         addressType: IPv4\nports: [{{ port: {port} }}]\nendpoints: [{{ addresses: [127.0.0.1] }}]\n"
    )
}

fn route(kind: &str, name: &str, created: u16, host: &str, rules: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\n\
         metadata: {{ name: {name}, namespace: default, creationTimestamp: '{created}-01-01T00:00:00Z' }}\n\
         spec:\n  parentRefs: [{{ name: web }}]\n  hostnames: [{host}]\n  rules:\n{rules}"
    )
}

/// The most specific service first, then the method, then more headers.
const MATCHES: &str = "  \
  - { matches: [{ method: { service: test.Echo, method: Unary } }], backendRefs: [{ name: one, port: 80 }] }
  - { matches: [{ method: { service: test.Echo } }], backendRefs: [{ name: two, port: 80 }] }
  - { matches: [{ method: { method: Unary } }], backendRefs: [{ name: three, port: 80 }] }
  - matches: [{ method: { type: RegularExpression, service: 'v[0-9]+[.]Echo', method: 'List|Count' } }]
    backendRefs: [{ name: one, port: 80 }]
  - { matches: [{ headers: [{ name: x-a, value: '1' }, { name: X-B, value: '2' }] }], backendRefs: [{ name: two, port: 80 }] }
";

#[test]
fn a_call_comes_to_the_rule_of_its_service_method_and_headers() {
    pass("grpc-route", |directory| {
        let endpoints = ["one", "two", "three"].map(GrpcEndpoint::start);
        let endpoints = endpoints.into_iter().collect::<Result<Vec<_>>>()?;
        let controller = Controller::start(directory, 2, &[])?;
        let mut shop = Shop::new(controller, &[], &[("calls", "calls.test")])?;
        let named = ["one", "two", "three"].into_iter().zip(&endpoints);
        let services: String = named.map(|(name, endpoint)| service(name, endpoint)).collect();
        let manifests =
            [GATEWAY.into(), services, route("GRPCRoute", "calls", 2024, "calls.test", MATCHES)];
        shop.write("calls.yaml", &manifests.concat())?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (http, https) = (at(shop.controller.http_port), at(shop.controller.https_port));
        for (address, tls) in [(http, None), (https, Some("calls.test"))] {
            let asked = block_on(check_matches(address, tls));
            asked.with_context(|| format!("with TLS: {tls:?}"))?;
        }
        Ok(())
    });
}

async fn check_matches(address: SocketAddr, tls: Option<&str>) -> Result<()> {
    let channel = Channel::connect(address, tls).await?;
    let both = [("x-a", "1"), ("x-b", "2")];
    for (path, headers, by) in [
        ("/test.Echo/Unary", &both[..], Some("one")),
        ("/test.Echo/Chat", &[], Some("two")),
        ("/other.Echo/Unary", &both, Some("three")),
        ("/v12.Echo/List", &[], Some("one")),
        ("/v12.Echo/Head", &[], None),
        ("/V12.Echo/List", &[], None),
        ("/v12.Echo/Lists", &[], None),
        ("/test.Echoes/Chat", &[], None),
        ("/test.Echoes/Chat", &both, Some("two")),
        ("/a/test.Echo/Unary", &[], None),
    ] {
        let outcome = channel.ask_with("calls.test", path, headers, &["1"]).await?;
        let found = outcome.headers.get("x-endpoint").and_then(|name| name.to_str().ok());
        ensure!(found == by, "{path}: {outcome:?}");
        ensure!(by.is_some() || outcome.http_status == 404, "{path}: {outcome:?}");
        ensure!(by.is_none() || outcome.status == Some(0), "{path}: {outcome:?}");
    }
    let mut chat = channel.call("calls.test", "Chat", &[]).await?;
    for number in 0..3 {
        chat.send(&number.to_string()).await?;
        let answer = chat.receive().await?;
        ensure!(answer == Some(format!("two: {number}")), "{answer:?}");
    }
    chat.end().await.map(drop)
}

const FILTERS: &str = "  \
  - matches: [{ method: { service: test.Echo, method: Head } }]
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: { set: [{ name: X-Set, value: set }], add: [{ name: x-add, value: more }], remove: [x-gone] }
    - { type: ResponseHeaderModifier, responseHeaderModifier: { set: [{ name: x-answer, value: '42' }] } }
    backendRefs: [{ name: one, port: 80 }]
  - matches: [{ method: { service: test.Echo, method: Unary } }]
    filters: [{ type: ExtensionRef, extensionRef: { group: a.b, kind: C, name: d } }]
    backendRefs: [{ name: one, port: 80 }]
  - { matches: [{ method: { service: test.Echo, method: List } }], backendRefs: [{ name: lost, port: 80 }] }
  - { matches: [{ method: { service: test.Echo, method: Late } }], backendRefs: [{ name: one, port: 80, weight: 0 }] }
";

/// What a gRPC client reads as UNAVAILABLE is the answer of what cannot be used.
#[test]
fn headers_are_changed_and_what_cannot_be_used_is_unavailable() {
    pass("grpc-route-filters", |directory| {
        let one = GrpcEndpoint::start("one")?;
        let controller = Controller::start(directory, 2, &[])?;
        let mut shop = Shop::new(controller, &[], &[("calls", "calls.test")])?;
        let filters = route("GRPCRoute", "calls", 2024, "calls.test", FILTERS);
        // Of two kinds on one host the older one is served.
        let all = "  - { backendRefs: [{ name: one, port: 80 }] }\n";
        let younger = route("HTTPRoute", "younger", 2025, "calls.test", all);
        let parts = [GATEWAY.to_owned(), service("one", &one), filters, younger];
        shop.write("calls.yaml", &parts.concat())?;
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, shop.controller.http_port));
        block_on(async {
            let channel = Channel::connect(http, None).await?;
            let headers = [("x-set", "old"), ("x-add", "one"), ("x-gone", "1"), ("x-kept", "2")];
            let head = channel.ask_with("calls.test", "Head", &headers, &[]).await?;
            ensure!(head.headers.get("x-answer").is_some_and(|value| value == "42"), "{head:?}");
            let text = head.messages.concat();
            for line in ["x-set: set\n", "x-add: one\n", "x-add: more\n", "x-kept: 2\n"] {
                ensure!(text.to_lowercase().contains(line), "no {line:?} in\n{text}");
            }
            ensure!(!text.contains("x-gone") && !text.contains("old"), "{text}");
            for method in ["Unary", "List", "Late"] {
                let outcome = channel.ask("calls.test", method, &["1"]).await?;
                ensure!(outcome.http_status == 503, "{method}: {outcome:?}");
            }
            let other = channel.ask("calls.test", "Count", &["1"]).await?;
            ensure!(other.http_status == 404, "the HTTPRoute is served beside: {other:?}");
            anyhow::Ok(())
        })
    });
}
