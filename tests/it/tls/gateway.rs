//! What Gateways say about TLS, on real connections: which listener one is for, and who may come.

use anyhow::{Context, Result, ensure};
use openssl::ssl::SslVersion;
use oxigress_tests::controller::Controller;
use oxigress_tests::mutual::{Caller, EXPIRED, Identity, Seen, TlsEndpoint, VALID, expect};
use oxigress_tests::pass;
use oxigress_tests::place::{Directory, free_port};
use oxigress_tests::process::wait_for_end;
use oxigress_tests::shop::Shop;
use oxigress_tests::wait::until;
use std::net::{Ipv4Addr, TcpStream};

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
    Shop::new(controller, &["one", "two"], &[("tls", "one.test"), ("two", "two.test")])
}

/// Waits until nginx listens on a port: that is a reload.
fn wait_for(port: u16) -> Result<()> {
    until("the port", || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop)?))
}

const SERVICES: &str = "$SERVICE(one: one)\n$SERVICE(two: two)\n$INGRESS(shop: own.test/ one)\n";

/// Server names of handshakes, hosts of requests, and the status.
const MISDIRECTED: [(Option<&str>, &str, u16); 16] = [
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
];

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
        let spec = format!("  listeners:\n{}", listeners.concat());
        shop.write("web.yaml", &(SERVICES.to_owned() + &gateway(&spec) + &routes.concat()))?;
        let caller = Caller::new(shop.controller.https_port, "one.test")?;
        for (name, host, status) in MISDIRECTED {
            expect(&format!("{name:?} to {host}"), caller.name(name).status(host)?, status)?;
        }
        resume(&caller)?;
        // HTTP/2 connections are used again for hosts of one certificate.
        let mut twice = caller.clone();
        twice.is_h2 = true;
        let mut call = twice.call()?;
        let statuses = call.h2_statuses(&["one.test", "two.test", "one.test", "own.test"])?;
        ensure!(statuses == [200, 421, 200, 200], "{statuses:?}");
        // When the more specific listener is gone, its host is the other one's.
        let spec = format!("  listeners:\n{}", listeners[0]);
        shop.write("web.yaml", &(SERVICES.to_owned() + &gateway(&spec) + &routes[0]))?;
        expect("gone", caller.status("two.test")?, 404)
    });
}

/// A session may be gone on with by another name: in TLS 1.3 this counts, in TLS 1.2 that of the session.
fn resume(caller: &Caller<'_>) -> Result<()> {
    for (version, served, other) in
        [(SslVersion::TLS1_2, "one.test", "two.test"), (SslVersion::TLS1_3, "two.test", "one.test")]
    {
        let mut caller = caller.name(Some("one.test"));
        caller.version = version;
        for (host, status) in [(served, 200), (other, 421)] {
            expect("first", caller.status("one.test")?, 200)?;
            let resumed = caller.name(Some("two.test")).resuming()?;
            expect(&format!("{version:?}, resumed, to {host}"), resumed.status(host)?, status)?;
        }
    }
    Ok(())
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

/// The Services, routes, authorities and clients of the test.
struct Clients {
    shop: Shop,
    rest: String,
    listeners: [String; 2],
    port: u16,
}

impl Clients {
    /// Serves a Gateway whose clients have to show this, on 443 and on the other port.
    fn ask(&mut self, mode: &str, map: &str, other: &str) -> Result<()> {
        let frontend = frontend(map, mode, Some((self.port, other)));
        let spec = format!("{frontend}  listeners:\n{}", self.listeners.concat());
        self.shop.write("web.yaml", &(self.rest.clone() + &gateway(&spec)))
    }
}

#[test]
fn a_listener_lets_in_whom_its_authorities_vouch_for() {
    pass("gateway-clients", |directory| {
        let (shop, port) = (start(directory)?, free_port()?);
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let [client, expired] = [ours.issue("client", VALID)?, ours.issue("old", EXPIRED)?];
        let stranger = other.issue("stranger", VALID)?;
        let maps = authority("ours", &ours)? + &authority("other", &other)?;
        let listeners = [listener("any", 443, ""), listener("two", port, "hostname: two.test,")];
        let routes = [route("any", "one.test", "one"), route("two", "", "two")].concat();
        let mut clients =
            Clients { shop, rest: SERVICES.to_owned() + &maps + &routes, listeners, port };
        let before = clients.shop.controller.worker_pids();
        clients.ask("AllowValidOnly", "ours", "other")?;
        wait_for(port)?;
        // A worker of the time before the reload closes the connection that is kept below.
        for pid in before {
            wait_for_end(pid)?;
        }
        let any = Caller::new(clients.shop.controller.https_port, "one.test")?;
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
            // An Ingress asks for nothing: by a connection that asked for something it is misdirected.
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
        clients.ask("AllowValidOnly", "other", "ours")?;
        expect("after", call.get("one.test", "/")?.status, 421)?;
        open_and_closed(&mut clients, (&any, &two), &[&client, &stranger, &expired])
    });
}

fn open_and_closed(
    clients: &mut Clients,
    (any, two): (&Caller<'_>, &Caller<'_>),
    all: &[&Identity],
) -> Result<()> {
    // The fallback lets everybody in.
    clients.ask("AllowInsecureFallback", "ours", "other")?;
    expect("without a certificate", any.status("one.test")?, 200)?;
    expect("without a certificate", two.status("two.test")?, 200)?;
    for who in all {
        expect("443", any.clone().showing(who).status("one.test")?, 200)?;
        expect("the other port", two.clone().showing(who).status("two.test")?, 200)?;
    }
    // Authorities that are not there let nobody in, and leave the host to no other listener.
    clients.ask("AllowInsecureFallback", "lost", "other")?;
    for caller in [any.clone(), any.clone().showing(all[0])] {
        let error = caller.call().err().context("the handshake succeeds")?;
        ensure!(format!("{error:#}").contains("TLS handshake"), "{error:#}");
    }
    expect("the other port", two.status("two.test")?, 200)?;
    expect("the Ingress", any.name(Some("own.test")).status("own.test")?, 200)
}

/// A Service of an endpoint over TLS, and the policy that says so.
fn over_tls(endpoint: &TlsEndpoint) -> String {
    let port = endpoint.address.port();
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{ name: tls, namespace: default }}\n\
         spec: {{ ports: [{{ port: 80, targetPort: {port} }}] }}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{ name: tls-1, namespace: default, labels: {{ kubernetes.io/service-name: tls }} }}\n\
         addressType: IPv4\nports: [{{ port: {port} }}]\nendpoints: [{{ addresses: [127.0.0.1] }}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{ name: tls, namespace: default }}\n\
         spec:\n  targetRefs: [{{ group: '', kind: Service, name: tls }}]\n\
         \x20 validation: {{ hostname: endpoint.test, caCertificateRefs: [{{ group: '', kind: ConfigMap, name: ours }}] }}\n"
    )
}

