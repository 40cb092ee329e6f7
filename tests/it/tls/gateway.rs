//! What Gateways say about TLS, on real connections: which listener one is for, and who may come.

use anyhow::{Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::controller::Controller;
use oxigress_tests::mutual::{Caller, expect};
use oxigress_tests::pass;
use oxigress_tests::place::Directory;
use oxigress_tests::shop::Shop;

const CLASS: &str = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\n\
    metadata: { name: oxigress }\nspec: { controllerName: oxigress.io/gateway-controller }\n";

/// A Gateway of the default namespace with this in its spec, and the Secret of its listeners.
fn gateway(spec: &str) -> String {
    format!(
        "$SECRET(tls: tls)\n{CLASS}---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
         metadata: {{ name: web, namespace: default }}\nspec:\n  gatewayClassName: oxigress\n{spec}"
    )
}

/// A listener of HTTPS, with a host or more that ends with a comma.
fn listener(name: &str, port: u16, more: &str) -> String {
    format!(
        "  - {{ name: {name}, port: {port}, {more} protocol: HTTPS, tls: {{ certificateRefs: [{{ name: tls }}] }} }}\n"
    )
}

/// A route to a listener, with a host that it names or none.
fn route(listener: &str, host: &str, backend: &str) -> String {
    let host = if host.is_empty() { String::new() } else { format!("'{host}'") };
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{ name: r-{listener}, namespace: default }}\n\
         spec:\n  parentRefs: [{{ name: web, sectionName: {listener} }}]\n  hostnames: [{host}]\n\
         \x20 rules: [{{ backendRefs: [{{ name: {backend}, port: 80 }}] }}]\n"
    )
}

fn start(directory: &Directory) -> Result<Shop> {
    let controller = Controller::start(directory, 2, &[])?;
    Shop::new(controller, &["one", "two"], &[("tls", "one.test")])
}

#[test]
fn a_host_of_another_listener_than_the_server_name_s_is_misdirected() {
    pass("gateway-misdirected", |directory| {
        let mut shop = start(directory)?;
        let listeners = [
            listener("any", 443, ""),
            listener("two", 443, "hostname: two.test,"),
            listener("wild", 443, "hostname: '*.wild.test',"),
        ];
        let routes =
            [route("any", "one.test", "one"), route("two", "", "two"), route("wild", "", "one")];
        let services = "$SERVICE(one: one)\n$SERVICE(two: two)\n$INGRESS(shop: own.test/ one)\n";
        let spec = format!("  listeners:\n{}", listeners.concat());
        shop.write("web.yaml", &(services.to_owned() + &gateway(&spec) + &routes.concat()))?;
        let caller = Caller::new(shop.controller.https_port, "one.test")?;
        for (name, host, status) in [
            (Some("one.test"), "one.test", 200),
            (Some("one.test"), "two.test", 421),
            (Some("one.test"), "none.test", 404),
            (Some("two.test"), "two.test", 200),
            (Some("TWO.test"), "Two.Test:443", 200),
            (Some("two.test"), "one.test", 421),
            (Some("two.test"), "none.test", 421),
            (Some("a.wild.test"), "b.c.wild.test", 200),
            (Some("a.wild.test"), "two.test", 421),
            (Some("none.test"), "one.test", 200),
            (None, "one.test", 200),
            (None, "two.test", 421),
            // Hosts of Ingresses may be asked for by any connection.
            (Some("two.test"), "own.test", 200),
            (Some("own.test"), "own.test", 200),
            (Some("own.test"), "two.test", 421),
            (None, "own.test", 200),
        ] {
            let caller = caller.name(name);
            expect(&format!("{name:?} to {host}"), caller.status(host)?, status)?;
        }
        // A session of one listener may be gone on with at another: the connection is for the name that is sent with it.
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let caller = Caller { version, ..caller.name(Some("one.test")) };
            expect("first", caller.status("one.test")?, 200)?;
            expect("resumed", caller.name(Some("two.test")).resuming()?.status("one.test")?, 421)?;
        }
        // HTTP/2 connections are used again for hosts of one certificate.
        let mut call = Caller { is_h2: true, ..caller.clone() }.call()?;
        let statuses = call.h2_statuses(&["one.test", "two.test", "one.test", "own.test"])?;
        ensure!(statuses == [200, 421, 200, 200], "{statuses:?}");
        // When the more specific listener is gone, its host is the other one's.
        let spec = format!("  listeners:\n{}", listeners[0]);
        shop.write("web.yaml", &(services.to_owned() + &gateway(&spec) + &routes[0]))?;
        expect("gone", caller.status("two.test")?, 404)
    });
}
