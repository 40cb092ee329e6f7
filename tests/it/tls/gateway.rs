//! What Gateways say about TLS, on real connections: which listener one is for, and who may come.

use anyhow::{Context, Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::controller::Controller;
use oxigress_tests::mutual::{Caller, EXPIRED, Identity, VALID, expect};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
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

/// A ConfigMap with an authority.
fn authority(name: &str, identity: &Identity) -> Result<String> {
    let pem = identity.pem()?.replace('\n', "\n    ");
    Ok(format!(
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata:\n  ca.crt: |\n    {pem}\n"
    ))
}

/// What clients have to show on all ports, and perhaps on one.
fn frontend(map: &str, mode: &str, other: Option<(u16, &str)>) -> String {
    let validation = |map: &str| {
        format!(
            "{{ validation: {{ mode: {mode}, caCertificateRefs: [{{ group: '', kind: ConfigMap, name: {map} }}] }} }}"
        )
    };
    let other = other.map(|(port, map)| {
        format!("      perPort: [{{ port: {port}, tls: {} }}]\n", validation(map))
    });
    format!(
        "  tls:\n    frontend:\n      default: {}\n{}",
        validation(map),
        other.unwrap_or_default()
    )
}

/// What becomes of a request on a connection of its own: a status, or nothing where the connection ends without an answer.
fn status(caller: &Caller<'_>, host: &str) -> Option<u16> {
    caller.call().and_then(|mut call| call.get(host, "/")).map(|answer| answer.status).ok()
}

#[test]
fn a_listener_lets_in_whom_its_authorities_vouch_for() {
    pass("gateway-clients", |directory| {
        let mut shop = start(directory)?;
        let port = free_port()?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let [client, expired] = [ours.issue("client", VALID)?, ours.issue("old", EXPIRED)?];
        let stranger = other.issue("stranger", VALID)?;
        let maps = authority("ours", &ours)? + &authority("other", &other)?;
        let listeners = [listener("any", 443, ""), listener("two", port, "hostname: two.test,")];
        let spec = |frontend: String| format!("{frontend}  listeners:\n{}", listeners.concat());
        let routes = [route("any", "one.test", "one"), route("two", "", "two")].concat();
        let services = "$SERVICE(one: one)\n$SERVICE(two: two)\n$INGRESS(shop: own.test/ one)\n";
        let rest = services.to_owned() + &maps + &routes;
        let valid = gateway(&spec(frontend("ours", "AllowValidOnly", Some((port, "other")))));
        shop.write("web.yaml", &(rest.clone() + &valid))?;
        let any = Caller::new(shop.controller.https_port, "one.test")?;
        let two = any.to(port).name(Some("two.test"));
        for (caller, who, host, expected) in [
            (&any, None, "one.test", None),
            (&any, Some(&client), "one.test", Some(200)),
            (&any, Some(&stranger), "one.test", None),
            (&any, Some(&expired), "one.test", None),
            (&any, Some(&client), "none.test", Some(404)),
            (&any, None, "none.test", None),
            (&two, None, "two.test", None),
            (&two, Some(&client), "two.test", None),
            (&two, Some(&stranger), "two.test", Some(200)),
            // An Ingress asks for nothing: by a connection that asked for something it is misdirected, by its own it is served.
            (&any, Some(&client), "own.test", Some(421)),
        ] {
            let caller = who.map_or(caller.anonymous(), |who| caller.showing(who));
            let found = status(&caller, host);
            ensure!(found == expected, "{host}: {found:?}, not {expected:?}");
        }
        let own = any.name(Some("own.test"));
        expect("the Ingress", own.status("own.test")?, 200)?;
        ensure!(status(&own, "one.test") == Some(421), "by a connection that asked for nothing");
        // A connection that was let in is not kept by another authority.
        let mut call = any.showing(&client).call()?;
        expect("before", call.get("one.test", "/")?.status, 200)?;
        let turned = gateway(&spec(frontend("other", "AllowValidOnly", Some((port, "ours")))));
        shop.write("web.yaml", &(rest.clone() + &turned))?;
        expect("after", call.get("one.test", "/")?.status, 421)?;
        // The fallback lets everybody in.
        let open = gateway(&spec(frontend("ours", "AllowInsecureFallback", Some((port, "other")))));
        shop.write("web.yaml", &(rest.clone() + &open))?;
        for who in [None, Some(&client), Some(&stranger), Some(&expired)] {
            let [any, two] = [&any, &two]
                .map(|caller| who.map_or(caller.anonymous(), |who| caller.showing(who)));
            expect("443", any.status("one.test")?, 200)?;
            expect("the other port", two.status("two.test")?, 200)?;
        }
        // Authorities that are not there let nobody in, and leave the host to no other listener.
        let lost = gateway(&spec(frontend("lost", "AllowInsecureFallback", Some((port, "other")))));
        shop.write("web.yaml", &(rest.clone() + &lost))?;
        for who in [None, Some(&client)] {
            let caller = who.map_or(any.anonymous(), |who| any.showing(who));
            let error = caller.call().err().context("the handshake succeeds")?;
            ensure!(format!("{error:#}").contains("TLS handshake"), "{error:#}");
        }
        expect("the other port", two.anonymous().status("two.test")?, 200)?;
        expect("the Ingress", own.status("own.test")?, 200)
    });
}