#[test]
fn endpoints_over_tls_are_shown_the_gateway_s_certificate() {
    pass("gateway-identity", |directory| {
        let mut shop = start(directory)?;
        let ours = Identity::root("ours")?;
        let endpoint = TlsEndpoint::start(&ours.issue("endpoint.test", VALID)?)?;
        let rest = authority("ours", &ours)?
            + &over_tls(&endpoint)
            + "$SECRET(two: two)\n"
            + &[route("any", "one.test", "tls"), route("more", "one.test", "tls")].concat();
        let listeners =
            [listener("any", 443, ""), "  - { name: more, port: 80, protocol: HTTP }\n".into()];
        let spec = |backend: &str| format!("{backend}  listeners:\n{}", listeners.concat());
        let subject = |shop: &Shop| -> Result<String> {
            let caller = Caller::new(shop.controller.https_port, "one.test")?;
            Ok(Seen::parse(&caller.call()?.get("one.test", "/")?.body)?.subject)
        };
        let naming = |secret: &str| {
            gateway(&spec(&format!(
                "  tls: {{ backend: {{ clientCertificateRef: {{ name: {secret} }} }} }}\n"
            )))
        };
        for (manifest, expected) in [
            (gateway(&spec("")), ""),
            (naming("tls"), "tls"),
            (naming("two"), "two"),
            // None is shown where it cannot be used.
            (naming("lost"), ""),
        ] {
            shop.write("web.yaml", &(rest.clone() + &manifest))?;
            let found = subject(&shop)?;
            ensure!(found == expected, "{found:?}, not {expected:?}");
        }
        Ok(())
    });
}

/// A Gateway with a TLS listener that decrypts and one that does not, on one port, and a TLSRoute to the endpoint over TLS.
fn decrypting(port: u16, more: &str) -> String {
    let listener = |name: &str, tls: &str| {
        format!(
            "  - {{ name: {name}, port: {port}, hostname: {name}.test, protocol: TLS, tls: {{ {tls} }} }}\n"
        )
    };
    let listeners = listener("one", "certificateRefs: [{ name: tls }]")
        + &listener("through", "mode: Passthrough");
    gateway(&format!("{more}  listeners:\n{listeners}"))
        + "---\napiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: { name: tls, namespace: default }\n\
           spec:\n  parentRefs: [{ name: web }]\n  hostnames: [one.test, through.test]\n\
           \x20 rules: [{ backendRefs: [{ name: tls, port: 80 }] }]\n"
}

#[test]
fn sessions_that_are_decrypted_go_to_endpoints_over_tls_as_policies_say() {
    pass("gateway-sessions-tls", |directory| {
        let mut shop = start(directory)?;
        let (ours, other) = (Identity::root("ours")?, Identity::root("other")?);
        let endpoint = TlsEndpoint::start(&ours.issue("endpoint.test", VALID)?)?;
        let port = free_port()?;
        let seen = |name: &str| -> Result<Seen> {
            Seen::parse(&Caller::new(port, name)?.call()?.get(name, "/")?.body)
        };
        let policy = over_tls(&endpoint);
        let shown = "  tls: { backend: { clientCertificateRef: { name: tls } } }\n";
        let trusted = authority("ours", &ours)?;
        // Of what there is besides, whether it is spoken to, and what it is shown then.
        let cases = [
            (trusted.clone() + &policy + &decrypting(port, ""), Some("")),
            (trusted.clone() + &policy + &decrypting(port, shown), Some("tls")),
            (authority("ours", &other)? + &policy + &decrypting(port, shown), None),
            (trusted.clone() + &policy + &decrypting(port, ""), Some("")),
            (
                trusted + &policy.replace("endpoint.test", "other.test") + &decrypting(port, ""),
                None,
            ),
            // Without its authorities the policy cannot be honoured.
            (policy.clone() + &decrypting(port, ""), None),
        ];
        for (place, (manifest, expected)) in cases.iter().enumerate() {
            shop.write("web.yaml", manifest)?;
            wait_for(port)?;
            let found = seen("one.test");
            let subject = found.as_ref().ok().map(|seen| seen.subject.as_str());
            ensure!(subject == *expected, "case {place}: {found:?}, not {expected:?}");
            ensure!(found.map_or(true, |seen| seen.name == "endpoint.test"), "the server name");
            // Where TLS passes through the policy says nothing, and the client's own TLS comes to the endpoint.
            let through = seen("through.test")?;
            expect("the server name", u16::from(through.name == "through.test"), 1)?;
        }
        Ok(())
    });
}
